"""Renderers of temporal types as MySQL itself prints them (``DecoderOptions.flat``).

Zero dates and days that no calendar has stay what they are. A TIMESTAMP is printed in UTC.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

from airflow_provider_mysql_cdc.cdc.decode.codegen.emitter import ColumnRenderer, Emitter, Render, WireLayout
from airflow_provider_mysql_cdc.cdc.decode.codegen.temporal_renderers import (
    FRACTION_FIELDS,
    TemporalRequest,
    fraction_bytes,
    join_fraction,
    time2_renderer,
)
from airflow_provider_mysql_cdc.cdc.decode.values import temporal
from airflow_provider_mysql_cdc.cdc.model import wire_codes as wt


def _clock(hours: int, minutes: int, seconds: int) -> str:
    return f"{hours:02d}:{minutes:02d}:{seconds:02d}"


def _date_text(packed: int) -> str:
    return f'"{packed >> 9:04d}-{packed >> 5 & 15:02d}-{packed & 31:02d}"'


def _hour_text(packed: int) -> str:
    """Return ``YYYY-MM-DD hh:`` of a packed DATETIME2 without minutes and seconds (28 bits, the highest is set)."""
    months = packed >> 10 & 0x1FFFF
    return f"{months // 13:04d}-{months % 13:02d}-{packed >> 5 & 31:02d} {packed & 31:02d}:"


@cache
def _fraction_texts(digits: int) -> tuple[str, ...]:
    """Return the table from the stored fraction of 1 to 4 digits to ``.f``."""
    return tuple(text[:-1] for text in temporal.fraction_texts(digits))


# Dates and hours of a table are few; each text is made once.
_DATES: temporal.Memo[str] = temporal.Memo(_date_text)
_HOURS: temporal.Memo[str] = temporal.Memo(_hour_text)
_EPOCH_HOURS: temporal.Memo[str] = temporal.Memo(lambda hour: f"{temporal.date_text(hour // 24)} {hour % 24:02d}:")


def _fraction(emitter: Emitter, digits: int, names: list[str]) -> tuple[str, str]:
    """Return the name of the stored fraction, or ``"0"``, and the f-string body of ``.ffffff``."""
    name = join_fraction(emitter, names)
    if not digits:
        return name, ""
    if fraction_bytes(digits) < 3:
        return name, f"{{{emitter.bind(f'LITERAL_FRACTION_{digits}', _fraction_texts(digits))}[{name}]}}"
    return name, f".{{{name}:06d}}" if digits == 6 else f".{{{name} // 10:05d}}"


def _date(request: TemporalRequest) -> ColumnRenderer:
    def render(emitter: Emitter, names: list[str]) -> str:
        emitter.line(f"{names[0]} = {emitter.bind('LITERAL_DATES', _DATES)}[{names[0]} | {names[1]} << 16]")
        return f"{{{names[0]}}}"

    return WireLayout((("<", "H"), ("", "B"))), render


def _datetime(request: TemporalRequest) -> ColumnRenderer:
    digits = request.wire.length

    def render(emitter: Emitter, names: list[str]) -> str:
        top, low = names[:2]
        hours = emitter.bind("LITERAL_HOURS", _HOURS)
        seconds = emitter.bind("MINUTE_SECOND_TEXTS", temporal.minute_second_texts())
        _, tail = _fraction(emitter, digits, names[2:])
        emitter.line(f"{top} = f'\"{{{hours}[{top} >> 4]}}{{{seconds}[({top} & 15) << 8 | {low}]}}{tail}\"'")
        return f"{{{top}}}"

    return WireLayout(((">", "I"), ("", "B"), *FRACTION_FIELDS[fraction_bytes(digits)])), render


def _timestamp(request: TemporalRequest) -> ColumnRenderer:
    """Print a TIMESTAMP2 in UTC; second 0 without a fraction is the zero date."""
    digits = request.wire.length

    def render(emitter: Emitter, names: list[str]) -> str:
        hours = emitter.bind("LITERAL_EPOCH_HOURS", _EPOCH_HOURS)
        seconds = emitter.bind("SECOND_TEXTS", temporal.second_texts())
        value = names[0]
        fraction, tail = _fraction(emitter, digits, names[1:])
        is_zero = f"not {value}" + (f" and not {fraction}" if digits else "")
        emitter.line(f"if {is_zero}: {value} = f'\"0000-00-00 00:00:00{tail}\"'")
        emitter.line(f"else: {value} = f'\"{{{hours}[{value} // 3600]}}{{{seconds}[{value} % 3600]}}{tail}\"'")
        return f"{{{value}}}"

    return WireLayout(((">", "I"), *FRACTION_FIELDS[fraction_bytes(digits)])), render


def _old_timestamp(request: TemporalRequest) -> ColumnRenderer:
    _, render = _timestamp(replace(request, wire=request.wire._replace(length=0)))
    return WireLayout((("<", "I"),)), render


@cache
def _times(digits: int) -> temporal.Memo[str]:
    """Return the table from a packed TIME2 to ``"[-]hh:mm:ss[.f]"``."""
    size = fraction_bytes(digits)
    return temporal.Memo(lambda packed: time_text(temporal.time_units(packed, size, 1_000_000), digits))


def _time(request: TemporalRequest) -> ColumnRenderer:
    digits = request.wire.length

    def value(emitter: Emitter, name: str, packed: str) -> str:
        emitter.line(f"{name} = {emitter.bind(f'LITERAL_TIMES_{digits}', _times(digits))}[{packed}]")
        return f"{{{name}}}"

    return time2_renderer(digits, value)


def time_text(micros: int, digits: int) -> str:
    """Return microseconds as ``"[-]hh:mm:ss[.f]"``.

    Args:
        micros: Microseconds since midnight, below zero too.
        digits: Fraction digits of the column.
    """
    return f'"{temporal.clock_text(micros, 1_000_000, digits)}"'


def _old_datetime(value: int) -> str:
    """Return a DATETIME of MySQL 5.5 (``YYYYMMDDhhmmss`` as a number)."""
    day, clock = divmod(value, 1_000_000)
    date = f"{day // 10000:04d}-{day // 100 % 100:02d}-{day % 100:02d}"
    return f'"{date} {_clock(clock // 10000, clock // 100 % 100, clock % 100)}"'


def _old_time(low: int, high: int) -> str:
    return time_text(temporal.old_time(low + (high << 16)) * 1_000_000, 0)


def _call(hint: str, function: Callable[..., str]) -> Render:
    def render(emitter: Emitter, names: list[str]) -> str:
        emitter.line(f"{names[0]} = {emitter.bind(hint, function)}({', '.join(names)})")
        return f"{{{names[0]}}}"

    return render


def _renderer(
    hint: str, function: Callable[..., str], *fields: tuple[str, str]
) -> Callable[[TemporalRequest], ColumnRenderer]:
    return lambda request: (WireLayout(fields), _call(hint, function))


RENDERERS: dict[int, Callable[[TemporalRequest], ColumnRenderer]] = {
    wt.DATE: _date,
    wt.NEWDATE: _date,
    wt.TIME: _renderer("old_time_literal", _old_time, ("<", "H"), ("", "b")),
    wt.DATETIME: _renderer("old_datetime_literal", _old_datetime, ("<", "Q")),
    wt.TIMESTAMP: _old_timestamp,
    wt.TIME2: _time,
    wt.DATETIME2: _datetime,
    wt.TIMESTAMP2: _timestamp,
}
"""By the number of the format."""
