"""Allow one run at a time for each topic.prefix, by a named lock on the source server.

The lock lives as long as its connection (MySQL manual, "Locking Functions"), so a killed driver frees it at once and no
cleanup is needed. When the driver's host vanishes, MySQL would learn of it from TCP keepalive after two hours; so the
holder sends heartbeats, and the server closes a connection that has sent none for the time of the lease
(``wait_timeout``). The lock needs no privilege. Kafka's fencing remains the guarantee; this lock refuses a second run
early, before it produces anything, and a run that has lost it stops before its next step.

The lock goes with a restart of the server, too. A drain, whose writers go on then, takes it again if nobody else has it
(``lock_recovery``).

A second lock has the owner in its name: by it others know whose run it is, and that its driver runs. A driver that only
compares any more frees the first one and keeps the second.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import socket
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pymysql

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect, fetch_all
from airflow_provider_mysql_cdc.cdc.errors import CdcError, RunInProgressError, SourceError
from airflow_provider_mysql_cdc.cdc.job.lock_recovery import LockRecovery, server_start
from airflow_provider_mysql_cdc.cdc.model.connection import ConnectionSettings, MySqlConnection

LEASE_S = 60.0
"""Seconds without a heartbeat after which the server frees the lock."""
STREAMS_OF_SERVER = 16
"""Streams of one server that the driver of a fleet drains at the same time: each has connections of its own, and MySQL
takes 151 by default from all of its clients (``max_connections``)."""
_RELEASE_WAIT_S = 1
"""Seconds to wait for the lock of a run that may just have ended."""
ER_NO_SUCH_THREAD = 1094
HEARTBEATS_PER_LEASE = 4
"""Heartbeats within a lease."""
LOCK_LOST = "this run has lost its lock on the topic.prefix"


class RunLock:
    """Hold the lock of a prefix, with heartbeats from a thread of its own.

    Args:
        conn: The connection that holds it; nothing else uses it.
        prefix: topic.prefix.
        lease_s: Seconds without a heartbeat after which the server frees it.
        owner: ``dag_id/run_id/task_id/map_index`` of this run.
        recovery: Takes the lock again when the server has restarted; None if it is lost then.
        server_uuid: The server on which it is held.
    """

    def __init__(
        self,
        conn: Any,
        prefix: str,
        lease_s: float,
        owner: str = "",
        recovery: LockRecovery | None = None,
        server_uuid: str | None = None,
    ) -> None:
        self._recovery, self.server_uuid = recovery, server_uuid
        self._conn, self._prefix, self._interval_s = conn, prefix, lease_s / HEARTBEATS_PER_LEASE
        self._owner_lock = owner_lock_name(prefix, owner)
        self._checked_lock = lock_name(prefix)
        self._lost_reason: str | None = None
        self._stopped, self._sharing, self._shared, self._woken = (threading.Event() for _ in range(4))
        self._settled = threading.Event()
        self._settled.set()
        self._thread = threading.Thread(target=self._send_heartbeats, name="cdc-run-lock", daemon=True)
        self._thread.start()

    def require(self) -> None:
        """Check that the lock was still held at the last heartbeat; wait where it is being taken again.

        Raises:
            RunInProgressError: The lock is lost.
        """
        self._settled.wait()
        if self._lost_reason is not None:
            raise RunInProgressError(
                LOCK_LOST,
                where=f"topic.prefix={self._prefix}",
                why=self._lost_reason,
                remedy="nothing if another run is active; otherwise run the task again: it continues from the markers",
            )

    def release_prefix(self) -> None:
        """Free the lock of the prefix, so that other runs may start; ``require`` checks the owner's lock from now on.

        A server that does not answer keeps it; then other runs start when this one has ended.
        """
        self._sharing.set()
        self._woken.set()
        self._shared.wait(self._interval_s)

    def close(self) -> None:
        """Stop the heartbeats and free the lock, which otherwise ends with the connection.

        The server learns of a closed connection some time after the client has closed it, and until then the next run
        would be refused, or would give way, although this one has ended. A server that does not answer is awaited no
        longer than the interval of two heartbeats.
        """
        self._stopped.set()
        self._woken.set()
        self._thread.join(self._interval_s)
        if self._thread.is_alive():
            # pymysql's close waits for a read that another thread has started, so that thread is woken.
            with contextlib.suppress(OSError, AttributeError):
                self._conn._sock.shutdown(socket.SHUT_RDWR)
            self._thread.join(_RELEASE_WAIT_S)

    def _send_heartbeats(self) -> None:
        query = "SELECT IS_USED_LOCK(%s) = CONNECTION_ID()"
        while not self._await_next():
            try:
                if self._sharing.is_set() and not self._shared.is_set():
                    fetch_all(self._conn, "SELECT RELEASE_LOCK(%s)", (lock_name(self._prefix),))
                    self._checked_lock = self._owner_lock
                    self._shared.set()
                if fetch_all(self._conn, query, (self._checked_lock,))[0][0] == 1:
                    continue
                self._lost_reason = "the server no longer counts it as the holder"
            except (CdcError, pymysql.MySQLError, OSError, ValueError) as error:
                reason = getattr(error, "why", "") or str(error)
                if self._take_again():
                    continue
                self._lost_reason = reason
            self._settled.set()
            return
        with contextlib.suppress(CdcError, pymysql.MySQLError, OSError, ValueError):
            fetch_all(self._conn, "SELECT RELEASE_ALL_LOCKS()")

    def _take_again(self) -> bool:
        """Return whether the lock is held again; a driver that has freed the prefix does not need it any more."""
        if self._recovery is None or self._sharing.is_set():
            return False
        self._settled.clear()
        conn = self._recovery.take_again(self._stopped.wait)
        if conn is None:
            return False
        self._conn = conn
        self._settled.set()
        return True

    def _await_next(self) -> bool:
        """Wait for the next heartbeat; return whether there is none, because the run has ended."""
        self._woken.wait(self._interval_s)
        self._woken.clear()
        return self._stopped.is_set()


@contextlib.contextmanager
def hold_run_lock(settings: ConnectionSettings, prefix: str, owner: str, max_attempts: int = 0) -> Iterator[RunLock]:
    """Hold the lock of a prefix on a connection of its own.

    Args:
        settings: How to reach the source server; its ``silence_timeout_s`` is the lease.
        prefix: topic.prefix.
        owner: ``dag_id/run_id/task_id/map_index`` of this run.
        max_attempts: Attempts to take the lock again after a restart of the server; 0 if it is lost then.

    Raises:
        RunInProgressError: Another owner holds the lock.
        SourceError: The server cannot be reached or refuses.
    """
    lease_s = max(settings.silence_timeout_s, 1.0)
    with connect(settings) as conn:
        recovery, held_on = None, server_start(conn)
        if max_attempts:
            again = partial(_acquire_free, prefix=prefix, owner=owner, lease_s=lease_s)
            recovery = LockRecovery(settings, max_attempts, again, held_on)
        acquire(conn, prefix, owner, lease_s)
        lock = RunLock(conn, prefix, lease_s, owner, recovery, held_on.uuid)
        try:
            yield lock
        finally:
            lock.close()
            if recovery is not None:
                recovery.close()


def _set_lease(conn: MySqlConnection, lease_s: float) -> None:
    fetch_all(conn, "SET SESSION wait_timeout = %s", (max(1, math.ceil(lease_s)),))


def _acquire_free(conn: MySqlConnection, prefix: str, owner: str, lease_s: float) -> bool:
    """Take the locks if nobody holds them, and end nobody; return whether they are held."""
    _set_lease(conn, lease_s)
    names = lock_name(prefix), owner_lock_name(prefix, owner)
    return all(fetch_all(conn, "SELECT GET_LOCK(%s, 0)", (name,))[0][0] == 1 for name in names)


def require_no_other_run(conn: MySqlConnection, prefix: str, owner: str) -> None:
    """Refuse when a run of another owner is active, without taking the lock or disturbing that run.

    Args:
        conn: An open connection.
        prefix: topic.prefix.
        owner: ``dag_id/run_id/task_id/map_index`` of this run; empty for none.

    Raises:
        RunInProgressError: Another owner holds the lock.
        SourceError: The server refuses or does not answer.
    """
    query = "SELECT IS_USED_LOCK(%s), IS_USED_LOCK(%s)"
    holder, own_holder = fetch_all(conn, query, (lock_name(prefix), owner_lock_name(prefix, owner)))[0]
    if holder is not None and holder != own_holder:
        raise _in_progress(prefix, holder)


def is_held(conn: MySqlConnection, prefix: str) -> bool:
    """Return whether a run of any owner holds the lock of a prefix.

    Args:
        conn: An open connection.
        prefix: topic.prefix.

    Raises:
        SourceError: The server refuses or does not answer.
    """
    return fetch_all(conn, "SELECT IS_USED_LOCK(%s)", (lock_name(prefix),))[0][0] is not None


def lock_connection(conn: MySqlConnection, prefix: str, owner: str) -> int | None:
    """Return the id of the connection with which a run's driver holds the owner's lock; None when no driver runs.

    Args:
        conn: An open connection.
        prefix: topic.prefix.
        owner: ``dag_id/run_id/task_id/map_index``.

    Raises:
        SourceError: The server refuses or does not answer.
    """
    holder = fetch_all(conn, "SELECT IS_USED_LOCK(%s)", (owner_lock_name(prefix, owner),))[0][0]
    return None if holder is None else int(holder)


def holds_prefix(conn: MySqlConnection, prefix: str, connection_id: int) -> bool:
    """Return whether a connection holds the lock of a prefix.

    Args:
        conn: An open connection.
        prefix: topic.prefix.
        connection_id: The connection's id.

    Raises:
        SourceError: The server refuses or does not answer.
    """
    return bool(fetch_all(conn, "SELECT IS_USED_LOCK(%s) <=> %s", (lock_name(prefix), connection_id))[0][0])


def require_sole_run(settings: ConnectionSettings, prefix: str, owner: str) -> None:
    """Refuse when a run of another owner is active, over a connection of its own; see ``require_no_other_run``.

    Args:
        settings: How to reach the source server.
        prefix: topic.prefix.
        owner: ``dag_id/run_id/task_id/map_index`` of this run; empty for none.

    Raises:
        RunInProgressError: Another owner holds the lock.
        SourceError: The server cannot be reached.
    """
    with connect(settings) as conn:
        require_no_other_run(conn, prefix, owner)


def disable_idle_timeout(conn: MySqlConnection) -> None:
    """Keep the server from closing a connection that is idle while the tasks work (SETUP-24).

    Raises:
        SourceError: The server refuses or does not answer.
    """
    fetch_all(conn, "SET SESSION wait_timeout = 2147483")


def lock_name(prefix: str) -> str:
    """Return the lock's name; MySQL limits it to 64 characters and ignores case in it."""
    name = f"mysql_cdc:{prefix}"
    return (
        name
        if len(name) <= 64 and name == name.lower()
        else "mysql_cdc:" + hashlib.sha256(prefix.encode()).hexdigest()[:48]
    )


