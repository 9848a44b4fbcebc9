"""Fold rows and events of one bucket as bytes, and leave to a fold by keys what is not plainly equal.

Most keys have one row and events of one partition, the last of which has the same bytes. Nothing else has to be known
of them. Every other key is handed on as it came (``folding``), so what counts as a difference is decided there alone.
"""

from __future__ import annotations

from collections.abc import Collection

import orjson

from airflow_provider_mysql_cdc.cdc.verify.carried_rows import CarriedRows, DamagedRow
from airflow_provider_mysql_cdc.cdc.verify.entries import HEADER, EntryKind, FoldEntry
from airflow_provider_mysql_cdc.cdc.verify.folding import BucketFold, BucketResult

_ROW, _ALIVE, _DEAD = int(EntryKind.ROW), int(EntryKind.ALIVE), int(EntryKind.DEAD)
_KINDS = tuple(EntryKind)
_KeyRow = tuple[int, bytes]
"""Partition and value."""
_LastEvent = tuple[int, bytes, int, int, int]
"""Partition, value, offset, order and kind."""


class _PlainTable:
    """Hold the rows and the last events of one table, by key."""

    __slots__ = ("events", "older", "rows")

    def __init__(self) -> None:
        self.rows: dict[bytes, _KeyRow] = {}
        self.events: dict[bytes, _LastEvent] = {}
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
        pos, end, size, unpack, tables, kinds = 0, len(block), HEADER.size, HEADER.unpack_from, self._tables, _KINDS
        while pos < end:
            number, kind, partition, offset, order, key_size, value_size = unpack(block, pos)
            key_start = pos + size
            value_start = key_start + key_size
            pos = value_start + value_size
            key, value = block[key_start:value_start], block[value_start:pos]
            if kind > _DEAD:
                self._fold.add((FoldEntry(number, kinds[kind], partition, offset, order, key, value),))
                continue
            if number in self._followed:
                self._hand_on_event(number, key, (partition, value, offset, order, kind))
                continue
            table = tables.get(number)
            if table is None:
                table = tables[number] = _PlainTable()
            if kind != _ROW:
                event = partition, value, offset, order, kind
                known = table.events.setdefault(key, event)
                if known is not event:
                    self._add_again(number, key, known, event)
            elif key in table.rows:  # two rows with one key
                self._hand_on_event(number, key, (partition, value, 0, 0, _ROW))
            else:
                table.rows[key] = partition, value

    def _add_again(self, number: int, key: bytes, known: _LastEvent, event: _LastEvent) -> None:
        """Add an event of a key that has one already."""
        table = self._tables[number]
        if known[0] != event[0] or self._is_damaged(number, event):
            self._hand_on_event(number, key, event)
        elif self._is_damaged(number, known):
            self._hand_on_event(number, key, known)
            table.events[key] = event
        else:
            table.events[key] = max(known, event, key=_offset)
            table.older += 1

    def _is_damaged(self, number: int, event: _LastEvent) -> bool:
        """Return whether an event does not say what the row after it is."""
        try:
            return event[4] == _ALIVE and not _is_object(self._rows.canonical(number, event[1]))
        except DamagedRow:
            return True

    def _hand_on_event(self, number: int, key: bytes, event: _LastEvent) -> None:
        """Hand an event on, or a row."""
        partition, value, offset, order, kind = event
        if self._is_damaged(number, event):
            kind, value = int(EntryKind.UNREADABLE), b"the row after the event cannot be read"
        else:
            value = self._rows.canonical(number, value)
        self._hand_on(number, key, kind, partition, value, offset, order)

    def _hand_on(
        self, table: int, key: bytes, kind: int, partition: int, value: bytes, offset: int = 0, order: int = 0
    ) -> None:
        self._fold.add((FoldEntry(table, _KINDS[kind], partition, offset, order, key, value),))

    def result(self) -> BucketResult:
        """Compare, and return what was found."""
        for number, table in self._tables.items():
            rows, equal, is_simple = table.rows, 0, self._fold.is_simple(number)
            for key, event in table.events.items():
                if rows.get(key) == event[:2] and event[4] == _ALIVE and is_simple(key):
                    equal += 1
                    del rows[key]
                else:
                    self._hand_on_event(number, key, event)
            for key, (partition, value) in rows.items():
                self._hand_on_event(number, key, (partition, value, 0, 0, _ROW))
            self._fold.add_equal(number, rows=equal, events=equal + table.older)
        self._tables.clear()
        return self._fold.result()


def _offset(event: _LastEvent) -> int:
    return event[2]


def _is_object(text: bytes) -> bool:
    try:
        return isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False
