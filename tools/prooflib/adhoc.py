"""Ad-hoc snapshots in two captures: rows of ad-hoc snapshots, which are read at other moments in each run.

The stream is compared in order without them and without watermarks, whose transactions do not count in the numbers of
the others. Reads are compared by request and key; and each of ours must be the state of its row at its place.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from prooflib.canonical import Structures, key_text
from prooflib.clock import IN_UTC, SessionZones
from prooflib.records import Record
from prooflib.side_records import is_transaction

WATERMARK = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}-(open|close)")
_NUMBER = re.compile(r"[0-9a-f-]{36}:(\d+)")
_FOREVER = 1 << 62
Pair = tuple[Record | None, Record | None]
Ids = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class ReadContext:
    """Hold the circumstances under which an ad-hoc snapshot read a row.

    Args:
        request: Id of its signal.
        stopped: Whether a later signal stopped it.
        events: Rows that events of the same key had before and after them, between the signal and the last read.
        other_structure: Whether the two records have different structures of the table, both of which both captures
            have.
    """

    request: str
    stopped: bool
    events: tuple[Any, ...]
    other_structure: bool = False


@dataclass(frozen=True, slots=True)
class _Signal:
    id: str
    type: str
    tables: tuple[str, ...]
    place: int

    def names(self, table: str) -> bool:
        return not self.tables or any(re.fullmatch(t, table) for t in self.tables)


def source_of(record: Record) -> Mapping[str, Any]:
    """Return the source block of a record, empty when it has none."""
    payload = record.payload
    source = payload.get("source") if isinstance(payload, dict) else None
    return source if isinstance(source, dict) else {}


def op_of(record: Record) -> str | None:
    """Return the operation of a row event, None for anything else."""
    return record.payload.get("op") if isinstance(record.payload, dict) else None


def is_incremental(record: Record) -> bool:
    """Return whether an incremental snapshot read the record."""
    return op_of(record) == "r" and source_of(record).get("snapshot") == "incremental"


def watermark(record: Record) -> str | None:
    """Return ``open`` or ``close`` for an event of a watermark's row or its tombstone, else None."""
    key = record.key_payload
    name = WATERMARK.fullmatch(str(key.get("id"))) if isinstance(key, dict) and list(key) == ["id"] else None
    if name is None:
        return None
    if record.value is None:
        return name[1]
    payload = record.payload if isinstance(record.payload, dict) else {}
    row = payload.get("after") or payload.get("before") or {}
    return name[1] if row.get("type") == f"snapshot-window-{name[1]}" else None


def number_of(record: Record) -> int | None:
    """Return the number of a record's transaction, or of the transaction whose begin or end it marks."""
    gtid = record.payload["id"] if is_transaction(record) else source_of(record).get("gtid")
    match = _NUMBER.fullmatch(str(gtid))
    return int(match[1]) if match else None


@dataclass(slots=True)
class CaptureSide:
    """Hold one capture."""

    records: Sequence[Record]
    marks: list[int] = field(default_factory=list)
    signals: list[_Signal] = field(default_factory=list)
    changes: dict[str, list[int]] = field(default_factory=dict)
    _first: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.marks = sorted(n for r in self.records if watermark(r) and (n := number_of(r)) is not None)
        self.signals = sorted(self._signals(), key=lambda s: s.place)
        for r in self.stream():
            number, pos = number_of(r), source_of(r).get("pos")
            if number is not None and pos is not None and op_of(r) != "r":
                self._first[number] = min(self._first.get(number, _FOREVER), int(pos))
            if isinstance(r.payload, dict) and "ddl" in r.payload and number is not None:
                self.changes.setdefault(table_of(r), []).append(self.transaction_index(number))

    def stream(self) -> list[Record]:
        """Return what is neither a watermark nor a row that an incremental snapshot read."""
        return [r for r in self.records if not watermark(r) and not is_incremental(r)]

    def transaction_index(self, number: int) -> int:
        """Return how many transactions of the workload there are up to one."""
        return number - bisect_right(self.marks, number)

    def transaction_index_of(self, record: Record) -> int:
        """Return the place of a record's transaction, -1 when it names none."""
        number = number_of(record)
        return -1 if number is None else self.transaction_index(number)

    def offset_in_transaction(self, record: Record) -> int | None:
        """Return a record's distance in bytes from its transaction's first event."""
        number, pos = number_of(record), source_of(record).get("pos")
        first = None if number is None else self._first.get(number)
        return None if first is None or pos is None else int(pos) - first

    def before_marks(self, record: Record) -> bool:
        """Return whether there is no watermark before a record in the binlog."""
        number = number_of(record)
        return not self.marks or number is None or number < self.marks[0]

    def _signals(self) -> Iterator[_Signal]:
        for record in self.records:
            row = record.payload.get("after") if op_of(record) == "c" else None
            if not isinstance(row, dict) or list(row) != ["id", "type", "data"]:
                continue
            try:
                data = json.loads(row["data"])
                tables = tuple(map(str, data.get("data-collections", ())))
            except (ValueError, TypeError, AttributeError):
                continue
            yield _Signal(str(row["id"]), str(row["type"]), tables, self.transaction_index_of(record))

    def altered(self, table: str, after: int, up_to: int) -> bool:
        """Return whether there is a schema change of a table between two transactions."""
        return any(after < place <= up_to for place in self.changes.get(table, ()))

    def request_of(self, record: Record) -> _Signal | None:
        """Return the last signal for its table before a read."""
        table, place = table_of(record), self.transaction_index_of(record)
        signals_before = [s for s in self._signals_for(table) if s.place <= place]
        return signals_before[-1] if signals_before else None

    def _signals_for(self, table: str) -> list[_Signal]:
        return [s for s in self.signals if s.type == "execute-snapshot" and s.tables and s.names(table)]

    def stopped(self, request: _Signal, table: str) -> bool:
        """Return whether a signal stopped a table's snapshot before the next one was requested."""
        later = [s.place for s in self._signals_for(table) if s.place > request.place]
        end = min(later, default=_FOREVER)
        stops = [s for s in self.signals if s.type == "stop-snapshot" and s.names(table)]
        return any(request.place < s.place < end for s in stops)


