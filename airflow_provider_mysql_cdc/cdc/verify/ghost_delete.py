"""Delete events for ghosts: rows that a topic still has and the table has not.

The event is made out of the topic's own last record of the key, in its format and with its schema: ``before`` is what
that record has as ``after``, and the source block says that a repair read the table at a position, as it does for rows
of an incremental snapshot. The table may have another structure by now, so its columns are not written anew. In
TiCDC's protocol a delete is a record without a value.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.emit.contracts import contract
from airflow_provider_mysql_cdc.cdc.model.records import Headers
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord
from airflow_provider_mysql_cdc.cdc.snapshot.range_writer import ViewPosition
from airflow_provider_mysql_cdc.cdc.verify.avro_events import LookupSchema
from airflow_provider_mysql_cdc.cdc.verify.event_record import UnreadableRecord
from airflow_provider_mysql_cdc.cdc.verify.raw_structs import AvroStruct, AvroTypes, JsonStruct, RawStruct, Value

MARKER = "incremental"
"""``source.snapshot`` of the rows and deletes of a repair."""
_KEY_SCHEMA, _VALUE_SCHEMA = "__key_schema_id", "__value_schema_id"
_PREFIX_BYTES = 5
_STRUCT = TypeVar("_STRUCT", bound=RawStruct)


class GhostRecord(NamedTuple):
    """Hold a record that deletes a ghost.

    Args:
        key: Its key.
        value: Its value; None for a tombstone.
        partition: The partition of the ghost's last record, so that it is behind that one.
        headers: Its headers.
    """

    key: bytes | None
    value: bytes | None
    partition: int
    headers: Headers


class GhostDeletes:
    """Make the records that delete ghosts.

    Args:
        cfg: The connector's configuration.
        position: What their source blocks say.
        headers: Headers of all records of the repair.
        lookup_schema: Returns the text of an Avro schema.
        id_prefix: First part of the header cdc-id; None for records without it.
    """

    def __init__(
        self,
        cfg: ConnectorConfig,
        position: ViewPosition,
        headers: Headers,
        lookup_schema: LookupSchema,
        id_prefix: str | None = None,
    ) -> None:
        self._cfg, self._position, self._headers, self._lookup = cfg, position, headers, lookup_schema
        self._id_prefix = id_prefix
        self._layout = contract(str(cfg[F.EVENT_CONTRACT]), source_struct=str(cfg[F.SOURCE_STRUCT_VERSION]))
        self._types: dict[str, AvroTypes] = {}

    def records(self, topic: str, last: TopicRecord) -> Iterator[GhostRecord]:
        """Yield the delete event of a ghost, and the tombstone behind it.

        Args:
            topic: The topic.
            last: Its last event of the key.

        Raises:
            UnreadableRecord: It is not an event as the stream is configured to write them.
        """
        schema_ids = _schema_ids(last)
        values: list[bytes | None] = [None]
        if not self._cfg.is_ticdc:
            values = [self._delete_event(last, schema_ids)]
            if last.key is not None and self._cfg[F.TOMBSTONES_ON_DELETE]:
                values.append(None)
        elif last.key is None:
            raise UnreadableRecord("a row without a key cannot be deleted in TiCDC's protocol")
        for number, value in enumerate(values):
            yield self._record(topic, last, value, number)

    def tombstone(self, topic: str, record: TopicRecord) -> GhostRecord:
        """Return the tombstone with which consumers forget a record's key in its partition.

        Args:
            topic: The topic.
            record: The record.
        """
        return self._record(topic, record, None, 0)

    def _record(self, topic: str, last: TopicRecord, value: bytes | None, number: int) -> GhostRecord:
        headers = [*self._headers]
        if self._id_prefix is not None:
            id_text = f"{self._id_prefix}/{topic}/{last.partition}@{last.offset}/{number}"
            headers.append(("cdc-id", id_text.encode()))
        # A null value has no schema (``IdHeaders``).
        ids = [(name, guid) for name, guid in _schema_ids(last).items() if name == _KEY_SCHEMA or value is not None]
        return GhostRecord(last.key, value, last.partition, [*headers, *ids])

    def _delete_event(self, last: TopicRecord, schema_ids: Mapping[str, bytes | None]) -> bytes:
        if last.value is None:
            raise UnreadableRecord("the last record is a tombstone")
        if self._cfg.is_avro("value"):
            return self._avro_event(last.value, schema_ids.get(_VALUE_SCHEMA))
        return self._json_event(last.value)

    def _json_event(self, value: bytes) -> bytes:
        try:
            document = JsonStruct(value.decode())
        except UnicodeDecodeError as error:
            raise UnreadableRecord(f"it is not UTF-8: {error}") from error
        if len(document) == 2 and "schema" in document and "payload" in document:
            document.put("payload", self._deleted(document.struct("payload"), typed=True))
            return str(document).encode()
        return str(self._deleted(document, typed=False)).encode()

    def _avro_event(self, value: bytes, guid: bytes | None) -> bytes:
        prefix = b"" if guid is not None else value[:_PREFIX_BYTES]
        if guid is None and (prefix[:1] != b"\0" or len(prefix) < _PREFIX_BYTES):
            raise UnreadableRecord("the value does not begin with the id of a schema")
        schema_id = str(int.from_bytes(prefix[1:], "big")) if guid is None else str(UUID(bytes=guid[1:]))
        types = self._types_of(schema_id)
        event = AvroStruct(types, types.root, value[len(prefix) :])
        return prefix + bytes(self._deleted(event, typed=True))

    def _types_of(self, schema_id: str) -> AvroTypes:
        types = self._types.get(schema_id)
        if types is None:
            text = self._lookup("value", schema_id)
            if text is None:
                raise UnreadableRecord(f"the schema registry does not have schema {schema_id}")
            try:
                types = AvroTypes(json.loads(text))
            except ValueError as error:
                raise UnreadableRecord(f"schema {schema_id} is not JSON: {error}") from error
            self._types[schema_id] = types
        return types

    def _deleted(self, event: _STRUCT, *, typed: bool) -> _STRUCT:
        """Return an event of a row as the event of its delete.

        Args:
            event: The event.
            typed: Whether it is written with its schema.
        """
        if not all(name in event for name in ("before", "after", "source", "op")):
            raise UnreadableRecord("it is no change event")
        if not event.is_null("after"):  # the last event is a delete already
            event.copy("after", "before")
        source = event.struct("source")
        _set_members(source, self._source_values(source, typed=typed))
        event.put("source", source)
        now_ns = time.time_ns()
        times = {"ts_ms": now_ns // 1_000_000, "ts_us": now_ns // 1000, "ts_ns": now_ns}
        _set_members(event, {"after": None, "op": "d", "transaction": None, **times})
        return event

    def _source_values(self, source: RawStruct, *, typed: bool) -> Mapping[str, Value]:
        """Return the members that are those of an incremental snapshot's rows (``source_block.fill_snapshot``)."""
        position = self._position
        # Before Debezium 0.10 rows of a snapshot had no time.
        ts_ms = 0 if self._layout.flat_changes else position.ts_ms
        server_id, gtid = position.last_transaction
        marker: Value = self._layout.snapshot_value(MARKER, typed=typed)
        if typed and "snapshot" in source and source.is_boolean("snapshot"):
            marker = True
        return {
            "ts_sec": ts_ms // 1000,
            "ts_ms": ts_ms,
            "ts_us": ts_ms * 1000,
            "ts_ns": ts_ms * 1_000_000,
            "snapshot": marker,
            "server_id": server_id,
            "gtid": gtid,
            "file": position.offset.file,
            "pos": position.offset.pos,
            "row": 0,
            "thread": None,
            "query": None,
        }


def _schema_ids(record: TopicRecord) -> dict[str, bytes | None]:
    return {name: content for name, content in record.headers if name in (_KEY_SCHEMA, _VALUE_SCHEMA)}


def _set_members(struct: RawStruct, values: Mapping[str, Any]) -> None:
    """Give the members that a struct has other values."""
    for name, value in values.items():
        if name in struct:
            struct.set(name, value)
