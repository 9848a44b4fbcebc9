"""JSON text of an outbox's payload as a Connect struct, its schema found from the text.

Source: ``JsonSchemaData`` and ``EventRouterDelegate`` of Debezium 3.6.1. What stops Debezium stops here too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc.model import avro_names
from airflow_provider_mysql_cdc.cdc.transforms.record_schema import (
    OPTIONAL_BOOLEAN,
    OPTIONAL_BYTES,
    OPTIONAL_DOUBLE,
    OPTIONAL_INT32,
    OPTIONAL_INT64,
    OPTIONAL_STRING,
    RecordSchema,
    SchemaField,
)


@dataclass(frozen=True, slots=True)
class JsonExpansion:
    """How JSON becomes a struct.

    Args:
        null_is_bytes: Whether null is a field of optional bytes, rather than no field.
        adjustment: How names of members are adjusted to be names of fields.
    """

    null_is_bytes: bool
    adjustment: str = "none"

    def field(self, name: str) -> str:
        """Return the name of the field for a member."""
        return avro_names.field_name(name, self.adjustment)


class _BigNumber(float):
    """A number that Java holds as ``BigInteger``: no field of the schema that it gets can take it."""

    __slots__ = ()


def expand_json(name: str, text: str, expansion: JsonExpansion) -> tuple[RecordSchema | None, Any]:
    """Return schema and value of a payload.

    Where only the value cannot be made, it stays text although the schema says otherwise: the converter stops at it, as
    Debezium's does. An empty array has no schema.

    Args:
        name: The payload's column, from which the names of schemas are made.
        text: The text.
        expansion: How it becomes a struct.

    Raises:
        ValueError: It is no JSON object or array, or an array mixes types; then it stays text.
    """
    if not text.startswith(("{", "[")):
        raise ValueError(f"Unable to parse payload starting with '{text[:1]}'")
    document = _parse(text)
    schema = _schema(name, document, expansion)
    if schema is None or schema.type != "struct":
        return schema, text
    try:
        return schema, _value(document, schema, expansion)
    except ValueError:
        return schema, text


def _parse(text: str) -> Any:
    try:
        return json.JSONDecoder(parse_int=_integer, parse_constant=_constant).raw_decode(text)[0]
    except (ValueError, RecursionError) as error:
        raise ValueError(str(error)) from None


def _integer(text: str) -> int | _BigNumber:
    number = int(text)
    return number if -(2**63) <= number < 2**63 else _BigNumber(number)


def _constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _schema(name: str | None, node: Any, expansion: JsonExpansion) -> RecordSchema | None:
    if isinstance(node, str):
        return OPTIONAL_STRING
    if isinstance(node, bool):
        return OPTIONAL_BOOLEAN
    if isinstance(node, int):
        return OPTIONAL_INT32 if -(2**31) <= node < 2**31 else OPTIONAL_INT64
    if isinstance(node, float):
        return OPTIONAL_DOUBLE
    if node is None:
        return OPTIONAL_BYTES if expansion.null_is_bytes else None
    if isinstance(node, list):
        return RecordSchema("array", True, items=_item_schema(name, node, expansion)) if node else None
    fields: dict[str, SchemaField] = {}
    for key, member in node.items():
        field = expansion.field(key)
        schema = _schema(f"{name}.{field}" if name and name.strip() else field, member, expansion)
        if schema is not None and not field:
            raise ValueError("a member without a name can be no field")
        if schema is not None and field not in fields:
            fields[field] = SchemaField(field, schema)
    return RecordSchema("struct", True, name=name, fields=tuple(fields.values()))


def _item_schema(name: str | None, items: list[Any], expansion: JsonExpansion) -> RecordSchema:
    known = [item for item in items if item is not None]
    sample = known[0] if known else None
    kinds = {_kind(item) for item in known}
    if len(kinds) > 1:
        raise ValueError("Field is not a homogenous array")
    if isinstance(sample, dict):
        return _merged([s for item in known if (s := _schema(name, item, expansion)) is not None])
    if "number" in kinds and len({_schema(None, item, expansion) for item in known}) > 1:
        raise ValueError("Field is not a homogenous array, different number types")
    schema = _schema(None, sample, expansion)
    if schema is None:
        raise ValueError("Array has unrecognized member schema.")
    return schema


def _kind(node: Any) -> str:
    if isinstance(node, (int, float)) and not isinstance(node, bool):
        return "number"
    return type(node).__name__


def _merged(schemas: list[RecordSchema]) -> RecordSchema:
    """Return a struct with the fields of all; of two with one name the first, unless that is the bytes of a null."""
    fields: dict[str, SchemaField] = {}
    different = {schema.identity(): schema for schema in schemas}
    if len(different) == 1:
        return schemas[0]
    for schema in different.values():
        for member in schema.fields:
            old = fields.get(member.name)
            if old is None or (old.schema.type == "bytes" and member.schema.type != "bytes"):
                fields[member.name] = member
    return schemas[0].basics(fields.values())


def _value(node: Any, schema: RecordSchema, expansion: JsonExpansion) -> Any:
    if node is None:
        if not schema.optional:
            raise ValueError("Invalid value: null used for required field")
        return None
    kind = _type(node)
    if schema.type != kind:
        raise ValueError(f"Invalid Java object for schema with type {schema.type}: {kind}")
    if kind == "struct":
        # Debezium looks a field up by its adjusted name, and finds no member that is called otherwise.
        return {m.name: _value(node[m.name], m.schema, expansion) for m in schema.fields if m.name in node}
    if kind == "array" and schema.items is not None:
        return [_value(item, schema.items, expansion) for item in node]
    return node


def _type(node: Any) -> str:
    """Return the type that a field must have to take a node."""
    if isinstance(node, int) and not isinstance(node, bool):
        return "int32" if -(2**31) <= node < 2**31 else "int64"
    return _TYPES[type(node)]


_TYPES = {str: "string", bool: "boolean", float: "double", list: "array", dict: "struct", _BigNumber: "BigInteger"}
