"""Connect schemas, as JsonConverter writes them, of Avro schemas that carry ``connect.*`` properties.

Source: ``toConnectSchema`` of Confluent's ``AvroData``, and ``asJsonSchema`` of Kafka Connect's ``JsonConverter``,
whose order of members this keeps.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from typing import Any

_TYPES = {
    "int": "int32",
    "long": "int64",
    "float": "float",
    "double": "double",
    "boolean": "boolean",
    "string": "string",
    "bytes": "bytes",
}
_MEMBERS = ("name", "version", "doc", "parameters")


def connect_schema(avro: Any) -> dict[str, Any]:
    """Return the Connect schema of an Avro schema.

    Args:
        avro: The parsed Avro schema.
    """
    return _SchemaConverter().convert(avro, "")


class _SchemaConverter:
    """Convert one schema; a record that is named again is the one that was printed."""

    def __init__(self) -> None:
        self._named: dict[str, dict[str, Any]] = {}
        self._builders: dict[str, Callable[[dict[str, Any], str], dict[str, Any]]] = {
            "record": self._record,
            "array": lambda avro, space: {"type": "array", "items": self.convert(avro["items"], space)},
            "map": lambda avro, space: {"type": "map", "values": self.convert(avro["values"], space)},
        }

    def convert(self, avro: Any, space: str) -> dict[str, Any]:
        optional = isinstance(avro, list)
        if optional:
            (avro,) = (branch for branch in avro if branch != "null")
        if isinstance(avro, str):
            if avro not in _TYPES:
                return {**self._named[avro if "." in avro else f"{space}.{avro}"], "optional": optional}
            avro = {"type": avro}
        build = self._builders.get(avro["type"])
        header = build(avro, space) if build else {"type": avro.get("connect.type") or _TYPES[avro["type"]]}
        schema = {**header, "optional": optional} | {
            m: v for m in _MEMBERS if (v := avro.get(f"connect.{m}")) is not None
        }
        if avro.get("connect.default") is not None:
            schema["default"] = _default(avro["connect.default"], schema)
        if avro["type"] == "record":
            self._named[_full_name(avro, space)] = schema
        return schema

    def _record(self, avro: dict[str, Any], space: str) -> dict[str, Any]:
        inner = _full_name(avro, space).rpartition(".")[0]
        return {"type": "struct", "fields": [self._field(field, inner) for field in avro["fields"]]}

    def _field(self, field: dict[str, Any], space: str) -> dict[str, Any]:
        found = dict(self.convert(field["type"], space))
        if field.get("default") is not None:
            found["default"] = _default(field["default"], found)
        return {**found, "field": field["name"]}


def _full_name(avro: dict[str, Any], space: str) -> str:
    if "." in avro["name"]:
        return str(avro["name"])
    inner = avro.get("namespace", space)
    return f"{inner}.{avro['name']}" if inner else str(avro["name"])


def _default(value: Any, schema: dict[str, Any]) -> Any:
    """Return a default as JsonConverter writes it: Avro has bytes as text of one character a byte."""
    return b64encode(value.encode("latin-1")).decode() if schema["type"] == "bytes" else value
