"""Count equal rows of a table without a key in its events.

A snapshot that is taken again, or a blocking one, reads rows that the topic has already, and no key says which. What it
has read of equal rows is all of them, so they are counted from there on. After a reset to an earlier offset events come
again; each is counted once.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from airflow_provider_mysql_cdc.cdc.model.records import Headers
from airflow_provider_mysql_cdc.cdc.verify.event_record import EventRecord
from airflow_provider_mysql_cdc.cdc.verify.key_history import event_identity
from airflow_provider_mysql_cdc.cdc.verify.repair_marks import is_repair
from airflow_provider_mysql_cdc.cdc.verify.source_place import commit_ts_of, source_order
from airflow_provider_mysql_cdc.cdc.verify.structure_versions import RepeatedRange

_READ = "r"
_CHANGE = struct.Struct("<BQQ?")
_CHANGE_MARK = 0
"""First byte of the mark of a change; that of a row of a view is text."""


class EqualRowEvent(NamedTuple):
    """Hold an event of one of several equal rows.

    Args:
        partition: Its partition; the events of equal rows have the same.
        offset: Its offset.
        added: Whether it adds a row; otherwise it takes one away.
        view: The view that a snapshot has read the row in (``view_of``); empty for a change.
        identity: What tells the change from others; 0 where nothing does.
        pass_start: Offset of the first record of the pass over the binlog that has written it (``StreamPasses``).
        repeated: Whether the view of the last snapshot contains the change, which the stream has read again.
    """

    partition: int
    offset: int
    added: bool
    view: bytes
    identity: int = 0
    pass_start: int = 0
    repeated: bool = False

    @classmethod
    def marked(cls, place: tuple[int, int], added: bool, mark: bytes) -> EqualRowEvent:
        """Return the event that ``event_mark`` has marked.

        Args:
            place: Its partition and offset.
            added: Whether it adds a row.
            mark: The mark.
        """
        if mark[:1] != bytes([_CHANGE_MARK]):
            return cls(*place, added, mark)
        return cls(*place, added, b"", *_CHANGE.unpack(mark)[1:])


class StreamPasses:
    """Tell the passes over the binlog apart that have written a topic: a reset to an earlier offset begins another.

    Places in the binlog also go back where a prepared transaction commits. That a pass ends there means nothing: events
    are left out only if an earlier pass has them too.
    """

    def __init__(self) -> None:
        self._last: dict[int, tuple[int, int]] = {}

    def start_of(self, partition: int, offset: int, order: int) -> int:
        """Return the offset of the first record of a record's pass, as far as this object has seen it.

        Args:
            partition: The record's partition; records of one are given in order.
            offset: Its offset.
            order: Where its event is in the binlog.
        """
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
    view_ts: int | None = None,
    repeated: RepeatedRange | None = None,
) -> bytes:
    """Return what of an event decides whether it counts: its view, or else its identity and its pass.

    Args:
        record: The event.
        place: Its partition and offset.
        headers: Its headers.
        passes: The passes of the topic.
        view_ts: The timestamp of the rows of the last view in TiCDC's protocol; None if it is not known.
        repeated: What was read again of the past of the last view; None if nothing was.
    """
    order = source_order(record.source)
    if view := view_of(record, order, headers, view_ts):
        return view
    pass_start = passes.start_of(*place, order)
    # What a repair has written is not in the binlog.
    identity = 0 if record.op == _READ or is_repair(headers) else event_identity(record, order, headers)
    in_view = repeated is not None and not is_repair(headers) and repeated.has(record.source)
    return _CHANGE.pack(_CHANGE_MARK, identity, pass_start, in_view)


def view_of(record: EventRecord, order: int, headers: Headers, view_ts: int | None = None) -> bytes:
    """Return which view a snapshot has read a row in; empty for other events.

    All rows of a table that one view has shown have the same position and time. The time is in whole seconds, as
    Debezium writes it; a snapshot waits for another one than that of the view before (``snapshot.view_second``). A
    repair reads one row of several.

    Args:
        record: The event.
        order: Where it is in the binlog.
        headers: Its headers.
        view_ts: As for ``event_mark``; TiCDC's records do not say whether a snapshot has written them.
    """
    if is_repair(headers):
        return b""
    if view_ts is not None:
        return f"{view_ts}".encode() if commit_ts_of(record.source) == view_ts else b""
    return f"{order}/{record.source.get('ts_ms')}".encode() if record.op == _READ else b""


def view_order(mark: bytes) -> int | None:
    """Return the place of the view that has shown a row; None for a change, and for a view that has none.

    Args:
        mark: From ``event_mark``.
    """
    order, slash, _ = mark.partition(b"/")
    return int(order) if slash and order.isdigit() else None


def events_since_last_view(events: Iterable[EqualRowEvent], *, has_view: bool = False) -> list[EqualRowEvent]:
    """Return the events that say how many equal rows there are: from the last view on, all without one, each once.

    Args:
        events: The events of equal rows, in any order.
        has_view: Whether the last snapshot has read the table, and so all changes that its view contains.
    """
    ordered = _without_repeats(sorted(event for event in events if not (has_view and event.repeated)))
    last = next((event.view for event in reversed(ordered) if event.view), b"")
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


def count_rows(events: Iterable[EqualRowEvent], *, has_view: bool = False) -> int:
    """Return how many equal rows there are after all events.

    An event that takes away a row which the topic never had takes nothing: the row went before a snapshot that was
    interrupted came to read its table.

    Args:
        events: The events of equal rows, in any order.
        has_view: As for ``events_since_last_view``.
    """
    count = 0
    for event in events_since_last_view(events, has_view=has_view):
        count = count + 1 if event.added else max(0, count - 1)
    return count
