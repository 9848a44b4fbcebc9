"""The job of each mode of a job spec."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow_provider_mysql_cdc.cdc.fleet.fleet_driver import run_fleet
from airflow_provider_mysql_cdc.cdc.incremental.drain_job import run_drain
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.cdc.job.task_runner import TaskRunner
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.operate.snapshot_job import run_snapshot
from airflow_provider_mysql_cdc.cdc.verify.verify_driver import run_verify
from airflow_provider_mysql_cdc.spark.errors import named_job_error

_JOBS: dict[str, Callable[[JobSpec, TaskRunner, Log], Any]] = {
    "drain": run_drain,
    "snapshot": run_snapshot,
    "verify": run_verify,
}


def run_job(spec: JobSpec, runner: TaskRunner, log: Log) -> Any:
    """Run the job of a spec.

    Args:
        spec: The job; its mode is ``drain``, ``snapshot`` or ``verify``.
        runner: Runs the tasks.
        log: Takes one line of text.

    Raises:
        CdcError: The job could not be completed.
    """
    return _JOBS[spec.mode](spec, runner, log)


def run_fleet_job(spec: JobSpec, runner: TaskRunner, log: Log) -> int:
    """Drain the streams of a fleet; return how many were drained without an error.

    Args:
        spec: The job (``cdc.fleet.fleet_spec``).
        runner: Runs the tasks.
        log: Takes one line of text.

    Raises:
        CdcError: The job could not begin.
    """
    return run_fleet(spec, runner, log, named_job_error)
