"""The last records that a connector has written into each partition: it may have stored its offset before them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.debezium.connect_offsets import DebeziumOffset
from airflow_provider_mysql_cdc.cdc.emit import topic_names
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, StateError
from airflow_provider_mysql_cdc.cdc.formats import record_topics
from airflow_provider_mysql_cdc.cdc.formats.record_topics import partition_of
from airflow_provider_mysql_cdc.cdc.job.schema_ids import SchemaTexts
from airflow_provider_mysql_cdc.cdc.sink.client_pool import ConsumerCache
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import (
    HiddenByTransaction,
    TopicRecord,
    hidden_records_error,
    read_between,
)
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicInfo, end_offsets, existing_topics
from airflow_provider_mysql_cdc.cdc.verify.read.event_readers import PayloadReader, boundary_reader
from airflow_provider_mysql_cdc.cdc.verify.read.event_record import UnreadableRecord

_FIRST_PART, _MOST_READ = 64, 500_000
"""Offsets of a partition that are read first, and altogether; each part is four times as long as the one behind it."""
_TIMEOUT_S = 60.0
_CHANGE, _TOMBSTONE = 1, 2


@dataclass(frozen=True, slots=True)
class LastRecord:
    """Hold the last record of a partition that has a place in the binlog.

    Args:
        topic: Its topic.
        partition: Its partition.
        file: Binlog file of its event; empty in the transaction topic.
        pos: Position of the event.
        row: Number of the row behind which nothing is there.
        record: Records of that row that are there; for a statement all that are there.
        gtid: GTID of its transaction, or None.
        transaction_id: Id of the transaction, in the transaction topic.
        ended: Whether it says that the transaction has ended.
        is_statement: Whether its event is a statement: a schema change, or a TRUNCATE in a table's topic.
        key: Its key.
    """

    topic: str
    partition: int
    file: str = ""
    pos: int = 0
    row: int = 0
    record: int = 0
    gtid: str | None = None
    transaction_id: str = ""
    ended: bool = False
    is_statement: bool = False
    key: bytes | None = None

    @property
    def where(self) -> str:
        """Where the record is, for messages."""
        return f"topic {self.topic}, partition {self.partition}"


def require_partition(last: LastRecord, partitions: int) -> None:
    """Check that this stream would write a record into the partition that it is in.

    Args:
        last: The record.
        partitions: Partitions of its topic.

    Raises:
        StateError: Its partition was chosen in another way.
    """
    if partitions > 1 and (last.key is None or partition_of(last.key, partitions) != last.partition):
        raise StateError(
            "records behind the connector's offset cannot be left out: their partitions are chosen in another way",
            where=last.where,
            why="they have no key" if last.key is None else "it has another partitioner, or the topic got partitions",
            remedy="start the connector again, let it run for some seconds, stop it (PUT /connectors/NAME/stop, or "
            "SIGTERM of a standalone worker) so that its offset is stored, and import again",
        )


class TopicEnds:
    """Read the last records of topics.

    Args:
        cfg: The connector's configuration.
        offset: The connector's offset.
        trusts_offset: Whether topics whose records do not say their place are left out.
    """

    def __init__(self, cfg: ConnectorConfig, offset: DebeziumOffset, *, trusts_offset: bool) -> None:
        self._cfg, self._offset, self._trusts_offset = cfg, offset, trusts_offset
        self._settings = cfg.kafka_settings("consumer")
        self._admin = make_admin(self._settings)
        self.partitions: dict[str, int] = {}
        """Partitions among which a connector spreads the records of a topic; those of statements are all in one."""
        self.boundary_partitions = 1
        self.ends: dict[str, dict[int, int]] = {}

    def read(self, table_topics: Sequence[str]) -> list[LastRecord]:
        """Return the last records of the topics of tables, schema changes and transactions that exist.

        Args:
            table_topics: Topics of tables.

        Raises:
            ConfigError: Records are in another format than the configuration says.
            StateError: Records do not say their place in the binlog, or pass a chain of transforms.
            SinkError: Kafka cannot be read.
        """
        cfg, found = self._cfg, list[LastRecord]()
        if cfg.chain is not None:
            if self._trusts_offset:
                return []
            raise _no_place_error(
                F.TRANSFORMS.name, "which topics its records went to, and in what form, only they say"
            )
        changes, boundaries = record_topics.schema_change_topic(cfg), ""
        if cfg[F.PROVIDE_TRANSACTION_METADATA]:
            name = topic_names.transaction_topic(cfg.topic_prefix, cfg[F.TOPIC_TRANSACTION])
            boundaries = cfg.route_topic(name).topic
        kinds: dict[str, Callable[..., LastRecord | bool]] = {
            **dict.fromkeys(table_topics, partial(_last_change, self._offset)),
            changes: _last_statement,
            boundaries: _last_boundary,
        }
        infos = existing_topics(self._admin, [topic for topic in kinds if topic])
        with closing(SchemaTexts(cfg)) as texts:
            values = boundary_reader(cfg, texts.text_of)
            for topic, info in infos.items():
                self.partitions[topic] = 1 if topic == changes else info.partitions
                self.boundary_partitions = info.partitions if topic == boundaries else self.boundary_partitions
                found += self._read_topic(topic, info, partial(kinds[topic], values, topic))
        return found

    def _read_topic(
        self, topic: str, info: TopicInfo, last_of: Callable[..., LastRecord | bool]
    ) -> Iterator[LastRecord]:
        bounds = end_offsets(self._admin, topic, range(info.partitions))
        self.ends[topic] = {p: end for p, (_, end) in bounds.items()}
        kept: dict[int, list[TopicRecord]] = {p: [] for p in bounds}
        lows, part = dict(self.ends[topic]), _FIRST_PART
        with ConsumerCache() as cache:
            while lows:
                parts = {p: (max(bounds[p][0], low - part), low) for p, low in lows.items()}
                for p, records in self._read_parts(topic, info, parts, cache).items():
                    kept[p] = records + kept[p]
                part *= 4
                for p, (low, _) in parts.items():
                    last = self._judge(topic, partial(last_of, whole=low == bounds[p][0]), kept[p])
                    if isinstance(last, LastRecord):
                        yield last
                    if last is not False or low == bounds[p][0]:
                        del lows[p]
                    elif len(kept[p]) > _MOST_READ:
                        raise _no_place_error(
                            f"topic {topic}", f"the last {len(kept[p])} records of partition {p} have no place"
                        )
                    else:
                        lows[p] = low

    def _read_parts(
        self, topic: str, info: TopicInfo, parts: Mapping[int, tuple[int, int]], cache: ConsumerCache
    ) -> dict[int, list[TopicRecord]]:
        found: dict[int, list[TopicRecord]] = {p: [] for p in parts}
        try:
            for record in read_between(
                self._settings, topic, parts, timeout_s=_TIMEOUT_S, consumer_cache=cache, topic_id=info.id
            ):
                found[record.partition].append(record)
        except HiddenByTransaction as hidden:
            raise hidden_records_error(topic, hidden) from None
        return found

    def _judge(
        self, topic: str, last_of: Callable[..., LastRecord | bool], records: list[TopicRecord]
    ) -> LastRecord | bool:
        """Return the last record with a place; True for none, False where more has to be read."""
        try:
            return last_of(records)
        except UnreadableRecord as error:
            _require_format(self._cfg, topic, records)
            if self._trusts_offset:
                return True
            raise _no_place_error(f"topic {topic}", str(error)) from None


def _no_place_error(where: str, why: str) -> StateError:
    return StateError(
        "it cannot be told whether the connector has written records behind its offset",
        where=where,
        why=why,
        remedy="if the connector was stopped (PUT /connectors/NAME/stop, or SIGTERM), and not killed, its offset says "
        "all, and --trust-offset takes it; otherwise start it again, stop it so, and import again",
    )


def _require_format(cfg: ConnectorConfig, topic: str, records: Sequence[TopicRecord]) -> None:
    """Check that records in JSON have schemas exactly where this stream would write them with schemas.

    Raises:
        ConfigError: They have not.
    """
    value = next((r.value for r in reversed(records) if r.value is not None), None)
    try:
        document = json.loads(value or b"")
    except ValueError:
        return
    has = isinstance(document, dict) and document.keys() == {"schema", "payload"}
    if cfg.registry_settings("value") is None and has != cfg[F.VALUE_SCHEMAS_ENABLE]:
        raise ConfigError(
            f"the connector's records have {'schemas' if has else 'no schemas'}, and this stream's would have "
            f"{'none' if has else 'them'}",
            where=f"topic {topic}",
            why="a connector without converters of its own takes those of its Kafka Connect worker",
            remedy=f"set {F.VALUE_SCHEMAS_ENABLE.name}={str(has).lower()}, and "
            f"{F.KEY_SCHEMAS_ENABLE.name} as its keys are",
        )


def _source(values: PayloadReader, record: TopicRecord) -> Mapping[str, Any]:
    """Return the source block of a record; empty for one that is no event.

    Raises:
        UnreadableRecord: It has none.
    """
    payload, _ = values.read(record.value or b"", record.headers)
    source = payload.get("source") if isinstance(payload, dict) else None
    if not isinstance(source, dict) or not isinstance(source.get("file"), str):
        raise UnreadableRecord("its records have no source block with the place in the binlog (a transform took it)")
    return {**source, "op": payload.get("op")}


def _last_change(
    offset: DebeziumOffset, values: PayloadReader, topic: str, records: list[TopicRecord], *, whole: bool
) -> LastRecord | bool:
    """Return the last change that the stream has; rows of snapshots may stand behind it.

    Raises:
        UnreadableRecord: A record does not say its place.
    """
    has_tombstone = False
    for record in reversed(records):
        if record.value is None:
            has_tombstone = True
            continue
        source = _source(values, record)
        snapshot = str(source.get("snapshot") or "false").lower()
        if snapshot == "false":
            return _change(topic, record, source, has_tombstone=has_tombstone)
        if snapshot != "incremental" and not offset.is_before(source["file"], source["pos"]):
            return True  # what a snapshot before the offset has read; all changes before it are, too
        has_tombstone = False
    return False


def _change(topic: str, record: TopicRecord, source: Mapping[str, Any], *, has_tombstone: bool) -> LastRecord:
    row, op, gtid = source.get("row") or 0, source["op"], source.get("gtid")
    part = (row, _TOMBSTONE if has_tombstone else _CHANGE) if op == "d" else (row + 1, 0)
    if op == "t":
        part = 0, 1
    place = source["file"], source["pos"], *part
    return LastRecord(topic, record.partition, *place, gtid=gtid, is_statement=op == "t", key=record.key)


def _last_statement(values: PayloadReader, topic: str, records: list[TopicRecord], *, whole: bool) -> LastRecord | bool:
    """Return the last statement; one that drops many tables has a record for each."""
    count, place = 0, None
    for record in reversed(records):
        source = _source(values, record)
        at = source["file"], source["pos"], source.get("gtid")
        if place not in (None, at) or str(source.get("snapshot") or "false").lower() != "false":
            break
        count, place = count + 1, at
    else:
        if not whole:
            return False
    if place is None:
        return bool(records)
    file, pos, gtid = place
    return LastRecord(topic, 0, file, pos, record=count, gtid=gtid, is_statement=True)


def _last_boundary(values: PayloadReader, topic: str, records: list[TopicRecord], *, whole: bool) -> LastRecord | bool:
    if not records:
        return False
    payload, _ = values.read(records[-1].value or b"", records[-1].headers)
    if not isinstance(payload, dict) or not isinstance(payload.get("id"), str):
        raise UnreadableRecord("its last record is not that of a transaction")
    last = records[-1]
    ended = payload.get("status") == "END"
    return LastRecord(topic, last.partition, transaction_id=payload["id"], ended=ended, key=last.key)
