"""The operator that drains the binlog."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowException

from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.operators.common import parse_seconds
from airflow_provider_mysql_cdc.operators.job_exception import is_other_run_error
from airflow_provider_mysql_cdc.operators.job_run import JobKind, JobRun
from airflow_provider_mysql_cdc.operators.spark_job_operator import MySqlCdcSparkOperator

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.operate.prepare_job import PreparedJob


MAX_RACES = 3
"""How often another run may start first before that is an error; each time may cost a start of Spark."""


def drain_binlog(task: MySqlCdcDrainOperator, run: JobRun) -> dict[str, Any]:
    """Drain; plan again when another run has started between this one's plan and its driver's first step.

    Args:
        task: The operator, with rendered arguments.
        run: Its jobs.
    """
    from airflow_provider_mysql_cdc.cdc.job.run_lock import LOCK_LOST
    from airflow_provider_mysql_cdc.cdc.operate.prepare_drain import prepare_drain

    def plan_batch(run_for_s: float) -> PreparedJob | None:
        return prepare_drain(run.cfg, run.store, run.owner, run.log, run_for_s=run_for_s, give_way=True)

    deadline = time.monotonic() + parse_seconds(task.run_for)
    for attempts_left in reversed(range(MAX_RACES)):
        try:
            return run.run_or_defer(plan_batch, deadline)
        except (AirflowException, CdcError) as error:
            if not attempts_left or not is_other_run_error(error) or LOCK_LOST in str(error):
                raise
            run.log("Another run has started first: %s; planning again", error)
    raise AssertionError("the last attempt returns or raises")


class MySqlCdcDrainOperator(MySqlCdcSparkOperator):
    """Read the binlog from the stored offset to an end fixed before reading, and move the offset there.

    With ``run_for`` one Spark session drains batch after batch until the time is over. Before the first event there is
    no Spark session; the task only checks for new events every few seconds. While another run of the same stream is
    active, for example a long snapshot, the task does nothing, or waits until ``run_for`` is over. The same holds for
    the later one of two runs that start at the same time.

    Args:
        kwargs: As for ``MySqlCdcSparkOperator``.
    """

    job_kind = JobKind("drain", "drain_binlog.py", drain_binlog)