def acquire(conn: MySqlConnection, prefix: str, owner: str, lease_s: float = LEASE_S) -> None:
    """Take the lock of a prefix on this connection, or refuse.

    An older attempt of the same owner (a driver that outlived its Airflow task) is ended: its connection is killed,
    which an account may always do with its own connections, and Kafka fences what it still tries to write.

    Args:
        conn: An open pymysql connection; the lock ends with it.
        prefix: topic.prefix.
        owner: ``dag_id/run_id/task_id/map_index`` of this run.
        lease_s: The server closes the connection, and so frees the lock, after this many idle seconds.

    Raises:
        RunInProgressError: Another owner holds the lock.
        SourceError: The server refuses or does not answer.
    """
    name, own_name = lock_name(prefix), owner_lock_name(prefix, owner)
    _set_lease(conn, lease_s)
    # Other runs recognize the owner by a second lock whose name contains it. The server frees the locks of a
    # closed connection one after the other, some time after the client has closed it; the first one is awaited.
    for wait_s in (0, _RELEASE_WAIT_S):
        query = "SELECT GET_LOCK(%s, %s), IS_USED_LOCK(%s)"
        acquired, holder = fetch_all(conn, query, (name, wait_s, name))[0]
        if acquired == 1:
            _acquire_owner_lock(conn, own_name)
            return
        if holder is None or fetch_all(conn, "SELECT IS_USED_LOCK(%s)", (own_name,))[0][0] != holder:
            continue
        end_connection(conn, int(holder))
        if fetch_all(conn, "SELECT GET_LOCK(%s, 10)", (name,))[0][0] == 1:
            fetch_all(conn, "SELECT GET_LOCK(%s, 10)", (own_name,))
            return
    raise _in_progress(prefix, holder)


