"""Read keys or values in Confluent's Avro, whose schema ids are before the bytes or, as GUIDs, in headers.

Schemas are requested by id, once each. Source of the wire formats: ``io.confluent.kafka.serializers.schema.id``
(release 8).
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.model.records import Headers
from airflow_provider_mysql_cdc.cdc.verify.avro_schemas import ReadableSchema, readable_schema
from airflow_provider_mysql_cdc.cdc.verify.event_record import Row, UnreadableRecord
from airflow_provider_mysql_cdc.cdc.verify.value_form import Forms

LookupSchema = Callable[[F.ConverterPart, str], str | None]
"""Returns the text of a schema, given key or value and its id, a number or a GUID; None if the registry has none."""
_PREFIX_BYTES = 5
_GUID_VERSION, _GUID_BYTES = b"\x01", 17
# Records of one topic name few schemas; damaged ones may name any.
_MAX_SCHEMAS = 1024


@dataclass(frozen=True, slots=True)
class AvroPayload:
    """Hold what a key or value holds.

    Args:
        value: The values of its fields.
        schema: Its schema.
    """

    value: dict[str, Any]
    schema: ReadableSchema


class AvroPayloads:
    """Read keys or values.

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

    def payload(self, data: bytes, headers: Headers = ()) -> AvroPayload:
        """Return what a key or value holds.

        Args:
            data: The key or value.
            headers: The record's headers.

        Raises:
            UnreadableRecord: It is not Avro in this wire format, or its schema is unknown.
        """
        mark, start, schema = self._schema_of(data, headers)
        stream = io.BytesIO(data)
        stream.seek(start)
        try:
            value = self._decode(stream, schema.parsed, None)
            if schema.convert is not None:
                value = schema.convert(value)
        except Exception as error:  # fastavro has many for damaged bytes
            raise UnreadableRecord(
                f"the {self._part} is not Avro of its schema {self._id(mark)}: {type(error).__name__}: {error}"
            ) from error
        if stream.tell() != len(data):
            raise UnreadableRecord(f"the {self._part} has bytes after its value of schema {self._id(mark)}")
        return AvroPayload(value, schema)

    def is_exact(self, data: bytes, headers: Headers = ()) -> bool:
        """Return whether no other bytes of its schema hold the same; arguments and errors as for ``payload``."""
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

        Args:
            data: The key or value.
            headers: The record's headers.
            edit: Changes its fields.

        Raises:
            UnreadableRecord: As for ``payload``, or its schema does not allow what it holds then.
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
        mark = next((content for name, content in headers if name == self._header), None)
        if mark is None:
            raise UnreadableRecord(f"the record has no header {self._header} with the GUID of its schema")
        return mark

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


class AvroPart:
    """Read the keys or the values of change events.

    Args:
        part: Whether they are keys or values.
        lookup_schema: Returns the text of a schema.
        guids: Whether headers contain GUIDs of schemas, in place of ids before the bytes.
    """

    def __init__(self, part: F.ConverterPart, lookup_schema: LookupSchema, *, guids: bool = False) -> None:
        self._payloads, self._is_key = AvroPayloads(part, lookup_schema, guids=guids), part == "key"

    def read(self, data: bytes, headers: Headers = ()) -> tuple[Any, Forms | None]:
        """Return the payload and the forms of its values; arguments and errors as for ``AvroPayloads.payload``."""
        payload = self._payloads.payload(data, headers)
        return payload.value, payload.schema.forms if self._is_key else payload.schema.row_forms

    def is_exact(self, data: bytes, fields: Row, headers: Headers = ()) -> bool:
        """Return whether a key is in the bytes that the stream writes for its fields."""
        return self._payloads.is_exact(data, headers)
