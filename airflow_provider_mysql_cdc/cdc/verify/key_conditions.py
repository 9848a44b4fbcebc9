"""Turn values of key fields, as records hold them, back to SQL conditions of the table's columns.

A condition is true for each row whose record has the value, and may be true for other rows: several values of a column
can have one form in records (zero dates are the epoch, years below 100 later ones, with ``connect`` times of one
millisecond are one). The rows are encoded afterwards, and those with another key are left out.

=====================  =================================================================================================
family                 condition
=====================  =================================================================================================
integers, YEAR, BIT    the number; above 2**63 from the signed number of the same bits; booleans as zero or not
DECIMAL                the exact number; in mode double all decimals that become this double or one beside it
FLOAT, DOUBLE          numbers between the ones beside it: SQL's literals and comparisons are doubles
text                   equal by the column's collation, which an index can find, and equal by the bytes of its Unicode
binary                 the bytes
ENUM, SET              the number of the members
dates and times        MySQL's own text; all of one millisecond where the mode cuts; years and zero dates as above
=====================  =================================================================================================

A value that cannot be turned back (custom converters, JSON, spatial types) bounds nothing: ``UnsearchableValue``.
"""

from __future__ import annotations

import math
import re
import struct
from base64 import b64decode, urlsafe_b64decode
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any

from airflow_provider_mysql_cdc.cdc.convert.connect_types import bit_length, decimal_precision, fraction_digits
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.decode.codegen.temporal_renderers import datetime_unit, time_unit
from airflow_provider_mysql_cdc.cdc.decode.values.numbers import decimal_text
from airflow_provider_mysql_cdc.cdc.decode.values.temporal import clock_text
from airflow_provider_mysql_cdc.cdc.model.charset_decoders import shared_characters, within_charset
from airflow_provider_mysql_cdc.cdc.model.mysql_types import Family
from airflow_provider_mysql_cdc.cdc.model.table import Column, quote_name
from airflow_provider_mysql_cdc.cdc.snapshot.key_kinds import text_literal

_MICROS = 1_000_000
_DAY_MICROS = 86_400 * _MICROS
_EPOCH = date(1970, 1, 1)
_FLOAT = struct.Struct("<f")
_DECIMAL_TEXT = re.compile(r"-?\d+(?:\.\d+)?", re.ASCII)
# Literals that the server takes: of others it ends the statement (error 1525).
_DAY, _CLOCK = r"\d{4}-(?:0\d|1[0-2])-(?:[0-2]\d|3[01])", r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?"
_ISO_DATE = re.compile(rf"({_DAY})Z?", re.ASCII)
_ISO_TIME = re.compile(r"(\d\d):([0-5]\d):([0-5]\d)(?:\.(\d{1,6}))?Z", re.ASCII)
_ISO_MOMENT = re.compile(rf"({_DAY})T({_CLOCK})Z", re.ASCII)
_MYSQL_DATE = re.compile(_DAY, re.ASCII)
_MYSQL_MOMENT = re.compile(rf"{_DAY} {_CLOCK}", re.ASCII)
_MYSQL_TIME = re.compile(r"-?(?:[0-7]?\d\d|8[0-2]\d|83[0-8]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?", re.ASCII)
_MAX_TIME_MICROS = 839 * 3600 * _MICROS
_HEX = re.compile(r"(?:[0-9a-f]{2})*", re.ASCII)
_PLAIN_MEMBER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_ULPS = 4
"""Numbers beside a float that its condition includes: MySQL and this package may round the last digit differently."""


class UnsearchableValue(Exception):
    """Raised with the reason why a value cannot be turned back to a condition."""


@dataclass(frozen=True, slots=True)
class _FieldValue:
    """Hold a value that is not null, and what decides about its form.

    Args:
        column: Its column.
        options: Modes of the records.
        value: The value as JsonConverter writes it.
    """

    column: Column
    options: DecoderOptions
    value: Any

    @property
    def name(self) -> str:
        """Return the column's name as SQL."""
        return quote_name(self.column.name)

    def unexpected(self) -> UnsearchableValue:
        """Return the error for a value that the column's records do not have."""
        return UnsearchableValue(f"its value {self.value!r:.100} is none of {self.column.type_name}")

    def integer(self) -> int:
        """Return a whole number.

        Raises:
            UnsearchableValue: It is something else.
        """
        if isinstance(self.value, int) and not isinstance(self.value, bool):
            return self.value
        raise self.unexpected()

    def text(self, pattern: re.Pattern[str] | None = None) -> str:
        """Return a text.

        Raises:
            UnsearchableValue: It is something else, or has another form.
        """
        if isinstance(self.value, str) and (pattern is None or pattern.fullmatch(self.value)):
            return self.value
        raise self.unexpected()

    def number(self) -> float:
        """Return a finite number.

        Raises:
            UnsearchableValue: It is something else.
        """
        if isinstance(self.value, (int, float)) and not isinstance(self.value, bool) and math.isfinite(self.value):
            return float(self.value)
        raise self.unexpected()

    def octets(self, decode: Callable[[str], bytes]) -> bytes:
        """Return the bytes that a text stands for.

        Args:
            decode: Decodes the text; it raises ValueError for another text.

        Raises:
            UnsearchableValue: It is something else.
        """
        try:
            return decode(self.text())
        except ValueError:
            raise self.unexpected() from None

    def unscaled(self) -> int:
        """Return the number that the bytes of a Connect decimal are, in two's complement."""
        return int.from_bytes(self.octets(_from_base64), "big", signed=True)


