"""Finish a snapshot that was interrupted without a second view, and say what one that is not needed leaves out.

Finish a snapshot that was interrupted, without a second view: windows of the drain read what its view did not.

=====================================  =================================================================================
state of the interrupted snapshot      what happens
=====================================  =================================================================================
it has no view yet                     the job is planned again, and begins with its tables
every chunk was read                   it is finished as it is
some rows are committed                the stream begins at the position of the view; each table that is not read
                                       completely becomes a scan, which windows of the drain read
no rows are committed                  it begins again
no watermark is possible, or           it begins again (``initial_only`` keeps the tables that were read completely)
``snapshot.mode=initial_only``
=====================================  =================================================================================
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import replace

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import CHUNK_PREFIX, SNAPSHOT_KEY, VIEW_KEY
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.offset_store import OffsetStore
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.commit.unread_tables import NeverReadTable, earlier_lists, unread_tables
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.drain.joined_tables import joined_tables, unread_lines
from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import read_incremental_state, state_changes
from airflow_provider_mysql_cdc.cdc.incremental.scan_updates import (
    InterruptedSnapshot,
    active_initial_request,
    queue_initial_scans,
)
from airflow_provider_mysql_cdc.cdc.incremental.scan_validity import record_format_digest
from airflow_provider_mysql_cdc.cdc.job import run_lock
from airflow_provider_mysql_cdc.cdc.job.config_guard import begin_pinned_plan, require_same_snapshot_mode
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.job.topic_guard import (
    note_topic_ends,
    require_recorded_history,
    require_written_topics,
)
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.operate.moved_batch import require_snapshot_binlog
from airflow_provider_mysql_cdc.cdc.operate.prepare_drain import snapshot_unstarted
from airflow_provider_mysql_cdc.cdc.operate.source_server import at_one_server
from airflow_provider_mysql_cdc.cdc.operate.stored_offset import reconcile_store
from airflow_provider_mysql_cdc.cdc.schema.table_discovery import base_tables
from airflow_provider_mysql_cdc.cdc.signals.notification_record import (
    NotificationType,
    notification_records,
    snapshot_notification,
)
from airflow_provider_mysql_cdc.cdc.signals.signal_table import watermark_obstacle
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.record_writer import write_plain
from airflow_provider_mysql_cdc.cdc.sink.topics import partition_counts
from airflow_provider_mysql_cdc.cdc.snapshot.chunk_records import (
    count_rows,
    delete_chunk_records,
    done_record,
    done_records,
    recorded_chunks,
    report_keys,
)
from airflow_provider_mysql_cdc.cdc.snapshot.table_reports import end_of_view_records


def finish_interrupted(cfg: ConnectorConfig, store: OffsetStore, owner: str, log: Log, run: str = "") -> str | None:
    """Hand an interrupted snapshot over to the drain, and return the request whose scans are not read yet.

    Args:
        cfg: The connector's configuration.
        store: Airflow's offset store.
        owner: ``dag_id/run_id/task_id/map_index``.
        log: Receives one line of text.
        run: The run whose records are counted together (``commit.run_tally``).

    Returns:
        The request's id; None when no table waits for the drain, or a snapshot is to begin before.

    Raises:
        ConfigError: Properties that decide about its records were changed since a part of it was written.
        BinlogPurgedError: The server does not have the binlog since its view.
        RunInProgressError: Another run of the stream is running.
        TopicChangedError: A topic to which it has written was deleted, created again or given more partitions.
    """
    cfg = at_one_server(cfg, store, log)
    result, ledger = reconcile_store(cfg, store, log, owner)
    pending = result.state.pending
    if pending is not None and pending.kind == "snapshot" and not snapshot_unstarted(pending, ledger):
        finish_in_ledger(cfg, replace(pending, owner=owner), ledger, log, run)
        result, ledger = reconcile_store(cfg, store, log, owner)
        pending = result.state.pending
    if ledger is None or (pending is not None and pending.kind == "snapshot"):
        return None  # no drain is possible before the snapshot that is to begin
    request = active_initial_request(read_incremental_state(ledger))
    if request is not None and _without_stream(cfg):
        raise ConfigError(
            "an interrupted snapshot cannot be finished without a stream",
            where=f"{F.SNAPSHOT_MODE.name}=initial_only",
            why=f"the drains of the stream read the rest of its tables ({request}), and this mode has no drains",
            remedy=f"set {F.SNAPSHOT_MODE.name} back until the snapshot is complete",
        )
    return request


def finish_in_ledger(cfg: ConnectorConfig, pending: BatchPlan, ledger: LedgerState | None, log: Log, run: str) -> None:
    """Hand an interrupted snapshot over to the drain, or let it begin again, in the ledger alone.

    Args:
        cfg: The connector's configuration, of one server.
        pending: The snapshot's plan; a part of it may be in Kafka.
        ledger: The ledger.
        log: Receives one line of text.
        run: The run whose records are counted together (``commit.run_tally``).

    Raises:
        CdcError: As for ``finish_interrupted``.
    """
    require_same_snapshot_mode(cfg, pending)
    require_snapshot_binlog(cfg, pending, ledger)
    with (
        run_lock.hold_run_lock(cfg.connection_settings(), cfg.topic_prefix, pending.owner) as lock,
        JobLedger(cfg, run) as job,
    ):
        begun, plan = begin_pinned_plan(cfg, job, pending)
        if not begun.complete() and not snapshot_unstarted(plan, begun):
            require_recorded_history(cfg, begun, snapshot=True)
            lock.require()
            _finish_plan(cfg, job, begun, plan, log)


def _finish_plan(cfg: ConnectorConfig, job: JobLedger, ledger: LedgerState, plan: BatchPlan, log: Log) -> None:
    """Finish the snapshot in force, or let it begin again."""
    chunks, _ = recorded_chunks(ledger, plan.epoch)
    view = BinlogOffset.from_json(ledger.other_records[VIEW_KEY]["offset"])
    done = done_records(ledger, plan.epoch, chunks)
    snapshot = InterruptedSnapshot(plan.epoch, tuple(chunks), done, view, record_format_digest(cfg))
    unfinished = snapshot.unfinished_tables
    if unfinished and (reason := _restart_reason(cfg, snapshot)) is not None:
        log(f"snapshot {plan.epoch} was interrupted and begins again: {reason}")
        _begin_again(cfg, job, ledger, {c.table for c in chunks} - set(unfinished) if _without_stream(cfg) else ())
        return
    if unfinished:
        # Before the record that finishes the snapshot: until then no drain reads them, and a retry queues them again.
        before = read_incremental_state(ledger)
        after = queue_initial_scans(before, snapshot, time.time_ns() // 1_000_000)
        job.put_all(state_changes(before, after))
        faults.fault_point("snapshot.scans_queued")
        log(
            f"snapshot {plan.epoch} was interrupted: {len(done)} of {len(chunks)} chunks are read. The stream begins "
            f"at {view}, and windows of the drain read the rest of {len(unfinished)} table(s)"
        )
    rows = count_rows(cfg, job, done)
    require_written_topics(cfg, ledger, plan, rows)
    note_topic_ends(cfg, job, ledger, rows)
    reports = end_of_view_records(cfg, ledger, chunks, done)
    job.put_with_counts(SNAPSHOT_KEY, done_record(plan.epoch, view), plan, rows, reports)
    job.write_outcome(plan, counts=rows)
    delete_chunk_records(job, ledger)


def _without_stream(cfg: ConnectorConfig) -> bool:
    return str(cfg[F.SNAPSHOT_MODE]) == "initial_only"


def _restart_reason(cfg: ConnectorConfig, snapshot: InterruptedSnapshot) -> str | None:
    """Return why windows of the drain cannot read the rest; None when they can."""
    if _without_stream(cfg):
        return "snapshot.mode=initial_only drains no changes; tables that were read completely are kept"
    if not snapshot.done:
        return "no row of it is committed"
    if str(cfg[F.SNAPSHOT_LOCKING_MODE]) != "none":
        return None
    with connect(cfg.connection_settings()) as conn:
        obstacle = watermark_obstacle(conn, cfg)
    return None if obstacle is None else f"snapshot.locking.mode=none, and {obstacle}"


def _begin_again(cfg: ConnectorConfig, job: JobLedger, ledger: LedgerState, finished: Collection[TableId]) -> None:
    """Delete what an attempt has recorded, except the chunks of finished tables."""
    deleted = [
        CHUNK_PREFIX + id_
        for id_, record in ledger.chunks.items()
        if TableId(**record["chunk"]["table"]) not in finished
    ]
    # The view's record goes first: without it the plan counts as one that has not begun, whatever chunks are left.
    view_records = [SideRecord(cfg.ledger_topic, key.encode(), None) for key in (VIEW_KEY, SNAPSHOT_KEY)]
    aborted = notification_records(cfg, [snapshot_notification(NotificationType.ABORTED)])
    job.commit([*aborted, *view_records])
    job.put_all((key, None) for key in (*deleted, *report_keys(ledger)))


def report_skipped(cfg: ConnectorConfig, ledger: LedgerState | None, log: Log) -> None:
    """Log the captured tables that were never read, and write a notification of type SKIPPED.

    It tells of no rows and is no part of a transaction: a running drain is not disturbed. So a task that is repeated
    writes it again, as Debezium does at each start.

    Args:
        cfg: The connector's configuration.
        ledger: The ledger.
        log: Writes one line to the log.

    Raises:
        SourceError: The source cannot be asked for its tables.
        SinkError: Kafka refuses it, or cannot be reached.
    """
    for line in unread_lines(cfg, _never_read(cfg, ledger or LedgerState())):
        log(line)
    records = notification_records(cfg, [snapshot_notification(NotificationType.SKIPPED)])
    if not records:
        return
    if any(map(cfg.is_avro, F.PARTS)):
        log("the notification SKIPPED is not written: its Avro schemas are registered by jobs only")
    elif records[0].topic in partition_counts(make_admin(cfg.kafka_settings()), [records[0].topic]):
        write_plain(cfg.kafka_settings(), records)


def _never_read(cfg: ConnectorConfig, ledger: LedgerState) -> list[NeverReadTable]:
    """Return the tables that drains have found, and those that the next one will find."""
    unread = unread_tables(ledger)
    if (before := earlier_lists(cfg, ledger)) is not None:
        with connect(cfg.connection_settings()) as conn:
            joined = joined_tables(cfg, before, base_tables(conn), "the next drain")
        unread = {each.table: each for each in (*joined, *unread.values()) if cfg.captures(each.table)}
    return list(unread.values())
