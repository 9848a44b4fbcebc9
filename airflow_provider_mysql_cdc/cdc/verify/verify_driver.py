"""The driver of a verification: drain, compare tables and topics, write the verdicts, repair if that is asked for."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field

from airflow_provider_mysql_cdc.cdc.commit.run_tally import add_counts
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.drain import drain_driver
from airflow_provider_mysql_cdc.cdc.drain.drain_driver import BatchContext
from airflow_provider_mysql_cdc.cdc.incremental.uncaptured_scans import end_uncaptured_scans
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.cdc.job.named_errors import named_errors
from airflow_provider_mysql_cdc.cdc.job.schema_texts import SchemaTexts
from airflow_provider_mysql_cdc.cdc.job.task_runner import TaskRunner
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.verify.repair_found import repair_found
from airflow_provider_mysql_cdc.cdc.verify.suspects import TableSuspects
from airflow_provider_mysql_cdc.cdc.verify.verdict_records import write_verdicts
from airflow_provider_mysql_cdc.cdc.verify.verify_request import VerifyRequest
from airflow_provider_mysql_cdc.cdc.verify.verify_result import VerifyResult
from airflow_provider_mysql_cdc.cdc.verify.verify_round import RoundOutcome, VerifyRound


def run_verify(spec: JobSpec, runner: TaskRunner, log: Log) -> dict[str, int]:
    """Drain, and compare the tables with their topics at the end of the stream; return records per topic.

    Args:
        spec: The job; its options are a ``VerifyRequest``.
        runner: Runs the tasks.
        log: Takes one line of text.

    Raises:
        CdcError: A batch could not be completed, or the comparison failed; nothing was found out then.
    """
    verification = _Verification(spec, VerifyRequest.from_json(spec.options))
    other_work = drain_driver.OtherWork(
        verification.compare, lambda cfg, ledger: False, end_uncaptured_scans, ends_run=True
    )
    counts = drain_driver.run_drain(spec, runner, log, other_work)
    return add_counts(counts, verification.repair(runner, log))


@dataclass(slots=True)
class _Verification:
    """Compare in rounds, and keep what was found."""

    spec: JobSpec
    request: VerifyRequest
    started_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)
    _result: VerifyResult | None = None
    _suspects: tuple[TableSuspects, ...] = ()

    def compare(self, context: BatchContext) -> dict[str, int]:
        """Compare after a batch, and write the verdicts; return the records by topic that were written."""
        with named_errors(context.cfg), contextlib.closing(SchemaTexts(context.cfg)) as schema_texts:
            outcome = VerifyRound(context, self.request, schema_texts).compare()
            self._write_verdicts(context, outcome)
            return outcome.counts

    def repair(self, runner: TaskRunner, log: Log) -> dict[str, int]:
        """Repair what was found, if it was asked for; return the records by topic that were written."""
        return {} if self._result is None else repair_found(self.spec, runner, log, self._result, self._suspects)

    def _write_verdicts(self, context: BatchContext, outcome: RoundOutcome) -> None:
        result = VerifyResult(
            self.spec.run,
            context.cfg[F.TOPIC_PREFIX],
            outcome.offset,
            self.started_ms,
            time.time_ns() // 1_000_000,
            self.request,
            outcome.verdicts,
        )
        context.require_lock()  # otherwise a later try of the run is comparing
        self._suspects, self._result = outcome.suspects, result
        write_verdicts(context.cfg, context.job.read(), result)
        context.log(_summary_line(result))


def _summary_line(result: VerifyResult) -> str:
    equal = sum(verdict.equal for verdict in result.tables)
    left_out = [verdict.table for verdict in result.tables if verdict.not_compared is not None]
    unequal = [verdict.table for verdict in result.tables if not verdict.equal and verdict.not_compared is None]
    line = f"verification at {result.offset}: {equal} of {len(result.tables)} table(s) equal their topics"
    line += f"; {', '.join(unequal[:5])} do not" if unequal else ""
    return line + (f"; {', '.join(left_out[:5])} could not be compared" if left_out else "")
