"""What the server stores for a literal default: the value of a row that leaves its column out.

Source: ``Field::store`` of MySQL's ``field.cc``, ``my_time.cc``, ``dtoa.cc``; compared with a server, type by type, by
tests/integration/test_stored_defaults.py.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal, localcontext

from airflow_provider_mysql_cdc.cdc.ddl.literals import (
    READ_DIGITS,
    all_digits,
    as_string,
    literal_bytes,
    member_text,
    number_text,
    split_datetime,
    split_time,
)
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext
from airflow_provider_mysql_cdc.cdc.ddl.statements import Default, DefaultKind
from airflow_provider_mysql_cdc.cdc.model.mysql_types import Family
from airflow_provider_mysql_cdc.cdc.model.table import Column

TIME_TRUNCATE_FRACTIONAL = 1 << 32
"""Bit of ``sql_mode``: fractions of a second are cut off, not rounded."""
NO_ZERO_IN_DATE = 1 << 23
"""Bit of ``sql_mode``: a date with a zero month or day is refused, or becomes the zero date."""
_FLOAT = struct.Struct("<f")
_FLOAT_DIGITS = 6
_MAX_EXPONENT = 400  # beyond that of a DOUBLE; as a whole number 1e999999999 would not fit memory
_MAX_NUMBER_BYTES = 8  # of digits that are read as a number
_DATE_SIZES = (6, 8, 12, 14)
_WIDE = ("ucs2", "utf16", "utf16le", "utf32")
_MAX_TIME_S = (838 * 60 + 59) * 60 + 59
_TURKISH = re.compile("turkish|_tr_")  # I is the capital letter of another one than i
_REAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")


def stored_default(default: Default, column: Column, context: DdlContext) -> str | None:
    """Return what the server stores for a literal default, as SELECT prints it; None where it cannot be told.

    Of BIT and binary columns it is a character for each byte. It cannot be told of what depends on more than the
    statement (a TIMESTAMP, or a time zone's offset: the zone of the session) or on a collation, nor of what only a lax
    sql_mode accepts.

    Args:
        default: The literal.
        column: The column.
        context: Session context of the statement.
    """
    store = STORES.get(column.family)
    if store is None:
        return None
    try:
        _require_no_question_mark(default, context)
        is_read = column.charset is None and column.family not in (Family.BIT, Family.BYTES)
        text = store(as_string(default, context) if is_read else default, column, context)
        text.encode()
    except (ValueError, ArithmeticError):
        return None
    return text


def _require_no_question_mark(default: Default, context: DdlContext) -> None:
    """Raise ValueError for a ``?`` that a server printed, before 8.0.16 also for what is no text in utf8mb3."""
    printed = context.server_layout or context.client_collation is None
    if printed and default.kind is DefaultKind.TEXT and "?" in default.text:
        raise ValueError("it may stand for another character, or a byte")


def _number(default: Default, context: DdlContext) -> Decimal | float:
    """Return a literal's number: a float for one with an exponent, which is a DOUBLE, also where it has no fraction."""
    if default.kind in (DefaultKind.HEX, DefaultKind.BITS):
        raw = literal_bytes(default, context)[0].lstrip(b"\0")
        if len(raw) > _MAX_NUMBER_BYTES:
            raise ValueError("the server stores 2^63 - 1, or what sql_mode says")
        return Decimal(int.from_bytes(raw, "big"))
    text = default.text.strip()
    if _REAL.fullmatch(text) is None:
        raise ValueError(text)
    if default.kind is DefaultKind.NUMBER and "e" in text.lower():
        return float(text)
    value = Decimal(text)
    if value.adjusted() > _MAX_EXPONENT:
        raise ValueError("out of range")
    return value


def _whole(value: Decimal | float) -> int:
    return round(value) if isinstance(value, float) else int(value.to_integral_value(ROUND_HALF_UP))


def _integer(default: Default, column: Column, context: DdlContext) -> str:
    value, bits = _whole(_number(default, context)), 8 * column.mysql_type.width
    lowest = 0 if column.unsigned else -(1 << bits - 1)
    if not lowest <= value < lowest + (1 << bits):
        raise ValueError("out of range")
    return str(value)


def _decimal(default: Default, column: Column, context: DdlContext) -> str:
    value = _number(default, context)
    with localcontext() as digits:
        digits.prec = 130
        exact = Decimal(repr(value)) if isinstance(value, float) else value
        rounded = exact.quantize(Decimal(1).scaleb(-(column.scale or 0)), ROUND_HALF_UP)
        if rounded.copy_abs() >= Decimal(1).scaleb((column.length or 10) - (column.scale or 0)) or (
            column.unsigned and rounded < 0
        ):
            raise ValueError("out of range")
    return f"{abs(rounded) if rounded.is_zero() else rounded:f}"


def _real(default: Default, column: Column, context: DdlContext) -> str:
    number = _number(default, context)
    is_text = default.kind is DefaultKind.TEXT
    value = float(default.text if is_text else number)
    if not value and not is_text and isinstance(number, Decimal):
        value = 0.0  # only a DOUBLE or a text has a negative zero
    if column.scale is not None:
        power = 10.0**column.scale
        value = math.floor(value) + round((value - math.floor(value)) * power) / power
    elif is_text and column.type_name == "FLOAT":
        _require_all_digits(default.text, context)
    if column.type_name == "FLOAT":
        value = _FLOAT.unpack(_FLOAT.pack(value))[0]
    too_large = column.scale is not None and abs(value) >= 10.0 ** ((column.length or 0) - column.scale)
    if not math.isfinite(value) or too_large or (column.unsigned and value < 0):
        raise ValueError("out of range")
    return repr(value + 0.0 if column.unsigned else value)


def after_alter(column: Column) -> Column:
    """Return a column of a table that was altered, or made LIKE another one.

    The server then takes a FLOAT's default from its text, which has six digits (5.7.22 to 9.7.4); whether each ALTER
    does so is not known.
    """
    if column.type_name != "FLOAT" or column.scale is not None or column.stored_default is None:
        return column
    value = float(column.stored_default)
    printed = _FLOAT.unpack(_FLOAT.pack(float(f"{value:.{_FLOAT_DIGITS}g}")))[0]
    return column if printed == value else replace(column, stored_default=None)


def _require_all_digits(text: str, context: DdlContext) -> None:
    """Raise ValueError for what a server may have printed of a FLOAT's number that has more than six digits.

    In a statement that it wrote into the binlog those are all numbers, as it leaves out zeros at the end; in one that
    was read, ``printed_definitions`` has filled up with them what the server did not tell.
    """
    digits = text.lower().partition("e")[0].strip(" +-0" if "." not in text else " +-")
    count = len(digits.replace(".", "").lstrip("0"))
    if count == _FLOAT_DIGITS or (count and context.server_layout):
        raise ValueError("six digits")


def _bit(default: Default, column: Column, context: DdlContext) -> str:
    if default.kind is DefaultKind.NUMBER:
        number = _number(default, context)
        value = int(number) if isinstance(number, float) else _whole(number)
    else:
        value = int.from_bytes(literal_bytes(default, context)[0], "big")
    length = column.length or 1
    if value.bit_length() > length:
        raise ValueError("out of range")
    return value.to_bytes((length + 7) // 8, "big").decode("latin-1")


def _character(default: Default, column: Column, context: DdlContext) -> str:
    if default.kind is DefaultKind.NUMBER and "e" in default.text.lower() and column.charset in _WIDE:
        raise ValueError("the server stores the digits as bytes")
    text = member_text(default, column.charset or "", context)
    length = column.length if column.length is not None else 1
    if text[length:].strip(" "):
        raise ValueError("too long")
    return text[:length].rstrip(" ") if column.type_name == "CHAR" else text[:length]


def _bytes(default: Default, column: Column, context: DdlContext) -> str:
    is_number = default.kind is DefaultKind.NUMBER
    raw = number_text(default.text).encode() if is_number else literal_bytes(default, context)[0]
    length = column.length if column.length is not None else 1
    if len(raw) > length:
        raise ValueError("too long")
    return (raw.ljust(length, b"\0") if column.type_name == "BINARY" else raw).decode("latin-1")


def _member(default: Default, column: Column, context: DdlContext) -> str:
    text = member_text(default, column.charset or "", context)
    member = _matching(text if column.charset == "binary" else text.rstrip(" "), column)
    if default.kind is DefaultKind.NUMBER:
        number = _whole(_number(default, context))
        if 0 < number <= len(column.enum_values) and column.enum_values[number - 1] != member:
            raise ValueError("MySQL 5.7.22 and 8.0.15 take the member of this number, 9.7.4 that of its text")
    return member


def _members(default: Default, column: Column, context: DdlContext) -> str:
    text = member_text(default, column.charset or "", context)
    if column.charset != "binary":
        text = text.rstrip(" ")
    named = {_matching(part, column) for part in text.split(",")} if text else set[str]()
    shown = ",".join(dict.fromkeys(member for member in column.enum_values if member in named))
    if default.kind is DefaultKind.NUMBER:
        number = _whole(_number(default, context))
        if shown != ",".join(m for i, m in enumerate(column.enum_values) if number >> i & 1):
            raise ValueError("MySQL 5.7.22 and 8.0.15 take the number's bits for members, 9.7.4 its text")
    return shown


def _matching(text: str, column: Column) -> str:
    """Return the member that a text names; of other letters than ASCII's a collation says which are the same."""
    if text in column.enum_values:
        return text
    folded = [member for member in column.enum_values if member.isascii() and member.lower() == text.lower()]
    collation = column.collation or ""
    if len(folded) != 1 or not collation.endswith("_ci") or _TURKISH.search(collation):
        raise ValueError(text)
    return folded[0]


def _temporal_text(default: Default, context: DdlContext) -> str:
    if default.kind in (DefaultKind.HEX, DefaultKind.BITS):
        return literal_bytes(default, context)[0].decode("latin-1").strip()
    if default.kind is DefaultKind.TEXT and "+" in default.text:
        raise ValueError("MySQL 5.7.22 reads no sign")
    return default.text.strip().lstrip("+")


def _rounded(fraction: str, digits: int, context: DdlContext) -> tuple[int, str]:
    """Return whole seconds to add, and the column's digits after the point with it.

    The server rounds seven digits to six first, so 0.4999999 is 1 (9.7.4).
    """
    rounding = ROUND_DOWN if context.sql_mode & TIME_TRUNCATE_FRACTIONAL else ROUND_HALF_UP
    value = Decimal(f"0.{fraction[:READ_DIGITS] or 0}")
    for each in (6, digits):
        value = value.quantize(Decimal(1).scaleb(-each), rounding)
    return int(value), f"{value % 1:f}"[1:]


def _datetime(default: Default, column: Column, context: DdlContext) -> str:
    text = _temporal_text(default, context)
    if default.kind is DefaultKind.NUMBER:
        text = all_digits(text.lstrip("0"))
    elif text.replace(".", "", 1).isdecimal() and text.strip("0.") and len(text.partition(".")[0]) not in _DATE_SIZES:
        raise ValueError("digits of a text are not filled up with zeros")
    parts, fraction = split_datetime(text)
    seconds, shown = _rounded(fraction, 0 if column.type_name == "DATE" else column.length or 0, context)
    _require_date(parts, context)
    if seconds:
        parts = (datetime(*parts) + timedelta(seconds=1)).timetuple()[:6]
    year, month, day, hour, minute, second = parts
    date = f"{year:04d}-{month:02d}-{day:02d}"
    return date if column.type_name == "DATE" else f"{date} {hour:02d}:{minute:02d}:{second:02d}{shown}"


def _require_date(parts: tuple[int, int, int, int, int, int], context: DdlContext) -> None:
    """Raise ValueError for what a strict sql_mode refuses; of zeros a lax one makes a zero date, if it says so."""
    year, month, day, hour, minute, second = parts
    is_partly_zero = any(parts) and not (month and day)
    if is_partly_zero and context.sql_mode & NO_ZERO_IN_DATE:
        raise ValueError("a zero month or day")
    datetime(year or 4, month or 1, day or 1, hour, minute, second)


def _timestamp(default: Default, column: Column, context: DdlContext) -> str:
    text = _datetime(default, column, context)
    if text.strip("0-: ."):
        raise ValueError("a time in the zone of the session")
    return text


def _time(default: Default, column: Column, context: DdlContext) -> str:
    sign, seconds, fraction = split_time(_temporal_text(default, context))
    if default.kind is not DefaultKind.NUMBER and len(fraction) > READ_DIGITS:
        fraction = fraction[: READ_DIGITS - 1] + fraction[-1]  # it rounds by the last digit (5.7.22 to 9.7.4)
    carry, shown = _rounded(fraction, column.length or 0, context)
    seconds += carry
    if seconds > _MAX_TIME_S or (seconds == _MAX_TIME_S and shown.strip(".0")):
        raise ValueError("out of range")
    is_zero = not seconds and not shown.strip(".0")
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{shown}"
    return clock if is_zero else sign + clock


def _year(default: Default, column: Column, context: DdlContext) -> str:
    number = _number(default, context)
    value = int(number) if isinstance(number, float) else _whole(number)
    is_number = default.kind is not DefaultKind.TEXT
    if not (0 <= value < 100 or 1901 <= value <= 2155):
        raise ValueError("out of range")
    if value < 100 and (value or not (is_number or len(default.text) == len("0000"))):
        value += 2000 if value < 70 else 1900
    return f"{value:04d}"


STORES: dict[Family, Callable[[Default, Column, DdlContext], str]] = {
    Family.INTEGER: _integer,
    Family.DECIMAL: _decimal,
    Family.FLOAT: _real,
    Family.DOUBLE: _real,
    Family.BIT: _bit,
    Family.TEXT: _character,
    Family.BYTES: _bytes,
    Family.ENUM: _member,
    Family.SET: _members,
    Family.DATE: _datetime,
    Family.DATETIME: _datetime,
    Family.TIMESTAMP: _timestamp,
    Family.TIME: _time,
    Family.YEAR: _year,
}