def value_condition(column: Column, options: DecoderOptions, value: Any) -> str:
    """Return the condition of a column for a value in a record; run it within ``stored_dates_allowed``.

    Args:
        column: The column.
        options: From ``table_options.table_options``.
        value: The value as JsonConverter writes it, whatever the record's format (``event_record``); None for null.

    Raises:
        UnsearchableValue: It cannot be turned back.
    """
    if (custom := options.custom(column)) is not None:
        raise UnsearchableValue(f"{custom.label} has made its value")
    build = _CONDITIONS.get(column.family)
    if build is None:
        raise UnsearchableValue(f"values of {column.type_name} cannot be searched for")
    if value is None:
        return _null_condition(column)
    condition = build(_FieldValue(column, options, value))
    if options.replace_null_with_default and column.nullable:
        return f"({condition} OR {quote_name(column.name)} IS NULL)"
    return condition


def _null_condition(column: Column) -> str:
    if column.family in _NULLED_FAMILIES:
        raise UnsearchableValue(f"null stands for several values of {column.type_name}")
    return f"{quote_name(column.name)} IS NULL"


def _any_of(conditions: Sequence[str]) -> str:
    return conditions[0] if len(conditions) == 1 else f"({' OR '.join(conditions)})"


# -- numbers -----------------------------------------------------------------------------------------------------------


def _integer(value: _FieldValue) -> str:
    column, options = value.column, value.options
    if options.boolean_test(column) is not None and isinstance(value.value, bool):
        return f"{value.name} {'<> 0' if value.value else '<= 0'}"
    if column.mysql_type.width == 8 and column.unsigned:
        return f"{value.name} = {_unsigned(value)}"
    return f"{value.name} = {value.integer()}"


def _unsigned(value: _FieldValue) -> int:
    """Return a BIGINT UNSIGNED, which may be a decimal, the text of TiCDC's mode, or the signed number of its bits."""
    if value.options.bigint_unsigned_mode == "precise":
        return value.unscaled()
    if isinstance(value.value, str):
        text = value.text(_DECIMAL_TEXT)
        if "." in text:
            raise value.unexpected()
        return int(text)
    number = value.integer()
    return number + (1 << 64) if number < 0 else number


def _decimal(value: _FieldValue) -> str:
    scale = value.column.scale or 0
    if value.options.decimal_mode == "precise":
        return f"{value.name} = {decimal_text(value.unscaled(), scale)}"
    if value.options.decimal_mode == "double":
        return _decimal_range(value, scale)
    return f"{value.name} = {value.text(_DECIMAL_TEXT)}"


def _decimal_range(value: _FieldValue, scale: int) -> str:
    """Return the condition for all decimals that become a double, or one beside it."""
    number = value.number()
    context, step = Context(prec=1100), Decimal(1).scaleb(-scale)
    digits, _ = decimal_precision(value.column)
    largest = context.subtract(Decimal(10) ** (digits - scale), step)
    low, high = (Decimal(_beside(number, direction)) for direction in (-math.inf, math.inf))
    low = max(low.quantize(step, ROUND_FLOOR, context), -largest)
    high = min(high.quantize(step, ROUND_CEILING, context), largest)
    return f"{value.name} BETWEEN {low:f} AND {high:f}"


def _beside(number: float, direction: float) -> float:
    for _ in range(_ULPS):
        number = math.nextafter(number, direction)
    return number if math.isfinite(number) else math.copysign(1.7976931348623157e308, number)


def _float(value: _FieldValue) -> str:
    number = value.number()
    return _between(value, *_floats_beside(number))


def _double(value: _FieldValue) -> str:
    number = value.number()
    if value.options.single_float(value.column):
        return _between(value, *_floats_beside(number))
    return _between(value, _beside(number, -math.inf), _beside(number, math.inf))


