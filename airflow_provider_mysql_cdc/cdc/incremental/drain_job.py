"""The drain as a job: batches, each followed by signals and windows; again where a connection breaks or a lock is
held.

A job goes on by itself where a connection breaks that had taken a view, a lock or a driver's queries with it.

What such a connection held cannot be had again: a view is one of its position. So the rest of the job is planned again,
behind what is committed, as a retry of Airflow does it, but in the same job (FAULT-03).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from airflow_provider_mysql_cdc.cdc.binlog.broken_connections import read_with_retries, reconnect_delay_s
from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.binlog.position import current_offset
from airflow_provider_mysql_cdc.cdc.binlog.server_errors import is_broken_connection
from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.commit.run_tally import add_counts
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.drain import drain_driver
from airflow_provider_mysql_cdc.cdc.drain.batch_planner import plan_drain, range_bytes
from airflow_provider_mysql_cdc.cdc.drain.drain_driver import BatchContext
from airflow_provider_mysql_cdc.cdc.errors import (
    OffsetConflictError,
    RunInProgressError,
    SourceConnectionError,
    SourceError,
    StateError,
)
from airflow_provider_mysql_cdc.cdc.formats.record_topics import table_topic_name
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import IncrementalState, read_incremental_state
from airflow_provider_mysql_cdc.cdc.incremental.notifications import (
    end_uncaptured_scans,
    restart_moved_scans,
    state_records,
)
from airflow_provider_mysql_cdc.cdc.incremental.signal_processor import has_pending_work, process_signals
from airflow_provider_mysql_cdc.cdc.incremental.window_driver import WindowDriver
from airflow_provider_mysql_cdc.cdc.job import owner_wait, run_lock
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.cdc.job.stage_runner import named_errors
from airflow_provider_mysql_cdc.cdc.job.task_runner import TaskRunner
from airflow_provider_mysql_cdc.cdc.model.log import Log

MAX_BACKLOG_BYTES = 8 * 2**20
"""Bytes of the binlog that a window drains at most while its views and their metadata locks are open."""
MAX_BATCHES_BEFORE = 10
"""Batches before a window, on a server that writes faster than it is drained; then its window opens all the same."""
MAX_IDLE_WINDOWS = 3
"""Consecutive windows without progress of a scan after which the rest is left to the next drain."""
_CONTINUES = "the ad-hoc snapshots continue in the next drain: {}"


def run_windows(context: BatchContext) -> dict[str, int]:
    """Process signals and read ad-hoc snapshots, until everything is read, paused, or cannot be read now.

    Args:
        context: The drain after a batch.

    Returns:
        Records by topic of all windows.

    Raises:
        CdcError: A window failed; its committed key ranges are kept.
    """
    cfg, conn, job, log = context.cfg, context.conn, context.job, context.log
    totals: dict[str, int] = {}
    idle_windows, deferred_scans, reason = 0, frozenset[int](), ""
    ledger = job.latest()
    while True:
        context.require_lock()
        reads = bool(read_incremental_state(ledger).with_advanced_cursors().runnable_scans)
        if reads and (drained := drain_backlog(context)):
            _add(totals, drained)
            ledger = job.read()
        with named_errors(cfg):
            state, moved = process_signals(cfg, conn, job, ledger, log, context.owner)
        _add(totals, _count_left_rows(context, state))
        if moved or not state.runnable_scans:
            return totals
        if all(scan.reason and scan.number in deferred_scans for scan in state.runnable_scans):
            # Only tables are left that a window of this drain could not read, and that somebody has to make readable.
            log(_CONTINUES.format(reason))
            return totals
        active_scan_numbers = {scan.number for scan in state.active_scans}
        result = WindowDriver(cfg, conn, job, context.runner, context.owner, log, context.weights, deferred_scans).run(
            ledger, state
        )
        deferred_scans, reason = deferred_scans | result.blocked_scans, result.reason
        _add(totals, result.counts)
        remaining_orders = (
            set[int]()
            if result.ranges_read
            else {scan.number for scan in read_incremental_state(job.read()).active_scans}
        )
        # Tables without rows and aborted scans have no key range.
        idle_windows = 0 if result.ranges_read or remaining_orders != active_scan_numbers else idle_windows + 1
        if idle_windows == MAX_IDLE_WINDOWS and remaining_orders:
            log(_CONTINUES.format(reason))
            return totals
        ledger = job.read()


def _count_left_rows(context: BatchContext, state: IncrementalState) -> dict[str, int]:
    """Count rows that a run has committed which ended before its window did; return them by topic."""
    cfg, uncounted = context.cfg, state.uncounted_rows()
    if not uncounted:
        return {}
    counts: dict[str, int] = {}
    tables: dict[str, int] = {}
    for number, row_count in uncounted.items():
        table = state.scans[number].table
        _add(counts, {table_topic_name(cfg, table): row_count})
        _add(tables, {table.path(): row_count})
    records = state_records(cfg, context.job, state, state.with_counted_rows(), [])
    return counts if context.job.count_rows(counts, tables, records) else {}


def drain_backlog(context: BatchContext) -> dict[str, int]:
    """Drain batches until the end of the binlog is near, where a window is going to open; return records by topic.

    What a window drains itself, it drains while its views hold metadata locks: a statement on one of its tables waits
    that long, and every query of the table behind it.

    Args:
        context: The drain after a batch.
    """
    totals: dict[str, int] = {}
    for _ in range(MAX_BATCHES_BEFORE):
        start = context.job.latest().end()
        if start is None or range_bytes(context.conn, start, current_offset(context.conn)) <= MAX_BACKLOG_BYTES:
            break
        context.require_lock()
        counts = context.drain_more()
        if counts is None:
            break
        _add(totals, counts)
    return totals


def _add(totals: dict[str, int], counts: Mapping[str, int]) -> None:
    for topic, n in counts.items():
        totals[topic] = totals.get(topic, 0) + n


WAIT_FOR_RUNS_S = 600.0
"""Seconds for which other runs are awaited that hold the lock of the topic.prefix."""
_MAX_PAUSE_S = 60.0


def run_when_free(
    spec: JobSpec,
    runner: TaskRunner,
    log: Log,
    other_work: drain_driver.OtherWork,
    of_what: str,
    run_for_s: float = 0.0,
) -> dict[str, int]:
    """Drain to the end of the binlog and do other work after it, once no other run holds the lock.

    A batch of this run that is not complete comes first.

    Args:
        spec: The job, whose first drain has ended or failed.
        runner: Runs the tasks.
        log: Takes one line of text.
        other_work: The work.
        of_what: Names it, as in ``a repair could not begin``.
        run_for_s: Seconds for which to drain batch after batch; 0 drains one batch.

    Returns:
        Records by topic.

    Raises:
        CdcError: Another run holds the lock for longer than ``WAIT_FOR_RUNS_S``, another driver of this run has
            started, this one has lost its lock, or the drain or the work has failed.
    """
    cfg = ConnectorConfig.from_properties(spec.properties)
    deadline = time.monotonic() + WAIT_FOR_RUNS_S
    while True:
        try:
            plan = read_with_retries(cfg, log, partial(_next_plan, cfg, spec))
            following = replace(spec, plan=plan.to_json(), run_for_s=run_for_s)
            return drain_driver.run_drain(following, runner, log, other_work)
        except (RunInProgressError, OffsetConflictError) as error:
            if error.what == run_lock.LOCK_LOST:
                raise  # a person has ended this run, or a later try of it has begun
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise StateError(
                    f"{of_what} could not begin", where=error.where, why=error.message(), retriable=True
                ) from error
            log(f"{of_what} waits for another run: {error.what}")
        pause_s = min(_MAX_PAUSE_S, left_s)
        owner_wait.wait_as_owner(cfg.connection_settings(), cfg.topic_prefix, spec.owner, pause_s)


def _next_plan(cfg: ConnectorConfig, spec: JobSpec) -> BatchPlan:
    """Return the plan of the batch with which the drain begins.

    Raises:
        RunInProgressError: Another run has not completed its batch.
    """
    with kafka_clients.ledger(cfg) as ledger, connect(cfg.connection_settings()) as conn:
        state = ledger.read(chunks=False) or LedgerState()
        planned = BatchPlan.from_json(spec.plan)
        if state.plan is None or state.plan.epoch < planned.epoch:
            return planned  # the job has failed before it was in force
        start, plan = state.end(), state.plan
        if start is None and plan.kind == "drain" and plan.owner == spec.owner:
            return plan
        if start is None:
            raise RunInProgressError("a batch of another run is incomplete", where=f"topic.prefix={cfg.topic_prefix}")
        following = plan_drain(cfg, conn, start, plan.epoch + 1, spec.owner, {}, state.prepared(), even_empty=True)
        assert following is not None
        return following


def go_on_where_broken(
    cfg: ConnectorConfig,
    owner: str,
    log: Log,
    first: Callable[[], Mapping[str, int]],
    rest: Callable[[], Mapping[str, int]],
    progress: Callable[[], object] = lambda: None,
) -> dict[str, int]:
    """Do a job; where a connection to the source breaks, do what is left of it, after a delay.

    Args:
        cfg: The connector's configuration; ``connect.max.attempts`` limits the further attempts without
            progress in between.
        owner: ``dag_id/run_id/task_id/map_index`` of the run.
        log: Receives one line of text before each further attempt.
        first: Does the job, and returns its records by topic.
        rest: Does what the ledger says is left of it, and returns the records of that by topic.
        progress: Returns how much is done for good; where it differs from before, the count of attempts begins again.

    Returns:
        The records by topic of the attempt that has ended the job.

    Raises:
        SourceConnectionError: A connection breaks in the last attempt too, or the first attempt finds no server.
        RunInProgressError: A later try of the task has started a driver, or a person has ended this run.
        CdcError: An attempt ends with another error.
    """
    work, was_broken = first, False
    attempts, place = 0, progress()
    while True:
        try:
            return add_counts({}, work())
        except SourceConnectionError as error:
            was_broken = breaks_connection(error) or was_broken
            if (now := progress()) != place:
                attempts, place = 0, now
            if not was_broken or not error.can_retry or attempts >= cfg[F.CONNECT_MAX_ATTEMPTS]:
                raise
            delay_s = reconnect_delay_s(attempts)
            attempts, work = attempts + 1, rest
            log(f"a connection to the source broke ({error}); attempt {attempts} to do the rest, in {delay_s:.1f} s")
        _wait(cfg, owner, delay_s)


def breaks_connection(error: SourceError) -> bool:
    """Return whether an error, or one that it was raised from, is that of a connection that broke.

    Args:
        error: From a driver or from one of its tasks.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, SourceError) and is_broken_connection(cause):
            return True
        cause = cause.__cause__
    return False


