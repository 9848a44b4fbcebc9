"""What a person decides by hand: another offset (a purged binlog, a lost ledger), or tables that are not wanted.

Move the stored offset by hand: the last resort when the stream cannot continue (a purged binlog, a lost ledger).

The decision is written to the ledger as a plan of kind ``reset``. So it has an epoch and an owner like every other
plan, fences a driver that still runs the discarded plan, and survives a crash before the offset store has it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from functools import partial

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.binlog.dump import FILE_START
from airflow_provider_mysql_cdc.cdc.binlog.file_fingerprint import with_fingerprint
from airflow_provider_mysql_cdc.cdc.binlog.position import binary_logs, end_of_binlog
from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import ENDS_KEY, TAKEN_OVER_KEY
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.offset_store import OffsetStore, StoredState
from airflow_provider_mysql_cdc.cdc.commit.plan import reset_plan
from airflow_provider_mysql_cdc.cdc.commit.reconcile import reconcile
from airflow_provider_mysql_cdc.cdc.commit.takeover import read_as_planner
from airflow_provider_mysql_cdc.cdc.commit.topic_records import schema_id_record, topic_record
from airflow_provider_mysql_cdc.cdc.commit.unread_tables import NeverReadTable, unread_tables
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.field import MAX_SHOWN_LENGTH
from airflow_provider_mysql_cdc.cdc.drain.failover.requested_position import (
    position_at,
    position_of_gtids,
    with_executed_gtids,
)
from airflow_provider_mysql_cdc.cdc.drain.failover.reset_structures import history_covers, write_schemas
from airflow_provider_mysql_cdc.cdc.drain.failover.server_transactions import moved_by_hand
from airflow_provider_mysql_cdc.cdc.errors import (
    ConfigError,
    LedgerMismatchError,
    LedgerMissingError,
    NoOffsetError,
    RecordsLostError,
    SchemaError,
)
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import read_incremental_state, state_changes
from airflow_provider_mysql_cdc.cdc.incremental.scan_updates import restart_scans
from airflow_provider_mysql_cdc.cdc.incremental.set_binlog_position import signals_taken_records
from airflow_provider_mysql_cdc.cdc.job import run_lock
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.job.topic_guard import history_difference
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.gtid import GtidSet
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.operate.source_server import at_one_server
from airflow_provider_mysql_cdc.cdc.schema.history import require_own_history
from airflow_provider_mysql_cdc.cdc.sink.record_writer import write_plain

MAX_TRIES = 5
STORED, CURRENT, EARLIEST = "stored", "current", "earliest"
_GTID_SET = re.compile(r"\s*[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-")
_FILE_AND_POSITION = re.compile(r"(?P<file>[^:\s]+\.[0-9]+):(?P<pos>[0-9]{1,20})")


def reset_offset(cfg: ConnectorConfig, store: OffsetStore, owner: str, log: Log, *, to: str = STORED) -> BinlogOffset:
    """Discard the current plan and continue from another offset, as a person decided.

    Args:
        cfg: The connector's configuration.
        store: Airflow's offset store.
        owner: ``dag_id/run_id/task_id/map_index``.
        log: Receives one line of text.
        to: ``stored`` keeps the stored offset, ``current`` takes the end of the server's binlog, ``earliest`` the first
            position that the server still has, ``file:position`` a transaction boundary, and a GTID set the first
            transaction that it does not contain.

    Returns:
        The offset from which the next drain starts.

    Raises:
        ConfigError: ``to`` is none of these, or not a transaction boundary.
        NoOffsetError: There is no stored offset to keep.
        BinlogPurgedError: The server no longer has this position.
        SchemaError: The schema history does not cover the offset, and a captured table was changed after it.
        RunInProgressError: Another run of the stream is running.
    """
    cfg = at_one_server(cfg, store, log)
    settings = cfg.connection_settings()
    with run_lock.hold_run_lock(settings, cfg.topic_prefix, owner) as lock, connect(settings) as conn:
        with JobLedger(cfg) as job:
            stored = store.load()
            offset_stored = stored is not None and stored.committed is not None
            ledger_before = read_as_planner(kafka_clients.ledger(cfg), expect_plan=offset_stored)
            find_target = partial(_requested_offset, cfg, conn, to, stored, ledger_before)
            offset = find_target()
            plan = ledger_before.plan if ledger_before else None
            epoch = max(stored.epoch if stored else 0, ledger_before.newest_epoch if ledger_before else 0) + 1
            if plan is not None and ledger_before is not None and not ledger_before.complete():
                log(f"{plan.kind} {plan.epoch} ({plan.start} to {plan.end}, {plan.owner}) is discarded")
            drained = _drained_offset(stored, ledger_before)
            # A recreated history does not have the statements that were drained.
            recorded = None if history_difference(cfg, ledger_before) else drained
            offset = _ensure_structures(cfg, conn, job, offset, find_target, epoch, recorded, to, log)
            if drained is not None:
                offset = moved_by_hand(offset, drained)
            now_ms = time.time_ns() // 1_000_000
            lock.require()
            signal_records = signals_taken_records(job, ledger_before, epoch) if ledger_before is not None else []
            ledger = job.begin(reset_plan(epoch, offset, owner, now_ms, gapless=to == STORED), signal_records)
            accept_topics(cfg, job, ledger)
            if to != STORED and TAKEN_OVER_KEY in ledger.other_records:
                job.put_all([(TAKEN_OVER_KEY, None)])  # records before it come once more, if that is what was requested
            if to != STORED and (incremental := read_incremental_state(ledger)).active_scans:
                # Also those that are read to the end, which nobody was told yet.
                job.put_all(state_changes(incremental, restart_scans(incremental, offset)))
                log(f"the ad-hoc snapshots of {len(incremental.active_scans)} table(s) start again from the beginning")
        result = reconcile(stored, ledger, at_ms=now_ms)
        store.save(result.state, stored)
    offset_before = stored.committed if stored else None
    log(f"the offset was moved by hand from {offset_before} to {offset}, epoch {epoch}")
    return offset


def accept_topics(cfg: ConnectorConfig, job: JobLedger, ledger: LedgerState) -> None:
    """Accept the topics, and the schema registry, as they are now.

    Args:
        cfg: The connector's configuration.
        job: The ledger.
        ledger: Its content.
    """
    topic_tombstones = [topic_record(cfg.ledger_topic, topic, None) for topic in ledger.topics]
    topic_tombstones.append(SideRecord(cfg.ledger_topic, ENDS_KEY.encode(), None))
    job.commit([*topic_tombstones, *(schema_id_record(cfg.ledger_topic, name, None) for name in ledger.schemas)])


def _ensure_structures(
    cfg: ConnectorConfig,
    conn: MySqlConnection,
    job: JobLedger,
    offset: BinlogOffset,
    find_target: Callable[[], BinlogOffset],
    epoch: int,
    drained: BinlogOffset | None,
    to: str,
    log: Log,
) -> BinlogOffset:
    """Make sure that the schema history has the structures at the offset, before the offset moves.

    If the end of the binlog has moved past a schema change meanwhile, the new end is used.
    """
    if to == STORED or history_covers(cfg, conn, offset, drained):
        return offset
    require_own_history(cfg)
    for remaining in reversed(range(MAX_TRIES)):
        try:
            table_count = write_schemas(cfg, job, offset, epoch)
            log(f"the structures of {table_count} captured table(s) were read from the server as of {offset}")
            return offset
        except SchemaError:
            if to != CURRENT or not remaining:
                raise
            offset = find_target()
    raise AssertionError("unreachable")


def _drained_offset(stored: StoredState | None, ledger: LedgerState | None) -> BinlogOffset | None:
    """Return how far the stream was drained, or None when neither the state nor the ledger has an offset."""
    try:
        return _stored_offset(stored, ledger)
    except NoOffsetError:
        return None


def _requested_offset(
    cfg: ConnectorConfig, conn: MySqlConnection, to: str, stored: StoredState | None, ledger: LedgerState | None
) -> BinlogOffset:
    """Return the offset that was requested."""
    settings = cfg.connection_settings()
    if to == STORED:
        return _stored_offset(stored, ledger)
    binlog_end = end_of_binlog(conn, settings)
    if to == CURRENT:
        return binlog_end
    if to == EARLIEST:
        earliest = binlog_end.with_position(binary_logs(conn)[0][0], FILE_START)
        return with_fingerprint(conn, settings, with_executed_gtids(conn, settings, earliest))
    if _GTID_SET.match(to):
        return position_of_gtids(cfg, conn, binlog_end, _parse_gtids(to))
    match = _FILE_AND_POSITION.fullmatch(to.strip())
    if match is None:
        raise ConfigError(
            "this is not an offset",
            where=f"offset={to[:MAX_SHOWN_LENGTH]!r}",
            remedy="use stored, current, earliest, file:position such as binlog.000012:157, or a GTID set such as "
            "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-77",
        )
    return position_at(conn, settings, binlog_end, match["file"], int(match["pos"]))


def _parse_gtids(text: str) -> GtidSet:
    try:
        return GtidSet.parse(text)
    except ValueError as error:
        raise ConfigError(
            "this is not a GTID set",
            where=f"offset {text[:200]}",
            why=str(error),
            remedy="write it as SELECT @@gtid_executed shows it",
        ) from error


def _stored_offset(stored: StoredState | None, ledger: LedgerState | None) -> BinlogOffset:
    """Return the stored offset reconciled with the ledger, so that a batch that is complete in Kafka is not repeated.

    When the two contradict each other, or the ledger is gone, the stored offset counts.
    """
    try:
        state = reconcile(stored, ledger).state
    except (LedgerMissingError, LedgerMismatchError, RecordsLostError):
        state = stored or StoredState()
    if state.committed is not None:
        return state.committed
    if ledger is not None and ledger.plan is not None and ledger.plan.kind == "drain":
        return ledger.plan.start
    raise NoOffsetError(
        "there is no stored offset to keep",
        where="offset=stored",
        why="neither the offset store nor the ledger has one",
        remedy="take a snapshot, or choose another offset (current, earliest or file:position)",
    )


ALL_TABLES = "all"


def read_unread(cfg: ConnectorConfig) -> list[NeverReadTable]:
    """Return the captured tables that were never read, in order.

    Args:
        cfg: The connector's configuration.

    Raises:
        CdcError: Kafka cannot be reached, or the ledger is another stream's.
    """
    return list(unread_tables(kafka_clients.ledger(cfg).peek()).values())


def dismiss_unread(cfg: ConnectorConfig, names: Sequence[str]) -> list[NeverReadTable]:
    """Delete the records of unread tables, and return those that are left.

    The records are not part of a transaction: a running drain is not disturbed.

    Args:
        cfg: The connector's configuration.
        names: The tables as ``database.table``; ``all`` stands for all of them.

    Raises:
        ConfigError: One of them is not an unread table; none is dismissed then.
        CdcError: Kafka cannot be reached, or the ledger is another stream's.
    """
    unread = read_unread(cfg)
    dismissed = [each for each in unread if str(each.table) in names or ALL_TABLES in names]
    unknown = set(names) - {ALL_TABLES, *(str(each.table) for each in dismissed)}
    if unknown:
        raise ConfigError(
            "the table is none that was never read",
            where=", ".join(sorted(unknown)),
            why="the stream has " + (", ".join(str(each.table) for each in unread[:20]) or "no such table"),
            remedy="write names as the log has them, database.table; nothing was dismissed",
        )
    records = [SideRecord(cfg.ledger_topic, each.ledger_key().encode(), None) for each in dismissed]
    if records:
        write_plain(cfg.kafka_settings(), records)
    return [each for each in unread if each not in dismissed]
