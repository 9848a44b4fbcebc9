"""The types and Avro schemas of TiCDC's keys and values (AVRO-05 to AVRO-19, EX-24 to EX-31).

The type table of the protocol: a column's type name in TiDB, and its Avro type.

Source: AVRO-16 to AVRO-53; where the seed is silent (VECTOR, the escape in ``allowed``), TiCDC 8.5's
``pkg/sink/codec/avro``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from airflow_provider_mysql_cdc.cdc.convert.json_text import dumps
from airflow_provider_mysql_cdc.cdc.errors import SchemaError
from airflow_provider_mysql_cdc.cdc.model.avro_names import field_name
from airflow_provider_mysql_cdc.cdc.model.mysql_types import Family, mysql_type
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table

_NO_MEMBERS: Mapping[str, Any] = MappingProxyType({})
# Precision and scale of a DECIMAL without any.
_DEFAULT_DECIMAL = 10, 0


@dataclass(frozen=True, slots=True)
class TicdcModes:
    """Hold how values are written.

    Args:
        decimal: ``avro-decimal-handling-mode``: precise or string (AVRO-50).
        bigint_unsigned: ``avro-bigint-unsigned-handling-mode``: long or string (AVRO-51).
        extension: ``enable-tidb-extension``: values end in operation and commit time (AVRO-09).
        namespace: First part of Avro namespaces; in TiCDC the changefeed's namespace.
    """

    decimal: str = "precise"
    bigint_unsigned: str = "long"
    extension: bool = False
    namespace: str = "default"


@dataclass(frozen=True, slots=True)
class TidbType:
    """Describe a column's type.

    Args:
        name: ``tidb_type``.
        avro_type: Avro type.
        parameters: Members of ``connect.parameters`` besides ``tidb_type``.
        members: Further members of the type (the logical type of a decimal).
    """

    name: str
    avro_type: str
    parameters: Mapping[str, str] = field(default_factory=lambda: _NO_MEMBERS)
    members: Mapping[str, Any] = field(default_factory=lambda: _NO_MEMBERS)


_TypeBuilder = Callable[[Column, TicdcModes], TidbType]


def _plain(column: Column, modes: TicdcModes) -> TidbType:
    return TidbType(column.mysql_type.tidb_type, column.mysql_type.tidb_avro_type)


def _integer(column: Column, modes: TicdcModes) -> TidbType:
    row = column.mysql_type
    if not column.unsigned:
        return _plain(column, modes)
    as_text = row.width == 8 and modes.bigint_unsigned == "string"
    avro_type = "string" if as_text else row.unsigned_tidb_avro_type or row.tidb_avro_type
    return TidbType(f"{row.tidb_type} UNSIGNED", avro_type)


def _decimal(column: Column, modes: TicdcModes) -> TidbType:
    row = column.mysql_type
    if modes.decimal == "string":
        return TidbType(row.tidb_type, "string")
    precision = _DEFAULT_DECIMAL[0] if column.length is None else column.length
    scale = _DEFAULT_DECIMAL[1] if column.scale is None else column.scale
    members = {"logicalType": "decimal", "precision": precision, "scale": scale}
    return TidbType(row.tidb_type, row.tidb_avro_type, members=members)


def _character(column: Column, modes: TicdcModes) -> TidbType:
    row = column.mysql_type
    row = mysql_type(row.binary_type) if column.charset == "binary" else row
    return TidbType(row.tidb_type, row.tidb_avro_type)


def _bit(column: Column, modes: TicdcModes) -> TidbType:
    return replace(_plain(column, modes), parameters={"length": str(column.length or 1)})


def _enum_or_set(column: Column, modes: TicdcModes) -> TidbType:
    allowed = ",".join(member.replace(",", "\\,") for member in column.enum_values)
    return replace(_plain(column, modes), parameters={"allowed": allowed})


_BUILDERS: dict[Family, _TypeBuilder] = {
    Family.INTEGER: _integer,
    Family.DECIMAL: _decimal,
    Family.BIT: _bit,
    Family.TEXT: _character,
    Family.ENUM: _enum_or_set,
    Family.SET: _enum_or_set,
}
"""Families whose types depend on modes and on other properties of the column."""


def tidb_type(column: Column, modes: TicdcModes) -> TidbType:
    """Return the type of a column.

    Args:
        column: The column.
        modes: How values are written.

    Raises:
        SchemaError: TiDB has no such type (spatial ones).
    """
    if not column.mysql_type.tidb_type:
        raise SchemaError(
            f"column {column.name} has type {column.type_name}, which TiCDC's Avro protocol does not know",
            remedy="exclude the column (column.exclude.list), or write Debezium events (value.format=debezium)",
        )
    return _BUILDERS.get(column.family, _plain)(column, modes)


EXTENSION_FIELDS = (("_tidb_op", "string"), ("_tidb_commit_ts", "long"), ("_tidb_commit_physical_time", "long"))
"""Fields after the columns of a value, with their Avro types (AVRO-09 to AVRO-12)."""


def key_schema(table: Table, columns: Sequence[Column], modes: TicdcModes) -> str | None:
    """Return the Avro schema of keys as JSON text, or None for a table without a key.

    Args:
        table: The table.
        columns: Its key columns; the schema has them in the table's order.
        modes: How values are written.

    Raises:
        SchemaError: A type is not known, or two columns would have the same name.
    """
    ordered = sorted(columns, key=lambda column: column.position)
    return dumps(_record(table, ordered, modes)) if columns else None


def value_schema(table: Table, columns: Sequence[Column], modes: TicdcModes) -> str:
    """Return the Avro schema of values as JSON text.

    Args:
        table: The table.
        columns: The columns of values, in the table's order.
        modes: How values are written.

    Raises:
        SchemaError: As for ``key_schema``.
    """
    record = _record(table, columns, modes)
    if modes.extension:
        record["fields"] += [{"name": name, "type": kind} for name, kind in EXTENSION_FIELDS]
    return dumps(record)


def column_field(column: Column, modes: TicdcModes) -> dict[str, Any]:
    """Return the field of a column (EX-27 to EX-31).

    Args:
        column: The column.
        modes: How values are written.
    """
    kind = tidb_type(column, modes)
    avro_type = {
        "connect.parameters": {"tidb_type": kind.name, **kind.parameters},
        **kind.members,
        "type": kind.avro_type,
    }
    name = avro_name(column.name)
    if column.nullable:
        return {"default": None, "name": name, "type": ["null", avro_type]}
    return {"name": name, "type": avro_type}


def avro_name(name: str) -> str:
    """Return a table's, database's or column's name as Avro allows it: an underscore for what is not allowed."""
    # Debezium's rule keeps any leading digit after an underscore; Avro and TiCDC know those of ASCII only.
    return field_name(name, "avro") if name[:1].isascii() else "_" + field_name("_" + name[1:], "avro")[1:]


