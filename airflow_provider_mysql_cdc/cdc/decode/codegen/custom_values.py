"""Values of columns that a custom converter handles (TYPE-65).

A converter receives plain Python values, the same from row images and from the text protocol:

====================================  ================================================================================
column                                value
====================================  ================================================================================
TINYINT to BIGINT, YEAR, BIT          int; BIGINT UNSIGNED up to 2**64-1, BIT(1) 0 or 1, also for columns declared BOOL
DECIMAL                               Decimal with the column's scale
FLOAT, DOUBLE                         float; for FLOAT the shortest decimal that reads back as the stored number
CHAR to LONGTEXT, ENUM, SET           str
BINARY to LONGBLOB, charset binary    bytes; BINARY(n) with all its n bytes
JSON                                  str, the document without blanks between its tokens
DATE, DATETIME, TIME                  str as MySQL prints it, so that zero dates and times beyond a day are exact
TIMESTAMP                             the same, in UTC
POINT and other spatial types         dict: wkb (bytes), srid (int or None); POINT also x and y (float)
VECTOR                                list of float
====================================  ================================================================================
"""

from __future__ import annotations

import json
import math
import struct
from base64 import b64decode
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.table_map import WireType
from airflow_provider_mysql_cdc.cdc.decode.codegen import temporal_renderers
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.decode.codegen.emitter import Emitter, Render, WireLayout
from airflow_provider_mysql_cdc.cdc.decode.codegen.renderers import ColumnRequest, column_renderer
from airflow_provider_mysql_cdc.cdc.decode.codegen.text_renderers import TextCode, TextRequest, text_code
from airflow_provider_mysql_cdc.cdc.decode.values.json_bytes import base64_text, quote_byte_text
from airflow_provider_mysql_cdc.cdc.model import wire_codes as wt
from airflow_provider_mysql_cdc.cdc.model.column_rule import ConverterError, CustomColumn
from airflow_provider_mysql_cdc.cdc.model.java import java_double, java_float
from airflow_provider_mysql_cdc.cdc.model.mysql_types import TEMPORAL_FAMILIES, Family
from airflow_provider_mysql_cdc.cdc.model.table import Column

ConvertText = Callable[[str], str]
_BITS = {f"int{bits}": bits for bits in (8, 16, 32, 64)}
_FLOAT = struct.Struct("<f")


def _boolean(value: object) -> str:
    if not isinstance(value, bool):
        raise TypeError("a bool")
    return "true" if value else "false"


def _integer(bits: int) -> Callable[[object], str]:
    limit = 1 << (bits - 1)

    def text(value: object) -> str:
        if isinstance(value, bool) or not isinstance(value, int) or not -limit <= value < limit:
            raise TypeError(f"an int of {bits} bits")
        return str(int(value))

    return text


def _double(value: object) -> str:
    return java_double(_finite(value))


def _single(value: object) -> str:
    number = _finite(value)
    try:
        return java_float(_FLOAT.unpack(_FLOAT.pack(number))[0])
    except OverflowError:
        raise TypeError("a float that 4 bytes can hold") from None


