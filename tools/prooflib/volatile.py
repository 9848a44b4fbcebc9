"""What cannot be equal in two runs, and what must hold of it all the same.

Times are compared by their kind, by the relation of milli-, micro- and nanoseconds, and lie within their capture, a
little before they were produced; server and thread ids, the UUID of a GTID and what UUID() made by a one-to-one mapping
that holds over the whole capture (transaction numbers are equal). Binlog positions are equal, or shifted by the twelve
bytes by which the sentinel's statement is longer in a part of the recordings. That distance may change by fewer bytes
than the shortest event has: the salt of CREATE USER is random, and a compressed transaction is longer or shorter for
the times in it. Watermarks of ad-hoc snapshots are other transactions in every run: behind the first, a transaction is
the same one by its number without theirs, and an event by its distance from the first one of its transaction.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from prooflib.adhoc import AdhocSnapshots
from prooflib.clock import RUN_ID, TIMES, Window, consistent_units, is_new_uuid, is_now, is_plausible_time, run_began
from prooflib.commit_order import CommitOrder
from prooflib.records import Number, Path, Record
from prooflib.side_records import is_notification, is_transaction, may_be_one_id

MAX_STEPS = 4
# How many bytes longer the statement that makes the sentinel's table is in the recordings that were made first.
_LONGER_SENTINEL = 12
_SHORTEST_EVENT = 23
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_GTID = re.compile(rf"({UUID.pattern})(:.+)")
_ROWS = ("before", "after")
_RENAMED = re.compile(r"(?:.*[._])?(ts_ms|ts_us|ts_ns|gtid|transaction[._]id|thread|server_id)")
_PER_SECOND = {"ts_ms": 1_000, "ts_us": 1_000_000, "ts_ns": 1_000_000_000}


def is_renamed(name: str) -> bool:
    """Return whether a member is a time, id or position of its event, under a name that transforms have given it."""
    return _RENAMED.fullmatch(name) is not None


@dataclass(slots=True)
class IdMapping:
    """Hold a one-to-one mapping of ids that grows while records are compared."""

    _to: dict[str, str] = field(default_factory=dict)
    _from: dict[str, str] = field(default_factory=dict)

    def holds(self, ours: str, theirs: str) -> bool:
        """Return whether the two may be the same id, and take note of it."""
        return self._to.setdefault(ours, theirs) == theirs and self._from.setdefault(theirs, ours) == ours


@dataclass(slots=True)
class VolatileValues:
    """Decide whether a difference is one of those that no two runs can avoid.

    Args:
        adhoc: What ad-hoc snapshots left in the two captures.
        order: Which transactions of ours are in another order.
    """

    adhoc: AdhocSnapshots = field(default_factory=lambda: AdhocSnapshots.from_captures((), ()))
    order: CommitOrder = field(default_factory=CommitOrder)
    server_ids: IdMapping = field(default_factory=IdMapping)
    threads: IdMapping = field(default_factory=IdMapping)
    uuids: IdMapping = field(default_factory=IdMapping)
    row_uuids: IdMapping = field(default_factory=IdMapping)
    notifications: IdMapping = field(default_factory=IdMapping)
    windows: tuple[Window, Window] = (Window(), Window())
    runs: dict[str, str] = field(default_factory=dict)
    shifted: dict[tuple[str, int], tuple[str, int]] = field(default_factory=dict)
    steps: list[tuple[tuple[str, int], str, int]] = field(default_factory=list)

    def note_runs(self, ours: Iterable[Record], theirs: Iterable[Record]) -> None:
        """Learn when the two captures ran."""
        self.windows = Window.of(ours), Window.of(theirs)

    def note_positions(self, pairs: Iterable[tuple[Record, Record]]) -> None:
        """Learn how positions of the two captures correspond."""
        found: dict[tuple[str, int], tuple[str, int]] = {}
        for ours, theirs in pairs:
            mine, other = position(ours), position(theirs)
            comparable = self.adhoc.ours.before_marks(ours) and self.adhoc.theirs.before_marks(theirs)
            if mine is not None and other is not None and comparable and not self._is_between(ours):
                found[other] = mine
        steps: list[tuple[tuple[str, int], str, int]] = []
        for other, mine in sorted(found.items()):
            step = mine[0], mine[1] - other[1]
            if not steps or steps[-1][0][0] != other[0] or steps[-1][1:] != step:
                steps.append((other, *step))
        if _may_shift(steps, len(found)) and any(mine != other for other, mine in found.items()):
            self.shifted, self.steps = found, steps

    def is_expected(self, path: Path, ours: Any, theirs: Any, pair: tuple[Record, Record]) -> bool:
        """Return whether a difference of two leaves need not be reported."""
        if path[0] == "headers":
            return self._run(ours, theirs) if path[1] == RUN_ID else self._renamed(path, ours, theirs, pair)
        if path == ("key", "payload", "id") and (is_transaction(pair[1]) or is_notification(pair[1])):
            return self._id(path, ours, theirs, pair)
        if path[:2] != ("value", "payload") or len(path) < 3:
            return path[0] == "key" and self._row_value(path, ours, theirs, pair)
        if path[2] in _ROWS:
            return self._row_value(path, ours, theirs, pair)
        rule = _RULES.get(path[-1], VolatileValues._renamed)
        return rule(self, path, ours, theirs, pair)

    def _run(self, ours: Any, theirs: Any) -> bool:
        """Return whether a run of ours may correspond to a recorded one; a capture of ours has several."""
        if run_began(ours) is None or run_began(theirs) is None:
            return False
        return self.runs.setdefault(str(ours), str(theirs)) == str(theirs)

    def _time(self, path: Path, ours: Any, theirs: Any, pair: tuple[Record, Record]) -> bool:
        if not (isinstance(ours, Number) and isinstance(theirs, Number)):
            return False
        mine, other = (consistent_units(r.at(*path[:-1])) for r in pair)
        if mine != other or len(ours) != len(theirs):
            return False
        sides = zip(pair, self.windows, (False, True), strict=True)
        return all(is_plausible_time(path, record, window, recorded=recorded) for record, window, recorded in sides)

    def _renamed(self, path: Path, ours: Any, theirs: Any, pair: tuple[Record, Record]) -> bool:
        """Compare a member of an event that transforms have renamed or put into a header (``__source_ts_ms``)."""
        match = _RENAMED.fullmatch(path[-1])
        if match is None or not (isinstance(ours, str) and isinstance(theirs, str)):
            return False
        if match[1] in ("gtid", "transaction_id", "transaction.id"):
            return self._gtid(path, ours, theirs, pair)
        if not (ours.isdigit() and theirs.isdigit()):
            return False
        if match[1] in _PER_SECOND:
            if len(ours) != len(theirs):
                return False
            moments = (int(text) / _PER_SECOND[match[1]] for text in (ours, theirs))
            return all(window.holds(moment) for window, moment in zip(self.windows, moments, strict=True))
        return (self.threads if match[1] == "thread" else self.server_ids).holds(ours, theirs)

    def _server_id(self, path: Path, ours: Any, theirs: Any, pair: tuple[Record, Record]) -> bool:
        return _ids(ours, theirs) and "0" not in (ours, theirs) and self.server_ids.holds(ours, theirs)

    def _thread(self, path: Path, ours: Any, theirs: Any, pair: tuple[Record, Record]) -> bool:
        return _ids(ours, theirs) and self.threads.holds(ours, theirs)

    def _gtid(self, path: Path, ours: Any, theirs: Any, pair: tuple[Record, Record]) -> bool:
        if not (isinstance(ours, str) and isinstance(theirs, str)):
            return False
        a, b = _GTID.fullmatch(ours), _GTID.fullmatch(theirs)
        if a is None or b is None or not self.uuids.holds(a[1], b[1]):
            return False
        if not self.adhoc.marked and not self.order.moved:
            return a[3] == b[3]
        return self._same_number(a[3], b[3])

    def _id(self, path: Path, ours: Any, theirs: Any, pair: tuple[Record, Record]) -> bool:
        if not is_notification(pair[1]):
            return self._gtid(path, ours, theirs, pair)
        one = may_be_one_id(str(ours), str(theirs))
        return self.notifications.holds(str(ours), str(theirs)) if one is None else one

    def _notified_at(self, path: Path, ours: Any, theirs: Any, pair: tuple[Record, Record]) -> bool:
        if not (_ids(ours, theirs) and len(ours) == len(theirs) and is_notification(pair[1])):
            return False
        return all(w.holds(int(v) / 1000) for w, v in zip(self.windows, (ours, theirs), strict=True))

    def _same_number(self, ours: str, theirs: str) -> bool:
        """Return whether two transactions are the same one, those of watermarks not counted, in the recorded order."""
        mine, other = (text.removeprefix(":") for text in (ours, theirs))
        if not (mine.isdigit() and other.isdigit()):
            return False
        place = self.order.place(self.adhoc.ours.transaction_index(int(mine)))
        return place == self.adhoc.theirs.transaction_index(int(other))

    def _position(self, path: Path, ours: Any, theirs: Any, pair: tuple[Record, Record]) -> bool:
        mine, other = position(pair[0]), position(pair[1])
        if other is not None and self.shifted.get(other) == mine:
            return True
        if not self.adhoc.marked and not self._is_between(pair[0]):
            return False
        place = self.order.place(self.adhoc.ours.transaction_index_of(pair[0]))
        return place == self.adhoc.theirs.transaction_index_of(pair[1]) and self.adhoc.same_offset(*pair)

    def _is_between(self, ours: Record) -> bool:
        return self.adhoc.ours.transaction_index_of(ours) in self.order.between

    def _row_value(self, path: Path, ours: Any, theirs: Any, pair: tuple[Record, Record]) -> bool:
        sides = tuple(zip((ours, theirs), pair, strict=True))
        if _uuid(ours) and _uuid(theirs):
            return all(is_new_uuid(value, record) for value, record in sides) and self.row_uuids.holds(ours, theirs)
        schema = schema_of_pair(pair, path)
        name = str(schema.get("name")) if isinstance(schema, dict) else ""
        return all(is_now(name, value, record, self.adhoc.zones.server) for value, record in sides)


Rule = Callable[[VolatileValues, Path, Any, Any, tuple[Record, Record]], bool]
_RULES: dict[str, Rule] = {
    **dict.fromkeys(TIMES, VolatileValues._time),
    "server_id": VolatileValues._server_id,
    "thread": VolatileValues._thread,
    "gtid": VolatileValues._gtid,
    "id": VolatileValues._id,
    "timestamp": VolatileValues._notified_at,
    "pos": VolatileValues._position,
    "file": VolatileValues._position,
}


def _may_shift(steps: Sequence[tuple[tuple[str, int], str, int]], positions: int) -> bool:
    """Return whether two runs of a workload may differ by these distances.

    Args:
        steps: (recorded position, our file, distance) wherever the distance changes.
        positions: How many positions there are.
    """
    if any(file != mine for (file, _), mine, _ in steps):
        return False
    changes = list(_changes(steps))
    if len([c for c in changes if c]) > max(MAX_STEPS, positions // 2):
        return False
    return all(change < _SHORTEST_EVENT for change in changes)


def _changes(steps: Sequence[tuple[tuple[str, int], str, int]]) -> Iterator[int]:
    """Yield by how many bytes the distance changes at each step.

    Each file begins without a distance, the first one also with that of the sentinel's statement.
    """
    before: tuple[str, int] | None = None
    for (file, _), _mine, distance in steps:
        if before is not None and before[0] == file:
            yield abs(distance - before[1])
        else:
            begins = distance == 0 or (before is None and distance == -_LONGER_SENTINEL)
            yield 0 if begins else _SHORTEST_EVENT
        before = file, distance


def transaction_number(text: str) -> str:
    """Return a transaction's id without the server's UUID."""
    match = _GTID.fullmatch(text)
    return match[3] if match else text


def position(record: Record) -> tuple[str, int] | None:
    """Return the binlog position a record names."""
    payload = record.payload
    source = payload.get("source") if isinstance(payload, dict) else None
    if not isinstance(source, dict) or not isinstance(source.get("pos"), Number):
        return None
    return str(source.get("file")), int(source["pos"])


def schema_at(record: Record, path: Path) -> Any:
    """Return the Connect schema of the value at a path below ``key.payload`` or ``value.payload``."""
    node = record.at(path[0], "schema")
    for step in path[2:]:
        fields = node.get("fields") if isinstance(node, dict) else None
        node = next((f for f in fields or () if f.get("field") == step), None)
    return node


def schema_of_pair(pair: tuple[Record | None, Record | None], path: Path) -> Any:
    """Return the recorded schema of the value at a path; ours if the recorded part was written without schemas."""
    ours, theirs = pair
    record = ours if theirs is None or (path[0] in theirs.bare and ours is not None) else theirs
    return None if record is None else schema_at(record, path)


def _ids(ours: Any, theirs: Any) -> bool:
    return isinstance(ours, Number) and isinstance(theirs, Number)


def _uuid(value: Any) -> bool:
    return isinstance(value, str) and UUID.fullmatch(value) is not None
