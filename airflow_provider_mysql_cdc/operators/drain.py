"""The operator that drains the binlog."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowSkipException

from airflow_provider_mysql_cdc.operators.arguments import parse_bool
from airflow_provider_mysql_cdc.operators.common import parse_seconds
from airflow_provider_mysql_cdc.operators.job_run import JobKind, JobRun, run_or_give_way
from airflow_provider_mysql_cdc.operators.spark_job_operator import MySqlCdcSparkOperator

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.operate.prepare_drain import IdleReason
    from airflow_provider_mysql_cdc.cdc.operate.prepare_job import PreparedJob


def drain_binlog(task: MySqlCdcDrainOperator, run: JobRun) -> dict[str, Any]:
    """Drain; plan again when another run has started between this one's plan and its driver's first step.

    Args:
        task: The operator, with rendered arguments.
        run: Its jobs.

    Raises:
        AirflowSkipException: The task is to be skipped, because no job was started.
    """
    from airflow_provider_mysql_cdc.cdc.operate.prepare_drain import prepare_drain

    skip_when_nothing_new = parse_bool(task.skip_when_nothing_new, "skip_when_nothing_new")
    idle_reasons: list[IdleReason] = []

    def plan_batch(run_for_s: float) -> PreparedJob | None:
        idle_reasons.clear()
        return prepare_drain(
            run.cfg,
            run.store,
            run.owner,
            run.log,
            run_for_s=run_for_s,
            give_way=True,
            on_idle=idle_reasons.append,
        )

    result = run_or_give_way(run, plan_batch, time.monotonic() + parse_seconds(task.run_for))
    return _with_reason(run, result, idle_reasons, skip_when_nothing_new) if idle_reasons else result


def _with_reason(
    run: JobRun, result: dict[str, Any], reasons: Sequence[IdleReason], skip_when_nothing_new: bool
) -> dict[str, Any]:
    """Return the result of a task that has started no job, with the reason, or skip the task.

    Batches of earlier tries and runs are reported by this task, so it is not skipped then.
    """
    (reason,) = reasons
    result |= {"reason": reason.text}
    if (reason.gave_way or skip_when_nothing_new) and not result.get("batches"):
        # Airflow stores what a task returns, and a skipped task returns nothing.
        run.context["ti"].xcom_push(key="return_value", value=result)
        raise AirflowSkipException(reason.text)
    return result


class MySqlCdcDrainOperator(MySqlCdcSparkOperator):
    """Read the binlog from the stored offset to an end fixed before reading, and move the offset there.

    With ``run_for`` one Spark session drains batch after batch until the time is over. Before the first event there is
    no Spark session; the task only checks for new events every few seconds. While another run of the same stream is
    active, for example a long snapshot, the task gives way: it is skipped, or waits until ``run_for`` is over. The same
    holds for the later one of two runs that start at the same time.

    Args:
        skip_when_nothing_new: Whether a task that finds no new events is skipped; otherwise it succeeds, and its result
            has the reason. (templated)
        kwargs: As for ``MySqlCdcSparkOperator``.
    """

    template_fields: Sequence[str] = (*MySqlCdcSparkOperator.template_fields, "skip_when_nothing_new")
    job_kind = JobKind("drain", "drain_binlog.py", drain_binlog)

    def __init__(self, *, skip_when_nothing_new: bool | str = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.skip_when_nothing_new = skip_when_nothing_new
