"""What the events of one key lead to, and which of its records a repair has settled."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_provider_mysql_cdc.cdc.verify.entries import FoldEntry

KeyEvent = tuple[int, int, int, bytes | None, bool]
"""Partition, offset, order and values of an event (None for a delete), and whether its record has the table's key."""


class Truncates:
    """Hold where the rows of a table are deleted as a whole: the last such event of each partition."""

    __slots__ = ("_offsets", "_order")

    def __init__(self) -> None:
        self._order = 0
        self._offsets: dict[int, int] = {}

    def add(self, entry: FoldEntry) -> None:
        """Keep an event if it is the last one."""
        self._order = max(self._order, entry.order)
        self._offsets[entry.partition] = max(self._offsets.get(entry.partition, 0), entry.offset)

    def delete(self, event: KeyEvent) -> bool:
        """Return whether an event is before the last of them; positions begin anew on another server."""
        offset = self._offsets.get(event[0])
        return event[2] < self._order if offset is None else event[1] < offset


class _Past:
    """Hold what few keys have: records of repairs, by partition, and records that are no events, with the reason.

    ``settled`` has the places of records without keys that a repair names.
    """

    __slots__ = ("of_any_table", "repairs", "settled", "unreadable")

    def __init__(self) -> None:
        self.repairs: dict[int, set[int]] = {}
        self.settled: set[tuple[int, int]] = set()
        self.of_any_table: list[tuple[int, int]] = []
        self.unreadable: list[tuple[int, int, str]] = []

    def settles(self, partition: int, offset: int) -> bool:
        """Return whether a record is before the last one of a repair, or a repair names it."""
        if (partition, offset) in self.settled:
            return True
        repairs = self.repairs.get(partition)
        return repairs is not None and offset < max(repairs) and offset not in repairs


class KeyState:
    """Hold what is known of one key.

    ``events`` has the last event of each partition, and ``tombstones`` the offset of the last tombstone of each.
    """

    __slots__ = ("_past", "events", "row", "row_partition", "tombstones")

    def __init__(self) -> None:
        self.row: bytes | None = None
        self.row_partition = 0
        self.events: list[KeyEvent] = []
        self.tombstones: dict[int, int] = {}
        self._past: _Past | None = None

    def add_event(self, event: KeyEvent) -> None:
        """Keep an event if it is the last one of its partition."""
        for index, known in enumerate(self.events):
            if known[0] == event[0]:
                if event[1] > known[1]:
                    self.events[index] = event
                return
        self.events.append(event)

    def add_tombstone(self, partition: int, offset: int) -> None:
        """Keep a tombstone if it is the last one of its partition."""
        self.tombstones[partition] = max(offset, self.tombstones.get(partition, 0))

    def add_repair(self, partition: int, offset: int, *, of_any_table: bool = False) -> None:
        """Keep the place of a record that a repair has written, perhaps for the row of another table."""
        if of_any_table:
            self._known_past().of_any_table.append((partition, offset))
        else:
            self._known_past().repairs.setdefault(partition, set()).add(offset)

    def add_settled(self, partition: int, offset: int) -> None:
        """Keep the place of a record without a key that a repair has settled."""
        self._known_past().settled.add((partition, offset))

    def add_unreadable(self, partition: int, offset: int, reason: str) -> None:
        """Keep a record that is no event."""
        self._known_past().unreadable.append((partition, offset, reason))

    def _known_past(self) -> _Past:
        past = self._past
        if past is None:
            past = self._past = _Past()
        return past

    def settle(self) -> None:
        """Forget the events that a repair has settled; call it when all entries are added."""
        if (past := self._past) is None:
            return
        for partition, offset in past.of_any_table:
            if self.row is None or partition != self.row_partition:
                past.repairs.setdefault(partition, set()).add(offset)
        if past.repairs:
            self.events = [event for event in self.events if not past.settles(event[0], event[1])]

    def left_unreadable(self) -> Iterator[tuple[int, int, str]]:
        """Yield partition, offset and reason of the records that are no events, and that no repair has settled."""
        if (past := self._past) is not None:
            yield from (each for each in sorted(past.unreadable) if not past.settles(each[0], each[1]))

    def repaired_until(self) -> dict[int, int]:
        """Return the offset of the last record of a repair, by partition."""
        return {} if self._past is None else {p: max(offsets) for p, offsets in self._past.repairs.items()}

    def row_after(self, event: KeyEvent | None, truncates: Truncates | None) -> bytes | None:
        """Return the row after the last event; None where that is a delete, or a tombstone or TRUNCATE is behind it."""
        if event is None or self.tombstones.get(event[0], -1) > event[1]:
            return None
        return None if truncates is not None and truncates.delete(event) else event[3]

    def places(self) -> tuple[tuple[int, int], ...]:
        """Return partition and offset of the last records of each partition that have the table's key."""
        events = ((partition, offset) for partition, offset, *_, has_key in self.events if has_key)
        return tuple(sorted({*events, *self._left_tombstones()}))

    def _left_tombstones(self) -> Iterator[tuple[int, int]]:
        """Yield the last tombstone of each partition, unless a repair has written or settled it."""
        past = self._past
        for partition, offset in self.tombstones.items():
            if past is None or not (past.settles(partition, offset) or offset in past.repairs.get(partition, ())):
                yield partition, offset

    def partitions(self) -> set[int]:
        """Return the partitions of the row and of all records with its key: one, as the key chooses it.

        A repair deletes a row where its last event is, whichever partition that is.
        """
        repairs = {} if self._past is None else self._past.repairs
        partitions = {
            partition
            for partition, offset, _, value, has_key in self.events
            if has_key and (value is not None or offset not in repairs.get(partition, ()))
        }
        partitions.update(partition for partition, _ in self._left_tombstones())
        return partitions if self.row is None else partitions | {self.row_partition}

    def has_delete_without_place(self) -> bool:
        """Return whether the last event of a partition is a delete that does not say when it was, as TiCDC's are."""
        return any(value is None and not order for _, _, order, value, _ in self.events)

    def last_event(self) -> KeyEvent | None:
        """Return the last event of all partitions, by its place in the binlog.

        A change of the key is a delete and a create at the same place.
        """
        return max(self.events, key=lambda event: (event[2], event[3] is not None, event[1]), default=None)
