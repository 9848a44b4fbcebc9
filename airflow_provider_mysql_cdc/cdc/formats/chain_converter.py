"""Records of the decoders as Connect records, and Connect records as Kafka Connect's converters write them.

Source: ``JsonConverter``, ``StringConverter``, ``ByteArrayConverter`` and ``SimpleHeaderConverter`` of Kafka 4.3,
``BinaryDataConverter`` of Debezium 3.6.1, and Confluent's ``AvroConverter``.
"""

from __future__ import annotations

import json
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Sequence
from typing import Any, Final

import orjson

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.convert.json_text import dumps, number
from airflow_provider_mysql_cdc.cdc.decode.values.json_bytes import quote
from airflow_provider_mysql_cdc.cdc.formats.record_formats import AvroSerializer, RecordFormats
from airflow_provider_mysql_cdc.cdc.model.java import java_float
from airflow_provider_mysql_cdc.cdc.model.records import Headers
from airflow_provider_mysql_cdc.cdc.transforms.record_schema import (
    DECIMAL,
    INTEGER_BITS,
    STRING,
    RecordSchema,
    SchemaField,
    TransformFault,
    java_class,
    parse_schema,
)
from airflow_provider_mysql_cdc.cdc.transforms.transform import ChainHeader, SchemaCache
from airflow_provider_mysql_cdc.cdc.transforms.value_text import JavaDateFormat, milliseconds_of, value_text

SOURCE_STRUCT = "io.debezium.connector.mysql.Source"
_MAX_SCHEMAS = 1024
_PAYLOAD = b',"payload":'
_PREFIX = b'{"schema":'
_JAVA_DATE = JavaDateFormat("EEE MMM dd HH:mm:ss 'UTC' yyyy")
RecordHeaders = list[tuple[str, bytes | None]]
ReadPart = Callable[[Any], Any]
WritePart = Callable[[Any], str]


class ConnectReader:
    """Read keys and values that the decoders wrote as JSON with their schemas."""

    def __init__(self) -> None:
        self._known: dict[str, list[tuple[bytes, RecordSchema, ReadPart | None]]] = {}

    def read(self, topic: str, data: bytes | None) -> tuple[RecordSchema | None, Any]:
        """Return schema and value of a key or value.

        Args:
            topic: The topic before the transforms; its records have few schemas.
            data: The bytes; None for null.
        """
        if data is None:
            return None, None
        for prefix, schema, reader in self._known.get(topic, ()):
            if data.startswith(prefix):
                value = _parsed(data[len(prefix) : -1])
                return schema, value if reader is None else reader(value)
        return self._learn(topic, data)

    def _learn(self, topic: str, data: bytes) -> tuple[RecordSchema, Any]:
        document = json.loads(data)
        text = dumps(document["schema"]).encode()
        schema = parse_schema(document["schema"])
        reader = _reader(schema)
        prefix = _PREFIX + text + _PAYLOAD
        if data.startswith(prefix):
            known = self._known.setdefault(topic, [])
            if len(known) >= _MAX_SCHEMAS:
                known.clear()
            known.insert(0, (prefix, schema, reader))
        value = document["payload"]
        return schema, value if reader is None else reader(value)


def _parsed(text: bytes) -> Any:
    try:
        return orjson.loads(text)
    except ValueError:  # half a surrogate pair, for example
        return json.loads(text)


def _reader(schema: RecordSchema) -> ReadPart | None:
    """Return what makes a Connect value of parsed JSON; None where both are the same."""
    if schema.type == "bytes":
        return lambda value: None if value is None else a2b_base64(value)
    if schema.type == "array" and schema.items is not None:
        item = _reader(schema.items)
        return None if item is None else lambda values: None if values is None else [item(v) for v in values]
    if schema.type == "map" and schema.items is not None:
        of = _reader(schema.items)
        return None if of is None else lambda value: value and {name: of(member) for name, member in value.items()}
    if schema.type != "struct":
        return None
    readers = [(member.name, reader) for member in schema.fields if (reader := _reader(member.schema)) is not None]
    is_source = schema.name == SOURCE_STRUCT
    if not readers and not is_source:
        return None

    def read(value: Any) -> Any:
        if value is not None:
            for name, reader in readers:
                value[name] = reader(value[name])
            # Debezium leaves it null in the stream, and its default is the text.
            if is_source and value.get("snapshot") == "false":
                value["snapshot"] = None
        return value

    return read


