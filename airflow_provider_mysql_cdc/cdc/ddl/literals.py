"""What a literal is as a value of its column: bytes in a character set, numbers, dates and times."""

from __future__ import annotations

import re
from decimal import Decimal

from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext
from airflow_provider_mysql_cdc.cdc.ddl.statements import Default, DefaultKind
from airflow_provider_mysql_cdc.cdc.errors import DdlParseError
from airflow_provider_mysql_cdc.cdc.model.charset_decoders import UNICODE, encode_lossy, shown_text, within_charset
from airflow_provider_mysql_cdc.cdc.model.mysql_types import Family
from airflow_provider_mysql_cdc.cdc.model.table import Column

_FIXED_DIGITS = 15  # a double's text has an exponent beyond these digits before or behind the point
_MAX_NUMBER_BYTES = 64  # bytes; DECIMAL(65) has 27, and Python prints numbers of at most 4,300 digits


def default_text(default: Default, column: Column, context: DdlContext) -> str:
    """Return a literal default as the text of a value of the column's type.

    Args:
        default: The literal.
        column: The column.
        context: Session context.

    Raises:
        DdlParseError: It does not fit the column.
    """
    if column.charset is not None:
        text = member_text(default, column.charset, context)
        return text.rstrip(" ") if column.mysql_type.has_members else text
    raw = b"" if default.kind is DefaultKind.NUMBER else literal_bytes(default, context)[0]
    if column.family is Family.BYTES:
        if default.kind is DefaultKind.NUMBER:
            return number_text(default.text)
        if default.kind is DefaultKind.TEXT and default.text.isascii() and default.introducer is None:
            return default.text
        return bytes_default(raw)
    if column.type_name != "BIT":
        default = as_string(default, context)
    if column.family is Family.YEAR and default.text.strip("0") == "":
        return _zero_year(default)
    if default.kind in (DefaultKind.TEXT, DefaultKind.NUMBER) and not (column.type_name == "BIT" and raw):
        return default.text
    if column.type_name == "BIT":
        return f"b'{int.from_bytes(raw, 'big'):b}'"
    if len(raw) > _MAX_NUMBER_BYTES:
        raise DdlParseError("a default value does not fit its column", where=column.name)
    return str(int.from_bytes(raw, "big"))


def bytes_default(raw: bytes) -> str:
    """Return the default of a binary column as text; what is no printable text as hexadecimal digits.

    Args:
        raw: The bytes.
    """
    text = raw.decode("utf-8", "replace")
    return text if text.isprintable() and "\ufffd" not in text else "0x" + raw.hex().upper()


def number_text(number: str) -> str:
    """Return the text that the server makes of a number for a column of text: ``0`` for ``00``, ``100`` for ``1e2``.

    Source: MySQL 9.7.4, ``my_gcvt`` for numbers with an exponent; others keep the digits after their point.

    Args:
        number: The number as a statement has it.
    """
    if "e" not in number.lower():
        value = Decimal(number)
        return f"{abs(value) if value.is_zero() else value:f}"
    double = float(number)
    if not double:
        return "-0" if number[0] == "-" else "0"
    value = Decimal(repr(double))
    sign, digits, exponent = value.as_tuple()
    shown = "".join(map(str, digits)).rstrip("0")
    point = len(digits) + int(exponent)
    if -_FIXED_DIGITS < point <= _FIXED_DIGITS:
        text = f"{value:f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return f"{'-' * sign}{shown[0]}{'.' * (len(shown) > 1)}{shown[1:]}e{point - 1}"


def _zero_year(default: Default) -> str:
    """Return a YEAR of zeros: a text is 2000 unless it has four digits, a number is 0 (MySQL 9.7.4)."""
    is_2000 = default.kind is DefaultKind.TEXT and len(default.text) != len("0000")
    return "00" if is_2000 else "0" if default.text == "00" else default.text


def member_text(literal: Default, charset: str, context: DdlContext) -> str:
    """Return a literal as text of a character set.

    Args:
        literal: A string, or the digits of a hexadecimal or bit literal.
        charset: The column's character set.
        context: Session context.
    """
    if literal.kind is DefaultKind.NUMBER:
        return number_text(literal.text)
    raw, written = literal_bytes(literal, context)
    if charset == "binary":
        return raw.decode("latin-1")
    if written == "binary":
        return shown_text(_whole_units(raw, charset), charset)
    return within_charset(shown_text(raw, written), charset)


def as_string(literal: Default, context: DdlContext) -> Default:
    """Return a literal as a number or date is read from it: digits with a character set are a string, not a number.

    Args:
        literal: The literal; ``_utf16 0x0037`` is returned as ``'7'``, one without a character set as it is.
        context: Session context.
    """
    if literal.introducer is None:
        return literal
    raw, charset = literal_bytes(literal, context)
    return Default(DefaultKind.TEXT, raw.decode("latin-1") if charset == "binary" else shown_text(raw, charset))