def _record(table: Table, columns: Sequence[Column], modes: TicdcModes) -> dict[str, Any]:
    _require_unique_names(table, columns, modes)
    database = avro_name(table.id.db)
    return {
        "name": avro_name(table.id.table),
        "namespace": f"{avro_name(modes.namespace)}.{database}" if modes.namespace else database,
        "type": "record",
        "fields": [_located_field(table, column, modes) for column in columns],
    }


def _located_field(table: Table, column: Column, modes: TicdcModes) -> dict[str, Any]:
    try:
        return column_field(column, modes)
    except SchemaError as error:
        raise SchemaError(error.what, where=f"table {table.id}", remedy=error.remedy) from None


def _require_unique_names(table: Table, columns: Sequence[Column], modes: TicdcModes) -> None:
    owner_by_field: dict[str, str] = {name: "the extension" for name, _ in EXTENSION_FIELDS} if modes.extension else {}
    for column in columns:
        name = avro_name(column.name)
        if name in owner_by_field:
            raise SchemaError(
                f"columns {owner_by_field[name]} and {column.name} would have the same field name {name}",
                where=f"table {table.id}",
                why="Avro names have letters, digits and underscores only; other characters become underscores",
                remedy="leave one of them out (column.exclude.list) and run the task again; renaming one helps a "
                "snapshot, but not a stream that has rows with both names",
            )
        owner_by_field[name] = column.name
