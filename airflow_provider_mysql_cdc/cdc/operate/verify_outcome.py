"""What a verification has found: its result in the ledger, and the error that it leads to."""

from __future__ import annotations

from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import DifferencesFoundError, NotJudgedError, StateError
from airflow_provider_mysql_cdc.cdc.operate.reconcile_store import read_ledger
from airflow_provider_mysql_cdc.cdc.operate.settle_verification import beside_other_runs
from airflow_provider_mysql_cdc.cdc.verify.report.hidden_values import hide_values
from airflow_provider_mysql_cdc.cdc.verify.report.report_text import counts_text, difference_step, unjudged_step
from airflow_provider_mysql_cdc.cdc.verify.report.verdict_records import read_last_verdicts, read_verify_result
from airflow_provider_mysql_cdc.cdc.verify.report.verdict_totals import left_differences, most_different, position_text
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import VerifyResult

NOT_JUDGED_EXIT = 3
"""Exit code of ``mysql-cdc verify`` where no difference is known, and something was not judged."""
_MAX_LISTED = 5


def verification_of_run(cfg: ConnectorConfig, owner: str, run_id: str) -> VerifyResult:
    """Return the result that a job has written, without the values that must not be shown.

    Args:
        cfg: The connector's configuration.
        owner: ``dag_id/run_id/task_id/map_index``.
        run_id: Id of the run, as in the job's spec.

    Raises:
        StateError: There is none.
    """
    ledger = beside_other_runs(cfg, lambda: read_ledger(cfg, owner))
    result = None if ledger is None else read_verify_result(ledger, run_id)
    if result is None:
        raise StateError(
            "the verification ended without a result",
            where=f"topic.prefix={cfg.topic_prefix}, run {run_id}",
            why="the ledger has no verdicts of this run; another verification may have replaced them",
            remedy="read the driver's log, and run the task again; it compares again",
            retriable=True,
        )
    return hide_values(cfg, result)


def last_verification(cfg: ConnectorConfig) -> VerifyResult | None:
    """Return the last verdict about each table, without the values that must not be shown; None if there is none.

    Raises:
        SinkError: Kafka does not answer.
    """
    result = read_last_verdicts(kafka_clients.ledger(cfg).peek())
    return None if result is None else hide_values(cfg, result)


def differences_error(result: VerifyResult) -> DifferencesFoundError | None:
    """Return the error that says which differences are left; None without any."""
    left = [(verdict, counts) for verdict in most_different(result) if (counts := left_differences(verdict))]
    if not left:
        return None
    listed = [f"{verdict.table}: {counts_text(counts)}" for verdict, counts in left[:_MAX_LISTED]]
    more = [f"and {len(left) - _MAX_LISTED:,} more"] if len(left) > _MAX_LISTED else []
    return DifferencesFoundError(
        f"{len(left):,} of {len(result.tables):,} tables differ from their topics",
        where="; ".join([*listed, *more]),
        why=f"topic.prefix={result.prefix} was compared at {position_text(result)}; the report in "
        "this log has examples",
        remedy=difference_step(result),
    )


def not_judged_error(result: VerifyResult) -> NotJudgedError | None:
    """Return the error that names the tables that were not judged, or not in full; None when there is none."""
    unjudged = [verdict for verdict in result.tables if not verdict.judged]
    if not unjudged and result.tables:
        return None
    listed = [f"{verdict.table}: {'; '.join(verdict.unknown)}" for verdict in unjudged[:_MAX_LISTED]]
    more = [f"and {len(unjudged) - _MAX_LISTED:,} more"] if len(unjudged) > _MAX_LISTED else []
    return NotJudgedError(
        f"{len(unjudged):,} of {len(result.tables):,} tables could not be judged in full",
        where="; ".join([*listed, *more]),
        why=f"topic.prefix={result.prefix} was compared at {position_text(result)}; it is not known whether these "
        "topics equal their tables",
        remedy=unjudged_step(result),
    )


def exit_code(result: VerifyResult) -> int:
    """Return 1 if differences are left, 3 if something could not be judged, 0 if every topic equals its table."""
    if differences_error(result) is not None:
        return 1
    return 0 if not_judged_error(result) is None else NOT_JUDGED_EXIT
