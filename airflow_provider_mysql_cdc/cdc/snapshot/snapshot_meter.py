"""Measure a snapshot in its driver: the attributes of the family ``snapshot`` (MET-01 to MET-14, MET-22)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_mysql_cdc.cdc.commit.plan import bounded_counts
from airflow_provider_mysql_cdc.cdc.metrics.stream_metrics import bounded_names
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk
from airflow_provider_mysql_cdc.cdc.snapshot.chunk_queue import ChunkQueue


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
