"""Where a table's stretches begin and end, found as they are needed, and which task reads which."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pymysql

from airflow_provider_mysql_cdc.cdc.binlog.connect import fetch_all
from airflow_provider_mysql_cdc.cdc.binlog.server_errors import from_exception
from airflow_provider_mysql_cdc.cdc.errors import SourceConnectionError
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import Books
from airflow_provider_mysql_cdc.cdc.incremental.table_scan import DoneStretch, Stretch, TableScan, gaps
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId, quote_name
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import Bound, beyond, chunk_columns, key_kind
from airflow_provider_mysql_cdc.cdc.snapshot.key_kinds import dates_as_stored, kept_as_shown, key_kind_of
from airflow_provider_mysql_cdc.cdc.snapshot.rows import CHANGED

STRETCH_CHUNKS = 16
"""Chunks of incremental.snapshot.chunk.size that one task reads in one go and commits together."""
HOLD_S = 3
"""Longest wait in seconds for a table that a statement is changing; it is read in a later round then."""
_PASSING = frozenset({1205, 1213, 1317, 3024})
"""Errors that another attempt may not meet: lock waits, deadlocks, interrupted and too slow queries."""


def passes(error: BaseException | None) -> bool:
    """Return whether a query may succeed when it is asked again over the same connection.

    Args:
        error: What the client library raised.
    """
    return isinstance(error, pymysql.MySQLError) and bool(error.args) and error.args[0] in _PASSING


class Unreadable(Exception):
    """Say why a table cannot be read.

    Args:
        why: The reason.
        passing: Whether it may be readable later; otherwise its scan is given up, and the drain goes on.
    """

    def __init__(self, why: str, *, passing: bool = False) -> None:
        super().__init__(why)
        self.passing = passing


def going_on(
    conn: Any,
    scan: TableScan,
    table: Table | None,
    *,
    captured: bool = True,
    void: bool = False,
    tell: Log = lambda why: None,
) -> TableScan:
    """Return a scan with its range: found now, kept, or found anew when the table's key is another one by now.

    Args:
        conn: An open connection to the source.
        scan: The scan, not ended.
        table: The table as the stream knows it at this place; None when it does not.
        captured: Whether the configuration captures it.
        void: Whether what it has read counts for nothing any more (``basis``).
        tell: Called with the reason when it can begin in a later round only.

    Returns:
        The same object when it goes on; any other has read nothing.

    Raises:
        SourceConnectionError: The connection broke.
    """
    if void:
        scan = scan.anew()
    if scan.state == "running" and table is not None:
        kinds = tuple(key_kind(table, name) for name in scan.columns)
        key = scan.surrogate is not None or chunk_columns(table) == scan.columns
        if kinds == scan.kinds and key and _told_apart(scan, table):
            return scan
    try:
        return begin_scan(conn, scan, table, captured=captured)
    except Unreadable as error:
        if not error.passing:
            return scan.abort(str(error))
        tell(str(error))
        return scan


def begin_scan(conn: Any, scan: TableScan, table: Table | None, *, captured: bool = True) -> TableScan:
    """Return a scan with its first and last key (INC-09), or done when there is no row.

    Args:
        conn: An open connection to the source.
        scan: The scan, which waits.
        table: The table as the stream knows it at this place; None when it does not.
        captured: Whether the configuration captures it.

    Raises:
        Unreadable: It cannot be read.
        SourceConnectionError: The connection broke.
    """
    if table is None:
        # It may have been created, or renamed, since the place to which the stream has come.
        why = "the stream does not know the table: it does not exist any more, or is not captured"
        raise Unreadable(why, passing=captured and _exists(conn, scan.table))
    if not _told_apart(scan, table):
        raise Unreadable("the table has neither a primary key nor a unique one without NULL")
    columns = _columns(table, scan.surrogate)
    kinds = tuple(key_kind(table, name) for name in columns)
    last = find_bound(conn, table.id, columns, kinds, condition=scan.condition, last=True) if columns else None
    begun = scan.begin(columns, kinds, last, time.time_ns() // 1_000_000)
    return begun.finish() if columns and last is None else begun


def _told_apart(scan: TableScan, table: Table) -> bool:
    """Return whether the table has a key, or is to be read without one, in a round in which nothing happens to it."""
    return bool(table.key_columns()) or scan.kind == "blocking" or scan.surrogate is not None


def _columns(table: Table, surrogate: str | None) -> tuple[str, ...]:
    if surrogate is None:
        return chunk_columns(table)
    column = table.column(surrogate)
    if column is None or column.nullable or not key_kind(table, surrogate):
        raise Unreadable(f"{surrogate} cannot cut it: that takes a NOT NULL column of a type that bounds chunks")
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
    """Return a key of the table in its written form, or None when there is none that has one.

    Args:
        conn: An open connection to the source.
        table: The table.
        columns: The columns of the key.
        kinds: What each of them is.
        condition: SQL that the row has to fulfil.
        low: Exclusive lower bound.
        high: Inclusive upper bound.
        skip: Rows to pass over.
        last: Whether to begin at the last row.

    Raises:
        Unreadable: The server refuses the query, or the last row's key has no written form.
        SourceConnectionError: The connection broke.
    """
    kept = kept_as_shown(columns, kinds)
    known = zip(map(key_kind_of, kinds), columns, strict=True)
    shown = ", ".join(f"IF({kept}, {kind.shown(column)}, NULL)" for kind, column in known if kind)
    sorting = ", ".join(quote_name(c) + (" DESC" if last else "") for c in columns)
    wanted = where_of(columns, kinds, low, high, condition)
    sql = f"SELECT {shown} FROM {table.quoted()} WHERE {wanted}" + ("" if last else f" AND {kept}")
    try:
        with dates_as_stored(conn, kinds), conn.cursor() as cursor:
            cursor.execute(f"{sql} ORDER BY {sorting} LIMIT 1 OFFSET {skip}")
            found = cursor.fetchone()
    except pymysql.MySQLError as error:
        named = from_exception(error, f"table {table}")
        if isinstance(named, SourceConnectionError) and not passes(error):
            raise named from error
        passing = passes(error) or _ahead(conn, table, columns, error)
        raise Unreadable(" ".join(map(str, error.args)), passing=passing) from error
    if found is not None and None in found:
        raise Unreadable(
            "Unicode does not have all characters of its last key, so where its rows end cannot be written; cut it by "
            "another column (surrogate-key)"
        )
    return None if found is None else tuple(found)


def _exists(conn: Any, table: TableId) -> bool:
    sql = "SELECT 1 FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"
    return bool(fetch_all(conn, sql, (table.db, table.table)))


def _ahead(conn: Any, table: TableId, columns: tuple[str, ...], error: pymysql.MySQLError) -> bool:
    """Return whether a query failed because the server's table is another one than the stream has come to."""
    if not error.args or error.args[0] not in CHANGED:
        return False
    try:
        with conn.cursor() as cursor:
            cursor.execute(f"SELECT {', '.join(map(quote_name, columns))} FROM {table.quoted()} LIMIT 0")
    except pymysql.MySQLError as again:
        return bool(again.args) and again.args[0] in CHANGED
    return False  # it is the condition


