"""What a TABLE_MAP event has of one column, and the column that can be made of it.

Source: MySQL source, ``rows_event.h`` (``Table_map_event::Optional_metadata_field_type``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.table_map import TableMap
from airflow_provider_mysql_cdc.cdc.binlog.wire_types import WireType, wire_type
from airflow_provider_mysql_cdc.cdc.ddl.collations import MAX_CHARACTER_BYTES, Collation, collation_by_id
from airflow_provider_mysql_cdc.cdc.decode.table_check import decoded_members, expected_types, mismatch_error
from airflow_provider_mysql_cdc.cdc.model.mysql_types import (
    MYSQL_TYPES,
    SPATIAL_FAMILIES,
    Family,
    Metadata,
    MySqlType,
    WireFormat,
    type_names,
)
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table

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
