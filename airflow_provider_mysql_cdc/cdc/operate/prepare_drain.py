"""Plan the job of a drain: the next batch, or the continuation of an interrupted one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from airflow_provider_mysql_cdc.cdc.binlog.broken_connections import read_with_retries
from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.binlog.dump import FILE_START
from airflow_provider_mysql_cdc.cdc.binlog.file_fingerprint import with_fingerprint
from airflow_provider_mysql_cdc.cdc.binlog.position import binary_logs, end_of_binlog
from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import VIEW_KEY
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.offset_store import OffsetStore, StoredState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.commit.unread_tables import unread_tables
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.drain.batch_planner import plan_drain
from airflow_provider_mysql_cdc.cdc.drain.failover.failover import change_line, place_on_server
from airflow_provider_mysql_cdc.cdc.drain.failover.replication_filters import require_fit_server
from airflow_provider_mysql_cdc.cdc.drain.failover.requested_position import with_executed_gtids
from airflow_provider_mysql_cdc.cdc.drain.joined_tables import unread_lines
from airflow_provider_mysql_cdc.cdc.errors import (
    NoOffsetError,
    RunInProgressError,
)
from airflow_provider_mysql_cdc.cdc.formats.record_topics import topics_of_tables
from airflow_provider_mysql_cdc.cdc.incremental.signal_processor import has_pending_work
from airflow_provider_mysql_cdc.cdc.job import run_lock
from airflow_provider_mysql_cdc.cdc.job.topic_guard import require_durable_topics, require_recorded_history
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.operate.findings import check_source, log_warnings, topic_warnings
from airflow_provider_mysql_cdc.cdc.operate.lag import DrainedOffset, Thresholds, measure_lag, read_binlog_state
from airflow_provider_mysql_cdc.cdc.operate.moved_batch import belongs_elsewhere, move_batch
from airflow_provider_mysql_cdc.cdc.operate.prepare_job import (
    PreparedJob,
    check_signal_table,
    require_only_own_records,
    store_and_prepare,
    topic_weights,
    with_topics,
)
from airflow_provider_mysql_cdc.cdc.operate.reset_offset import reset_offset
from airflow_provider_mysql_cdc.cdc.operate.source_server import at_one_server
from airflow_provider_mysql_cdc.cdc.operate.stored_offset import reconcile_store
from airflow_provider_mysql_cdc.cdc.schema.history import require_history, require_new_history, require_own_history
from airflow_provider_mysql_cdc.cdc.schema.table_discovery import captured_tables
from airflow_provider_mysql_cdc.cdc.snapshot.snapshot_checks import require_plan_binlog


@dataclass(frozen=True, slots=True)
class IdleReason:
    """Say why a drain has nothing to do.

    Args:
        text: The reason.
        gave_way: Whether another run of the stream is running.
    """

    text: str
    gave_way: bool = False


def prepare_drain(
    cfg: ConnectorConfig,
    store: OffsetStore,
    owner: str,
    log: Log,
    *,
    run_for_s: float = 0.0,
    even_empty: bool = False,
    give_way: bool = False,
    on_idle: Callable[[IdleReason], None] = lambda reason: None,
) -> PreparedJob | None:
    """Plan the next batch, or continue the interrupted one.

    Args:
        cfg: The connector's configuration.
        store: Airflow's offset store.
        owner: ``dag_id/run_id/task_id/map_index``.
        log: Receives one line of text.
        run_for_s: Seconds for which one Spark session drains batch after batch.
        even_empty: Whether to plan a batch even when nothing is new; its driver also reads the Kafka signal topic.
        give_way: Whether to skip this drain while another run of the stream is running: a snapshot, or a drain followed
            by an ad-hoc snapshot, may take hours. Otherwise the driver fails because the other run holds the run lock.
        on_idle: Takes the reason when there is no job.

    Returns:
        The job, or None when nothing is new since the last batch and the ledger has no pending work.

    Raises:
        NoOffsetError: No offset is stored, and the configuration requires a snapshot first.
    """

    def idle(text: str, *, gave_way: bool = False) -> None:
        log(text)
        on_idle(IdleReason(text, gave_way))

    cfg = at_one_server(cfg, store, log)
    if give_way and (active_run := other_active_run(cfg, owner)) is not None:
        idle(f"this drain gives way: {active_run}; the next one starts from the same offset", gave_way=True)
        return None
    require_durable_topics(cfg, log)
    state, ledger = _set_aside_snapshot(cfg, store, owner, log)
    pending = state.pending
    if pending is not None and pending.kind == "snapshot":
        raise NoOffsetError(
            f"snapshot {pending.epoch} is not finished",
            where=f"topic.prefix={cfg.topic_prefix}",
            remedy="run the snapshot task again (mysql_cdc_snapshot); what it has read is kept, and windows of the "
            "drain read the rest",
        )
    if str(cfg[F.SNAPSHOT_MODE]) == "initial_only":
        idle("snapshot.mode=initial_only: the binlog is never drained")
        return None
    if pending is not None:
        require_own_history(cfg, sample=True)
        if read_with_retries(cfg, log, partial(belongs_elsewhere, cfg, pending)):
            move_batch(cfg, owner, with_topics(cfg, pending, ledger), ledger, log)
            result, ledger = reconcile_store(cfg, store, log, owner)
            state, pending = result.state, result.state.pending or pending
        read_with_retries(cfg, log, partial(require_plan_binlog, cfg, pending, ledger))
        log(f"batch {pending.epoch} was interrupted; continuing from its markers")
        return store_and_prepare(
            cfg, with_topics(cfg, replace(pending, owner=owner), ledger), store, state, ledger, run_for_s
        )
    plan = read_with_retries(cfg, log, partial(_next_batch, cfg, state, owner, ledger, log, even_empty=even_empty))
    if isinstance(plan, BatchPlan):
        return store_and_prepare(cfg, plan, store, state, ledger, run_for_s)
    unread = list(unread_tables(ledger or LedgerState()).values())
    for line in unread_lines(cfg, unread):
        log(line)
    idle(f"nothing new since {plan}" + (f"; captured and never read: {len(unread)} tables" if unread else ""))
    return None


def _set_aside_snapshot(
    cfg: ConnectorConfig, store: OffsetStore, owner: str, log: Log
) -> tuple[StoredState, LedgerState | None]:
    """Return state and ledger; a gapless snapshot that has not started is discarded, because the drain comes first."""
    result, ledger = reconcile_store(cfg, store, log, owner)
    pending = result.state.pending
    if pending is not None and pending.gapless and snapshot_unstarted(pending, ledger):
        log(f"snapshot {pending.epoch} has not started and needs a drain first; its plan is discarded")
        reset_offset(cfg, store, owner, log)
        result, ledger = reconcile_store(cfg, store, log, owner)
    return result.state, ledger


def _next_batch(
    cfg: ConnectorConfig, state: StoredState, owner: str, ledger: LedgerState | None, log: Log, *, even_empty: bool
) -> BatchPlan | BinlogOffset:
    """Plan from the stored offset to the end of the binlog; return that offset when there is nothing to do."""
    if state.committed is not None:
        require_history(cfg)
        require_recorded_history(cfg, ledger)
    pending_work = ledger is not None and has_pending_work(cfg, ledger)
    prepared = ledger.prepared() if ledger else ()
    with connect(cfg.connection_settings()) as conn:
        warnings = check_source(conn, cfg, snapshot=False, state=state)
        check_signal_table(cfg, conn, log)
        if state.committed is None:  # before the ledger is created, which a table's topic would otherwise share with it
            topics_of_tables(cfg, captured_tables(conn, cfg))
        start, continued_from = _stream_start(cfg, conn, state, log)
        epoch, record_weights = state.epoch + 1, topic_weights(ledger)
        plan = plan_drain(
            cfg,
            conn,
            start,
            epoch,
            owner,
            record_weights,
            # Prepared rows have other positions on another server; their XA COMMIT finds them (``find_prepared``).
            prepared if continued_from is None else (),
            even_empty=even_empty or pending_work or continued_from is not None,
            continued_from=continued_from,
        )
    if plan is None:
        return start
    require_only_own_records(cfg, ledger)
    require_own_history(cfg, sample=True)
    if state.committed is None and (ledger is None or ledger.plan is None):
        require_new_history(cfg)
    log_warnings(warnings, log)
    log_warnings(topic_warnings(cfg, sorted(record_weights, key=record_weights.__getitem__, reverse=True)), log)
    return plan


def _stream_start(
    cfg: ConnectorConfig, conn: MySqlConnection, state: StoredState, log: Log
) -> tuple[BinlogOffset, BinlogOffset | None]:
    """Return where the next batch begins; and the stored offset, if it belongs to another server."""
    if state.committed is None:
        return _first_offset(cfg, conn), None
    start = place_on_server(cfg, conn, state.committed, log)
    if start is state.committed:
        return start, None
    require_fit_server(cfg, conn, state.committed, state.epoch + 1)
    log(change_line(state.committed, start, cfg.connection_settings().address()))
    return start, state.committed


def other_active_run(cfg: ConnectorConfig, owner: str) -> str | None:
    """Return which other run of the stream is running now; None when none is.

    Args:
        cfg: The connector's configuration.
        owner: ``dag_id/run_id/task_id/map_index`` of this run.

    Raises:
        SourceError: The query fails.
    """
    try:
        run_lock.require_sole_run(cfg.connection_settings(), cfg.topic_prefix, owner)
    except RunInProgressError as error:
        return f"{error.what} ({error.where}, {error.why})"
    return None


def snapshot_unstarted(plan: BatchPlan, ledger: LedgerState | None) -> bool:
    """Return whether a snapshot has written nothing yet; the record of its consistent view is its first.

    Args:
        plan: The snapshot's plan.
        ledger: The ledger.
    """
    view_record = ledger.other_records.get(VIEW_KEY) if ledger is not None else None
    return view_record is None or int(view_record["epoch"]) != plan.epoch


def _first_offset(cfg: ConnectorConfig, conn: MySqlConnection) -> BinlogOffset:
    """Return the first offset of a stream without snapshot (SNAP-06, SNAP-07)."""
    mode = str(cfg[F.SNAPSHOT_MODE])
    if mode == "never":
        first = binary_logs(conn)[0][0]
        settings = cfg.connection_settings()
        earliest = end_of_binlog(conn, settings).with_position(first, FILE_START)
        return with_fingerprint(conn, settings, with_executed_gtids(conn, settings, earliest))
    raise NoOffsetError(
        "no offset is stored to start from",
        where=f"topic.prefix={cfg.topic_prefix}, snapshot.mode={mode}",
        why="neither the offset store nor the ledger has an offset for this topic.prefix",
        remedy="run the snapshot first (DAG mysql_cdc_snapshot; snapshot.mode=no_data reads only the structures)",
    )


def may_have_work(cfg: ConnectorConfig, store: OffsetStore, owner: str) -> bool:
    """Return whether a drain that had nothing to do may have work now.

    Args:
        cfg: The connector's configuration.
        store: Airflow's offset store.
        owner: ``dag_id/run_id/task_id/map_index`` of this run.

    Raises:
        CdcError: The server or Kafka cannot be reached; ``prepare_drain`` reports the cause.
    """
    if str(cfg[F.SNAPSHOT_MODE]) == "initial_only":
        return False
    cfg = at_one_server(cfg, store, lambda _: None)
    if other_active_run(cfg, owner) is not None:
        return False
    drained = DrainedOffset.from_state(store.load())
    if measure_lag(drained, read_binlog_state(cfg, drained), Thresholds()).reached:
        return True
    return has_pending_work(cfg, kafka_clients.ledger(cfg).peek())
