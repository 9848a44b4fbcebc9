"""The drain as a job: batches, each followed by signals and ad-hoc snapshots."""

from __future__ import annotations

import time

from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.drain import drain_driver
from airflow_provider_mysql_cdc.cdc.incremental.broken_jobs import go_on_where_broken
from airflow_provider_mysql_cdc.cdc.incremental.moved_scans import restart_moved_scans
from airflow_provider_mysql_cdc.cdc.incremental.next_run import run_when_free
from airflow_provider_mysql_cdc.cdc.incremental.signal_processor import has_pending_work
from airflow_provider_mysql_cdc.cdc.incremental.uncaptured_scans import end_uncaptured_scans
from airflow_provider_mysql_cdc.cdc.incremental.window_loop import run_windows
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.cdc.job.task_runner import TaskRunner
from airflow_provider_mysql_cdc.cdc.model.log import Log


def before_writers(cfg: ConnectorConfig, job: JobLedger, ledger: LedgerState, log: Log) -> None:
    """Change the scans that a batch in force leaves no longer as they are, before a writer of it starts.

    Args:
        cfg: The connector's configuration.
        job: The ledger.
        ledger: Its content.
        log: Writes one line to the log.
    """
    end_uncaptured_scans(cfg, job, ledger, log)
    restart_moved_scans(cfg, job, ledger, log)


WORK = drain_driver.OtherWork(run_windows, has_pending_work, before_writers)
"""What a drain does besides draining."""


def run_drain(spec: JobSpec, runner: TaskRunner, log: Log) -> dict[str, int]:
    """Drain batch after batch, and process signals and ad-hoc snapshots in between; return records per topic.

    Where a connection breaks that a writer cannot take up again, as that of a view, the rest is planned again.

    Args:
        spec: The job.
        runner: Runs the tasks.
        log: Takes one line of text.

    Raises:
        CdcError: A batch or a window could not be completed.
    """
    cfg, deadline = ConnectorConfig.from_properties(spec.properties), time.monotonic() + spec.run_for_s

    def drain() -> dict[str, int]:
        return drain_driver.run_drain(spec, runner, log, WORK)

    def drain_rest() -> dict[str, int]:
        left_s = max(0.0, deadline - time.monotonic())
        return run_when_free(spec, runner, log, WORK, "the rest of a drain", left_s)

    return go_on_where_broken(cfg, spec.owner, log, drain, drain_rest)
