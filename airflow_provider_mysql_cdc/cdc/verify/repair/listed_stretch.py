"""A stretch of a window that is a list of keys: what is written of each, delete events for ghosts included.

A stretch of a window that is a list of keys: which of the rows read are theirs, and what is written of each key.

The window's view is at the end of its batch, and nobody writes behind the batch until the stretch is committed or
fenced off. So the row of a key is written as the view shows it, and where the view has none, its delete: neither
overtakes a later change. With ``message.key.columns`` a row may have the record key of a ghost: deletes and tombstones
are before all rows, and a row that has such a key is written behind them though nothing is wrong with it.

Delete events for ghosts: rows that a topic still has and the table has not.

The event is made of the topic's own last record of the key, in its format and with its schema: ``before`` is what that
record has as ``after``, and the source block says that a window read the table at a position, as it does for rows of an
incremental snapshot. In TiCDC's protocol a delete is a record without a value.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.convert.json_text import RawJson, dumps
from airflow_provider_mysql_cdc.cdc.emit.contracts import contract
from airflow_provider_mysql_cdc.cdc.model.records import Headers
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord
from airflow_provider_mysql_cdc.cdc.snapshot.range_writer import KeyedRecord, ViewPosition
from airflow_provider_mysql_cdc.cdc.snapshot.rows import RowBlock
from airflow_provider_mysql_cdc.cdc.verify.compare.event_entries import row_entry
from airflow_provider_mysql_cdc.cdc.verify.read.avro_events import AvroPart, LookupSchema
from airflow_provider_mysql_cdc.cdc.verify.read.event_record import EventReader, Row, UnreadableRecord, row_values
from airflow_provider_mysql_cdc.cdc.verify.read.row_records import RowRecords, WrittenRow, settled_header
from airflow_provider_mysql_cdc.cdc.verify.repair.listed_keys import Kinds, ListedKey
from airflow_provider_mysql_cdc.cdc.verify.report.verdict_records import hide_in_row
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import DifferenceKind
from airflow_provider_mysql_cdc.cdc.verify.structures.compared_table import ComparedTable

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


@dataclass(slots=True)
class ListedStretch:
    """Choose the rows of listed keys, and make the other records.

    Args:
        compared: The table.
        reader: Reads the topic's records.
        records: Writes rows as records.
        deletes: Makes deletes and tombstones.
        repaired: Number of differences that are repaired when the stretch is committed, by kind.
        left: Keys whose rows need a header of their own, so that each is a stretch by itself.
        reasons: What cannot be repaired, and why, one sentence each.
    """

    cfg: ConnectorConfig
    compared: ComparedTable
    keys: Sequence[ListedKey]
    reader: EventReader
    records: RowRecords
    deletes: GhostDeletes
    repaired: Counter[DifferenceKind] = field(default_factory=Counter)
    left: list[ListedKey] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    _found: dict[bytes, list[WrittenRow]] = field(default_factory=dict)
    _order: list[bytes] = field(default_factory=list)
    _holders: dict[bytes, bytes] = field(default_factory=dict)
    _chosen: Counter[bytes] = field(default_factory=Counter)

    def record_keys(self) -> dict[bytes, Row]:
        """Return the record keys that may be deleted and that other rows may have, with their fields."""
        if self.compared.own_key or self.compared.keyless:
            return {}
        records = (record for key in self.keys for record in (*key.records, key.last) if record is not None)
        found = dict[bytes, Row]()
        for record in records:
            with suppress(UnreadableRecord):
                if record.key is not None and (fields := self._key_fields(record.key, record.headers)) is not None:
                    found[record.key] = fields
        return found

    def _key_fields(self, key: bytes, headers: Headers) -> Row | None:
        return self.reader.read(key, None, headers).key

    def listed_rows(self, blocks: Iterable[RowBlock]) -> Iterator[RowBlock]:
        """Yield the rows of the listed keys, one by one, and of each record key that may be deleted one."""
        self._found, self._order, self._holders = {}, [], {}
        self.records.errors.clear()
        wanted, record_keys = {key.row for key in self.keys}, self.record_keys()
        for block in blocks:
            for packet, row in self._written(block):
                key, value, partition, headers = row
                entry = row_entry(self.compared, self.reader.read(key, value, headers), partition)
                holds = key is not None and key in record_keys and key not in self._holders
                if holds and key is not None:
                    self._holders[key] = entry.key
                if entry.key in wanted:
                    self._found.setdefault(entry.key, []).append((key, entry.value, partition, headers))
                if holds or entry.key in wanted:
                    self._order.append(entry.key)
                    yield RowBlock(1, packet, large=True)

    def _written(self, block: RowBlock) -> Iterator[tuple[bytes, WrittenRow]]:
        """Yield rows and their records; rows that no record can be made of are left out."""
        errors = len(self.records.errors)
        rows = list(self.records.of_block(block))
        if len(rows) == block.rows:
            yield from zip(block, rows, strict=True)
            return
        del self.records.errors[errors:]  # the rows are written once more, one by one
        for packet in block:
            for row in self.records.of_block(RowBlock(1, packet, large=True)):
                yield packet, row

    def first_records(self) -> Iterator[KeyedRecord]:
        """Yield deletes and tombstones, and choose the rows that are written behind them."""
        self.repaired, self._chosen, self.left, self.reasons = Counter(), Counter(), [], []
        if errors := self.records.errors:
            self.reasons.append(f"{len(errors):,} rows cannot be read: {errors[0].message()}")
        gone = same = 0
        for key in self.keys:
            try:
                records, kinds = self._of_key(key)
            except UnreadableRecord as error:
                self.reasons.append(str(error))
                continue
            gone += 0 if kinds is not None else sum(key.kinds.values())
            same += sum(key.kinds.values()) if kinds == {} and key not in self.left else 0
            self.repaired.update(kinds or {})
            for record in records:
                if record.key is not None and (holder := self._holders.get(record.key)) is not None:
                    self._chosen[holder] = 1
                yield record
        if same:
            self.reasons.append(f"{same:,} no longer differ: the table in the source is as the topic says")
        if gone:
            self.reasons.append(f"{gone:,} have records with an earlier key of the table, or none any longer")

    def chosen_rows(self, blocks: Iterable[RowBlock]) -> Iterator[RowBlock]:
        """Yield the rows that are written, of those that ``listed_rows`` has yielded."""
        for identity, block in zip(self._order, blocks, strict=True):
            if self._chosen[identity] > 0:
                self._chosen[identity] -= 1
                yield block

    def _of_key(self, key: ListedKey) -> tuple[list[KeyedRecord], Kinds | None]:
        """Return what is written before the rows of a key, and the differences that it repairs; None without records.

        Raises:
            UnreadableRecord: The key cannot be repaired.
        """
        found = [] if key.row is None else self._found.get(key.row, [])
        if key.equal is not None:
            return self._of_equal_rows(key, len(found))
        if len(found) > 1:
            assert key.row is not None
            why = f"{len(found)} rows have the same key in records: {self._key_text(key.row)}"
            raise UnreadableRecord(f"{why}; choose a form of the key that tells them apart")
        kinds = key.kinds_left(found[0][1] if found else None)
        if not found or not kinds:
            return self._delete(key, kinds) if kinds else ([], {})
        if key.settled and len(self.keys) > 1:
            self.left.append(key)
            return [], {}
        ((row_key, _, partition, headers),) = found
        others = key.others(partition, row_key)
        if self.cfg.is_ticdc and any(record.partition != partition for record in others):
            # There a record without a value is a delete, and readers of several partitions cannot tell it from others.
            place = f"[{others[0].partition}]@{others[0].offset}"
            raise UnreadableRecord(f"a record in another partition than that of its row stays: {place}")
        self._chosen[key.row or b""] = 1
        moved = self._deletes_of(key.last) if key.last is not None and self._has_moved(key, row_key, headers) else []
        return [*moved, *(self.deletes.tombstone(self.compared.topic, record) for record in others)], kinds

    def _has_moved(self, key: ListedKey, row_key: bytes | None, headers: Headers) -> bool:
        """Return whether a row's last event has other values of message.key.columns than the row."""
        last = key.last
        if self.compared.own_key or key.event_row is None or last is None or last.key is None or row_key is None:
            return False
        return self._key_fields(last.key, last.headers) != self._key_fields(row_key, headers)

    def _delete(self, key: ListedKey, kinds: Kinds) -> tuple[list[KeyedRecord], Kinds | None]:
        if self.records.errors and key.row is not None:
            raise UnreadableRecord(f"its row may be one that cannot be read: {self._key_text(key.row)}")
        topic, last = self.compared.topic, key.last
        if last is None:
            # The row of an event without a key is deleted behind it, without one.
            last = next((record for record in reversed(key.records) if record.key is None), None)
        others = key.others() if last is None else key.others(last.partition, last.key)
        if last is None and not others:
            return [], None
        deletes = [] if last is None else self._deletes_of(last)
        more = settled_header(key.settled)
        deletes = [record._replace(headers=[*record.headers, *more]) for record in deletes]
        return [*(self.deletes.tombstone(topic, record) for record in others), *deletes], kinds

    def _deletes_of(self, last: TopicRecord) -> list[KeyedRecord]:
        try:
            return list(self.deletes.records(self.compared.topic, last))
        except UnreadableRecord as error:
            place = f"{self.compared.topic}[{last.partition}]@{last.offset}"
            raise UnreadableRecord(
                f"the row of {self.compared.table.id} at {place} cannot be deleted: {error}"
            ) from error

    def _of_equal_rows(self, key: ListedKey, rows: int) -> tuple[list[KeyedRecord], Kinds]:
        assert key.row is not None and key.equal is not None
        surplus = key.equal.count - rows
        if surplus < 0:
            self._chosen[key.row] = -surplus
            return [], {DifferenceKind.MISSING: -surplus}
        if not surplus:
            return [], {}
        last = key.equal.records[-surplus:]
        return [delete for record in last for delete in self._deletes_of(record)], {DifferenceKind.GHOST: len(last)}

    def _key_text(self, identity: bytes) -> str:
        """Return a key as text, without values that must not be shown."""
        return json.dumps(hide_in_row(self.cfg, self.compared.table.id, row_values(identity)), ensure_ascii=False)
