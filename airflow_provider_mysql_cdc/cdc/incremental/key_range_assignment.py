"""The key ranges of scans: their bounds, read as they are needed, and their assignment to tasks."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import pymysql

from airflow_provider_mysql_cdc.cdc.binlog.connect import fetch_all
from airflow_provider_mysql_cdc.cdc.binlog.server_errors import from_exception
from airflow_provider_mysql_cdc.cdc.errors import SourceConnectionError
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import IncrementalState
from airflow_provider_mysql_cdc.cdc.incremental.table_scan import (
    DoneKeyRange,
    KeyRange,
    MissingRange,
    TableScan,
    missing_ranges,
)
from airflow_provider_mysql_cdc.cdc.incremental.window_operations import (
    AssignedKeyRange,
    NextKeyRange,
    RangeDone,
    RangeReadOptions,
    RangeReturned,
)
from airflow_provider_mysql_cdc.cdc.job.task_operation import EMPTY, EmptyMessage
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId, quote_name
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import Bound, bound_condition, chunk_columns, key_kind
from airflow_provider_mysql_cdc.cdc.snapshot.key_kinds import key_kind_of, key_roundtrip_condition, stored_dates_allowed
from airflow_provider_mysql_cdc.cdc.snapshot.rows import TABLE_CHANGED_ERRORS

CHUNKS_PER_RANGE = 16
"""Chunks of incremental.snapshot.chunk.size that one task reads in one key range and commits together."""
LOCK_WAIT_S = 3
"""Longest wait in seconds for a table that is locked by a statement; then it is read in a later window."""
CONDITION_TIME_MS = 5000
"""Longest time in milliseconds to look for the end of a key range among the rows of a condition. All tasks wait for it;
where it takes longer, the condition only decides which rows of a key range are read."""
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


def resume_scan(
    conn: Any,
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
        same_columns = scan.surrogate_key is not None or chunk_columns(table) == scan.columns
        if kinds == scan.kinds and same_columns and _can_be_scanned(scan, table):
            return scan
    try:
        return begin_scan(conn, scan, table, captured=captured, whole_table=whole_table)
    except TableUnreadable as error:
        if not error.transient:
            return scan.abort(str(error))
        on_deferred(str(error))
        return scan


def begin_scan(
    conn: Any, scan: TableScan, table: Table | None, *, captured: bool = True, whole_table: bool = False
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
        exists = captured and _table_exists(conn, scan.table)
        if scan.initial and not exists:  # it was dropped, renamed or excluded before it was read
            return scan.finish()
        reason = "the schema history does not contain the table: it no longer exists, or is not captured"
        raise TableUnreadable(reason, transient=exists)
    if not _can_be_scanned(scan, table):
        raise TableUnreadable("the table has neither a primary key nor a unique key of NOT NULL columns")
    columns = () if whole_table else _range_columns(table, scan.surrogate_key)
    kinds = tuple(key_kind(table, name) for name in columns)
    last_key = _last_key(conn, scan, table.id, columns, kinds) if columns else None
    running = scan.begin(columns, kinds, last_key, time.time_ns() // 1_000_000)
    # The rows are those of the table that has the name now. An initial scan ends only when a view shows that the table
    # has none: a statement after the stream's position may have given its name to another table.
    return running.finish() if columns and last_key is None and not scan.initial else running


def _last_key(
    conn: Any, scan: TableScan, table: TableId, columns: tuple[str, ...], kinds: tuple[str, ...]
) -> Bound | None:
    """Return the last key of a scan's rows, or of all rows where their condition takes too long."""
    try:
        return find_bound(conn, table, columns, kinds, condition=scan.condition, last=True)
    except TableUnreadable as error:
        if not error.timed_out or scan.condition is None:
            raise
        return find_bound(conn, table, columns, kinds, last=True)


def _can_be_scanned(scan: TableScan, table: Table) -> bool:
    """Return whether the table has a key, or the scan needs none because it is blocking or has a surrogate key."""
    return bool(table.key_columns()) or scan.kind == "blocking" or scan.surrogate_key is not None


def _range_columns(table: Table, surrogate: str | None) -> tuple[str, ...]:
    if surrogate is None:
        return chunk_columns(table)
    column = table.column(surrogate)
    if column is None or column.nullable or not key_kind(table, surrogate):
        raise TableUnreadable(
            f"the surrogate key {surrogate} cannot split it: that needs a NOT NULL column of a type that can "
            "bound chunks"
        )
    return (column.name,)


