"""Choose the record format of a table: none for JSON, Avro, or TiCDC."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc.avro.avro_payload import Encode, lazy_encoder, parse_payload
from airflow_provider_mysql_cdc.cdc.avro.connect_avro import avro_schema, record_name
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.convert.connect_schema import ConnectSchema
from airflow_provider_mysql_cdc.cdc.convert.json_text import dumps
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.errors import SchemaError
from airflow_provider_mysql_cdc.cdc.formats import table_options
from airflow_provider_mysql_cdc.cdc.formats.record_format import (
    ENCODE_ERRORS,
    IdHeaders,
    LookupSchemaId,
    OptionalBytes,
    RecordFormat,
    encode_error,
    guid_header,
    wire_prefix,
)
from airflow_provider_mysql_cdc.cdc.formats.record_topics import partition_of
from airflow_provider_mysql_cdc.cdc.formats.ticdc_format import TicdcFormat
from airflow_provider_mysql_cdc.cdc.model.records import Header, SideRecord
from airflow_provider_mysql_cdc.cdc.model.table import Table


@dataclass(frozen=True, slots=True)
class AvroSerializer:
    """Serialize keys or values with one schema.

    Args:
        prefix: Byte text before the Avro bytes: magic byte and schema id, or empty.
        encode: Encodes a payload as byte text.
        about: The table or topic of the records, for error messages.
        header: The header with the schema's GUID, or None.
    """

    prefix: str
    encode: Encode
    about: str
    header: Header | None = None

    def serialize(self, payload: Any) -> bytes:
        """Return the bytes of a payload as JsonConverter represents it.

        Raises:
            ValueDecodeError: It does not fit the schema.
        """
        try:
            return (self.prefix + self.encode(payload)).encode("latin-1")
        except ENCODE_ERRORS as error:
            raise encode_error(self.about, error) from error

    def serialize_json(self, data: bytes) -> bytes:
        """Return the bytes of a payload that is JSON text.

        Raises:
            ValueDecodeError: It does not fit the schema, or is not JSON, because a value is damaged.
        """
        try:
            payload = parse_payload(data)
        except ValueError as error:
            raise encode_error(self.about, error) from error
        return self.serialize(payload)


@dataclass(frozen=True, slots=True)
class AvroFormat(RecordFormat):
    """Convert the records of one table version to Avro.

    Args:
        key: Serializer of its keys; None keeps them as JSON.
        value: Serializer of its values; None keeps them as JSON.
    """

    key: AvroSerializer | None
    value: AvroSerializer | None

    def key_bytes(self, key: OptionalBytes) -> OptionalBytes:
        """Return a record's key."""
        return key if key is None or self.key is None else self.key.serialize_json(key)

    def value_bytes(self, value: OptionalBytes) -> OptionalBytes:
        """Return a record's value; that of a tombstone is None."""
        return value if value is None or self.value is None else self.value.serialize_json(value)

    def prefixes(self, *, keyed: bool) -> tuple[str, str] | None:
        """Return the prefixes of keys and values, or None if one of them is JSON.

        Args:
            keyed: Whether the table has a key.
        """
        if self.value is None or (keyed and self.key is None):
            return None
        return "" if self.key is None else self.key.prefix, self.value.prefix

    def id_headers(self) -> IdHeaders | None:
        """Return the headers with schema GUIDs that are added to records, or None."""
        return schema_id_headers(self.key, self.value)

    def partition(self, record_key: OptionalBytes, key: OptionalBytes, value: OptionalBytes, count: int) -> int:
        """Return the partition that Kafka's Java client gives the record's key."""
        return partition_of(record_key, count)


def schema_id_headers(key: AvroSerializer | None, value: AvroSerializer | None) -> IdHeaders | None:
    """Return the headers with schema GUIDs that are added to records, or None.

    Args:
        key: Serializer of their keys, or None.
        value: Serializer of their values, or None.
    """
    id_headers = IdHeaders(None if key is None else key.header, None if value is None else value.header)
    return id_headers or None


