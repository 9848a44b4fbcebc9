"""Which of the chunks that were read in one view contains a key: found by bisection, not by comparing with each chunk.

Chunks of one table are ranges that follow each other. A key's chunk is found among thousands with some ten comparisons;
where only the server can compare (``key_kinds``), with as many queries for a hundred keys at once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeVar

from airflow_provider_mysql_cdc.cdc.binlog.stream import Event
from airflow_provider_mysql_cdc.cdc.drain.chunk_visibility import ChunkVisibility, CommittingTransaction
from airflow_provider_mysql_cdc.cdc.errors import StateError
from airflow_provider_mysql_cdc.cdc.model.offset import file_number
from airflow_provider_mysql_cdc.cdc.model.stored_record import damaged_record
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import Bound, SnapshotChunk, compare, kinds_of
from airflow_provider_mysql_cdc.cdc.snapshot.table_lineage import START, FilePosition

K = TypeVar("K", bound=Hashable)
RunQuery = Callable[[str], Iterable[tuple[Any, ...]]]
"""Runs a SELECT on the source."""

KEYS_PER_QUERY = 100
"""Keys in one query; with the longest keys that is 2 MB of SQL."""


class ChunkLookup:
    """Hold chunks of one table whose rows contain the events of a table name between two binlog positions.

    Args:
        chunks: Chunks of one list, bounded by the same columns.
        visibility: The view that they were read in.
        since: The position after which the name was the table's.
        until: The position up to which it was; None for that of the view.
        dropped: Whether the rows were deleted before they were read.

    Raises:
        DamagedRecordError: They overlap, or are bounded by different columns.
    """

    def __init__(
        self,
        chunks: Iterable[SnapshotChunk],
        visibility: ChunkVisibility,
        since: FilePosition = START,
        until: FilePosition | None = None,
        *,
        dropped: bool = False,
    ) -> None:
        self.dropped = dropped
        self.chunks = sorted(chunks, key=lambda chunk: chunk.number)
        self._visibility, self._since, self._until = visibility, since, until
        first = self.chunks[0]
        self.columns, self.kinds = first.columns, kinds_of(first)
        self.whole_table = any(not c.columns or (c.low is None and c.high is None) for c in self.chunks)
        if any((c.table, c.columns, c.kinds) != (first.table, first.columns, first.kinds) for c in self.chunks):
            raise damaged_record(f"the chunks of {first.table} are bounded by different columns")
        self._compared_by_server = any(kind.sort_key is None for kind in self.kinds)
        self._lows = [None if c.low is None else self._sort_key(c.low) for c in self.chunks]
        self._highs = [None if c.high is None else self._sort_key(c.high) for c in self.chunks]
        if not self.whole_table:
            self._require_order()

    def _sort_key(self, bound: Bound) -> tuple[Any, ...]:
        if self._compared_by_server:
            return bound
        return tuple(
            kind.sort_key(value) for kind, value in zip(self.kinds, bound, strict=True) if kind.sort_key is not None
        )

    def _require_order(self) -> None:
        """Check that the chunks follow each other, as bisection requires."""
        for before, after in pairwise(range(len(self.chunks))):
            high, low = self._highs[before], self._lows[after]
            if high is None or low is None or (not self._compared_by_server and low < high):
                raise damaged_record(f"chunks {before} and {after} of {self.chunks[0].table} do not follow each other")
        if not self._compared_by_server:
            for own_low, own_high in zip(self._lows, self._highs, strict=True):
                if own_low is not None and own_high is not None and own_high < own_low:
                    raise damaged_record(f"a chunk of {self.chunks[0].table} ends before it begins")

    def contains(self, event: Event, transaction: CommittingTransaction) -> bool:
        """Return whether the chunks' rows contain a transaction's changes of the table of that name.

        Args:
            event: An event of it.
            transaction: The transaction.

        Raises:
            StateError: The table was renamed between two views, and the stream is read from another server.
        """
        if not self._visibility.contains(event, transaction):
            return False
        if self._since == START and self._until is None:
            return True
        if self._visibility.gtids is not None:
            raise StateError(
                "which table an event belongs to is not known on this server",
                where=f"table {self.chunks[0].table}, {event.where()}",
                why="the table was renamed between two views of its snapshot, and binlog positions are not comparable "
                "between servers",
                remedy="set database.hostname to the snapshot's server until the drain has passed "
                f"{self._visibility.offset}; or give the batch up (DAG mysql_cdc_reset_offset with current) and take a "
                "new snapshot",
            )
        position = (file_number(event.file), event.end_pos)
        return self._since < position and (self._until is None or position <= self._until)

    def matching_keys(self, keys: Mapping[K, Bound], run_query: RunQuery) -> set[K]:
        """Return those of some keys that lie in one of the chunks.

        Args:
            keys: Key values in their written form (``key_kinds``), by whatever names them.
            run_query: Runs a query on the source, where only the server can compare.
        """
        if self.whole_table:
            return set(keys)
        if self._compared_by_server:
            return self._match_on_server(keys, run_query)
        highs = [high for high in self._highs if high is not None]
        matching = set()
        for name, bound in keys.items():
            sort_key = self._sort_key(bound)
            index = bisect_left(highs, sort_key)
            if index < len(self.chunks) and ((low := self._lows[index]) is None or low < sort_key):
                matching.add(name)
        return matching

    def _match_on_server(self, keys: Mapping[K, Bound], run_query: RunQuery) -> set[K]:
        """Let MySQL compare, with the columns' own character sets and collations; the table itself is not read."""
        ranges = {name: (0, sum(high is not None for high in self._highs)) for name in keys}
        while middles := {name: (low + high) // 2 for name, (low, high) in ranges.items() if low < high}:
            above = self._keys_above({name: (keys[name], self._highs[at]) for name, at in middles.items()}, run_query)
            for name, at in middles.items():
                ranges[name] = (at + 1, ranges[name][1]) if name in above else (ranges[name][0], at)
        candidates = {name: at for name, (at, _) in ranges.items() if at < len(self.chunks)}
        # Where the previous chunk ends where this one begins, the key is known to be above the lower bound.
        unchecked = {
            name: (keys[name], self._lows[at])
            for name, at in candidates.items()
            if self._lows[at] is not None and (at == 0 or self._highs[at - 1] != self._lows[at])
        }
        above = self._keys_above(unchecked, run_query)
        return {name for name in candidates if name not in unchecked or name in above}

    def _keys_above(self, pairs: Mapping[K, tuple[Bound, Bound | None]], run_query: RunQuery) -> set[K]:
        """Return the names of those pairs whose first key is greater than the second."""
        names = list(pairs)
        above = set()
        for start in range(0, len(names), KEYS_PER_QUERY):
            batch = names[start : start + KEYS_PER_QUERY]
            above |= {batch[int(row[0])] for row in run_query(self._comparison_query([pairs[name] for name in batch]))}
        return above

    def _comparison_query(self, pairs: Sequence[tuple[Bound, Bound | None]]) -> str:
        def values(bound: Bound, prefix: str) -> Iterator[str]:
            for i, (kind, value) in enumerate(zip(self.kinds, bound, strict=True)):
                yield f"{kind.standalone_literal(value)} AS {prefix}{i}"

        rows = [
            "SELECT " + ", ".join([f"{n} AS n", *values(key, "k"), *values(bound or (), "b")])
            for n, (key, bound) in enumerate(pairs)
        ]
        left, right = ([f"{letter}{i}" for i in range(len(self.kinds))] for letter in "kb")
        return f"SELECT n FROM ({' UNION ALL '.join(rows)}) AS pairs WHERE {compare(left, right, greater=True)}"
