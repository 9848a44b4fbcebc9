"""Which record of the schema history each table has its structure from: a version that grows with each change.

The end of the topic is read, as far as it is committed; the next reading goes on behind it. What lies before is not
known, and is said to be so. Nothing is replayed: records name the tables that they change.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.cdc.model.stored_record import Members
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema.history_cache import TopicEnd
from airflow_provider_mysql_cdc.cdc.schema.history_record import parse_history_json
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord, read_topic
from airflow_provider_mysql_cdc.cdc.sink.topics import end_offsets, existing_topics

MAX_RECORDS = 50_000
"""Records at the end of the topic that are read: a snapshot of 10,000 tables writes 30,000."""
_TIMEOUT_S = 10.0
_CHANGED_ID = re.compile(r'"((?:[^"]|"")+)"\."((?:[^"]|"")+)"')


@dataclass(frozen=True, slots=True)
class StructureRecord:
    """Name the record that a table's structure is from.

    Args:
        offset: Its offset in the schema history.
        ts_ms: When it was written, milliseconds since 1970.
    """

    offset: int
    ts_ms: int


_UNREAD = TopicEnd(None, 0)


@dataclass(frozen=True, slots=True)
class TableStructures:
    """Hold the versions of a stream's tables as far as its schema history was read.

    Args:
        end: The topic, and the offset up to which it was read.
        versions: By ``TableId.path``. Tables that were dropped are not among them; the earlier name of one that was
            renamed is, because the history does not say it.
    """

    end: TopicEnd = _UNREAD
    versions: Mapping[str, StructureRecord] = field(default_factory=lambda: MappingProxyType({}))


def read_table_structures(cfg: ConnectorConfig, before: TableStructures | None = None) -> TableStructures:
    """Return the versions of the captured tables; none where there is no schema history.

    Args:
        cfg: The connector's configuration.
        before: What the last reading returned, of which only later records are read.

    Raises:
        SinkError: Kafka cannot be read.
    """
    topic, settings = cfg.history_topic, cfg.kafka_settings()
    admin = make_admin(settings)
    info = existing_topics(admin, [topic]).get(topic)
    if info is None or info.partitions != 1:
        return TableStructures()
    end = TopicEnd(info.id, end_offsets(admin, topic, [0], stable=True)[0][1])
    known = before if before is not None and _continues(before.end, end) else TableStructures()
    first = max(known.end.offset, end.offset - MAX_RECORDS)
    if first >= end.offset:
        return TableStructures(end, known.versions)
    records = read_topic(
        settings, topic, timeout_s=_TIMEOUT_S, admin=admin, stable=True, topic_info=info, since={0: first}
    )
    return TableStructures(end, with_records(known.versions, records, cfg.topic_prefix, cfg.captures))


def _continues(before: TopicEnd, now: TopicEnd) -> bool:
    """Return whether a topic is the one that was read, and no shorter."""
    return before.id is not None and before.id == now.id and before.offset <= now.offset


def with_records(
    versions: Mapping[str, StructureRecord],
    records: Iterator[TopicRecord],
    prefix: str,
    captures: Callable[[TableId], bool],
) -> dict[str, StructureRecord]:
    """Return versions after further records; those of other streams, or that cannot be read, say nothing.

    Args:
        versions: The versions before them.
        records: The records, in order.
        prefix: ``topic.prefix``.
        captures: Whether a table is captured.
    """
    found = dict(versions)
    for record in records:
        try:
            members = Members(parse_history_json(record.value or b""))
            if members.object("source").text("server") != prefix:
                continue
            version = StructureRecord(record.offset, members.integer("ts_ms"))
            for table, dropped in _changed_tables(members):
                found.pop(table.path(), None)
                if not dropped and captures(table):
                    found[table.path()] = version
        except CdcError:
            continue
    return found


def _changed_tables(record: Members) -> Iterator[tuple[TableId, bool]]:
    """Yield the tables that a record names, with whether it drops them."""
    if "structure" in record:
        named = record.object("structure").object("id")
        yield TableId(named.text("db"), named.text("table")), False
        return
    for change in record.objects("tableChanges", ()):
        if (match := _CHANGED_ID.fullmatch(change.text("id"))) is not None:
            db, table = (part.replace('""', '"') for part in match.groups())
            yield TableId(db, table), change.text("type") == "DROP"
