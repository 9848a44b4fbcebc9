"""MySQL's binary JSON as text.

The text is MySQL's own (what SELECT of the column gives) without the blanks after comma and colon: the same document
reads the same from the binlog and from a snapshot.
Source: MySQL source, ``json_binary.h`` (layout), ``json_dom.cc`` (text).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import isfinite
from struct import Struct
from typing import Any

import orjson

from airflow_provider_mysql_cdc.cdc.decode.values.json_bytes import base64_text, decimal_groups, decimal_text
from airflow_provider_mysql_cdc.cdc.model import wire_codes as wt

_LARGE_OBJECT, _LARGE_ARRAY, _LITERAL, _INT16, _UINT16, _INT32, _UINT32 = 1, 3, 4, 5, 6, 7, 8
_INT64, _UINT64, _DOUBLE, _STRING, _OPAQUE = 9, 10, 11, 12, 15
_LITERALS = ("null", "true", "false")
_MAX_DEPTH = 100  # MySQL's own limit
# Of what MySQL computes with, nine groups of nine digits; only columns are bounded by 65 (``decimal.h``).
_MAX_PRECISION, _PACKED_BYTES, _LINE_BYTES = 81, 8, 57
_LENGTH_BITS = 35  # of a variable-length number: five bytes
LAST_OBJECT, LAST_CONTAINER = _LARGE_OBJECT, _LARGE_ARRAY

_NUMBERS = {
    kind: Struct(fmt).unpack_from
    for kind, fmt in (
        (_INT16, "<h"), (_UINT16, "<H"), (_INT32, "<i"), (_UINT32, "<I"), (_INT64, "<q"), (_UINT64, "<Q"),
    )
}  # fmt: skip
_U16, _U32, _F64 = _NUMBERS[_UINT16], _NUMBERS[_UINT32], Struct("<d").unpack_from
# Value entries: type, then offset or the value itself. Key entries: offset, length.
_SMALL, _LARGE = Struct("<BH"), Struct("<BI")
_ENTRY_SMALL, _ENTRY_LARGE = _SMALL.unpack_from, _LARGE.unpack_from
_KEY_SMALL, _KEY_LARGE = Struct("<HH").unpack_from, Struct("<IH").unpack_from
# Types whose value is stored in the entry itself.
_INLINE_SMALL = frozenset({_LITERAL, _INT16, _UINT16})
_INLINE_LARGE = _INLINE_SMALL | {_INT32, _UINT32}
# Their text from the number that the entry's bytes make; in entries of four bytes shorter values come first.
_INLINE_TEXTS: dict[int, Callable[[int], str]] = {
    _LITERAL: lambda word: _LITERALS[word & 0xFF],
    _INT16: lambda word: str(((word & 0xFFFF) ^ 0x8000) - 0x8000),
    _UINT16: lambda word: str(word & 0xFFFF),
    _INT32: lambda word: str((word ^ 0x80000000) - 0x80000000),
    _UINT32: str,
}
_SMALL_LAYOUT = 2, _U16, _SMALL.iter_unpack, {kind: _INLINE_TEXTS[kind] for kind in _INLINE_SMALL}
_LARGE_LAYOUT = 4, _U32, _LARGE.iter_unpack, {kind: _INLINE_TEXTS[kind] for kind in _INLINE_LARGE}
# Container types: small and large object, small and large array.
_LAYOUTS = (_SMALL_LAYOUT, _LARGE_LAYOUT, _SMALL_LAYOUT, _LARGE_LAYOUT)


class _MemberNames(dict[bytes, str]):
    """Remember member names as ``"name":``, byte text."""

    limit, max_length = 65536, 128

    def __missing__(self, name: bytes) -> str:
        text = _quoted(name.decode("latin-1")) + ":"
        if len(name) <= self.max_length:
            if len(self) >= self.limit:
                self.clear()
            self[name] = text
        return text


_NAMES = _MemberNames()


class _DocumentCache(dict[Any, Any]):
    """Remember what was worked out for documents; forget all when there are too many."""

    limit, max_length = 4096, 1024

    def store(self, key: Any, value: Any) -> None:
        if len(self) >= self.limit:
            self.clear()
        self[key] = value


# Texts of objects by width of their offsets, number of members, bytes of key entries and names.
_OBJECT_TEXTS = _DocumentCache()
# By kind and key entries: where an object's names begin and end, the names, and its text.
_NAME_SPANS = _DocumentCache()


class ByteBudget:
    """Count the bytes that the values of a document take; together they cannot take more than it has.

    In a damaged document many entries can point to one value, each level doubling the work: a kilobyte would take
    forever. The server writes every value once (``json_binary.cc``, ``serialize_json_value``).

    Args:
        data: The document.
    """

    __slots__ = ("remaining",)

    def __init__(self, data: bytes) -> None:
        # Short strings and numbers are not counted; they take no more than the entries that point to them.
        self.remaining = len(data)

    def take(self, size: int) -> None:
        """Count bytes.

        Raises:
            ValueError: The document has no such number of bytes.
        """
        self.remaining -= size
        if self.remaining < 0:
            raise ValueError("the values of a JSON document overlap")


def json_text(data: bytes) -> str:
    """Return a binary JSON document as text.

    Args:
        data: The column's bytes. Zero bytes are the JSON value null, as the server reads them.

    Raises:
        ValueError: When the document is not well formed.
    """
    return json_byte_text(data).encode("latin-1").decode()


def json_byte_text(data: bytes) -> str:
    """Return a binary JSON document as UTF-8 byte text; see ``json_text``."""
    if not data:
        return "null"
    return _value(data, data.decode("latin-1"), data[0], 1, 0, ByteBudget(data))


def _quoted(data: str) -> str:
    """Return UTF-8 byte text as MySQL quotes it (short escapes, else lower case hexadecimal), byte text."""
    text = data if data.isascii() else data.encode("latin-1").decode()
    return orjson.dumps(text).decode("latin-1")


def _value(data: bytes, text: str, kind: int, pos: int, depth: int, budget: ByteBudget) -> str:
    if kind <= _LARGE_ARRAY:
        if depth > _MAX_DEPTH:
            raise ValueError("a JSON document is nested deeper than MySQL allows")
        return _container(data, text, kind, pos, depth, budget)
    if kind == _STRING:
        size, pos = _length(data, pos)
        budget.take(size)
        if pos + size > len(data):
            raise ValueError("a JSON string extends past the end of the document")
        return _quoted(text[pos : pos + size])
    number = _NUMBERS.get(kind)
    if number is not None:
        return str(number(data, pos)[0])
    if kind == _LITERAL:
        return _LITERALS[data[pos]]
    if kind == _DOUBLE:
        return double_text(_F64(data, pos)[0])
    if kind == _OPAQUE:
        size, start = _length(data, pos + 1)
        budget.take(size)
        if start + size > len(data):
            raise ValueError("a JSON value extends past the end of the document")
        return opaque_text(data[pos], data[start : start + size])
    raise ValueError(f"a JSON document holds a value of unknown type {kind}")


def _length(data: bytes, pos: int) -> tuple[int, int]:
    """Return a variable-length number (7 bits a byte, lowest first) and the offset after it."""
    size = shift = 0
    while shift < _LENGTH_BITS:
        byte = data[pos]
        pos += 1
        size |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return size, pos
        shift += 7
    raise ValueError("a length in a JSON document is not terminated")


def _container(data: bytes, text: str, kind: int, base: int, depth: int, budget: ByteBudget) -> str:
    width, count_at, entries, inline = _LAYOUTS[kind]
    count = count_at(data, base)[0]
    keys = base + 2 * width
    is_object = kind <= _LARGE_OBJECT
    first = keys + count * (width + 2) if is_object else keys
    end = first + count * (width + 1)
    budget.remaining -= end - base
    if budget.remaining < 0:
        raise ValueError("the values of a JSON document overlap")
    if end > len(data):
        raise ValueError("the entries of a JSON container extend past the end of the document")
    values = []
    for child, word in entries(data[first:end]):
        # Most values are short strings: one byte of length, and nothing to escape.
        if child == _STRING and (size := data[base + word]) < 128:
            at = base + word + 1
            string = text[at : at + size]
            # A string that is cut short, with something to escape, can be as long as one that is neither.
            if len(string) == size and len(orjson.dumps(string)) == size + 2:
                values.append(f'"{string}"')
                continue
        if (number := inline.get(child)) is not None:
            values.append(number(word))
        elif child <= _LARGE_ARRAY and depth < _MAX_DEPTH:
            values.append(_container(data, text, child, base + word, depth + 1, budget))
        else:
            values.append(_value(data, text, child, base + word, depth + 1, budget))
    if not is_object:
        return f"[{','.join(values)}]"
    if not count:
        return "{}"
    # Documents of a column have the same names mostly, at the same offsets.
    cached: tuple[int, int, bytes, str] | None = _NAME_SPANS.get((kind, data[keys:first]))
    if cached is not None and data[base + cached[0] : base + cached[1]] == cached[2]:
        return cached[3] % tuple(values)
    return _member_names(data, base, keys, count, kind, budget) % tuple(values)


def _member_names(data: bytes, base: int, keys: int, count: int, kind: int, budget: ByteBudget) -> str:
    """Return an object's text with ``%s`` in place of each value; objects with the same names share it."""
    width = _LAYOUTS[kind][0]
    key = _KEY_LARGE if width == 4 else _KEY_SMALL
    end = keys + count * (width + 2)
    low = base + key(data, keys)[0]
    start, size = key(data, end - width - 2)
    high = base + start + size
    cacheable_shape = high - low <= _OBJECT_TEXTS.max_length
    shape = width, count, data[keys:end] + data[low:high] if cacheable_shape else b""
    if cacheable_shape and (cached := _OBJECT_TEXTS.get(shape)) is not None:
        _NAME_SPANS.store((kind, data[keys:end]), (low - base, high - base, data[low:high], cached))
        return str(cached)
    members, cacheable = [], cacheable_shape
    for at in range(keys, end, width + 2):
        start, size = key(data, at)
        start += base
        if size > _NAMES.max_length:
            budget.take(size)
            cacheable = False
        name = data[start : start + size]
        if len(name) != size:
            raise ValueError("a member name extends past the end of the JSON document")
        members.append(_NAMES[name].replace("%", "%%"))
        # In a damaged document names may be outside of the bytes between the first and the last one.
        cacheable = cacheable and low <= start and start + size <= high
    text = f"{{{','.join(member + '%s' for member in members)}}}"
    if cacheable:
        _OBJECT_TEXTS.store(shape, text)
    return text


