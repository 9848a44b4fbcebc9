"""Prepare the Avro schemas of records for reading: what fastavro needs, forms of values, and Base64 for bytes."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc.verify.value_form import DECIMAL, TIDB, Forms, ValueForm

Convert = Callable[[Any], Any]
_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_CONNECT_TYPES = {"int": "int32", "long": "int64", "record": "struct", "enum": "string", "fixed": "bytes"}
# Semantic types of Connect by Avro's logical types, for schemas without connect.name (connect.meta.data=false).
_LOGICAL_NAMES = {
    "decimal": DECIMAL,
    "date": "org.apache.kafka.connect.data.Date",
    "time-millis": "org.apache.kafka.connect.data.Time",
    "timestamp-millis": "org.apache.kafka.connect.data.Timestamp",
}
_UNION = "union"
_AFTER = "after"


@dataclass(frozen=True, slots=True)
class ReadableSchema:
    """Hold a schema that is ready for reading.

    Args:
        parsed: The schema for fastavro, without logical types: values come as they are in the bytes.
        convert: Turns what fastavro read into what JsonConverter writes; None where it is the same.
        forms: Forms of the fields of the record.
        row_forms: Forms of the columns in ``after``; empty for a schema that is no envelope.
    """

    parsed: Any
    convert: Convert | None
    forms: Forms
    row_forms: Forms


def readable_schema(text: str) -> ReadableSchema:
    """Return a schema that is ready for reading.

    Args:
        text: Its text.

    Raises:
        ValueError: It is no record in Avro, or one that no encoder of events writes.
    """
    import fastavro

    try:
        schema = json.loads(text)
        record = _Resolver().resolve(schema, "")
        if record["type"] != "record":
            raise ValueError(f"it is of type {record['type']}")
        after = next((_value_type(field["type"]) for field in record["fields"] if field["name"] == _AFTER), None)
        return ReadableSchema(
            fastavro.parse_schema(without_logical_types(schema)),
            _converter(record),
            _field_forms(record),
            {} if after is None or after["type"] != "record" else _field_forms(after),
        )
    except Exception as error:  # fastavro has many for what is no schema
        raise ValueError(f"{type(error).__name__}: {error}") from error


class _Resolver:
    """Replace the names of records in a schema by the records.

    A record that contains itself is refused, and so is an array whose items take no bytes: reading damaged bytes
    with one would not end.
    """

    def __init__(self) -> None:
        self._named: dict[str, Mapping[str, Any]] = {}

    def resolve(self, schema: Any, namespace: str) -> Mapping[str, Any]:
        if isinstance(schema, list):
            return {"type": _UNION, "branches": [self.resolve(branch, namespace) for branch in schema]}
        if isinstance(schema, str):
            return {"type": schema} if schema in _PRIMITIVES else self._named[_full_name(schema, namespace)]
        kind = schema["type"]
        if kind in ("record", "enum", "fixed"):
            name = _full_name(schema["name"], schema.get("namespace", namespace))
            resolved = self._record(schema, name.rpartition(".")[0]) if kind == "record" else schema
            self._named[name] = resolved
            return resolved
        if kind in ("array", "map"):
            items = self.resolve(schema["items" if kind == "array" else "values"], namespace)
            if _may_be_empty(items):
                raise ValueError(f"it has an {kind} of items without bytes")
            return {**schema, "items": items}
        return schema if kind in _PRIMITIVES else self.resolve(kind, namespace)

    def _record(self, schema: Mapping[str, Any], namespace: str) -> Mapping[str, Any]:
        fields = [{**field, "type": self.resolve(field["type"], namespace)} for field in schema["fields"]]
        return {**schema, "fields": fields}


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _may_be_empty(resolved: Mapping[str, Any]) -> bool:
    kind = resolved["type"]
    if kind == "record":
        return all(_may_be_empty(field["type"]) for field in resolved["fields"])
    return kind == "null" or (kind == "fixed" and not resolved["size"])


def without_logical_types(schema: Any) -> Any:
    """Return a schema whose values are read as they are in the bytes.

    Args:
        schema: The schema, as JSON.
    """
    if isinstance(schema, list):
        return [without_logical_types(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    inner = ("type", "items", "values", "fields")
    return {k: without_logical_types(v) if k in inner else v for k, v in schema.items() if k != "logicalType"}


def _value_type(resolved: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the type of the values of an optional field."""
    if resolved["type"] != _UNION:
        return resolved
    return next((branch for branch in resolved["branches"] if branch["type"] != "null"), resolved)


def _field_forms(record: Mapping[str, Any]) -> Forms:
    return {field["name"]: _form(_value_type(field["type"])) for field in record["fields"]}


def _form(kind: Mapping[str, Any]) -> ValueForm:
    parameters = kind.get("connect.parameters", {})
    logical = kind.get("logicalType")
    if "tidb_type" in parameters:
        return ValueForm(TIDB, parameters["tidb_type"], int(kind["scale"]) if logical == "decimal" else -1)
    name = str(kind.get("connect.name") or _LOGICAL_NAMES.get(str(logical), ""))
    connect_type = kind.get("connect.type") or _CONNECT_TYPES.get(kind["type"], kind["type"])
    scale = int(kind["scale"] if "scale" in kind else parameters["scale"]) if name == DECIMAL else -1
    return ValueForm(str(connect_type), name, scale)


def _converter(resolved: Mapping[str, Any]) -> Convert | None:
    """Return what turns values into those that JsonConverter writes; None where they are the same."""
    build = _CONVERTERS.get(resolved["type"])
    return None if build is None else build(resolved)


def _base64(value: bytes) -> str:
    return b64encode(value).decode()


def _record_converter(resolved: Mapping[str, Any]) -> Convert | None:
    converters = [(f["name"], convert) for f in resolved["fields"] if (convert := _converter(f["type"])) is not None]
    if not converters:
        return None

    def convert_record(value: Any) -> Any:
        for name, convert in converters:
            member = value[name]
            if member is not None:
                value[name] = convert(member)
        return value

    return convert_record


def _union_converter(resolved: Mapping[str, Any]) -> Convert | None:
    others = [branch for branch in resolved["branches"] if branch["type"] != "null"]
    converters = [convert for branch in others if (convert := _converter(branch)) is not None]
    if converters and len(others) > 1:
        raise ValueError("it has a union of several types with bytes in it")
    return converters[0] if converters else None


def _items_converter(resolved: Mapping[str, Any]) -> Convert | None:
    convert = _converter(resolved["items"])
    if convert is None:
        return None
    if resolved["type"] == "map":
        return lambda value: {name: None if item is None else convert(item) for name, item in value.items()}
    return lambda value: [None if item is None else convert(item) for item in value]


_CONVERTERS: Mapping[str, Callable[[Mapping[str, Any]], Convert | None]] = {
    "bytes": lambda resolved: _base64,
    "fixed": lambda resolved: _base64,
    "record": _record_converter,
    _UNION: _union_converter,
    "array": _items_converter,
    "map": _items_converter,
}
