"""What cannot be equal in two runs, and what must hold of it all the same.

Times are compared by their kind and by the relation of milli-, micro- and nanoseconds; server and thread ids and the
UUID of a GTID by a one-to-one mapping that holds over the whole capture (transaction numbers are equal); binlog
positions are equal, or shifted by a distance that changes a few times at most, as a longer statement before the
workload shifts them. A change by fewer bytes than the shortest event has is less suspicious, and may happen more often:
the salt of CREATE USER is random, and a compressed transaction is longer or shorter for the times in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from prooflib.records import Number, Path, Record

TIMES = ("ts_ms", "ts_us", "ts_ns")
MAX_STEPS = 4
_SHORTEST_EVENT = 23
RUN_ID = "__debezium.context.runId"
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_GTID = re.compile(rf"({UUID.pattern})(:.+)")
_ROWS = ("before", "after")
# A row's own clock value lies this many seconds at most before the record's time, and at most so many after it.
_BEFORE_S, _AFTER_S = 3600.0, 5.0


@dataclass(slots=True)
class Mapping:
    """Hold a one-to-one mapping of ids that grows while records are compared."""

    _to: dict[str, str] = field(default_factory=dict)
    _from: dict[str, str] = field(default_factory=dict)

    def holds(self, ours: str, theirs: str) -> bool:
        """Return whether the two may be the same id, and take note of it."""
        return self._to.setdefault(ours, theirs) == theirs and self._from.setdefault(theirs, ours) == ours


@dataclass(slots=True)
class Volatile:
    """Decide whether a difference is one of those that no two runs can avoid."""

    server_ids: Mapping = field(default_factory=Mapping)
    threads: Mapping = field(default_factory=Mapping)
    uuids: Mapping = field(default_factory=Mapping)
    shifted: dict[tuple[str, int], tuple[str, int]] = field(default_factory=dict)
    steps: list[tuple[tuple[str, int], str, int]] = field(default_factory=list)

    def note_positions(self, pairs: Iterable[tuple[Record, Record]]) -> None:
        """Learn how positions of the two captures correspond.

        Args:
            pairs: Records that stand for each other.
        """
        found: dict[tuple[str, int], tuple[str, int]] = {}
        for ours, theirs in pairs:
            mine, other = position(ours), position(theirs)
            if mine is not None and other is not None:
                found[other] = mine
        steps: list[tuple[tuple[str, int], str, int]] = []
        for other, mine in sorted(found.items()):
            step = mine[0], mine[1] - other[1]
            if not steps or steps[-1][0][0] != other[0] or steps[-1][1:] != step:
                steps.append((other, *step))
        small = sum(1 for change in _changes(steps) if change < _SHORTEST_EVENT)
        few = len(steps) - small <= MAX_STEPS and small <= max(MAX_STEPS, len(found) // 2)
        if few and any(mine != other for other, mine in found.items()):
            self.shifted, self.steps = found, steps

    def masks(self, path: Path, ours: Any, theirs: Any, pair: tuple[Record, Record]) -> bool:
        """Return whether a difference of two leaves need not be told.

        Args:
            path: Where it stands.
            ours: Our value.
            theirs: The recorded value.
            pair: The records.
        """
        if path[0] == "headers":
            return path[1] == RUN_ID and _uuid(ours) and _uuid(theirs)
        if path == ("key", "payload", "id") and is_transaction(pair[1]):
            return self._gtid(path, ours, theirs, pair)
        if path[:2] != ("value", "payload") or len(path) < 3:
            return path[0] == "key" and self._row_value(path, ours, theirs, pair)
        if path[2] in _ROWS:
            return self._row_value(path, ours, theirs, pair)
        rule = _RULES.get(path[-1])
        return rule is not None and rule(self, path, ours, theirs, pair)

    def _time(self, path: Path, ours: Any, theirs: Any, pair: tuple[Record, Record]) -> bool:
        if not (isinstance(ours, Number) and isinstance(theirs, Number)):
            return False
        mine, other = (_related(r.at(*path[:-1])) for r in pair)
        return mine == other and len(ours) == len(theirs)

    def _server_id(self, path: Path, ours: Any, theirs: Any, pair: tuple[Record, Record]) -> bool:
        return _ids(ours, theirs) and "0" not in (ours, theirs) and self.server_ids.holds(ours, theirs)

    def _thread(self, path: Path, ours: Any, theirs: Any, pair: tuple[Record, Record]) -> bool:
        return _ids(ours, theirs) and self.threads.holds(ours, theirs)

    def _gtid(self, path: Path, ours: Any, theirs: Any, pair: tuple[Record, Record]) -> bool:
        if not (isinstance(ours, str) and isinstance(theirs, str)):
            return False
        a, b = _GTID.fullmatch(ours), _GTID.fullmatch(theirs)
        return a is not None and b is not None and a[3] == b[3] and self.uuids.holds(a[1], b[1])

    def _position(self, path: Path, ours: Any, theirs: Any, pair: tuple[Record, Record]) -> bool:
        mine, other = position(pair[0]), position(pair[1])
        return other is not None and self.shifted.get(other) == mine

    def _row_value(self, path: Path, ours: Any, theirs: Any, pair: tuple[Record, Record]) -> bool:
        if _uuid(ours) and _uuid(theirs):
            return True
        schema = schema_at(pair[1], path)
        name = schema.get("name") if isinstance(schema, dict) else None
        read = _CLOCKS.get(str(name))
        if read is None:
            return False
        return all(_is_now(read, value, record) for value, record in zip((ours, theirs), pair, strict=True))


Rule = Callable[[Volatile, Path, Any, Any, tuple[Record, Record]], bool]
_RULES: dict[str, Rule] = {
    **dict.fromkeys(TIMES, Volatile._time),
    "server_id": Volatile._server_id,
    "thread": Volatile._thread,
    "gtid": Volatile._gtid,
    "id": Volatile._gtid,
    "pos": Volatile._position,
    "file": Volatile._position,
}


def _changes(steps: Sequence[tuple[tuple[str, int], str, int]]) -> Iterator[int]:
    """Yield by how many bytes the distance changes at each step; each file begins without one."""
    before: tuple[tuple[str, int], str, int] | None = None
    for (file, _), mine, distance in steps:
        same = before is not None and before[0][0] == file and before[1] == mine
        yield abs(distance - before[2] if before is not None and same else distance)
        before = ((file, 0), mine, distance)


def is_transaction(record: Record) -> bool:
    """Return whether the record marks the begin or the end of a transaction."""
    payload = record.payload
    return isinstance(payload, dict) and "status" in payload and "event_count" in payload


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
    """Return the Connect schema of what stands at a path below ``key.payload`` or ``value.payload``."""
    node = record.at(path[0], "schema")
    for step in path[2:]:
        fields = node.get("fields") if isinstance(node, dict) else None
        node = next((f for f in fields or () if f.get("field") == step), None)
    return node


def _ids(ours: Any, theirs: Any) -> bool:
    return isinstance(ours, Number) and isinstance(theirs, Number)


def _uuid(value: Any) -> bool:
    return isinstance(value, str) and UUID.fullmatch(value) is not None


def _related(node: Any) -> tuple[bool, bool]:
    """Return whether micro- and nanoseconds beside a time are the same moment as its milliseconds."""
    if not isinstance(node, dict) or not isinstance(node.get("ts_ms"), Number):
        return False, False
    ms, us, ns = (int(node[t]) if isinstance(node.get(t), Number) else None for t in TIMES)
    return us is not None and us // 1000 == ms, ns is not None and us is not None and ns // 1000 == us


def _is_now(read: Callable[[Any], float], value: Any, record: Record) -> bool:
    payload = record.payload
    source = payload.get("source") if isinstance(payload, dict) else None
    if not isinstance(source, dict):
        return False
    try:
        clock = read(value)
    except (TypeError, ValueError):
        return False
    # The source's time is a zone off in a recorded snapshot whose connectionTimeZone is not the server's.
    times = [source.get("ts_ms"), payload.get("ts_ms") if record.snapshot else None]
    return any(_is_near(read, clock, int(t) / 1000) for t in times if isinstance(t, Number))


def _is_near(read: Callable[[Any], float], clock: float, now: float) -> bool:
    if read in (_midnight, _iso_day):
        now -= now % 86_400
        # Besides CURRENT_DATE, the workloads have CURRENT_DATE + INTERVAL 1 YEAR.
        return clock in (now, _year_later(now))
    if clock < 86_400:
        now %= 86_400
    return now - _BEFORE_S <= clock <= now + _AFTER_S


def _scaled(unit: int) -> Callable[[Any], float]:
    return lambda value: int(value) / unit if isinstance(value, Number) else float("nan")


def _iso(value: Any) -> float:
    moment = datetime.fromisoformat(str(value).replace("Z", "+00:00"))
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _iso_day(value: Any) -> float:
    return datetime.fromisoformat(str(value).removesuffix("Z") + "T00:00:00+00:00").timestamp()


def _year_later(midnight: float) -> float:
    day = datetime.fromtimestamp(midnight, UTC)
    leap = (day.month, day.day) == (2, 29)  # MySQL gives February 28 of the next year
    return day.replace(year=day.year + 1, day=28 if leap else day.day).timestamp()


def _midnight(value: Any) -> float:
    return int(value) * 86_400 if isinstance(value, Number) else float("nan")


# Schema name -> seconds since 1970 (or since midnight) of a value that CURRENT_TIMESTAMP and the like may have made.
_CLOCKS: dict[str, Callable[[Any], float]] = {
    "io.debezium.time.Timestamp": _scaled(1000),
    "io.debezium.time.MicroTimestamp": _scaled(1_000_000),
    "io.debezium.time.NanoTimestamp": _scaled(1_000_000_000),
    "org.apache.kafka.connect.data.Timestamp": _scaled(1000),
    "io.debezium.time.ZonedTimestamp": _iso,
    "io.debezium.time.IsoTimestamp": _iso,
    "io.debezium.time.Date": _midnight,
    "org.apache.kafka.connect.data.Date": _midnight,
    "io.debezium.time.IsoDate": _iso_day,
    "io.debezium.time.MicroTime": _scaled(1_000_000),
    "io.debezium.time.NanoTime": _scaled(1_000_000_000),
}
