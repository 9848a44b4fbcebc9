"""Connections that break: how long a run waits, and what it does again where it only reads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import pymysql

from airflow_provider_mysql_cdc.cdc.binlog.server_errors import from_exception, is_broken_connection
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import SourceConnectionError
from airflow_provider_mysql_cdc.cdc.model.log import Log

FIRST_DELAY_S = 0.5
MAX_DELAY_S = 30.0


def reconnect_delay_s(attempts: int) -> float:
    """Return the seconds before the next attempt to connect: twice as long each time, up to a limit.

    Args:
        attempts: Attempts that were made before.
    """
    return min(MAX_DELAY_S, FIRST_DELAY_S * float(2**attempts))


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
