"""Values of MySQL's text protocol by lookup; each lookup table computes a value once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TypeVar

from airflow_provider_mysql_cdc.cdc.decode.values import temporal
from airflow_provider_mysql_cdc.cdc.decode.values.binary_json import compact_text
from airflow_provider_mysql_cdc.cdc.decode.values.json_bytes import escape_utf8, narrowed_float
from airflow_provider_mysql_cdc.cdc.model.java_numbers import java_double, java_float

V = TypeVar("V")


class TextMemo(dict[str, V]):
    """Compute something from a value's text on first use and cache it; clear the cache when it is full.

    Args:
        compute: Returns the value of a text.
    """

    limit = 65536

    def __init__(self, compute: Callable[[str], V]) -> None:
        super().__init__()
        self._compute = compute

    def __missing__(self, text: str) -> V:
        if len(self) >= self.limit:
            self.clear()
        value = self[text] = self._compute(text)
        return value


class HourMemo(dict[str, "int | None"]):
    """Remember the units since the epoch of ``YYYY-MM-DD hh``; None for zero dates.

    Args:
        adjust: Whether years 1 to 99 count as 1970 to 2069.
        unit: Units a second.
    """

    limit = 65536

    def __init__(self, adjust: bool, unit: int) -> None:
        super().__init__()
        self._adjust, self._unit = adjust, unit

    def __missing__(self, text: str) -> int | None:
        if len(self) >= self.limit:
            self.clear()
        days = text_days(text, self._adjust)
        value = self[text] = None if days is None else (days * 24 + int(text[11:13])) * 3600 * self._unit
        return value


def text_days(text: str, adjust: bool) -> int | None:
    """Return days since the epoch of ``YYYY-MM-DD...``, or None for zero dates."""
    return temporal.days_or_none(int(text[:4]), int(text[5:7]), int(text[8:10]), adjust)


@cache
def datetime_hours(adjust: bool, unit: int) -> HourMemo:
    """Return the table of ``HourMemo``."""
    return HourMemo(adjust, unit)


@cache
def minute_seconds(unit: int) -> dict[str, int]:
    """Return the table from ``mm:ss`` to units in the hour."""
    return {f"{m:02d}:{s:02d}": (m * 60 + s) * unit for m in range(60) for s in range(60)}


def time_value(text: str, unit: int) -> int:
    """Return ``[-]hhh:mm:ss[.f]`` in units a second; a fraction of a unit is cut off.

    Raises:
        ValueError: See ``temporal.within_time_type``.
    """
    sign, text = (-1, text[1:]) if text[0] == "-" else (1, text)
    hours, minutes, seconds = text.split(":")
    whole_seconds, _, fraction = seconds.partition(".")
    units = (int(hours) * 3600 + int(minutes) * 60 + int(whole_seconds)) * unit
    if fraction:
        units += int(fraction) * unit // 10 ** len(fraction)
    return temporal.within_time_type(sign * units, unit)


def wrap_int64(text: str) -> str:
    """Return an unsigned 64-bit number as the signed one of the same bits."""
    value = int(text)
    return str(value - (1 << 64) if value >> 63 else value)


def float_json(text: str) -> str:
    """Return the text of a double that holds a float as Java prints the float."""
    return java_float(float(text))


def narrowed_json(text: str) -> str:
    """Return the text of a double that becomes a 4-byte float as Java prints the float."""
    return narrowed_float(float(text))


def double_json(text: str) -> str:
    """Return the text of a double as Java prints it."""
    return java_double(float(text))


def json_document(data: str) -> str:
    """Return JSON text (UTF-8, byte text) without blanks between its tokens, as the inside of a JSON string."""
    return escape_utf8(compact_text(data))


def plain_number(text: str) -> str:
    """Return a number without the zeros of ZEROFILL."""
    return str(int(text))
