"""A record between source and converter, as Kafka Connect's ``SourceRecord``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from airflow_provider_mysql_cdc.cdc.transforms.record_schema import RecordSchema


class ChainHeader(NamedTuple):
    """A header with its schema."""

    name: str
    schema: RecordSchema | None
    value: Any


@dataclass(slots=True)
class ChainRecord:
    """A record that a transform may change; each record is read anew, so that nobody else has it.

    Args:
        topic: Its topic.
        partition: Its partition; None leaves that to the hash of the key.
        key_schema: Schema of its key; None without one.
        key: Its key.
        value_schema: Schema of its value; None without one.
        value: Its value; None for a tombstone.
        headers: Its headers.
        timestamp: Milliseconds since 1970; None for the time at which it is produced.
    """

    topic: str
    partition: int | None
    key_schema: RecordSchema | None
    key: Any
    value_schema: RecordSchema | None
    value: Any
    headers: list[ChainHeader] = field(default_factory=list)
    timestamp: int | None = None

    def set_value(self, schema: RecordSchema | None, value: Any) -> ChainRecord:
        """Replace the value, and return the record."""
        self.value_schema, self.value = schema, value
        return self

    def set_key(self, schema: RecordSchema | None, key: Any) -> ChainRecord:
        """Replace the key, and return the record."""
        self.key_schema, self.key = schema, key
        return self

    def header(self, name: str) -> ChainHeader | None:
        """Return the first header of a name, or None."""
        return next((header for header in self.headers if header.name == name), None)
