"""Defaults of dates, times and bit strings as a statement writes them, to compare with those of a schema."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Units a second of the types of a time of day.
_DAY_UNITS = {
    "io.debezium.time.Time": 1000,
    "io.debezium.time.MicroTime": 1_000_000,
    "io.debezium.time.NanoTime": 1_000_000_000,
    "org.apache.kafka.connect.data.Time": 1000,
}
_ISO_TIME = "io.debezium.time.IsoTime"
_SIGNED = re.compile(r"(-?)(?:(\d+) )?(.*?)(?:\.(\d{1,6}))?")
_PLAIN = re.compile(r"(\d{4}|\d\d)(\d\d)(\d\d)(?:(\d\d)(\d\d)(\d\d))?(?:\.(\d{1,6}))?")
_DATE = re.compile(r"(\d{1,4})\D(\d{1,2})\D(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2}))?(?:\.(\d{1,6}))?)?")


def is_written(name: str, value: Any, moment: datetime | None, text: str | None) -> bool:
    """Return whether a default is the one that a schema change has as text, in any notation that MySQL reads.

    Args:
        name: Name of the default's schema.
        value: The default.
        moment: The default as a moment, None if its type is none.
        text: The ``defaultValueExpression`` of its column.
    """
    if text is None:
        return False
    if name == "io.debezium.data.Bits":
        return isinstance(value, str) and _is_bits(int.from_bytes(base64.b64decode(value), "little"), text)
    try:
        if name in _DAY_UNITS:
            clock = timedelta(microseconds=int(value) * 1_000_000 // _DAY_UNITS[name])
            return any(clock == written for written in _rounded(_clock(text)))
        if name == _ISO_TIME:
            clock = datetime.fromisoformat(f"1970-01-01T{value}") - EPOCH
            return any(clock == written for written in _rounded(_clock(text)))
        written_moment = _moment(text)
    except (ValueError, OverflowError):
        return False
    # A zero date has no value; NOT NULL it is the epoch.
    if written_moment is None:
        return moment == EPOCH
    return any(moment == EPOCH + since for since in _rounded(written_moment - EPOCH))


def _rounded(exact: timedelta) -> Iterator[timedelta]:
    """Yield a time rounded to each number of digits that a column may keep of its seconds."""
    sign, size = (-1, -exact) if exact < timedelta(0) else (1, exact)
    for digits in range(7):
        step = timedelta(microseconds=10 ** (6 - digits))
        yield sign * ((size + step / 2) // step * step)


def _clock(text: str) -> timedelta:
    """Return a TIME: [-][days ]h:m[:s][.fraction], or digits that end with those of the seconds."""
    match = _SIGNED.fullmatch(text)
    assert match is not None
    parts = match[3].split(":")
    if len(parts) == 1:
        digits = parts[0].rjust(6, "0")
        parts = [digits[:-4], digits[-4:-2], digits[-2:]]
    hours, minutes, seconds = (int(p) for p in (*parts, "0")[:3])
    fraction = int((match[4] or "").ljust(6, "0"))
    size = timedelta(days=int(match[2] or 0), hours=hours, minutes=minutes, seconds=seconds, microseconds=fraction)
    return -size if match[1] else size


def _moment(text: str) -> datetime | None:
    """Return a date or a moment, delimited or as digits; None if it is a zero date.

    Raises:
        ValueError: The text is neither.
    """
    match = _PLAIN.fullmatch(text) or _DATE.fullmatch(text)
    if match is None:
        raise ValueError(text)
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    if 0 in (month, day):
        return None
    if len(match[1]) <= 2:
        year += 2000 if year < 70 else 1900
    return datetime(year, month, day, hour, minute, second, int((match[7] or "").ljust(6, "0")), UTC)


def _is_bits(number: int, text: str) -> bool:
    """Return whether a text is a number, or its bits or hexadecimal digits, the last one perhaps cut."""
    digits = text.lower().lstrip("0")
    forms = {str(number), f"{number:b}", f"{number:b}"[:-1], f"{number:x}", f"{number:x}"[:-1]}
    return (digits or "0") in forms or (text, number) == ("true", 1)