def _floats_beside(number: float) -> tuple[float, float]:
    """Return doubles a little below and above a 4-byte float."""
    largest = 3.4028234663852886e38
    try:
        rounded = abs(float(_FLOAT.unpack(_FLOAT.pack(number))[0]))
    except OverflowError:
        rounded = largest
    margin = max(rounded * 2.0**-21, 2.0**-146)
    return number - margin, number + margin


def _between(value: _FieldValue, low: float, high: float) -> str:
    return f"{value.name} BETWEEN {_double_literal(low)} AND {_double_literal(high)}"


def _double_literal(number: float) -> str:
    """Return a double as a literal; one without an exponent would be a decimal."""
    text = repr(number)
    return text if "e" in text else f"{text}e0"


def _bit(value: _FieldValue) -> str:
    bits = bit_length(value.column)
    if isinstance(value.value, bool):
        return f"{value.name} = {int(value.value)}"
    # Debezium writes little-endian (TYPE-05). TiCDC writes big-endian and leaves zero bytes out; what is converted to
    # its records is little-endian too.
    data = value.octets(_from_base64)
    numbers = {int.from_bytes(data, "little")}
    if value.options.flat:
        numbers.add(int.from_bytes(data, "big"))
    fitting = sorted(number for number in numbers if not number >> bits)
    return f"{value.name} IN ({', '.join(map(str, fitting))})" if fitting else "FALSE"


def _year(value: _FieldValue) -> str:
    return f"{value.name} = {value.integer()}"


# -- texts and bytes ---------------------------------------------------------------------------------------------------


def _character(value: _FieldValue) -> str:
    if value.column.charset == "binary":
        return _binary(value)
    text, charset = value.text(), value.column.charset or "utf8mb4"
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise UnsearchableValue("it has half of a character") from None
    if charset == "ucs2" and "?" in text:
        raise UnsearchableValue("a question mark may stand for half of a character of ucs2")
    same_bytes = f"CAST(CONVERT({value.name} USING utf8mb4) AS BINARY) = x'{data.hex()}'"
    if within_charset(text, charset) != text or not shared_characters(charset).isdisjoint(text):
        # The server would look for another text, or only for one of the characters that are shown as this one.
        return same_bytes
    return f"({value.name} = {text_literal(text)} AND {same_bytes})"


def _binary(value: _FieldValue) -> str:
    data = value.octets(_BINARY_DECODERS[value.options.binary_mode])
    return f"{value.name} = x'{data.hex()}'"


def _from_hex(text: str) -> bytes:
    if not _HEX.fullmatch(text):
        raise ValueError(text)
    return bytes.fromhex(text)


def _from_base64(text: str) -> bytes:
    return b64decode(text, validate=True)


_BINARY_DECODERS: dict[str, Callable[[str], bytes]] = {
    "bytes": _from_base64,
    "base64": _from_base64,
    "base64-url-safe": urlsafe_b64decode,
    "hex": _from_hex,
}


def _enum(value: _FieldValue) -> str:
    text, members = value.text(), value.column.enum_values
    # The number 0, an invalid member, is shown as ''.
    numbers = [number for number, member in enumerate(("", *members)) if member == text]
    condition = f"{value.name} + 0 IN ({', '.join(map(str, numbers))})" if numbers else _unknown_member(value)
    # MySQL uses no index for the number of a member.
    return f"({value.name} = '{text}' AND {condition})" if numbers and _PLAIN_MEMBER.fullmatch(text) else condition


def _set(value: _FieldValue) -> str:
    text, members = value.text(), value.column.enum_values
    if "" in members or len(set(members)) != len(members):
        raise UnsearchableValue("several members have one text")
    chosen = set(text.split(",")) if text else set()
    if not chosen <= set(members):
        return _unknown_member(value)
    mask = sum(1 << number for number, member in enumerate(members) if member in chosen)
    return f"CAST({value.name} AS UNSIGNED) = {mask}"


def _unknown_member(value: _FieldValue) -> str:
    """Return the condition for a text that is no member: no row has it, unless members are shown as other texts."""
    if all(member.isascii() for member in value.column.enum_values):
        return "FALSE"
    raise UnsearchableValue("it is none of the members, which may be shown as other texts")


# -- dates and times ---------------------------------------------------------------------------------------------------


def _zero_dates(value: _FieldValue) -> str:
    """Return the condition for dates with a year, month or day 0, which records show as null or the epoch (TYPE-53)."""
    return " OR ".join(f"{part}({value.name}) = 0" for part in ("YEAR", "MONTH", "DAYOFMONTH"))


def _days_text(value: _FieldValue, days: int) -> str:
    try:
        return (_EPOCH + timedelta(days=days)).isoformat()
    except OverflowError:
        raise value.unexpected() from None