def where_of(
    columns: tuple[str, ...], kinds: tuple[str, ...], low: Bound | None, high: Bound | None, condition: str | None
) -> str:
    """Return SQL for the rows ``low < key <= high`` that fulfil a condition.

    Args:
        columns: The columns of the key.
        kinds: What each of them is.
        low: Exclusive lower bound, or None.
        high: Inclusive upper bound, or None.
        condition: SQL, or None. A comment at its end ends with its line.
    """
    parts = []
    if low is not None:
        parts.append(beyond(columns, low, kinds, greater=True))
    if high is not None:
        parts.append(beyond(columns, high, kinds, greater=False))
    if condition is not None:
        parts.append(f"({condition}\n)")
    return " AND ".join(parts) or "TRUE"


@dataclass(slots=True)
class _Line:
    """One scan's queue: the gaps first, then what lies behind the last stretch that was given out."""

    scan: TableScan
    gaps: list[Stretch]
    frontier: Bound | None
    number: int
    ended: bool = False
    blocked: str = ""
    hopeless: bool = False


@dataclass(slots=True)
class StretchQueue:
    """Give stretches out to tasks, and keep count of those that are done.

    Args:
        conn: An open connection to the source, used by one task's call at a time.
        chunk_rows: Rows of a chunk where a request does not say otherwise.
        deadline: Value of ``time.monotonic()`` from which no more is given out.
        log: Takes one line of text.
        lines: What is left of each scan, in order.
        ends: First and last scan of each blocking request.
        done: Stretches that tasks have committed.
    """

    conn: Any
    chunk_rows: int
    deadline: float
    log: Log
    lines: list[_Line] = field(default_factory=list)
    ends: dict[str, tuple[int, int]] = field(default_factory=dict)
    done: list[DoneStretch] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(
        cls, conn: Any, books: Books, scans: Iterable[TableScan], chunk_rows: int, deadline: float, log: Any
    ) -> StretchQueue:
        """Return the queue of some scans that are running.

        Args:
            conn: An open connection to the source.
            books: The books, folded.
            scans: The scans, in their order.
            chunk_rows: See above.
            deadline: See above.
            log: See above.
        """
        queue = cls(conn, chunk_rows, deadline, log)
        for scan in scans:
            request = books.requests.get(scan.request)
            if scan.kind == "blocking" and request is not None:
                queue.ends[request.id] = request.first, request.first + request.tables - 1
            behind = books.done_of(scan.order)
            end = behind[-1].stretch if behind else None
            frontier, number = (end.high, end.number + 1) if end is not None else (scan.cursor, scan.number)
            ended = end is not None and end.final
            queue.lines.append(_Line(scan, gaps(scan, behind), frontier, number, ended))
        return queue

    def next(self, task: int, request: dict[str, Any]) -> dict[str, Any]:
        """Return the next stretch for a task, or none when the round ends."""
        with self._lock:
            while time.monotonic() < self.deadline:
                line = next((line for line in self.lines if not line.blocked and (line.gaps or not line.ended)), None)
                if line is None:
                    break
                if (stretch := self._cut(line)) is not None:
                    return {"stretch": stretch.to_json(), **self._about(line.scan)}
            return {"stretch": None}

    def _about(self, scan: TableScan) -> dict[str, Any]:
        """Return what a task has to know of the scan."""
        first, last = self.ends.get(scan.request, (-1, -1))
        ends = {"first": scan.order == first, "last": scan.order == last}
        return {"condition": scan.condition, "kind": scan.kind, "by_key": scan.surrogate is None, **ends}

    def _cut(self, line: _Line) -> Stretch | None:
        if line.gaps:
            return line.gaps.pop(0)
        scan = line.scan
        rows = (scan.chunk_size or self.chunk_rows) * STRETCH_CHUNKS
        high: Bound | None = scan.last
        if scan.columns:
            try:
                high = find_bound(
                    self.conn,
                    scan.table,
                    scan.columns,
                    scan.kinds,
                    condition=scan.condition,
                    low=line.frontier,
                    high=scan.last,
                    skip=rows - 1,
                )
            except Unreadable as error:
                line.blocked, line.hopeless = str(error), not error.passing
                return None
        final = high is None or high == scan.last
        if final:
            high, line.ended = scan.last, True
        stretch = Stretch(scan.table, scan.order, line.number, scan.columns, scan.kinds, line.frontier, high, final)
        line.frontier, line.number = high, line.number + 1
        return stretch

    def take_done(self, task: int, request: dict[str, Any]) -> dict[str, Any]:
        """Take note of a stretch whose rows are committed."""
        done = DoneStretch.from_json(request["done"])
        with self._lock:
            self.done.append(done)
        self.log(f"{done.stretch}: {done.rows} row(s)" + (f", {done.left_out} left out" if done.left_out else ""))
        return {}

    def take_back(self, task: int, request: dict[str, Any]) -> dict[str, Any]:
        """Take note of a stretch that could not be read; nothing more of its table is given out in this round."""
        stretch = Stretch.from_json(request["stretch"])
        with self._lock:
            for line in self.lines:
                # What keeps one scan of a table from being read keeps the others; a condition is a scan's own.
                if line.scan.order == stretch.scan or (line.scan.table == stretch.table and not request["hopeless"]):
                    line.blocked, line.hopeless = str(request["reason"]), bool(request["hopeless"])
        later = "is given up" if request["hopeless"] else "is read on in a later round"
        self.log(f"snapshot of {stretch.table} {later}: {request['reason']}")
        return {}

    def blocked(self, *, hopeless: bool) -> dict[int, str]:
        """Return why scans could not go on, by their order.

        Args:
            hopeless: Those that never will, or the others.
        """
        return {line.scan.order: line.blocked for line in self.lines if line.blocked and line.hopeless == hopeless}