def find_bound(
    conn: Any,
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
    hint = "" if condition is None else f"/*+ MAX_EXECUTION_TIME({CONDITION_TIME_MS}) */ "
    sql = f"SELECT {hint}{select_list} FROM {table.quoted()} WHERE {where}" + ("" if last else f" AND {representable}")
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
        raise TableUnreadable(
            "its last key has characters that do not exist in Unicode, so the end of its key ranges cannot be "
            "stored; name "
            "another column to split it by (surrogate-key)"
        )
    return None if row is None else tuple(row)


def _table_exists(conn: Any, table: TableId) -> bool:
    sql = "SELECT 1 FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"
    return bool(fetch_all(conn, sql, (table.db, table.table)))


def _table_changed(conn: Any, table: TableId, columns: tuple[str, ...], error: pymysql.MySQLError) -> bool:
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


@dataclass(slots=True)
class _ScanQueue:
    """Queue of one scan: first the missing key ranges, then those after the last one that was assigned."""

    scan: TableScan
    missing_ranges: list[MissingRange]
    next_low: Bound | None
    next_number: int
    exhausted: bool = False
    blocked_reason: str = ""
    permanent: bool = False


@dataclass(slots=True)
class KeyRangeQueue:
    """Assign key ranges to tasks, and collect those that are done.

    Args:
        conn: An open connection to the source, used by one call at a time.
        chunk_rows: Rows of a chunk unless the request has a value of its own.
        deadline: Value of ``time.monotonic()`` from which no more key ranges are assigned.
        log: Writes one line to the log.
        scan_queues: The rest of each scan, in order.
        request_bounds: Orders of the first and last scan of each blocking request.
        done_ranges: Key ranges that tasks have committed.
    """

    conn: Any
    chunk_rows: int
    deadline: float
    log: Log
    scan_queues: list[_ScanQueue] = field(default_factory=list)
    request_bounds: dict[str, tuple[int, int]] = field(default_factory=dict)
    done_ranges: list[DoneKeyRange] = field(default_factory=list)
    _slow_conditions: set[int] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def for_scans(
        cls, conn: Any, state: IncrementalState, scans: Iterable[TableScan], chunk_rows: int, deadline: float, log: Any
    ) -> KeyRangeQueue:
        """Return the queue of running scans.

        Args:
            conn: An open connection to the source.
            state: The state with advanced cursors.
            scans: The scans, in their order.
            chunk_rows: See above.
            deadline: See above.
            log: See above.
        """
        queue = cls(conn, chunk_rows, deadline, log)
        for scan in scans:
            request = state.requests.get(scan.request)
            if scan.kind == "blocking" and request is not None:
                # The view of an interrupted snapshot has written its first row.
                first_order = -1 if scan.initial else request.first_order
                queue.request_bounds[request.id] = first_order, request.first_order + request.scan_count - 1
            done_ranges = state.done_ranges_of(scan.number)
            last_range = done_ranges[-1].key_range if done_ranges else None
            next_low, next_number = (
                (last_range.high, last_range.number + 1) if last_range is not None else (scan.cursor, scan.next_number)
            )
            exhausted = last_range is not None and last_range.final
            queue.scan_queues.append(
                _ScanQueue(scan, missing_ranges(scan, done_ranges), next_low, next_number, exhausted)
            )
        return queue

    def next(self, task: int, request: EmptyMessage) -> NextKeyRange:
        """Return the reply with the next key range; its ``assigned`` is None when the window ends."""
        with self._lock:
            while time.monotonic() < self.deadline:
                scan_queue = next(
                    (
                        scan_queue
                        for scan_queue in self.scan_queues
                        if not scan_queue.blocked_reason and (scan_queue.missing_ranges or not scan_queue.exhausted)
                    ),
                    None,
                )
                if scan_queue is None:
                    break
                if (key_range := self._next_range(scan_queue)) is not None:
                    return NextKeyRange(AssignedKeyRange(key_range, self._read_options(scan_queue.scan)))
            return NextKeyRange()

    def _read_options(self, scan: TableScan) -> RangeReadOptions:
        """Return the options that a task needs to read the scan."""
        first, last = self.request_bounds.get(scan.request, (-1, -1))
        return RangeReadOptions(
            scan.kind,
            scan.condition,
            first_table=scan.number == first,
            last_table=scan.number == last,
            cut_by_key=scan.surrogate_key is None and bool(scan.columns),
            initial=scan.initial,
        )

    def _next_range(self, scan_queue: _ScanQueue) -> KeyRange | None:
        try:
            if scan_queue.missing_ranges:
                return self._next_missing(scan_queue)
            return self._next_unread(scan_queue)
        except TableUnreadable as error:
            scan_queue.blocked_reason, scan_queue.permanent = str(error), not error.transient
            return None

    def _next_missing(self, scan_queue: _ScanQueue) -> KeyRange:
        """Return the next part of the first missing range; chunks of a snapshot's view may have many rows."""
        missing = scan_queue.missing_ranges.pop(0)
        key_range = missing.key_range
        if key_range.number >= missing.last_number:
            return key_range
        high = self._upper_bound(scan_queue.scan, key_range.low, key_range.high)
        if high is None or high == key_range.high:
            return key_range
        rest = replace(key_range, number=key_range.number + 1, low=high)
        scan_queue.missing_ranges.insert(0, replace(missing, key_range=rest))
        return replace(key_range, high=high)

    def _upper_bound(self, scan: TableScan, low: Bound | None, high: Bound | None) -> Bound | None:
        """Return the last key of a key range of the usual size; None where fewer rows are left."""
        condition = None if scan.number in self._slow_conditions else scan.condition
        range_rows = (scan.chunk_size or self.chunk_rows) * CHUNKS_PER_RANGE
        try:
            return find_bound(
                self.conn,
                scan.table,
                scan.columns,
                scan.kinds,
                condition=condition,
                low=low,
                high=high,
                skip=range_rows - 1,
            )
        except TableUnreadable as error:
            if not error.timed_out or condition is None:
                raise
        self._slow_conditions.add(scan.number)
        self.log(
            f"snapshot of {scan.table}: the rows of its condition are found too slowly, so its key ranges are those "
            "of all rows"
        )
        return self._upper_bound(scan, low, high)

    def _next_unread(self, scan_queue: _ScanQueue) -> KeyRange:
        """Return the key range after the last one that was assigned."""
        scan = scan_queue.scan
        high = self._upper_bound(scan, scan_queue.next_low, scan.last_key) if scan.columns else scan.last_key
        final = high is None or high == scan.last_key
        if final:
            high, scan_queue.exhausted = scan.last_key, True
        key_range = KeyRange(
            scan.table, scan.number, scan_queue.next_number, scan.columns, scan.kinds, scan_queue.next_low, high, final
        )
        scan_queue.next_low, scan_queue.next_number = high, scan_queue.next_number + 1
        return key_range

    def mark_done(self, task: int, request: RangeDone) -> EmptyMessage:
        """Record that the rows of a key range are committed."""
        done_range = request.done_range
        with self._lock:
            self.done_ranges.append(done_range)
        self.log(
            f"{done_range.key_range}: {done_range.rows} row(s)"
            + (f", {done_range.left_out} left out as the stream changed them" if done_range.left_out else "")
        )
        return EMPTY

    def mark_unreadable(self, task: int, request: RangeReturned) -> EmptyMessage:
        """Record that a key range cannot be read; no more of its table is assigned in this window."""
        key_range = request.key_range
        with self._lock:
            for scan_queue in self.scan_queues:
                # What blocks one scan of a table also blocks the others, unless the scan's own condition is the reason.
                if scan_queue.scan.number == key_range.scan_number or (
                    scan_queue.scan.table == key_range.table and not request.permanent
                ):
                    scan_queue.blocked_reason, scan_queue.permanent = request.reason, request.permanent
        consequence = "is aborted" if request.permanent else "continues in a later window"
        self.log(f"snapshot of {key_range.table} {consequence}: {request.reason}")
        return EMPTY

    def blocked_scans(self, *, permanent: bool) -> dict[int, str]:
        """Return why scans could not continue, by their order.

        Args:
            permanent: Whether to return the scans that can never continue, or the others.
        """
        return {
            scan_queue.scan.number: scan_queue.blocked_reason
            for scan_queue in self.scan_queues
            if scan_queue.blocked_reason and scan_queue.permanent == permanent
        }