def table_of(record: Record) -> str:
    """Return the table that a record is of, ``db.table``."""
    source = source_of(record)
    return f"{source.get('db')}.{source.get('table')}"


@dataclass(frozen=True, slots=True)
class AdhocSnapshots:
    """Hold what ad-hoc snapshots left in two captures.

    Args:
        structures: The structures that the two have of each table.
        zones: The zones in which the recorded snapshots read TIMESTAMP.
    """

    ours: CaptureSide
    theirs: CaptureSide
    structures: Structures
    zones: SessionZones = IN_UTC

    @classmethod
    def from_captures(
        cls, ours: Sequence[Record], theirs: Sequence[Record], zones: SessionZones = IN_UTC
    ) -> AdhocSnapshots:
        """Return what two captures hold."""
        return cls(CaptureSide(ours), CaptureSide(theirs), Structures(ours, theirs), zones)

    @property
    def marked(self) -> bool:
        """Return whether there are watermarks."""
        return bool(self.ours.marks or self.theirs.marks)

    def same_offset(self, ours: Record, theirs: Record) -> bool:
        """Return whether two events are as far from the first one of their transactions."""
        if source_of(ours).get("file") != source_of(theirs).get("file"):
            return False
        our_offset = self.ours.offset_in_transaction(ours)
        return our_offset is not None and our_offset == self.theirs.offset_in_transaction(theirs)

    def watermarks(self) -> Iterator[Pair]:
        """Yield watermarks by kind and order; the other side has None where it has fewer."""
        mine, other = (self._marks(s) for s in (self.ours, self.theirs))
        for kind in sorted({*mine, *other}):
            yield from _zip_longest_pairs(mine.get(kind, []), other.get(kind, []))

    @staticmethod
    def _marks(side: CaptureSide) -> dict[str, list[Record]]:
        found = defaultdict(list)
        for record in side.records:
            kind = watermark(record)
            if kind:
                found[f"{kind} {op_of(record)}"].append(record)
        return found

    def reads(self) -> Iterator[tuple[Pair, ReadContext | None, bool]]:
        """Yield reads of incremental snapshots by request and key, and whether ours is there once too often."""
        mine, other = self._reads(self.ours, None), self._reads(self.theirs, self.zones)
        last: dict[tuple[str, str], int] = {}
        for side, groups in ((self.ours, mine), (self.theirs, other)):
            for (topic, request, _), records in groups.items():
                end = max(side.transaction_index_of(r) for r in records)
                last[topic, request] = max(last.get((topic, request), end), end)
        events = self._events()
        for ids in sorted({*mine, *other}):
            topic, request, key = ids
            window_events = tuple(
                r for place, r in events.get((topic, key), ()) if self._in_window(request, place, last[ids[:2]])
            )
            a, b = mine.get(ids, []), other.get(ids, [])
            read = ReadContext(
                request, self._stopped(request, (a or b)[0]), tuple(row for e in window_events for row in _rows(e))
            )
            for number, pair in enumerate(_zip_longest_pairs(a, b)):
                known = replace(read, other_structure=self.structures.both_known(*pair))
                yield pair, known, number > 0 and pair[0] is not None

    def _reads(self, side: CaptureSide, zones: SessionZones | None) -> dict[Ids, list[Record]]:
        found = defaultdict(list)
        for record in side.records:
            if is_incremental(record):
                request = side.request_of(record)
                key = key_text(record, zones)
                found[record.topic, request.id if request else "", key].append(record)
        return found

    def _events(self) -> dict[tuple[str, str], list[tuple[int, Record]]]:
        """Return the changes of each key as the recorded stream has them; ours are compared with them one by one."""
        found = defaultdict(list)
        for record in self.theirs.stream():
            if op_of(record) in ("c", "u", "d"):
                place = self.theirs.transaction_index_of(record)
                found[record.topic, key_text(record, self.zones)].append((place, record))
        return found

    def _in_window(self, request: str, place: int, last: int) -> bool:
        return any(s.id == request and s.place < place <= last for s in self.theirs.signals)

    def _stopped(self, request: str, record: Record) -> bool:
        return any(s.id == request and self.theirs.stopped(s, table_of(record)) for s in self.theirs.signals)


def _zip_longest_pairs(ours: list[Record], theirs: list[Record]) -> Iterator[Pair]:
    for n in range(max(len(ours), len(theirs))):
        yield ours[n] if n < len(ours) else None, theirs[n] if n < len(theirs) else None


def _rows(event: Record) -> list[Any]:
    return [event.payload.get("before"), event.payload.get("after")]
