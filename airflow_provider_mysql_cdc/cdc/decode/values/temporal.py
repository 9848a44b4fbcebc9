"""Dates and times of row images, by lookup: each table remembers what it computed once.

MySQL's packed forms (binlog row image, big-endian): DATETIME2 is 40 bits ``1 | year*13+month:17 | day:5 | hour:5 |
minute:6 | second:6``, TIME2 is 24 bits ``1 | 0 | hour:10 | minute:6 | second:6`` minus an offset, both followed by
the fraction in (digits+1)//2 bytes. DATE is 24 bits little-endian ``year:15 | month:4 | day:5``.
Source: MySQL source, my_time.cc (``my_datetime_packed_to_binary`` and siblings).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TypeVar

V = TypeVar("V")
_DAYS_BEFORE_MONTH = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334)
_MILLIS, _INT32_RANGE = 1000, 1 << 31
_MONTH_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class Memo(dict[int, V]):
    """Compute on first use and remember; forget everything when full.

    Args:
        compute: Returns the value of a key.
        limit: Most entries held.
    """

    def __init__(self, compute: Callable[[int], V], limit: int = 65536) -> None:
        super().__init__()
        self.compute = compute
        self.limit = limit

    def __missing__(self, key: int) -> V:
        if len(self) >= self.limit:
            self.clear()
        value = self[key] = self.compute(key)
        return value


def epoch_days(year: int, month: int, day: int) -> int:
    """Return days since 1970-01-01 in the proleptic Gregorian calendar, for every year from 0.

    Raises:
        ValueError: When the month has no such day (MySQL stores it under ALLOW_INVALID_DATES).
    """
    y = year - 1
    leap = (year % 4 == 0 and year % 100 != 0) or year % 400 == 0
    if day > _MONTH_DAYS[month - 1] + (leap and month == 2):
        raise ValueError(f"{year:04d}-{month:02d}-{day:02d} is not a day of the calendar")
    return (
        y * 365
        + y // 4
        - y // 100
        + y // 400
        + _DAYS_BEFORE_MONTH[month - 1]
        + (1 if leap and month > 2 else 0)
        + day
        - 719163
    )


def full_year(year: int) -> int:
    """Return a two-digit year as 1970 to 2069, others as they are (TYPE-70)."""
    if year >= 100:
        return year
    return year + (2000 if year < 70 else 1900)


def clock_text(units: int, unit: int, digits: int) -> str:
    """Return a time as ``[-]hh:mm:ss[.f]``.

    Args:
        units: Units since midnight, below zero too.
        unit: Units a second, 1,000,000 or 1,000,000,000.
        digits: Fraction digits.
    """
    seconds, fraction = divmod(abs(units), unit)
    text = f".{fraction * (1_000_000_000 // unit):09d}"[: digits + 1] if digits else ""
    return f"{'-' if units < 0 else ''}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{text}"


def days_or_none(year: int, month: int, day: int, adjust: bool) -> int | None:
    """Return days since the epoch, or None where MySQL's date has a zero year, month or day (TYPE-53).

    Args:
        year: 0 to 9999.
        month: 0 to 12.
        day: 0 to 31.
        adjust: Whether years 1 to 99 count as 1970 to 2069.
    """
    if year == 0 or month == 0 or day == 0:
        return None
    return epoch_days(full_year(year) if adjust else year, month, day)


def date_text(days: int) -> str:
    """Return ``YYYY-MM-DD`` of days since the epoch (year 1 to 9999)."""
    z = days + 719468
    era = z // 146097
    doe = z - era * 146097
    yoe = (doe - doe // 1460 + doe // 36524 - doe // 146096) // 365
    doy = doe - (365 * yoe + yoe // 4 - yoe // 100)
    mp = (5 * doy + 2) // 153
    month = mp + 3 if mp < 10 else mp - 9
    return f"{yoe + era * 400 + (month <= 2):04d}-{month:02d}-{doy - (153 * mp + 2) // 5 + 1:02d}"


@cache
def packed_dates(adjust: bool) -> Memo[int | None]:
    """Return the table from a packed DATE (24 bits) to days since the epoch or None."""
    return Memo(lambda v: days_or_none(v >> 9, (v >> 5) & 15, v & 31, adjust))


@cache
def datetime_hours(adjust: bool, unit: int) -> Memo[int | None]:
    """Return the table from a packed DATETIME2 without minutes and seconds (28 bits) to its hour since the epoch.

    Args:
        adjust: Whether years 1 to 99 count as 1970 to 2069.
        unit: Units a second: 1000, 1000000 or 1000000000.
    """

    def compute(value: int) -> int | None:
        ym = (value >> 10) & 0x1FFFF
        days = days_or_none(ym // 13, ym % 13, (value >> 5) & 31, adjust)
        return None if days is None else (days * 24 + (value & 31)) * 3600 * unit

    return Memo(compute)


@cache
def datetime_seconds(unit: int) -> tuple[int, ...]:
    """Return the table from 12 bits ``minute:6 | second:6`` to units in the hour."""
    return tuple(((v >> 6) * 60 + (v & 63)) * unit for v in range(4096))


@cache
def datetime_hour_texts(adjust: bool) -> Memo[str | None]:
    """Return the table from a packed DATETIME2 without minutes and seconds to ``YYYY-MM-DDThh:``."""

    def compute(value: int) -> str | None:
        ym = (value >> 10) & 0x1FFFF
        days = days_or_none(ym // 13, ym % 13, (value >> 5) & 31, adjust)
        return None if days is None else f"{date_text(days)}T{value & 31:02d}:"

    return Memo(compute)


@cache
def minute_second_texts() -> tuple[str, ...]:
    """Return the table from 12 bits ``minute:6 | second:6`` to ``mm:ss``."""
    return tuple(f"{v >> 6:02d}:{v & 63:02d}" for v in range(4096))


@cache
def epoch_hour_texts() -> Memo[str]:
    """Return the table from hours since the epoch to ``YYYY-MM-DDThh:``."""
    return Memo(lambda h: f"{date_text(h // 24)}T{h % 24:02d}:")


@cache
def second_texts() -> tuple[str, ...]:
    """Return the table from seconds in the hour to ``mm:ss``."""
    return tuple(f"{s // 60:02d}:{s % 60:02d}" for s in range(3600))


@cache
def fraction_texts(digits: int) -> tuple[str, ...]:
    """Return the table from the stored fraction of 1 to 4 digits to ``.fZ``.

    An odd number of digits is stored as if it were one digit more: 1 and 2 in hundredths, 3 and 4 in ten-thousandths.
    """
    even = digits + (digits & 1)
    return tuple(f".{f:0{even}d}"[: digits + 1] + "Z" for f in range(10**even))


def within_time_type(value: int, unit: int) -> int:
    """Return a TIME as a number that its type can hold.

    Args:
        value: The time in units a second.
        unit: Units a second. Only ``time.precision.mode=adaptive`` has milliseconds: io.debezium.time.Time is an int32
            (Debezium 3.6.1 casts and writes another number), while MySQL goes to 838:59:59.

    Raises:
        ValueError: It is too long for an int32.
    """
    if unit == _MILLIS and not -_INT32_RANGE <= value < _INT32_RANGE:
        raise ValueError(
            "time.precision.mode=adaptive cannot represent a TIME beyond 596:31:23.647: use adaptive_time_microseconds"
        )
    return value


def time_units(packed: int, fraction_bytes: int, unit: int) -> int:
    """Return a packed TIME2 in units a second, negative ones included; a fraction of a unit is cut off.

    Args:
        packed: The 3 + fraction_bytes bytes as a big-endian number.
        fraction_bytes: 0 to 3.
        unit: Units a second.

    Raises:
        ValueError: See ``within_time_type``.
    """
    value = packed - (0x800000 << (8 * fraction_bytes))
    magnitude = abs(value)
    packed_clock = magnitude >> (8 * fraction_bytes)
    fraction = magnitude - (packed_clock << (8 * fraction_bytes))
    seconds = ((packed_clock >> 12) & 0x3FF) * 3600 + ((packed_clock >> 6) & 0x3F) * 60 + (packed_clock & 0x3F)
    fraction_units: int = 100**fraction_bytes
    units = seconds * unit + fraction * unit // fraction_units
    return within_time_type(units if value >= 0 else -units, unit)


@cache
def packed_times(fraction_bytes: int, unit: int) -> Memo[int]:
    """Return the table from a packed TIME2 to units since midnight."""
    return Memo(lambda v: time_units(v, fraction_bytes, unit))


def old_datetime(value: int, adjust: bool) -> int | None:
    """Return seconds since the epoch of a DATETIME of MySQL 5.5 (``YYYYMMDDhhmmss`` as a number), or None."""
    day, clock = divmod(value, 1_000_000)
    days = days_or_none(day // 10000, day // 100 % 100, day % 100, adjust)
    return None if days is None else days * 86400 + clock // 10000 * 3600 + clock // 100 % 100 * 60 + clock % 100


def old_time(value: int) -> int:
    """Return seconds of a TIME of MySQL 5.5 (``[-]hhhmmss`` as a number)."""
    clock = abs(value)
    seconds = clock // 10000 * 3600 + clock // 100 % 100 * 60 + clock % 100
    return seconds if value >= 0 else -seconds


def time_iso(micros: int, digits: int) -> str | None:
    """Return microseconds since midnight as ``hh:mm:ss[.f]Z``, or None outside one day.

    Args:
        micros: Microseconds.
        digits: Fraction digits of the column.
    """
    if not 0 <= micros < 86_400_000_000:
        return None
    seconds, micros = divmod(micros, 1_000_000)
    fraction = f".{micros:06d}"[: digits + 1] if digits else ""
    return without_zeros(f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{fraction}Z")


def without_zeros(text: str) -> str:
    """Return an ISO text that ends in ``Z`` without trailing zeros in its fraction.

    Debezium writes texts of ``time.precision.mode=isostring`` so, and those of TIMESTAMP until 1.9.
    """
    return text[:-1].rstrip("0").rstrip(".") + "Z" if "." in text else text