def _wait(cfg: ConnectorConfig, owner: str, delay_s: float) -> None:
    """Wait as a driver that a person, or a later try of the task, can end; without a server, just wait."""
    until = time.monotonic() + delay_s
    try:
        owner_wait.wait_as_owner(cfg.connection_settings(), cfg.topic_prefix, owner, delay_s, even_if_free=True)
    except SourceConnectionError:
        time.sleep(max(0.0, until - time.monotonic()))


def before_writers(cfg: ConnectorConfig, job: JobLedger, ledger: LedgerState, log: Log) -> None:
    """Change the scans that a batch in force leaves no longer as they are, before a writer of it starts.

    Args:
        cfg: The connector's configuration.
        job: The ledger.
        ledger: Its content.
        log: Writes one line to the log.
    """
    end_uncaptured_scans(cfg, job, ledger, log)
    restart_moved_scans(cfg, job, ledger, log)


WORK = drain_driver.OtherWork(run_windows, has_pending_work, before_writers)
"""What a drain does besides draining."""


def run_drain(spec: JobSpec, runner: TaskRunner, log: Log) -> dict[str, int]:
    """Drain batch after batch, and process signals and ad-hoc snapshots in between; return records per topic.

    Where a connection breaks that a writer cannot take up again, as that of a view, the rest is planned again.

    Args:
        spec: The job.
        runner: Runs the tasks.
        log: Takes one line of text.

    Raises:
        CdcError: A batch or a window could not be completed.
    """
    cfg, deadline = ConnectorConfig.from_properties(spec.properties), time.monotonic() + spec.run_for_s

    def drain() -> dict[str, int]:
        return drain_driver.run_drain(spec, runner, log, WORK)

    def drain_rest() -> dict[str, int]:
        left_s = max(0.0, deadline - time.monotonic())
        return run_when_free(spec, runner, log, WORK, "the rest of a drain", left_s)

    return go_on_where_broken(cfg, spec.owner, log, drain, drain_rest)
