"""SQL expressions of single values as the encoders write them in JSON, by family of types.

Each expression is of a value that is not NULL, and gives what ``text_renderers`` makes of the value that SELECT gives.
Where the encoder refuses a value, it is NULL or gives a text that no record has. Of types and modes without one
(``value_sql``) the tasks encode the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.decode.codegen.temporal_renderers import TIMES_OF_DAY, datetime_unit, time_unit
from airflow_provider_mysql_cdc.cdc.model.mysql_types import Family
from airflow_provider_mysql_cdc.cdc.model.table import Column, quote_name
from airflow_provider_mysql_cdc.cdc.verify.read.sql_literals import sql_literal

_EPOCH_DAY, _EPOCH_SECOND = 719_528, 62_167_219_200
"""TO_DAYS and TO_SECONDS of 1970-01-01."""
_MICROS = 1_000_000
_OTHER_TIMES = ("isostring", "nanoseconds")
_BIGINT_DIGITS = 18
"""Digits of a DECIMAL that BIGINT holds."""
_NEWLINE = f"{sql_literal(chr(10))} COLLATE utf8mb4_bin"
"""TO_BASE64 begins a new line after 76 characters. A literal with an introducer has the default collation, which 8.0.15
does not mix with the session's in REPLACE."""


class QuotedSql(str):
    """Hold an expression whose text stands between quotes, which it does not give."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class SqlRequest:
    """Describe a column whose expression is wanted.

    Args:
        column: The column; its values are written as they are.
        options: Modes.
        null: JSON text of NULL, as SQL.
    """

    column: Column
    options: DecoderOptions
    null: str

    @property
    def name(self) -> str:
        """Return the column in SQL."""
        return quote_name(self.column.name)

    @property
    def zero(self) -> str:
        """Return the text of MySQL's zero dates (TYPE-53), as SQL."""
        return self.null if self.column.nullable else "0"


def value_sql(request: SqlRequest) -> str | None:
    """Return the expression of the text of a column's values; None if there is none.

    FLOAT, DOUBLE and JSON are printed otherwise by the server than in records, spatial values and vectors not at all.
    """
    build = _EXPRESSIONS.get(request.column.family)
    return None if build is None else build(request)


def _integer(request: SqlRequest) -> str | None:
    column, name, options = request.column, request.name, request.options
    if (test := options.boolean_test(column)) is not None:
        return f"IF({name} {test}, 'true', 'false')"
    if column.mysql_type.width == 8 and column.unsigned:
        return None if options.bigint_unsigned_mode == "precise" else f"CAST({name} AS SIGNED)"
    # A sum has not the zeros that ZEROFILL adds to the column's text.
    return f"({name} + 0)" if column.zerofill else name


def _decimal(request: SqlRequest) -> str | None:
    """Return Base64 of the shortest two's complement of the number without its point, in mode precise."""
    column, name, digits, scale = request.column, request.name, request.column.length or 10, request.column.scale or 0
    if request.options.decimal_mode == "string":
        return QuotedSql(f"({name} + 0)" if column.zerofill else name)
    if request.options.decimal_mode != "precise" or digits > _BIGINT_DIGITS:
        return None
    tests, most_bytes = [], ((10**digits - 1).bit_length() >> 3) + 1
    for size in range(1, most_bytes):
        high = (1 << 8 * size - 1) - 1
        first, last = (f"{Decimal(number).scaleb(-scale):f}" for number in (~high, high))
        tests.append(f"WHEN {name} BETWEEN {first} AND {last} THEN {2 * size}")
    size_case = f"CASE {' '.join(tests)} ELSE {2 * most_bytes} END" if tests else "2"
    # HEX gives the 16 digits of a negative number, and no leading zeros of others.
    hex_digits = f"LPAD(HEX(CAST({name} * {10**scale} AS SIGNED)), 16, '0')"
    return QuotedSql(f"TO_BASE64(UNHEX(RIGHT({hex_digits}, {size_case})))")


def _bit(request: SqlRequest) -> str | None:
    return f"IF({request.name}, 'true', 'false')" if (request.column.length or 1) == 1 else None


def _text(request: SqlRequest) -> str | None:
    charset = request.column.charset or "utf8mb4"
    if charset == "binary":
        return _bytes(request) if request.column.family is Family.TEXT else None
    return f"JSON_QUOTE({request.name if charset == 'utf8mb4' else f'CONVERT({request.name} USING utf8mb4)'})"


