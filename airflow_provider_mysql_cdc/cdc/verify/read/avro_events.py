"""Read keys or values in Confluent's Avro, whose schema ids are before the bytes or, as GUIDs, in headers.

Schemas are requested by id, once each, and prepared for reading: what fastavro needs, forms of values, and Base64 for
bytes. Source of the wire formats: ``io.confluent.kafka.serializers.schema.id`` (release 8).
"""

from __future__ import annotations

import io
import json
import math
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.model.records import Headers
from airflow_provider_mysql_cdc.cdc.verify.read.event_record import (
    DECIMAL,
    TIDB,
    Forms,
    NamedForms,
    Row,
    UnreadableRecord,
    ValueForm,
)

_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_CONNECT_TYPES = {"int": "int32", "long": "int64", "record": "struct", "enum": "string", "fixed": "bytes"}
# Semantic types of Connect by Avro's logical types, for schemas without connect.name (connect.meta.data=false).
_LOGICAL_NAMES = {
    "decimal": DECIMAL,
    "date": "org.apache.kafka.connect.data.Date",
    "time-millis": "org.apache.kafka.connect.data.Time",
    "timestamp-millis": "org.apache.kafka.connect.data.Timestamp",
}
_CONVERTED = frozenset({"bytes", "fixed", "float", "double"})
_UNION = "union"
_AFTER = "after"


@dataclass(frozen=True, slots=True)
class ReadableSchema:
    """Hold a schema that is ready for reading.

    Args:
        parsed: The schema for fastavro, without logical types: values come as they are in the bytes.
        converted: Whether JsonConverter writes other values than fastavro reads (``as_json``).
        forms: Forms of the columns in ``after`` of an envelope; of another record, those of its fields.
    """

    parsed: Any
    converted: bool
    forms: Forms


