"""What the events of one key lead to, and how many equal rows those of a table without a key say.

A snapshot that is taken again, or a blocking one, reads rows that the topic has already, and no key says which. What it
has read of equal rows is all of them, so they are counted from there on. After a reset to an earlier offset events come
again; each is counted once. Where no person has moved the offset, a copy is one more row.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from airflow_provider_mysql_cdc.cdc.model.records import Headers
from airflow_provider_mysql_cdc.cdc.verify.read.entries import EntryKind, FoldEntry
from airflow_provider_mysql_cdc.cdc.verify.read.event_record import (
    EventRecord,
    commit_ts_of,
    event_identity,
    source_order,
)
from airflow_provider_mysql_cdc.cdc.verify.read.row_records import is_repair
from airflow_provider_mysql_cdc.cdc.verify.structures.compared_table import ComparedTable

_READ = "r"
_CHANGE = struct.Struct("<BQQ")
_CHANGE_MARK = 0
"""First byte of the mark of a change; that of a row of a view is text."""
_EARLIER = b"<"
"""First byte of the mark of a view before the last snapshot's, which the ledger does not know."""


class EqualRowEvent(NamedTuple):
    """Hold an event of one of several equal rows.

    Args:
        partition: Its partition; the stream writes events without a key to one.
        added: Whether it adds a row; otherwise it takes one away.
        view: The view that a snapshot has read the row in (``view_of``); empty for a change.
        identity: What tells the change from others; 0 where nothing does.
        pass_start: Offset of the first record of the pass over the binlog that has written it (``StreamPasses``).
        order: Where it is in the binlog, or its time in TiCDC's protocol; 0 where that is not known.
        keyed: Whether its record has a key, which has chosen its partition.
    """

    partition: int
    offset: int
    added: bool
    view: bytes
    identity: int = 0
    pass_start: int = 0
    order: int = 0
    keyed: bool = False

    @classmethod
    def of_entry(cls, entry: FoldEntry) -> EqualRowEvent:
        """Return the event that ``event_mark`` has marked."""
        place, added, mark = (entry.partition, entry.offset), entry.kind is EntryKind.ADDED, entry.value[1:]
        is_change = mark[:1] == bytes([_CHANGE_MARK])
        event = cls(*place, added, b"", *_CHANGE.unpack(mark)[1:]) if is_change else cls(*place, added, mark)
        return event._replace(order=entry.order, keyed=bool(entry.value[0]))


class StreamPasses:
    """Tell the passes over the binlog apart that have written a topic: a reset to an earlier offset begins another.

    Places in the binlog also go back where a prepared transaction commits. That a pass ends there means nothing: events
    are left out only if an earlier pass has them too.
    """

    def __init__(self) -> None:
        self._last: dict[int, tuple[int, int]] = {}

    def start_of(self, partition: int, offset: int, order: int) -> int:
        """Return the offset of the first record of a record's pass, as far as this object has seen it."""
        last_order, start = self._last.get(partition, (order, offset))
        if order < last_order:
            start = offset
        self._last[partition] = order, start
        return start


def event_mark(
    record: EventRecord,
    place: tuple[int, int],
    headers: Headers,
    passes: StreamPasses,
    compared: ComparedTable,
) -> bytes:
    """Return what of an event decides whether it counts: if it has a key, and its view, or its identity and pass."""
    order, written, keyed = source_order(record.source), compared.written, bytes([record.key is not None])
    views = None if written is None else written.views
    if view := view_of(record, order, headers, None if written is None else written.view_ts):
        if views is None or views.has(record.source):
            return keyed + view
        if not views.is_later(record.source, compared.order_of):
            return keyed + _EARLIER + view
    pass_start = passes.start_of(*place, order)
    # What a repair has written is not in the binlog. Where nobody has moved the offset, no event comes again.
    comes_once = record.op == _READ or is_repair(headers) or (written is not None and not written.read_again)
    identity = 0 if comes_once else event_identity(record, order, headers)
    return keyed + _CHANGE.pack(_CHANGE_MARK, identity, pass_start)


def view_of(record: EventRecord, order: int, headers: Headers, view_ts: int | None = None) -> bytes:
    """Return which view a snapshot has read a row in; empty for other events.

    All rows of a table that one view has shown have the same position and time. The time is in whole seconds, as
    Debezium writes it; a snapshot waits for another one than that of the view before (``snapshot.view_coordinator``). A
    repair reads one row of several.

    Args:
        record: The event.
        order: Where it is in the binlog.
        headers: Its headers.
        view_ts: The timestamp of the rows of the last view in TiCDC's protocol, whose records do not say whether a
            snapshot has written them; None if it is not known.
    """
    if is_repair(headers):
        return b""
    if view_ts is not None:
        return f"{view_ts}".encode() if commit_ts_of(record.source) == view_ts else b""
    return f"{order}/{record.source.get('ts_ms')}".encode() if record.op == _READ else b""


