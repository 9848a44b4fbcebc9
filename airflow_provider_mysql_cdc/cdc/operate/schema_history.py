"""The schema history to an operator: the record that each table has its structure from, and its beginning, deleted.

Which record of the schema history each table has its structure from: a version that grows with each change.

The end of the topic is read, as far as it is committed; the next reading goes on behind it. What lies before is not
known, and is said to be so. Nothing is replayed: records name the tables that they change.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.binlog.dump import FILE_START
from airflow_provider_mysql_cdc.cdc.binlog.file_fingerprint import with_fingerprint
from airflow_provider_mysql_cdc.cdc.binlog.position import binary_logs, end_of_binlog
from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.offset_store import OffsetStore, StoredState
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import CdcError, SchemaError, StateError
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import read_incremental_state
from airflow_provider_mysql_cdc.cdc.job import run_lock
from airflow_provider_mysql_cdc.cdc.job.topic_guard import require_recorded_history
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.stored_record import Members
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.operate.source_server import at_one_server
from airflow_provider_mysql_cdc.cdc.schema.history import DescriptionPlace, description_places
from airflow_provider_mysql_cdc.cdc.schema.history_record import parse_history_json
from airflow_provider_mysql_cdc.cdc.schema.history_replay import TopicEnd
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord, read_topic
from airflow_provider_mysql_cdc.cdc.sink.topics import delete_before, end_offsets, existing_topics, first_offsets

_PURGE = (
    "wait until the source has purged the binlog before a full description; or keep only what stored offsets need "
    "(--only-stored), if the offset is not to be moved back"
)


@dataclass(frozen=True, slots=True)
class NeededOffset:
    """Hold an offset whose structures must stay in the schema history.

    Args:
        what: What needs it.
        offset: The offset.
        remedy: What helps if no description is early enough for it.
    """

    what: str
    offset: BinlogOffset
    remedy: str = "trim again after a drain has written a later full description, and nothing needs this position"


@dataclass(frozen=True, slots=True)
class TrimResult:
    """Say what a trim deletes.

    Args:
        first: Offset in the topic of the first record before the trim.
        kept: Offset of the first record that is kept; the same as ``first`` if nothing is deleted.
        position: Position of the full description that begins there.
        needed_by: What needs that description.
    """

    first: int
    kept: int
    position: BinlogOffset
    needed_by: str


def trim_history(
    cfg: ConnectorConfig, store: OffsetStore, owner: str, log: Log, *, dry_run: bool = False, only_stored: bool = False
) -> TrimResult:
    """Delete the records of the schema history that nothing needs.

    Args:
        cfg: The connector's configuration.
        store: Airflow's offset store.
        owner: ``dag_id/run_id/task_id/map_index``.
        log: Receives one line of text.
        dry_run: Whether to delete nothing, and only say what would be deleted.
        only_stored: Whether to keep only what stored offsets need. Otherwise the structures of all positions that the
            source's binlog still has are kept too, so that the offset can be moved back to them.

    Raises:
        StateError: The stream has no offset yet, or a snapshot or reset is not finished.
        SchemaError: The history is lost, or no full description is early enough for what is needed.
        RunInProgressError: Another run of the stream is running.
        SinkError: Kafka refuses.
    """
    cfg, admin = at_one_server(cfg, store, log), make_admin(cfg.kafka_settings())
    with _lock(cfg, owner, dry_run) as lock, connect(cfg.connection_settings()) as conn:
        with kafka_clients.ledger(cfg) as reader:
            ledger = (reader.peek() if dry_run else reader.read()) or LedgerState()
        require_recorded_history(cfg, ledger)
        needed = needed_offsets(store.load(), ledger)
        if not only_stored:
            needed.append(NeededOffset("the beginning of the source's binlog", _first_of_binlog(cfg, conn), _PURGE))
        result = choose_trim(list(description_places(cfg)), needed, first_offsets(admin, cfg.history_topic, [0])[0])
        if not dry_run and result.kept > result.first:
            lock.require()
            delete_before(admin, cfg.history_topic, result.kept)
    verb = "would be deleted" if dry_run else "are deleted"
    log(
        f"the offsets {result.first} to {result.kept - 1} of topic {cfg.history_topic} {verb}; it then begins with the "
        f"full description at {result.position}, which is needed by {result.needed_by}"
        if result.kept > result.first
        else f"topic {cfg.history_topic} begins with the full description at {result.position} already, which is "
        f"needed by {result.needed_by}; nothing is deleted"
    )
    return result


@contextlib.contextmanager
def _lock(cfg: ConnectorConfig, owner: str, dry_run: bool) -> Iterator[Any]:
    if dry_run:
        yield None
        return
    with run_lock.hold_run_lock(cfg.connection_settings(), cfg.topic_prefix, owner) as lock:
        yield lock


def _first_of_binlog(cfg: ConnectorConfig, conn: MySqlConnection) -> BinlogOffset:
    settings = cfg.connection_settings()
    end = end_of_binlog(conn, settings)
    return with_fingerprint(conn, settings, end.with_position(binary_logs(conn)[0][0], FILE_START))


def needed_offsets(stored: StoredState | None, ledger: LedgerState) -> list[NeededOffset]:
    """Return the offsets that are stored anywhere.

    Args:
        stored: What the offset store has.
        ledger: The ledger.

    Raises:
        StateError: There is none, or a snapshot or reset is not finished.
    """
    plan = ledger.plan
    if plan is None or stored is None or stored.committed is None:
        raise StateError(
            "the schema history cannot be trimmed before the stream has an offset",
            where="offset store" if plan is not None else "ledger",
            why="it is not known which structures are needed",
            remedy="run the stream once; if its offset was lost, the next run restores it from the ledger",
        )
    if plan.kind != "drain" and not ledger.complete():
        raise StateError(
            f"the schema history cannot be trimmed while a {plan.kind} is not finished",
            where=f"epoch {plan.epoch} of {plan.owner}",
            remedy=f"run the task of the {plan.kind} again; then trim",
        )
    needed = [
        NeededOffset("the stored offset", stored.committed),
        NeededOffset(f"the start of batch {plan.epoch}", plan.start),
    ]
    if stored.pending is not None:
        needed.append(NeededOffset("the pending plan of the offset store", stored.pending.start))
    if (end := ledger.end()) is not None:
        needed.append(NeededOffset("the end of the last batch", end))
    for scan in read_incremental_state(ledger).active_scans:
        if scan.start_offset is not None:
            needed.append(NeededOffset(f"the ad-hoc snapshot of {scan.table}", scan.start_offset))
    return needed


def choose_trim(places: list[DescriptionPlace], needed: list[NeededOffset], first: int) -> TrimResult:
    """Return the last full description that everything needed can be replayed from.

    Args:
        places: The full descriptions in the order of the topic.
        needed: The offsets that are needed.
        first: Offset in the topic of its first record.

    Raises:
        SchemaError: There is no full description at or before one of them; the error names it.
    """
    chosen: tuple[DescriptionPlace, NeededOffset] | None = None
    for need in needed:
        base = next((place for place in reversed(places) if place.record.is_base_for(need.offset)), None)
        if base is None:
            raise SchemaError(
                "nothing of the schema history can be deleted",
                where=f"{need.what}, {need.offset}",
                why="no full description in the history is at or before this position of this server",
                remedy=need.remedy,
            )
        if chosen is None or base.offset < chosen[0].offset:
            chosen = base, need
    assert chosen is not None
    return TrimResult(first, max(first, chosen[0].offset), chosen[0].record.position, chosen[1].what)


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
