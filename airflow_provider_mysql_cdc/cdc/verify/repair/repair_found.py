"""Repair what a verification has found, and write its verdicts once more, with what was repaired."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import RepairLimitError
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.cdc.job.task_runner import TaskRunner
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.verify.compare.suspects import TableSuspects
from airflow_provider_mysql_cdc.cdc.verify.repair.repair_records import read_repairs
from airflow_provider_mysql_cdc.cdc.verify.repair.repair_window import RepairJob, counts_text, run_repair
from airflow_provider_mysql_cdc.cdc.verify.report.verdict_records import write_verdicts
from airflow_provider_mysql_cdc.cdc.verify.report.verdict_totals import in_order, left_differences, left_to_repair
from airflow_provider_mysql_cdc.cdc.verify.report.verify_request import RepairMode, VerifyRequest
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import STATE_DIFFERENCES, DifferenceKind, VerifyResult


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
