"""Wait between two attempts of a job, known by the owner's lock as a driver that runs and that can be ended.

To the one who waits, a connection that was killed looks like one that the network has broken: the server closes its
socket before anything else. So whoever ends a driver interrupts its statement first (``KILL QUERY``), which cannot be
mistaken: SLEEP() returns 1 then (MySQL manual, "Miscellaneous Functions"). A connection that breaks is opened again,
unless another driver of the run has the lock meanwhile: a later try of the task kills the connection and takes it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pymysql

from airflow_provider_mysql_cdc.cdc.binlog.broken_connections import reconnect_delay_s
from airflow_provider_mysql_cdc.cdc.binlog.connect import connect, fetch_all
from airflow_provider_mysql_cdc.cdc.errors import RunInProgressError, SourceConnectionError, SourceError
from airflow_provider_mysql_cdc.cdc.job.lock_recovery import ServerStart, server_start
from airflow_provider_mysql_cdc.cdc.job.run_lock import ER_NO_SUCH_THREAD, end_connection, lock_name, owner_lock_name
from airflow_provider_mysql_cdc.cdc.model.connection import ConnectionSettings, MySqlConnection

_CHECK_S = 2.0
"""Seconds between two checks whether another run still holds the lock."""
_CHECKS_PER_SILENCE = 4
_INTERRUPTED_S = 2.0
"""Seconds for which the end of a driver that was interrupted is awaited; it closes its connection at once."""
_POLL_S = 0.05
_Opened = dict[int, ServerStart]
"""The ids of this driver's connections, of which one may still have the lock, and to which server process each was."""


def wait_as_owner(
    settings: ConnectionSettings, prefix: str, owner: str, seconds: float, *, even_if_free: bool = False
) -> None:
    """Wait while another run holds the lock of the prefix, known by the owner's lock as a driver that runs.

    Args:
        settings: How to reach the source server.
        prefix: topic.prefix.
        owner: ``dag_id/run_id/task_id/map_index`` of this run.
        seconds: How long at most.
        even_if_free: Wait also while nobody holds the lock of the prefix.

    Raises:
        RunInProgressError: Another driver of this run has started, for a later try of the task, or a person has ended
            this one.
        SourceError: The server cannot be reached.
    """
    deadline, breaks = time.monotonic() + seconds, 0
    opened: _Opened = {}
    while True:
        with connect(settings) as conn:
            try:
                _take(conn, prefix, owner, opened)
                _hold(conn, settings, prefix, deadline, even_if_free=even_if_free)
                return
            except SourceConnectionError:
                if time.monotonic() >= deadline:
                    raise
        # A later try that has killed the connection has the lock long before it is asked for again.
        time.sleep(reconnect_delay_s(breaks))
        breaks += 1


def _take(conn: MySqlConnection, prefix: str, owner: str, opened: _Opened) -> None:
    """Take the owner's lock; the server may not know yet that a connection which took it before has broken."""
    name, now = owner_lock_name(prefix, owner), server_start(conn)
    # Known before the lock is asked for: the connection may break while the server grants it.
    opened[now.connection_id] = now
    acquired, holder = fetch_all(conn, "SELECT GET_LOCK(%s, 0), IS_USED_LOCK(%s)", (name, name))[0]
    if acquired != 1 and holder in opened and not opened[holder].was_restarted(now):
        end_connection(conn, holder)
        acquired = fetch_all(conn, "SELECT GET_LOCK(%s, 10)", (name,))[0][0]
    if acquired != 1:
        raise _ended(prefix, "it holds the owner's lock")


def _hold(
    conn: MySqlConnection, settings: ConnectionSettings, prefix: str, deadline: float, *, even_if_free: bool
) -> None:
    """Wait until the time is up, or the lock of the prefix is free."""
    longest_s = min(_CHECK_S, settings.silence_timeout_s / _CHECKS_PER_SILENCE)
    while (left_s := deadline - time.monotonic()) > 0:
        # Alone in its statement: otherwise the interrupted statement ends with an error.
        if fetch_all(conn, "SELECT SLEEP(%s)", (min(longest_s, left_s),))[0][0]:
            raise _ended(prefix, "its connection was interrupted (KILL QUERY) while it waited")
        if not even_if_free and fetch_all(conn, "SELECT IS_USED_LOCK(%s)", (lock_name(prefix),))[0][0] is None:
            return


def _ended(prefix: str, why: str) -> RunInProgressError:
    return RunInProgressError(
        "another driver of this run is active, or a person has ended this one",
        where=f"topic.prefix={prefix}",
        why=why,
        remedy="nothing: a later try of the task continues",
    )


def end_waiting(conn: MySqlConnection, connection_id: int, holds: Callable[[], bool]) -> None:
    """End a driver that waits; one that works goes on, and so does one that has ended meanwhile.

    Args:
        conn: An open connection.
        connection_id: The driver's connection.
        holds: Returns whether it still has the owner's lock.

    Raises:
        SourceError: The server refuses or does not answer.
    """
    try:
        fetch_all(conn, "KILL QUERY %s", (connection_id,))
    except SourceError as error:
        cause = error.__cause__
        if not isinstance(cause, pymysql.MySQLError) or cause.args[:1] != (ER_NO_SUCH_THREAD,):
            raise
    deadline = time.monotonic() + _INTERRUPTED_S
    while holds() and time.monotonic() < deadline:
        time.sleep(_POLL_S)
