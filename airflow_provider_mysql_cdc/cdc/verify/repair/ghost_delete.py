"""Delete events for ghosts: rows that a topic still has and the table has not.

The event is made of the topic's own last record of the key, in its format and with its schema: ``before`` is what that
record has as ``after``, and the source block says that a window read the table at a position, as it does for rows of an
incremental snapshot. In TiCDC's protocol a delete is a record without a value.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.convert.json_text import RawJson, dumps
from airflow_provider_mysql_cdc.cdc.emit.contracts import contract
from airflow_provider_mysql_cdc.cdc.model.records import Headers
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord
from airflow_provider_mysql_cdc.cdc.snapshot.range_writer import KeyedRecord, ViewPosition
from airflow_provider_mysql_cdc.cdc.verify.read.avro_events import AvroPart, LookupSchema
from airflow_provider_mysql_cdc.cdc.verify.read.event_record import UnreadableRecord

MARKER = "incremental"
"""``source.snapshot`` of the rows and deletes of a repair."""
_KEY_SCHEMA, _VALUE_SCHEMA = "__key_schema_id", "__value_schema_id"
_MEMBERS = frozenset({"before", "after", "source", "op"})


class GhostDeletes:
    """Make the records that delete ghosts.

    Args:
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
        self._cfg, self._position, self._headers, self._id_prefix = cfg, position, headers, id_prefix
        self._layout = contract(str(cfg[F.EVENT_CONTRACT]), source_struct=str(cfg[F.SOURCE_STRUCT_VERSION]))
        registry = None if cfg.is_ticdc else cfg.registry_settings("value")
        guids = registry is not None and bool(registry.guids_for)
        self._avro = None if registry is None else AvroPart("value", lookup_schema, guids=guids)

    def records(self, topic: str, last: TopicRecord) -> Iterator[KeyedRecord]:
        """Yield the delete event of a ghost, and the tombstone behind it.

        Args:
            topic: The topic.
            last: Its last event of the key.

        Raises:
            UnreadableRecord: It is not an event as the stream is configured to write them.
        """
        values: list[bytes | None] = [None]
        if not self._cfg.is_ticdc:
            values = [self._delete_event(last)]
            if last.key is not None and self._cfg[F.TOMBSTONES_ON_DELETE]:
                values.append(None)
        elif last.key is None:
            raise UnreadableRecord("a row without a key cannot be deleted in TiCDC's protocol")
        for number, value in enumerate(values):
            yield self._record(topic, last, value, number)

    def tombstone(self, topic: str, record: TopicRecord) -> KeyedRecord:
        """Return the tombstone with which consumers forget a record's key in its partition."""
        return self._record(topic, record, None, 0)

    def _record(self, topic: str, last: TopicRecord, value: bytes | None, number: int) -> KeyedRecord:
        headers = [*self._headers]
        if self._id_prefix is not None:
            id_text = f"{self._id_prefix}/{topic}/{last.partition}@{last.offset}/{number}"
            headers.append(("cdc-id", id_text.encode()))
        # A null value has no schema (``IdHeaders``).
        names = (_KEY_SCHEMA,) if value is None else (_KEY_SCHEMA, _VALUE_SCHEMA)
        headers += [(name, guid) for name, guid in last.headers if name in names]
        return KeyedRecord(last.key, value, last.partition, headers)

    def _delete_event(self, last: TopicRecord) -> bytes:
        if last.value is None:
            raise UnreadableRecord("the last record is a tombstone")
        if self._avro is not None:
            return self._avro.edited(last.value, last.headers, lambda event: self._delete(event, typed=True))
        try:  # numbers keep their text
            document = json.loads(last.value, parse_int=RawJson, parse_float=RawJson, parse_constant=RawJson)
        except ValueError as error:
            raise UnreadableRecord(f"it is no JSON: {error}") from error
        typed = isinstance(document, dict) and document.keys() == {"schema", "payload"}
        self._delete(document["payload"] if typed else document, typed=typed)
        return dumps(document).encode()

    def _delete(self, event: Any, *, typed: bool) -> None:
        """Make the event of a row the event of its delete.

        Args:
            event: The event.
            typed: Whether it is written with its schema.
        """
        if not isinstance(event, dict) or not event.keys() >= _MEMBERS or not isinstance(event["source"], dict):
            raise UnreadableRecord("it is no change event")
        if event["after"] is not None:  # otherwise the last event is a delete already
            event["before"], event["after"] = event["after"], None
        now_ns = time.time_ns()
        times = {"ts_ms": now_ns // 1_000_000, "ts_us": now_ns // 1000, "ts_ns": now_ns}
        _set_members(event["source"], self._source_values(event["source"], typed=typed))
        _set_members(event, {"op": "d", "transaction": None, **times})

    def _source_values(self, source: Mapping[str, Any], *, typed: bool) -> Mapping[str, Any]:
        """Return the members that are those of an incremental snapshot's rows (``source_block.fill_snapshot``)."""
        position = self._position
        # Before Debezium 0.10 rows of a snapshot had no time.
        ts_ms = 0 if self._layout.flat_changes else position.ts_ms
        server_id, gtid = position.last_transaction
        is_boolean = typed and isinstance(source.get("snapshot"), bool)
        return {
            "ts_sec": ts_ms // 1000,
            "ts_ms": ts_ms,
            "ts_us": ts_ms * 1000,
            "ts_ns": ts_ms * 1_000_000,
            "snapshot": True if is_boolean else self._layout.snapshot_value(MARKER, typed=typed),
            "server_id": server_id,
            "gtid": gtid,
            "file": position.offset.file,
            "pos": position.offset.pos,
            "row": 0,
            "thread": None,
            "query": None,
        }


def _set_members(struct: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Give the members that a struct has other values."""
    struct.update((name, value) for name, value in values.items() if name in struct)
