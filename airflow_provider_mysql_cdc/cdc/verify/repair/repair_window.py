"""The window of a repair: drain again, open a view at the end of the stream, and write listed keys in it.

The comparison has freed the run's lock, so other runs may have drained since. The repair is a run of its own: it takes
the lock, waits for runs that hold it, and ends with a window. That is opened under the short read lock of a window of
tables without a key, so its batch ends where its view is; of its keys no event follows in the batch.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.drain import drain_driver
from airflow_provider_mysql_cdc.cdc.drain.batch_run import StartedBatch, WriterInputs, finish_batch
from airflow_provider_mysql_cdc.cdc.drain.ddl_events import server_variables
from airflow_provider_mysql_cdc.cdc.drain.drain_driver import BatchContext
from airflow_provider_mysql_cdc.cdc.drain.unwritten_rows import UnwrittenRows
from airflow_provider_mysql_cdc.cdc.emit.headers import new_run_id
from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.cdc.incremental.next_run import run_when_free
from airflow_provider_mysql_cdc.cdc.incremental.uncaptured_scans import end_uncaptured_scans
from airflow_provider_mysql_cdc.cdc.incremental.window_loop import drain_backlog
from airflow_provider_mysql_cdc.cdc.incremental.window_operations import DRAINED, ROWS_UNWRITTEN
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.cdc.job.named_errors import named_errors
from airflow_provider_mysql_cdc.cdc.job.schema_texts import SchemaTexts
from airflow_provider_mysql_cdc.cdc.job.stage_runner import StageLeader, StageRunner
from airflow_provider_mysql_cdc.cdc.job.task_operation import EMPTY
from airflow_provider_mysql_cdc.cdc.job.task_runner import TaskRunner
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.verify.compare.suspects import TableSuspects
from airflow_provider_mysql_cdc.cdc.verify.repair.repair_records import read_repairs
from airflow_provider_mysql_cdc.cdc.verify.repair.repair_task import RepairInputs, RepairReport, run_repair_task
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import DifferenceKind
from airflow_provider_mysql_cdc.cdc.verify.views.view_batch import BARRIER_TIMEOUT_S, ViewBatch


@dataclass(frozen=True, slots=True)
class RepairJob:
    """Describe a repair.

    Args:
        spec: The verification's job.
        run: Id of the run, under which the ledger counts repairs.
        suspects: What the comparison has found.
        earlier: What the run had repaired before, by table.
    """

    spec: JobSpec
    run: str
    suspects: tuple[TableSuspects, ...]
    earlier: Mapping[str, Mapping[DifferenceKind, int]]


def run_repair(job: RepairJob, runner: TaskRunner, log: Log) -> RepairReport:
    """Repair, once no other run holds the lock.

    Returns:
        What was done; its counts are those of the batches, too.

    Raises:
        CdcError: The keys could not be read or written; what is committed is counted in the ledger.
    """
    cfg = ConnectorConfig.from_properties(job.spec.properties)
    reports: list[RepairReport] = []

    def repair_after_batch(context: BatchContext) -> dict[str, int]:
        with named_errors(cfg):
            reports.append(_RepairWindow(context, job).run())
        return dict(reports[-1].counts)

    other_work = drain_driver.OtherWork(
        repair_after_batch, lambda cfg, ledger: False, end_uncaptured_scans, ends_run=True
    )
    counts = run_when_free(job.spec, runner, log, other_work, "a repair")
    return replace(reports[-1], counts=counts)


class _RepairWindow:
    """Run a window of one task, whose stretches are lists of keys."""

    def __init__(self, context: BatchContext, job: RepairJob) -> None:
        self._context, self._job = context, job

    def run(self) -> RepairReport:
        """Drain what is left, and run the task."""
        context, job = self._context, self._job
        drain_backlog(context)
        views = ViewBatch(context, 1, "a repair")
        names = tuple(suspects.table for suspects in job.suspects)

        def lead(stage_ended: threading.Event) -> None:
            views.begin(names)
            views.barrier.wait(DRAINED, unlimited=True)
            context.require_lock()
            views.barrier.release(DRAINED, UnwrittenRows())

        texts = SchemaTexts(context.cfg)
        counted = {repair.table: repair.repaired for repair in read_repairs(views.ledger, job.run)}
        writer = WriterInputs(views.schema_state, new_run_id(), server_variables(context.conn))
        try:
            (report,) = StageRunner(context.cfg, context.runner, context.job.schema_ids).run_barrier(
                run_repair_task,
                StageLeader(context.cfg, views.barrier, lead, "the driver of a repair failed", BARRIER_TIMEOUT_S),
                RepairInputs(writer, job.suspects, job.run, context.owner, job.earlier, counted),
                [
                    *views.handlers(),
                    views.barrier.handler(DRAINED),
                    # The view is behind all of them.
                    ROWS_UNWRITTEN.handled_by(lambda task, unwritten: EMPTY),
                    texts.handler(),
                ],
            )
        except CdcError as error:
            views.note_error(error)
            raise
        finally:
            texts.close()
        return self._finish(views.batch, report)

    def _finish(self, batch: StartedBatch, report: RepairReport) -> RepairReport:
        context = self._context
        counts = finish_batch(context.job, context.cfg, batch, [dict(report.counts)])
        faults.fault_point("incremental.before_books")
        tables = {table.path(): sum(o.repaired.values()) for table, o in report.tables.items() if o.repaired}
        context.job.add_table_counts(tables)
        context.job.write_outcome(batch.plan, counts=counts)
        for table, outcome in report.tables.items():
            done = counts_text(outcome.repaired)
            context.log(f"repair of {table} at {batch.plan.end}: {done} repaired" + "".join(
                f"; {reason}" for reason in outcome.reasons
            ))  # fmt: skip
        return replace(report, counts=counts)


def counts_text(counts: Mapping[DifferenceKind, int]) -> str:
    """Return numbers of differences as text."""
    return ", ".join(f"{count:,} {kind}" for kind, count in counts.items() if count) or "nothing"