class JsonWriter:
    """Write keys or values as JsonConverter does.

    Args:
        schemas: Whether each has its schema.
        replace_null: Whether null is written as the field's default.
        keep_marker: Whether ``source.snapshot`` of change events is written as its default all the same.
    """

    def __init__(self, *, schemas: bool, replace_null: bool, keep_marker: bool = False) -> None:
        self._schemas, self._replace_null, self._keep_marker = schemas, replace_null, keep_marker
        self._writers = SchemaCache(self._prefix_and_writer)

    def __call__(
        self, topic: str, schema: RecordSchema | None, value: Any, headers: RecordHeaders | None = None
    ) -> bytes | None:
        """Return the bytes of a key or value; arguments of no use to JSON are those of ``ConvertPart``.

        Raises:
            TransformFault: The value does not fit its schema.
        """
        if schema is None:
            if value is None:
                return None
            text = dumps(value) if not isinstance(value, bytes) else _base64(value)
            return (f'{{"schema":null,"payload":{text}}}' if self._schemas else text).encode()
        prefix, write = self._writers(schema)
        text = write(value)
        return (f"{prefix}{text}}}" if prefix else text).encode()

    def _prefix_and_writer(self, schema: RecordSchema) -> tuple[str, WritePart]:
        return f'{{"schema":{schema_text(schema)},"payload":' if self._schemas else "", self._writer(schema)

    def _writer(self, schema: RecordSchema, *, keep_default: bool = False) -> WritePart:
        """Return what writes values of a schema, null included."""
        write, null = self._plain_writer(schema), "null"
        required = not schema.optional
        if schema.default is not None and (self._replace_null or keep_default):
            null, required = write(schema.default), False

        def write_or_null(value: Any) -> str:
            if value is not None:
                return write(value)
            if required:
                raise TransformFault("Conversion error: null value for field that is required and has no default value")
            return null

        # Most values are integers and texts: one call for each instead of two or three.
        if schema.type in INTEGER_BITS:
            return lambda value: str(value) if type(value) is int else write_or_null(value)
        if schema.type == "string":
            return lambda value: quote(value) if type(value) is str else write_or_null(value)
        return write_or_null

    def _plain_writer(self, schema: RecordSchema) -> WritePart:
        kind = schema.type
        if kind == "array" and schema.items is not None:
            item = self._writer(schema.items)
            return lambda values: f"[{','.join(map(item, _instance(values, list, 'ARRAY')))}]"
        if kind == "map" and schema.items is not None:  # all maps of Debezium have texts as keys
            member = self._writer(schema.items)
            return lambda value: f"{{{','.join(f'{quote(name)}:{member(v)}' for name, v in value.items())}}}"
        if kind == "struct":
            return self._struct_writer(schema)
        return _SCALARS[kind]

    def _struct_writer(self, schema: RecordSchema) -> WritePart:
        kept = "snapshot" if self._keep_marker and schema.name == SOURCE_STRUCT else None
        members = [
            (f"{quote(m.name)}:", m.name, self._writer(m.schema, keep_default=m.name == kept)) for m in schema.fields
        ]

        def write(value: Any) -> str:
            _instance(value, dict, "STRUCT")
            get = value.get
            return "{" + ",".join([label + writer(get(name)) for label, name, writer in members]) + "}"

        return write


def _instance(value: Any, kind: type, name: str) -> Any:
    if not isinstance(value, kind):
        raise TransformFault(f"Invalid type for {name}: {_JAVA_NAMES.get(type(value), type(value).__name__)}")
    return value


_JAVA_NAMES: dict[type, str] = {str: "class java.lang.String", dict: "class org.apache.kafka.connect.data.Struct"}


def _base64(value: Any) -> str:
    return f'"{b2a_base64(_instance(value, bytes, "BYTES"), newline=False).decode()}"'


def _real(value: Any) -> str:
    return number(float(value))


def _float(value: Any) -> str:
    text = number(float(value))
    return text if text.startswith('"') else java_float(float(value))


_SCALARS: Final[dict[str, WritePart]] = {
    **dict.fromkeys(("int8", "int16", "int32", "int64"), str),
    "boolean": lambda value: "true" if value else "false",
    "string": lambda value: quote(_instance(value, str, "STRING")),
    "bytes": _base64,
    "double": _real,
    "float": _float,
}


def schema_document(schema: RecordSchema) -> dict[str, Any]:
    """Return a schema as JsonConverter writes it.

    Args:
        schema: The schema.
    """
    document: dict[str, Any] = {"type": schema.type}
    if schema.type == "struct":
        document["fields"] = [_field_document(member) for member in schema.fields]
    elif schema.keys is not None and schema.items is not None:
        document |= {"keys": schema_document(schema.keys), "values": schema_document(schema.items)}
    elif schema.items is not None:
        document["items"] = schema_document(schema.items)
    document["optional"] = schema.optional
    others = {"name": schema.name, "version": schema.version, "doc": schema.doc, "parameters": schema.parameters}
    document |= {name: value for name, value in others.items() if value is not None}
    if schema.default is not None:
        is_bytes = schema.type == "bytes"
        document["default"] = b2a_base64(schema.default, newline=False).decode() if is_bytes else schema.default
    return document


def _field_document(member: SchemaField) -> dict[str, Any]:
    return {**schema_document(member.schema), "field": member.name}


