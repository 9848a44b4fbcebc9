"""Renderers of temporal types by ``time.precision.mode``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from airflow_provider_mysql_cdc.cdc.binlog.table_map import WireType
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import NULLED, DecoderOptions
from airflow_provider_mysql_cdc.cdc.decode.codegen.emitter import ColumnRenderer, Emitter, Render, WireLayout
from airflow_provider_mysql_cdc.cdc.decode.values import temporal
from airflow_provider_mysql_cdc.cdc.model import wire_codes as wt
from airflow_provider_mysql_cdc.cdc.model.table import Column

Fields = tuple[tuple[str, str], ...]
FRACTION_FIELDS: dict[int, Fields] = {0: (), 1: (("", "B"),), 2: ((">", "H"),), 3: (("", "B"), (">", "H"))}
"""Parts of a stored fraction by its number of bytes."""
_MILLIS, _MICROS, _NANOS = 1000, 1_000_000, 1_000_000_000
_INT64 = (-(1 << 63), (1 << 63) - 1)
DAY_MICROS = 86_400 * _MICROS
TIMES_OF_DAY = ("connect", "isostring")
"""Modes whose types hold a time of day, where a TIME of MySQL may be below zero or longer (TYPE-46)."""


@dataclass(frozen=True, slots=True)
class TemporalRequest:
    """Describe a temporal column whose code is to be generated.

    Args:
        wire: Wire type; ``a`` is the number of fraction digits of the types that have them.
        options: Modes.
        null: JSON text of NULL.
        column: The column.
    """

    wire: WireType
    options: DecoderOptions
    null: str
    column: Column

    @property
    def nullable(self) -> bool:
        """Whether the column may be NULL."""
        return self.column.nullable

    def unique(self, hint: str) -> str:
        """Return a name for an object that belongs to this column."""
        return f"{hint}_{self.column.position}"

    @property
    def mode(self) -> str:
        """Return ``time.precision.mode``."""
        return self.options.time_mode

    def zero(self, epoch: str) -> str:
        """Return the text of MySQL's zero dates: NULL, or the epoch where NULL is not allowed (TYPE-53)."""
        return self.null if self.nullable else epoch


def fraction_bytes(digits: int) -> int:
    """Return how many bytes hold a fraction of so many digits."""
    return (digits + 1) // 2


def datetime_unit(mode: str, digits: int) -> int:
    """Return units a second of DATETIME as a number (TYPE-39 to TYPE-46)."""
    if mode == "connect":
        return _MILLIS
    if mode == "microseconds":
        return _MICROS
    if mode == "nanoseconds":
        return _NANOS
    return _MILLIS if digits <= 3 else _MICROS


def time_unit(mode: str, digits: int) -> int:
    """Return units a second of TIME as a number (TYPE-38, TYPE-42, TYPE-48)."""
    if mode == "connect" or (mode == "adaptive" and digits <= 3):
        return _MILLIS
    return _NANOS if mode == "nanoseconds" else _MICROS


def join_fraction(emitter: Emitter, names: list[str]) -> str:
    """Join a fraction of three bytes; return its name or ``"0"``."""
    if len(names) == 2:
        emitter.line(f"{names[1]} += {names[0]} << 16")
    return names[-1] if names else "0"


def scale_fraction(name: str, size: int, unit: int) -> str:
    """Return the expression of a fraction (in 100**-size) in units; finer digits are cut."""
    stored = 100**size
    if not size:
        return ""
    if stored == unit:
        return f" + {name}"
    return f" + {name} * {unit // stored}" if unit > stored else f" + {name} // {stored // unit}"


def _date(request: TemporalRequest) -> ColumnRenderer:
    iso = request.mode == "isostring"
    adjust = request.options.time_adjuster
    zero = request.zero('"1970-01-01Z"' if iso else "0")

    def render(emitter: Emitter, names: list[str]) -> str:
        days = emitter.bind(f"DATES_{adjust}", temporal.packed_dates(adjust))
        emitter.line(f"{names[0]} = {days}[{names[0]} | {names[1]} << 16]")
        if iso:
            text = emitter.bind("date_text", temporal.date_text)
            emitter.line(f"{names[0]} = {zero!r} if {names[0]} is None else '\"' + {text}({names[0]}) + 'Z\"'")
        else:
            emitter.line(f"if {names[0]} is None: {names[0]} = {zero!r}")
        return f"{{{names[0]}}}"

    return WireLayout((("<", "H"), ("", "B"))), render


def _year(request: TemporalRequest) -> ColumnRenderer:
    def render(emitter: Emitter, names: list[str]) -> str:
        # 0 is the year 0000; other values count from 1900.
        emitter.line(f"if {names[0]}: {names[0]} += 1900")
        return f"{{{names[0]}}}"

    return WireLayout((("", "B"),)), render


def _datetime(request: TemporalRequest) -> ColumnRenderer:
    digits = request.wire.length
    size = fraction_bytes(digits)
    build = _datetime_iso if request.mode == "isostring" else _datetime_number
    return WireLayout(((">", "I"), ("", "B"), *FRACTION_FIELDS[size])), build(request, digits, size)


