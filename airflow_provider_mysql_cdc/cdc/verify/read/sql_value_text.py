"""SQL expressions of single values as the encoders write them in JSON, by family of types and by mode.

Each expression is of a value that is not NULL, and gives what ``text_renderers`` makes of the value that SELECT gives.
Where the encoder refuses a value, it is NULL or gives a text that no record has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.decode.codegen.temporal_renderers import TIMES_OF_DAY, datetime_unit, time_unit
from airflow_provider_mysql_cdc.cdc.model.column_rule import ValueChange, ValueChangeKind
from airflow_provider_mysql_cdc.cdc.model.mysql_types import Family, Metadata, mysql_type
from airflow_provider_mysql_cdc.cdc.model.table import Column, quote_name
from airflow_provider_mysql_cdc.cdc.verify.read.sql_literals import sql_literal

_EPOCH_DAY, _EPOCH_SECOND = 719_528, 62_167_219_200
"""TO_DAYS and TO_SECONDS of 1970-01-01."""
_MILLIS, _MICROS, _NANOS = 1000, 1_000_000, 1_000_000_000
_FIRST_NANOS, _LAST_NANOS = "1677-09-21 00:12:43.145225", "2262-04-11 23:47:16.854775"
"""The first and the last microsecond that int64 holds in nanoseconds."""
_MAX_BIGINT_DIGITS, _MAX_WIDE_DIGITS, _MAX_DIGITS = 18, 48, 65
"""Digits of a DECIMAL that BIGINT holds, that three parts of a BIGINT hold, and that any DECIMAL has."""
_PART_BITS = 56
_NEWLINE = f"{sql_literal(chr(10))} COLLATE utf8mb4_bin"
"""A literal with an introducer has the default collation, which 8.0.15 does not mix with the session's in REPLACE."""
_BASE64_LINE_BYTES = 57
"""TO_BASE64 begins a new line after 76 characters (MySQL 9.7 manual, "String Functions")."""
_TRUNCATIONS = frozenset({ValueChangeKind.TRUNCATE_TEXT, ValueChangeKind.TRUNCATE_BYTES})


class SqlValue(NamedTuple):
    """Hold the expression of a value.

    Args:
        name: The column in SQL.
        sql: The expression.
        quoted: Whether the text stands between quotes, which the expression does not give.
    """

    name: str
    sql: str
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class SqlRequest:
    """Describe a column whose expression is wanted.

    Args:
        column: The column.
        options: Modes.
        null: JSON text of NULL, as SQL.
        change: How values are changed, or None; a constant is none of its columns' expressions.
    """

    column: Column
    options: DecoderOptions
    null: str
    change: ValueChange | None = None

    @property
    def name(self) -> str:
        """Return the column in SQL."""
        return quote_name(self.column.name)

    def value(self, sql: str, *, quoted: bool = False) -> SqlValue:
        """Return the value that an expression gives."""
        return SqlValue(self.name, sql, quoted)

    def cut(self, sql: str) -> str:
        """Return an expression of text or bytes, cut where a rule says so.

        LEFT counts characters and the rule counts UTF-16 units, so more may be left of characters above U+FFFF; what is
        then equal to the text of a record is so only where the record's text is not cut either.
        """
        return sql if self.change is None else f"LEFT({sql}, {self.change.length or 0})"

    def zero(self, epoch: str) -> str:
        """Return the text of MySQL's zero dates (TYPE-53), as SQL."""
        return self.null if self.column.nullable else sql_literal(epoch)


def value_parts(request: SqlRequest) -> SqlValue | None:
    """Return the expression of a column's values; None if there is none."""
    build = _EXPRESSIONS.get(request.column.family)
    if build is None:
        return None
    if request.change is not None and (
        request.change.kind not in _TRUNCATIONS or request.column.family not in _CUT_FAMILIES
    ):
        return None
    return build(request)


# -- numbers ---------------------------------------------------------------------------------------------------------


def _plain_number(request: SqlRequest) -> str:
    # A sum has not the zeros that ZEROFILL adds to the column's text.
    return f"({request.name} + 0)" if request.column.zerofill else request.name


def _integer(request: SqlRequest) -> SqlValue:
    column, name = request.column, request.name
    if (test := request.options.boolean_test(column)) is not None:
        return request.value(f"IF({name} {test}, 'true', 'false')")
    if column.mysql_type.width != 8 or not column.unsigned:
        return request.value(_plain_number(request))
    if request.options.bigint_unsigned_mode == "precise":
        return request.value(_base64_of_number(_hex_digits(name, 18), name, 0, 9, unsigned=True), quoted=True)
    return request.value(f"CAST({name} AS SIGNED)")


