"""Records in Confluent's wire format, read with fastavro and the registry's API."""

from __future__ import annotations

import io
import json
import math
import struct
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import fastavro

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
    """Return the Connect schema of an Avro schema."""
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


_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_TIMEOUT_S = 30.0
Converter = Callable[[Any], Any]
SchemaT = TypeVar("SchemaT")


class RecordError(Exception):
    """Say that a record cannot be read as a change event."""


class AvroWire(Generic[SchemaT]):
    """Read keys and values in Confluent's wire format; each schema is requested once.

    Args:
        texts: The text of a schema by its id: ``from_registry``, or a recorded mapping's ``__getitem__``.
    """

    def __init__(self, texts: Callable[[int], str]) -> None:
        self._texts = texts
        self._known: dict[bytes, tuple[Any, SchemaT]] = {}
        self.seen: list[str] = []
        """Texts of the schemas that records have named."""

    def _prepare(self, avro: Any) -> tuple[Any, SchemaT]:
        """Return the schema that fastavro reads by, and what the reader keeps of it."""
        raise NotImplementedError

    def _decode(self, data: bytes) -> tuple[SchemaT, Any]:
        head = data[:5]
        if head not in self._known:
            if len(head) < 5 or head[0]:
                raise RecordError(f"it begins with {head!r}, and not with a zero byte and the id of a schema")
            text = self._texts(struct.unpack(">I", head[1:])[0])
            self._known[head] = self._prepare(json.loads(text))
            self.seen.append(text)
        parsed, schema = self._known[head]
        stream = io.BytesIO(data)
        stream.seek(5)
        value: Any = fastavro.schemaless_reader(stream, parsed, None)
        if stream.tell() != len(data):
            raise RecordError(f"there are {len(data) - stream.tell()} bytes after the last field")
        return schema, value


class WireReader(AvroWire[tuple[dict[str, Any], Converter | None]]):
    """Read keys and values as JsonConverter would have written them."""

    def split(self, data: bytes) -> tuple[dict[str, Any], Any]:
        """Return a record's Connect schema, the same object for the same id, and its payload.

        Raises:
            RecordError: It has another format, or more bytes after its value.
        """
        (schema, plain), value = self._decode(data)
        return schema, value if plain is None or value is None else plain(value)

    def as_json(self, data: bytes | None) -> bytes | None:
        """Return a key or value as JsonConverter with schemas would have written it; None stays None.

        Raises:
            RecordError: It has another form.
        """
        if data is None:
            return None
        schema, payload = self.split(data)
        text = json.dumps({"schema": schema, "payload": payload}, ensure_ascii=False, separators=(",", ":"))
        return text.encode()

    def _prepare(self, avro: Any) -> tuple[Any, tuple[dict[str, Any], Converter | None]]:
        # Without logical types: values come as they lie in the bytes.
        schema = connect_schema(avro)
        return fastavro.parse_schema(_without_connect(avro)), (schema, _converter_of(schema))


def from_registry(url: str) -> Callable[[int], str]:
    """Return what asks a registry for the text of a schema."""
    return lambda schema_id: str(_get_json(f"{url}/schemas/ids/{schema_id}")["schema"])


def _get_json(address: str) -> Any:
    with _OPENER.open(address, timeout=_TIMEOUT_S) as answer:
        return json.load(answer)


def _without_connect(avro: Any) -> Any:
    if isinstance(avro, list):
        return [_without_connect(branch) for branch in avro]
    if not isinstance(avro, dict):
        return avro
    inner = ("type", "items", "values", "fields")
    return {k: _without_connect(v) if k in inner else v for k, v in avro.items() if k != "logicalType"}


def _converter_of(schema: Mapping[str, Any]) -> Converter | None:
    build = _PLAIN.get(schema["type"])
    return None if build is None else build(schema)


def _struct_converter(schema: Mapping[str, Any]) -> Converter | None:
    inner = [(f["field"], plain) for f in schema["fields"] if (plain := _converter_of(f)) is not None]
    if not inner:
        return None

    def convert(value: dict[str, Any]) -> dict[str, Any]:
        for name, of_member in inner:
            if value[name] is not None:
                value[name] = of_member(value[name])
        return value

    return convert


def _array_converter(schema: Mapping[str, Any]) -> Converter | None:
    item = _converter_of(schema["items"])
    return None if item is None else lambda value: [None if v is None else item(v) for v in value]


def _number(value: float) -> float | str:
    """Return a number; JsonConverter writes those that JSON has no number for as text."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


_PLAIN: dict[str, Callable[[Mapping[str, Any]], Converter | None]] = {
    "struct": _struct_converter,
    "array": _array_converter,
    "bytes": lambda schema: lambda value: b64encode(value).decode(),
    "float": lambda schema: _number,
    "double": lambda schema: _number,
}
