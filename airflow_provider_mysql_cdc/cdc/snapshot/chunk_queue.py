"""The chunks of a snapshot that wait for a task, how far it is with each table, and its metrics."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from airflow_provider_mysql_cdc.cdc.commit.plan import bounded_counts
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.job.task_operation import EMPTY, EmptyMessage
from airflow_provider_mysql_cdc.cdc.metrics.stream_metrics import bounded_names
from airflow_provider_mysql_cdc.cdc.model.clock import duration_text
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk
from airflow_provider_mysql_cdc.cdc.snapshot.chunk_records import ListEntry
from airflow_provider_mysql_cdc.cdc.snapshot.snapshot_operations import AssignedChunk, ChunkRows, NextChunk

MAX_TABLES = 100
"""Tables in a progress record at most: first those that are being read, then those that wait."""
ALMOST = 0.99
"""Share of a chunk that counts as read at most while it is being read, because its number of rows is an estimate."""


@dataclass(slots=True)
class TableProgress:
    """Describe how far a snapshot is with one table.

    Args:
        table: ``database.table``.
        chunks: Number of its chunks.
        estimate: Its rows as the server estimates them; 0 when it does not know.
        rows: Rows that were read, also by earlier attempts.
        done: Chunks that are committed.
        begun: When its first chunk was assigned, in seconds of the clock; None before.
        ended: When its last chunk was committed; None before.
    """

    table: str
    chunks: int = 0
    estimate: int = 0
    rows: int = 0
    done: int = 0
    begun: float | None = None
    ended: float | None = None
    _earlier: int = 0
    _running: dict[str, int] = field(default_factory=dict)

    @property
    def is_running(self) -> bool:
        """Whether it is being read."""
        return self.begun is not None and self.done < self.chunks

    def seconds(self) -> float:
        """Return how long it took from the first chunk to the last; 0 before its end."""
        return 0.0 if self.begun is None or self.ended is None else self.ended - self.begun

    @property
    def all_rows(self) -> int:
        """Rows that were read, those of running chunks included."""
        return self.rows + sum(self._running.values())

    def seconds_left(self, now: float) -> float | None:
        """Return how long the rest takes at the pace so far; None when that cannot be said.

        Args:
            now: The clock.
        """
        if self.begun is None or self.done >= self.chunks:
            return None
        rows_of_chunk = self.estimate / self.chunks
        running = sum(min(ALMOST, rows / rows_of_chunk) for rows in self._running.values()) if rows_of_chunk else 0.0
        read = self.done - self._earlier + running
        return (now - self.begun) * (self.chunks - self.done - running) / read if read > 0 else None

    def text(self, now: float) -> str:
        """Return it as a line of the log says it.

        Args:
            now: The clock.
        """
        of = f" of about {self.estimate:,}" if self.estimate else ""
        left = self.seconds_left(now)
        rest = "" if left is None else f", {duration_text(left)} left"
        return f"{self.table}: {self.all_rows:,}{of} rows, {self.done} of {self.chunks} chunks{rest}"

    def to_json(self, now: float) -> dict[str, Any]:
        """Return plain JSON.

        Args:
            now: The clock.
        """
        left = self.seconds_left(now)
        return {
            "table": self.table,
            "rows": self.all_rows,
            "estimate": self.estimate,
            "chunks": self.chunks,
            "done": self.done,
            "running": self.is_running,
            "seconds_left": None if left is None else round(left),
        }


class SnapshotProgress:
    """Follow the tables of a snapshot, chunk by chunk.

    Args:
        chunks: All chunks.
        finished: Rows of those that earlier attempts have read, by id.
        clock: Returns seconds.
    """

    def __init__(
        self,
        chunks: Sequence[SnapshotChunk] = (),
        finished: Mapping[str, int] = MappingProxyType({}),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._tables: dict[str, TableProgress] = {}
        for chunk in chunks:
            table = self._tables.setdefault(str(chunk.table), TableProgress(str(chunk.table)))
            table.chunks += 1
            table.estimate += chunk.rows
            if chunk.id in finished:
                table.rows += finished[chunk.id]
                table.done += 1
                table._earlier += 1

    def on_assigned(self, chunk: SnapshotChunk) -> None:
        """Note that a task begins with a chunk.

        Args:
            chunk: The chunk.
        """
        table = self._tables.get(str(chunk.table))
        if table is not None and table.begun is None:
            table.begun = self._clock()

    def on_rows(self, chunk: str, rows: int) -> None:
        """Note how many rows of a chunk are read.

        Args:
            chunk: Its id.
            rows: Their number so far.
        """
        if (table := self._table_of(chunk)) is not None:
            table._running[chunk] = rows

    def on_done(self, chunk: str, rows: int) -> TableProgress | None:
        """Note that a chunk is committed; return its table when that was the last one.

        Args:
            chunk: Its id.
            rows: Its rows.
        """
        table = self._table_of(chunk)
        if table is None:
            return None
        table._running.pop(chunk, None)
        table.rows += rows
        table.done += 1
        if table.done < table.chunks:
            return None
        table.ended = self._clock()
        return table

    def lines(self, limit: int) -> list[str]:
        """Return what the log says of the tables that are being read, those with the most estimated rows first.

        Args:
            limit: Number of tables with a line of their own.
        """
        running = sorted((t for t in self._tables.values() if t.is_running), key=lambda t: -t.estimate)
        now, more = self._clock(), len(running) - limit
        lines = [table.text(now) for table in running[:limit]]
        return [*lines, f"and {more} more tables are being read"] if more > 0 else lines

    def to_json(self) -> list[dict[str, Any]]:
        """Return at most ``MAX_TABLES`` tables that are not read completely."""
        now, left = self._clock(), [t for t in self._tables.values() if t.done < t.chunks]
        left.sort(key=lambda t: (not t.is_running, -t.estimate))
        return [t.to_json(now) for t in left[:MAX_TABLES]]

    def _table_of(self, chunk: str) -> TableProgress | None:
        return self._tables.get(chunk.rpartition("/")[0])


LOG_INTERVAL_S = 5.0
"""Seconds between two lines about the snapshot as a whole."""
TABLES_INTERVAL_S = 30.0
"""Seconds between two lines about a table; one that takes less has none of its own."""
LOGGED_TABLES = 5
"""Tables that have a line of their own at a time."""


@dataclass(slots=True)
class ChunkQueue:
    """Assign chunks to tasks and sum up the progress that they report.

    Args:
        waiting: Chunks that are not assigned to a task yet, in the order of the snapshot.
        finished_rows: Rows of finished chunks by id, including those of earlier attempts.
        log: Writes one line to the log.
        total: Number of all chunks.
        edge_chunks: Ids of the chunks that hold the first and the last row of the snapshot (``edge_chunks_of``).
        list_entries: For each chunk id, the members of its record that name its list and its order there.
        tables: How far each table is.
    """

    waiting: list[SnapshotChunk]
    finished_rows: dict[str, int]
    log: Log
    total: int = 0
    edge_chunks: tuple[str, str] = ("", "")
    list_entries: dict[str, ListEntry] = field(default_factory=dict)
    tables: SnapshotProgress = field(default_factory=SnapshotProgress)
    _running_rows: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _started_at: float = field(default_factory=time.monotonic)
    _logged_at: float = -math.inf
    _tables_logged_at: float = field(default_factory=time.monotonic)
    _earlier: tuple[int, int] = field(init=False)
    _last_event: tuple[str, int] = ("", 0)

    def __post_init__(self) -> None:
        # Chunks and rows of earlier attempts do not count for the speed of this one.
        self._earlier = len(self.finished_rows), sum(self.finished_rows.values())

    def next(self, task: int, request: EmptyMessage) -> NextChunk:
        """Return the reply with the next chunk; its ``assigned`` is None when there is no other one."""
        with self._lock:
            if not self.waiting:
                return NextChunk()
            chunk = self.waiting.pop(0)
            self.tables.on_assigned(chunk)
            first, final = (chunk.id == edge_chunk for edge_chunk in self.edge_chunks)
            return NextChunk(AssignedChunk(chunk, first, final, self.list_entries[chunk.id]))

    def progress(self, task: int, request: ChunkRows) -> EmptyMessage:
        """Record how many rows a task has read of its chunk."""
        with self._lock:
            self._running_rows[request.chunk] = request.rows
            self.tables.on_rows(request.chunk, request.rows)
            self._last_event = f"chunk={request.chunk}, row={request.rows}", time.time_ns() // 1_000_000
            self._log_progress()
        return EMPTY

    def done(self, task: int, request: ChunkRows) -> EmptyMessage:
        """Record that a chunk is committed."""
        with self._lock:
            self._running_rows.pop(request.chunk, None)
            table = self.tables.on_done(request.chunk, request.rows)
            if table is not None and table.seconds() >= TABLES_INTERVAL_S:
                self.log(f"snapshot: {table.table} is read: {table.rows:,} rows in {duration_text(table.seconds())}")
            self.finished_rows[request.chunk] = request.rows
            if request.rows:
                self._last_event = f"chunk={request.chunk}, row={request.rows}", time.time_ns() // 1_000_000
            self._log_progress()
        return EMPTY

    def rows(self) -> dict[str, int]:
        """Return the rows that were read, by chunk id; of running chunks up to the last report (SNAP-56)."""
        with self._lock:
            return {**self._running_rows, **self.finished_rows}

    def unread_tables(self) -> list[dict[str, Any]]:
        """Return how far the tables are that are not read completely, as JSON; see ``SnapshotProgress.to_json``."""
        with self._lock:
            return self.tables.to_json()

    def last_event(self) -> dict[str, Any]:
        """Return which row was read last, and when, for the metrics; nothing before the first one."""
        text, at_ms = self._last_event
        return {"LastEvent": text, "last_event_ms": at_ms} if at_ms else {}

    def _log_progress(self) -> None:
        now = time.monotonic()
        if now - self._logged_at < LOG_INTERVAL_S:
            return
        self._logged_at = now
        rows = sum(self.finished_rows.values()) + sum(self._running_rows.values())
        seconds = max(now - self._started_at, 0.001)
        done, (chunks, earlier) = len(self.finished_rows), self._earlier
        left_s = seconds * (self.total - done) / (done - chunks) if done > chunks else None
        remaining = "" if left_s is None else f", about {duration_text(left_s)} left"
        speed = (rows - earlier) / seconds
        self.log(f"snapshot: {rows:,} rows, {speed:,.0f}/s, {done} of {self.total} chunks{remaining}")
        if now - self._tables_logged_at >= TABLES_INTERVAL_S:
            self._tables_logged_at = now
            for line in self.tables.lines(LOGGED_TABLES):
                self.log(f"snapshot: {line}")


def edge_chunks_of(conn: MySqlConnection, chunks: list[SnapshotChunk], state: SchemaState) -> tuple[str, str]:
    """Return the ids of the chunks that hold the snapshot's first and last row.

    As in Debezium 3.6.1, the first chunk is that of the first table, so no row is marked as the first one if that table
    is empty; the last chunk is that of the last table with rows.

    Args:
        conn: An open connection to the source.
        chunks: All chunks, in the order of the snapshot.
        state: The existing tables.
    """

    def has_rows(chunk: SnapshotChunk) -> bool:
        if chunk.table not in state.tables:
            return False
        with conn.cursor() as cursor:
            cursor.execute(f"SELECT 1 FROM {chunk.table.quoted()} LIMIT 1")
            return cursor.fetchone() is not None

    last = next((c for c in reversed(chunks) if c.last and has_rows(c)), None)
    return (chunks[0].id if chunks else "", last.id if last else "")


@dataclass(slots=True)
class SnapshotMeter:
    """Measure a snapshot.

    Attributes:
        holds_lock: Whether the global lock or table locks are held.
        completed: Whether every chunk is committed.
    """

    holds_lock: bool = False
    completed: bool = False
    _started: float = field(default_factory=time.monotonic)
    _tables: list[str] = field(default_factory=list)
    _chunks: Sequence[SnapshotChunk] = ()
    _queue: ChunkQueue | None = None
    _rows: dict[str, int] = field(default_factory=dict)

    def begin(self, tables: Iterable[TableId], chunks: Sequence[SnapshotChunk], queue: ChunkQueue) -> None:
        """Begin to read chunks.

        Args:
            tables: The captured tables; of some no rows are read.
            chunks: All chunks, those that an earlier attempt has read included.
            queue: Knows how far each chunk is.
        """
        self._tables, self._chunks, self._queue = sorted(map(str, tables)), chunks, queue

    def complete(self, rows: dict[str, int], chunks: Sequence[SnapshotChunk]) -> None:
        """End the snapshot.

        Args:
            rows: Rows by chunk id, as the ledger has them.
            chunks: All chunks.
        """
        self.completed, self._rows, self._chunks = True, rows, chunks

    def on_lock(self, held: bool) -> None:
        """Note whether the lock is held."""
        self.holds_lock = held

    def tables(self) -> list[dict[str, Any]]:
        """Return how far the tables are that are not read completely, for the progress record."""
        return [] if self._queue is None else self._queue.unread_tables()

    def attributes(self) -> dict[str, Any]:
        """Return the attributes now."""
        rows = self._rows if self._queue is None else {**self._rows, **self._queue.rows()}
        finished = set(self._rows) if self._queue is None else set(self._queue.finished_rows) | set(self._rows)
        left = {str(chunk.table) for chunk in self._chunks if chunk.id not in finished}
        scanned: dict[str, int] = {str(chunk.table): 0 for chunk in self._chunks}
        for chunk, n in rows.items():
            table = chunk.rpartition("/")[0]
            scanned[table] = scanned.get(table, 0) + n
        return {
            "TotalNumberOfEventsSeen": sum(scanned.values()),
            "NumberOfEventsFiltered": 0,  # a table that is not captured is not read
            "CapturedTables": bounded_names(self._tables),
            "TotalTableCount": len(self._tables),
            "RemainingTableCount": len(left),
            "SnapshotRunning": not self.completed,
            "SnapshotAborted": False,  # the outcome in the ledger says so; see operate.stream_status
            "SnapshotCompleted": self.completed,
            "SnapshotDurationInSeconds": int(time.monotonic() - self._started),
            "RowsScanned": bounded_counts(scanned),
            "HoldingGlobalLock": self.holds_lock,
            **({} if self._queue is None else self._queue.last_event()),
        }