def _finite(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError("a float")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise TypeError("a finite float, the only ones that JSON has,")
    return number


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("a str")
    return quote_byte_text(value)


def _binary(value: object) -> str:
    if not isinstance(value, (bytes, bytearray)):
        raise TypeError("bytes")
    return f'"{base64_text(bytes(value))}"'


JSON_WRITERS: dict[str, Callable[[object], str]] = {
    "boolean": _boolean,
    **{name: _integer(bits) for name, bits in _BITS.items()},
    "float": _single,
    "double": _double,
    "string": _text,
    "bytes": _binary,
}
"""By literal type: the writer of a value as JSON in byte text; it raises ``TypeError`` naming the expected type."""


def converted_text(custom: CustomColumn, value: object, *, hidden: bool = False) -> str:
    """Return the JSON text, byte text, of the value that a converter returns.

    Args:
        custom: The converter's description of the column.
        value: The plain value, None for NULL.
        hidden: Whether messages must not quote the value, because events show it changed.

    Raises:
        ConverterError: The converter raised, or returned another type than it declared.
    """
    try:
        converted = custom.convert(value)
    except Exception as error:
        cause = type(error).__name__ + ("" if hidden else f": {error}")
        raise ConverterError(custom.column, f"{custom.label} raised {cause}") from (None if hidden else error)
    if converted is None:
        if custom.optional:
            return "null"
        raise ConverterError(custom.column, f"{custom.label} returned None for a column that is NOT NULL")
    try:
        return JSON_WRITERS[custom.type](converted)
    except TypeError as error:
        what = f"{custom.label} returned {type(converted).__name__} where {error} is needed (type {custom.type})"
        if not hidden and isinstance(converted, (int, float)):
            what += f": {converted!r}"
        raise ConverterError(custom.column, what) from None


def value_converter(column: Column, custom: CustomColumn, *, hidden: bool) -> ConvertText:
    """Return the function that generated code calls with the plain text of a value (``plain_renderer``,
    ``plain_text``).

    Args:
        column: The column.
        custom: What the converter said of it.
        hidden: As for ``converted_text``.
    """
    parse = PARSERS[column.family](column)

    def run(text: str) -> str:
        return converted_text(custom, parse(text), hidden=hidden)

    return run


def null_converter(custom: CustomColumn, null: str, *, hidden: bool) -> tuple[str, Callable[[], str] | None]:
    """Return the JSON text of NULL, and what raises the converter's error in its place, or None.

    Args:
        custom: The converter's description of the column.
        null: JSON text that represents null (a schema default, or null).
        hidden: As for ``converted_text``.
    """
    try:
        text = converted_text(custom, None, hidden=hidden)
    except ConverterError:
        return null, lambda: converted_text(custom, None, hidden=hidden)
    return (null if text == "null" else text), None


# -- plain text: what the existing renderers give in modes that lose nothing ------------------------------------------


def _lossless(column: Column, options: DecoderOptions) -> tuple[Column, DecoderOptions]:
    plain = replace(column, declared_type=column.type_name)
    if column.type_name == "FLOAT":
        plain = replace(plain, length=None, scale=None)
    modes = replace(
        options,
        contract="3.x",
        decimal_mode="string",
        bigint_unsigned_mode="precise",
        binary_mode="bytes",
        booleans=frozenset(),
        treatments=(),
        conversions=(),
    )
    return plain, modes


def plain_renderer(column: Column, wire: WireType, options: DecoderOptions) -> tuple[WireLayout, Render]:
    """Return wire layout and renderer of a column's plain text in row images.

    Raises:
        SchemaMismatchError: The binlog's type cannot be that of the column.
    """
    build = _TEMPORAL_RENDERERS.get(wire.code)
    if build is not None and column.mysql_type.wire_format(wire.code) is not None:
        return build(wire)
    plain, modes = _lossless(column, options)
    digits = wire.length if wire.code == wt.TIMESTAMP2 else 0
    zero = "0000-00-00 00:00:00" + ("." + "0" * digits if digits else "")
    if column.type_name == "TIMESTAMP":
        plain = replace(plain, nullable=True)
    return column_renderer(
        ColumnRequest(plain, wire, modes, f'"{zero}Z"' if column.type_name == "TIMESTAMP" else "null")
    )


def plain_text(request: TextRequest) -> TextCode:
    """Return the code of a column's plain text in the text protocol.

    Raises:
        SchemaError: The column's type is not known.
    """
    if request.column.family in TEMPORAL_FAMILIES:
        return TextCode((), "s")
    plain, modes = _lossless(request.column, request.options)
    return text_code(replace(request, column=plain, options=modes))


def _fraction(values: tuple[int, ...], digits: int) -> str:
    """Return ``.f`` of a stored fraction, which has one digit more than the column when that number is odd."""
    if not digits:
        return ""
    value = values[0] if len(values) == 1 else values[0] << 16 | values[1]
    width = digits + (digits & 1)
    return f".{value:0{width}d}"[: digits + 1]


def _function(hint: str, text: Callable[..., str]) -> Render:
    def render(emitter: Emitter, names: list[str]) -> str:
        emitter.line(f"{names[0]} = {emitter.bind(hint, text)}({', '.join(names)})")
        return f"{{{names[0]}}}"

    return render


_FRACTIONS: dict[int, tuple[tuple[str, str], ...]] = {
    0: (),
    1: (("", "B"),),
    2: ((">", "H"),),
    3: (("", "B"), (">", "H")),
}


def _date(wire: WireType) -> tuple[WireLayout, Render]:
    def text(low: int, high: int) -> str:
        value = low | high << 16
        return f"{value >> 9:04d}-{value >> 5 & 15:02d}-{value & 31:02d}"

    return WireLayout((("<", "H"), ("", "B"))), _function("plain_date", text)


def _datetime(wire: WireType) -> tuple[WireLayout, Render]:
    digits = wire.length

    def text(top: int, low: int, *fraction: int) -> str:
        v = top << 8 | low
        year, month = divmod(v >> 22 & 0x1FFFF, 13)
        clock = f"{v >> 12 & 31:02d}:{v >> 6 & 63:02d}:{v & 63:02d}{_fraction(fraction, digits)}"
        return f"{year:04d}-{month:02d}-{v >> 17 & 31:02d} {clock}"

    parts = _FRACTIONS[temporal_renderers.fraction_bytes(digits)]
    return WireLayout(((">", "I"), ("", "B"), *parts)), _function(f"plain_datetime_{digits}", text)


def _time(wire: WireType) -> tuple[WireLayout, Render]:
    digits = wire.length
    size = temporal_renderers.fraction_bytes(digits)

    def text(high: int, low: int, *fraction: int) -> str:
        packed = high << 16 | low
        for value, fmt in zip(fraction, _FRACTIONS[size], strict=True):
            packed = packed << (8 if fmt[1] == "B" else 16) | value
        packed -= 0x800000 << 8 * size
        packed_clock, packed_fraction = divmod(abs(packed), 1 << 8 * size)
        clock = f"{packed_clock >> 12 & 0x3FF:02d}:{packed_clock >> 6 & 63:02d}:{packed_clock & 63:02d}"
        return ("-" if packed < 0 else "") + clock + _fraction((packed_fraction,), digits)

    return WireLayout((("", "B"), (">", "H"), *_FRACTIONS[size])), _function(f"plain_time_{digits}", text)


def _old_datetime(wire: WireType) -> tuple[WireLayout, Render]:
    def text(value: int) -> str:
        d = f"{value:014d}"
        return f"{d[:4]}-{d[4:6]}-{d[6:8]} {d[8:10]}:{d[10:12]}:{d[12:]}"

    return WireLayout((("<", "Q"),)), _function("plain_old_datetime", text)


def _old_time(wire: WireType) -> tuple[WireLayout, Render]:
    def text(low: int, high: int) -> str:
        value = low + (high << 16)
        clock = abs(value)
        sign = "-" if value < 0 else ""
        return f"{sign}{clock // 10000:02d}:{clock // 100 % 100:02d}:{clock % 100:02d}"

    return WireLayout((("<", "H"), ("", "b"))), _function("plain_old_time", text)


_TEMPORAL_RENDERERS: dict[int, Callable[[WireType], tuple[WireLayout, Render]]] = {
    wt.DATE: _date,
    wt.NEWDATE: _date,
    wt.TIME: _old_time,
    wt.TIME2: _time,
    wt.DATETIME: _old_datetime,
    wt.DATETIME2: _datetime,
}


# -- from plain text to the value -------------------------------------------------------------------------------------


def _string(text: str) -> str:
    value: str = json.loads(text.encode("latin-1"))
    return value


def _bytes(text: str) -> bytes:
    return b64decode(text[1:-1])


def _unsigned(text: str) -> int:
    return int.from_bytes(_bytes(text), "big", signed=True)


def _decimal(text: str) -> Decimal:
    return Decimal(text[1:-1])


def _bit(text: str) -> int:
    return int(text == "true")


def _bits(text: str) -> int:
    return int.from_bytes(_bytes(text), "little")


def _timestamp(text: str) -> str:
    # "YYYY-MM-DDThh:mm:ss.fZ" of a row image; the text protocol has it in this form.
    return text[1:-2].replace("T", " ") if text[0] == '"' else text


def _spatial(text: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(text)
    value["wkb"] = b64decode(value["wkb"])
    return value


def _vector(text: str) -> list[float]:
    return [float(v) for v in json.loads(text)]


def _parse_integer(column: Column) -> Callable[[str], Any]:
    return _unsigned if column.unsigned and column.mysql_type.width == 8 else int


def _parse_bit(column: Column) -> Callable[[str], Any]:
    return _bit if (column.length or 1) == 1 else _bits


def _parse_text(column: Column) -> Callable[[str], Any]:
    return _bytes if column.charset == "binary" else _string


def _always(parse: Callable[[str], Any]) -> Callable[[Column], Callable[[str], Any]]:
    return lambda column: parse


PARSERS: dict[Family, Callable[[Column], Callable[[str], Any]]] = {
    Family.INTEGER: _parse_integer,
    Family.DECIMAL: _always(_decimal),
    Family.FLOAT: _always(float),
    Family.DOUBLE: _always(float),
    Family.BIT: _parse_bit,
    Family.TEXT: _parse_text,
    Family.BYTES: _always(_bytes),
    Family.ENUM: _always(_string),
    Family.SET: _always(_string),
    Family.JSON: _always(_string),
    Family.DATE: _always(str),
    Family.TIME: _always(str),
    Family.DATETIME: _always(str),
    Family.TIMESTAMP: _always(_timestamp),
    Family.YEAR: _always(int),
    Family.GEOMETRY: _always(_spatial),
    Family.POINT: _always(_spatial),
    Family.VECTOR: _always(_vector),
}
"""The function that parses a column's plain text."""
