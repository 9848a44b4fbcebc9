"""The context of a record in the two captures, if the record alone cannot distinguish a fault from a difference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from prooflib.adhoc import ReadContext, number_of
from prooflib.clock import TIMES
from prooflib.records import Number, Record, show
from prooflib.volatile import is_renamed, position, transaction_number

Pair = tuple[Record | None, Record | None]
# Members of the source block that differ between any two runs.
_VOLATILE = (*TIMES, "server_id", "thread", "gtid", "file", "pos")


@dataclass(frozen=True, slots=True)
class RecordContext:
    """Hold the context of a record.

    Args:
        streamed_record: The recorded stream's record of a row that is in the recorded snapshot, too: a workload
            that runs its
            INSERTs before the snapshot and again after it has each row twice, the second time with a key that is
            further by the number of rows.
        followed: Whether the recorded capture has a record of the same partition after this one.
        repeated: Whether ours has this record more than once, and the recorded capture has not.
        already_recorded: Whether the recorded capture has the same schema change before, of the same place.
        read: How an ad-hoc snapshot read the row, None for all other records.
        statements: Schema changes of the row's table that the recorded stream has before the record.
        asked: Whether ours is a read by a snapshot that was requested of a running stream: it has seen changes.
    """

    streamed_record: Record | None = None
    followed: bool = False
    repeated: bool = False
    already_recorded: bool = False
    read: ReadContext | None = None
    statements: tuple[Record, ...] = ()
    asked: bool = False


NO_CONTEXT = RecordContext()


def record_contexts(pairs: Sequence[Pair]) -> Iterator[RecordContext]:
    """Yield the context of each pair of records.

    Args:
        pairs: All pairs of two captures, in order.
    """
    twins = _StreamedRows(other for _, other in pairs if other is not None)
    last = {(o.topic, o.partition): n for n, (_, o) in enumerate(pairs) if o is not None}
    repeated = _repeated([m for m, _ in pairs if m is not None], [o for _, o in pairs if o is not None])
    texts_seen: set[str] = set()
    statements = _Statements(o for _, o in pairs if o is not None)
    streamed = [n for m, _ in pairs if m is not None and not m.snapshot and (n := number_of(m)) is not None]
    first = min(streamed, default=None)
    for number, (mine, other) in enumerate(pairs):
        known = other or mine
        assert known is not None
        yield RecordContext(
            twins.of(other) if other is not None else None,
            number < last.get((known.topic, known.partition), -1),
            mine is not None and (mine.topic, mine.partition, mine.number) in repeated,
            _already_recorded(other, texts_seen),
            statements=statements.before(other) if other is not None else (),
            asked=mine is not None and first is not None and (number_of(mine) or 0) >= first,
        )


def _already_recorded(record: Record | None, texts_seen: set[str]) -> bool:
    """Return whether a schema change was seen before, and remember it."""
    payload = record.payload if record is not None else None
    if not isinstance(payload, dict) or not {"ddl", "source", "tableChanges"} <= payload.keys():
        return False
    source = {n: v for n, v in payload["source"].items() if n not in TIMES}
    text = show([source, payload["ddl"], payload["tableChanges"]], 1_000_000)
    known = text in texts_seen
    texts_seen.add(text)
    return known


class _Statements:
    """Find the schema changes of a table that are before a record of the stream."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._changes: dict[tuple[Any, Any], list[tuple[tuple[str, int], Record]]] = {}
        for record in records:
            place = position(record)
            if place is not None and "ddl" in record.payload and not record.snapshot:
                self._changes.setdefault(_table_of(record), []).append((place, record))

    def before(self, record: Record) -> tuple[Record, ...]:
        """Return the schema changes before a record, none for a record of a snapshot."""
        place = position(record)
        if place is None or record.snapshot:
            return ()
        return tuple(change for at, change in self._changes.get(_table_of(record), ()) if at <= place)


def _table_of(record: Record) -> tuple[Any, Any]:
    source = record.payload["source"]
    return source.get("db"), source.get("table")


class _StreamedRows:
    """Find the streamed record of a row that a snapshot has."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._rows: Counter[str] = Counter()
        self._creates: dict[tuple[str, str], Record] = {}
        for record in records:
            op = record.payload.get("op") if isinstance(record.payload, dict) else None
            if op == "r":
                self._rows[record.topic] += 1
            elif op == "c":
                self._creates.setdefault((record.topic, show(record.key_payload, 10_000)), record)

    def of(self, record: Record) -> Record | None:
        """Return the twin of a record, None when there is none."""
        key = record.key_payload
        if not record.snapshot or not isinstance(key, dict) or len(key) != 1:
            return None
        ((name, value),) = key.items()
        if not isinstance(value, Number) or not value.isdigit():
            return None
        further = {name: Number(int(value) + self._rows[record.topic])}
        return self._creates.get((record.topic, show(further, 10_000)))


def _repeated(ours: Sequence[Record], theirs: Sequence[Record]) -> set[tuple[str, str, int]]:
    """Return the places of our records that occur again, more often than such a row does in the recording."""
    events = list(_identities(ours, TIMES))
    if len(set(events)) == len(events):
        return set()
    recorded = Counter(_identities(theirs, _VOLATILE))
    seen: Counter[str] = Counter()
    found = set()
    for record, row, event in zip(ours, _identities(ours, _VOLATILE), events, strict=True):
        seen[event] += 1
        if seen[event] > max(1, recorded[row]):
            found.add((record.topic, record.partition, record.number))
    return found


def _identities(records: Iterable[Record], volatile: Sequence[str]) -> Iterator[str]:
    """Yield what makes a record the same as another: the same row in any run, or the same event in one run.

    A tombstone is one of the record before it.

    Args:
        records: The records.
        volatile: Members of the source block that are left out: ``_VOLATILE`` for a row, ``TIMES`` for an event.
    """
    before: dict[tuple[str, str], str] = {}
    for record in records:
        place = record.topic, record.partition
        key = show(record.key_payload, 10_000)
        if record.value is None:
            text = f"tombstone {key} of {before.get(place, '')}"
        else:
            text = before[place] = show([*place, key, _stable(record.payload, volatile)], 100_000)
        yield text


def _stable(payload: Any, volatile: Sequence[str]) -> Any:
    if not isinstance(payload, dict):
        return payload
    kept = {n: v for n, v in payload.items() if n not in TIMES and (volatile is TIMES or not is_renamed(n))}
    source = kept.get("source")
    if isinstance(source, dict):
        kept["source"] = {n: v for n, v in source.items() if n not in volatile}
    if "id" in kept and "status" in kept:
        kept["id"] = transaction_number(str(kept["id"]))
    return kept
