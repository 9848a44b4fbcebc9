"""A job goes on by itself where a connection breaks that had taken a view, a lock or a driver's queries with it.

What such a connection held cannot be had again: a view is one of its position. So the rest of the job is planned again,
behind what is committed, as a retry of Airflow does it, but in the same job (FAULT-03).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from airflow_provider_mysql_cdc.cdc.binlog.reconnect_delay import reconnect_delay_s
from airflow_provider_mysql_cdc.cdc.binlog.server_errors import is_broken_connection
from airflow_provider_mysql_cdc.cdc.commit.run_tally import add_counts
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import SourceConnectionError, SourceError
from airflow_provider_mysql_cdc.cdc.job import owner_wait
from airflow_provider_mysql_cdc.cdc.model.log import Log


def go_on_where_broken(
    cfg: ConnectorConfig,
    owner: str,
    log: Log,
    first: Callable[[], Mapping[str, int]],
    rest: Callable[[], Mapping[str, int]],
    progress: Callable[[], object] = lambda: None,
) -> dict[str, int]:
    """Do a job; where a connection to the source breaks, do what is left of it, after a delay.

    Args:
        cfg: The connector's configuration; ``connect.max.attempts`` limits the further attempts without
            progress in between.
        owner: ``dag_id/run_id/task_id/map_index`` of the run.
        log: Receives one line of text before each further attempt.
        first: Does the job, and returns its records by topic.
        rest: Does what the ledger says is left of it, and returns the records of that by topic.
        progress: Returns how much is done for good; where it differs from before, the count of attempts begins again.

    Returns:
        The records by topic of the attempt that has ended the job.

    Raises:
        SourceConnectionError: A connection breaks in the last attempt too, or the first attempt finds no server.
        RunInProgressError: A later try of the task has started a driver, or a person has ended this run.
        CdcError: An attempt ends with another error.
    """
    work, was_broken = first, False
    attempts, place = 0, progress()
    while True:
        try:
            return add_counts({}, work())
        except SourceConnectionError as error:
            was_broken = breaks_connection(error) or was_broken
            if (now := progress()) != place:
                attempts, place = 0, now
            if not was_broken or not error.can_retry or attempts >= cfg[F.CONNECT_MAX_ATTEMPTS]:
                raise
            delay_s = reconnect_delay_s(attempts)
            attempts, work = attempts + 1, rest
            log(f"a connection to the source broke ({error}); attempt {attempts} to do the rest, in {delay_s:.1f} s")
        _wait(cfg, owner, delay_s)


def breaks_connection(error: SourceError) -> bool:
    """Return whether an error, or one that it was raised from, is that of a connection that broke.

    Args:
        error: From a driver or from one of its tasks.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, SourceError) and is_broken_connection(cause):
            return True
        cause = cause.__cause__
    return False


def _wait(cfg: ConnectorConfig, owner: str, delay_s: float) -> None:
    """Wait as a driver that a person, or a later try of the task, can end; without a server, just wait."""
    until = time.monotonic() + delay_s
    try:
        owner_wait.wait_as_owner(cfg.connection_settings(), cfg.topic_prefix, owner, delay_s, even_if_free=True)
    except SourceConnectionError:
        time.sleep(max(0.0, until - time.monotonic()))
