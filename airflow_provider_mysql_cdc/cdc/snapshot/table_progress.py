"""How far a snapshot is with each table: rows of the estimated number, chunks, and the time that is left."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from airflow_provider_mysql_cdc.cdc.model.clock import duration_text
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk

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
