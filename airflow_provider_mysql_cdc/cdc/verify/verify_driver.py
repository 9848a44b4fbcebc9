"""The driver of a verification: drain, compare tables and topics, write the verdicts, repair if that is asked for."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airflow_provider_mysql_cdc.cdc.commit.run_tally import add_counts
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.drain import drain_driver
from airflow_provider_mysql_cdc.cdc.drain.drain_driver import BatchContext
from airflow_provider_mysql_cdc.cdc.incremental.drain_job import go_on_where_broken, run_when_free
from airflow_provider_mysql_cdc.cdc.incremental.notifications import end_uncaptured_scans
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.cdc.job.schema_ids import SchemaTexts
from airflow_provider_mysql_cdc.cdc.job.stage_runner import named_errors
from airflow_provider_mysql_cdc.cdc.job.task_runner import TaskRunner
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.verify.compare.checksum_fold import DifferingKeys
from airflow_provider_mysql_cdc.cdc.verify.compare.suspects import TableSuspects
from airflow_provider_mysql_cdc.cdc.verify.group_queue import GroupQueue, plan_group_queue, unknown_verdicts
from airflow_provider_mysql_cdc.cdc.verify.repair.repair_task import read_repairs, with_earlier_repairs
from airflow_provider_mysql_cdc.cdc.verify.repair.repair_window import repair_found
from airflow_provider_mysql_cdc.cdc.verify.report.verdict_records import write_verdicts
from airflow_provider_mysql_cdc.cdc.verify.report.verdict_totals import left_to_repair
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import RepairMode, VerifyRequest, VerifyResult
from airflow_provider_mysql_cdc.cdc.verify.verify_round import VerifyRound


def run_verify(spec: JobSpec, runner: TaskRunner, log: Log) -> dict[str, int]:
    """Drain, and compare the tables with their topics, each group at the end of the stream; return records per topic.

    Raises:
        CdcError: A batch could not be completed, or a comparison failed; the ledger has the verdicts about the groups
            that were compared before, and a retry of the run goes on behind them.
    """
    verification = _Verification(spec, VerifyRequest.from_json(spec.options))
    other_work = drain_driver.OtherWork(
        verification.compare, lambda cfg, ledger: False, end_uncaptured_scans, ends_run=True
    )

    def compare_rest() -> dict[str, int]:
        counts = dict[str, int]()
        while not verification.compared:
            of_what = "the next group of a verification"
            counts = add_counts(counts, run_when_free(spec, runner, log, other_work, of_what))
        return counts

    def compare_all() -> dict[str, int]:
        return add_counts(drain_driver.run_drain(spec, runner, log, other_work), compare_rest())

    def repair() -> dict[str, int]:
        return verification.repair(runner, log)  # all is read before the first row is written

    cfg = ConnectorConfig.from_properties(spec.properties)
    counts = go_on_where_broken(cfg, spec.owner, log, compare_all, compare_rest, lambda: verification.progress)
    return add_counts(counts, go_on_where_broken(cfg, spec.owner, log, repair, repair))


@dataclass(slots=True)
class _Verification:
    """Compare in rounds, and keep what was found."""

    spec: JobSpec
    request: VerifyRequest
    _queue: GroupQueue | None = None
    _result: VerifyResult | None = None
    _suspects: tuple[TableSuspects, ...] = ()
    _differing: Mapping[TableId, DifferingKeys] | None = None

    @property
    def compared(self) -> bool:
        """Return whether all groups are compared."""
        return self._result is not None

    @property
    def progress(self) -> object:
        """Return what changes with each group that was compared, by checksums or by rows."""
        return None if self._queue is None else (self._queue.offset, len(self._queue.left))

    def compare(self, context: BatchContext) -> dict[str, int]:
        """Compare the next group after a batch, and write the verdicts; return the records written, by topic."""
        with named_errors(context.cfg):
            queue = self._queue or plan_group_queue(context, self.request, self.spec.run)
            self._queue, counts = queue, dict[str, int]()
            if names := queue.next_group(context):
                counts = self._compare_group(context, queue, names)
            if not queue.left:
                self._write_result(context, queue)
            return counts

    def _compare_group(self, context: BatchContext, queue: GroupQueue, names: Sequence[TableId]) -> dict[str, int]:
        with contextlib.closing(SchemaTexts(context.cfg)) as schema_texts:
            outcome = VerifyRound(context, self.request, schema_texts, names, self._differing).compare()
        self._suspects += outcome.suspects
        self._differing = outcome.differing or None
        queue.keep(context, outcome.verdicts, outcome.offset, left=tuple(sorted(outcome.differing)))
        if outcome.differing:
            context.log(
                f"checksums at {outcome.offset} differ in {len(outcome.differing)} table(s), or these were altered "
                f"meanwhile; their rows are compared next: {', '.join(map(str, sorted(outcome.differing)[:5]))}"
            )
        return outcome.counts

    def repair(self, runner: TaskRunner, log: Log) -> dict[str, int]:
        """Repair what was found, if it was asked for; return the records by topic that were written."""
        return {} if self._result is None else repair_found(self.spec, runner, log, self._result, self._suspects)

    def _write_result(self, context: BatchContext, queue: GroupQueue) -> None:
        context.require_lock()  # otherwise a later try of the run is comparing
        ledger, request = context.job.read(), self.request
        offset = queue.offset
        assert offset is not None  # there is a table, so there is a group or a verdict of an earlier try
        verdicts = with_earlier_repairs(queue.verdicts, read_repairs(ledger, self.spec.run))
        verdicts += unknown_verdicts(context, queue.unknown)
        result = self._result = VerifyResult(
            self.spec.run,
            context.cfg[F.TOPIC_PREFIX],
            offset,
            queue.comparing.started_ms,
            time.time_ns() // 1_000_000,
            request,
            tuple(sorted(verdicts, key=lambda verdict: verdict.table)),
        )
        over = request.repair is RepairMode.NO or not any(map(left_to_repair, result.tables))
        write_verdicts(context.cfg, ledger, result, over=over)
        context.log(_summary_line(result))


def _summary_line(result: VerifyResult) -> str:
    equal = sum(verdict.equal for verdict in result.tables)
    unequal = [verdict.table for verdict in result.tables if verdict.state_differs]
    unjudged = [verdict.table for verdict in result.tables if not verdict.judged and not verdict.state_differs]
    line = f"verification up to {result.offset}: {equal} of {len(result.tables)} table(s) equal their topics"
    line += f"; {', '.join(unequal[:5])} do not" if unequal else ""
    return line + (f"; {', '.join(unjudged[:5])} could not be judged in full" if unjudged else "")
