"""The operator that compares tables with their topics."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import AirflowSkipException

from airflow_provider_mysql_cdc.operators.arguments import parse_bool, reject_arguments
from airflow_provider_mysql_cdc.operators.asset_events import add_verification_event
from airflow_provider_mysql_cdc.operators.common import run_key
from airflow_provider_mysql_cdc.operators.job_run import JobKind, JobRun, run_or_give_way
from airflow_provider_mysql_cdc.operators.spark_job_operator import MySqlCdcSparkOperator
from airflow_provider_mysql_cdc.operators.task_result import require_report_folder, write_report_file

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.operate.prepare_drain import IdleReason
    from airflow_provider_mysql_cdc.cdc.operate.prepare_job import PreparedJob
    from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import VerifyRequest

MAX_RESULT_TABLES = 1_000
"""Tables in the task's result, which Airflow stores in its database."""


def verify_tables(task: MySqlCdcVerifyOperator, run: JobRun) -> dict[str, Any]:
    """Drain, compare and report.

    Args:
        task: The operator, with rendered arguments.
        run: Its jobs.

    Raises:
        AirflowSkipException: Another run of the stream is active, so nothing was compared.
        TaskFailedError: Differences are left, and the task is to fail on them.
    """
    from airflow_provider_mysql_cdc.cdc.operate.prepare_verify import prepare_verify
    from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import RepairMode

    request = _checked_request(task, run)
    idle_reasons: list[IdleReason] = []

    def plan_verification(_: float) -> PreparedJob | None:
        idle_reasons.clear()
        return prepare_verify(run.cfg, run.store, run.owner, run.log, request, on_idle=idle_reasons.append)

    if request.repair is not RepairMode.NO and run.spark.should_defer():
        run.log(
            "The task is not deferred: its driver repairs after the comparison, and waits for other runs meanwhile."
        )
        run = replace(run, spark=replace(run.spark, should_defer=lambda: False))
    result = run_or_give_way(run, plan_verification, time.monotonic())
    if idle_reasons:
        # Batches of earlier tries and runs are reported by the next run: Airflow drops the events of a skipped task.
        run.context["ti"].xcom_push(key="return_value", value=result | {"reason": idle_reasons[0].text})
        raise AirflowSkipException(idle_reasons[0].text)
    return report_verification(task, run, result)


def _checked_request(task: MySqlCdcVerifyOperator, run: JobRun) -> VerifyRequest:
    """Check the arguments before anything connects."""
    from airflow_provider_mysql_cdc.cdc.operate.prepare_verify import parse_request

    _failing(task)
    if task.report_dir:
        require_report_folder(task.report_dir)
    return parse_request(
        tables=task.tables,
        sample_percent=task.sample_percent,
        repair=task.repair,
        examples=task.examples,
        show_values=parse_bool(task.show_values, "show_values"),
        history=parse_bool(task.history, "history"),
        checksums=parse_bool(task.checksums, "checksums"),
    )


def _failing(task: MySqlCdcVerifyOperator) -> tuple[bool, bool]:
    """Return whether the task fails on differences, and whether on what was not judged."""
    on_difference = parse_bool(task.fail_on_difference, "fail_on_difference")
    if task.fail_on_not_judged is None:
        return on_difference, on_difference
    return on_difference, parse_bool(task.fail_on_not_judged, "fail_on_not_judged")


def report_verification(task: MySqlCdcVerifyOperator, run: JobRun, result: dict[str, Any]) -> dict[str, Any]:
    """Read the verdicts of a job that has ended, write the reports, and return the task's result with their counts.

    Args:
        task: The operator.
        run: Its jobs.
        result: The result of the drain before the comparison.

    Raises:
        TaskFailedError: Differences are left, or something was not judged, and the task is to fail on it.
    """
    from airflow_provider_mysql_cdc.cdc.operate.settle import differences_error, not_judged_error, verification_of_run
    from airflow_provider_mysql_cdc.cdc.verify.report.report_text import report_text
    from airflow_provider_mysql_cdc.cdc.verify.report.verdict_totals import bounded_json

    verification = verification_of_run(run.cfg, run.owner, run_key(run.context))
    run.log("%s", report_text(verification))
    summary = bounded_json(verification, MAX_RESULT_TABLES)
    complete = result | {"verification": summary}
    on_difference, on_not_judged = _failing(task)
    error = (differences_error(verification) if on_difference else None) or (
        not_judged_error(verification) if on_not_judged else None
    )
    if error is not None:
        # Airflow stores what a task returns, and a task that fails returns nothing.
        run.context["ti"].xcom_push(key="return_value", value=complete)
    if task.report_dir:
        run.log("The report was written to %s.", write_report_file(task.report_dir, verification))
    if error is not None:
        raise error
    add_verification_event(run.context, run.cfg, task.asset_alias, summary)
    return complete


