"""TABLE_MAP events: the table that the row events after them belong to, and its columns' types.

TABLE_MAP events: the table that the row events after them belong to.

Layout: MySQL source, ``rows_event.h`` (``Table_map_event``). Optional metadata stand in the event when the session had
binlog_row_metadata=FULL; signedness, character sets and the geometry type stand in it under MINIMAL too (8.0.1 on).

Column types as TABLE_MAP names them.

Source: MySQL source, ``Table_map_event``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

from airflow_provider_mysql_cdc.cdc.binlog.event import Event, bits, event_parser, lenenc
from airflow_provider_mysql_cdc.cdc.model import wire_codes as wt
from airflow_provider_mysql_cdc.cdc.model.mysql_types import METADATA_BYTES, MYSQL_TYPES, SPATIAL_FAMILIES, Family
from airflow_provider_mysql_cdc.cdc.model.wire_codes import BIT, ENUM, NEWDECIMAL, SET, STRING


@dataclass(frozen=True, slots=True)
class TableMap:
    """Describe a table as the binlog announces it.

    Tuples of optional metadata have one entry for each column, None for columns they do not apply to; an attribute is
    None when the event does not hold it.

    Args:
        table_id: Number that row events refer to.
        flags: Flags of the event.
        db: Database name.
        table: Table name.
        column_types: Type number of each column.
        column_meta: Metadata bytes of each column as a little-endian number, 0 where the type has none.
        null_bits: Bitmap of columns that may be NULL, column 0 in bit 0 of byte 0.
        raw: The body after table id and flags; equal bytes mean an equal map.
        layout: What stands behind the names; equal bytes mean tables that are announced alike. Empty
            when it is not told.
        unsigned: Whether numeric columns are UNSIGNED.
        charsets: Collation ids of character columns, ENUM and SET columns included; 63 (binary) for bytes.
        names: Column names.
        enum_members: Members of ENUM columns, in bytes of the column's character set.
        set_members: Members of SET columns, likewise.
        geometry_types: Geometry types of spatial columns (0 GEOMETRY, 1 POINT, ... 7 GEOMETRYCOLLECTION).
        primary_key: Column indexes of the primary key in key order.
        prefix_lengths: Lengths in characters of the key's parts, 0 for a whole column; None for a key without prefixes.
        visible: Whether columns are visible.
        dimensions: Dimensions of VECTOR columns.
    """

    table_id: int
    flags: int
    db: str
    table: str
    column_types: bytes
    column_meta: tuple[int, ...]
    null_bits: bytes
    raw: bytes
    layout: bytes = b""
    unsigned: tuple[bool | None, ...] | None = None
    charsets: tuple[int | None, ...] | None = None
    names: tuple[str, ...] | None = None
    enum_members: tuple[tuple[bytes, ...] | None, ...] | None = None
    set_members: tuple[tuple[bytes, ...] | None, ...] | None = None
    geometry_types: tuple[int | None, ...] | None = None
    primary_key: tuple[int, ...] | None = None
    prefix_lengths: tuple[int, ...] | None = None
    visible: tuple[bool, ...] | None = None
    dimensions: tuple[int | None, ...] | None = None

    def nullable(self, column: int) -> bool:
        """Return whether a column may be NULL."""
        return bool(self.null_bits[column >> 3] & 1 << (column & 7))


@event_parser("a TABLE_MAP event")
def parse_table_map(event: Event) -> TableMap:
    """Parse a TABLE_MAP event.

    Raises:
        BinlogCorruptError: The structure does not hold.
    """
    return _parse_body(event.buf[event.body : event.end])


def _parse_body(data: bytes) -> TableMap:
    db, pos = _read_name(data, 8)
    table, pos = _read_name(data, pos)
    columns = _parse_columns(bytes(data[pos:]))
    # Thousands of tables may be announced alike, and what they share is read once; ``replace`` takes twice as long.
    return TableMap(
        int.from_bytes(data[:6], "little"),
        int.from_bytes(data[6:8], "little"),
        db,
        table,
        columns.column_types,
        columns.column_meta,
        columns.null_bits,
        data[8:],
        columns.layout,
        columns.unsigned,
        columns.charsets,
        columns.names,
        columns.enum_members,
        columns.set_members,
        columns.geometry_types,
        columns.primary_key,
        columns.prefix_lengths,
        columns.visible,
        columns.dimensions,
    )


@lru_cache(maxsize=1024)
def _parse_columns(data: bytes) -> TableMap:
    """Return what stands behind the names, as the map of a table without one."""
    count, pos = lenenc(data, 0)
    types, pos = _slice(data, pos, count)
    size, pos = lenenc(data, pos)
    meta, pos = _slice(data, pos, size)
    null_bits, pos = _slice(data, pos, count + 7 >> 3)
    table_map = TableMap(0, 0, "", "", types, _column_meta(types, meta), null_bits, b"", data)
    return replace(table_map, **_optional_metadata(table_map, data, pos)) if pos < len(data) else table_map


def _slice(data: bytes, pos: int, size: int) -> tuple[bytes, int]:
    if pos + size > len(data):
        raise IndexError(f"{size} bytes at {pos} of {len(data)}")
    return data[pos : pos + size], pos + size


def _read_name(data: bytes, pos: int) -> tuple[str, int]:
    """Return a name (length-encoded, and ended by a zero byte) and the offset after it."""
    length, pos = lenenc(data, pos)
    raw, pos = _slice(data, pos, length + 1)
    return raw[:-1].decode(), pos


_ROWS = MYSQL_TYPES.values()
# Codes that columns of tables do not have.
_UNUSED_BLOBS = (wt.TINY_BLOB, wt.MEDIUM_BLOB, wt.LONG_BLOB)
_METADATA_BYTES = {
    **{form.code: METADATA_BYTES[form.metadata] for row in _ROWS for form in row.formats},
    **dict.fromkeys(_UNUSED_BLOBS, 1),
    wt.VAR_STRING: 2,
}


def _codes(*families: Family) -> frozenset[int]:
    return frozenset(form.code for row in _ROWS if row.family in families for form in row.formats)


def _column_meta(types: bytes, meta: bytes) -> tuple[int, ...]:
    out: list[int] = []
    pos = 0
    for kind in types:
        size = _METADATA_BYTES.get(kind, 0)
        raw, pos = _slice(meta, pos, size)
        out.append(int.from_bytes(raw, "little"))
    if pos != len(meta):
        raise IndexError(f"{len(meta)} bytes of column metadata, {pos} expected")
    return tuple(out)


# -- optional metadata ----------------------------------------------------------------------------------------------

_NUMERIC = frozenset((wt.DECIMAL, *(form.code for row in _ROWS if row.in_signedness_list for form in row.formats)))
_NUMERIC_WITHOUT_YEAR = _NUMERIC - {wt.YEAR}
_CHARACTER = frozenset(
    (wt.VAR_STRING, *_UNUSED_BLOBS, *(form.code for row in _ROWS if row.in_charset_list for form in row.formats))
)


def _real_type(kind: int, meta: int) -> int:
    """Return ENUM or SET where they hide behind STRING."""
    return meta & 0xFF if kind == wt.STRING and meta & 0xFF in (wt.ENUM, wt.SET) else kind


def _read_numbers(data: bytes) -> list[int]:
    out: list[int] = []
    pos = 0
    while pos < len(data):
        value, pos = lenenc(data, pos)
        out.append(value)
    return out


def _read_strings(data: bytes) -> list[bytes]:
    out: list[bytes] = []
    pos = 0
    while pos < len(data):
        length, pos = lenenc(data, pos)
        text, pos = _slice(data, pos, length)
        out.append(text)
    return out


def _read_members(data: bytes) -> list[tuple[bytes, ...]]:
    out: list[tuple[bytes, ...]] = []
    pos = 0
    while pos < len(data):
        count, pos = lenenc(data, pos)
        members: list[bytes] = []
        for _ in range(count):
            length, pos = lenenc(data, pos)
            member, pos = _slice(data, pos, length)
            members.append(member)
        out.append(tuple(members))
    return out


class _MetadataExpander:
    """Hand out metadata, which stands in the event for columns of some types only, to all columns."""

    def __init__(self, table_map: TableMap) -> None:
        self.types = [
            _real_type(kind, meta) for kind, meta in zip(table_map.column_types, table_map.column_meta, strict=True)
        ]

    def expand(self, kinds: frozenset[int], values: list[Any] | tuple[Any, ...]) -> tuple[Any, ...]:
        """Return one entry for each column: the next value for columns of these types, else None."""
        it = iter(values)
        try:
            return tuple(next(it) if kind in kinds else None for kind in self.types)
        except RuntimeError as error:
            raise IndexError("fewer entries of optional metadata than columns they apply to") from error

    def count(self, kinds: frozenset[int]) -> int:
        """Return the number of columns of these types."""
        return sum(kind in kinds for kind in self.types)

    def expand_defaults(self, kinds: frozenset[int], data: bytes) -> tuple[int | None, ...]:
        """Return a default for columns of these types, with exceptions as (index among them, value) pairs."""
        default, *pairs = _read_numbers(data)
        values = [default] * self.count(kinds)
        for index, value in zip(pairs[::2], pairs[1::2], strict=True):
            values[index] = value
        return self.expand(kinds, values)


def _unsigned(expander: _MetadataExpander, data: bytes) -> dict[str, Any]:
    """Return the signedness of numeric columns; None where it cannot be told.

    YEAR columns have a bit, which is set; in MySQL 8.0.15 they have none. Nothing in the event says which of the two it
    is, but a set bit that only one of them has.
    """
    count, earlier_count = expander.count(_NUMERIC), expander.count(_NUMERIC_WITHOUT_YEAR)
    all_bits = bits(data, 8 * len(data))
    unsigned = expander.expand(_NUMERIC, (all_bits + (False,) * count)[:count])
    if count == earlier_count or any(all_bits[earlier_count:]):
        return {"unsigned": unsigned}
    earlier = expander.expand(_NUMERIC_WITHOUT_YEAR, all_bits[:earlier_count])
    if not all(value for kind, value in zip(expander.types, unsigned, strict=True) if kind == wt.YEAR):
        return {"unsigned": earlier}
    certain = (a == b or kind == wt.YEAR for kind, a, b in zip(expander.types, unsigned, earlier, strict=True))
    return {"unsigned": tuple(a if told else None for a, told in zip(unsigned, certain, strict=True))}


def _column_names(expander: _MetadataExpander, data: bytes) -> tuple[str, ...]:
    names = tuple(name.decode() for name in _read_strings(data))
    if len(names) != len(expander.types):
        raise ValueError(f"{len(names)} names of {len(expander.types)} columns")
    return names


def _prefixed_primary_key(_: _MetadataExpander, data: bytes) -> dict[str, Any]:
    numbers = _read_numbers(data)
    return {"primary_key": tuple(numbers[::2]), "prefix_lengths": tuple(numbers[1::2])}


_ENUM, _SET = _codes(Family.ENUM), _codes(Family.SET)
_GEOMETRY, _VECTOR = _codes(*SPATIAL_FAMILIES), _codes(Family.VECTOR)
_ENUM_OR_SET = _ENUM | _SET

_OPTIONAL_PARSERS: dict[int, Callable[[_MetadataExpander, bytes], dict[str, Any]]] = {
    1: _unsigned,
    2: lambda s, d: {"charsets": s.expand_defaults(_CHARACTER, d)},
    3: lambda s, d: {"charsets": s.expand(_CHARACTER, _read_numbers(d))},
    4: lambda s, d: {"names": _column_names(s, d)},
    5: lambda s, d: {"set_members": s.expand(_SET, _read_members(d))},
    6: lambda s, d: {"enum_members": s.expand(_ENUM, _read_members(d))},
    7: lambda s, d: {"geometry_types": s.expand(_GEOMETRY, _read_numbers(d))},
    8: lambda _, d: {"primary_key": tuple(_read_numbers(d))},
    9: _prefixed_primary_key,
    10: lambda s, d: {"charsets": s.expand_defaults(_ENUM_OR_SET, d)},
    11: lambda s, d: {"charsets": s.expand(_ENUM_OR_SET, _read_numbers(d))},
    12: lambda s, d: {"visible": bits(d, len(s.types))},
    13: lambda s, d: {"dimensions": s.expand(_VECTOR, _read_numbers(d))},
}


def _optional_metadata(table_map: TableMap, data: bytes, pos: int) -> dict[str, Any]:
    """Return the optional metadata; fields that are not known are left out, as the server does."""
    expander = _MetadataExpander(table_map)
    values: dict[str, Any] = {}
    while pos < len(data):
        kind = data[pos]
        length, pos = lenenc(data, pos + 1)
        body, pos = _slice(data, pos, length)
        if kind not in _OPTIONAL_PARSERS:
            continue
        field = _OPTIONAL_PARSERS[kind](expander, body)
        if "charsets" in field and "charsets" in values:
            # Character columns and ENUM or SET columns come in fields of their own.
            field["charsets"] = tuple(
                a if b is None else b for a, b in zip(values["charsets"], field["charsets"], strict=True)
            )
        values.update(field)
    return values


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
