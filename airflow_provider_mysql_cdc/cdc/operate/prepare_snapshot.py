"""Plan the job of a snapshot: a new snapshot, or the continuation of an interrupted one."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial

from airflow_provider_mysql_cdc.cdc.binlog.broken_connections import read_with_retries
from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.binlog.position import check_available, end_of_binlog
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.offset_store import OffsetStore, StoredState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.pinned_properties import property_pins
from airflow_provider_mysql_cdc.cdc.drain.failover.failover import change_line, place_on_server
from airflow_provider_mysql_cdc.cdc.drain.failover.replication_filters import require_no_filters
from airflow_provider_mysql_cdc.cdc.drain.failover.reset_structures import rebuild_history
from airflow_provider_mysql_cdc.cdc.errors import (
    BinlogPurgedError,
    NoOffsetError,
    ServerChangedError,
    StateError,
)
from airflow_provider_mysql_cdc.cdc.formats.record_topics import topics_of_tables
from airflow_provider_mysql_cdc.cdc.job import run_lock
from airflow_provider_mysql_cdc.cdc.job.config_guard import require_same_snapshot_mode
from airflow_provider_mysql_cdc.cdc.job.topic_guard import require_durable_topics
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.operate.findings import check_source, log_warnings, topic_warnings
from airflow_provider_mysql_cdc.cdc.operate.interrupted_snapshot import finish_interrupted, report_skipped
from airflow_provider_mysql_cdc.cdc.operate.moved_batch import belongs_elsewhere, require_batch_server
from airflow_provider_mysql_cdc.cdc.operate.prepare_drain import prepare_drain
from airflow_provider_mysql_cdc.cdc.operate.prepare_job import (
    PreparedJob,
    check_signal_table,
    store_and_prepare,
    with_topics,
)
from airflow_provider_mysql_cdc.cdc.operate.reset_offset import reset_offset
from airflow_provider_mysql_cdc.cdc.operate.source_server import at_one_server
from airflow_provider_mysql_cdc.cdc.operate.stored_offset import reconcile_store
from airflow_provider_mysql_cdc.cdc.schema.history import require_new_history, require_own_history
from airflow_provider_mysql_cdc.cdc.schema.table_discovery import captured_tables
from airflow_provider_mysql_cdc.cdc.snapshot import recovery
from airflow_provider_mysql_cdc.cdc.snapshot.snapshot_checks import require_drained, require_plan_binlog
from airflow_provider_mysql_cdc.cdc.snapshot.snapshot_driver import SOME_TABLES


def prepare_snapshot(
    cfg: ConnectorConfig,
    store: OffsetStore,
    owner: str,
    log: Log,
    *,
    again: bool = False,
    stream_cfg: ConnectorConfig | None = None,
) -> PreparedJob | None:
    """Plan an initial snapshot, or the drain that reads what an interrupted one has left.

    Args:
        cfg: The connector's configuration.
        store: Airflow's offset store.
        owner: ``dag_id/run_id/task_id/map_index``.
        log: Receives one line of text.
        again: Take a new snapshot although an offset is stored.
        stream_cfg: The configuration of the stream's drains, if the snapshot captures other tables.

    Returns:
        The job, or None when the snapshot is not needed.

    Raises:
        RunInProgressError: Another run of the stream is running; this is found before Spark starts.
    """
    cfg = at_one_server(cfg, store, log)
    if stream_cfg is not None and len(stream_cfg.servers()) > 1:
        stream_cfg = stream_cfg.at_server(cfg.connection_settings().host, cfg.connection_settings().port)
    require_durable_topics(cfg, log)
    if (request := finish_interrupted(cfg, store, owner, log)) is not None and not again:
        log(f"the rest of an interrupted snapshot ({request}) is read by windows of the drain")
        return prepare_drain(stream_cfg or cfg, store, owner, log, even_empty=True)
    result, ledger = reconcile_store(cfg, store, log, owner)
    state = result.state
    pending = state.pending
    if pending is not None and _planned_elsewhere(cfg, pending, log):
        reset_offset(cfg, store, owner, log)
        result, ledger = reconcile_store(cfg, store, log, owner)
        state, pending, again = result.state, result.state.pending, True
    if pending is not None and pending.kind == "snapshot":
        require_same_snapshot_mode(cfg, pending)
        read_with_retries(cfg, log, partial(require_plan_binlog, cfg, pending, ledger))
        run_lock.require_sole_run(cfg.connection_settings(), cfg.topic_prefix, owner)
        log(f"snapshot {pending.epoch} has read nothing yet; it begins with its tables")
        return _prepare(cfg, replace(pending, owner=owner), store, state, ledger, stream_cfg)
    if pending is not None and again:
        state, ledger = _set_aside_purged(cfg, store, owner, log, pending)
    elif pending is not None and recovery.is_recovery(cfg):
        require_batch_server(cfg, pending)
        rebuild_history(cfg, owner, with_topics(cfg, pending, ledger), log)
        return None
    elif pending is not None:
        log(f"an offset is stored, so no snapshot is needed; the drain finishes batch {pending.epoch}")
        report_skipped(cfg, ledger, log)
        return None
    plan = read_with_retries(cfg, log, partial(_plan_snapshot, cfg, state, owner, ledger, log, again=again))
    if plan is None:
        report_skipped(cfg, ledger, log)
    return None if plan is None else _prepare(cfg, plan, store, state, ledger, stream_cfg)


def _prepare(
    cfg: ConnectorConfig,
    plan: BatchPlan,
    store: OffsetStore,
    state: StoredState,
    ledger: LedgerState | None,
    stream_cfg: ConnectorConfig | None,
) -> PreparedJob:
    job = store_and_prepare(cfg, plan, store, state, ledger)
    some_tables = stream_cfg is not None and stream_cfg.properties() != cfg.properties()
    return replace(job, spec=replace(job.spec, options={SOME_TABLES: True})) if some_tables else job


def _planned_elsewhere(cfg: ConnectorConfig, pending: BatchPlan, log: Log) -> bool:
    """Return whether a snapshot that has read nothing has to be planned again, behind the stream, on another server."""
    if pending.kind != "snapshot" or not (pending.gapless or recovery.is_recovery(cfg)):
        return False
    if not read_with_retries(cfg, log, partial(belongs_elsewhere, cfg, pending)):
        return False
    log(
        f"snapshot {pending.epoch} has read nothing, and another server answers than when it was planned; its plan is "
        "discarded, and it is planned again"
    )
    return True


def _plan_snapshot(
    cfg: ConnectorConfig, state: StoredState, owner: str, ledger: LedgerState | None, log: Log, *, again: bool
) -> BatchPlan | None:
    """Plan a snapshot at the end of the binlog, without a gap to an existing stream; None when none is due."""
    with connect(cfg.connection_settings()) as conn:
        if not again and not _snapshot_required(cfg, conn, state.committed, log):
            return None
        run_lock.require_no_other_run(conn, cfg.topic_prefix, owner)
        log_warnings(check_source(conn, cfg, snapshot=True), log)
        # Checked before the ledger is created, which a table's topic would otherwise share with it.
        log_warnings(topic_warnings(cfg, list(topics_of_tables(cfg, captured_tables(conn, cfg)).values())), log)
        check_signal_table(cfg, conn, log)
        require_own_history(cfg)
        if state.committed is None and (ledger is None or ledger.plan is None):
            require_new_history(cfg)
        snapshot_end = end_of_binlog(conn, cfg.connection_settings())
        drained_offset = undrained_start(cfg, conn, state.committed, ledger, log)
        if recovery.is_recovery(cfg) and state.committed is not None:
            snapshot_end = _recovered_offset(cfg, conn, state.committed, log)
    if drained_offset is not None:
        require_drained(cfg, drained_offset, snapshot_end)
    return BatchPlan(
        epoch=state.epoch + 1,
        kind="snapshot",
        start=drained_offset or snapshot_end,
        end=snapshot_end,
        writers=1,
        owner=owner,
        created_ms=time.time_ns() // 1_000_000,
        server_id=cfg.server_id(0),
        pins=property_pins(cfg, snapshot=True),
        gapless=drained_offset is not None,
    )


def _recovered_offset(cfg: ConnectorConfig, conn: MySqlConnection, committed: BinlogOffset, log: Log) -> BinlogOffset:
    """Return where the stream stands on the server that answers, for which the schema history is to be rebuilt."""
    try:
        place = place_on_server(cfg, conn, committed, log)
        if place is not committed:
            require_no_filters(cfg, conn, committed, captured_tables(conn, cfg))
            log(change_line(committed, place, cfg.connection_settings().address()))
    except ServerChangedError as error:
        raise ServerChangedError(
            error.what,
            where=error.where,
            why=error.why,
            remedy=f"set snapshot.mode back from recovery; then {error.remedy}",
            retriable=error.can_retry,
        ) from error
    return place


def undrained_start(
    cfg: ConnectorConfig, conn: MySqlConnection, committed: BinlogOffset | None, ledger: LedgerState | None, log: Log
) -> BinlogOffset | None:
    """Return the stream's offset, after which a new snapshot must not skip any change; None when it may skip changes.

    It may before the first snapshot, when only the history is rebuilt, when the binlog after the offset was purged, and
    right after a person moved the offset, which is the way to skip changes deliberately. A reset that kept the offset
    skips nothing.

    Args:
        cfg: The connector's configuration.
        conn: An open connection to the source.
        committed: The stored offset.
        ledger: The ledger.
        log: Receives one line of text.

    Raises:
        SourceError: A query fails.
    """
    if committed is None or recovery.is_recovery(cfg):
        return None
    plan = ledger.plan if ledger is not None else None
    if plan is not None and plan.kind == "reset" and not plan.gapless:
        log(f"the offset {committed} was set by hand; changes between it and the snapshot are skipped")
        return None
    try:
        return check_available(conn, cfg.connection_settings(), place_on_server(cfg, conn, committed))
    except BinlogPurgedError as error:
        if error.can_retry:  # a replica that has not executed yet what the stream has read
            raise
        log(f"changes between {committed} and the snapshot are lost for the stream: {error.message()}")
        return None


def _set_aside_purged(
    cfg: ConnectorConfig, store: OffsetStore, owner: str, log: Log, pending: BatchPlan
) -> tuple[StoredState, LedgerState | None]:
    """Discard a batch that no drain can finish because its binlog was purged; refuse when one can."""
    try:
        with connect(cfg.connection_settings()) as conn:
            if place_on_server(cfg, conn, pending.start) is pending.start:
                check_available(conn, cfg.connection_settings(), pending.start)
                check_available(conn, cfg.connection_settings(), pending.end)
    except BinlogPurgedError as error:
        if error.can_retry:
            raise
        log(f"batch {pending.epoch} can never be finished and is discarded: {error.message()}")
        reset_offset(cfg, store, owner, log)
        result, ledger = reconcile_store(cfg, store, log, owner)
        return result.state, ledger
    raise StateError(
        f"a new snapshot cannot start while batch {pending.epoch} is not finished",
        where=f"topic.prefix={cfg.topic_prefix}",
        remedy="run the drain first; it continues from the batch's markers (or discard the batch with the DAG "
        "mysql_cdc_reset_offset)",
        retriable=True,
    )


def _snapshot_required(cfg: ConnectorConfig, conn: MySqlConnection, committed: BinlogOffset | None, log: Log) -> bool:
    """Return whether snapshot.mode asks for a snapshot now (SNAP-03 to SNAP-08)."""
    mode = str(cfg[F.SNAPSHOT_MODE])
    if mode == "never":
        log("snapshot.mode=never: no snapshot is taken")
        return False
    if mode == "recovery" and committed is None:
        raise NoOffsetError(
            "no offset is stored, so no schema history can be recovered for it",
            where=f"topic.prefix={cfg.topic_prefix}, snapshot.mode=recovery",
            remedy="take a snapshot first (snapshot.mode=initial)",
        )
    if committed is None or mode in ("always", "recovery"):
        return True
    if mode == "when_needed":
        try:
            check_available(conn, cfg.connection_settings(), place_on_server(cfg, conn, committed))
        except BinlogPurgedError as error:
            if error.can_retry:
                raise
            log(f"snapshot.mode=when_needed: {error.message()}")
            return True
    log(f"an offset is stored already ({committed}); no snapshot is needed")
    return False
