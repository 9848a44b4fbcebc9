"""Values of Connect as text, and text as values, as ``org.apache.kafka.connect.data.Values`` of Kafka 4.3 has them."""

from __future__ import annotations

import math
import re
import struct
from binascii import b2a_base64
from decimal import Decimal
from typing import Any

from airflow_provider_mysql_cdc.cdc.model.java_numbers import java_double, java_float
from airflow_provider_mysql_cdc.cdc.transforms.date_format import JavaDateFormat
from airflow_provider_mysql_cdc.cdc.transforms.record_schema import (
    CONNECT_DATE,
    CONNECT_TIME,
    CONNECT_TIMESTAMP,
    DECIMAL,
    RecordSchema,
)

_DAY_MS = 86_400_000
NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
"""A number as ``BigDecimal`` reads it."""
_TIME, _DATE = JavaDateFormat("HH:mm:ss.SSS'Z'"), JavaDateFormat("yyyy-MM-dd")
_TIMESTAMP = JavaDateFormat("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")
_FLOAT = struct.Struct("<f")


def float32(value: float) -> float:
    """Return the 4-byte float that is nearest to a number."""
    try:
        rounded: float = _FLOAT.unpack(_FLOAT.pack(value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return rounded


def decimal_of(schema: RecordSchema, unscaled: bytes) -> Decimal:
    """Return the number that a Decimal's bytes stand for.

    Args:
        schema: Its schema, whose parameter ``scale`` counts.
        unscaled: The bytes.
    """
    scale = int((schema.parameters or {}).get("scale", "0"))
    sign, digits, _ = Decimal(int.from_bytes(unscaled, "big", signed=True)).as_tuple()
    return Decimal((sign, digits, -scale))  # scaleb would round to 28 digits


def unscaled_of(number: Decimal) -> tuple[int, int]:
    """Return unscaled value and scale of a finite number, as ``BigDecimal`` has them.

    Args:
        number: The number.
    """
    sign, digits, exponent = number.as_tuple()
    unscaled = int(Decimal((sign, digits, 0)))
    return unscaled, -int(exponent)


def decimal_bytes(unscaled: int) -> bytes:
    """Return the shortest two's complement bytes of a number."""
    size = ((unscaled if unscaled >= 0 else ~unscaled).bit_length() >> 3) + 1
    return unscaled.to_bytes(size, "big", signed=True)


def java_decimal(number: Decimal) -> str:
    """Return a number as ``BigDecimal.toString`` does."""
    sign, digits, exponent = number.as_tuple()
    text, scale = "".join(map(str, digits)), -int(exponent)
    adjusted = len(text) - 1 - scale
    if scale >= 0 and adjusted >= -6:
        if scale:
            text = text.rjust(scale + 1, "0")
            text = f"{text[:-scale]}.{text[-scale:]}"
    else:
        text = text[0] + (f".{text[1:]}" if len(text) > 1 else "") + (f"E{adjusted:+d}" if adjusted else "")
    return "-" * sign + text


def java_number(kind: str, value: float) -> str:
    """Return a floating point number as Java's ``toString`` does.

    Args:
        kind: ``float`` or ``double``.
        value: The number.
    """
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return java_float(value) if kind == "float" else java_double(value)


def milliseconds_of(schema: RecordSchema, value: int) -> int | None:
    """Return the milliseconds of Connect's Date, Time or Timestamp; None for other schemas."""
    if schema.name == CONNECT_DATE:
        return value * _DAY_MS
    return value if schema.name in (CONNECT_TIME, CONNECT_TIMESTAMP) else None


def date_text(milliseconds: int) -> str:
    """Return a ``java.util.Date`` as ``Values.dateFormatFor`` writes it."""
    if milliseconds < _DAY_MS:
        return _TIME.format(milliseconds)
    return (_TIMESTAMP if milliseconds % _DAY_MS else _DATE).format(milliseconds)


def value_text(schema: RecordSchema | None, value: Any, *, embedded: bool = False) -> str:
    """Return a value as text, a struct, array or map like JSON.

    Args:
        schema: Its schema, or None.
        value: The value.
        embedded: Whether it is inside of another one, where text stands in quotes.
    """
    if value is None:
        return "null"
    kind = None if schema is None else schema.type
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _quoted(value) if embedded else value
    if schema is not None and isinstance(value, int) and (ms := milliseconds_of(schema, value)) is not None:
        return date_text(ms)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return java_number("float" if kind == "float" else "double", value)
    if isinstance(value, bytes):
        if schema is not None and schema.name == DECIMAL:
            return java_decimal(decimal_of(schema, value))
        text = b2a_base64(value, newline=False).decode()
        return f'"{text}"' if embedded else text
    if isinstance(value, list):
        items = None if schema is None else schema.items
        return f"[{','.join(value_text(items, item, embedded=True) for item in value)}]"
    members: list[tuple[Any, RecordSchema | None, Any]]
    if schema is not None and kind == "struct":
        members = [(m.name, m.schema, m.read(value)) for m in schema.fields]
    else:
        members = [(name, None if schema is None else schema.items, member) for name, member in value.items()]
    texts = (f"{value_text(None, n, embedded=True)}:{value_text(s, v, embedded=True)}" for n, s, v in members)
    return "{" + ",".join(texts) + "}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