def _base64_of_number(hex_digits: str, column: str, scale: int, most_bytes: int, *, unsigned: bool) -> str:
    """Return the expression of Base64 of a number's shortest two's complement.

    Args:
        hex_digits: Expression of its two's complement in hexadecimal digits, as many as the longest number needs.
        column: Expression of the number divided by a power of ten.
        scale: The exponent.
        most_bytes: Bytes of the longest number.
        unsigned: Whether it is never negative.
    """
    cases = []
    for size in range(1, most_bytes):
        high = (1 << 8 * size - 1) - 1
        last, first = Decimal(high).scaleb(-scale), Decimal(~high).scaleb(-scale)
        test = f"<= {last:f}" if unsigned else f"BETWEEN {first:f} AND {last:f}"
        cases.append(f"WHEN {column} {test} THEN {2 * size}")
    size_case = f"CASE {' '.join(cases)} ELSE {2 * most_bytes} END" if cases else "2"
    return f"TO_BASE64(UNHEX(RIGHT({hex_digits}, {size_case})))"


def _hex_digits(number: str, count: int) -> str:
    # HEX gives the 16 digits of a negative number, and no leading zeros of others.
    return f"LPAD(HEX({number}), {count}, '0')"


def _decimal(request: SqlRequest) -> SqlValue | None:
    column, name, mode = request.column, request.name, request.options.decimal_mode
    if mode == "string":
        return request.value(_plain_number(request), quoted=True)
    digits, scale = column.length or 10, column.scale or 0
    if mode != "precise" or digits > _MAX_WIDE_DIGITS or digits + scale > _MAX_DIGITS:
        return None
    number = f"{name} * {10**scale}"
    most_bytes = ((10**digits - 1).bit_length() >> 3) + 1
    hex_digits = _hex_digits(f"CAST({number} AS SIGNED)", 16)
    if digits > _MAX_BIGINT_DIGITS:
        hex_digits = _wide_hex_digits(number, name, most_bytes)
    return request.value(_base64_of_number(hex_digits, name, scale, most_bytes, unsigned=False), quoted=True)