def schema_text(schema: RecordSchema) -> str:
    """Return a schema's JSON as JsonConverter writes it."""
    return dumps(schema_document(schema))


def write_text(
    topic: str, schema: RecordSchema | None, value: Any, headers: RecordHeaders | None = None
) -> bytes | None:
    """Return the bytes of a key or value as StringConverter writes them.

    Raises:
        TransformFault: It is a struct, whose text nobody can read again.
    """
    if value is None:
        return None
    if isinstance(value, (dict, list)):
        return _java_struct(schema, value).encode()
    return _java_text(schema, value).encode()


def _java_text(schema: RecordSchema | None, value: Any) -> str:
    """Return a value as its ``toString`` does; bytes, of which that says nothing, as base64."""
    if schema is not None and type(value) is int and (ms := milliseconds_of(schema, value)) is not None:
        return _JAVA_DATE.format(ms)
    return value_text(schema, value)


def _java_struct(schema: RecordSchema | None, value: Any) -> str:
    """Return a value as ``Struct.toString`` and the like write it, without the members that are null."""
    if schema is not None and schema.type == "struct" and value is not None:
        members = ((m.name, m.schema, value.get(m.name)) for m in schema.fields)
        return f"Struct{{{','.join(f'{n}={_java_struct(s, v)}' for n, s, v in members if v is not None)}}}"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name}={_java_struct(None, member)}' for name, member in value.items())}}}"
    if isinstance(value, list):
        items = None if schema is None else schema.items
        return f"[{', '.join(_java_struct(items, item) for item in value)}]"
    if isinstance(value, dict):
        items = None if schema is None else schema.items
        return f"{{{', '.join(f'{name}={_java_struct(items, member)}' for name, member in value.items())}}}"
    return _java_text(schema, value)


def write_binary(
    topic: str, schema: RecordSchema | None, value: Any, headers: RecordHeaders | None = None
) -> bytes | None:
    """Return the bytes of a key or value as ByteArrayConverter and BinaryDataConverter write them.

    Raises:
        TransformFault: It is no bytes.
    """
    if value is None or (isinstance(value, bytes) and (schema is None or schema.name != DECIMAL)):
        return value
    if schema is not None and schema.type != "bytes":
        raise TransformFault(f"Invalid schema type for ByteArrayConverter: {schema.java_type()}")
    raise TransformFault(f"ByteArrayConverter is not compatible with objects of type class {java_class(schema, value)}")


class AvroWriter:
    """Write keys or values as Confluent's AvroConverter does.

    Args:
        part: ``key`` or ``value``.
        formats: Registers schemas; its configuration is that behind the chain.
        replace_null: Whether null is written as the field's default.
        by_topic: Whether subjects are named after topics alone.
    """

    def __init__(
        self, part: F.ConverterPart, formats: RecordFormats, *, replace_null: bool, by_topic: bool = True
    ) -> None:
        self._part, self._formats, self._by_topic = part, formats, by_topic
        self._json = JsonWriter(schemas=False, replace_null=replace_null)
        self._serializers = SchemaCache(self._serializer)

    def __call__(
        self, topic: str, schema: RecordSchema | None, value: Any, headers: RecordHeaders | None = None
    ) -> bytes | None:
        """Return the bytes of a key or value, and add the header with its schema's GUID if that is where it goes.

        Raises:
            TransformFault: It has no schema, or does not fit it.
            SchemaError: A name or type cannot be represented in Avro.
            RegistryError: The registry does not return an id.
        """
        if value is None:
            return None
        if schema is None:
            raise TransformFault("a value without a schema cannot be written as Avro")
        data = self._json(topic, schema, value)
        serializer = self._serializers((topic, schema))
        if serializer.header is not None and headers is not None:
            headers.append(serializer.header)
        assert data is not None
        return serializer.serialize_json(data)

    def _serializer(self, place: tuple[str, RecordSchema]) -> AvroSerializer:
        topic, schema = place
        if schema.type != "struct" and not self._by_topic:
            raise TransformFault(f"the message {self._part} must only be a record schema to name its subject")
        serializer = self._formats.topic_serializer(self._part, topic, schema_text(schema))
        assert serializer is not None
        return serializer


def read_headers(headers: Headers) -> list[ChainHeader]:
    """Return headers as Connect has them.

    Args:
        headers: The headers, whose values are texts.
    """
    return [
        ChainHeader(name, STRING, None if value is None else value.decode(errors="surrogateescape"))
        for name, value in headers
    ]


def write_headers(headers: Sequence[ChainHeader]) -> RecordHeaders:
    """Return headers as SimpleHeaderConverter writes them.

    Args:
        headers: The headers.
    """
    return [
        (
            name,
            value.encode(errors="surrogateescape")
            if type(value) is str
            else None
            if value is None
            else value_text(schema, value).encode(),
        )
        for name, schema, value in headers
    ]
