"""One consistent view over many connections, with the global lock held only while they open it.

Sequence: every task connects and reports ``ready``; the driver takes the lock; every task runs START TRANSACTION WITH
CONSISTENT SNAPSHOT and reports ``opened``; the driver reads the binlog position and unlocks. SNAP-09 to SNAP-14.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pymysql

from airflow_provider_mysql_cdc.cdc.binlog.connect import ConnectionSettings, answering_server
from airflow_provider_mysql_cdc.cdc.binlog.file_fingerprint import with_fingerprint
from airflow_provider_mysql_cdc.cdc.binlog.position import (
    current_offset,
    end_of_binlog,
    gtids_on,
    wait_for_visible_offset,
)
from airflow_provider_mysql_cdc.cdc.binlog.server_errors import from_exception
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import CdcError, SourceConnectionError, SourcePrivilegeError
from airflow_provider_mysql_cdc.cdc.job.task_barrier import BarrierPoint, TaskBarrier
from airflow_provider_mysql_cdc.cdc.job.task_operation import EMPTY, EmptyMessage
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, same_position
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema.table_discovery import table_exists
from airflow_provider_mysql_cdc.cdc.snapshot.snapshot_operations import OPENED, READY, ReopenView, ViewReply

ACCESS_DENIED = {1044, 1045, 1142, 1227}
LOCK_WAIT_TIMEOUT = 1205
OPTIMISTIC_TRIES = 50
LOCK_WAIT_S = 3
"""Longest wait in seconds of a task for a table that a statement holds, or waits for."""
TABLES_PER_QUERY = 50
GRANT_OF_LOCKS = "GRANT RELOAD ON *.* (or LOCK TABLES where a global lock is refused) to the account"
GLOBAL_LOCK_ONLY = "minimal_percona_no_table_locks"


def require_server(conn: MySqlConnection, server_uuid: str | None) -> None:
    """Refuse a view on another server than the one whose binlog position the driver read.

    Args:
        conn: A task's connection to the source.
        server_uuid: server_uuid of the driver's server; None if it is unknown.

    Raises:
        SourceConnectionError: The connection leads to another server.
    """
    server = answering_server(conn)
    if server_uuid is not None and server.lower() != server_uuid.lower():
        raise SourceConnectionError(
            "a task is connected to another MySQL server than the driver",
            where=f"server {server}",
            why=f"the driver read the binlog position of server {server_uuid}; the rows of a replica may be older",
            remedy="let database.hostname and database.port lead to one server, not to several; then run the task "
            "again",
        )


def set_view_limits(conn: MySqlConnection) -> None:
    """Keep the session of a view while nothing is read in it, and limit its wait for a table that a statement holds.

    Args:
        conn: A task's connection, before its view is opened.
    """
    with conn.cursor() as cursor:
        cursor.execute(
            f"SET SESSION wait_timeout = 2147483, net_write_timeout = 3600, lock_wait_timeout = {LOCK_WAIT_S}"
        )


def hold_tables(conn: MySqlConnection, tables: Sequence[TableId]) -> None:
    """Lock tables against statements that change their structure, until the view of the connection is closed.

    The first query of a table takes a metadata lock for the rest of the transaction (MySQL manual, "Metadata Locking").
    Without it a name could mean another table, or a column name another column, for a task that reads its first chunk
    of a table later than other tasks; the server refuses only tables that were rebuilt (error 1412).

    Args:
        conn: A task's connection, whose view is open.
        tables: The tables of the snapshot.

    Raises:
        SourceConnectionError: A statement holds one of them.
        SourceError: The server returned another error.
    """
    for start in range(0, len(tables), TABLES_PER_QUERY):
        part = tables[start : start + TABLES_PER_QUERY]
        try:
            with conn.cursor() as cursor:
                cursor.execute(" UNION ALL ".join(f"(SELECT 1 FROM {table.quoted()} LIMIT 0)" for table in part))
        except pymysql.MySQLError as error:
            where = f"tables {part[0]} to {part[-1]}"
            if error.args[:1] != (LOCK_WAIT_TIMEOUT,):
                raise from_exception(error, where) from error
            raise SourceConnectionError(
                "a statement holds a table of the snapshot, or waits for it",
                where=where,
                why=str(error.args[1]),
                remedy="let the statement end (performance_schema.metadata_locks names it), then run the task again",
            ) from error


@dataclass(frozen=True, slots=True)
class ConsistentView:
    """Describe the consistent view.

    Args:
        offset: The binlog position of the view on all connections.
        ts_ms: Server time in milliseconds since the epoch, whole seconds as Debezium writes it.
        locked_ms: How long writers were blocked, in milliseconds; 0 without a lock, None while the lock is still held.
        lock: The kind of lock: ``global``, ``tables`` or ``none``.
        exact: Whether the rows are exactly those at the position.
    """

    offset: BinlogOffset
    ts_ms: int
    locked_ms: float | None
    lock: str
    exact: bool = True

    def __str__(self) -> str:
        lock_time = "until the last row is read" if self.locked_ms is None else f"{self.locked_ms:.1f} ms"
        return f"consistent view at {self.offset}, lock={self.lock}, held {lock_time}"


def open_view(
    conn: MySqlConnection,
    barrier: TaskBarrier,
    tables: list[TableId],
    mode: str,
    lock_timeout_s: int,
    settings: ConnectionSettings,
    on_lock: Callable[[bool], None] = lambda held: None,
) -> tuple[ConsistentView, Callable[[], None]]:
    """Open the view on all tasks.

    Args:
        conn: The driver's lock connection.
        barrier: The barrier of the tasks; all must have reached ``ready``.
        tables: Tables to lock if the account may not take the global lock (SNAP-19).
        mode: ``snapshot.locking.mode``.
        lock_timeout_s: Longest wait for locks in seconds (SNAP-35).
        settings: Connection settings of the same server.
        on_lock: Called with true when the lock is held, and with false when it is not any more.

    Returns:
        The view, and a function that ends the lock in mode ``extended`` (and does nothing otherwise).
    """
    # Read before the lock, which should be short. If the binlog is reset in between, a later check refuses the offset.
    offset_before = end_of_binlog(conn, settings)
    if mode == "none":
        return _with_fingerprint(
            _open_without_lock(conn, barrier, lock_timeout_s), offset_before, conn, settings
        ), lambda: None
    lock_kind = _lock(conn, None if mode == GLOBAL_LOCK_ONLY else tables, lock_timeout_s)
    locked_at = time.perf_counter()
    on_lock(True)

    def unlock() -> None:
        _unlock(conn)
        on_lock(False)

    try:
        barrier.release(READY, EMPTY)
        barrier.wait(OPENED)
        offset = current_offset(conn)
    except BaseException:
        unlock()
        raise
    if mode == "extended":
        view = _with_fingerprint(
            ConsistentView(offset, _server_time_ms(conn), None, lock_kind), offset_before, conn, settings
        )
        return view, unlock
    unlock()
    locked_ms = (time.perf_counter() - locked_at) * 1000
    return _with_fingerprint(
        ConsistentView(offset, _server_time_ms(conn), locked_ms, lock_kind), offset_before, conn, settings
    ), lambda: None


@contextmanager
def read_locked(conn: MySqlConnection, cfg: ConnectorConfig, tables: list[TableId]) -> Iterator[BinlogOffset]:
    """Hold the read lock, and give the end of the binlog under it; no change of the tables is committed meanwhile.

    Args:
        conn: A connection for the lock alone.
        cfg: The connector's configuration.
        tables: Tables to lock if the account may not take the global lock; those that do not exist are passed over.

    Raises:
        SourcePrivilegeError: The account may lock neither.
        SourceConnectionError: The lock was not obtained in time.
    """
    with read_lock(conn, cfg, tables):
        yield current_offset(conn)


@contextmanager
def read_lock(conn: MySqlConnection, cfg: ConnectorConfig, tables: list[TableId]) -> Iterator[None]:
    """Hold the read lock; arguments and errors as for ``read_locked``."""
    mode, timeout_s = str(cfg[F.SNAPSHOT_LOCKING_MODE]), max(1, cfg[F.SNAPSHOT_LOCK_TIMEOUT_MS] // 1000)
    existing = [table for table in tables if table_exists(conn, table)]
    _lock(conn, None if mode == GLOBAL_LOCK_ONLY else existing, timeout_s)
    try:
        yield
    finally:
        _unlock(conn)


def _with_fingerprint(
    view: ConsistentView, offset_before: BinlogOffset, conn: MySqlConnection, settings: ConnectionSettings
) -> ConsistentView:
    """Return the view with the fingerprint of its binlog file, which was read before, unless the file has changed."""
    offset = view.offset
    fingerprinted = (
        replace(offset, origin=offset_before.origin)
        if offset.file == offset_before.file
        else with_fingerprint(conn, settings, offset)
    )
    return replace(view, offset=fingerprinted)


def _lock(conn: MySqlConnection, tables: list[TableId] | None, timeout_s: int) -> str:
    """Take the global read lock; if the account may not, lock the tables, unless ``tables`` is None."""
    with conn.cursor() as cursor:
        cursor.execute("SET SESSION lock_wait_timeout = %s", (timeout_s,))
        try:
            cursor.execute("FLUSH TABLES WITH READ LOCK")
            return "global"
        except pymysql.MySQLError as error:
            if tables is None or error.args[0] not in ACCESS_DENIED:
                raise _lock_error(error, timeout_s, tables) from error
        try:
            if tables:
                cursor.execute("LOCK TABLES " + ", ".join(f"{t.quoted()} READ" for t in tables))
            return "tables"
        except pymysql.MySQLError as error:
            raise _lock_error(error, timeout_s, tables) from error


def _lock_error(error: pymysql.MySQLError, timeout_s: int, tables: list[TableId] | None) -> CdcError:
    if error.args[0] in ACCESS_DENIED:
        return SourcePrivilegeError(
            "the account may take neither a global read lock nor table locks"
            if tables is not None
            else "the account may not take the global read lock",
            where="snapshot.locking.mode" if tables is not None else f"snapshot.locking.mode={GLOBAL_LOCK_ONLY}",
            why=str(error.args[1]),
            remedy=f"{GRANT_OF_LOCKS}, or set snapshot.locking.mode=none if no DDL runs meanwhile",
        )
    if error.args[0] == LOCK_WAIT_TIMEOUT:
        return SourceConnectionError(
            f"the read lock was not obtained within {timeout_s} s",
            where="snapshot.lock.timeout.ms",
            why=str(error.args[1]),
            remedy="wait for the long-running statement that holds the tables, or raise snapshot.lock.timeout.ms",
        )
    return SourceConnectionError("taking the read lock failed", why=str(error), remedy="run the task again")


def _unlock(conn: MySqlConnection) -> None:
    with conn.cursor() as cursor:
        cursor.execute("UNLOCK TABLES")


def _open_without_lock(conn: MySqlConnection, barrier: TaskBarrier, wait_s: int) -> ConsistentView:
    """Open the view without any lock; it is exact if no transaction committed while the tasks opened it.

    All tasks open their view; the binlog position is read before and after. If it moved, the tasks open their view
    again. After the last try the earlier position is used: nothing is lost, but rows may contain changes that are
    published again as events, so their keys show older states for a while; then ``ConsistentView.exact`` is false.

    Raises:
        SourceConnectionError: A commit before the position did not end in time.
    """
    for attempt in range(OPTIMISTIC_TRIES):
        offset_before, settled = wait_for_visible_offset(conn, wait_s)
        if not settled and gtids_on(conn):
            raise SourceConnectionError(
                "no view can be opened without a lock",
                where="snapshot.locking.mode=none",
                why=f"transactions before {offset_before} were still being committed after {wait_s} s",
                remedy="run the task again, raise snapshot.lock.timeout.ms, or use another locking mode",
            )
        ready, opened = _view_points(attempt)
        barrier.release(ready, EMPTY)
        barrier.wait(opened)
        unchanged = same_position(current_offset(conn), offset_before)
        if unchanged or attempt == OPTIMISTIC_TRIES - 1:
            return ConsistentView(offset_before, _server_time_ms(conn), 0.0, "none", unchanged and settled)
        barrier.release(opened, ViewReply(reopen=ReopenView(*(point.name for point in _view_points(attempt + 1)))))
    raise AssertionError("unreachable")


def _view_points(attempt: int) -> tuple[BarrierPoint[EmptyMessage], BarrierPoint[ViewReply]]:
    """Return where tasks arrive before and after they open their views for the n-th time, counted from 0."""
    return (READY.named(f"again{attempt}"), OPENED.named(f"opened{attempt}")) if attempt else (READY, OPENED)


def _server_time_ms(conn: MySqlConnection) -> int:
    with conn.cursor() as cursor:
        cursor.execute("SELECT UNIX_TIMESTAMP(NOW())")
        return int(cursor.fetchone()[0]) * 1000
