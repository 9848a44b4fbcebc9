"""MySQL's binary JSON as text.

The text is MySQL's own (what SELECT of the column gives) without the blanks after comma and colon: the same document
reads the same from the binlog and from a snapshot.
Source: MySQL source, ``json_binary.h`` (layout), ``json_dom.cc`` (text).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from struct import Struct, unpack_from

import orjson

from airflow_provider_mysql_cdc.cdc.decode import wire_types as wt
from airflow_provider_mysql_cdc.cdc.decode.jsontext import base64_text
from airflow_provider_mysql_cdc.cdc.decode.numbers import decimal_text, decimal_words

_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY, _LITERAL = 0, 1, 2, 3, 4
_INT16, _UINT16, _INT32, _UINT32, _INT64, _UINT64, _DOUBLE, _STRING, _OPAQUE = 5, 6, 7, 8, 9, 10, 11, 12, 15
_LITERALS = {0: "null", 1: "true", 2: "false"}
_MAX_DEPTH = 100  # MySQL's own limit

_NUMBERS: dict[int, Struct] = {
    _INT16: Struct("<h"),
    _UINT16: Struct("<H"),
    _INT32: Struct("<i"),
    _UINT32: Struct("<I"),
    _INT64: Struct("<q"),
    _UINT64: Struct("<Q"),
}
# Types whose value stands in the entry itself: always, and also in large documents.
_INLINE_SMALL = frozenset({_LITERAL, _INT16, _UINT16})
_INLINE_LARGE = _INLINE_SMALL | {_INT32, _UINT32}


def json_text(data: bytes) -> str:
    """Return a binary JSON document as text.

    Args:
        data: The column's bytes. No bytes at all stand for the JSON value null, as the server reads them.

    Raises:
        ValueError: When the document is not well formed.
    """
    if not data:
        return "null"
    return _value(data, data[0], 1, 0)


def _value(data: bytes, kind: int, pos: int, depth: int) -> str:
    if kind <= _LARGE_ARRAY:
        if depth > _MAX_DEPTH:
            raise ValueError("a JSON document is nested deeper than MySQL allows")
        return _container(data, kind, pos, depth)
    if kind == _STRING:
        size, pos = _length(data, pos)
        if pos + size > len(data):
            raise ValueError("a JSON string ends behind the document")
        return orjson.dumps(data[pos : pos + size].decode()).decode()
    number = _NUMBERS.get(kind)
    if number is not None:
        return str(number.unpack_from(data, pos)[0])
    if kind == _LITERAL:
        return _LITERALS[data[pos]]
    if kind == _DOUBLE:
        return double_text(unpack_from("<d", data, pos)[0])
    if kind == _OPAQUE:
        size, start = _length(data, pos + 1)
        if start + size > len(data):
            raise ValueError("a JSON value ends behind the document")
        return opaque_text(data[pos], data[start : start + size])
    raise ValueError(f"a JSON document holds a value of unknown type {kind}")


def _length(data: bytes, pos: int) -> tuple[int, int]:
    """Return a variable-length number (7 bits a byte, lowest first) and the offset after it."""
    size = shift = 0
    while True:
        byte = data[pos]
        pos += 1
        size |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return size, pos
        shift += 7


def _container(data: bytes, kind: int, base: int, depth: int) -> str:
    large, is_object = kind in (_LARGE_OBJECT, _LARGE_ARRAY), kind <= _LARGE_OBJECT
    width = 4 if large else 2
    inline = _INLINE_LARGE if large else _INLINE_SMALL
    offset = Struct("<I" if large else "<H").unpack_from
    count = offset(data, base)[0]
    pos = base + 2 * width
    keys = pos
    if is_object:
        pos += count * (width + 2)
    values = []
    for _ in range(count):
        kind = data[pos]
        at = pos + 1 if kind in inline else base + offset(data, pos + 1)[0]
        values.append(_value(data, kind, at, depth + 1))
        pos += width + 1
    if not is_object:
        return f"[{','.join(values)}]"
    members = []
    for index, value in enumerate(values):
        entry = keys + index * (width + 2)
        start = base + offset(data, entry)[0]
        name = data[start : start + unpack_from("<H", data, entry + width)[0]]
        members.append(f"{orjson.dumps(name.decode()).decode()}:{value}")
    return f"{{{','.join(members)}}}"


def double_text(value: float) -> str:
    """Return a double as MySQL prints it in JSON: shortest digits, plain from 1e-15 to below 1e15.

    A larger one that has digits after the point is written plain too.
    """
    mantissa, _, exponent = repr(value).partition("e")
    sign = "-" if mantissa[0] == "-" else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    digits = whole + (fraction if fraction != "0" else "")
    point = len(whole) + int(exponent or 0)
    stripped = digits.lstrip("0")
    point -= len(digits) - len(stripped)
    digits = stripped.rstrip("0")
    if not digits:
        return sign + "0.0"
    if -14 <= point <= 15 or (point > 0 and len(digits) > point):
        if point <= 0:
            return f"{sign}0.{'0' * -point}{digits}"
        return f"{sign}{digits[:point].ljust(point, '0')}.{digits[point:] or '0'}"
    return f"{sign}{digits[0]}{'.' + digits[1:] if len(digits) > 1 else ''}e{point - 1}"


def opaque_text(kind: int, data: bytes) -> str:
    """Return a value of a type that JSON itself does not have.

    Args:
        kind: MySQL's column type number.
        data: The value in MySQL's own form.
    """
    make = _OPAQUE_TEXTS.get(kind)
    return make(data) if make else f'"base64:type{kind}:{base64_text(data)}"'


def _decimal(data: bytes) -> str:
    precision, scale = data[0], data[1]
    value, pos, negative = 0, 2, not data[2] & 0x80
    for index, (digits, size) in enumerate(decimal_words(precision, scale)):
        word = int.from_bytes(data[pos : pos + size], "big")
        if index == 0:
            word ^= 1 << (8 * size - 1)
        if negative:
            word ^= (1 << 8 * size) - 1
        value = value * 10**digits + word
        pos += size
    return decimal_text(-value if negative else value, scale)


def _packed(data: bytes) -> tuple[str, int, int]:
    """Return sign, whole part and microseconds of a packed temporal value (40 + 24 bits)."""
    packed = int.from_bytes(data, "little", signed=True)
    sign, packed = ("-", -packed) if packed < 0 else ("", packed)
    return sign, packed >> 24, packed & 0xFFFFFF


def _date_part(whole: int) -> str:
    months = whole >> 22
    return f"{months // 13:04d}-{months % 13:02d}-{whole >> 17 & 31:02d}"


def _date(data: bytes) -> str:
    return f'"{_date_part(_packed(data)[1])}"'


def _datetime(data: bytes) -> str:
    sign, whole, micros = _packed(data)
    clock = f"{whole >> 12 & 31:02d}:{whole >> 6 & 63:02d}:{whole & 63:02d}.{micros:06d}"
    return f'"{sign}{_date_part(whole)} {clock}"'


def _time(data: bytes) -> str:
    sign, whole, micros = _packed(data)
    return f'"{sign}{whole >> 12 & 0x3FF:02d}:{whole >> 6 & 63:02d}:{whole & 63:02d}.{micros:06d}"'


_OPAQUE_TEXTS: dict[int, Callable[[bytes], str]] = {
    wt.NEWDECIMAL: _decimal,
    wt.DATE: _date,
    wt.TIME: _time,
    wt.DATETIME: _datetime,
    wt.TIMESTAMP: _datetime,
}

_BLANKS = re.compile(r'("(?:[^"\\]|\\.)*")|[ \t\r\n]+', re.DOTALL)


def compact_text(text: str) -> str:
    """Return JSON text without the blanks between its tokens; all values stay as they are written."""
    if '"' not in text:
        return text.replace(" ", "")
    return _BLANKS.sub(lambda m: m.group(1) or "", text)