def _datetime_number(request: TemporalRequest, digits: int, size: int) -> Render:
    unit, adjust = datetime_unit(request.mode, digits), request.options.time_adjuster
    zero = request.zero("0")

    def render(emitter: Emitter, names: list[str]) -> str:
        top, low = names[:2]
        hours = emitter.bind(f"HOURS_{adjust}_{unit}", temporal.datetime_hours(adjust, unit))
        seconds = emitter.bind(f"SECONDS_{unit}", temporal.datetime_seconds(unit))
        fraction = scale_fraction(join_fraction(emitter, names[2:]), size, unit)
        value = emitter.name("v")
        emitter.line(f"{value} = {hours}[{top} >> 4]")
        emitter.line(f"if {value} is None: {value} = {zero!r}")
        emitter.line(f"else: {value} += {seconds}[({top} & 15) << 8 | {low}]{fraction}")
        if unit == _NANOS:
            limit = emitter.bind(request.unique("int64"), partial(within_int64, request.column, request.options))
            emitter.line(f"{value} = {limit}({value}, {request.null!r})")
        return f"{{{value}}}"

    return render


def within_int64(column: Column, options: DecoderOptions, value: int | str, null: str) -> int | str:
    """Return a number of nanoseconds that fits int64, else NULL as Debezium does.

    Args:
        column: The column.
        options: Modes.
        value: The number, or the text of a zero date.
        null: JSON text of NULL.

    Raises:
        ValueError: When it does not fit and the column is NOT NULL, or its default stands for NULL.
    """
    if isinstance(value, str) or _INT64[0] <= value <= _INT64[1]:
        return value
    if column.nullable and null == "null":
        day, rest = divmod(value, DAY_MICROS * 1000)
        NULLED.note(
            column, options, f"{temporal.date_text(day)} {temporal.clock_text(rest, _NANOS, column.length or 0)}"
        )
        return null
    raise ValueError(
        f"the date does not fit 64-bit nanoseconds{_stands_for_null(null)}: use another time.precision.mode"
    )


def _datetime_iso(request: TemporalRequest, digits: int, size: int) -> Render:
    adjust = request.options.time_adjuster
    zero = request.zero('"1970-01-01T00:00:00Z"')

    def render(emitter: Emitter, names: list[str]) -> str:
        top, low = names[:2]
        hours = emitter.bind(f"HOUR_TEXTS_{adjust}", temporal.datetime_hour_texts(adjust))
        seconds = emitter.bind("MINUTE_SECOND_TEXTS", temporal.minute_second_texts())
        tail = fraction_text(emitter, join_fraction(emitter, names[2:]), digits, size)
        value = emitter.name("v")
        emitter.line(f"{value} = {hours}[{top} >> 4]")
        emitter.line(f"if {value} is None: {value} = {zero!r}")
        trim = emitter.bind("without_zeros", temporal.without_zeros)
        emitter.line(
            f"else: {value} = '\"' + {trim}(f'{{{value}}}{{{seconds}[({top} & 15) << 8 | {low}]}}{tail}') + '\"'"
        )
        return f"{{{value}}}"

    return render


def fraction_text(emitter: Emitter, name: str, digits: int, size: int) -> str:
    """Return the f-string body of ``.fZ`` with as many digits as the column has."""
    if not digits:
        return "Z"
    if size < 3:
        return f"{{{emitter.bind(f'FRACTION_{digits}', temporal.fraction_texts(digits))}[{name}]}}"
    return f".{{{name}:06d}}Z" if digits == 6 else f".{{{name} // 10:05d}}Z"


def _timestamp(request: TemporalRequest) -> ColumnRenderer:
    digits = request.wire.length
    size = fraction_bytes(digits)
    zero = request.zero('"1970-01-01T00:00:00Z"')
    trims = digits > 0 and request.options.trims_timestamps

    def render(emitter: Emitter, names: list[str]) -> str:
        hours = emitter.bind("EPOCH_HOURS", temporal.epoch_hour_texts())
        seconds = emitter.bind("SECOND_TEXTS", temporal.second_texts())
        fraction = join_fraction(emitter, names[1:])
        tail = fraction_text(emitter, fraction, digits, size)
        value = names[0]
        # 0000-00-00 is stored as second 0; MySQL accepts no other TIMESTAMP before 1970-01-01 00:00:01.
        is_zero = f"not {value}" + (f" and not {fraction}" if size else "")
        emitter.line(f"if {is_zero}: {value} = {zero!r}")
        text = f"{{{hours}[{value} // 3600]}}{{{seconds}[{value} % 3600]}}{tail}"
        if trims:
            trim = emitter.bind("without_zeros", temporal.without_zeros)
            emitter.line(f"else: {value} = '\"' + {trim}(f'{text}') + '\"'")
        else:
            emitter.line(f"else: {value} = f'\"{text}\"'")
        return f"{{{value}}}"

    return WireLayout(((">", "I"), *FRACTION_FIELDS[size])), render


