"""Who is at work on a stream, and how to end a run from anywhere: without a word to Spark, YARN or Kubernetes."""

from __future__ import annotations

from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.cdc.job import run_lock
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.model.log import Log


def driver_running(cfg: ConnectorConfig, owner: str) -> bool:
    """Return whether a driver of a run holds the stream's lock; it holds it from its first step to its last.

    Args:
        cfg: The connector's configuration.
        owner: ``dag_id/run_id/task_id/map_index``.

    Raises:
        SourceError: The server cannot be asked.
    """
    return lock_connection(cfg, owner) is not None


def lock_connection(cfg: ConnectorConfig, owner: str) -> int | None:
    """Return the connection by which a driver of a run holds the stream's lock, which tells it from other drivers.

    Args:
        cfg: The connector's configuration.
        owner: ``dag_id/run_id/task_id/map_index``.

    Raises:
        SourceError: The server cannot be asked.
    """
    with connect(cfg.connection_settings()) as conn:
        return run_lock.lock_connection(conn, cfg.topic_prefix, owner)


def server_time(cfg: ConnectorConfig) -> float:
    """Return the source server's time, in seconds since 1970: one clock for all hosts of Airflow.

    Args:
        cfg: The connector's configuration.

    Raises:
        SourceError: The server cannot be asked.
    """
    with connect(cfg.connection_settings()) as conn, conn.cursor() as cursor:
        cursor.execute("SELECT UNIX_TIMESTAMP(SYSDATE(6))")
        return float(cursor.fetchone()[0])


def end_run(cfg: ConnectorConfig, owner: str, log: Log, only_connection: int | None = None) -> bool:
    """End the driver of a run, wherever it works; return whether there was one.

    Its plan is put in force once more, for an attempt that nobody carries out: from then on none of its writers can
    commit and it can neither plan nor report, which ends it with ``FencedError`` at its next step. Then the server ends
    the connection that holds its lock, so that others can begin. What it has committed stays, and a later run goes on
    from there.

    Args:
        cfg: The connector's configuration.
        owner: ``dag_id/run_id/task_id/map_index``.
        log: Takes one line of text.
        only_connection: The driver's connection, where another one of the same run, which a later try has started, is
            to go on; None for whichever is at work.

    Raises:
        CdcError: The server or Kafka cannot be reached.
    """
    with connect(cfg.connection_settings()) as conn:
        holder = run_lock.lock_connection(conn, cfg.topic_prefix, owner)
        if holder is None or only_connection not in (None, holder):
            log(f"{'no' if holder is None else 'another'} driver of {owner} is at work")
            return False
        try:
            _fence_writers(cfg, owner)
        finally:
            _kill_connection(conn, holder)
    log(f"the driver of {owner} can write nothing any more, and its lock is free")
    return True


def _fence_writers(cfg: ConnectorConfig, owner: str) -> None:
    with JobLedger(cfg) as job:
        plan = job.read_fencing().plan
        if plan is not None and plan.owner == owner:
            job.begin(plan)


def _kill_connection(conn: Any, connection_id: int) -> None:
    try:
        with conn.cursor() as cursor:
            cursor.execute("KILL %s", (connection_id,))
    except Exception as error:  # it has ended by itself: 1094, unknown thread
        if getattr(error, "args", (0,))[0] != 1094 and not isinstance(error, CdcError):
            raise
