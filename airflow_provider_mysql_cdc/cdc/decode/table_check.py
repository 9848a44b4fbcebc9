"""Compare a TABLE_MAP event, whose metadata of each column is read here, with the table's structure in the schema
history.

Compare a TABLE_MAP event with the table's structure in the schema history.

Types, lengths, precisions, fraction digits and nullability are in every TABLE_MAP, signedness and character sets in
those of MySQL 8, names and members only with ``binlog_row_metadata=FULL``.

What a TABLE_MAP event has of one column, and the column that can be made of it.

Source: MySQL source, ``rows_event.h`` (``Table_map_event::Optional_metadata_field_type``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from airflow_provider_mysql_cdc.cdc.binlog.table_map import TableMap, WireType, wire_type
from airflow_provider_mysql_cdc.cdc.ddl.collations import MAX_CHARACTER_BYTES, Collation, charset_by_id, collation_by_id
from airflow_provider_mysql_cdc.cdc.errors import READ_AGAIN, SchemaMismatchError
from airflow_provider_mysql_cdc.cdc.model.charset_decoders import shown_text
from airflow_provider_mysql_cdc.cdc.model.mysql_types import (
    MYSQL_TYPES,
    SPATIAL_FAMILIES,
    Family,
    Metadata,
    MySqlType,
    WireFormat,
    type_names,
)
from airflow_provider_mysql_cdc.cdc.model.table import Column, Interned, Table, folded_name, interned

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


_GEOMETRY_TYPES = type_names(*SPATIAL_FAMILIES)
"""Types by their numbers in TABLE_MAP (``Field::geometry_type``)."""
DEFAULT_DIMENSIONS = 2048
"""Dimensions of a VECTOR that is declared without them (MySQL 9.7 manual, "The VECTOR Type")."""
_FORMATS = [(row, form) for row in MYSQL_TYPES.values() for form in row.formats]


@dataclass(frozen=True, slots=True)
class ColumnMetadata:
    """Hold what a TABLE_MAP event has of a column.

    Args:
        name: Its name.
        position: Its place in the table, from 1.
        wire: Type number, length and scale.
        nullable: Whether it may be NULL.
        unsigned: Whether it is UNSIGNED; None where the event does not have it, as for the others.
        collation: Its collation, ``binary`` for bytes.
        members: Members of an ENUM or SET, in bytes of its character set.
        geometry: Number of its spatial type.
        visible: Whether it is visible.
        dimension: Dimensions of a VECTOR.
    """

    name: str
    position: int
    wire: WireType
    nullable: bool
    unsigned: bool | None = None
    collation: Collation | None = None
    members: tuple[bytes, ...] | None = None
    geometry: int | None = None
    visible: bool | None = None
    dimension: int | None = None

    def column(self, table: Table) -> Column:
        """Return the column that these metadata describe, without what they do not have.

        Args:
            table: Its table, for errors.

        Raises:
            SchemaMismatchError: Its type is not known.
        """
        row, form = self._type(table)
        length, scale = self._length(row, form)
        column = Column(
            self.name,
            self.position,
            row.name,
            row.name,
            length,
            scale,
            nullable=self.nullable,
            has_default=self.nullable,
            invisible=self.visible is False,
        )
        return replace(column, **self.values(column))

    def values(self, column: Column) -> dict[str, Any]:
        """Return signedness, character set and members for a column of the same type.

        Args:
            column: The column.
        """
        row, values = column.mysql_type, dict[str, Any]()
        if row.unsigned and self.unsigned is not None and column.unsigned != self.unsigned:
            # Words such as SERIAL imply UNSIGNED.
            values |= {"unsigned": self.unsigned, "declared_type": row.name}
            values["zerofill"] = column.zerofill and self.unsigned
        if row.collated and self.collation is not None:
            values["charset"] = self.collation.charset
            if column.charset != self.collation.charset:
                values["declared_charset"] = ""
            if column.charset != self.collation.charset or column.collation is not None:
                values["collation"] = self.collation.name
        if row.has_members and self.members is not None:
            charset_name = values.get("charset", column.charset)
            values["enum_values"] = decoded_members(self.members, charset_name)
        return values

    def _type(self, table: Table) -> tuple[MySqlType, WireFormat]:
        for row, form in _FORMATS:
            if self._has_type(row, form):
                return row, form
        raise mismatch_error(
            table,
            f"The type of column {self.name}",
            f"the binlog has type number {self.wire.code} with collation {self.collation and self.collation.name}",
        )

    def _has_type(self, row: MySqlType, form: WireFormat) -> bool:
        if form.code != self.wire.code or (form.metadata is Metadata.WIDTH and row.width != self.wire.length):
            return False
        if row.family in SPATIAL_FAMILIES and self.geometry is not None:
            return self.geometry < len(_GEOMETRY_TYPES) and row.name == _GEOMETRY_TYPES[self.geometry]
        if row.family in (Family.TEXT, Family.BYTES):
            is_text = self.collation is not None and self.collation.charset != "binary"
            return self.collation is not None and (row.family is Family.TEXT) == is_text
        return not row.collated or self.collation is not None

    def _length(self, row: MySqlType, form: WireFormat) -> tuple[int | None, int | None]:
        """Return length and scale as a declaration has them."""
        if form.metadata is Metadata.LENGTH:
            charset_name = "binary" if self.collation is None else self.collation.charset
            return self.wire.length // MAX_CHARACTER_BYTES.get(charset_name, 1), None
        if form.metadata is Metadata.PRECISION:
            return self.wire.length, self.wire.scale
        if form.metadata is Metadata.BITS:
            return self.wire.length, None
        if form.metadata is Metadata.FRACTION:
            return self.wire.length or None, None
        return (self.dimension if row.family is Family.VECTOR else None), None


def column_metadata(table_map: TableMap, index: int) -> ColumnMetadata:
    """Return what an event has of a column.

    Args:
        table_map: The event; it has the names of the columns.
        index: The column's index, from 0.
    """

    def entry(values: tuple[Any, ...] | None) -> Any:
        return None if values is None else values[index]

    number = entry(table_map.charsets)
    return ColumnMetadata(
        name=entry(table_map.names),
        position=index + 1,
        wire=wire_type(table_map.column_types[index], table_map.column_meta[index]),
        nullable=table_map.nullable(index),
        unsigned=entry(table_map.unsigned),
        collation=None if number is None else collation_by_id(number),
        members=_first(entry(table_map.enum_members), entry(table_map.set_members)),
        geometry=entry(table_map.geometry_types),
        visible=entry(table_map.visible),
        dimension=entry(table_map.dimensions),
    )


def _first(*values: Iterable[bytes] | None) -> tuple[bytes, ...] | None:
    return next((tuple(each) for each in values if each is not None), None)


def vector_dimensions(column: Column) -> int | None:
    """Return the dimensions of a VECTOR; None for another column.

    Args:
        column: The column.
    """
    return (column.length or DEFAULT_DIMENSIONS) if column.family is Family.VECTOR else None


def type_fits(column: Column, actual: ColumnMetadata) -> bool:
    """Return whether a declared type is the one in the metadata, whatever else differs.

    Args:
        column: The column in the schema history.
        actual: The metadata.
    """
    row = column.mysql_type
    form = row.wire_format(actual.wire.code)
    if form is None:
        return False
    charset_name = None if actual.collation is None else actual.collation.charset
    is_string = row.family in (Family.TEXT, Family.BYTES) and charset_name is not None
    if is_string and (row.family is Family.BYTES) != (charset_name == "binary"):
        return False
    if row.family in SPATIAL_FAMILIES and actual.geometry is not None:
        return row.name == dict(enumerate(_GEOMETRY_TYPES)).get(actual.geometry)
    if actual.dimension is not None and vector_dimensions(column) != actual.dimension:
        return False
    return actual.wire in expected_types(replace(column, **actual.values(column)))
