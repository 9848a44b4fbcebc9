"""The bounds of scans: where they begin and end, and the keys that end their key ranges."""

from __future__ import annotations

import time
from dataclasses import replace

import pymysql

from airflow_provider_mysql_cdc.cdc.binlog.connect import fetch_all
from airflow_provider_mysql_cdc.cdc.binlog.server_errors import from_exception
from airflow_provider_mysql_cdc.cdc.errors import SourceConnectionError
from airflow_provider_mysql_cdc.cdc.incremental.table_scan import (
    TableScan,
)
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId, quote_name
from airflow_provider_mysql_cdc.cdc.schema.table_discovery import table_exists
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import Bound, bound_condition, chunk_columns, key_kind
from airflow_provider_mysql_cdc.cdc.snapshot.key_kinds import key_kind_of, key_roundtrip_condition, stored_dates_allowed
from airflow_provider_mysql_cdc.cdc.snapshot.rows import TABLE_CHANGED_ERRORS

CONDITION_TIME_MS = 5000
"""Longest time in milliseconds to look for the end of a key range among the rows of a condition. All tasks wait for it;
where it takes longer, the condition only decides which rows of a key range are read."""
NO_KEY_REASON = "the table has neither a primary key nor a unique key of NOT NULL columns"
UNKNOWN_TABLE_REASON = "the schema history does not contain the table: it no longer exists, or is not captured"
_QUERY_TIMEOUT = 3024  # ER_QUERY_TIMEOUT
_TRANSIENT_ERRORS = frozenset({1205, 1213, 1317, _QUERY_TIMEOUT})
"""Errors that may not occur again: lock wait timeout, deadlock, interrupted query, max_execution_time exceeded."""


def is_transient(error: BaseException | None) -> bool:
    """Return whether a query may succeed if it is run again over the same connection.

    Args:
        error: The exception of the client library.
    """
    return isinstance(error, pymysql.MySQLError) and bool(error.args) and error.args[0] in _TRANSIENT_ERRORS


class TableUnreadable(Exception):
    """Raised when a table cannot be read.

    Args:
        reason: The reason.
        transient: Whether it may be readable later; otherwise its scan is aborted, and the drain continues.
        timed_out: Whether the query took longer than it may.
    """

    def __init__(self, reason: str, *, transient: bool = False, timed_out: bool = False) -> None:
        super().__init__(reason)
        self.transient, self.timed_out = transient, timed_out


class UnwrittenKey(TableUnreadable):
    """Raised when the last key of a table has no written form."""


def resume_scan(
    conn: MySqlConnection,
    scan: TableScan,
    table: Table | None,
    *,
    captured: bool = True,
    invalid: bool = False,
    whole_table: bool = False,
    on_deferred: Log = lambda why: None,
) -> TableScan:
    """Return a scan with its range: the stored one, or a new one if it has none or the table's key has changed.

    Args:
        conn: An open connection to the source.
        scan: The scan, which has not ended.
        table: The table in the schema history at this position; None if it is not there.
        captured: Whether the configuration captures it.
        invalid: Whether the scan must restart (``scan_validity``).
        whole_table: Whether a statement of the configuration reads the table, so that it is not split.
        on_deferred: Called with the reason if the scan can only begin in a later window.

    Returns:
        The same object if the scan continues; any other has read nothing.

    Raises:
        SourceConnectionError: The connection broke.
    """
    if invalid:
        scan = scan.restart()
    if scan.state == "running" and table is not None:
        kinds = tuple(key_kind(table, name) for name in scan.columns)
        same_columns = scan.surrogate_key is not None or _columns_without_surrogate(table, whole_table) == scan.columns
        if kinds == scan.kinds and same_columns and _can_be_scanned(scan, table):
            return scan
    try:
        return begin_scan(conn, scan, table, captured=captured, whole_table=whole_table)
    except TableUnreadable as error:
        if not error.transient:
            scan = scan.unreadable(str(error))
        if not scan.ended:
            on_deferred(str(error))
        return scan


