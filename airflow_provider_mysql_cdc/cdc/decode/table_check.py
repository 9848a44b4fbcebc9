"""Compare a TABLE_MAP event with the table's structure in the schema history.

Types, lengths, precisions, fraction digits and nullability are in every TABLE_MAP, signedness and character sets in
those of MySQL 8, names and members only with ``binlog_row_metadata=FULL``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NoReturn

from airflow_provider_mysql_cdc.cdc.binlog.table_map import TableMap
from airflow_provider_mysql_cdc.cdc.binlog.wire_types import WireType, wire_type
from airflow_provider_mysql_cdc.cdc.ddl.collations import MAX_CHARACTER_BYTES, charset_by_id
from airflow_provider_mysql_cdc.cdc.errors import READ_AGAIN, SchemaMismatchError
from airflow_provider_mysql_cdc.cdc.model.charset_decoders import shown_text
from airflow_provider_mysql_cdc.cdc.model.interning import Interned, interned
from airflow_provider_mysql_cdc.cdc.model.mysql_types import Family, Metadata
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, folded_name

_MATCHED: set[tuple[Interned[tuple[Column, ...]], bytes]] = set()
"""Columns that agreed with a TABLE_MAP event; thousands of tables may share both."""
_MAX_MATCHED = 1_024


def _bytes_per_character(column: Column) -> int:
    if column.family is Family.BYTES:
        return 1
    return MAX_CHARACTER_BYTES.get(column.charset or "utf8mb4", 4)


def _default_length(column: Column) -> int:
    return (column.mysql_type.default_length or 0) if column.length is None else column.length


def _member_bytes(column: Column) -> int:
    size = (len(column.enum_values) + 7) // 8
    return size if size <= 4 else 8


METADATA: dict[Metadata, Callable[[Column], tuple[int, ...]]] = {
    Metadata.NONE: lambda column: (),
    Metadata.WIDTH: lambda column: (column.mysql_type.width,),
    Metadata.FRACTION: lambda column: (column.length or 0,),
    Metadata.PRECISION: lambda column: (_default_length(column), column.scale or 0),
    Metadata.BITS: lambda column: (column.length or 1,),
    Metadata.LENGTH: lambda column: (_default_length(column) * _bytes_per_character(column),),
    Metadata.MEMBER_NUMBER: lambda column: (1 if len(column.enum_values) < 256 else 2,),
    Metadata.MEMBER_BITS: lambda column: (_member_bytes(column),),
}
"""Length and scale in the wire type of a column, by what TABLE_MAP holds of it."""


def expected_types(column: Column) -> list[WireType]:
    """Return the types that TABLE_MAP may have for a column: in each of the formats of its type.

    Args:
        column: The column.
    """
    formats = column.mysql_type.formats
    # Tables of MySQL 5.5 that were never rebuilt keep the old formats, which have no fraction.
    if column.length and len(formats) > 1 and formats[0].metadata is Metadata.FRACTION:
        formats = formats[:1]
    return [WireType(form.code, *METADATA[form.metadata](column)) for form in formats]


def mismatch_error(table: Table, what: str, why: str) -> SchemaMismatchError:
    """Return the error for a difference between schema history and binlog.

    Args:
        table: The table in the schema history.
        what: What differs.
        why: What both have.
    """
    return SchemaMismatchError(
        f"{what} of table {table.id} in the binlog differs from the schema history",
        where=str(table.id),
        why=why,
        remedy=(
            "the schema history lacks a change of the table: rebuild it with snapshot.mode=recovery; if that is "
            f"refused, or this error comes again because rows of both structures wait, {READ_AGAIN}"
        ),
    )


def _raise_mismatch(table: Table, what: str, why: str) -> NoReturn:
    raise mismatch_error(table, what, why)


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
        expected = expected_types(column)
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
        if column.mysql_type.unsigned and unsigned is not None and column.unsigned != unsigned:
            _raise_mismatch(
                table,
                f"Column {column.name}",
                f"UNSIGNED is {column.unsigned} in the schema history, {unsigned} in the binlog",
            )


def _check_charsets(table: Table, table_map: TableMap) -> None:
    for column, number in zip(table.columns, table_map.charsets or (), strict=False):
        name = None if number is None else charset_by_id(number)
        if column.mysql_type.collated and name is not None and name != column.charset:
            _raise_mismatch(
                table, f"Column {column.name}", f"character set {column.charset} is known, the binlog has {name}"
            )


def _check_members(table: Table, table_map: TableMap) -> None:
    for lists in (table_map.enum_members, table_map.set_members):
        for column, values in zip(table.columns, lists or (), strict=False):
            members = () if values is None else decoded_members(values, column.charset)
            if values is not None and members != column.enum_values:
                _raise_mismatch(
                    table, f"Column {column.name}", f"members {column.enum_values} are known, the binlog has {members}"
                )


def decoded_members(values: Iterable[bytes], charset_name: str | None) -> tuple[str, ...]:
    """Return the members of an ENUM or SET as the server shows them.

    They need not be text in the character set: CONVERT TO another one keeps their bytes (MySQL 8.0.15, 9.7.4).

    Args:
        values: The members in TABLE_MAP.
        charset_name: The column's character set.
    """
    name = charset_name or "utf8mb4"
    return tuple(value.decode("latin-1") if name == "binary" else shown_text(value, name) for value in values)
