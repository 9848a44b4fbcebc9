"""Define what all formats of records share: the interface, the prefix of Avro bytes, and the errors."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from airflow_provider_mysql_cdc.cdc.avro.avro_payload import parse_payload
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.fields import ConverterPart
from airflow_provider_mysql_cdc.cdc.errors import ValueDecodeError
from airflow_provider_mysql_cdc.cdc.model.connection import SchemaId
from airflow_provider_mysql_cdc.cdc.model.records import Header, Headers, RowRecord

MAGIC = "\x00"
"""First byte of Confluent's wire format; the four bytes of the schema id follow."""
OptionalBytes = bytes | None


def wire_prefix(schema_id: SchemaId) -> str:
    """Return the prefix of a record's bytes, as byte text; it is empty if a header contains the schema's GUID.

    Args:
        schema_id: Id of its schema.
    """
    return "" if schema_id.guid is not None else MAGIC + schema_id.number.to_bytes(4, "big").decode("latin-1")


def guid_header(part: ConverterPart, schema_id: SchemaId) -> Header | None:
    """Return the header with a schema's GUID, or None if the prefix contains the schema id.

    Source: io.confluent.kafka.serializers.schema.id.HeaderSchemaIdSerializer and SchemaId.guidToBytes (release 8).

    Args:
        part: Whether it is the schema of a key or of a value.
        schema_id: Id of the schema.
    """
    return None if schema_id.guid is None else (f"__{part}_schema_id", b"\x01" + UUID(schema_id.guid).bytes)


@dataclass(frozen=True, slots=True)
class IdHeaders:
    """Append the GUIDs of a record's schemas to its other headers, as Kafka Connect's converters do.

    Args:
        key: The header for keys, or None.
        value: The header for values, or None.
    """

    key: Header | None
    value: Header | None

    def __bool__(self) -> bool:
        return self.key is not None or self.value is not None

    def append_to(self, headers: Headers, key: OptionalBytes, value: OptionalBytes) -> Headers:
        """Return a record's headers; a null key or value has no schema (AbstractKafkaAvroSerializer).

        Args:
            headers: Its other headers.
            key: Its key.
            value: Its value.
        """
        all_headers = [*headers]
        if key is not None and self.key is not None:
            all_headers.append(self.key)
        if value is not None and self.value is not None:
            all_headers.append(self.value)
        return all_headers


# Exceptions of encoders for a value that does not fit its schema.
ENCODE_ERRORS = (ValueError, TypeError, KeyError, OverflowError, AttributeError)


class RecordFormat(ABC):
    """Convert the records of one table version to their format in Kafka."""

    __slots__ = ()

    @abstractmethod
    def key_bytes(self, key: OptionalBytes) -> OptionalBytes:
        """Return a record's key.

        Args:
            key: The event's key, JSON.
        """

    @abstractmethod
    def value_bytes(self, value: OptionalBytes) -> OptionalBytes:
        """Return a record's value.

        Args:
            value: The event, JSON; None for a tombstone.
        """

    @abstractmethod
    def partition(self, record_key: OptionalBytes, key: OptionalBytes, value: OptionalBytes, count: int) -> int:
        """Return a record's partition.

        Args:
            record_key: The record's key.
            key: The event's key, JSON.
            value: The event, JSON.
            count: Partitions of the topic.
        """

    def prefixes(self, *, keyed: bool) -> tuple[str, str] | None:
        """Return the prefixes of keys and values, or None if decoders cannot write this format directly.

        Args:
            keyed: Whether the table has a key.
        """
        return None

    def id_headers(self) -> IdHeaders | None:
        """Return the headers with schema GUIDs that are added to records, or None."""
        return None

    def records(self, rows: Iterable[RowRecord], where: str = "", *, numbered: bool = True) -> Iterator[RowRecord]:
        """Yield the converted records of a row event.

        Args:
            rows: The records from the decoder.
            where: Position of the event, for error messages.
            numbered: Whether error messages contain the row's number.

        Raises:
            ValueDecodeError: A record cannot be converted.
        """
        for key, value, row, record_number, header, partition in rows:
            try:
                key_and_value = self.key_bytes(key), self.value_bytes(value)
            except ValueDecodeError as error:
                raise error_with_row(error, where, row if numbered else None, key) from error
            yield *key_and_value, row, record_number, header, partition


def encode_error(about: str, error: Exception) -> ValueDecodeError:
    """Return the error for a record that does not fit its schema.

    Args:
        about: The table or topic of the record.
        error: The exception of the encoder.
    """
    return ValueDecodeError(
        f"a record of {about} cannot be written as Avro",
        why=f"{type(error).__name__}: {error}",
        remedy="report this with the table's definition; to continue, exclude the column (column.exclude.list)",
    )


def error_with_row(error: ValueDecodeError, where: str, row: int | None, key: OptionalBytes) -> ValueDecodeError:
    """Return an error that names the row.

    Args:
        error: The error of converting a record of the row.
        where: Position of the event.
        row: Number of the row in the event; None for a row of a snapshot.
        key: The event's key, JSON.
    """
    location = [where] if row is None else [where, f"row {int(row)}"]
    if key is not None:
        document = parse_payload(key)
        location.append(f"key {_key_text(document.get('payload', document))}")
    return ValueDecodeError(error.what, where=", ".join(filter(None, location)), why=error.why, remedy=error.remedy)


def _key_text(key: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in key.items())


LookupSchemaId = Callable[[F.ConverterPart, str, str, str], SchemaId]
"""Returns the id of a schema, given key or value, subject, schema text, and the table or topic of the records."""
