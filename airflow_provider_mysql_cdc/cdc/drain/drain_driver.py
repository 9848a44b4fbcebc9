"""The driver of a drain: batch after batch until nothing new is in the binlog or the time is up."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.binlog.position import check_available
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.commit.run_tally import taskless_run_id
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.drain.batch_planner import new_end, plan_drain
from airflow_provider_mysql_cdc.cdc.drain.batch_run import (
    StartedBatch,
    WriterInputs,
    begin_batch,
    cause_of,
    finish_batch,
)
from airflow_provider_mysql_cdc.cdc.drain.batch_writers import (
    BatchWriters,
    RefusedSchemas,
    SucceedingRunner,
    shorten_batch,
)
from airflow_provider_mysql_cdc.cdc.drain.between_batches import BatchInterval, ForeignTraffic, describe_if_due
from airflow_provider_mysql_cdc.cdc.drain.ddl_events import server_variables
from airflow_provider_mysql_cdc.cdc.drain.drain_operations import DrainProgress
from airflow_provider_mysql_cdc.cdc.drain.joined_tables import report_unread
from airflow_provider_mysql_cdc.cdc.drain.reconnects import DriverConnection
from airflow_provider_mysql_cdc.cdc.drain.side_records import Heartbeats, HeartbeatTimer
from airflow_provider_mysql_cdc.cdc.drain.structure_check import check_skipped_tables, check_structures
from airflow_provider_mysql_cdc.cdc.emit.envelope import new_run_id
from airflow_provider_mysql_cdc.cdc.errors import CdcError, SourceConnectionError
from airflow_provider_mysql_cdc.cdc.job import run_lock
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.job.job_metrics import JobLog
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.cdc.job.stage_runner import named_errors
from airflow_provider_mysql_cdc.cdc.job.task_runner import TaskRunner
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, compare_offsets


@dataclass(frozen=True, slots=True)
class BatchContext:
    """Hold what other work may use after a batch, before the next one is planned.

    Args:
        cfg: The connector's configuration.
        conn: An open connection to the source.
        job: The ledger; its last batch is complete.
        runner: Runs tasks.
        owner: The run (``dag_id/run_id/task_id/map_index``).
        log: The job's log.
        require_lock: Raises when this run has lost its lock.
        weights: Records per topic in the batch.
        drain_more: Drains one more batch, and returns its records by topic; None where nothing new is logged.
        release_lock: Frees the stream's lock, so that other runs may drain; nothing is written to the ledger afterwards
            with the driver's transactional id, and the other work has to end the run (``OtherWork.ends_run``). From
            then on ``require_lock`` raises when another driver of this run has started.
    """

    cfg: ConnectorConfig
    conn: MySqlConnection
    job: JobLedger
    runner: TaskRunner
    owner: str
    log: JobLog
    require_lock: Callable[[], None]
    weights: dict[str, int]
    drain_more: Callable[[], dict[str, int] | None] = lambda: None
    release_lock: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class BatchResult:
    """Hold what a completed batch has written.

    Args:
        plan: The plan that is complete; its end may be before the planned one.
        counts: Records by topic.
        refusal: The error with which the run ends after it, because it was ended before what is refused.
    """

    plan: BatchPlan
    counts: dict[str, int]
    refusal: CdcError | None


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """Hold the plan of a batch to execute.

    Args:
        plan: The plan.
        offsets_checked: Whether this driver has just made it, and found both its offsets in the binlog.
    """

    plan: BatchPlan
    offsets_checked: bool


CHECK_INTERVAL_S = 5.0
"""Seconds between two checks for other work, and of the start's binlog file where nothing new was logged."""
_PAUSE_S = 1.0
_LOOK_S = 0.25
"""Seconds between two looks at a source with nothing new, each of which is one query: half of the longest lag."""


@dataclass(frozen=True, slots=True)
class OtherWork:
    """Define what a drain does besides draining; ``incremental.drain_job`` fills it.

    Args:
        run_after_batch: Called after each batch; returns records by topic.
        is_pending: Returns whether there is other work although nothing new was logged.
        run_before_writers: Called when a batch is in force, before its writers start.
        ends_run: Whether the run ends with the work after its first batch.
    """

    run_after_batch: Callable[[BatchContext], dict[str, int]]
    is_pending: Callable[[ConnectorConfig, LedgerState], bool]
    run_before_writers: Callable[[ConnectorConfig, JobLedger, LedgerState, Log], None] = lambda *_: None
    ends_run: bool = False


NO_OTHER_WORK = OtherWork(lambda context: {}, lambda cfg, ledger: False)


