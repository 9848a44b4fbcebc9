"""``ExtractSchemaToNewRecord`` of Debezium 3.6.1: the source columns' types as a member of the event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from airflow_provider_mysql_cdc.cdc.transforms.chain_record import ChainRecord
from airflow_provider_mysql_cdc.cdc.transforms.record_schema import (
    OPTIONAL_INT32,
    OPTIONAL_STRING,
    STRING,
    RecordSchema,
    SchemaField,
    TransformFault,
    is_envelope,
    struct_of,
)
from airflow_provider_mysql_cdc.cdc.transforms.transform import SchemaCache, Transform

_FIELD = "sourceSchema"
_PARAMETER = "__debezium.source.column."
_COLUMN = struct_of(
    ("name", STRING),
    ("typeName", STRING),
    ("length", OPTIONAL_INT32),
    ("scale", OPTIONAL_INT32),
    ("comment", OPTIONAL_STRING),
).renamed("io.debezium.connector.source.schema.Column", 1)
_TABLE = struct_of(("columns", RecordSchema("array", items=_COLUMN))).renamed(
    "io.debezium.connector.source.schema.Table", 1
)
_SOURCE_SCHEMA = struct_of(("id", STRING), ("table", _TABLE)).renamed("io.debezium.connector.source.Schema", 1)


class ExtractSchemaToNewRecord(Transform):
    """Add the types of the source's columns, which ``column.propagate.source.type`` puts into the schema."""

    DOC = "adds the member `sourceSchema` with the columns' types; needs `column.propagate.source.type=.*`"
    NO_EFFECT: ClassVar[Mapping[str, str]] = {
        "schema.name.adjustment.mode": "the names of the schemas that are added suit every mode"
    }

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._extended = SchemaCache(_with_source_schema)

    def apply(self, record: ChainRecord) -> ChainRecord:
        """Apply the transform; see ``Transform``."""
        schema, event = record.value_schema, record.value
        if event is None or schema is None or not is_envelope(schema):
            return record
        if event.get("before") is None and event.get("after") is None:
            return record
        columns = [_column(member) for member in schema.by_name["after"].schema.fields]
        read = {member.name: member.read(event) for member in schema.fields}
        source = {"id": event["source"].get("table"), "table": {"columns": columns}}
        return record.set_value(self._extended(schema), {**read, _FIELD: source})


def _with_source_schema(schema: RecordSchema) -> RecordSchema:
    return schema.basics([*schema.fields, SchemaField(_FIELD, _SOURCE_SCHEMA)], optional=schema.optional)


def _column(member: SchemaField) -> dict[str, Any]:
    parameters = member.schema.parameters or {}
    name, type_name = (parameters.get(_PARAMETER + what) for what in ("name", "type"))
    if name is None or type_name is None:
        raise TransformFault('set "column.propagate.source.type" or "datatype.propagate.source.type" to ".*"')
    length, scale = (parameters.get(_PARAMETER + what) for what in ("length", "scale"))
    return {
        "name": name,
        "typeName": type_name,
        "length": None if length is None else int(length),
        "scale": None if scale is None else int(scale),
        "comment": parameters.get(_PARAMETER + "comment"),
    }