def _bytes(request: SqlRequest) -> str:
    base64 = f"REPLACE(TO_BASE64({request.name}), {_NEWLINE}, '')"
    match request.options.binary_mode:
        case "hex":
            return QuotedSql(f"LOWER(HEX({request.name}))")
        case "base64-url-safe":
            return QuotedSql(f"REPLACE(REPLACE({base64}, '+', '-'), '/', '_')")
        case _:
            return QuotedSql(base64)


def _dates(request: SqlRequest, day: str, text: Callable[[str], str]) -> str:
    """Return the expression of a date in all its cases; NULL for a day that the calendar does not have.

    TO_DAYS counts days of the proleptic Gregorian calendar; it is NULL, or that of another day, for a day, month or
    year 0 and for days that only ALLOW_INVALID_DATES accepts.

    Args:
        request: The column.
        day: Expression of its day.
        text: Returns the expression of the text of a date.
    """
    name, adjusts = request.name, request.options.time_adjuster
    is_day = f"FROM_DAYS(TO_DAYS({name})) = {day}"
    first = "0100-01-01" if adjusts else "0001-01-01"
    cases = [
        (f"{name} >= '{first}' AND {is_day}", text(name)),
        (f"YEAR({name}) = 0 OR MONTH({name}) = 0 OR DAYOFMONTH({name}) = 0", request.zero),
    ]
    if adjusts:
        years = f"IF(YEAR({name}) < 70, 2000, 1900)"
        cases.append((f"{name} < '{first}' AND {is_day}", text(f"DATE_ADD({name}, INTERVAL {years} YEAR)")))
    return f"CASE {' '.join(f'WHEN {test} THEN {result}' for test, result in cases)} END"


def _date(request: SqlRequest) -> str | None:
    if request.options.time_mode == "isostring":
        return None
    return _dates(request, request.name, lambda date: f"TO_DAYS({date}) - {_EPOCH_DAY}")


def _datetime(request: SqlRequest) -> str | None:
    mode, digits = request.options.time_mode, request.column.length or 0
    if mode in _OTHER_TIMES:
        return None
    unit = datetime_unit(mode, digits)

    def text(date: str) -> str:
        return f"(TO_SECONDS({date}) - {_EPOCH_SECOND}) * {unit}{_fraction(date, digits, unit)}"

    return _dates(request, f"DATE({request.name})", text)


def _timestamp(request: SqlRequest) -> str:
    text = f"REPLACE({request.name}, ' ', 'T')"
    if request.column.length and request.options.trims_timestamps:
        text = f"TRIM(TRAILING '.' FROM TRIM(TRAILING '0' FROM {text}))"
    zero = request.null if request.column.nullable else sql_literal('"1970-01-01T00:00:00Z"')
    return f"IF(YEAR({request.name}) = 0, {zero}, CONCAT('\"', {text}, 'Z\"'))"


def _time(request: SqlRequest) -> str | None:
    mode, digits, name = request.options.time_mode, request.column.length or 0, request.name
    if mode in (*TIMES_OF_DAY, *_OTHER_TIMES):
        return None
    unit = time_unit(mode, digits)
    fraction = _fraction(name, digits, unit)
    if fraction:  # MICROSECOND has no sign
        fraction = f" + IF({name} < TIME'00:00:00', -1, 1) * ({fraction.removeprefix(' + ')})"
    return f"(TIME_TO_SEC({name}) * {unit}{fraction})"


def _fraction(value: str, digits: int, unit: int) -> str:
    """Return the expression of a fraction in units, with a plus before it; empty where the column has none."""
    whole = "" if unit == _MICROS else f" DIV {_MICROS // unit}"
    return f" + MICROSECOND({value}){whole}" if digits else ""


_EXPRESSIONS: dict[Family, Callable[[SqlRequest], str | None]] = {
    Family.INTEGER: _integer,
    Family.DECIMAL: _decimal,
    Family.BIT: _bit,
    Family.YEAR: lambda request: f"({request.name} + 0)",
    Family.TEXT: _text,
    Family.BYTES: _bytes,
    Family.ENUM: _text,
    Family.SET: _text,
    Family.DATE: _date,
    Family.DATETIME: _datetime,
    Family.TIMESTAMP: _timestamp,
    Family.TIME: _time,
}
