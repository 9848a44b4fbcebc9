"""Kafka Connect schemas of columns as JsonConverter writes them."""

from __future__ import annotations

from typing import Any

from airflow_provider_mysql_cdc.cdc.convert.connect_types import TypeModes, connect_type
from airflow_provider_mysql_cdc.cdc.convert.defaults import default_value
from airflow_provider_mysql_cdc.cdc.convert.type_names import declared_length, declared_scale, type_expression
from airflow_provider_mysql_cdc.cdc.model.table import Column

Schema = dict[str, Any]


def field_schema(column: Column, modes: TypeModes, *, comments: bool = False, source_type: bool = False) -> Schema:
    """Return the schema of a column as a field of the row or key struct, in JsonConverter's member order.

    Args:
        column: The column.
        modes: The type settings.
        comments: Whether the column's comment becomes ``doc`` (``include.schema.comments``).
        source_type: Whether type, length, scale and name of the column become parameters (COL-11, COL-12).
    """
    kind = connect_type(column, modes)
    parameters = dict(kind.parameters)
    if source_type:
        parameters |= _source_parameters(column)
    default = default_value(column, modes)
    doc = column.comment if comments and column.comment else kind.doc
    schema: Schema = {"type": kind.type}
    if kind.fields:
        schema["fields"] = [dict(f) for f in kind.fields]
    if kind.items is not None:
        schema["items"] = dict(kind.items)
    schema["optional"] = column.nullable
    optional_members = (
        ("name", kind.name),
        ("version", kind.version),
        ("doc", doc),
        ("parameters", parameters or None),
        ("default", default),
    )
    schema |= {name: value for name, value in optional_members if value is not None}
    schema["field"] = column.name
    return schema


def _source_parameters(column: Column) -> dict[str, str]:
    described = (
        ("type", type_expression(column)),
        ("length", declared_length(column)),
        ("scale", declared_scale(column)),
        ("name", column.name),
    )
    return {f"__debezium.source.column.{name}": str(value) for name, value in described if value is not None}