def time2_renderer(digits: int, value: Callable[[Emitter, str, str], str]) -> ColumnRenderer:
    """Return layout and renderer of a TIME2, whose bytes are one packed number.

    Args:
        digits: Fraction digits of the column.
        value: Returns the text of a value, of the emitter, a name that is free, and the packed number's expression.
    """
    size = fraction_bytes(digits)

    def render(emitter: Emitter, names: list[str]) -> str:
        packed = f"{names[0]} << 16 | {names[1]}"
        if size:
            packed = f"({packed}) << {8 * size} | {join_fraction(emitter, names[2:])}"
        return value(emitter, names[0], packed)

    return WireLayout((("", "B"), (">", "H"), *FRACTION_FIELDS[size])), render


def _time(request: TemporalRequest) -> ColumnRenderer:
    return time2_renderer(
        request.wire.length, lambda emitter, name, packed: _time_value(emitter, request, name, packed)
    )


def _time_value(emitter: Emitter, request: TemporalRequest, name: str, packed: str) -> str:
    digits = request.wire.length
    size = fraction_bytes(digits)
    is_time_of_day = request.mode in TIMES_OF_DAY
    unit = _MICROS if is_time_of_day else time_unit(request.mode, digits)
    table = emitter.bind(f"TIMES_{size}_{unit}", temporal.packed_times(size, unit))
    emitter.line(f"{name} = {table}[{packed}]")
    if is_time_of_day:
        check = emitter.bind(
            request.unique("in_day"), partial(time_of_day_text, request.column, request.options, digits)
        )
        emitter.line(f"{name} = {check}({name}, {request.null!r})")
    return f"{{{name}}}"


def time_of_day_text(column: Column, options: DecoderOptions, digits: int, value: int, null: str) -> str:
    """Return a TIME for the modes that can only hold a time of day, ``connect`` and ``isostring``.

    Args:
        column: The column; if it may be NULL, a time that the mode cannot hold is.
        options: Modes.
        digits: Its fraction digits.
        value: The time in microseconds; in milliseconds the last one before midnight would be 0, a time of the day.
        null: JSON text of NULL.

    Raises:
        ValueError: When it is outside 00:00 to 24:00 and the column is NOT NULL, or its default stands for NULL.
    """
    mode = options.time_mode
    if mode == "connect" and 0 <= value <= DAY_MICROS:
        return str(value // 1000)
    if mode == "isostring" and 0 <= value < DAY_MICROS:
        return f'"{temporal.time_iso(value, digits)}"'
    if column.nullable and null == "null":
        NULLED.note(column, options, temporal.clock_text(value, _MICROS, digits))
        return null
    why = f"time.precision.mode={mode} cannot represent a TIME outside of one day{_stands_for_null(null)}"
    raise ValueError(f"{why}: use another mode")


def _stands_for_null(null: str) -> str:
    return "" if null == "null" else f", and the default {null} would stand in its place"


def _old_timestamp(request: TemporalRequest) -> ColumnRenderer:
    _, render = _timestamp(replace(request, wire=request.wire._replace(length=0)))
    return WireLayout((("<", "I"),)), render


def _old_datetime(request: TemporalRequest) -> ColumnRenderer:
    unit, adjust, iso = datetime_unit(request.mode, 0), request.options.time_adjuster, request.mode == "isostring"
    zero = request.zero('"1970-01-01T00:00:00Z"' if iso else "0")
    hours, seconds = temporal.epoch_hour_texts(), temporal.second_texts()

    def text(value: int) -> str:
        epoch_seconds = temporal.old_datetime(value, adjust)
        if epoch_seconds is None:
            return zero
        if iso:
            return f'"{hours[epoch_seconds // 3600]}{seconds[epoch_seconds % 3600]}Z"'
        return str(within_int64(request.column, request.options, epoch_seconds * unit, request.null))

    return WireLayout((("<", "Q"),)), _function(request.unique("old_datetime"), text)


def _old_time(request: TemporalRequest) -> ColumnRenderer:
    unit = time_unit(request.mode, 0)

    def text(low: int, high: int) -> str:
        seconds = temporal.old_time(low + (high << 16))
        if request.mode in TIMES_OF_DAY:
            return time_of_day_text(request.column, request.options, 0, seconds * _MICROS, request.null)
        return str(temporal.within_time_type(seconds * unit, unit))

    return WireLayout((("<", "H"), ("", "b"))), _function(request.unique("old_time"), text)


def _function(hint: str, text: Callable[..., str]) -> Render:
    def render(emitter: Emitter, names: list[str]) -> str:
        emitter.line(f"{names[0]} = {emitter.bind(hint, text)}({', '.join(names)})")
        return f"{{{names[0]}}}"

    return render


RENDERERS: dict[int, Callable[[TemporalRequest], ColumnRenderer]] = {
    wt.DATE: _date,
    wt.NEWDATE: _date,
    wt.YEAR: _year,
    wt.TIME: _old_time,
    wt.DATETIME: _old_datetime,
    wt.TIMESTAMP: _old_timestamp,
    wt.TIME2: _time,
    wt.DATETIME2: _datetime,
    wt.TIMESTAMP2: _timestamp,
}
"""By the number of the format."""
