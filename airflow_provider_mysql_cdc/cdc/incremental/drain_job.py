"""The drain as a job: batches, each followed by signals and ad-hoc snapshots."""

from __future__ import annotations

from airflow_provider_mysql_cdc.cdc.drain import drain_driver
from airflow_provider_mysql_cdc.cdc.incremental.signal_processor import has_pending_work
from airflow_provider_mysql_cdc.cdc.incremental.uncaptured_scans import end_uncaptured_scans
from airflow_provider_mysql_cdc.cdc.incremental.window_loop import run_windows
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.cdc.job.task_runner import TaskRunner
from airflow_provider_mysql_cdc.cdc.model.log import Log


def run_drain(spec: JobSpec, runner: TaskRunner, log: Log) -> dict[str, int]:
    """Drain batch after batch, and process signals and ad-hoc snapshots in between; return records per topic.

    Args:
        spec: The job.
        runner: Runs the tasks.
        log: Takes one line of text.

    Raises:
        CdcError: A batch or a window could not be completed.
    """
    return drain_driver.run_drain(
        spec, runner, log, drain_driver.OtherWork(run_windows, has_pending_work, end_uncaptured_scans)
    )
