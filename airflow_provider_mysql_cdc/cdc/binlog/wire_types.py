"""Column types as TABLE_MAP names them.

Source: MySQL source, ``field_types.h`` (numbers) and ``Table_map_event`` (metadata).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple, Protocol

TINY, SHORT, LONG, FLOAT, DOUBLE, NULL, TIMESTAMP, LONGLONG, INT24 = 1, 2, 3, 4, 5, 6, 7, 8, 9
DATE, TIME, DATETIME, YEAR, NEWDATE, VARCHAR, BIT = 10, 11, 12, 13, 14, 15, 16
TIMESTAMP2, DATETIME2, TIME2 = 17, 18, 19
VECTOR, JSON, NEWDECIMAL, ENUM, SET = 242, 245, 246, 247, 248
TINY_BLOB, MEDIUM_BLOB, LONG_BLOB, BLOB, VAR_STRING, STRING, GEOMETRY = 249, 250, 251, 252, 253, 254, 255


class TableMapLike(Protocol):
    """What is read of a TABLE_MAP event."""

    @property
    def column_types(self) -> bytes:
        """A type number a column."""

    @property
    def column_meta(self) -> tuple[int, ...]:
        """A number a column: the metadata bytes as a little-endian number, 0 where the type has none."""


STRING_CODES = (STRING, VARCHAR, VAR_STRING, BLOB)
"""What character and binary columns have, whatever their size."""


class WireType(NamedTuple):
    """A column's type number and metadata, with the real type behind STRING.

    Args:
        code: Type number; STRING columns that are ENUM or SET have that number here.
        length: Length in bytes (CHAR, VARCHAR), bytes of the number (ENUM, SET), bytes of the length (BLOB and kin),
            precision (DECIMAL), bits (BIT) or fraction digits (temporal).
        scale: Digits after the point (DECIMAL), else 0.
    """

    code: int
    length: int = 0
    scale: int = 0


def wire_type(code: int, meta: int) -> WireType:
    """Return the wire type of a column.

    Args:
        code: Type number from TABLE_MAP.
        meta: Its metadata as a little-endian number.
    """
    low, high = meta & 0xFF, meta >> 8
    if code == STRING:
        # Lengths above 255 use two bits of the type byte, inverted.
        actual_type = low | 0x30
        length = high | ((low & 0x30) ^ 0x30) << 4
        return WireType(actual_type if actual_type in (ENUM, SET) else STRING, length)
    if code == NEWDECIMAL:
        return WireType(code, low, high)
    if code == BIT:
        return WireType(code, low + 8 * high)
    return WireType(code, meta)


def wire_types(table_map: TableMapLike) -> tuple[WireType, ...]:
    """Return the wire types of all columns."""
    return _wire_types(table_map.column_types, table_map.column_meta)


@lru_cache(maxsize=1024)
def _wire_types(types: bytes, meta: tuple[int, ...]) -> tuple[WireType, ...]:
    return tuple(map(wire_type, types, meta))