class MySqlCdcVerifyOperator(MySqlCdcSparkOperator):
    """Compare captured tables with their topics, and repair differences where that is wanted.

    The stream is drained first. Then each topic, folded by key, is compared with its table at one position of the
    binlog, while the source goes on: rows that are missing in the topic, rows that the table does not have (ghosts),
    rows that differ, and records that are unreadable or in a wrong partition. The report is in the task's
    log; the result has the counts. While another run of the stream is active the task is skipped, and nothing is
    compared.

    Args:
        tables: Names ``database.table`` or regular expressions for them; one, a list, or a list's JSON text; none means
            all captured tables. (templated)
        sample_percent: Share of the keys that is compared, above 0 and at most 100. (templated)
        repair: ``no``, ``dry-run`` or ``yes``: missing and differing rows are written again, ghosts are deleted. The
            property ``repair.max.rows`` limits it. (templated)
        examples: Examples of each kind of difference in the report, per table. (templated)
        show_values: Whether the report has values of rows; those of masked and hashed columns are never shown.
            (templated)
        history: Whether the events of each key are also checked one after the other: doubled and reordered events,
            deletes without a tombstone. (templated)
        checksums: Whether the server adds up checksums of rows, where records allow it; otherwise all rows are encoded
            and compared one by one. (templated)
        fail_on_difference: Whether the task fails when differences are left. (templated)
        fail_on_not_judged: Whether the task fails when a table, or rows of it, could not be judged; None means as
            ``fail_on_difference``. (templated)
        replica_conn_id: Connection of type ``mysql_cdc`` to a replica of the source; the rows of tables are read there,
            with the account of that connection. None reads the source. The author of the DAG chooses it, never a run.
            (templated)
        report_dir: Folder on the worker for the report as JSON; None writes no file. The author of the DAG chooses it,
            never a run. (templated)
        kwargs: As for ``MySqlCdcSparkOperator``, without ``run_for``. The task is deferred only where nothing is
            repaired.

    Raises:
        AirflowFailException: A retry will not help; the text names the error and what to do.
        AirflowException: A retry can help.
    """

    template_fields: Sequence[str] = (
        *MySqlCdcSparkOperator.template_fields,
        "tables",
        "sample_percent",
        "repair",
        "examples",
        "show_values",
        "history",
        "checksums",
        "fail_on_difference",
        "fail_on_not_judged",
        "report_dir",
        "replica_conn_id",
    )
    author_arguments = MySqlCdcSparkOperator.author_arguments | {"report_dir", "replica_conn_id"}
    rejected_arguments: ClassVar[Mapping[str, str]] = {
        **MySqlCdcSparkOperator.rejected_arguments,
        "run_for": "the task drains once, and runs until the tables are compared",
    }
    job_kind = JobKind("verify", "verify_topics.py", verify_tables, report_verification)

    def __init__(
        self,
        *,
        tables: Sequence[str] | str = (),
        sample_percent: float | str = 100,
        repair: str = "no",
        examples: int | str = 10,
        show_values: bool | str = True,
        history: bool | str = False,
        checksums: bool | str = True,
        fail_on_difference: bool | str = False,
        fail_on_not_judged: bool | str | None = None,
        report_dir: str | None = None,
        replica_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        reject_arguments(type(self).__name__, kwargs, self.rejected_arguments)
        super().__init__(**kwargs)
        self.tables = tables
        self.sample_percent = sample_percent
        self.repair = repair
        self.examples = examples
        self.show_values = show_values
        self.history = history
        self.checksums = checksums
        self.fail_on_difference = fail_on_difference
        self.fail_on_not_judged = fail_on_not_judged
        self.report_dir = report_dir
        self.replica_conn_id = replica_conn_id
