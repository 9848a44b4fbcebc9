"""Which of the chunks that were read at one place hold a key: found by bisection, never by a look at each of them.

Chunks of one table are ranges that follow each other. A key's chunk is found among thousands with some ten comparisons;
where only the server can compare (``key_kinds``), with as many questions for a hundred keys at once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeVar

from airflow_provider_mysql_cdc.cdc.binlog.stream import Event
from airflow_provider_mysql_cdc.cdc.drain.chunk_visibility import CommittedBy, ReadAt
from airflow_provider_mysql_cdc.cdc.errors import StateError
from airflow_provider_mysql_cdc.cdc.model.offset import file_number
from airflow_provider_mysql_cdc.cdc.model.stored_record import damaged
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import Bound, SnapshotChunk, compare, kinds_of
from airflow_provider_mysql_cdc.cdc.snapshot.table_lineage import START, Place

K = TypeVar("K", bound=Hashable)
Ask = Callable[[str], Iterable[tuple[Any, ...]]]
"""Runs a SELECT on the source."""

ASK_AT_ONCE = 100
"""Keys in one question to the server; with the longest keys that is 2 MB of SQL."""


class HeldChunks:
    """Hold chunks of one table whose rows contain the events of a name between two places of the binlog.

    Args:
        chunks: Chunks of one list, bounded by the same columns.
        read: The view that they were read in.
        since: The place after which the name was the table's.
        until: The place up to which it was; None for the view.
        gone: Whether the rows were gone before they were read.

    Raises:
        DamagedRecordError: They overlap, or are bounded by different columns.
    """

    def __init__(
        self,
        chunks: Iterable[SnapshotChunk],
        read: ReadAt,
        since: Place = START,
        until: Place | None = None,
        *,
        gone: bool = False,
    ) -> None:
        self.gone = gone
        self.chunks = sorted(chunks, key=lambda chunk: chunk.number)
        self._read, self._since, self._until = read, since, until
        first = self.chunks[0]
        self.columns, self.kinds = first.columns, kinds_of(first)
        self.everything = any(not c.columns or (c.low is None and c.high is None) for c in self.chunks)
        if any((c.table, c.columns, c.kinds) != (first.table, first.columns, first.kinds) for c in self.chunks):
            raise damaged(f"the chunks of {first.table} are bounded by different columns")
        self._by_server = any(kind.rank is None for kind in self.kinds)
        self._lows = [None if c.low is None else self._rank(c.low) for c in self.chunks]
        self._highs = [None if c.high is None else self._rank(c.high) for c in self.chunks]
        if not self.everything:
            self._require_order()

    def _rank(self, bound: Bound) -> tuple[Any, ...]:
        if self._by_server:
            return bound
        return tuple(kind.rank(value) for kind, value in zip(self.kinds, bound, strict=True) if kind.rank is not None)

    def _require_order(self) -> None:
        """Check that the chunks follow each other, so that bisection finds what a look at each would find."""
        for before, after in pairwise(range(len(self.chunks))):
            high, low = self._highs[before], self._lows[after]
            if high is None or low is None or (not self._by_server and low < high):
                raise damaged(f"chunks {before} and {after} of {self.chunks[0].table} do not follow each other")
        if not self._by_server:
            for own_low, own_high in zip(self._lows, self._highs, strict=True):
                if own_low is not None and own_high is not None and own_high < own_low:
                    raise damaged(f"a chunk of {self.chunks[0].table} ends before it begins")

    def contains(self, event: Event, by: CommittedBy) -> bool:
        """Return whether the chunks' rows contain a transaction's changes of the name.

        Args:
            event: An event of it.
            by: The transaction.

        Raises:
            StateError: The table was renamed between two views, and the stream is read on another server.
        """
        if not self._read.contains(event, by):
            return False
        if self._since == START and self._until is None:
            return True
        if self._read.gtids is not None:
            raise StateError(
                "which table a name meant cannot be told on this server",
                where=f"table {self.chunks[0].table}, {event.where()}",
                why="the table was renamed between two views of its snapshot, and places of binlog files mean nothing "
                "on another server",
                remedy="set database.hostname to the snapshot's server until the drain has passed "
                f"{self._read.offset}; or give it up (DAG mysql_cdc_reset_offset with current) and take a new snapshot",
            )
        here = (file_number(event.file), event.end_pos)
        return self._since < here and (self._until is None or here <= self._until)

    def holding(self, keys: Mapping[K, Bound], ask: Ask) -> set[K]:
        """Return those of some keys that lie in one of the chunks.

        Args:
            keys: Key values in their written form (``key_kinds``), by whatever names them.
            ask: Asks the source, where only the server can compare.
        """
        if self.everything:
            return set(keys)
        if self._by_server:
            return self._asked(keys, ask)
        highs = [high for high in self._highs if high is not None]
        found = set()
        for name, bound in keys.items():
            key = self._rank(bound)
            at = bisect_left(highs, key)
            if at < len(self.chunks) and ((low := self._lows[at]) is None or low < key):
                found.add(name)
        return found

    def _asked(self, keys: Mapping[K, Bound], ask: Ask) -> set[K]:
        """Let MySQL compare, with the columns' own character sets and collations; the table itself is not touched."""
        ends = {name: (0, sum(high is not None for high in self._highs)) for name in keys}
        while open_ends := {name: (low + high) // 2 for name, (low, high) in ends.items() if low < high}:
            beyond = self._beyond({name: (keys[name], self._highs[at]) for name, at in open_ends.items()}, ask)
            for name, at in open_ends.items():
                ends[name] = (at + 1, ends[name][1]) if name in beyond else (ends[name][0], at)
        places = {name: at for name, (at, _) in ends.items() if at < len(self.chunks)}
        # Where the chunk before ends where this one begins, the key is known to be beyond.
        unsure = {
            name: (keys[name], self._lows[at])
            for name, at in places.items()
            if self._lows[at] is not None and (at == 0 or self._highs[at - 1] != self._lows[at])
        }
        beyond = self._beyond(unsure, ask)
        return {name for name in places if name not in unsure or name in beyond}

    def _beyond(self, pairs: Mapping[K, tuple[Bound, Bound | None]], ask: Ask) -> set[K]:
        """Return the names of those pairs whose first key is greater than the second."""
        names = list(pairs)
        found = set()
        for start in range(0, len(names), ASK_AT_ONCE):
            part = names[start : start + ASK_AT_ONCE]
            found |= {part[int(row[0])] for row in ask(self._question([pairs[name] for name in part]))}
        return found

    def _question(self, pairs: Sequence[tuple[Bound, Bound | None]]) -> str:
        def values(bound: Bound, letter: str) -> Iterator[str]:
            for i, (kind, value) in enumerate(zip(self.kinds, bound, strict=True)):
                yield f"{kind.apart(value)} AS {letter}{i}"

        rows = [
            "SELECT " + ", ".join([f"{n} AS n", *values(key, "k"), *values(bound or (), "b")])
            for n, (key, bound) in enumerate(pairs)
        ]
        left, right = ([f"{letter}{i}" for i in range(len(self.kinds))] for letter in "kb")
        return f"SELECT n FROM ({' UNION ALL '.join(rows)}) AS pairs WHERE {compare(left, right, greater=True)}"
