"""Find the driver that runs on one stream or several, and end it from any host without Spark, YARN or Kubernetes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect, fetch_all
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.cdc.job import owner_wait, run_lock
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.job.run_lock import STREAMS_OF_SERVER
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
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


def time_of_server(cfg: ConnectorConfig) -> float:
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


def _holds(conn: MySqlConnection, cfg: ConnectorConfig, owner: str, holder: int) -> bool:
    return run_lock.lock_connection(conn, cfg.topic_prefix, owner) == holder


def _fence_writers(cfg: ConnectorConfig, owner: str) -> None:
    with JobLedger(cfg) as job:
        plan = job.read_fencing().plan
        if plan is not None and plan.owner == owner:
            job.begin(plan)


AnswerT = TypeVar("AnswerT")
MAX_THREADS = 16
"""Streams whose servers are asked at the same time; most of the time is waiting for answers."""
NEXT_TURN_S = 1.0
"""Seconds in which the driver of a fleet begins with other streams in place of those that have ended."""


def any_driver_running(cfgs: Sequence[ConnectorConfig], owner: str) -> bool:
    """Return whether a driver of a run holds its owner's lock on one of the servers.

    Args:
        cfgs: Configuration of each stream.
        owner: ``dag_id/run_id/task_id/map_index``.

    Raises:
        SourceError: No server can be asked.
    """
    return any(_answers(cfgs, lambda cfg: driver_running(cfg, owner)))


def server_time(cfgs: Sequence[ConnectorConfig]) -> float:
    """Return the time of the first server that answers, in seconds since 1970.

    Args:
        cfgs: Configuration of each stream.

    Raises:
        SourceError: No server can be asked.
    """
    for cfg in cfgs[:-1]:
        try:
            return time_of_server(cfg)
        except CdcError:
            continue
    return time_of_server(cfgs[-1])


def end_runs(cfgs: Sequence[ConnectorConfig], owner: str, log: Log) -> None:
    """End the driver of a run on all its streams; what cannot be ended on one server keeps no other from it.

    Where a server has more streams than work at the same time, others begin as these end, and are ended too.

    Args:
        cfgs: Configuration of each stream.
        owner: ``dag_id/run_id/task_id/map_index``.
        log: Receives one line of text.

    Raises:
        CdcError: No server, or not Kafka, can be reached.
    """
    most = max(Counter(cfg.source_address() for cfg in cfgs).values(), default=0)
    ended = _answers(cfgs, lambda cfg: end_run(cfg, owner, log))
    for _ in range(STREAMS_OF_SERVER, most, STREAMS_OF_SERVER):
        if not any(ended):
            return
        time.sleep(NEXT_TURN_S)
        ended = _answers(cfgs, lambda cfg: end_run(cfg, owner, log))


def _answers(cfgs: Sequence[ConnectorConfig], ask: Callable[[ConnectorConfig], AnswerT]) -> list[AnswerT]:
    """Ask all servers; return the answers of those that can be asked.

    Raises:
        CdcError: None of them can be asked; the error of the first.
    """
    if len(cfgs) == 1:
        return [ask(cfgs[0])]
    answers: list[AnswerT] = []
    errors: list[CdcError] = []

    def try_one(cfg: ConnectorConfig) -> None:
        try:
            answers.append(ask(cfg))
        except CdcError as error:
            errors.append(error)

    with ThreadPoolExecutor(min(MAX_THREADS, max(1, len(cfgs)))) as pool:
        list(pool.map(try_one, cfgs))
    if errors and not answers:
        raise errors[0]
    return answers