def children(data: bytes, kind: int, base: int, budget: ByteBudget) -> list[tuple[bytes | None, int, int]]:
    """Return the children of a container as (member name or None, type, offset of the value) in stored order.

    Args:
        data: The document.
        kind: Type number of the container, at most ``LAST_CONTAINER``.
        base: Offset of the container.
        budget: Counts the container and the member names.
    """
    large = kind in (_LARGE_OBJECT, _LARGE_ARRAY)
    if large:
        width, count_at, entry, key, inline = 4, _U32, _ENTRY_LARGE, _KEY_LARGE, _INLINE_LARGE
    else:
        width, count_at, entry, key, inline = 2, _U16, _ENTRY_SMALL, _KEY_SMALL, _INLINE_SMALL
    count = count_at(data, base)[0]
    names = base + 2 * width
    first = names + count * (width + 2) if kind <= _LARGE_OBJECT else names
    budget.take(first + count * (width + 1) - base)
    members: list[tuple[bytes | None, int, int]] = []
    for index in range(count):
        pos = first + index * (width + 1)
        child, at = entry(data, pos)
        name = None
        if kind <= _LARGE_OBJECT:
            start, size = key(data, names + index * (width + 2))
            budget.take(size)
            name = data[base + start : base + start + size]
            if len(name) != size:
                raise ValueError("a member name extends past the end of the JSON document")
        members.append((name, child, pos + 1 if child in inline else base + at))
    return members