def _possible_dates(value: _FieldValue, text: str) -> Iterable[str]:
    """Yield the dates that records show as this one: with the time adjuster also those of two digits (TYPE-70)."""
    yield text
    year = int(text[:4])
    if value.options.time_adjuster and 1970 <= year < 2070 and year != 2000:
        yield f"{year % 100:04d}{text[4:]}"


def _date(value: _FieldValue) -> str:
    if value.options.flat:
        return f"{value.name} = '{value.text(_MYSQL_DATE)}'"
    if isinstance(value.value, str):
        text = value.text(_ISO_DATE).removesuffix("Z")
    else:
        text = _days_text(value, value.integer())
    conditions = [f"{value.name} = '{each}'" for each in _possible_dates(value, text)]
    if text == "1970-01-01":
        conditions.append(_zero_dates(value))
    return _any_of(conditions)


def _time(value: _FieldValue) -> str:
    if value.options.flat:
        return f"{value.name} = TIME'{value.text(_MYSQL_TIME)}'"
    digits = fraction_digits(value.column)
    if value.options.time_mode == "isostring":
        match = _ISO_TIME.fullmatch(value.text(_ISO_TIME))
        assert match is not None
        hours, minutes, seconds, fraction = match.groups()
        low = ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * _MICROS + int((fraction or "").ljust(6, "0"))
        return f"{value.name} = TIME'{clock_text(low, _MICROS, 6)}'"
    low, high = _micros(value.integer(), time_unit(value.options.time_mode, digits), digits)
    if max(-low, high) >= _MAX_TIME_MICROS:
        raise value.unexpected()
    bounds = [f"TIME'{clock_text(micros, _MICROS, 6)}'" for micros in (low, high)]
    return f"{value.name} = {bounds[0]}" if low == high else f"{value.name} BETWEEN {bounds[0]} AND {bounds[1]}"


def _micros(units: int, unit: int, digits: int) -> tuple[int, int]:
    """Return the first and the last microsecond that a number of units stands for in a column of so many digits."""
    low = units * _MICROS // unit
    cut = unit < _MICROS and 10**digits > unit
    return low, low + _MICROS // unit - 1 if cut else low


def _datetime(value: _FieldValue) -> str:
    if value.options.flat:
        return f"{value.name} = '{value.text(_MYSQL_MOMENT)}'"
    digits = fraction_digits(value.column)
    if value.options.time_mode == "isostring":
        match = _ISO_MOMENT.fullmatch(value.text(_ISO_MOMENT))
        assert match is not None
        day, low_clock = match.groups()
        high_clock, is_epoch = low_clock, match.group() == "1970-01-01T00:00:00Z"
    else:
        units = value.integer()
        low, high = _micros(units, datetime_unit(value.options.time_mode, digits), digits)
        days, low = divmod(low, _DAY_MICROS)
        day, is_epoch = _days_text(value, days), units == 0
        low_clock, high_clock = (clock_text(micros, _MICROS, 6) for micros in (low, high - days * _DAY_MICROS))
    conditions = []
    for each in _possible_dates(value, day):
        if low_clock == high_clock:
            conditions.append(f"{value.name} = '{each} {low_clock}'")
        else:
            conditions.append(f"{value.name} BETWEEN '{each} {low_clock}' AND '{each} {high_clock}'")
    return _any_of([*conditions, _zero_dates(value)] if is_epoch else conditions)


def _timestamp(value: _FieldValue) -> str:
    if value.options.flat:
        return f"{value.name} = '{value.text(_MYSQL_MOMENT)}'"
    match = _ISO_MOMENT.fullmatch(value.text(_ISO_MOMENT))
    assert match is not None
    day, clock = match.groups()
    # MySQL accepts no other TIMESTAMP before 1970-01-01 00:00:01 than 0000-00-00.
    text = "0000-00-00 00:00:00" if match.group() == "1970-01-01T00:00:00Z" else f"{day} {clock}"
    return f"{value.name} = '{text}'"


_CONDITIONS: dict[Family, Callable[[_FieldValue], str]] = {
    Family.INTEGER: _integer,
    Family.DECIMAL: _decimal,
    Family.FLOAT: _float,
    Family.DOUBLE: _double,
    Family.BIT: _bit,
    Family.TEXT: _character,
    Family.BYTES: _binary,
    Family.ENUM: _enum,
    Family.SET: _set,
    Family.DATE: _date,
    Family.TIME: _time,
    Family.DATETIME: _datetime,
    Family.TIMESTAMP: _timestamp,
    Family.YEAR: _year,
}
_NULLED_FAMILIES = frozenset((Family.DATE, Family.TIME, Family.DATETIME, Family.TIMESTAMP))
"""Families of which some values are null in records (zero dates, times that the mode cannot hold)."""