class RecordFormats:
    """Create the record formats of tables and of side records; each schema id is looked up once.

    Args:
        cfg: The connector's configuration.
        lookup_id: Returns the id of a schema.
    """

    def __init__(self, cfg: ConnectorConfig, lookup_id: LookupSchemaId) -> None:
        self._cfg, self._lookup_id = cfg, lookup_id
        self._serializers: dict[tuple[F.ConverterPart, str, str], AvroSerializer] = {}
        self._side_serializers: dict[tuple[F.ConverterPart, str], list[tuple[bytes, AvroSerializer]]] = {}
        # Longest wait in seconds for the ids of a table's two schemas.
        self.max_wait_s = sum(s.max_request_s() for s in map(cfg.registry_settings, F.PARTS) if s is not None)

    @classmethod
    def from_config(cls, cfg: ConnectorConfig, lookup_id: LookupSchemaId) -> RecordFormats | None:
        """Return the record formats of a configuration, or None if everything is JSON.

        Args:
            cfg: The connector's configuration.
            lookup_id: Returns the id of a schema.
        """
        return cls(cfg, lookup_id) if any(map(cfg.is_avro, F.PARTS)) else None

    def table_format(self, table: Table, options: DecoderOptions, topic: str) -> RecordFormat:
        """Return the format of a table version's records, after registering both schemas.

        Args:
            table: The table.
            options: From ``table_options.table_options``.
            topic: Its topic.

        Raises:
            SchemaError: A name or type cannot be represented in Avro.
            RegistryError: The registry does not return an id.
        """
        if self._cfg.is_ticdc:
            return TicdcFormat(self._cfg, table, options, topic, self._lookup_id)
        text, about = table_options.schema_text(self._cfg, table, options), f"table {table.id}"
        return AvroFormat(
            self._serializer("key", topic, text.key_schema, about),
            self._serializer("value", topic, text.value_schema, about),
        )

    def topic_serializer(self, part: F.ConverterPart, topic: str, schema: str) -> AvroSerializer | None:
        """Return what serializes the keys or values of a topic with one schema, after registering it; None for JSON.

        Args:
            part: ``key`` or ``value``.
            topic: The topic.
            schema: The Connect schema as JsonConverter writes it.

        Raises:
            SchemaError: A name or type cannot be represented in Avro.
            RegistryError: The registry does not return an id.
        """
        return self._serializer(part, topic, schema, f"topic {topic}")

    def _serializer(self, part: F.ConverterPart, topic: str, schema: str | None, about: str) -> AvroSerializer | None:
        if schema is None or not self._cfg.is_avro(part):
            return None
        serializer = self._serializers.get((part, topic, schema))
        if serializer is None:
            serializer = self._serializers[part, topic, schema] = self._create_serializer(
                part, topic, json.loads(schema), about
            )
        return serializer

    def _create_serializer(
        self, part: F.ConverterPart, topic: str, schema: ConnectSchema, about: str
    ) -> AvroSerializer:
        part_fields = F.CONVERTER_FIELDS[part]
        try:
            # A schema that somebody else has registered is compared by what its values stand for.
            meta = self._cfg[part_fields.meta_data] or self._cfg[part_fields.use_latest]
            text = dumps(avro_schema(schema, meta=meta))
            encode = lazy_encoder(schema)
        except SchemaError as error:
            raise SchemaError(error.what, where=f"{about}, {part}", why=error.why, remedy=error.remedy) from error
        subject = _SUBJECTS[self._cfg[part_fields.subjects]](topic, part, record_name(schema))
        schema_id = self._lookup_id(part, subject, text, about)
        return AvroSerializer(wire_prefix(schema_id), encode, about, guid_header(part, schema_id))

    def format_side_record(self, record: SideRecord) -> SideRecord:
        """Return a record that belongs to no row, in the format of its topic.

        Args:
            record: The record; key and value contain their schemas as JsonConverter writes them.

        Raises:
            RegistryError: The registry does not return the id of a schema.
        """
        topic, headers = record.topic, record.headers
        key, key_serializer = self._convert("key", topic, record.key)
        value, value_serializer = self._convert("value", topic, record.value)
        id_headers = schema_id_headers(key_serializer, value_serializer)
        if id_headers is not None:
            headers = id_headers.append_to(headers or (), key, value)
        return SideRecord(topic, key, value, headers)

    def _convert(
        self, part: F.ConverterPart, topic: str, data: OptionalBytes
    ) -> tuple[OptionalBytes, AvroSerializer | None]:
        """Return the bytes of a key or a value, and their serializer; None for JSON."""
        if data is None or not self._cfg.is_avro(part):
            return data, None
        serializers = self._side_serializers.setdefault((part, topic), [])
        for prefix, serializer in serializers:
            if data.startswith(prefix):
                return serializer.serialize_json(data[len(prefix) : -1]), serializer
        document = json.loads(data)
        schema = dumps(document["schema"])
        new_serializer = self._serializer(part, topic, schema, f"topic {topic}")
        if new_serializer is None:
            return data, None
        serializers.append((f'{{"schema":{schema},"payload":'.encode(), new_serializer))
        return new_serializer.serialize(document["payload"]), new_serializer

    def format_side_records(self, records: Sequence[SideRecord]) -> list[SideRecord]:
        """Return records to be committed together, those of the ledger and of the schema history as they are.

        Args:
            records: The records.
        """
        internal_topics = (self._cfg.ledger_topic, self._cfg.history_topic)
        return [r if r.topic in internal_topics else self.format_side_record(r) for r in records]


_SUBJECTS: Mapping[str, Callable[[str, str, str], str]] = {
    F.SUBJECT_STRATEGIES[0]: lambda topic, part, name: f"{topic}-{part}",
    F.RECORD_NAME_STRATEGY: lambda topic, part, name: name,
    F.SUBJECT_STRATEGIES[2]: lambda topic, part, name: f"{topic}-{name}",
}
