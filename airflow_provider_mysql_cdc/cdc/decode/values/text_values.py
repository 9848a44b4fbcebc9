"""Values of MySQL's text protocol by lookup, texts by character set, spatial values and vectors."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from struct import Struct, unpack
from typing import NamedTuple, TypeVar

from airflow_provider_mysql_cdc.cdc.decode.values import temporal
from airflow_provider_mysql_cdc.cdc.decode.values.binary_json import compact_text
from airflow_provider_mysql_cdc.cdc.decode.values.json_bytes import (
    base64_text,
    escape_utf8,
    make_escape,
    narrowed_float,
)
from airflow_provider_mysql_cdc.cdc.errors import SchemaError
from airflow_provider_mysql_cdc.cdc.model.charset_decoders import UNICODE, DecodeText, text_decoder
from airflow_provider_mysql_cdc.cdc.model.charset_tables import MULTI, SINGLE
from airflow_provider_mysql_cdc.cdc.model.java import java_double, java_float

V = TypeVar("V")


class TextMemo(dict[str, V]):
    """Compute something from a value's text on first use and cache it; clear the cache when it is full.

    Args:
        compute: Returns the value of a text.
    """

    limit = 65536

    def __init__(self, compute: Callable[[str], V]) -> None:
        super().__init__()
        self._compute = compute

    def __missing__(self, text: str) -> V:
        if len(self) >= self.limit:
            self.clear()
        value = self[text] = self._compute(text)
        return value


class HourMemo(dict[str, "int | None"]):
    """Remember the units since the epoch of ``YYYY-MM-DD hh``; None for zero dates.

    Args:
        adjust: Whether years 1 to 99 count as 1970 to 2069.
        unit: Units a second.
    """

    limit = 65536

    def __init__(self, adjust: bool, unit: int) -> None:
        super().__init__()
        self._adjust, self._unit = adjust, unit

    def __missing__(self, text: str) -> int | None:
        if len(self) >= self.limit:
            self.clear()
        days = text_days(text, self._adjust)
        value = self[text] = None if days is None else (days * 24 + int(text[11:13])) * 3600 * self._unit
        return value


def text_days(text: str, adjust: bool) -> int | None:
    """Return days since the epoch of ``YYYY-MM-DD...``, or None for zero dates."""
    return temporal.days_or_none(int(text[:4]), int(text[5:7]), int(text[8:10]), adjust)


@cache
def datetime_hours(adjust: bool, unit: int) -> HourMemo:
    """Return the table of ``HourMemo``."""
    return HourMemo(adjust, unit)


@cache
def minute_seconds(unit: int) -> dict[str, int]:
    """Return the table from ``mm:ss`` to units in the hour."""
    return {f"{m:02d}:{s:02d}": (m * 60 + s) * unit for m in range(60) for s in range(60)}


def time_value(text: str, unit: int) -> int:
    """Return ``[-]hhh:mm:ss[.f]`` in units a second; a fraction of a unit is cut off.

    Raises:
        ValueError: See ``temporal.within_time_type``.
    """
    sign, text = (-1, text[1:]) if text[0] == "-" else (1, text)
    hours, minutes, seconds = text.split(":")
    whole_seconds, _, fraction = seconds.partition(".")
    units = (int(hours) * 3600 + int(minutes) * 60 + int(whole_seconds)) * unit
    if fraction:
        units += int(fraction) * unit // 10 ** len(fraction)
    return temporal.within_time_type(sign * units, unit)


def wrap_int64(text: str) -> str:
    """Return an unsigned 64-bit number as the signed one of the same bits."""
    value = int(text)
    return str(value - (1 << 64) if value >> 63 else value)


def float_json(text: str) -> str:
    """Return the text of a double that holds a float as Java prints the float."""
    return java_float(float(text))


def narrowed_json(text: str) -> str:
    """Return the text of a double that becomes a 4-byte float as Java prints the float."""
    return narrowed_float(float(text))


def double_json(text: str) -> str:
    """Return the text of a double as Java prints it."""
    return java_double(float(text))


def json_document(data: str) -> str:
    """Return JSON text (UTF-8, byte text) without blanks between its tokens, as the inside of a JSON string."""
    return escape_utf8(compact_text(data))


def plain_number(text: str) -> str:
    """Return a number without the zeros of ZEROFILL."""
    return str(int(text))


class Charset(NamedTuple):
    """Decode one character set.

    Args:
        decode: Bytes to str.
        ascii_compatible: Whether bytes below 0x80 alone always are the ASCII characters of that code.
        escape: Byte text in this character set to the inside of a JSON string, byte text.
        unit: Least bytes of a character.
    """

    decode: DecodeText
    ascii_compatible: bool
    escape: Callable[[str], str]
    unit: int = 1


@cache
def charset(name: str) -> Charset:
    """Return the decoder of a MySQL character set.

    Args:
        name: MySQL's name, lower case; not ``binary``.

    Raises:
        SchemaError: When the name is not one of MySQL's character sets.
    """
    if name in UNICODE:
        codec, unit = UNICODE[name]
        decode = text_decoder(name)
        return Charset(decode, unit == 1, escape_utf8 if codec == "utf-8" else make_escape(decode, unit == 1), unit)
    if name in SINGLE or name in MULTI:
        decode = text_decoder(name)
        # swe7 has letters in place of brackets and braces.
        return Charset(decode, name != "swe7", make_escape(decode, name != "swe7"))
    raise SchemaError(
        f"Character set {name} is not known",
        remedy="report the character set, or exclude the column (column.exclude.list)",
    )


_POINTS = {1: Struct("<xIdd"), 0: Struct(">xIdd")}
_WKB_POINT = 1


def _parts(data: bytes) -> tuple[str, str, bytes]:
    """Split MySQL's format: 4 bytes SRID (little-endian), then well-known binary."""
    srid = int.from_bytes(data[:4], "little")
    wkb = data[4:]
    if len(wkb) < 5:
        raise ValueError(f"a spatial value of {len(data)} bytes is too short")
    # SRID 0 is written as null (captured/types, geoms).
    return base64_text(wkb), str(srid) if srid else "null", wkb


def geometry_text(data: bytes) -> str:
    """Return a spatial value as the JSON of ``io.debezium.data.geometry.Geometry``.

    Raises:
        ValueError: When the value is too short.
    """
    wkb, srid, _ = _parts(data)
    return f'{{"wkb":"{wkb}","srid":{srid}}}'


def point_text(data: bytes) -> str:
    """Return a POINT value as the JSON of ``io.debezium.data.geometry.Point``.

    Raises:
        ValueError: When the value is not a point.
    """
    text, srid, wkb = _parts(data)
    layout = _POINTS.get(wkb[0])
    if layout is None or len(wkb) != layout.size:
        raise ValueError("a POINT column holds a value that is not a point")
    kind, x, y = layout.unpack(wkb)
    if kind != _WKB_POINT:
        raise ValueError(f"a POINT column holds geometry type {kind}")
    return f'{{"x":{java_double(x)},"y":{java_double(y)},"wkb":"{text}","srid":{srid}}}'


def vector_text(data: bytes) -> str:
    """Return a VECTOR value (little-endian floats) as a JSON array.

    Raises:
        ValueError: When the value is not a whole number of floats.
    """
    if len(data) % 4:
        raise ValueError(f"a VECTOR value has {len(data)} bytes, which is not a multiple of 4")
    return "[" + ",".join(map(java_float, unpack(f"<{len(data) // 4}f", data))) + "]"
