"""The chunks of a snapshot that wait for a task, and how far the tasks are."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk
from airflow_provider_mysql_cdc.cdc.snapshot.chunk_records import Place
from airflow_provider_mysql_cdc.cdc.snapshot.remaining_chunks import PlacedChunk


@dataclass(slots=True)
class ChunkQueue:
    """Hand out chunks to the tasks and count what they report.

    Args:
        waiting: Chunks nobody reads yet, in the order of the snapshot.
        finished: Rows of chunks that are done, this attempt's and earlier ones'.
        log: Takes one line of text.
        total: Chunks in all.
        ends: Ids of the first chunk of the first table with rows, and of the last chunk of the last one.
        places: What the record of each chunk says of the list of chunks.
    """

    waiting: list[PlacedChunk]
    finished: dict[str, int]
    log: Log
    total: int = 0
    ends: tuple[str, str] = ("", "")
    places: dict[str, Place] = field(default_factory=dict)
    _running: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _began: float = field(default_factory=time.monotonic)
    _said: float = 0.0
    _earlier: tuple[int, int] = field(init=False)

    def __post_init__(self) -> None:
        # Chunks and rows of earlier attempts, which say nothing of how quickly this one goes.
        self._earlier = len(self.finished), sum(self.finished.values())

    def next(self, task: int, request: dict[str, Any]) -> dict[str, Any]:
        """Reply with the next chunk, or with none."""
        with self._lock:
            if not self.waiting:
                return {"chunk": None}
            placed = self.waiting.pop(0)
            return {
                "chunk": placed.to_json(),
                "first": placed.chunk.id == self.ends[0],
                "final": placed.chunk.id == self.ends[1],
                "place": self.places[placed.chunk.id],
            }

    def progress(self, task: int, request: dict[str, Any]) -> dict[str, Any]:
        """Take a task's count of rows in its chunk."""
        with self._lock:
            self._running[request["chunk"]] = int(request["rows"])
            self._say()
        return {}

    def done(self, task: int, request: dict[str, Any]) -> dict[str, Any]:
        """Take note that a chunk is committed."""
        with self._lock:
            self._running.pop(request["chunk"], None)
            self.finished[request["chunk"]] = int(request["rows"])
            self._say()
        return {}

    def _say(self) -> None:
        now = time.monotonic()
        if now - self._said < 5.0:
            return
        self._said = now
        rows = sum(self.finished.values()) + sum(self._running.values())
        seconds = max(now - self._began, 0.001)
        done, (chunks, earlier) = len(self.finished), self._earlier
        left = f", about {seconds * (self.total - done) / (done - chunks):.0f} s left" if done > chunks else ""
        speed = (rows - earlier) / seconds
        self.log(f"snapshot: {rows:,} rows, {speed:,.0f}/s, {done} of {self.total} chunks{left}")


def ends_of(conn: Any, chunks: list[SnapshotChunk], sources: dict[str, TableId], state: SchemaState) -> tuple[str, str]:
    """Return the ids of the chunks that hold the snapshot's first and last row.

    The first is the first table's, and no row is marked when that table is empty; the last is that of the last table
    with rows (read from Debezium 3.6.1).

    Args:
        conn: A connection that sees the tables.
        chunks: All chunks, in the order of the snapshot.
        sources: Where a chunk's rows stand now, by its id, for tables that were renamed.
        state: The tables there are.
    """

    def filled(chunk: SnapshotChunk) -> bool:
        table = sources.get(chunk.id, chunk.table)
        if table not in state.tables:
            return False
        with conn.cursor() as cursor:
            cursor.execute(f"SELECT 1 FROM {table.quoted()} LIMIT 1")
            return cursor.fetchone() is not None

    last = next((c for c in reversed(chunks) if c.last and filled(c)), None)
    return (chunks[0].id if chunks else "", last.id if last else "")
