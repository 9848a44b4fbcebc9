"""Find the driver that runs on a stream, and end it from any host without Spark, YARN or Kubernetes."""

from __future__ import annotations

from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect, fetch_all
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.job import owner_wait, run_lock
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.operate.source_server import at_server_of_ledger


def driver_running(cfg: ConnectorConfig, owner: str) -> bool:
    """Return whether a driver of a run holds its owner's lock, as it does from its first step to its last.

    Args:
        cfg: The connector's configuration.
        owner: ``dag_id/run_id/task_id/map_index``.

    Raises:
        SourceError: The query fails.
    """
    return lock_connection(cfg, owner) is not None


def lock_connection(cfg: ConnectorConfig, owner: str) -> int | None:
    """Return the MySQL connection id that holds the owner's lock for a driver of a run; it identifies the driver.

    Args:
        cfg: The connector's configuration.
        owner: ``dag_id/run_id/task_id/map_index``.

    Raises:
        SourceError: The query fails.
    """
    with connect(at_server_of_ledger(cfg).connection_settings()) as conn:
        return run_lock.lock_connection(conn, cfg.topic_prefix, owner)


def server_time(cfg: ConnectorConfig) -> float:
    """Return the source server's time, in seconds since 1970: one clock for all Airflow hosts.

    Args:
        cfg: The connector's configuration.

    Raises:
        SourceError: The query fails.
    """
    with connect(at_server_of_ledger(cfg).connection_settings()) as conn:
        return float(fetch_all(conn, "SELECT UNIX_TIMESTAMP(SYSDATE(6))")[0][0])


def end_run(cfg: ConnectorConfig, owner: str, log: Log, only_connection: int | None = None) -> bool:
    """End the driver of a run, on whatever host it runs; return whether there was one.

    Its plan is written to the ledger once more, as a new attempt without a driver. This fences the running one: its
    writers cannot commit, it cannot plan or report, and it ends with ``FencedError`` at its next step. Then the server
    kills the connection that holds its run lock, so that another run can start. Committed batches stay, and a later run
    continues after them. A driver that only compares any more has freed the stream; another run may drain it, which is
    not fenced, and the driver ends when it finds that its connection is gone.

    Args:
        cfg: The connector's configuration.
        owner: ``dag_id/run_id/task_id/map_index``.
        log: Receives one line of text.
        only_connection: Connection id of the driver to end, when a driver that a later try of the same run has started
            must keep running; None ends whichever driver runs.

    Raises:
        CdcError: The server or Kafka cannot be reached.
    """
    with connect(at_server_of_ledger(cfg).connection_settings()) as conn:
        holder = run_lock.lock_connection(conn, cfg.topic_prefix, owner)
        if holder is None or only_connection not in (None, holder):
            log(f"{'no' if holder is None else 'another'} driver of {owner} is running")
            return False
        try:
            if run_lock.holds_prefix(conn, cfg.topic_prefix, holder):
                _fence_writers(cfg, owner)
            else:
                owner_wait.end_waiting(conn, holder, lambda: _holds(conn, cfg, owner, holder))
        finally:
            run_lock.end_connection(conn, holder)
    log(f"the driver of {owner} is fenced and can no longer write; its run lock is released")
    return True


def _holds(conn: Any, cfg: ConnectorConfig, owner: str, holder: int) -> bool:
    return run_lock.lock_connection(conn, cfg.topic_prefix, owner) == holder


def _fence_writers(cfg: ConnectorConfig, owner: str) -> None:
    with JobLedger(cfg) as job:
        plan = job.read_fencing().plan
        if plan is not None and plan.owner == owner:
            job.begin(plan)
