"""Parse TABLE_MAP with its optional metadata.

Source: MySQL source, ``Table_map_event`` in ``libs/mysql/binlog/event/rows_event.h``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.payload import lenenc

# Bytes of metadata by column type; types not named have none.
_META_BYTES = {
    4: 1, 5: 1, 252: 1, 255: 1, 245: 1, 242: 1,  # float, double, blob, geometry, json, vector: length bytes
    15: 2, 16: 2, 246: 2, 247: 2, 248: 2, 253: 2, 254: 2,  # varchar, bit, decimal, enum, set, var_string, string
    17: 1, 18: 1, 19: 1,  # timestamp2, datetime2, time2: fraction digits
}  # fmt: skip
_NUMERIC = frozenset({1, 2, 3, 4, 5, 8, 9, 13, 246})
_BLOBS = frozenset({249, 250, 251, 252})


@dataclass(frozen=True, slots=True)
class TableMap:
    """Describe a table as the server announces it before its rows.

    Args:
        table_id: Number in the following row events.
        db: Database.
        table: Table.
        column_types: One type code for each column.
        column_meta: One number for each column, its metadata bytes read as little-endian; 0 without metadata.
        nullable: Whether each column may be NULL.
        unsigned: Signedness of each column (False for types without one); None when not told.
        charsets: Collation id of each character column (None for others); None when not told.
        enum_charsets: Collation id of each ENUM or SET column (None for others); None when not told.
        names: Column names; None when not told (binlog_row_metadata=MINIMAL).
        enum_values: Members of each ENUM column in order of columns, undecoded; None when not told.
        set_values: Members of each SET column in order of columns, undecoded; None when not told.
        primary_key: Column numbers of the primary key; None when not told.
        geometry_types: Geometry type of each spatial column in order; None when not told.
        visible: Whether each column is visible; None when not told.
    """

    table_id: int
    db: str
    table: str
    column_types: bytes
    column_meta: tuple[int, ...]
    nullable: tuple[bool, ...]
    unsigned: tuple[bool, ...] | None = None
    charsets: tuple[int | None, ...] | None = None
    enum_charsets: tuple[int | None, ...] | None = None
    names: tuple[str, ...] | None = None
    enum_values: tuple[tuple[bytes, ...], ...] | None = None
    set_values: tuple[tuple[bytes, ...], ...] | None = None
    primary_key: tuple[int, ...] | None = None
    geometry_types: tuple[int, ...] | None = None
    visible: tuple[bool, ...] | None = None


def parse_table_map(event: Any) -> TableMap:
    """Parse a TABLE_MAP event.

    Args:
        event: The event.
    """
    buf, at = bytes(event.buf[event.body : event.end]), 8
    table_id = int.from_bytes(buf[:6], "little")
    db = buf[at + 1 : at + 1 + buf[at]].decode()
    at += buf[at] + 2
    size, at = lenenc(buf, at)
    table = buf[at : at + size].decode()
    at += size + 1
    count, at = lenenc(buf, at)
    types = buf[at : at + count]
    at += count
    size, at = lenenc(buf, at)
    meta = _meta(types, buf[at : at + size])
    at += size
    nullable = _bits(buf[at : at + (count + 7) // 8], count)
    at += (count + 7) // 8
    return TableMap(table_id, db, table, types, meta, nullable, **_optional(buf, at, types, meta))


def _meta(types: bytes, data: bytes) -> tuple[int, ...]:
    out, at = [], 0
    for code in types:
        size = _META_BYTES.get(code, 0)
        out.append(int.from_bytes(data[at : at + size], "little"))
        at += size
    return tuple(out)


def _bits(data: bytes, count: int) -> tuple[bool, ...]:
    return tuple(bool(data[i >> 3] >> (i & 7) & 1) for i in range(count))


def _big_bits(data: bytes, count: int) -> list[bool]:
    # Signedness and visibility count from the highest bit of each byte.
    return [bool(data[i >> 3] >> (7 - (i & 7)) & 1) for i in range(count)]


def _real_type(code: int, meta: int) -> int:
    """Return ENUM or SET for the STRING columns that are one."""
    return meta & 0xFF if code == 254 and meta & 0xFF in (247, 248) else code


def _optional(buf: bytes, at: int, types: bytes, meta: tuple[int, ...]) -> dict[str, Any]:
    real = [_real_type(t, m) for t, m in zip(types, meta, strict=True)]
    fields: dict[int, bytes] = {}
    while at < len(buf):
        kind = buf[at]
        size, at = lenenc(buf, at + 1)
        fields[kind] = buf[at : at + size]
        at += size
    texts = [i for i, t in enumerate(real) if t in (254, 253, 15) or t in _BLOBS]
    lists = [i for i, t in enumerate(real) if t in (247, 248)]
    out: dict[str, Any] = {}
    if 1 in fields:
        out["unsigned"] = _signedness(fields[1], real)
    if 2 in fields or 3 in fields:
        out["charsets"] = _charsets(fields.get(2), fields.get(3), texts, len(types))
    if 10 in fields or 11 in fields:
        out["enum_charsets"] = _charsets(fields.get(10), fields.get(11), lists, len(types))
    for code, name in ((5, "set_values"), (6, "enum_values")):
        if code in fields:
            out[name] = _value_lists(fields[code])
    if 4 in fields:
        out["names"] = tuple(v.decode() for v in _strings(fields[4]))
    if 7 in fields:
        out["geometry_types"] = tuple(_ints(fields[7]))
    if 8 in fields:
        out["primary_key"] = tuple(_ints(fields[8]))
    if 9 in fields:
        out["primary_key"] = tuple(_ints(fields[9])[::2])  # pairs of column and prefix length
    if 12 in fields:
        out["visible"] = tuple(_big_bits(fields[12], len(types)))
    return out


def _signedness(data: bytes, real: list[int]) -> tuple[bool, ...]:
    numeric = [i for i, t in enumerate(real) if t in _NUMERIC]
    bits = _big_bits(data, len(numeric))
    found = dict(zip(numeric, bits, strict=True))
    return tuple(found.get(i, False) for i in range(len(real)))


def _charsets(default: bytes | None, each: bytes | None, columns: list[int], count: int) -> tuple[int | None, ...]:
    """Return collation ids: one default with exceptions, or one for each column."""
    out: list[int | None] = [None] * count
    if each is not None:
        for column, value in zip(columns, _ints(each), strict=False):
            out[column] = value
        return tuple(out)
    values = _ints(default or b"")
    for column in columns:
        out[column] = values[0]
    for place, value in zip(values[1::2], values[2::2], strict=False):
        out[columns[place]] = value
    return tuple(out)


def _ints(data: bytes) -> list[int]:
    out, at = [], 0
    while at < len(data):
        value, at = lenenc(data, at)
        out.append(value)
    return out


def _strings(data: bytes) -> list[bytes]:
    out, at = [], 0
    while at < len(data):
        size, at = lenenc(data, at)
        out.append(data[at : at + size])
        at += size
    return out


def _value_lists(data: bytes) -> tuple[tuple[bytes, ...], ...]:
    out, at = [], 0
    while at < len(data):
        count, at = lenenc(data, at)
        values = []
        for _ in range(count):
            size, at = lenenc(data, at)
            values.append(data[at : at + size])
            at += size
        out.append(tuple(values))
    return tuple(out)
