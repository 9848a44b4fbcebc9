"""Choose the record format of a table: none for JSON, Avro, or TiCDC."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from airflow_provider_mysql_cdc.cdc.avro.compiled_payload import lazy_encoder
from airflow_provider_mysql_cdc.cdc.avro.connect_avro import avro_schema, record_name
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.convert.connect_schema import ConnectSchema
from airflow_provider_mysql_cdc.cdc.convert.json_text import dumps
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.errors import SchemaError
from airflow_provider_mysql_cdc.cdc.formats import table_options
from airflow_provider_mysql_cdc.cdc.formats.avro_format import AvroFormat, AvroSerializer, schema_id_headers
from airflow_provider_mysql_cdc.cdc.formats.record_format import (
    LookupSchemaId,
    OptionalBytes,
    RecordFormat,
    guid_header,
    wire_prefix,
)
from airflow_provider_mysql_cdc.cdc.formats.ticdc_format import TicdcFormat
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.model.table import Table


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