def run_drain(spec: JobSpec, runner: TaskRunner, log: Log, other_work: OtherWork = NO_OTHER_WORK) -> dict[str, int]:
    """Run the spec's batch and, while ``run_for_s`` lasts, the batches after it; return records per topic.

    Args:
        spec: The job.
        runner: Runs the writers.
        log: Takes one line of text.
        other_work: What is done besides draining.

    Raises:
        CdcError: The batch could not be completed; the ledger's outcome record holds the same error.
    """
    cfg, log = ConnectorConfig.from_properties(spec.properties), JobLog(log)
    faults.set_current_driver()
    deadline = time.monotonic() + spec.run_for_s
    planned = PlannedBatch(BatchPlan.from_json(spec.plan), offsets_checked=False)
    cfg = cfg.of_server(planned.plan.start.server_uuid)
    totals: dict[str, int] = {}
    settings = cfg.connection_settings()
    attempts = cfg[F.CONNECT_MAX_ATTEMPTS]
    with (
        run_lock.hold_run_lock(settings, cfg.topic_prefix, spec.owner, attempts) as lock,
        contextlib.closing(DriverConnection(cfg, lock.require, log)) as source,
        JobLedger(cfg, spec.run or taskless_run_id()) as job,
        contextlib.closing(
            BatchWriters(cfg, runner, job.schema_ids, lambda: job.fences, single=not spec.run_for_s)
        ) as writers,
    ):
        other_runner = SucceedingRunner(runner, writers.close)
        heartbeats = Heartbeats(cfg, lambda: source.conn, job, lock.require)

        def free_prefix() -> None:
            lock.release_prefix()

        def complete_batch(planned: PlannedBatch) -> dict[str, int]:
            return _complete_batch(cfg, source.conn, job, planned, writers, log, lock, other_work, heartbeats.timer)

        interval = BatchInterval(cfg[F.POLL_INTERVAL_MS] / 1000)
        while True:
            lock.require()
            begun = time.monotonic()
            counts = complete_batch(planned)
            earliest = interval.earliest(begun, sum(counts.values()), time.monotonic() - begun)
            with contextlib.suppress(SourceConnectionError):  # the batch is complete; whoever needs a server says so
                source.renew_if_broken(lambda: job.latest().end())
            conn = source.conn
            drain_more = partial(_drain_more, cfg, conn, job, spec.owner, counts, complete_batch)
            other_counts = other_work.run_after_batch(
                BatchContext(
                    cfg, conn, job, other_runner, spec.owner, log, lock.require, counts, drain_more, free_prefix
                )
            )
            for topic, n in (*counts.items(), *other_counts.items()):
                totals[topic] = totals.get(topic, 0) + n
            if other_work.ends_run:
                return totals
            heartbeats.run_action()
            with named_errors(cfg):
                times = (time.monotonic() if other_counts else earliest, deadline)
                next_plan = _next_plan(cfg, source, job, spec, counts, times, other_work, heartbeats.while_waiting)
            if next_plan is None:
                return totals
            planned = PlannedBatch(next_plan, offsets_checked=True)


def _complete_batch(
    cfg: ConnectorConfig,
    conn: MySqlConnection,
    job: JobLedger,
    planned: PlannedBatch,
    writers: BatchWriters,
    log: JobLog,
    lock: run_lock.RunLock,
    other_work: OtherWork,
    heartbeat_timer: HeartbeatTimer,
) -> dict[str, int]:
    plan = planned.plan
    try:
        with named_errors(cfg):
            result = _run_batch(cfg, conn, job, planned, writers, log, other_work, heartbeat_timer)
    except CdcError as error:
        cause = cause_of(cfg, plan, error)
        job.write_outcome(plan, error=cause)
        if cause is error:
            raise
        raise cause from error
    faults.fault_point("driver.before_outcome")
    lock.require()
    job.write_outcome(result.plan, counts=result.counts)
    if result.refusal is not None:
        raise result.refusal
    return result.counts


def _drain_more(
    cfg: ConnectorConfig,
    conn: MySqlConnection,
    job: JobLedger,
    owner: str,
    weights: dict[str, int],
    complete_batch: Callable[[PlannedBatch], dict[str, int]],
) -> dict[str, int] | None:
    """Drain a batch to the end of the binlog, as far as max.batch.bytes lets it; None where nothing new is logged."""
    ledger = job.latest()
    start, epoch = ledger.end(), ledger.plan_in_force().epoch + 1
    plan = None if start is None else plan_drain(cfg, conn, start, epoch, owner, weights, ledger.prepared())
    if plan is None:
        return None
    return complete_batch(PlannedBatch(plan, offsets_checked=True))


