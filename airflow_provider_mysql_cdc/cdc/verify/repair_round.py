"""Repair what a comparison has found: drain again, open a view at the end of the stream, read the suspects, write.

The comparison has freed the run's lock, so other runs may have drained since. The repair is a run of its own: it takes
the lock, waits for runs that hold it, and ends with a batch at the position of its view, as a window does. What it
writes behind that batch is written by the batch's attempt, which the next run fences first.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from airflow_provider_mysql_cdc.cdc.binlog.position import current_offset
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.drain import drain_driver
from airflow_provider_mysql_cdc.cdc.drain.batch_planner import range_bytes
from airflow_provider_mysql_cdc.cdc.drain.batch_run import StartedBatch, WriterInputs, finish_batch
from airflow_provider_mysql_cdc.cdc.drain.ddl_events import server_variables
from airflow_provider_mysql_cdc.cdc.drain.drain_driver import BatchContext
from airflow_provider_mysql_cdc.cdc.drain.drain_operations import PROGRESS, SCHEMA_REFUSED
from airflow_provider_mysql_cdc.cdc.drain.drain_progress import DrainProgress
from airflow_provider_mysql_cdc.cdc.emit.headers import new_run_id
from airflow_provider_mysql_cdc.cdc.errors import (
    CdcError,
    RepairLimitError,
    StateError,
)
from airflow_provider_mysql_cdc.cdc.incremental.next_run import run_when_free
from airflow_provider_mysql_cdc.cdc.incremental.uncaptured_scans import end_uncaptured_scans
from airflow_provider_mysql_cdc.cdc.incremental.window_loop import MAX_BACKLOG_BYTES, MAX_BATCHES_BEFORE
from airflow_provider_mysql_cdc.cdc.incremental.window_operations import (
    OPENED,
    READY,
)
from airflow_provider_mysql_cdc.cdc.job.history_guard import require_recorded_history
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.cdc.job.named_errors import named_errors
from airflow_provider_mysql_cdc.cdc.job.schema_texts import SchemaTexts
from airflow_provider_mysql_cdc.cdc.job.stage_runner import StageLeader, StageRunner
from airflow_provider_mysql_cdc.cdc.job.task_barrier import TaskBarrier
from airflow_provider_mysql_cdc.cdc.job.task_operation import EMPTY
from airflow_provider_mysql_cdc.cdc.job.task_runner import TaskRunner
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.schema.history import load_schema_state
from airflow_provider_mysql_cdc.cdc.verify.repair_records import read_repairs
from airflow_provider_mysql_cdc.cdc.verify.repair_task import RepairInputs, RepairReport, run_repair_task
from airflow_provider_mysql_cdc.cdc.verify.repair_writer import RepairIdentity
from airflow_provider_mysql_cdc.cdc.verify.suspects import TableSuspects
from airflow_provider_mysql_cdc.cdc.verify.verify_operations import COMPARE
from airflow_provider_mysql_cdc.cdc.verify.verify_result import DifferenceKind
from airflow_provider_mysql_cdc.cdc.verify.view_batch import begin_view_batch

BARRIER_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class RepairJob:
    """Describe a repair.

    Args:
        spec: The verification's job.
        run: Id of the run, under which the ledger counts repairs.
        suspects: What the comparison has found.
        dry_run: Whether nothing is written.
    """

    spec: JobSpec
    run: str
    suspects: tuple[TableSuspects, ...]
    dry_run: bool = False


def run_repair(job: RepairJob, runner: TaskRunner, log: Log) -> RepairReport:
    """Repair, once no other run holds the lock.

    Args:
        job: What is to be repaired.
        runner: Runs the task.
        log: Takes one line of text.

    Returns:
        What was done; its counts are those of the batches, too.

    Raises:
        RepairLimitError: More rows differ than repair.max.rows; none is written.
        CdcError: The suspects could not be read or written; what is committed is counted in the ledger.
    """
    cfg = ConnectorConfig.from_properties(job.spec.properties)
    reports: list[RepairReport] = []

    def repair_after_batch(context: BatchContext) -> dict[str, int]:
        with named_errors(cfg):
            report = _RepairRound(context, job).repair()
        reports.append(report)
        return dict(report.counts)

    other_work = drain_driver.OtherWork(
        repair_after_batch, lambda cfg, ledger: False, end_uncaptured_scans, ends_run=True
    )
    counts = run_when_free(job.spec, runner, log, other_work, "a repair")
    (report,) = reports
    _require_limit(cfg, report)
    return replace(report, counts=counts)


def _require_limit(cfg: ConnectorConfig, report: RepairReport) -> None:
    limit = cfg[F.REPAIR_MAX_ROWS]
    if report.confirmed > limit:
        raise limit_error(report.confirmed, limit, [str(table) for table, o in report.tables.items() if o.confirmed])


def limit_error(rows: int, limit: int, tables: Sequence[str]) -> RepairLimitError:
    """Return the error for more differences than may be repaired.

    Args:
        rows: Their number.
        limit: ``repair.max.rows``.
        tables: Names of the tables.
    """
    shown = ", ".join(tables[:5]) + (f" and {len(tables) - 5} more" if len(tables) > 5 else "")
    return RepairLimitError(
        f"{rows:,} rows differ, more than a repair may write; none was written",
        where=f"{F.REPAIR_MAX_ROWS.name}={limit}, {shown}",
        why="so many differences have one cause, such as rows written without the binlog, or a gap in the stream",
        remedy=f"find out the cause; to repair them all the same, verify again with {F.REPAIR_MAX_ROWS.name}={rows} or "
        "more, or choose tables",
    )


class _RepairRound:
    """Repair after a batch, at the position of a view."""

    def __init__(self, context: BatchContext, job: RepairJob) -> None:
        self._context, self._job = context, job
        self._batch: StartedBatch | None = None
        self._progress: DrainProgress | None = None

    def repair(self) -> RepairReport:
        """Drain what is left, and run the task."""
        context = self._context
        self._drain_backlog()
        ledger = context.job.latest()
        start = ledger.end()
        if start is None:
            raise StateError("a repair cannot begin while a batch is incomplete", retriable=True)
        require_recorded_history(context.cfg, ledger)
        epoch = ledger.plan_in_force().epoch + 1
        schema_state = load_schema_state(context.cfg, until=start, epoch=epoch, cache=context.job.history_cache)
        barrier = TaskBarrier(1, BARRIER_TIMEOUT_S)

        def lead(stage_ended: threading.Event) -> None:
            self._lead(barrier, ledger, schema_state)

        texts = SchemaTexts(context.cfg)
        try:
            (report,) = StageRunner(context.cfg, context.runner, context.job.schema_ids).run_barrier(
                run_repair_task,
                StageLeader(context.cfg, barrier, lead, "the driver of a repair failed", BARRIER_TIMEOUT_S),
                self._inputs(ledger, schema_state),
                [
                    barrier.handler(READY),
                    barrier.handler(OPENED),
                    barrier.handler(COMPARE),
                    texts.handler(),
                    PROGRESS.handled_by(lambda task, line: self._required_progress().update(task, line)),
                    # The batch is continued, and shortened, by a drain.
                    SCHEMA_REFUSED.handled_by(lambda task, refusal: EMPTY),
                ],
            )
        except CdcError as error:
            if self._batch is not None:
                context.job.write_outcome(self._batch.plan, error=error)
            raise
        finally:
            texts.close()
        return self._finish(report)

    def _drain_backlog(self) -> None:
        """Drain batches until the end of the binlog is near: a view holds metadata locks on its tables."""
        context = self._context
        for _ in range(MAX_BATCHES_BEFORE):
            start = context.job.latest().end()
            if start is None or range_bytes(context.conn, start, current_offset(context.conn)) <= MAX_BACKLOG_BYTES:
                return
            context.require_lock()
            if context.drain_more() is None:
                return

    def _inputs(self, ledger: LedgerState, schema_state: SchemaState) -> RepairInputs:
        context, job = self._context, self._job
        earlier = {repair.table: repair for repair in read_repairs(ledger, job.run)}
        return RepairInputs(
            WriterInputs(schema_state, new_run_id(), server_variables(context.conn)),
            job.suspects,
            RepairIdentity(job.run, context.owner, earlier),
            context.cfg[F.REPAIR_MAX_ROWS],
            job.dry_run,
        )

    def _required_progress(self) -> DrainProgress:
        assert self._progress is not None  # a task writes after it was released from OPENED
        return self._progress

    def _note_batch(self, batch: StartedBatch) -> None:
        self._batch, self._progress = batch, DrainProgress(batch.plan, self._context.log)

    def _lead(self, barrier: TaskBarrier, ledger: LedgerState, start_schema: SchemaState) -> None:
        """Take the task from one point of its barrier to the next, while its stage runs."""
        context = self._context
        names = tuple(suspects.table for suspects in self._job.suspects)
        begin_view_batch(context, barrier, ledger, names, start_schema, "a repair", self._note_batch)
        barrier.wait(COMPARE, unlimited=True)
        context.require_lock()
        barrier.release(COMPARE, EMPTY)

    def _finish(self, report: RepairReport) -> RepairReport:
        context, batch = self._context, self._batch
        assert batch is not None  # the task has ended without an error
        counts = finish_batch(context.job, context.cfg, batch, [report.counts])
        tables = {table.path(): sum(o.repaired.values()) for table, o in report.tables.items() if o.repaired}
        context.job.add_table_counts(tables)
        context.job.write_outcome(batch.plan, counts=counts)
        for table, outcome in report.tables.items():
            found = _text_of(outcome.confirmed)
            done = "nothing is written (dry run)" if self._job.dry_run else f"{_text_of(outcome.repaired)} repaired"
            context.log(
                f"repair of {table} at {batch.plan.end}: {found} to repair, {done}"
                + (f", {outcome.dropped:,} no longer different" if outcome.dropped else "")
                + "".join(f"; {reason}" for reason in outcome.reasons)
            )
        return replace(report, counts=counts)


def _text_of(counts: Mapping[DifferenceKind, int]) -> str:
    return ", ".join(f"{count:,} {kind}" for kind, count in counts.items()) or "nothing"
