"""What a literal is as a value of its column: bytes in one character set, converted to another."""

from __future__ import annotations

import re
from collections.abc import Callable

from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext
from airflow_provider_mysql_cdc.cdc.ddl.statements import Default, DefaultKind
from airflow_provider_mysql_cdc.cdc.errors import DdlParseError
from airflow_provider_mysql_cdc.cdc.model.charset_decoders import UNICODE, decode_lossy, encode_lossy, within_charset
from airflow_provider_mysql_cdc.cdc.model.mysql_types import Family
from airflow_provider_mysql_cdc.cdc.model.table import Column

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
    if column.charset is not None and default.kind is not DefaultKind.NUMBER:
        text = member_text(default, column.charset, context)
        return text.rstrip(" ") if column.mysql_type.has_members else text
    raw = b"" if default.kind is DefaultKind.NUMBER else _literal_bytes(default, context)[0]
    if column.family is Family.BYTES and default.kind is not DefaultKind.NUMBER:
        text = raw.decode("utf-8", "replace")
        return text if text.isprintable() and "\ufffd" not in text else "0x" + raw.hex().upper()
    if default.kind in (DefaultKind.TEXT, DefaultKind.NUMBER) and not (column.type_name == "BIT" and raw):
        with_full_year = _YEARS.get(column.family)
        return default.text if with_full_year is None else with_full_year(default)
    if column.type_name == "BIT":
        return f"b'{int.from_bytes(raw, 'big'):b}'"
    if len(raw) > _MAX_NUMBER_BYTES:
        raise DdlParseError("a default value does not fit its column", where=column.name)
    return str(int.from_bytes(raw, "big"))


def _full_year(default: Default) -> str:
    """Return a year with four digits; the number 0 is the year 0, the text '0' is 2000."""
    text = default.text.strip()
    if len(text) > 2 or not text.isdigit() or (default.kind is DefaultKind.NUMBER and int(text) == 0):
        return default.text
    return _century(text) + text.zfill(2)


def _full_date(default: Default) -> str:
    """Return a date whose year has two digits with four of them; any other as it is written."""
    text = default.text.strip()
    if match := _DATE.fullmatch(text):
        return _century(match[1] or match[2]) + text
    digits, point, fraction = text.partition(".")
    if not digits.isdigit() or not digits.strip("0"):
        return default.text
    if default.kind is DefaultKind.NUMBER:
        digits = digits.zfill(6 if len(digits) < 7 else 12 if 8 < len(digits) < 13 else len(digits))
    if len(digits) not in (6, 12):
        return default.text
    pairs = [digits[i : i + 2] for i in range(0, len(digits), 2)]
    date = _century(pairs[0]) + "-".join(pairs[:3])
    return f"{date} {':'.join(pairs[3:])}{point}{fraction}" if len(pairs) > 3 else date


def _century(year: str) -> str:
    return "20" if int(year) < 70 else "19"


_DATE = re.compile(r"(\d\d)[^\d.]\d.*|(\d\d)\.\d+\.\d.*", re.DOTALL | re.ASCII)
_YEARS: dict[Family, Callable[[Default], str]] = {
    Family.YEAR: _full_year,
    Family.DATE: _full_date,
    Family.DATETIME: _full_date,
    Family.TIMESTAMP: _full_date,
}


def member_text(literal: Default, charset: str, context: DdlContext) -> str:
    """Return a literal as text of a character set.

    Args:
        literal: A string, or the digits of a hexadecimal or bit literal.
        charset: The column's character set.
        context: Session context.
    """
    if literal.kind is DefaultKind.NUMBER:
        return literal.text
    raw, written = _literal_bytes(literal, context)
    if charset == "binary":
        return raw.decode("latin-1")
    if written == "binary":
        unit = UNICODE[charset][1] if charset in UNICODE else 1
        return decode_lossy(bytes(-len(raw) % unit) + raw, charset)
    return within_charset(decode_lossy(raw, written), charset)


def _literal_bytes(literal: Default, context: DdlContext) -> tuple[bytes, str]:
    """Return a literal's bytes, and the character set they are in."""
    if literal.kind is DefaultKind.HEX:
        digits = "0" + literal.text if len(literal.text) % 2 else literal.text
        return bytes.fromhex(digits), literal.introducer or "binary"
    if literal.kind is DefaultKind.BITS:
        size = (len(literal.text) + 7) // 8
        return int(literal.text or "0", 2).to_bytes(size, "big"), literal.introducer or "binary"
    if literal.introducer:
        return encode_lossy(literal.text, context.client_charset), literal.introducer
    charset = context.literal_charset
    return encode_lossy(literal.text, context.client_charset if charset == "binary" else charset), charset
