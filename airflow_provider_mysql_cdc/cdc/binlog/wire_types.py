"""Column types as TABLE_MAP names them.

Source: MySQL source, ``Table_map_event``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple, Protocol

from airflow_provider_mysql_cdc.cdc.model.wire_codes import BIT, ENUM, NEWDECIMAL, SET, STRING


class TableMapLike(Protocol):
    """What is read of a TABLE_MAP event."""

    @property
    def column_types(self) -> bytes:
        """A type number a column."""

    @property
    def column_meta(self) -> tuple[int, ...]:
        """A number a column: the metadata bytes as a little-endian number, 0 where the type has none."""


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
