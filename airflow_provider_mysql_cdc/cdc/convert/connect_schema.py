"""Kafka Connect schemas of columns as JsonConverter writes them."""

from __future__ import annotations

from typing import Any

from airflow_provider_mysql_cdc.cdc.convert.connect_types import TypeModes, connect_type
from airflow_provider_mysql_cdc.cdc.convert.defaults import default_value
from airflow_provider_mysql_cdc.cdc.model.avro_names import field_name
from airflow_provider_mysql_cdc.cdc.model.table import Column

ConnectSchema = dict[str, Any]


def field_schema(
    column: Column,
    modes: TypeModes,
    *,
    comments: bool = False,
    parameters: tuple[tuple[str, str], ...] = (),
    names: str = "none",
) -> ConnectSchema:
    """Return the schema of a column as a field of the row or key struct, in JsonConverter's member order.

    Args:
        column: The column.
        modes: The type settings.
        comments: Whether the column's comment becomes ``doc`` (``include.schema.comments``).
        parameters: Parameters after those of the type (``ColumnTreatment.parameters``).
        names: ``field.name.adjustment.mode``.
    """
    kind = connect_type(column, modes)
    default = default_value(column, modes)
    doc = column.comment if comments and column.comment else kind.doc
    schema: ConnectSchema = {"type": kind.type}
    if kind.fields:
        schema["fields"] = [dict(f) for f in kind.fields]
    if kind.items is not None:
        schema["items"] = dict(kind.items)
    schema["optional"] = column.nullable or kind.optional
    optional_members = (
        ("name", kind.name),
        ("version", kind.version),
        ("doc", doc),
        ("parameters", dict(kind.parameters + parameters) or None),
        ("default", default),
    )
    schema |= {name: value for name, value in optional_members if value is not None}
    schema["field"] = field_name(column.name, names)
    return schema
