"""What an operator does for its Spark jobs, as the jobs see it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
    from airflow_provider_mysql_cdc.hooks.spark_submit import CdcSparkSubmitHook
    from airflow_provider_mysql_cdc.hooks.submission import Submission


@dataclass(frozen=True, slots=True)
class SparkJobActions:
    """Hold what only the operator can do for a job, because Airflow and the Spark provider call the operator.

    Args:
        application: Path of the Spark application.
        name: Name of the Spark application.
        new_hook: Makes the hook of the next job, which ``on_kill`` ends.
        submit: Runs a job to its end with ``SparkSubmitOperator.execute``; returns the error it failed with.
        should_defer: Returns whether to defer the task while the driver runs.
        defer: Defers the task until the driver has ended, which raises ``TaskDeferred``; takes what is known about the
            driver.
    """

    application: str
    name: str
    new_hook: Callable[[], CdcSparkSubmitHook]
    submit: Callable[[JobSpec], Exception | None]
    should_defer: Callable[[], bool]
    defer: Callable[[Submission | None], None]
