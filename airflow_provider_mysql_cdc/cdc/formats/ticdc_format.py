"""Convert change events to TiCDC's protocol: keys, values with one row each, and partitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from airflow_provider_mysql_cdc.cdc.avro.avro_payload import parse_payload
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.ticdc_fields import WHERE, rule_for
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import key_columns, value_columns
from airflow_provider_mysql_cdc.cdc.errors import ValueDecodeError
from airflow_provider_mysql_cdc.cdc.formats import table_options
from airflow_provider_mysql_cdc.cdc.formats.record_format import (
    ENCODE_ERRORS,
    LookupSchemaId,
    OptionalBytes,
    RecordFormat,
    encode_error,
    wire_prefix,
)
from airflow_provider_mysql_cdc.cdc.model.table import Table
from airflow_provider_mysql_cdc.cdc.model.topic_transforms import PartitionRule
from airflow_provider_mysql_cdc.cdc.ticdc.commit_ts import CommitTs, commit_ts
from airflow_provider_mysql_cdc.cdc.ticdc.partition_dispatcher import AbsentValueError, dispatch_columns, dispatcher
from airflow_provider_mysql_cdc.cdc.ticdc.ticdc_encoder import columns_encoder, extension_text
from airflow_provider_mysql_cdc.cdc.ticdc.ticdc_schema import key_schema, value_schema

_NO_TS = CommitTs(0)
# Snapshot rows are inserts; a delete has no value (AVRO-10, AVRO-13).
_OPERATIONS = {"c": "c", "r": "c", "u": "u"}


class TicdcFormat(RecordFormat):
    """Convert the records of one table version; the constructor registers its schemas.

    Args:
        cfg: The connector's configuration.
        table: The table.
        options: From ``table_options.table_options``.
        topic: Its topic.
        lookup_id: Returns the id of a schema.

    Attributes:
        modes: Modes of the protocol.
        rule: The dispatcher's rule for partitions.
        by_key: Whether the partition depends on nothing but the key.
        keys: Names of the key's columns, in the table's order.
        dispatch: Returns a row's partition.
        dispatch_names: Names of the columns that the dispatcher uses.

    Raises:
        SchemaError: A type or a name cannot be represented in the protocol.
        ConfigError: A dispatcher names a column or index that the table does not have.
        RegistryError: The registry does not return an id.
    """

    def __init__(
        self, cfg: ConnectorConfig, table: Table, options: DecoderOptions, topic: str, lookup_id: LookupSchemaId
    ) -> None:
        modes, about = table_options.ticdc_modes(cfg), f"table {table.id}"
        keys = sorted(key_columns(table, options), key=lambda column: column.position)
        values = value_columns(table, options)
        rules = cfg[F.DISPATCHERS]
        rule = rule_for(rules, table.id).partition if rules else PartitionRule()
        self._about, self._extension = about, modes.extension
        self.modes, self.rule = modes, rule
        self.by_key = rule.name in ("default", "table") or (rule.name == "index-value" and not rule.index)
        # The dispatcher cannot use a column that is not in the value.
        dispatch_table = table if self.by_key else replace(table, columns=tuple(values))
        self.keys = tuple(column.name for column in keys)
        self.dispatch = dispatcher(dispatch_table, self.keys, rule, WHERE)
        self.dispatch_names = dispatch_columns(dispatch_table, self.keys, rule, WHERE)
        schema = key_schema(table, keys, modes)
        self._key_prefix = None if schema is None else wire_prefix(lookup_id("key", f"{topic}-key", schema, about))
        self._encode_key = columns_encoder(keys, modes)
        text = value_schema(table, values, modes)
        self._value_prefix = wire_prefix(lookup_id("value", f"{topic}-value", text, about))
        self._encode_value = columns_encoder(values, modes)
        self._parse_key, self._parse_event = _LastPayload(), _LastPayload()
        self._last_transaction: tuple[Any, ...] | None = None
        self._last_extension = ""

    def row_prefixes(self) -> tuple[str, str]:
        """Return the prefixes of keys and values."""
        return self._key_prefix or "", self._value_prefix

    def key_bytes(self, key: OptionalBytes) -> OptionalBytes:
        """Return a record's key; None if the table has no key.

        Args:
            key: The event's key, JSON.
        """
        if key is None or self._key_prefix is None:
            return None
        try:
            return (self._key_prefix + self._encode_key(self._parse_key(key))).encode("latin-1")
        except ENCODE_ERRORS as error:
            raise encode_error(self._about, error) from error

    def value_bytes(self, value: OptionalBytes) -> OptionalBytes:
        """Return a record's value: the row, or None for a deleted row.

        Args:
            value: The event, JSON.
        """
        if value is None:
            return None
        try:
            event = self._parse_event(value)
            if event["op"] == "d":
                return None
            text = self._value_prefix + self._encode_value(event["after"])
            if self._extension:
                text += self._extension_text(event)
            return text.encode("latin-1")
        except ENCODE_ERRORS as error:
            raise encode_error(self._about, error) from error

    def _extension_text(self, event: Mapping[str, Any]) -> str:
        """Return the extension fields after the columns, which are the same for all rows of an event."""
        transaction = event["op"], event["source"]["ts_us"], event["transaction"]
        if transaction != self._last_transaction:
            self._last_extension = extension_text(_OPERATIONS[transaction[0]], _event_commit_ts(event))
            self._last_transaction = transaction
        return self._last_extension

    def partition(self, record_key: OptionalBytes, key: OptionalBytes, value: OptionalBytes, count: int) -> int:
        """Return the partition that the table's dispatcher chooses for the row.

        Raises:
            ValueDecodeError: A row image lacks a column that the dispatcher uses.
        """
        if count == 1:
            return 0
        if self.by_key:
            return self.dispatch({} if key is None else self._parse_key(key), _NO_TS, count)
        event = self._parse_event(value or b"")
        row = event["before"] if event["op"] == "d" else event["after"]
        try:
            return self.dispatch(row, _event_commit_ts(event), count)
        except AbsentValueError as error:
            raise ValueDecodeError(
                f"the partition of a deleted row of {self._about} cannot be determined",
                why="its row image lacks a column that the dispatcher uses (binlog_row_image is not FULL)",
                remedy="SET PERSIST binlog_row_image = 'FULL' and reconnect the writing sessions, or dispatch by key",
            ) from error
        except ENCODE_ERRORS as error:
            raise encode_error(self._about, error) from error


class _LastPayload:
    """Parse JSON and cache the last document, which is needed for both the bytes and the partition of a record."""

    __slots__ = ("_data", "_payload")

    def __init__(self) -> None:
        self._data: bytes | None = None
        self._payload: Any = None

    def __call__(self, data: bytes) -> Any:
        if data is not self._data:
            self._payload = parse_payload(data)
            self._data = data
        return self._payload


def _event_commit_ts(event: Mapping[str, Any]) -> CommitTs:
    """Return the commit timestamp of an event: its ``transaction``, or for rows of a snapshot the time of the view."""
    transaction = event["transaction"]
    return commit_ts(event["source"]["ts_us"]) if transaction is None else CommitTs(transaction)
