"""Jobs that give way to another run of their stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowException

from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.operators.job_exception import is_other_run_error

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.operators.job_run import JobRun, PlanJob

MAX_RACES = 3
"""How often another run may start first before that is an error; each time may cost a start of Spark."""


def run_or_give_way(run: JobRun, plan_job: PlanJob, deadline: float) -> dict[str, Any]:
    """Run one job; plan again when another run has started between the plan and the first step of its driver.

    Args:
        run: The task's jobs.
        plan_job: Plans the job; returns None while another run is active.
        deadline: Until when to wait for something to do, in seconds of ``time.monotonic``.

    Returns:
        The task's result, also when no job was started.

    Raises:
        TaskDeferred: The driver works.
    """
    from airflow_provider_mysql_cdc.cdc.job.run_lock import LOCK_LOST

    for attempts_left in reversed(range(MAX_RACES)):
        try:
            return run.run_or_defer(plan_job, deadline)
        except (AirflowException, CdcError) as error:
            if not attempts_left or not is_other_run_error(error) or LOCK_LOST in str(error):
                raise
            run.log("Another run has started first: %s; planning again", error)
    raise AssertionError("the last attempt returns or raises")