def literal_bytes(literal: Default, context: DdlContext) -> tuple[bytes, str]:
    """Return a literal's bytes, and the character set they are in.

    Args:
        literal: A string, or the digits of a hexadecimal or bit literal.
        context: Session context.
    """
    client, charset = context.client_charset, literal.introducer or context.literal_charset
    if literal.kind is DefaultKind.HEX:
        raw, charset = bytes.fromhex("0" * (len(literal.text) % 2) + literal.text), literal.introducer or "binary"
    elif literal.kind is DefaultKind.BITS:
        raw = int(literal.text or "0", 2).to_bytes((len(literal.text) + 7) // 8, "big")
        charset = literal.introducer or "binary"
    else:
        # Nothing is converted from or to bytes, or where the literal names its character set.
        is_kept = literal.introducer or "binary" in (client, charset)
        raw = encode_lossy(literal.text, client if is_kept else charset)
    return (_whole_units(raw, charset) if literal.introducer else raw), charset


def _whole_units(raw: bytes, charset: str) -> bytes:
    """Return bytes filled up with zeros on the left to whole units of a character set (5.7.22 to 9.7.4)."""
    return bytes(-len(raw) % UNICODE[charset][1]) + raw if charset in UNICODE else raw


_DATETIME = re.compile(
    r"(\d{1,4})[^\w\s](\d{1,2})[^\w\s](\d{1,2})(?:(?:T|\s+)(\d{1,2})(?:[^\w\s](\d{1,2})(?:[^\w\s](\d{1,2})(?:\.(\d*))?)?)?)?",
    re.ASCII,
)
_DATED_TIME = re.compile(r"\d{4}-\d\d-\d\d (\d\d:\d\d:\d\d(?:\.\d*)?)", re.ASCII)
_DATETIME_DIGITS = re.compile(r"(\d{4})(\d{2})(\d{2})(?:(\d{2})(\d{2})(\d{2})(?:\.(\d*))?)?", re.ASCII)
_TIME = re.compile(r"(-?)(?:(\d+)\s+)?(\d{1,3}):(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?)?", re.ASCII)
_TIME_DIGITS = re.compile(r"(-?)()(\d{0,3}?)(\d{0,2}?)(\d{1,2})(?:\.(\d*))?", re.ASCII)
READ_DIGITS = 7
"""Digits of a fraction of a second that count."""
_LEAST_DATETIME = 12
"""Characters from which on the text of a TIME is read as a datetime first."""
DateTimeParts = tuple[int, int, int, int, int, int]
"""Year, month, day, hour, minute, second."""


def split_datetime(text: str) -> tuple[DateTimeParts, str]:
    """Return year, month, day, hour, minute and second of a date or datetime, and the digits of its fraction.

    A zero date, or one with a zero month or day, is returned as it is.

    Args:
        text: The literal's text; of a number with all its digits (``all_digits``).

    Raises:
        ValueError: The text is no date, or has a time zone's offset.
    """
    match = _DATETIME.fullmatch(text.strip()) or _DATETIME_DIGITS.fullmatch(all_digits(text.strip()))
    if match is None:
        if text.strip(" 0.") == "":
            return (0, 0, 0, 0, 0, 0), ""
        raise ValueError(text)
    year, month, day, hour, minute, second = (int(group or 0) for group in match.groups()[:6])
    # Before a point a year has two digits, or four.
    year_size = len(match[1])
    if text.strip()[year_size : year_size + 1] == ".":
        if year_size == 3:
            raise ValueError(text)
        year_size = max(year_size, 2)
    if year_size == 2 and (year, month, day, hour, minute, second) != (0, 0, 0, 0, 0, 0):
        year += 2000 if year < 70 else 1900
    return (year, month, day, hour, minute, second), match[7] or ""


def all_digits(text: str) -> str:
    """Return a date or datetime written as a number with a year of four digits, other text unchanged.

    The server fills up with zeros on the left to 6 (YYMMDD), 8, 12 (YYMMDDhhmmss) or 14 digits.

    Args:
        text: The number.
    """
    number, point, fraction = text.replace("T", "").partition(".")
    size = next((size for size in (6, 8, 12, 14) if len(number) <= size), 0)
    if not number.isdecimal() or not size or not number.strip("0"):
        return text
    number = number.zfill(size)
    if size in (6, 12):
        number = ("20" if int(number[:2]) < 70 else "19") + number
    return number + point + fraction


def split_time(text: str) -> tuple[str, int, str]:
    """Return sign, seconds and the digits of the fraction of a time: ``[-][D ]HH:MM[:SS[.f]]``, or ``[-]HHMMSS``.

    Args:
        text: The literal's text; a date before the time does not count.

    Raises:
        ValueError: The text is no time; or a date before it has zeros, or another form, in which versions differ.
    """
    text = text.strip()
    if len(text) >= _LEAST_DATETIME and _DATETIME.fullmatch(text):
        (_, month, day, *_), fraction = split_datetime(text)
        dated = _DATED_TIME.fullmatch(text)
        if dated is None or not (month and day):
            raise ValueError(text)
        sign, seconds, _ = split_time(dated[1])
        return sign, seconds, fraction[:READ_DIGITS]
    match = _TIME.fullmatch(text) or _TIME_DIGITS.fullmatch(text)
    if match is None:
        raise ValueError(text)
    days, hours, minutes, seconds = (int(group or 0) for group in match.groups()[1:5])
    if max(minutes, seconds) > 59:
        raise ValueError(text)
    return match[1], ((days * 24 + hours) * 60 + minutes) * 60 + seconds, match[6] or ""
