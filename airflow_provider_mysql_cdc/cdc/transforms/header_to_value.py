"""``HeaderToValue`` of Debezium 3.6.1: headers as fields of the value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from airflow_provider_mysql_cdc.cdc.transforms.chain_record import ChainRecord
from airflow_provider_mysql_cdc.cdc.transforms.option_values import one_of, required_names
from airflow_provider_mysql_cdc.cdc.transforms.record_schema import (
    OPTIONAL_STRING,
    RecordSchema,
    SchemaField,
    TransformFault,
    require_struct,
    struct_of,
)
from airflow_provider_mysql_cdc.cdc.transforms.transform import Option, OptionError, Transform

_STRUCT_HEADERS = frozenset({"__debezium.newkey", "__debezium.oldkey"})
NewField = tuple[tuple[str, ...], RecordSchema, Any]
"""Path, schema and value of a field that is added."""


class HeaderToValue(Transform):
    """Copy or move headers to fields of the value, nested ones by their path."""

    DOC = "copies or moves headers to fields of the value"
    OPTIONS: ClassVar[Mapping[str, Option]] = {
        "headers": Option(required_names, "names of the headers", required=True),
        "fields": Option(required_names, "names of the fields, in the same order; dots nest", required=True),
        "operation": Option(one_of("move", "copy", any_case=True), "`move` or `copy`", required=True),
    }

    def __init__(self, options: Mapping[str, Any]) -> None:
        headers, fields = options["headers"], options["fields"]
        if len(headers) != len(fields):
            raise OptionError("fields", "must have as many entries as headers")
        if structs := _STRUCT_HEADERS.intersection(headers):
            what = f"names {', '.join(sorted(structs))}, whose struct is text here"
            raise OptionError("headers", what, "Remove it; the other event of a key change has that key as its key")
        self._fields = dict(zip(reversed(headers), reversed(fields), strict=True))
        self._moves = options["operation"] == "move"

    def apply(self, record: ChainRecord) -> ChainRecord:
        """Apply the transform; see ``Transform``."""
        if record.value is None:
            return record
        schema, value = require_struct(record.value_schema, record.value, "Header field insertion")
        added: list[NewField] = []
        for header in record.headers:
            if (name := self._fields.get(header.name)) is not None:
                added.append((tuple(name.split(".")), header.schema or OPTIONAL_STRING, header.value))
        if added:
            record.set_value(*_extended(schema, value, added))
            if self._moves:
                record.headers = [header for header in record.headers if header.name not in self._fields]
        return record


def _extended(
    schema: RecordSchema, value: Mapping[str, Any], added: list[NewField]
) -> tuple[RecordSchema, dict[str, Any]]:
    """Return schema and value of a struct with further fields; null becomes a field's default on the way."""
    fields = {member.name: member.schema for member in schema.fields}
    values = {member.name: member.read(value) for member in schema.fields}
    nested: dict[str, list[NewField]] = {}
    for path, field_schema, field_value in added:
        if len(path) > 1:
            nested.setdefault(path[0], []).append((path[1:], field_schema, field_value))
        else:
            kept = fields.setdefault(path[0], field_schema)
            if field_value is not None and kept.type != field_schema.type:
                raise TransformFault(f"Invalid Java object for schema with type {kept.type} for field: '{path[0]}'")
            values[path[0]] = field_value
    for name, members in nested.items():
        inner = fields.get(name)
        if inner is None:
            fields[name] = struct_of(*((path[0], field_schema) for path, field_schema, _ in members), optional=True)
            values[name] = {path[0]: field_value for path, _, field_value in members}
        elif inner.type != "struct":
            raise TransformFault(f"Field '{name}' is a primitive type, not a struct. Cannot add nested fields.")
        elif values[name] is None:
            fields[name] = _extended(inner, {}, members)[0]
        else:
            fields[name], values[name] = _extended(inner, values[name], members)
    return schema.basics(SchemaField(name, field_schema) for name, field_schema in fields.items()), values