def _wide_hex_digits(number: str, column: str, most_bytes: int) -> str:
    """Return the expression of the two's complement of a DECIMAL in hexadecimal digits; HEX takes a BIGINT."""
    positive = f"({number} + IF({column} < 0, {1 << 8 * most_bytes}, 0))"
    part = 1 << _PART_BITS
    top = f"{positive} DIV {part * part}"
    middle = f"{positive} MOD {part * part} DIV {part}"
    low = f"{positive} MOD {part}"
    parts = (_hex_digits(f"CAST({each} AS UNSIGNED)", _PART_BITS // 4) for each in (top, middle, low))
    return f"CONCAT({', '.join(parts)})"


def _double(request: SqlRequest) -> SqlValue | None:
    """Return the expression of a DOUBLE in Java's notation.

    The server prints the shortest decimal too, without an exponent between 1e-15 and 1e15. In an expression it prints
    at most 22 characters (9.7.4), too few for all numbers with an exponent of three digits: these have no text.
    """
    column, name = request.column, request.name
    if request.options.single_float(column):
        return None
    number = f"({name} * 1e0)" if column.scale is not None else name
    text, sign = f"CONCAT(ABS({number}))", f"IF({name} < 0, '-', '')"
    digits, fraction = f"REPLACE({text}, '.', '')", f"SUBSTR({text}, 3)"
    significant = f"TRIM(LEADING '0' FROM {fraction})"
    whole_digits = f"LENGTH(SUBSTRING_INDEX({text}, '.', 1)) - 1"
    mantissa, exponent = f"SUBSTRING_INDEX({text}, 'e', 1)", f"SUBSTRING_INDEX({text}, 'e', -1)"
    cases = (
        f"WHEN {name} = 0 OR ABS({name}) >= 1e-3 AND ABS({name}) < 1e7 "
        f"THEN CONCAT({number}, IF({name} = FLOOR({name}), '.0', ''))",
        f"WHEN ABS({name}) < 1e-99 OR ABS({name}) >= 1e100 THEN NULL",
        f"WHEN LOCATE('e', {text}) THEN CONCAT({sign}, {mantissa}, IF(LOCATE('.', {text}), 'E', '.0E'), {exponent})",
        f"WHEN ABS({name}) < 1 THEN CONCAT({sign}, LEFT({significant}, 1), '.', "
        f"IF(LENGTH({significant}) = 1, '0', SUBSTR({significant}, 2)), 'E', "
        f"LENGTH({significant}) - LENGTH({fraction}) - 1)",
    )
    rest = f"TRIM(TRAILING '0' FROM SUBSTR({digits}, 2))"
    large = f"CONCAT({sign}, LEFT({digits}, 1), '.', IF({rest} = '', '0', {rest}), 'E', {whole_digits})"
    return request.value(f"CASE {' '.join(cases)} ELSE {large} END")


def _bit(request: SqlRequest) -> SqlValue:
    bits = request.column.length or 1
    if bits == 1:
        return request.value(f"IF({request.name}, 'true', 'false')")
    # MySQL has the highest byte first, records the lowest (TYPE-05).
    numbers = ", ".join(f"{request.name} >> {shift} & 255" for shift in range(0, bits, 8))
    return request.value(f"TO_BASE64(CHAR({numbers}))", quoted=True)


def _year(request: SqlRequest) -> SqlValue:
    return request.value(f"({request.name} + 0)")


# -- text and bytes --------------------------------------------------------------------------------------------------


def _text(request: SqlRequest) -> SqlValue | None:
    charset = request.column.charset or "utf8mb4"
    if charset == "binary":
        return _bytes(request)
    return _quoted_text(request, charset)


def _members(request: SqlRequest) -> SqlValue | None:
    charset = request.column.charset or "utf8mb4"
    return None if charset == "binary" else _quoted_text(request, charset)


def _quoted_text(request: SqlRequest, charset: str) -> SqlValue:
    text = request.name if charset == "utf8mb4" else f"CONVERT({request.name} USING utf8mb4)"
    return request.value(f"JSON_QUOTE({request.cut(text)})")


def _bytes(request: SqlRequest) -> SqlValue | None:
    cuts_bytes = request.change is not None and request.change.kind is ValueChangeKind.TRUNCATE_BYTES
    data = request.cut(request.name) if cuts_bytes else request.name
    text = _BINARY_TEXTS[request.options.binary_mode](data, _most_bytes(request.column))
    return request.value(text if cuts_bytes else request.cut(text), quoted=True)


def _most_bytes(column: Column) -> int | None:
    """Return the most bytes of a value where its declaration says so."""
    metadata = mysql_type(column.type_name).formats[0].metadata
    return (column.length or 1) if metadata is Metadata.LENGTH else None


def _base64(data: str, most_bytes: int | None) -> str:
    text = f"TO_BASE64({data})"
    is_one_line = most_bytes is not None and most_bytes <= _BASE64_LINE_BYTES
    return text if is_one_line else f"REPLACE({text}, {_NEWLINE}, '')"


def _base64_url(data: str, most_bytes: int | None) -> str:
    return f"REPLACE(REPLACE({_base64(data, most_bytes)}, '+', '-'), '/', '_')"


def _hex(data: str, most_bytes: int | None) -> str:
    return f"LOWER(HEX({data}))"


_BINARY_TEXTS: dict[str, Callable[[str, int | None], str]] = {
    "bytes": _base64,
    "base64": _base64,
    "base64-url-safe": _base64_url,
    "hex": _hex,
}


# -- dates and times -------------------------------------------------------------------------------------------------


def _dates(
    request: SqlRequest, day: str, zero: str, text: Callable[[str], str], within: str = "", beyond: str = ""
) -> str:
    """Return the expression of a date in all its cases; NULL for a day that the calendar does not have.

    TO_DAYS counts days of the proleptic Gregorian calendar; it is NULL, or that of another day, for a day, month or
    year 0 and for days that only ALLOW_INVALID_DATES accepts.

    Args:
        request: The column.
        day: Expression of its day.
        zero: Text of a date with a year, month or day 0, as SQL.
        text: Returns the expression of the text of a date.
        within: Condition of the dates that the mode can hold; empty if it holds all.
        beyond: Text of other dates, as SQL; empty where the encoder refuses them.
    """
    name, adjusts = request.name, request.options.time_adjuster
    is_day = f"FROM_DAYS(TO_DAYS({name})) = {day}"
    first = "0100-01-01" if adjusts else "0001-01-01"
    limit = f" AND {within}" if within else ""
    cases = [
        (f"{name} >= '{first}' AND {is_day}{limit}", text(name)),
        (f"YEAR({name}) = 0 OR MONTH({name}) = 0 OR DAYOFMONTH({name}) = 0", zero),
    ]
    if adjusts:
        years = f"IF(YEAR({name}) < 70, 2000, 1900)"
        cases.append((f"{name} < '{first}' AND {is_day}", text(f"DATE_ADD({name}, INTERVAL {years} YEAR)")))
    if beyond:
        cases.append((is_day, beyond))
    return f"CASE {' '.join(f'WHEN {test} THEN {result}' for test, result in cases)} END"


def _date(request: SqlRequest) -> SqlValue:
    is_iso = request.options.time_mode == "isostring"
    zero = request.zero('"1970-01-01Z"' if is_iso else "0")

    def text(date: str) -> str:
        return _iso(date) if is_iso else f"TO_DAYS({date}) - {_EPOCH_DAY}"

    return request.value(_dates(request, request.name, zero, text))


def _datetime(request: SqlRequest) -> SqlValue:
    mode, digits, day = request.options.time_mode, request.column.length or 0, f"DATE({request.name})"
    if mode == "isostring":
        zero = request.zero('"1970-01-01T00:00:00Z"')
        return request.value(_dates(request, day, zero, lambda date: _iso(_trimmed(_with_t(date), digits))))
    unit = datetime_unit(mode, digits)

    def text(date: str) -> str:
        # The whole nanoseconds of the first second are beyond BIGINT (error 1690), before the fraction is added.
        seconds = f"CAST(TO_SECONDS({date}) AS DECIMAL(20))" if unit == _NANOS else f"TO_SECONDS({date})"
        return f"({seconds} - {_EPOCH_SECOND}) * {unit}{_fraction(date, digits, unit)}"

    within, beyond = "", ""
    if unit == _NANOS:
        within = f"{request.name} BETWEEN '{_FIRST_NANOS}' AND '{_LAST_NANOS}'"
        beyond = request.null if request.column.nullable else ""
    return request.value(_dates(request, day, request.zero("0"), text, within, beyond))


def _timestamp(request: SqlRequest) -> SqlValue:
    digits = request.column.length or 0
    text = _with_t(request.name)
    if request.options.trims_timestamps:
        text = _trimmed(text, digits)
    zero = request.zero('"1970-01-01T00:00:00Z"')
    return request.value(f"IF(YEAR({request.name}) = 0, {zero}, {_iso(text)})")


def _time(request: SqlRequest) -> SqlValue:
    mode, digits, name = request.options.time_mode, request.column.length or 0, request.name
    if mode in TIMES_OF_DAY:
        return _time_of_day(request, digits)
    unit = time_unit(mode, digits)
    fraction = _fraction(name, digits, unit)
    if fraction:
        # MICROSECOND has no sign.
        fraction = f" + IF({name} < TIME'00:00:00', -1, 1) * ({fraction.removeprefix(' + ')})"
    return request.value(f"(TIME_TO_SEC({name}) * {unit}{fraction})")


def _time_of_day(request: SqlRequest, digits: int) -> SqlValue:
    name = request.name
    if request.options.time_mode == "isostring":
        test = f"{name} >= TIME'00:00:00' AND {name} < TIME'24:00:00'"
        text = _iso(_trimmed(name, digits))
    else:
        test = f"{name} BETWEEN TIME'00:00:00' AND TIME'24:00:00'"
        text = f"TIME_TO_SEC({name}) * {_MILLIS}{_fraction(name, digits, _MILLIS)}"
    beyond = f" ELSE {request.null}" if request.column.nullable else ""
    return request.value(f"CASE WHEN {test} THEN {text}{beyond} END")


def _fraction(value: str, digits: int, unit: int) -> str:
    """Return the expression of a fraction in units, with a plus before it; empty where the column has none."""
    if not digits:
        return ""
    microseconds = f" + MICROSECOND({value})"
    if unit == _MICROS:
        return microseconds
    return f"{microseconds} * {unit // _MICROS}" if unit > _MICROS else f"{microseconds} DIV {_MICROS // unit}"


def _with_t(value: str) -> str:
    return f"REPLACE({value}, ' ', 'T')"


def _trimmed(text: str, digits: int) -> str:
    return f"TRIM(TRAILING '.' FROM TRIM(TRAILING '0' FROM {text}))" if digits else text


def _iso(text: str) -> str:
    return f"CONCAT('\"', {text}, 'Z\"')"


_EXPRESSIONS: dict[Family, Callable[[SqlRequest], SqlValue | None]] = {
    Family.INTEGER: _integer,
    Family.DECIMAL: _decimal,
    Family.DOUBLE: _double,
    Family.BIT: _bit,
    Family.YEAR: _year,
    Family.TEXT: _text,
    Family.BYTES: _bytes,
    Family.ENUM: _members,
    Family.SET: _members,
    Family.DATE: _date,
    Family.DATETIME: _datetime,
    Family.TIMESTAMP: _timestamp,
    Family.TIME: _time,
}
"""FLOAT and JSON are printed otherwise by the server than in records, spatial values and vectors not at all."""
_CUT_FAMILIES = frozenset({Family.TEXT, Family.BYTES, Family.ENUM, Family.SET})
