"""What is wrong with ad-hoc snapshots of a capture by itself: reads, last values and watermarks that do not fit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from prooflib.adhoc import AdhocSnapshots, ReadContext, is_incremental, op_of, table_of, watermark
from prooflib.canonical import changed_columns, key_text
from prooflib.clock import SessionZones
from prooflib.records import ABSENT, Record


@dataclass(frozen=True, slots=True)
class Fault:
    """Hold what is wrong with a capture of ours by itself.

    Args:
        what: What: ``stale``, ``last`` or ``watermark``.
        ours: What the record has.
        other: The recorded record that has it.
        column: The column that differs, None for the whole row.
        read: The structures of the two records.
    """

    record: Record
    what: str
    ours: Any
    expected: Any
    other: Record | None = None
    column: str | None = None
    read: ReadContext | None = None


def faults(adhoc: AdhocSnapshots) -> Iterator[Fault]:
    """Yield what is wrong with ours: a read that is not the state of its row there, another last value, half of a
    pair of watermarks.
    """
    if not adhoc.marked and not any(map(is_incremental, (*adhoc.ours.records, *adhoc.theirs.records))):
        return
    yield from _stale_reads(adhoc)
    yield from _unpaired_watermarks(adhoc.ours.records)
    end = _ends(adhoc.theirs.records, adhoc.zones)
    for place, record in _ends(adhoc.ours.records, None).items():
        yield from _last_value(adhoc, record, end.get(place))


def _last_value(adhoc: AdhocSnapshots, record: Record, other: Record | None) -> Iterator[Fault]:
    """Yield what differs in the last records of a key: whole rows if one is missing, else single columns."""
    row, expected = _after(record), _after(other) if other is not None else None
    if row == expected:
        return
    if not (isinstance(row, dict) and isinstance(expected, dict)):
        yield Fault(record, "last", row, expected, other)
        return
    read = ReadContext("", False, (), adhoc.structures.both_known(record, other))
    for column in {**row, **expected}:
        mine, theirs = row.get(column, ABSENT), expected.get(column, ABSENT)
        if type(mine) is not type(theirs) or mine != theirs:
            yield Fault(record, "last", mine, theirs, other, column, read)


def _stale_reads(adhoc: AdhocSnapshots) -> Iterator[Fault]:
    """Yield reads of ours that are not the state of their row at that place of the topic."""
    state: dict[tuple[str, str], Record] = {}
    known = _by_key(adhoc.theirs.records, adhoc.zones)
    for record in adhoc.ours.records:
        if record.key is None or not _is_row(record):
            continue
        at = (record.topic, key_text(record, None))
        if op_of(record) == "r" and at in state:
            yield from _stale_read(adhoc, record, state[at], known.get(at, []))
        state[at] = record


def _stale_read(adhoc: AdhocSnapshots, record: Record, before: Record, known: Sequence[Record]) -> Iterator[Fault]:
    """Yield what is wrong with a read, given the record of its key before it.

    If a statement has changed the table since, the columns that it left alone are as before, and the others have
    the recorded capture's value of the same key.
    """
    row, old = _after(record), _after(before)
    if row == old:
        return
    changed = changed_columns(record, before) if _altered_between(adhoc, before, record) else frozenset()
    if not isinstance(old, dict) or not changed or any(row[c] != old[c] for c in row if c not in changed):
        yield Fault(record, "stale", row, old)
        return
    for column in sorted(changed & row.keys()):
        twins = [r for r in known if column in (_after(r) or {}) and column not in changed_columns(record, r)]
        if any(_after(r)[column] == row[column] for r in twins):
            continue
        other = twins[-1] if twins else None
        yield Fault(record, "stale", row[column], _after(other)[column] if other else ABSENT, other, column)


def _altered_between(adhoc: AdhocSnapshots, before: Record, record: Record) -> bool:
    places = (adhoc.ours.transaction_index_of(r) for r in (before, record))
    return adhoc.ours.altered(table_of(record), *places)


def _after(record: Record) -> Any:
    return record.payload.get("after") if isinstance(record.payload, dict) else None


def _by_key(records: Sequence[Record], zones: SessionZones | None) -> dict[tuple[str, str], list[Record]]:
    """Return the records of each key that are no watermark's."""
    found = defaultdict(list)
    for r in records:
        if r.key is not None and _is_row(r):
            found[r.topic, key_text(r, zones)].append(r)
    return found


def _ends(records: Sequence[Record], zones: SessionZones | None) -> dict[tuple[str, str], Record]:
    """Return the last record of each key that is no watermark's."""
    return {place: rows[-1] for place, rows in _by_key(records, zones).items()}


def _is_row(record: Record) -> bool:
    return not watermark(record) and (record.value is None or op_of(record) is not None)


def _unpaired_watermarks(records: Sequence[Record]) -> Iterator[Fault]:
    """Yield watermarks that are not opened, closed or deleted in turn."""
    opened: Record | None = None
    for record in records:
        if not watermark(record) or record.value is None:
            continue
        opens = watermark(record) == "open" and op_of(record) == "c"
        name = str(record.key_payload["id"]).rpartition("-")[0]
        if opens is (opened is not None) or (opened and str(opened.key_payload["id"]).rpartition("-")[0] != name):
            yield Fault(record, "watermark", record.key_payload, opened.key_payload if opened else None)
        opened = record if opens else None
    if opened is not None:
        yield Fault(opened, "watermark", opened.key_payload, None)
