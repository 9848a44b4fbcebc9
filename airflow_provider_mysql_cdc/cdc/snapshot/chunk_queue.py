"""The chunks of a snapshot that are waiting for a task, and the progress of the tasks."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.job.task_operation import EMPTY, EmptyMessage
from airflow_provider_mysql_cdc.cdc.model.clock import duration_text
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk
from airflow_provider_mysql_cdc.cdc.snapshot.chunk_records import ListEntry
from airflow_provider_mysql_cdc.cdc.snapshot.snapshot_operations import AssignedChunk, ChunkRows, NextChunk
from airflow_provider_mysql_cdc.cdc.snapshot.table_progress import SnapshotProgress

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


def edge_chunks_of(conn: Any, chunks: list[SnapshotChunk], state: SchemaState) -> tuple[str, str]:
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
