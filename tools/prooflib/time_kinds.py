"""Kinds of explained differences in dates and times."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from prooflib.clock import SessionZones
from prooflib.values import in_snapshot, name_of, schema_of, texts
from prooflib.workload import ProofError

if TYPE_CHECKING:
    from prooflib.differ import Difference

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Units a second of the time types, by schema name.
_UNITS = {
    "io.debezium.time.Timestamp": 1000,
    "io.debezium.time.MicroTimestamp": 1_000_000,
    "io.debezium.time.NanoTimestamp": 1_000_000_000,
    "org.apache.kafka.connect.data.Timestamp": 1000,
}
_ISO = ("io.debezium.time.IsoDate", "io.debezium.time.IsoTimestamp", "io.debezium.time.ZonedTimestamp")
_DAYS = ("io.debezium.time.Date", "org.apache.kafka.connect.data.Date")
_ZONE = "database.connectionTimeZone"
SERVER_ZONE = "server zone"
"""Name by which the settings of a recording have the zone of its server, which is no property."""


def year_zero(d: Difference) -> bool:
    """Return whether our YEAR 0000 is a year that the recorded capture made up of it."""
    if d.path[0] == "headers":
        return texts(d) and d.theirs != d.ours == d.theirs.replace(":1900", ":0")
    of_year = name_of(d) == "io.debezium.time.Year" or d.path[-1] == "default"
    return of_year and d.ours == "0" and d.theirs in ("2000", "1900")


def date_in_year_zero(d: Difference) -> bool:
    """Return whether the recorded snapshot moved a date of the year 0000 by 2000 years, a DATETIME by one more.

    Ours is null, or the epoch where the column is NOT NULL; so it is in the recorded stream of the same row, which
    distinguishes such a date from one that really is in the year 2000 or 2001.
    """
    twin = d.context.streamed_record
    if not in_snapshot(d) or not isinstance(d.theirs, str) or twin is None or twin.at(*d.path) != d.ours:
        return False
    epoch = isinstance(d.ours, str) and _moment(d, d.ours) == _EPOCH and not schema_of(d).get("optional", True)
    if d.ours is not None and not epoch:
        return False
    # With enable.time.adjuster=false it stays in the years 0 and 1, which datetime does not reach.
    moments = (_moment(d, d.theirs), _moment(d, d.theirs, timedelta(days=2000 * 365 + 485)))
    year = 2000 if name_of(d) in (*_DAYS, "io.debezium.time.IsoDate") else 2001
    return any(m is not None and m.year == year for m in moments)


def new_year_of_zero(d: Difference) -> bool:
    """Return whether the recorded snapshot has 2000-01-01, made of 0000-01-01, where ours is null.

    For a recording without a stream, which would distinguish the two: the entry of the list names the column.
    """
    moved = in_snapshot(d) and d.ours is None and isinstance(d.theirs, str)
    return moved and _moment(d, d.theirs) == datetime(2000, 1, 1, tzinfo=UTC)


def gregorian_gap(d: Difference) -> bool:
    """Return whether the recorded snapshot has a day of October 5 to 14, 1582, ten days later."""
    if not isinstance(d.ours, str) or not isinstance(d.theirs, str) or not in_snapshot(d):
        return False
    ours, theirs = _moment(d, d.ours), _moment(d, d.theirs)
    if ours is None or theirs is None or theirs - ours != timedelta(days=10):
        return False
    return datetime(1582, 10, 5, tzinfo=UTC) <= ours < datetime(1582, 10, 15, tzinfo=UTC)


def moment_of(name: str, value: object) -> datetime | None:
    """Return a value of a row or a default as a moment, None if its type is none or it is beyond Python's years."""
    try:
        return _read_moment(name, str(value), timedelta(0))
    except (ValueError, OverflowError):
        return None


def _moment(d: Difference, value: str, later: timedelta = timedelta(0)) -> datetime | None:
    try:
        return _read_moment(name_of(d), value, later)
    except (ValueError, OverflowError):
        # Debezium has years before 1 and after 9999, too.
        return None


def _read_moment(name: str, value: str, later: timedelta) -> datetime | None:
    if name in _ISO:
        moment = datetime.fromisoformat(value.removesuffix("Z"))
        return moment.replace(tzinfo=UTC) + later
    if name in _DAYS:
        return _EPOCH + (timedelta(days=int(value)) + later)
    unit = _UNITS.get(name)
    return None if unit is None else _EPOCH + (timedelta(microseconds=int(value) * 1_000_000 // unit) + later)


def zone_of_session(d: Difference, settings: Mapping[str, str]) -> bool:
    """Return whether the recorded snapshot has our TIMESTAMP as if the server were in connectionTimeZone."""
    if not texts(d) or not in_snapshot(d) or name_of(d) != "io.debezium.time.ZonedTimestamp":
        return False
    zones = session_zones(settings)
    if zones.connection is None:
        return False
    try:
        ours, theirs = (datetime.fromisoformat(v) for v in (d.ours, d.theirs))
    except ValueError:
        return False
    # Java's calendar takes the later one of two moments that a clock shows twice.
    shown = ours.astimezone(zones.server).replace(tzinfo=zones.connection, fold=1)
    return bool(shown.astimezone(UTC) == theirs != ours)


def session_zones(settings: Mapping[str, str]) -> SessionZones:
    """Return the zones of a recording: that which the connector was given for its connections, and the server's.

    Raises:
        ProofError: The server's zone has no such name.
    """
    server = _zone(name := settings.get(SERVER_ZONE, "UTC"))
    if server is None:
        raise ProofError(f"the zone of the server is not known: {name}; name it as Europe/Berlin or +02:00")
    return SessionZones(_zone(settings.get(_ZONE, "")), server)


def _zone(name: str) -> tzinfo | None:
    offset = re.fullmatch(r"([-+])(\d\d):(\d\d)", name)
    if offset is not None:
        distance = timedelta(hours=int(offset[2]), minutes=int(offset[3]))
        return timezone(-distance if offset[1] == "-" else distance)
    try:
        return ZoneInfo(name)
    except (ValueError, ZoneInfoNotFoundError):
        # LOCAL and SERVER name no zone.
        return None


def trailing_zeros(d: Difference) -> bool:
    """Return whether the recorded snapshot cut the zeros at the end of our fraction of a second."""
    if not texts(d) or not in_snapshot(d) or name_of(d) != "io.debezium.time.ZonedTimestamp":
        return False
    whole, dot, fraction = d.ours.removesuffix("Z").partition(".")
    return bool(dot) and f"{whole}.{fraction}".rstrip("0").rstrip(".") + "Z" == d.theirs