def _run_batch(
    cfg: ConnectorConfig,
    conn: MySqlConnection,
    job: JobLedger,
    planned: PlannedBatch,
    writers: BatchWriters,
    log: JobLog,
    other_work: OtherWork,
    heartbeat_timer: HeartbeatTimer,
) -> BatchResult:
    if cfg[F.SKIP_UNPARSEABLE_DDL]:
        check_skipped_tables(cfg, job, log)
    after = writers.batch_before(planned.plan)
    batch = begin_batch(cfg, job, planned.plan, log, offsets_checked=planned.offsets_checked, after=after)
    other_work.run_before_writers(cfg, job, batch.ledger, log)
    batch, progress, refusal = _write_records(cfg, conn, job, batch, writers, log, heartbeat_timer)
    totals = finish_batch(job, cfg, batch)
    log(progress.summary(totals, job.native_counts.text()))
    totals |= report_unread(cfg, job.latest(), log)
    check_structures(cfg, job, batch.plan, job.latest(), log)
    describe_if_due(cfg, job, batch.plan, totals, log)
    return BatchResult(batch.plan, totals, refusal)


def _write_records(
    cfg: ConnectorConfig,
    conn: MySqlConnection,
    job: JobLedger,
    batch: StartedBatch,
    writers: BatchWriters,
    log: JobLog,
    heartbeat_timer: HeartbeatTimer,
) -> tuple[StartedBatch, DrainProgress, CdcError | None]:
    """Run the writers; where a schema or record is refused, run them again to end the batch before it.

    Returns:
        The batch as it was completed, its progress, and the error of what is refused.
    """
    inputs = WriterInputs(
        batch.state, new_run_id(), server_variables(conn), heartbeat_due_s=heartbeat_timer.seconds_left()
    )
    refusal_error = None
    while True:
        plan, refusals = batch.plan, RefusedSchemas()
        progress = DrainProgress(plan, log, heartbeat_timer.restart, job.metrics)
        try:
            writers.write(plan, inputs, progress, refusals)
            return batch, progress, refusal_error
        except CdcError as error:
            refusal = refusals.first(error)
            if refusal is None or inputs.commit_before_refusal or not _is_inside(refusal.before, plan):
                raise
        batch, shortened = shorten_batch(cfg, conn, job, batch, refusal.before)
        if shortened:
            refusal_error = refusal.error
            log(f"batch {plan.epoch} ends at {refusal.before}, before what is refused: {refusal.error}")
        else:
            # Another writer has committed later changes, or the transaction around the record is committed in part.
            inputs = replace(inputs, commit_before_refusal=True)


def _is_inside(offset: BinlogOffset, plan: BatchPlan) -> bool:
    return compare_offsets(plan.start, offset) < 0 < compare_offsets(plan.end, offset)


def _next_plan(
    cfg: ConnectorConfig,
    source: DriverConnection,
    job: JobLedger,
    spec: JobSpec,
    counts: dict[str, int],
    times: tuple[float, float],
    other_work: OtherWork,
    while_waiting: Callable[[], None],
) -> BatchPlan | None:
    """Wait for new events or other work, and plan the next batch between two times; a broken connection is renewed.

    Raises:
        RunInProgressError: The lock is lost, which also happens when a person ends this run.
        ConfigError: heartbeat.action.query cannot be run.
    """
    ledger, checked_at, (earliest, deadline) = job.latest(), time.monotonic(), times
    start, plan = ledger.end(), ledger.plan_in_force()
    if plan.kind == "reset":
        # A signal has moved the stream; the stored offset is updated before anything else is planned.
        job.write_outcome(plan, counts=counts)
        return None
    if start is None:
        return None
    foreign = ForeignTraffic(cfg, start)
    # Behind a batch with records, a look at what is new is hardly worth its query.
    may_be_foreign = not any(counts.values())
    # What others have logged is read at the end of the run, too.
    while (now := time.monotonic()) < deadline or foreign.waits:
        try:
            with named_errors(cfg):
                while_waiting()
                if now < min(earliest, deadline):
                    time.sleep(min(_PAUSE_S, earliest - now, deadline - now))
                    continue
                check_due = now - checked_at >= CHECK_INTERVAL_S
                checked_at = now if check_due else checked_at
                work_pending = check_due and other_work.is_pending(cfg, job.read())
                reached = new_end(source.conn, start)
                can_wait = may_be_foreign and not work_pending and now < deadline
                waits = can_wait and reached is not None and foreign.may_wait(source.conn, reached.offset)
                next_plan = None
                if waits and check_due:
                    check_available(source.conn, cfg.connection_settings(), start)
                elif not waits and (check_due or reached is not None):
                    next_plan = plan_drain(
                        cfg,
                        source.conn,
                        start,
                        plan.epoch + 1,
                        spec.owner,
                        counts,
                        ledger.prepared(),
                        reached=reached,
                        even_empty=work_pending,
                        start_checked=not source.begin_file_check() and not check_due,
                    )
            if next_plan is not None or now >= deadline:
                return next_plan
        except SourceConnectionError:
            if not source.renew_if_broken(ledger.end):
                raise
            continue
        time.sleep(min(_LOOK_S, cfg[F.POLL_INTERVAL_MS] / 1000, max(0.0, deadline - time.monotonic())))
    return None
