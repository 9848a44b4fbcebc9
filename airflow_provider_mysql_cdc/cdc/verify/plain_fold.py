"""Fold rows and events of one bucket as bytes, and leave to a fold by keys what is not plainly equal.

Most keys have one row and events of one partition, the last of which has the same bytes. Nothing else has to be known
of them. Every other key is handed on as it came (``folding``), so what counts as a difference is decided there alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import orjson

from airflow_provider_mysql_cdc.cdc.verify.carried_rows import CarriedRows, DamagedRow
from airflow_provider_mysql_cdc.cdc.verify.entries import (
    EVENT_RUN,
    HEADER,
    PLACE,
    ROW_RUN,
    EntryKind,
    FoldEntry,
    event_of_run,
    run_entries,
)
from airflow_provider_mysql_cdc.cdc.verify.folding import BucketFold, BucketResult

_ROW, _DEAD = int(EntryKind.ROW), int(EntryKind.DEAD)
_KINDS = tuple(EntryKind)
_PLACE_BYTES = PLACE.size
_ByPartition = dict[int, dict[bytes, bytes]]
"""Rows, or last events, of each partition, by key; the values of events have their place behind them."""


class _PlainTable:
    """Hold the rows and the last events of one table."""

    __slots__ = ("events", "older", "rows")

    def __init__(self) -> None:
        self.rows: _ByPartition = {}
        self.events: _ByPartition = {}
        self.older = 0


class PlainFold:
    """Fold the entries of one bucket.

    Args:
        fold: Takes the entries of all keys that are not plainly equal.
        rows: Reads rows that are carried as they were written.
        followed: Numbers of tables of which all entries are handed on, because the past of each key is looked at.
    """

    def __init__(self, fold: BucketFold, rows: CarriedRows, followed: Collection[int] = ()) -> None:
        self._fold, self._rows, self._followed = fold, rows, followed
        self._tables: dict[int, _PlainTable] = {}

    def add(self, block: bytes) -> None:
        """Add the entries of a block; blocks may come in any order.

        Args:
            block: The block (``entries.EntryBlocks``).
        """
        pos, end, size, unpack, kinds = 0, len(block), HEADER.size, HEADER.unpack_from, _KINDS
        while pos < end:
            number, kind, partition, offset, order, key_size, value_size = unpack(block, pos)
            key_start = pos + size
            value_start = key_start + key_size
            pos = value_start + value_size
            if kind >= ROW_RUN:
                self._add_run(number, kind, partition, run_entries(memoryview(block)[value_start:pos]))
                continue
            key, value = block[key_start:value_start], block[value_start:pos]
            if kind > _DEAD:
                self._fold.add((FoldEntry(number, kinds[kind], partition, offset, order, key, value),))
            elif kind == _ROW:
                self._add_run(number, ROW_RUN, partition, ([key], [value]))
            else:
                self._add_run(number, EVENT_RUN, partition, ([key], [value + PLACE.pack(offset, order)]))

    def _add_run(self, number: int, kind: int, partition: int, run: tuple[list[bytes], list[bytes]]) -> None:
        keys, values = run
        if number in self._followed:
            self._hand_on(number, kind, partition, zip(keys, values, strict=True))
            return
        table = self._tables.get(number)
        if table is None:
            table = self._tables[number] = _PlainTable()
        known = (table.rows if kind == ROW_RUN else table.events).setdefault(partition, {})
        new = dict(zip(keys, values, strict=True))
        if len(new) == len(keys) and known.keys().isdisjoint(new):
            known.update(new)
            return
        for key, value in zip(keys, values, strict=True):
            found = known.setdefault(key, value)
            if found is value:
                continue
            if kind == ROW_RUN:  # two rows with one key
                self._hand_on(number, kind, partition, ((key, value),))
            else:
                self._add_again(number, partition, key, value)

    def _add_again(self, number: int, partition: int, key: bytes, event: bytes) -> None:
        """Add an event of a key that has one already in the same partition."""
        table = self._tables[number]
        known = table.events[partition][key]
        if self._is_damaged(number, event[:-_PLACE_BYTES]):
            self._hand_on(number, EVENT_RUN, partition, ((key, event),))
        elif self._is_damaged(number, known[:-_PLACE_BYTES]):
            self._hand_on(number, EVENT_RUN, partition, ((key, known),))
            table.events[partition][key] = event
        else:
            table.events[partition][key] = max(known, event, key=_place)
            table.older += 1

    def _is_damaged(self, number: int, row: bytes) -> bool:
        """Return whether an event does not say what the row after it is; one without such a row does."""
        try:
            return bool(row) and not _is_object(self._rows.canonical(number, row))
        except DamagedRow:
            return True

    def _hand_on(self, number: int, kind: int, partition: int, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """Hand on rows or events, given their keys and values."""
        for key, value in entries:
            if kind == ROW_RUN:
                row = self._rows.canonical(number, value)
                entry = FoldEntry(number, EntryKind.ROW, partition, 0, 0, key, row)
            else:
                entry = event_of_run(number, partition, key, value)
                if self._is_damaged(number, entry.value):
                    reason = b"the row after the event cannot be read"
                    entry = entry._replace(kind=EntryKind.UNREADABLE, value=reason)
                else:
                    entry = entry._replace(value=self._rows.canonical(number, entry.value))
            self._fold.add((entry,))

    def result(self) -> BucketResult:
        """Compare, and return what was found."""
        added = self._fold.added_keys()
        for number, table in self._tables.items():
            equal = 0
            # Keys of which other entries have been handed on, or that are in several partitions, are judged there.
            others = {*added.get(number, ()), *_repeated(table.rows), *_repeated(table.events)}
            truncated = self._fold.is_truncated(number)
            for partition in table.rows.keys() | table.events.keys():
                rows, events = table.rows.get(partition, {}), table.events.get(partition, {})
                row_of = rows.get
                same = [] if truncated else [k for k, event in events.items() if row_of(k) == event[:-_PLACE_BYTES]]
                if others:
                    same = [key for key in same if key not in others]
                equal += len(same)
                if len(same) < len(events) or len(same) < len(rows):
                    known = set(same)
                    self._hand_on(number, EVENT_RUN, partition, _without(events, known))
                    self._hand_on(number, ROW_RUN, partition, _without(rows, known))
            self._fold.add_equal(number, rows=equal, events=equal + table.older)
        self._tables.clear()
        return self._fold.result()


def _repeated(parts: _ByPartition) -> set[bytes]:
    """Return the keys that are in several partitions."""
    repeated, seen = set[bytes](), set[bytes]()
    for part in parts.values() if len(parts) > 1 else ():
        repeated |= seen & part.keys()
        seen |= part.keys()
    return repeated


def _without(entries: Mapping[bytes, bytes], keys: Collection[bytes]) -> Iterable[tuple[bytes, bytes]]:
    return ((key, value) for key, value in entries.items() if key not in keys)


def _place(event: bytes) -> bytes:
    return event[-_PLACE_BYTES:]


def _is_object(text: bytes) -> bool:
    try:
        return isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False
