"""Work on connections of its own that only reads: it is done again where one of them breaks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import pymysql

from airflow_provider_mysql_cdc.cdc.binlog.reconnect_delay import reconnect_delay_s
from airflow_provider_mysql_cdc.cdc.binlog.server_errors import from_exception, is_broken_connection
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import SourceConnectionError
from airflow_provider_mysql_cdc.cdc.model.log import Log

T = TypeVar("T")


def reconnect_delays(max_attempts: int) -> Iterator[float]:
    """Return the seconds before each further attempt.

    Args:
        max_attempts: Attempts behind the first one (``connect.max.attempts``).
    """
    return map(reconnect_delay_s, range(max_attempts))


def again_if_broken(
    work: Callable[[], T], delays: Iterable[float], note: Callable[[str], None] = lambda line: None
) -> T:
    """Do some work, again where a connection breaks that had been accepted; other errors, and silence, end it.

    Args:
        work: Opens its connections itself, and changes nothing.
        delays: Seconds before each further attempt.
        note: Takes one line of text before each.

    Raises:
        SourceConnectionError: A connection breaks in the last attempt too.
    """
    for attempt, delay_s in enumerate(delays, 1):
        try:
            return work()
        except (SourceConnectionError, pymysql.MySQLError) as raised:
            error = from_exception(raised, "MySQL")
            if not is_broken_connection(error):
                raise
            note(f"the connection to the source broke ({error}); attempt {attempt} to read again, in {delay_s:.1f} s")
        time.sleep(delay_s)
    return work()


def read_with_retries(cfg: ConnectorConfig, log: Log, work: Callable[[], T]) -> T:
    """Do what only reads the source; again where a connection breaks (FAULT-03).

    Args:
        cfg: The connector's configuration; ``connect.max.attempts`` limits the further attempts.
        log: Receives one line of text before each of them.
        work: Opens its connections itself.

    Raises:
        SourceConnectionError: A connection breaks in the last attempt too.
    """
    return again_if_broken(work, reconnect_delays(cfg[F.CONNECT_MAX_ATTEMPTS]), log)
