"""Convert JSON records of decoders and drivers to Avro: keys, values or both; the partition is chosen afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc.avro.avro_payload import Encode, parse_payload
from airflow_provider_mysql_cdc.cdc.formats.partition_assignment import partition_of
from airflow_provider_mysql_cdc.cdc.formats.record_format import (
    ENCODE_ERRORS,
    IdHeaders,
    OptionalBytes,
    RecordFormat,
    encode_error,
)
from airflow_provider_mysql_cdc.cdc.model.records import Header


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
