"""Compare a TABLE_MAP event with the table's structure in the schema history.

Types, lengths, precisions, fraction digits and nullability are in every TABLE_MAP, signedness and character sets in
those of MySQL 8, names and members only with ``binlog_row_metadata=FULL``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NoReturn

from airflow_provider_mysql_cdc.cdc.binlog import wire_types as wt
from airflow_provider_mysql_cdc.cdc.binlog.table_map import TableMap
from airflow_provider_mysql_cdc.cdc.binlog.wire_types import WireType, wire_type
from airflow_provider_mysql_cdc.cdc.ddl.collations import MAX_CHARACTER_BYTES, charset_by_id
from airflow_provider_mysql_cdc.cdc.decode.values.charsets import charset
from airflow_provider_mysql_cdc.cdc.errors import SchemaMismatchError
from airflow_provider_mysql_cdc.cdc.model.interning import Interned, interned
from airflow_provider_mysql_cdc.cdc.model.table import COLLATED_TYPES, Column, Table, folded_name

_INTEGERS = {"TINYINT": wt.TINY, "SMALLINT": wt.SHORT, "MEDIUMINT": wt.INT24, "INT": wt.LONG, "BIGINT": wt.LONGLONG}
_BLOB_PREFIX = {
    **{"TINYTEXT": 1, "TEXT": 2, "MEDIUMTEXT": 3, "LONGTEXT": 4},
    **{"TINYBLOB": 1, "BLOB": 2, "MEDIUMBLOB": 3, "LONGBLOB": 4},
}
_SPATIAL = (
    "GEOMETRY", "POINT", "LINESTRING", "POLYGON", "MULTIPOINT", "MULTILINESTRING", "MULTIPOLYGON", "GEOMETRYCOLLECTION",
)  # fmt: skip
_NUMERIC = (*_INTEGERS, "DECIMAL", "FLOAT", "DOUBLE")
_MATCHED: set[tuple[Interned[tuple[Column, ...]], bytes]] = set()
"""Columns that agreed with a TABLE_MAP event; thousands of tables may share both."""
_MAX_MATCHED = 1_024


def _bytes_per_character(column: Column) -> int:
    if column.type_name in ("BINARY", "VARBINARY"):
        return 1
    return MAX_CHARACTER_BYTES.get(column.charset or "utf8mb4", 4)


def _fixed(code: int, a: int = 0) -> Callable[[Column], tuple[WireType, ...]]:
    return lambda column: (WireType(code, a),)


def _temporal(new: int, old: int) -> Callable[[Column], tuple[WireType, ...]]:
    # Tables of MySQL 5.5 that were never rebuilt keep the old types, which have no fraction.
    return lambda column: (
        WireType(new, column.length or 0),
        *((WireType(old, 0),) if not column.length else ()),
    )


def _decimal(column: Column) -> tuple[WireType, ...]:
    return (WireType(wt.NEWDECIMAL, 10 if column.length is None else column.length, column.scale or 0),)


def _char(column: Column) -> tuple[WireType, ...]:
    length = 1 if column.length is None else column.length
    return (WireType(wt.STRING, length * _bytes_per_character(column)),)


def _varchar(column: Column) -> tuple[WireType, ...]:
    return (WireType(wt.VARCHAR, (column.length or 0) * _bytes_per_character(column)),)


def _enum(column: Column) -> tuple[WireType, ...]:
    return (WireType(wt.ENUM, 1 if len(column.enum_values) < 256 else 2),)


def _set(column: Column) -> tuple[WireType, ...]:
    size = (len(column.enum_values) + 7) // 8
    return (WireType(wt.SET, size if size <= 4 else 8),)


_WIRE_TYPES: dict[str, Callable[[Column], tuple[WireType, ...]]] = {
    **{name: _fixed(code) for name, code in _INTEGERS.items()},
    **{name: _fixed(wt.BLOB, size) for name, size in _BLOB_PREFIX.items()},
    **dict.fromkeys(_SPATIAL, _fixed(wt.GEOMETRY, 4)),
    "DECIMAL": _decimal,
    "FLOAT": _fixed(wt.FLOAT, 4),
    "DOUBLE": _fixed(wt.DOUBLE, 8),
    "BIT": lambda column: (WireType(wt.BIT, column.length or 1),),
    "CHAR": _char,
    "BINARY": _char,
    "VARCHAR": _varchar,
    "VARBINARY": _varchar,
    "DATE": lambda column: (WireType(wt.DATE), WireType(wt.NEWDATE)),
    "TIME": _temporal(wt.TIME2, wt.TIME),
    "DATETIME": _temporal(wt.DATETIME2, wt.DATETIME),
    "TIMESTAMP": _temporal(wt.TIMESTAMP2, wt.TIMESTAMP),
    "YEAR": _fixed(wt.YEAR),
    "ENUM": _enum,
    "SET": _set,
    "JSON": _fixed(wt.JSON, 4),
    "VECTOR": _fixed(wt.VECTOR, 4),
}


def _raise_mismatch(table: Table, what: str, why: str) -> NoReturn:
    raise SchemaMismatchError(
        f"{what} of table {table.id} in the binlog differs from the schema history",
        where=str(table.id),
        why=why,
        remedy=(
            "the schema history lacks a change of the table: rebuild it with snapshot.mode=recovery, "
            "or take a new snapshot of the table"
        ),
    )


def require_width(table: Table, width: int) -> None:
    """Refuse a TABLE_MAP with another number of columns.

    Raises:
        SchemaMismatchError: When the numbers differ.
    """
    if len(table.columns) != width:
        _raise_mismatch(
            table, "The number of columns", f"the schema history has {len(table.columns)} columns, the binlog {width}"
        )


def check_table_map(table: Table, table_map: TableMap) -> None:
    """Compare a table with the TABLE_MAP event that announces its rows.

    Args:
        table: The table as of this point of the binlog.
        table_map: The event.

    Raises:
        SchemaMismatchError: Names the first column that differs.
    """
    checked = interned(table.columns), table_map.layout
    if checked in _MATCHED:
        return
    _check(table, table_map)
    if not table_map.layout:
        return
    if len(_MATCHED) >= _MAX_MATCHED:
        _MATCHED.clear()
    _MATCHED.add(checked)


def _check(table: Table, table_map: TableMap) -> None:
    require_width(table, len(table_map.column_types))
    for column, code, meta in zip(table.columns, table_map.column_types, table_map.column_meta, strict=True):
        actual = wire_type(code, meta)
        expected_types = _WIRE_TYPES.get(column.type_name)
        expected = expected_types(column) if expected_types else ()
        if actual not in expected:
            _raise_mismatch(
                table,
                f"Column {column.name}",
                f"{column.type_name} is expected as one of {[tuple(e) for e in expected]}, found {tuple(actual)} "
                "(type number, length or precision, scale)",
            )
    for check in (_check_names, _check_nullability, _check_signedness, _check_charsets, _check_members):
        check(table, table_map)


def _check_names(table: Table, table_map: TableMap) -> None:
    for column, name in zip(table.columns, table_map.names or (), strict=False):
        if folded_name(column.name) != folded_name(name):
            _raise_mismatch(
                table, f"Column {column.position}", f"the schema history names it {column.name}, the binlog {name}"
            )


def _check_nullability(table: Table, table_map: TableMap) -> None:
    for index, column in enumerate(table.columns):
        nullable = table_map.nullable(index)
        if column.nullable != nullable:
            _raise_mismatch(
                table,
                f"Column {column.name}",
                f"nullable is {column.nullable} in the schema history, {nullable} in the binlog",
            )


def _check_signedness(table: Table, table_map: TableMap) -> None:
    for column, unsigned in zip(table.columns, table_map.unsigned or (), strict=False):
        if column.type_name in _NUMERIC and unsigned is not None and column.unsigned != unsigned:
            _raise_mismatch(
                table,
                f"Column {column.name}",
                f"UNSIGNED is {column.unsigned} in the schema history, {unsigned} in the binlog",
            )


def _check_charsets(table: Table, table_map: TableMap) -> None:
    for column, number in zip(table.columns, table_map.charsets or (), strict=False):
        name = None if number is None else charset_by_id(number)
        if column.type_name in COLLATED_TYPES and name is not None and name != column.charset:
            _raise_mismatch(
                table, f"Column {column.name}", f"character set {column.charset} is known, the binlog has {name}"
            )


def _check_members(table: Table, table_map: TableMap) -> None:
    for lists in (table_map.enum_members, table_map.set_members):
        for column, values in zip(table.columns, lists or (), strict=False):
            try:
                members = () if values is None else tuple(_decoded_members(values, column))
            except UnicodeDecodeError as error:
                _raise_mismatch(
                    table, f"Column {column.name}", f"its members are not text in {column.charset}: {error}"
                )
            if values is not None and members != column.enum_values:
                _raise_mismatch(
                    table, f"Column {column.name}", f"members {column.enum_values} are known, the binlog has {members}"
                )


def _decoded_members(values: Iterable[bytes], column: Column) -> Iterable[str]:
    name = column.charset or "utf8mb4"
    for value in values:
        yield value.decode("latin-1") if name == "binary" else charset(name).decode(value)
