"""Repair what a verification has found, in a window at the end of the stream, and write its verdicts once more.

The window of a repair: drain again, open a view at the end of the stream, and write listed keys in it.

The comparison has freed the run's lock, so other runs may have drained since. The repair is a run of its own: it takes
the lock, waits for runs that hold it, and ends with a window. That is opened under the short read lock of a window of
tables without a key, so its batch ends where its view is; of its keys no event follows in the batch.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.drain import drain_driver
from airflow_provider_mysql_cdc.cdc.drain.batch_run import StartedBatch, WriterInputs, finish_batch
from airflow_provider_mysql_cdc.cdc.drain.ddl_events import server_variables
from airflow_provider_mysql_cdc.cdc.drain.drain_driver import BatchContext
from airflow_provider_mysql_cdc.cdc.drain.joined_tables import UnwrittenRows
from airflow_provider_mysql_cdc.cdc.emit.envelope import new_run_id
from airflow_provider_mysql_cdc.cdc.errors import CdcError, RepairLimitError
from airflow_provider_mysql_cdc.cdc.incremental.drain_job import drain_backlog, run_when_free
from airflow_provider_mysql_cdc.cdc.incremental.notifications import end_uncaptured_scans
from airflow_provider_mysql_cdc.cdc.incremental.window_operations import DRAINED, ROWS_UNWRITTEN
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.cdc.job.schema_ids import SchemaTexts
from airflow_provider_mysql_cdc.cdc.job.stage_runner import StageLeader, StageRunner, named_errors
from airflow_provider_mysql_cdc.cdc.job.task_operation import EMPTY
from airflow_provider_mysql_cdc.cdc.job.task_runner import TaskRunner
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.verify.compare.suspects import TableSuspects
from airflow_provider_mysql_cdc.cdc.verify.repair.repair_task import (
    RepairInputs,
    RepairReport,
    read_repairs,
    run_repair_task,
)
from airflow_provider_mysql_cdc.cdc.verify.report.verdict_records import write_verdicts
from airflow_provider_mysql_cdc.cdc.verify.report.verdict_totals import in_order, left_differences, left_to_repair
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import (
    STATE_DIFFERENCES,
    DifferenceKind,
    RepairMode,
    VerifyRequest,
    VerifyResult,
)
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


def most_found(cfg: ConnectorConfig, request: VerifyRequest) -> int:
    """Return how many differences of each kind and table a comparison keeps."""
    return request.examples if request.repair is RepairMode.NO else max(request.examples, cfg[F.REPAIR_MAX_ROWS])


def repair_found(
    spec: JobSpec, runner: TaskRunner, log: Log, result: VerifyResult, suspects: tuple[TableSuspects, ...]
) -> dict[str, int]:
    """Repair if it was asked for; return the records by topic that were written.

    Args:
        spec: The verification's job.
        runner: Runs the task.
        log: Takes one line of text.
        result: What the verification has found; it is in the ledger.
        suspects: The differences.

    Raises:
        RepairLimitError: More rows differ than repair.max.rows; none is written.
        CdcError: The repair failed; what is committed is counted in the ledger.
    """
    mode, cfg = result.request.repair, ConnectorConfig.from_properties(spec.properties)
    different = {verdict.table: left_to_repair(verdict) for verdict in result.tables}
    total, limit = sum(different.values()), cfg[F.REPAIR_MAX_ROWS]
    if mode is RepairMode.NO or not total:
        return {}
    if total > limit:
        error = _limit_error(total, limit, [table for table, number in different.items() if number])
        if mode is RepairMode.YES:
            raise error
        log(f"a repair would be refused: {error.message()}")
        return {}
    if mode is RepairMode.DRY_RUN:
        listed = _listed_kinds(result, suspects)
        for table, kinds in listed.items():
            log(f"repair of {table}: {counts_text(kinds)} to repair, nothing is written (dry run)")
        sentences = {
            table: (f"a repair would write {counts_text(kinds)} (dry run)",) for table, kinds in listed.items()
        }
        _write_outcome(cfg, result, sentences)
        return {}
    earlier = {verdict.table: verdict.repaired for verdict in result.tables}
    report = run_repair(RepairJob(spec, result.run, suspects, earlier), runner, log)
    said = {str(t): tuple(f"not repaired: {reason}" for reason in o.reasons) for t, o in report.tables.items()}
    _write_outcome(cfg, result, said)
    return dict(report.counts)


def _listed_kinds(result: VerifyResult, suspects: tuple[TableSuspects, ...]) -> dict[str, Mapping[DifferenceKind, int]]:
    """Return the numbers of differences by kind whose keys a repair would list, by table."""
    listed, found = dict[str, Mapping[DifferenceKind, int]](), {verdict.table: verdict for verdict in result.tables}
    for of_table in suspects:
        kinds = Counter[DifferenceKind]()
        for suspect in of_table.suspects:
            kinds.update(suspect.kinds)
        # A suspect of a table without a key stands for all equal rows.
        left = left_differences(found[str(of_table.table)])
        listed[str(of_table.table)] = in_order({k: left[k] if k in STATE_DIFFERENCES else n for k, n in kinds.items()})
    return listed


def _limit_error(rows: int, limit: int, tables: Sequence[str]) -> RepairLimitError:
    """Return the error for more differences than may be repaired."""
    shown = ", ".join(tables[:5]) + (f" and {len(tables) - 5} more" if len(tables) > 5 else "")
    return RepairLimitError(
        f"{rows:,} rows differ, more than a repair may write; none was written",
        where=f"{F.REPAIR_MAX_ROWS.name}={limit}, {shown}",
        why="so many differences have one cause, such as rows written without the binlog, or a gap in the stream",
        remedy=f"find out the cause; to repair them all the same, verify again with {F.REPAIR_MAX_ROWS.name}={rows} or "
        "more, or choose tables",
    )


def _write_outcome(cfg: ConnectorConfig, result: VerifyResult, sentences: Mapping[str, tuple[str, ...]]) -> None:
    """Write the verdicts with what all attempts of the run have repaired, and what is said of it."""
    with kafka_clients.ledger(cfg) as ledger:
        state = ledger.read(chunks=False) or LedgerState()
    repaired = {repair.table: repair.repaired for repair in read_repairs(state, result.run)}
    verdicts = tuple(
        replace(
            verdict,
            repaired=repaired.get(verdict.table, {}),
            unknown=(*verdict.unknown, *sentences.get(verdict.table, ())),
        )
        for verdict in result.tables
    )
    write_verdicts(cfg, state, replace(result, tables=verdicts))
