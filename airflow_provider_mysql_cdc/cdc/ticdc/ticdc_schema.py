"""Avro schemas of keys and values (AVRO-05 to AVRO-19, EX-24 to EX-31)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_provider_mysql_cdc.cdc.convert.json_text import dumps
from airflow_provider_mysql_cdc.cdc.errors import SchemaError
from airflow_provider_mysql_cdc.cdc.model.avro_names import field_name
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table
from airflow_provider_mysql_cdc.cdc.ticdc.tidb_types import TicdcModes, tidb_type

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