def begin_scan(
    conn: MySqlConnection, scan: TableScan, table: Table | None, *, captured: bool = True, whole_table: bool = False
) -> TableScan:
    """Return a running scan with its last key (INC-09), or a finished one if there is nothing to read.

    Args:
        conn: An open connection to the source.
        scan: The waiting scan.
        table: The table in the schema history at this position; None if it is not there.
        captured: Whether the configuration captures it.
        whole_table: Whether a statement of the configuration reads the table, so that it is not split.

    Raises:
        TableUnreadable: The table cannot be read.
        SourceConnectionError: The connection broke.
    """
    if table is None:
        # It may have been created or renamed after the position that the stream has reached.
        exists = captured and table_exists(conn, scan.table)
        reason = UNKNOWN_TABLE_REASON
        if scan.initial and not exists:  # it was dropped, renamed or excluded before it was read
            return scan.finish(reason)
        if exists:
            reason = (
                "the schema history does not contain the table yet, or never: if only statements on captured tables "
                "are stored, a signal schema-changes adds its structure"
            )
        # Somebody waits for the tables of an interrupted snapshot, and is told the reason.
        raise TableUnreadable(reason, transient=exists and not scan.initial)
    if not _can_be_scanned(scan, table):
        raise TableUnreadable(NO_KEY_REASON)
    surrogate = scan.surrogate_key
    columns = _columns_without_surrogate(table, whole_table) if surrogate is None else _surrogate(table, surrogate)
    kinds = tuple(key_kind(table, name) for name in columns)
    last_key = _last_key(conn, scan, table.id, columns, kinds) if columns else None
    running = scan.begin(columns, kinds, last_key, time.time_ns() // 1_000_000)
    # The rows are those of the table that has the name now. An initial scan ends only when a view shows that the table
    # has none: a statement after the stream's position may have given its name to another table.
    return running.finish() if columns and last_key is None and not scan.initial else running


def with_last_key(conn: MySqlConnection, scan: TableScan) -> TableScan:
    """Return a scan that continues, with the last key that its table has now if it has none yet.

    The last chunk of an interrupted snapshot has no end. Without one, rows that are inserted meanwhile would be read
    too, although the stream has them.

    Args:
        conn: An open connection to the source.
        scan: The scan.

    Raises:
        SourceConnectionError: The connection broke.
    """
    if scan.state != "running" or scan.last_key is not None or not scan.columns:
        return scan
    try:
        return replace(scan, last_key=_last_key(conn, scan, scan.table, scan.columns, scan.kinds))
    except TableUnreadable:
        return scan  # its next key range meets the same error


def _last_key(
    conn: MySqlConnection, scan: TableScan, table: TableId, columns: tuple[str, ...], kinds: tuple[str, ...]
) -> Bound | None:
    """Return the last key of a scan's rows, or of all rows where their condition takes too long.

    The scan of an interrupted snapshot needs none: without it, the last key range has no end.
    """
    try:
        return find_bound(conn, table, columns, kinds, condition=scan.condition, last=True)
    except UnwrittenKey:
        if not scan.initial:
            raise
        return None
    except TableUnreadable as error:
        if not error.timed_out or scan.condition is None:
            raise
        return find_bound(conn, table, columns, kinds, last=True)


def _can_be_scanned(scan: TableScan, table: Table) -> bool:
    """Return whether the table has a key, or the scan needs none because it is blocking or has a surrogate key."""
    return bool(table.key_columns()) or scan.kind == "blocking" or scan.surrogate_key is not None


def _columns_without_surrogate(table: Table, whole_table: bool) -> tuple[str, ...]:
    return () if whole_table else chunk_columns(table)


def _surrogate(table: Table, surrogate: str) -> tuple[str, ...]:
    column = table.column(surrogate)
    if column is None or column.nullable or not key_kind(table, surrogate):
        raise TableUnreadable(
            f"the surrogate key {surrogate} cannot split it: that needs a NOT NULL column of a type that can "
            "bound chunks"
        )
    return (column.name,)


def find_bound(
    conn: MySqlConnection,
    table: TableId,
    columns: tuple[str, ...],
    kinds: tuple[str, ...],
    *,
    condition: str | None = None,
    low: Bound | None = None,
    high: Bound | None = None,
    skip: int = 0,
    last: bool = False,
) -> Bound | None:
    """Return a key of the table in its written form, or None if no key has one.

    Args:
        conn: An open connection to the source.
        table: The table.
        columns: The columns of the key.
        kinds: The kind of each column.
        condition: SQL condition of the rows.
        low: Exclusive lower bound.
        high: Inclusive upper bound.
        skip: Number of rows to skip.
        last: Whether to return the last key instead of the first one.

    Raises:
        TableUnreadable: The server rejects the query, or the last key has no written form.
        SourceConnectionError: The connection broke.
    """
    representable = key_roundtrip_condition(columns, kinds)
    kinds_and_columns = zip(map(key_kind_of, kinds), columns, strict=True)
    select_list = ", ".join(
        f"IF({representable}, {kind.select_expression(column)}, NULL)" for kind, column in kinds_and_columns if kind
    )
    order_by = ", ".join(quote_name(c) + (" DESC" if last else "") for c in columns)
    where = range_condition(columns, kinds, low, high, condition)
    hint = "" if condition is None else f"/*+ MAX_EXECUTION_TIME({_condition_time_ms(conn)}) */ "
    wanted = where if last else f"{where} AND {representable}"
    sql = f"SELECT {hint}{select_list} FROM {table.quoted()} WHERE {wanted}"
    try:
        with stored_dates_allowed(conn, kinds), conn.cursor() as cursor:
            cursor.execute(f"{sql} ORDER BY {order_by} LIMIT 1 OFFSET {skip}")
            row = cursor.fetchone()
    except pymysql.MySQLError as error:
        source_error = from_exception(error, f"table {table}")
        if isinstance(source_error, SourceConnectionError) and not is_transient(error):
            raise source_error from error
        transient = is_transient(error) or _table_changed(conn, table, columns, error)
        timed_out = error.args[:1] == (_QUERY_TIMEOUT,)
        raise TableUnreadable(" ".join(map(str, error.args)), transient=transient, timed_out=timed_out) from error
    if row is not None and None in row:
        raise UnwrittenKey(
            "its last key has characters that do not exist in Unicode, so the end of its key ranges cannot be "
            "stored; name "
            "another column to split it by (surrogate-key)"
        )
    return None if row is None else tuple(row)


def _condition_time_ms(conn: MySqlConnection) -> int:
    """Return the time limit of a query with a condition; the hint replaces the session's limit, which may be lower."""
    session_limit = int(fetch_all(conn, "SELECT @@SESSION.max_execution_time")[0][0])
    return min(CONDITION_TIME_MS, session_limit or CONDITION_TIME_MS)


def _table_changed(conn: MySqlConnection, table: TableId, columns: tuple[str, ...], error: pymysql.MySQLError) -> bool:
    """Return whether a query failed because the table on the server differs from the one in the schema history."""
    if not error.args or error.args[0] not in TABLE_CHANGED_ERRORS:
        return False
    try:
        with conn.cursor() as cursor:
            cursor.execute(f"SELECT {', '.join(map(quote_name, columns))} FROM {table.quoted()} LIMIT 0")
    except pymysql.MySQLError as retry_error:
        return bool(retry_error.args) and retry_error.args[0] in TABLE_CHANGED_ERRORS
    return False  # it is the condition


def range_condition(
    columns: tuple[str, ...], kinds: tuple[str, ...], low: Bound | None, high: Bound | None, condition: str | None
) -> str:
    """Return SQL for the rows with ``low < key <= high`` and a condition.

    Args:
        columns: The columns of the key.
        kinds: The kind of each column.
        low: Exclusive lower bound, or None.
        high: Inclusive upper bound, or None.
        condition: SQL, or None. A comment at its end is closed by a line break.
    """
    parts = []
    if low is not None:
        parts.append(bound_condition(columns, low, kinds, greater=True))
    if high is not None:
        parts.append(bound_condition(columns, high, kinds, greater=False))
    if condition is not None:
        parts.append(f"({condition}\n)")
    return " AND ".join(parts) or "TRUE"
