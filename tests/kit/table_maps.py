"""TABLE_MAP events of tables, as a server with ``binlog_row_metadata=FULL`` writes them."""

from __future__ import annotations

from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.table_map import TableMap, WireType
from airflow_provider_mysql_cdc.cdc.ddl.collations import collation_by_name
from airflow_provider_mysql_cdc.cdc.decode.table_check import expected_types, vector_dimensions
from airflow_provider_mysql_cdc.cdc.model import wire_codes as wt
from airflow_provider_mysql_cdc.cdc.model.mysql_types import SPATIAL_FAMILIES, Family, type_names
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table

_BINARY = 63
_GEOMETRIES = type_names(*SPATIAL_FAMILIES)
_CODECS = {"latin1": "cp1252", "utf8mb4": "utf-8", "utf8mb3": "utf-8", "ucs2": "utf-16-be", "gbk": "gbk"}


def type_bytes(wire: WireType) -> tuple[int, int]:
    """Return type number and metadata of a wire type: the inverse of ``wire_type``."""
    if wire.code in (wt.ENUM, wt.SET):
        return wt.STRING, wire.code | wire.length << 8
    if wire.code == wt.STRING:
        return wt.STRING, (wt.STRING ^ (wire.length >> 4 & 0x30)) | (wire.length & 0xFF) << 8
    if wire.code == wt.NEWDECIMAL:
        return wire.code, wire.length | wire.scale << 8
    if wire.code == wt.BIT:
        return wire.code, wire.length % 8 | wire.length // 8 << 8
    return wire.code, wire.length


def full_table_map(table: Table, **more: Any) -> TableMap:
    """Return the event of a table."""
    columns = table.columns
    types = [type_bytes(expected_types(column)[0]) for column in columns]
    nulls = sum(1 << index for index, column in enumerate(columns) if column.nullable)
    members = [_member_bytes(column) for column in columns]
    places = [column.name for column in columns]
    values: dict[str, Any] = {
        "unsigned": tuple(c.unsigned if c.mysql_type.in_signedness_list else None for c in columns),
        "charsets": tuple(map(_collation_id, columns)),
        "names": tuple(places),
        "enum_members": tuple(m if c.family is Family.ENUM else None for c, m in zip(columns, members, strict=True)),
        "set_members": tuple(m if c.family is Family.SET else None for c, m in zip(columns, members, strict=True)),
        "geometry_types": tuple(
            _GEOMETRIES.index(c.type_name) if c.family in SPATIAL_FAMILIES else None for c in columns
        ),
        "primary_key": tuple(places.index(name) for name in table.key_columns()) or None,
        "visible": tuple(not c.invisible for c in columns),
        "dimensions": tuple(map(vector_dimensions, columns)),
    }
    return TableMap(
        1,
        1,
        table.id.db,
        table.id.table,
        bytes(code for code, _ in types),
        tuple(meta for _, meta in types),
        nulls.to_bytes(len(columns) + 7 >> 3, "little"),
        b"",
        **{**values, **more},
    )


def _collation_id(column: Column) -> int | None:
    if column.collation is not None:
        return collation_by_name(column.collation).id
    return _BINARY if column.mysql_type.in_charset_list else None


def _member_bytes(column: Column) -> tuple[bytes, ...]:
    return tuple(member.encode(_CODECS[column.charset or "utf8mb4"]) for member in column.enum_values)