def readable_schema(text: str) -> ReadableSchema:
    """Return a schema that is ready for reading.

    Raises:
        ValueError: It is no record in Avro, or one that no encoder of events writes.
    """
    import fastavro

    try:
        schema = json.loads(text)
        record = _Resolver().resolve(schema, "")
        if record["type"] != "record":
            raise ValueError(f"it is of type {record['type']}")
        name = str(schema.get("connect.name") or _full_name(schema["name"], schema.get("namespace", "")))
        after = next((_value_type(field["type"]) for field in record["fields"] if field["name"] == _AFTER), None)
        return ReadableSchema(
            fastavro.parse_schema(without_logical_types(schema)),
            _is_converted(record),
            NamedForms(_field_forms(record if after is None or after["type"] != "record" else after), name),
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
    """Return a schema whose values are read as they are in the bytes."""
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


def _is_converted(resolved: Mapping[str, Any]) -> bool:
    """Return whether values of a type are written otherwise by JsonConverter, or perhaps not at all."""
    kind = resolved["type"]
    if kind == "record":
        return any(_is_converted(field["type"]) for field in resolved["fields"])
    if kind in ("array", "map"):
        return _is_converted(resolved["items"])
    return any(map(_is_converted, resolved["branches"])) if kind == _UNION else kind in _CONVERTED


def as_json(value: Any) -> Any:
    """Return what JsonConverter writes of a value that fastavro read.

    Raises:
        ValueError: It is a number that the server does not have.
    """
    if isinstance(value, dict):
        return {name: as_json(member) for name, member in value.items()}
    if isinstance(value, list):
        return [*map(as_json, value)]
    if isinstance(value, float) and not math.isfinite(value):  # in JSON it would be null
        raise ValueError(f"{value} is no number of the server")
    return b64encode(value).decode() if isinstance(value, bytes) else value


LookupSchema = Callable[[F.ConverterPart, str], str | None]
"""Returns the text of a schema, given key or value and its id, a number or a GUID; None if the registry has none."""
_PREFIX_BYTES = 5
_GUID_VERSION, _GUID_BYTES = b"\x01", 17
# Records of one topic name few schemas; damaged ones may name any.
_MAX_SCHEMAS = 1024


class AvroPart:
    """Read the keys or the values of change events.

    Args:
        part: Whether they are keys or values.
        lookup_schema: Returns the text of a schema.
        guids: Whether headers contain GUIDs of schemas, in place of ids before the bytes.

    Raises:
        ConfigError: fastavro is not installed.
    """

    def __init__(self, part: F.ConverterPart, lookup_schema: LookupSchema, *, guids: bool = False) -> None:
        try:
            import fastavro
        except ImportError as error:
            raise ConfigError(
                "fastavro, which reads Avro records, is not installed",
                why=str(error),
                remedy="install airflow-provider-mysql-cdc[avro] where Spark's executors run (docs/avro.md)",
            ) from error
        self._decode: Callable[[io.BytesIO, Any, None], Any] = fastavro.schemaless_reader
        self._encode: Callable[[io.BytesIO, Any, Any], None] = fastavro.schemaless_writer
        self._part, self._lookup, self._guids = part, lookup_schema, guids
        self._header = f"__{part}_schema_id"
        self._schemas: dict[bytes, ReadableSchema | str] = {}

    def read(self, data: bytes, headers: Headers = ()) -> tuple[Any, Forms]:
        """Return what a key or value holds, and the forms of its values.

        Raises:
            UnreadableRecord: It is not Avro in this wire format, or its schema is unknown.
        """
        mark, start, schema = self._schema_of(data, headers)
        stream = io.BytesIO(data)
        stream.seek(start)
        try:
            value = self._decode(stream, schema.parsed, None)
            if schema.converted:
                value = as_json(value)
        except Exception as error:  # fastavro has many for damaged bytes
            raise UnreadableRecord(
                f"the {self._part} is not Avro of its schema {self._id(mark)}: {type(error).__name__}: {error}"
            ) from error
        if stream.tell() != len(data):
            raise UnreadableRecord(f"the {self._part} has bytes after its value of schema {self._id(mark)}")
        return value, schema.forms

    def is_exact(self, data: bytes, fields: Row, headers: Headers = ()) -> bool:
        """Return whether no other bytes of its schema hold the same; errors as for ``read``."""
        _, start, schema = self._schema_of(data, headers)
        stream, written = io.BytesIO(data), io.BytesIO()
        stream.seek(start)
        try:
            self._encode(written, schema.parsed, self._decode(stream, schema.parsed, None))
        except Exception:  # fastavro has many for values that a schema does not allow
            return False
        return written.getvalue() == data[start:]

    def edited(self, data: bytes, headers: Headers, edit: Callable[[Any], None]) -> bytes:
        """Return a key or value of the same schema after an edit of what it holds.

        Raises:
            UnreadableRecord: As for ``read``, or its schema does not allow what it holds then.
        """
        mark, start, schema = self._schema_of(data, headers)
        stream, written = io.BytesIO(data), io.BytesIO()
        stream.seek(start)
        try:
            held = self._decode(stream, schema.parsed, None)
            edit(held)
            self._encode(written, schema.parsed, held)
        except UnreadableRecord:
            raise
        except Exception as error:  # fastavro has many
            why = f"{type(error).__name__}: {error}"
            raise UnreadableRecord(
                f"the {self._part} cannot be written by its schema {self._id(mark)}: {why}"
            ) from error
        return data[:start] + written.getvalue()

    def _schema_of(self, data: bytes, headers: Headers) -> tuple[bytes, int, ReadableSchema]:
        mark, start = (self._header_mark(headers), 0) if self._guids else (data[:_PREFIX_BYTES], _PREFIX_BYTES)
        schema = self._schemas.get(mark)
        return mark, start, schema if isinstance(schema, ReadableSchema) else self._load(mark, schema)

    def _header_mark(self, headers: Headers) -> bytes:
        marks = [content for name, content in headers if name == self._header]
        if len(marks) != 1 or marks[0] is None:  # of several, one consumer takes the first, and another the last
            found = "several headers" if len(marks) > 1 else "no header"
            raise UnreadableRecord(f"the record has {found} {self._header} with the GUID of its schema")
        return marks[0]

    def _load(self, mark: bytes, reason: str | None) -> ReadableSchema:
        """Return the schema that a record names.

        Raises:
            UnreadableRecord: It names none, or one that is not known.
        """
        valid = (_GUID_VERSION, _GUID_BYTES) if self._guids else (b"\0", _PREFIX_BYTES)
        if (mark[:1], len(mark)) != valid:
            place = f"header {self._header}" if self._guids else self._part
            start = mark[:_PREFIX_BYTES].hex() or "nothing"
            raise UnreadableRecord(f"the {place} begins with {start}, and not with a schema id")
        if reason is None:
            known = self._request(self._id(mark))
            if len(self._schemas) >= _MAX_SCHEMAS:
                self._schemas.clear()
            self._schemas[mark] = known
            if isinstance(known, ReadableSchema):
                return known
            reason = known
        raise UnreadableRecord(reason)

    def _request(self, schema_id: str) -> ReadableSchema | str:
        """Return a schema, or the reason why it cannot be had."""
        text = self._lookup(self._part, schema_id)
        if text is None:
            return f"the schema registry does not have schema {schema_id} of the {self._part}"
        try:
            return readable_schema(text)
        except ValueError as error:
            return f"schema {schema_id} of the {self._part} cannot be used: {error}"

    def _id(self, mark: bytes) -> str:
        return str(UUID(bytes=mark[1:])) if len(mark) == _GUID_BYTES else str(int.from_bytes(mark[1:], "big"))
