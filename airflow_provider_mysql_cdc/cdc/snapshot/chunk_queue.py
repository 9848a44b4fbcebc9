"""The chunks of a snapshot that wait for a task, and how far the tasks are."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.job.task_operation import EMPTY, EmptyMessage
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk
from airflow_provider_mysql_cdc.cdc.snapshot.chunk_records import ListEntry
from airflow_provider_mysql_cdc.cdc.snapshot.remaining_chunks import ResolvedChunk
from airflow_provider_mysql_cdc.cdc.snapshot.snapshot_operations import AssignedChunk, ChunkRows, NextChunk


@dataclass(slots=True)
class ChunkQueue:
    """Hand out chunks to the tasks and count what they report.

    Args:
        waiting: Chunks nobody reads yet, in the order of the snapshot.
        finished_rows: Rows of chunks that are done, this attempt's and earlier ones'.
        log: Takes one line of text.
        total: Chunks in all.
        edge_chunks: Ids of the first chunk of the first table with rows, and of the last chunk of the last one.
        list_entries: What the record of each chunk says of the list of chunks.
    """

    waiting: list[ResolvedChunk]
    finished_rows: dict[str, int]
    log: Log
    total: int = 0
    edge_chunks: tuple[str, str] = ("", "")
    list_entries: dict[str, ListEntry] = field(default_factory=dict)
    _running_rows: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _started_at: float = field(default_factory=time.monotonic)
    _logged_at: float = 0.0
    _earlier: tuple[int, int] = field(init=False)

    def __post_init__(self) -> None:
        # Chunks and rows of earlier attempts, which say nothing of how quickly this one goes.
        self._earlier = len(self.finished_rows), sum(self.finished_rows.values())

    def next(self, task: int, request: EmptyMessage) -> NextChunk:
        """Reply with the next chunk, or with none."""
        with self._lock:
            if not self.waiting:
                return NextChunk()
            resolved = self.waiting.pop(0)
            first, final = (resolved.chunk.id == edge_chunk for edge_chunk in self.edge_chunks)
            return NextChunk(AssignedChunk(resolved, first, final, self.list_entries[resolved.chunk.id]))

    def progress(self, task: int, request: ChunkRows) -> EmptyMessage:
        """Take a task's count of rows in its chunk."""
        with self._lock:
            self._running_rows[request.chunk] = request.rows
            self._log_progress()
        return EMPTY

    def done(self, task: int, request: ChunkRows) -> EmptyMessage:
        """Take note that a chunk is committed."""
        with self._lock:
            self._running_rows.pop(request.chunk, None)
            self.finished_rows[request.chunk] = request.rows
            self._log_progress()
        return EMPTY

    def _log_progress(self) -> None:
        now = time.monotonic()
        if now - self._logged_at < 5.0:
            return
        self._logged_at = now
        rows = sum(self.finished_rows.values()) + sum(self._running_rows.values())
        seconds = max(now - self._started_at, 0.001)
        done, (chunks, earlier) = len(self.finished_rows), self._earlier
        remaining = f", about {seconds * (self.total - done) / (done - chunks):.0f} s left" if done > chunks else ""
        speed = (rows - earlier) / seconds
        self.log(f"snapshot: {rows:,} rows, {speed:,.0f}/s, {done} of {self.total} chunks{remaining}")


def edge_chunks_of(
    conn: Any, chunks: list[SnapshotChunk], sources: dict[str, TableId], state: SchemaState
) -> tuple[str, str]:
    """Return the ids of the chunks that hold the snapshot's first and last row.

    The first is the first table's, and no row is marked when that table is empty; the last is that of the last table
    with rows (read from Debezium 3.6.1).

    Args:
        conn: A connection that sees the tables.
        chunks: All chunks, in the order of the snapshot.
        sources: Where a chunk's rows stand now, by its id, for tables that were renamed.
        state: The tables there are.
    """

    def has_rows(chunk: SnapshotChunk) -> bool:
        table = sources.get(chunk.id, chunk.table)
        if table not in state.tables:
            return False
        with conn.cursor() as cursor:
            cursor.execute(f"SELECT 1 FROM {table.quoted()} LIMIT 1")
            return cursor.fetchone() is not None

    last = next((c for c in reversed(chunks) if c.last and has_rows(c)), None)
    return (chunks[0].id if chunks else "", last.id if last else "")