def scalar_text(data: bytes, text: str, kind: int, pos: int, budget: ByteBudget) -> str:
    """Return a value that is no container as UTF-8 byte text.

    Args:
        data: The document.
        text: The same, one character a byte.
        kind: Type number of the value.
        pos: Offset of the value.
        budget: Counts it.
    """
    return _value(data, text, kind, pos, 0, budget)


def double_text(value: float) -> str:
    """Return a double as MySQL prints it in JSON: shortest digits, plain from 1e-15 to below 1e15.

    A larger one that has digits after the point is written plain too.
    """
    if 1e-4 <= value < 1e15 or -1e15 < value <= -1e-4:
        return repr(value)
    if not isfinite(value):
        raise ValueError(f"a JSON document holds the number {value!r}")
    mantissa, _, exponent = repr(value).partition("e")
    sign = "-" if mantissa[0] == "-" else ""
    integer_part, _, fraction = mantissa.lstrip("-").partition(".")
    digits = integer_part + (fraction if fraction != "0" else "")
    point = len(integer_part) + int(exponent or 0)
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
        data: The value in MySQL's own format.
    """
    render = _OPAQUE_TEXTS.get(kind)
    return render(data) if render else f'"base64:type{kind}:{_base64_lines(data)}"'


def _base64_lines(data: bytes) -> str:
    """Return bytes as Base64 with an escaped line end after each 76 characters but the last (``base64_encode``)."""
    return "\\n".join(base64_text(data[at : at + _LINE_BYTES]) for at in range(0, len(data), _LINE_BYTES))


def _decimal(data: bytes) -> str:
    precision, scale = data[0], data[1]
    if not scale <= precision <= _MAX_PRECISION or not precision:
        raise ValueError(f"a JSON document holds a DECIMAL({precision},{scale})")
    groups = decimal_groups(precision, scale)
    if len(data) != 2 + sum(size for _, size in groups):
        raise ValueError("a DECIMAL in a JSON document has another length than its precision requires")
    value, pos, negative = 0, 2, not data[2] & 0x80
    for index, (digits, size) in enumerate(groups):
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
    if len(data) != _PACKED_BYTES:
        raise ValueError(f"a date or time in a JSON document has {len(data)} bytes")
    packed = int.from_bytes(data, "little", signed=True)
    sign, packed = ("-", -packed) if packed < 0 else ("", packed)
    return sign, packed >> 24, packed & 0xFFFFFF


def _date_part(packed: int) -> str:
    months = packed >> 22
    return f"{months // 13:04d}-{months % 13:02d}-{packed >> 17 & 31:02d}"


def _date(data: bytes) -> str:
    return f'"{_date_part(_packed(data)[1])}"'


def _datetime(data: bytes) -> str:
    sign, packed, micros = _packed(data)
    clock = f"{packed >> 12 & 31:02d}:{packed >> 6 & 63:02d}:{packed & 63:02d}.{micros:06d}"
    return f'"{sign}{_date_part(packed)} {clock}"'


def _time(data: bytes) -> str:
    sign, packed, micros = _packed(data)
    return f'"{sign}{packed >> 12 & 0x3FF:02d}:{packed >> 6 & 63:02d}:{packed & 63:02d}.{micros:06d}"'


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