def _acquire_owner_lock(conn: MySqlConnection, own_name: str) -> None:
    """Take the owner's lock; an older attempt that has freed the prefix and compares still holds it, and is ended."""
    acquired, holder = fetch_all(conn, "SELECT GET_LOCK(%s, 0), IS_USED_LOCK(%s)", (own_name, own_name))[0]
    if acquired != 1:
        if holder is not None:
            end_connection(conn, int(holder))
        fetch_all(conn, "SELECT GET_LOCK(%s, 10)", (own_name,))


def end_connection(conn: MySqlConnection, connection_id: int) -> None:
    """End another connection of the same account, which may have ended meanwhile.

    Args:
        conn: An open connection.
        connection_id: The other connection's id.

    Raises:
        SourceError: The server refuses or does not answer.
    """
    try:
        fetch_all(conn, "KILL %s", (connection_id,))
    except SourceError as error:
        cause = error.__cause__
        if not isinstance(cause, pymysql.MySQLError) or cause.args[:1] != (ER_NO_SUCH_THREAD,):
            raise


def _in_progress(prefix: str, holder: int) -> RunInProgressError:
    return RunInProgressError(
        "another run of this topic.prefix is active",
        where=f"topic.prefix={prefix}",
        why=f"connection {holder} of the MySQL server holds the lock {lock_name(prefix)!r}",
        remedy=f"wait for the other run, or end it (SHOW PROCESSLIST; KILL {holder})",
    )


def owner_lock_name(prefix: str, owner: str) -> str:
    """Return the name of the lock by which others know whose run it is, and that its driver runs."""
    return "mysql_cdc:o:" + hashlib.sha256(f"{prefix}\0{owner}".encode()).hexdigest()[:48]
