"""Repair what a verification has found, and write its verdicts once more, with what was repaired."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.cdc.job.task_runner import TaskRunner
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.verify.repair_records import read_repairs
from airflow_provider_mysql_cdc.cdc.verify.repair_round import RepairJob, limit_error, run_repair
from airflow_provider_mysql_cdc.cdc.verify.repair_task import RepairReport, TableOutcome
from airflow_provider_mysql_cdc.cdc.verify.suspects import TableSuspects
from airflow_provider_mysql_cdc.cdc.verify.verdict_records import write_verdicts
from airflow_provider_mysql_cdc.cdc.verify.verdict_totals import left_to_repair
from airflow_provider_mysql_cdc.cdc.verify.verify_request import RepairMode, VerifyRequest
from airflow_provider_mysql_cdc.cdc.verify.verify_result import VerifyResult


def most_found(cfg: ConnectorConfig, request: VerifyRequest) -> int:
    """Return how many differences of each kind and table a comparison keeps.

    Args:
        cfg: The connector's configuration.
        request: What was asked for.
    """
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
        error = limit_error(total, limit, [table for table, number in different.items() if number])
        if mode is RepairMode.YES:
            raise error
        log(f"a repair would be refused: {error.message()}")
        return {}
    job = RepairJob(spec, result.run, suspects, dry_run=mode is RepairMode.DRY_RUN)
    report = run_repair(job, runner, log)
    _write_outcome(cfg, result, report)
    return dict(report.counts)


def _write_outcome(cfg: ConnectorConfig, result: VerifyResult, report: RepairReport) -> None:
    """Write the verdicts with what all attempts of the run have repaired, and what could not be repaired."""
    with kafka_clients.ledger(cfg) as ledger:
        state = ledger.read(chunks=False) or LedgerState()
    repaired = {repair.table: repair.repaired for repair in read_repairs(state, result.run)}
    dry_run = result.request.repair is RepairMode.DRY_RUN
    sentences = {str(table): tuple(_sentences(outcome, dry_run)) for table, outcome in report.tables.items()}
    verdicts = tuple(
        replace(
            verdict,
            repaired=repaired.get(verdict.table, {}),
            unknown=(*verdict.unknown, *sentences.get(verdict.table, ())),
        )
        for verdict in result.tables
    )
    write_verdicts(cfg, state, replace(result, tables=verdicts))


def _sentences(outcome: TableOutcome, dry_run: bool) -> Iterator[str]:
    if dry_run:
        counts = ", ".join(f"{count:,} {kind}" for kind, count in outcome.confirmed.items()) or "nothing"
        yield f"a repair would write {counts} (dry run)"
    if outcome.dropped:
        yield f"{outcome.dropped:,} differences were mended by later events, or the table has changed without any"
    for reason in outcome.reasons:
        yield f"not repaired: {reason}"
