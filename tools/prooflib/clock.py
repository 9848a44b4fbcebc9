"""Times of two runs: what must hold of each by itself, as they cannot be equal.

A record is produced a moment after the server wrote it, and every run of a capture carries the time at which it began
in its id, a UUID of version 7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Any
from uuid import UUID

from prooflib.records import Number, Path, Record

TIMES = ("ts_ms", "ts_us", "ts_ns")
RUN_ID = "__debezium.context.runId"
# A record is produced at most so many seconds after its change; the clocks of server and producer are this far apart.
_LAG_S, _SKEW_S = 600.0, 2.0
# A row's own clock value is at most this many seconds before the record's time, and at most so many after it.
_BEFORE_S, _AFTER_S = 3600.0, 5.0
# Between the begin of UUID time (1582-10-15) and 1970, in units of 100 ns.
_UUID_EPOCH = 0x01B21DD213814000


@dataclass(frozen=True, slots=True)
class SessionZones:
    """Hold the zones of the sessions that read the recorded snapshots.

    Args:
        connection: The zone of connectionTimeZone; None if it names none, so that Debezium asks the server.
        server: The server's zone.
    """

    connection: tzinfo | None = None
    server: tzinfo = UTC


IN_UTC = SessionZones()
"""Snapshots that read what is stored, on a server in UTC."""


@dataclass(frozen=True, slots=True)
class Window:
    """Hold when a capture ran, in seconds since 1970.

    Args:
        begin: Begin of its first run; None when its records carry no run id.
        end: Begin of its last run.
    """

    begin: float | None = None
    end: float = 0.0

    @classmethod
    def of(cls, records: Iterable[Record]) -> Window:
        """Return when the runs of some records began."""
        begins = [began for r in records for n, v in r.headers if n == RUN_ID and (began := run_began(v)) is not None]
        return cls(min(begins), max(begins)) if begins else cls()

    def holds(self, moment: float) -> bool:
        """Return whether a moment is within the capture."""
        return self.begin is None or self.begin - _LAG_S <= moment <= self.end + _LAG_S


def run_began(value: Any) -> float | None:
    """Return when a run began, in seconds since 1970, by its id; None when that is no UUID of version 7."""
    try:
        found = UUID(value)
    except (ValueError, AttributeError, TypeError):
        return None
    return (found.int >> 80) / 1000 if found.version == 7 else None


def is_plausible_time(path: Path, record: Record, window: Window, *, recorded: bool) -> bool:
    """Return whether a time may be that of its record.

    Args:
        path: Its place: in the source block, or in the envelope next to it.
        record: The record.
        window: When its capture ran.
        recorded: Whether it is a recorded one: the source's time is a zone off in a recorded snapshot whose
            connectionTimeZone is not the server's.
    """
    in_source = "source" in path
    moment = record.at(*path[:-1], "ts_ms")
    if not isinstance(moment, Number):
        return False
    if recorded and in_source and record.snapshot:
        return True
    produced = record.payload.get("ts_ms") if in_source else moment
    lag = (int(produced) - int(moment)) / 1000 if isinstance(produced, Number) else 0.0
    return window.holds(int(moment) / 1000) and -_SKEW_S <= lag <= _LAG_S


def consistent_units(node: Any) -> tuple[bool, bool]:
    """Return whether micro- and nanoseconds of a time are the same moment as its milliseconds."""
    if not isinstance(node, dict) or not isinstance(node.get("ts_ms"), Number):
        return False, False
    ms, us, ns = (int(node[t]) if isinstance(node.get(t), Number) else None for t in TIMES)
    return us is not None and us // 1000 == ms, ns is not None and us is not None and ns // 1000 == us


def is_now(name: str, value: Any, record: Record, zone: tzinfo = UTC) -> bool:
    """Return whether a value of a row may come from the clock at the time of the record.

    Args:
        name: Name of its schema.
        value: The value.
        record: The record.
        zone: The server's zone, in which a type without a zone has its time.
    """
    read = _CLOCKS.get(name)
    return read is not None and _is_now(read, value, record, UTC if name == _ZONED else zone)


def is_new_uuid(value: Any, record: Record) -> bool:
    """Return whether a value may come from MySQL's UUID(), of version 1, at the time of the record."""
    return _is_now(_uuid_time, value, record)


def _is_now(read: Callable[[Any], float], value: Any, record: Record, zone: tzinfo = UTC) -> bool:
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
    return any(_is_close(read, clock, _shown(int(t) / 1000, zone)) for t in times if isinstance(t, Number))


def _shown(moment: float, zone: tzinfo) -> float:
    """Return what a clock of a zone shows at a moment, as seconds since 1970 on it."""
    return datetime.fromtimestamp(moment, zone).replace(tzinfo=UTC).timestamp()


def _is_close(read: Callable[[Any], float], clock: float, now: float) -> bool:
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


def _uuid_time(value: Any) -> float:
    found = UUID(value)
    return (found.time - _UUID_EPOCH) / 1e7 if found.version == 1 else float("nan")


_ZONED = "io.debezium.time.ZonedTimestamp"
# Schema name -> seconds since 1970 (or since midnight) of a value that CURRENT_TIMESTAMP and the like may have made.
_CLOCKS: dict[str, Callable[[Any], float]] = {
    "io.debezium.time.Timestamp": _scaled(1000),
    "io.debezium.time.MicroTimestamp": _scaled(1_000_000),
    "io.debezium.time.NanoTimestamp": _scaled(1_000_000_000),
    "org.apache.kafka.connect.data.Timestamp": _scaled(1000),
    _ZONED: _iso,
    "io.debezium.time.IsoTimestamp": _iso,
    "io.debezium.time.Date": _midnight,
    "org.apache.kafka.connect.data.Date": _midnight,
    "io.debezium.time.IsoDate": _iso_day,
    "io.debezium.time.MicroTime": _scaled(1_000_000),
    "io.debezium.time.NanoTime": _scaled(1_000_000_000),
}