def events_since_last_view(events: Iterable[EqualRowEvent], *, moving: bool = True) -> list[EqualRowEvent]:
    """Return the events that say how many equal rows there are: from the last view on, all without one, each once.

    Args:
        events: The events of equal rows, in any order.
        moving: Whether the stream writes events of equal rows to several partitions. Otherwise those without a key in
            others than the first one are of other hands: they count behind it, and no view there replaces the stream's.
    """
    counted = list(events)
    own = min((event.partition for event in counted if not event.keyed), default=0)
    by_order = moving or any(event.keyed for event in counted)

    def is_foreign(event: EqualRowEvent) -> bool:
        return not moving and not event.keyed and event.partition != own

    ordered = _without_repeats(
        sorted(counted, key=lambda e: (is_foreign(e), e.order if by_order else 0, e.partition, e.offset))
    )
    views = [event.view for event in ordered if event.view and not is_foreign(event)]
    known = [view for view in views if not view.startswith(_EARLIER)]
    last = next(reversed(known or views), b"")
    first = next((index for index, event in enumerate(ordered) if last and event.view == last), 0)
    return ordered[first:]


def _without_repeats(ordered: Sequence[EqualRowEvent]) -> list[EqualRowEvent]:
    """Leave out events that an earlier pass has too; within one, all events of a compressed transaction look alike."""
    firsts: dict[tuple[int, int, bool], int] = {}
    return [
        event
        for event in ordered
        if not event.identity
        or firsts.setdefault((event.partition, event.identity, event.added), event.pass_start) == event.pass_start
    ]


def count_rows(events: Iterable[EqualRowEvent], *, moving: bool = True) -> int:
    """Return how many equal rows there are after all events (``events_since_last_view``).

    An event that takes away a row which the topic never had takes nothing: the row went before a snapshot that was
    interrupted came to read its table.
    """
    count = 0
    for event in events_since_last_view(events, moving=moving):
        count = count + 1 if event.added else max(0, count - 1)
    return count


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


class KeyPast:
    """Hold what few keys have: records of repairs, by partition, and records that are no events, with the reason.

    ``settled`` has the places of records without keys that a repair names, and ``kept`` the last event of each
    partition and record key, where several rows may have that one.
    """

    __slots__ = ("kept", "of_any_table", "repairs", "settled", "unreadable")

    def __init__(self) -> None:
        self.kept: dict[tuple[int, bytes], KeyEvent] = {}
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
        self._past: KeyPast | None = None

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

    def add_kept(self, entry: FoldEntry) -> None:
        """Keep an event if it is the last one under its record key."""
        kept, place = self.past.kept, (entry.partition, entry.value[1:])
        if place not in kept or kept[place][1] < entry.offset:
            exists = entry.value[0] != 0
            kept[place] = entry.partition, entry.offset, entry.order, b"" if exists else None, True

    def keeps_former_key(self, last: KeyEvent | None, truncates: Truncates | None) -> bool:
        """Return whether an event before the last one is the last under its record key, and no delete.

        A tombstone behind it may have another record key, so it takes nothing away.
        """
        if self._past is None or last is None:
            return False
        others = (event for event in self._past.kept.values() if event[:2] != last[:2] and event[3] is not None)
        return any(truncates is None or not truncates.delete(event) for event in others)

    @property
    def past(self) -> KeyPast:
        """Return what few keys have, from now on of this one, too."""
        past = self._past
        if past is None:
            past = self._past = KeyPast()
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

    def may_be_other(self, last: KeyEvent | None) -> bool:
        """Return whether another partition has a row of the last event's time, of which one is the table's."""
        rivals = {values for _, _, order, values, _ in self.events if last is not None and 0 < order == last[2]}
        return len(rivals - {None}) > 1 and self.row in rivals

    def has_delete_without_place(self) -> bool:
        """Return whether the last event of a partition is a delete that does not say when it was, as TiCDC's are."""
        return any(value is None and not order for _, _, order, value, _ in self.events)

    def last_event(self) -> KeyEvent | None:
        """Return the last event of all partitions, by its place in the binlog.

        A change of the key is a delete and a create at the same place.
        """
        return max(self.events, key=lambda event: (event[2], event[3] is not None, event[1]), default=None)
