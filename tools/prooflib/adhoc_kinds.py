"""Kinds of explained differences in ad-hoc snapshots: when rows were read, and by which watermarks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from prooflib.adhoc import WATERMARK, is_incremental, number_of, op_of, source_of, watermark
from prooflib.canonical import changed_columns
from prooflib.records import ABSENT, Number, Record

if TYPE_CHECKING:
    from prooflib.differ import Difference

_SOURCE = ("value", "payload", "source")
_TIMES = {"openWindowTimestamp", "closeWindowTimestamp"}
_WHERE = ("gtid", "pos", "file", "thread")


def _present(d: Difference) -> list[Record]:
    return [r for r in d.pair if r is not None]


def watermarks(d: Difference) -> bool:
    """Return whether a row of the signal table is a watermark: one that the other lacks, or its id, times or place."""
    kinds = {watermark(r) for r in _present(d)}
    if len(kinds) != 1 or None in kinds:
        return False
    if d.path[0] == "record":
        return None in d.pair
    if d.path[-1] == "id":
        return all(WATERMARK.fullmatch(str(v)) for v in (d.ours, d.theirs))
    if d.path[-1] == "data":
        return all(_window_times(v) for v in (d.ours, d.theirs))
    return d.path[:-1] == _SOURCE and d.path[-1] in ("gtid", "pos", "thread") and None not in (d.ours, d.theirs)


def _window_times(text: Any) -> bool:
    try:
        found = json.loads(text)
    except (ValueError, TypeError):
        return False
    return isinstance(found, dict) and set(found) <= _TIMES and bool(found)


def read_at(d: Difference) -> bool:
    """Return whether two reads of one row by ad-hoc snapshots have different, valid positions."""
    ours, theirs = d.pair
    if ours is None or theirs is None or d.path[:-1] != _SOURCE:
        return False
    if any(op_of(r) != "r" for r in _present(d)) or number_of(ours) is None:
        return False
    if number_of(theirs) is None:
        return d.context.asked and _names_no_transaction(d, theirs)
    if d.path[-1] not in _WHERE:
        return False
    if d.path[-1] == "thread":
        return d.ours is None and isinstance(d.theirs, Number)
    return d.path[-1] in ("file", "gtid") or all(isinstance(v, Number) for v in (d.ours, d.theirs))


def _names_no_transaction(d: Difference, theirs: Record) -> bool:
    """Return whether the recorded read is a blocking snapshot's that names neither transaction nor server."""
    source = source_of(theirs)
    if is_incremental(theirs) or [source.get(name) for name in ("gtid", "server_id", "thread")] != [None, "0", None]:
        return False
    if d.path[-1] == "server_id":
        return isinstance(d.ours, Number)
    return d.path[-1] == "gtid" or (d.path[-1] in ("pos", "file") and type(d.ours) is type(d.theirs))


def told_by_event(d: Difference) -> bool:
    """Return whether one lacks a read of a row that had an event while the snapshot was running."""
    return _lacks_read(d) and bool(d.context.read and d.context.read.events)


def stopped_snapshot(d: Difference) -> bool:
    """Return whether one lacks a read of a snapshot that a signal stopped."""
    return _lacks_read(d) and bool(d.context.read and d.context.read.stopped)


def _lacks_read(d: Difference) -> bool:
    records = _present(d)
    return d.path[0] == "record" and len(records) == 1 and is_incremental(records[0]) and not d.context.repeated


def read_in_time(d: Difference) -> bool:
    """Return whether both reads have a row that events of the window had before or after them."""
    if None in d.pair or d.path[:3] != ("value", "payload", "after") or d.context.read is None:
        return False
    return all(is_incremental(r) and r.payload["after"] in d.context.read.events for r in _present(d))


def other_structure(d: Difference) -> bool:
    """Return whether one read the row before a statement changed the table, and the other after it.

    Both captures have both structures. It holds for columns and schemas that the structures do not have in common.
    """
    ours, theirs = d.pair
    if ours is None or theirs is None or d.context.read is None or not d.context.read.other_structure:
        return False
    if d.path[0] == "last":
        lacking = [r for r, v in zip((ours, theirs), (d.ours, d.theirs), strict=True) if v is ABSENT]
        return len(lacking) == 1 and is_incremental(lacking[0])
    if not (is_incremental(ours) and is_incremental(theirs)):
        return False
    if d.path[:2] == ("value", "schema"):
        return True
    return d.path[:3] == ("value", "payload", "after") and (
        d.path[3] in changed_columns(ours, theirs) if len(d.path) > 3 else False
    )


def known_again(d: Difference) -> bool:
    """Return whether the recorded blocking snapshot says again what its first one said of a table."""
    ours, theirs = d.pair
    if d.path[0] != "record" or ours is not None or theirs is None or not d.context.already_recorded:
        return False
    return "ddl" in theirs.payload and source_of(theirs).get("snapshot") == "true"


_FIRST, _LAST = {"first", "first_in_data_collection"}, {"last", "last_in_data_collection"}


def other_order(d: Difference) -> bool:
    """Return whether the same row is a table's first or last in both, and only one's table is the first or last."""
    if None in d.pair or d.path != (*_SOURCE, "snapshot"):
        return False
    if any(op_of(r) != "r" or number_of(r) is None for r in _present(d)):
        return False
    return {d.ours, d.theirs} in (_FIRST, _LAST)
