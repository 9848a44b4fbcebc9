"""Drop events that a resumed snapshot already contains.

A snapshot that was interrupted opens a new view for its remaining chunks. The drain then starts at the lowest position
of all views; for keys of a chunk read at a later position P', events up to P' are already contained in the chunk's rows
and are dropped (design, section 6).

Until that view the table may have had other names, and its name may have been another table's; so each chunk records
under which names, between which positions, events are its table's (``snapshot.remaining_chunks``).

Chunks are ranges of the table's own key. The key of an event may have other columns (``message.key.columns``), other
values (converters), and may have changed since the snapshot; so rows are decoded a second time for the chunk's columns,
into the written form of chunk bounds (``snapshot.key_kinds``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect, fetch_all
from airflow_provider_mysql_cdc.cdc.binlog.stream import Event
from airflow_provider_mysql_cdc.cdc.binlog.wire_types import TableMapLike
from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import CHUNK_PREFIX
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText
from airflow_provider_mysql_cdc.cdc.decode.codegen.event_context import EventContext
from airflow_provider_mysql_cdc.cdc.decode.decoders import compile_decoder
from airflow_provider_mysql_cdc.cdc.decode.tolerant_decoder import TolerantDecoder
from airflow_provider_mysql_cdc.cdc.drain.chunk_lookup import ChunkLookup
from airflow_provider_mysql_cdc.cdc.drain.chunk_visibility import (
    UNKNOWN_TRANSACTION,
    ChunkVisibility,
    CommittingTransaction,
    view_time_ms,
)
from airflow_provider_mysql_cdc.cdc.errors import SchemaError
from airflow_provider_mysql_cdc.cdc.model.custom_column import CustomColumn
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.records import CHANGE, NEW_KEY, TOMBSTONE, RowRecord
from airflow_provider_mysql_cdc.cdc.model.stored_record import record_location
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import Bound, SnapshotChunk, key_kind
from airflow_provider_mysql_cdc.cdc.snapshot.chunk_records import contained_event_range
from airflow_provider_mysql_cdc.cdc.snapshot.key_kinds import KeyColumnKind, key_kind_of
from airflow_provider_mysql_cdc.cdc.snapshot.remaining_chunks import spans_from_json
from airflow_provider_mysql_cdc.cdc.snapshot.table_lineage import START

NEW_SNAPSHOT = (
    "give the batch up (mysql_cdc_reset_offset with current), then take a new snapshot (mysql_cdc_snapshot with "
    "again=true)"
)

BoundColumns = tuple[tuple[str, KeyColumnKind], ...]
"""Columns that bound chunks, each with its kind."""


@dataclass(frozen=True, slots=True)
class EventRows:
    """Locate the rows of an event.

    Args:
        event: The row event itself, not the one that commits it.
        pos: Offset of the first row.
        operation: 0 for written rows, 1 updated, 2 deleted, 3 partially updated.
    """

    event: Event
    pos: int
    operation: int


@dataclass(slots=True)
class SnapshotFilter:
    """Decide for each record whether a chunk that was read later contains it already.

    Args:
        cfg: For a connection to the source, which alone can compare character keys (by its collations).
        lookups: Chunks read after the batch's start, by each name that their tables had.
    """

    cfg: ConnectorConfig
    lookups: dict[TableId, list[ChunkLookup]]
    _conn: Any = None
    _table_versions: dict[TableId, tuple[Table, TableMapLike]] = field(default_factory=dict)
    _decoders: dict[tuple[TableId, BoundColumns], TolerantDecoder] = field(default_factory=dict)

    @classmethod
    def from_chunks(
        cls, cfg: ConnectorConfig, records: Iterable[Mapping[str, Any]], plan: BatchPlan
    ) -> SnapshotFilter | None:
        """Return the filters a batch needs, or None when all chunks were read before its start.

        Args:
            cfg: The connector's configuration.
            records: Ledger records of the chunks that may contain events of the stream
                (``chunk_visibility.active_filters``).
            plan: The batch.

        Raises:
            DamagedRecordError: One cannot be read.
        """
        visibilities: dict[tuple[BinlogOffset, int], ChunkVisibility | None] = {}
        chunks_by_name: dict[TableId, dict[tuple[Any, ...], list[SnapshotChunk]]] = {}
        for record in records:
            with record_location(f"topic {cfg.ledger_topic}, a record with key {CHUNK_PREFIX}..."):
                event_range = contained_event_range(record)
                view = BinlogOffset.from_json(event_range["offset"]), view_time_ms(record)
                if view not in visibilities:
                    visibilities[view] = ChunkVisibility.for_stream(plan.start, *view)
                if visibilities[view] is not None:
                    chunk = SnapshotChunk.from_json(record["chunk"])
                    spans = spans_from_json(event_range.get("spans", ())) or ((chunk.table, START, None),)
                    for name, since, until in spans:
                        group = (chunk.table, view, since, until, event_range is not record)
                        chunks_by_name.setdefault(name, {}).setdefault(group, []).append(chunk)
        with record_location(f"topic {cfg.ledger_topic}, records with keys {CHUNK_PREFIX}..."):
            lookups = {
                name: [
                    ChunkLookup(chunks, read, since, until, dropped=gone)
                    for (_, view, since, until, gone), chunks in groups.items()
                    if (read := visibilities[view]) is not None
                ]
                for name, groups in chunks_by_name.items()
            }
        return cls(cfg, lookups) if lookups else None

    def prepare_table(self, table: Table, table_map: TableMapLike) -> None:
        """Prepare for the rows of a table version.

        Args:
            table: The table.
            table_map: The TABLE_MAP event that announces the rows.
        """
        if table.id in self.lookups:
            self._table_versions[table.id] = table, table_map
            self._decoders = {key: decoder for key, decoder in self._decoders.items() if key[0] != table.id}

    def _decoder(self, table_id: TableId, columns: BoundColumns) -> TolerantDecoder:
        """Return the decoder of the columns that bound chunks, which writes each key in its written form.

        Raises:
            SchemaError: One of them has another name or type now.
        """
        cached = self._decoders.get((table_id, columns))
        if cached is not None:
            return cached
        table, table_map = self._table_versions[table_id]
        names = tuple(name for name, _ in columns)
        conversions = []
        for name, kind in columns:
            current_kind, column = key_kind_of(key_kind(table, name)), table.column(name)
            if column is None or current_kind is None or current_kind.family != kind.family:
                raise SchemaError(
                    "the snapshot's chunks cannot be compared with the table's events",
                    where=f"table {table.id}",
                    why=f"its chunks are bounded by {name} as {kind.name}; the table did not have it at this position"
                    + (
                        ""
                        if column is None
                        else f": there it was {current_kind.name if current_kind else column.type_name}"
                    ),
                    remedy=NEW_SNAPSHOT,
                )
            conversions.append(_key_conversion(column.name, current_kind))
        options = DecoderOptions(
            key_columns=names,
            included=(),
            tombstones=False,
            skipped_ops=frozenset(),
            conversions=tuple(conversions),
        )
        # Rows whose key cannot be decoded are in no chunk; the event's own decoder handles them.
        decoder = TolerantDecoder(compile_decoder(table, table_map, options, EnvelopeText()), [])
        self._decoders[table_id, columns] = decoder
        return decoder

    def outside_chunks(
        self,
        table: TableId,
        records: list[RowRecord],
        event: Event,
        rows: EventRows,
        transaction: CommittingTransaction = UNKNOWN_TRANSACTION,
    ) -> list[RowRecord]:
        """Return the records that no later chunk contains.

        Args:
            table: The records' table.
            records: What the decoder produced of the event.
            event: The row event, or the one that commits it.
            rows: Where its rows are.
            transaction: The transaction that commits the rows.
        """
        for lookup in self.lookups.get(table, ()):
            if not records or not lookup.contains(event, transaction):
                continue
            if lookup.whole_table:
                return []
            try:
                keys = self._chunk_keys(table, tuple(zip(lookup.columns, lookup.kinds, strict=True)), records, rows)
            except SchemaError:
                # The key was changed before the rows were deleted: events that may not be theirs are kept.
                if lookup.dropped:
                    continue
                raise
            inside = lookup.matching_keys(
                {key: self._key_values(key, lookup, event) for key in keys if key is not None}, self._run_query
            )
            records = [r for key, r in zip(keys, records, strict=True) if key not in inside]
        return records

    def _chunk_keys(
        self, table: TableId, columns: BoundColumns, records: list[RowRecord], rows: EventRows
    ) -> list[bytes | None]:
        """Return for each record the key that its row has in the chunks.

        Of an UPDATE that changes the key, the delete record is about the row before the update; every other record is
        about the row after it.
        """
        decoder = self._decoder(table, columns)
        decoded: list[RowRecord] = []
        decode = (decoder.write, decoder.update, decoder.delete, decoder.partial_update)[rows.operation]
        decode(rows.event.buf, rows.pos, rows.event.end, EventContext(), decoded)
        before = {row: key for key, _, row, number, *_ in decoded if number == CHANGE}
        after = {row: key for key, _, row, *_ in decoded}
        changed = {row for _, _, row, number, *_ in records if number == NEW_KEY}
        return [
            (before if number == TOMBSTONE or (number == CHANGE and row in changed) else after).get(row)
            for _, _, row, number, *_ in records
        ]

    def _key_values(self, key: bytes, lookup: ChunkLookup, event: Event) -> Bound:
        """Return a key's values in their written form.

        Raises:
            SchemaError: One has another form, so that it cannot be compared with chunk bounds.
        """
        parsed = json.loads(key)
        values = []
        for kind, text in zip(lookup.kinds, parsed.values(), strict=True):
            value = int(text) if kind.is_written_form(0) else text
            if not kind.is_written_form(value):
                raise SchemaError(
                    "a key of an event cannot be compared with the snapshot's chunks",
                    where=f"table {lookup.chunks[0].table}, {event.where()}",
                    why=f"it is not written as {kind.name}",
                    remedy=NEW_SNAPSHOT + "; and report the definition",
                )
            values.append(value)
        return tuple(values)

    def _run_query(self, sql: str) -> list[tuple[Any, ...]]:
        if self._conn is None:
            self._conn = connect(self.cfg.connection_settings())
        return fetch_all(self._conn, sql)

    def close(self) -> None:
        """Close the connection to the source, if one was needed."""
        if self._conn is not None:
            self._conn.close()
            self._conn = None


def _key_conversion(column: str, kind: KeyColumnKind) -> tuple[str, CustomColumn]:
    def convert(value: object) -> str:
        return str(kind.from_plain(value))

    return column, CustomColumn(column, "the written form of a key", convert, "string")
