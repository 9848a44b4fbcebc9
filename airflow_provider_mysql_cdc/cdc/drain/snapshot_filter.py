"""Drop events that a resumed snapshot has already seen.

A snapshot that was interrupted opens a new view for its remaining chunks. The drain then starts at the lowest position
of all views; for keys of a chunk read at a later position P', events up to P' are already contained in the chunk's rows
and are dropped (design, section 6).

A table may have had other names until that view, and other tables its name; so each chunk says under which names, from
where to where, events are its table's (``snapshot.remaining_chunks``).

Chunks are ranges of the table's own key. The key of an event may be another one (``message.key.columns``), may be shown
otherwise (converters), and may have changed since the snapshot; so rows are decoded once more for the chunk's columns,
into the written form that bounds have (``snapshot.key_kinds``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect, fetch_all
from airflow_provider_mysql_cdc.cdc.binlog.stream import Event
from airflow_provider_mysql_cdc.cdc.binlog.wire_types import TableMapLike
from airflow_provider_mysql_cdc.cdc.commit.plan import CHUNK_PREFIX, BatchPlan
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EnvelopeText
from airflow_provider_mysql_cdc.cdc.decode.codegen.event_context import EventContext
from airflow_provider_mysql_cdc.cdc.decode.decoders import compile_decoder
from airflow_provider_mysql_cdc.cdc.decode.tolerant_decoder import Tolerant
from airflow_provider_mysql_cdc.cdc.drain.chunk_lookup import HeldChunks
from airflow_provider_mysql_cdc.cdc.drain.chunk_visibility import NOT_KNOWN, CommittedBy, ReadAt, view_ms
from airflow_provider_mysql_cdc.cdc.errors import SchemaError
from airflow_provider_mysql_cdc.cdc.model.custom_column import CustomColumn
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.stored_record import stored_at
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import Bound, SnapshotChunk, key_kind
from airflow_provider_mysql_cdc.cdc.snapshot.chunk_records import held_back
from airflow_provider_mysql_cdc.cdc.snapshot.key_kinds import KeyKind, key_kind_of
from airflow_provider_mysql_cdc.cdc.snapshot.remaining_chunks import spans_from_json
from airflow_provider_mysql_cdc.cdc.snapshot.table_lineage import START

NEW_SNAPSHOT = (
    "give the batch up (mysql_cdc_reset_offset with current), then take a new snapshot (mysql_cdc_snapshot with "
    "again=true)"
)

Record = tuple[bytes | None, bytes | None, int, int, Any]
Columns = tuple[tuple[str, KeyKind], ...]
"""Columns that bound chunks, each with its kind."""


@dataclass(frozen=True, slots=True)
class RowsAt:
    """Say where the rows of an event stand.

    Args:
        event: The row event itself, not the one that commits it.
        pos: Offset of the first row.
        kind: 0 for written rows, 1 updated, 2 deleted, 3 partially updated.
    """

    event: Event
    pos: int
    kind: int


@dataclass(slots=True)
class KeyFilters:
    """Decide for each record whether a later chunk contains it already.

    Args:
        cfg: For a connection to the source, which alone can compare character keys (its collation).
        chunks: Chunks read after the batch's start, by each name that their tables had.
    """

    cfg: ConnectorConfig
    chunks: dict[TableId, list[HeldChunks]]
    _conn: Any = None
    _versions: dict[TableId, tuple[Table, TableMapLike]] = field(default_factory=dict)
    _decoders: dict[tuple[TableId, Columns], Tolerant] = field(default_factory=dict)

    @classmethod
    def from_chunks(
        cls, cfg: ConnectorConfig, records: Iterable[Mapping[str, Any]], plan: BatchPlan
    ) -> KeyFilters | None:
        """Return the filters a batch needs, or None when all chunks were read before its start.

        Args:
            cfg: The connector's configuration.
            records: Ledger records of the chunks that mean something for the stream (``read_at.filters_in_force``).
            plan: The batch.

        Raises:
            DamagedRecordError: One is not of its form.
        """
        reads: dict[tuple[BinlogOffset, int], ReadAt | None] = {}
        found: dict[TableId, dict[tuple[Any, ...], list[SnapshotChunk]]] = {}
        for record in records:
            with stored_at(f"topic {cfg.ledger_topic}, a record with key {CHUNK_PREFIX}..."):
                held_by = held_back(record)
                view = BinlogOffset.from_json(held_by["offset"]), view_ms(record)
                if view not in reads:
                    reads[view] = ReadAt.after(plan.start, *view)
                if reads[view] is not None:
                    chunk = SnapshotChunk.from_json(record["chunk"])
                    spans = spans_from_json(held_by.get("spans", ())) or ((chunk.table, START, None),)
                    for name, since, until in spans:
                        group = (chunk.table, view, since, until, held_by is not record)
                        found.setdefault(name, {}).setdefault(group, []).append(chunk)
        with stored_at(f"topic {cfg.ledger_topic}, records with keys {CHUNK_PREFIX}..."):
            held = {
                name: [
                    HeldChunks(chunks, read, since, until, gone=gone)
                    for (_, view, since, until, gone), chunks in groups.items()
                    if (read := reads[view]) is not None
                ]
                for name, groups in found.items()
            }
        return cls(cfg, held) if held else None

    def learn(self, table: Table, table_map: TableMapLike) -> None:
        """Prepare for the rows of a table version.

        Args:
            table: The table.
            table_map: The TABLE_MAP event that announces the rows.
        """
        if table.id in self.chunks:
            self._versions[table.id] = table, table_map
            self._decoders = {key: decoder for key, decoder in self._decoders.items() if key[0] != table.id}

    def _decoder(self, table_id: TableId, columns: Columns) -> Tolerant:
        """Return the decoder of the columns that bound chunks, which gives each key in its written form.

        Raises:
            SchemaError: One of them has another name or type by now.
        """
        found = self._decoders.get((table_id, columns))
        if found is not None:
            return found
        table, table_map = self._versions[table_id]
        names = tuple(name for name, _ in columns)
        conversions = []
        for name, kind in columns:
            here, column = key_kind_of(key_kind(table, name)), table.column(name)
            if column is None or here is None or here.family != kind.family:
                raise SchemaError(
                    "the snapshot's chunks cannot be compared with the table's events",
                    where=f"table {table.id}",
                    why=f"its chunks are bounded by {name} as {kind.name}, which the table did not have at this place"
                    + ("" if column is None else f": there it was {here.name if here else column.type_name}"),
                    remedy=NEW_SNAPSHOT,
                )
            conversions.append(_written(column.name, here))
        options = DecoderOptions(
            key_columns=names,
            included=(),
            tombstones=False,
            skipped_ops=frozenset(),
            conversions=tuple(conversions),
        )
        # Rows whose key cannot be decoded are in no chunk; the event's own decoder says what becomes of them.
        decoder = Tolerant(compile_decoder(table, table_map, options, EnvelopeText()), [])
        self._decoders[table_id, columns] = decoder
        return decoder

    def keep(
        self, table: TableId, records: list[Record], event: Event, rows: RowsAt, by: CommittedBy = NOT_KNOWN
    ) -> list[Record]:
        """Return the records that no later chunk contains.

        Args:
            table: The records' table.
            records: What the decoder made of the event.
            event: The row event, or the one that commits it.
            rows: Where its rows stand.
            by: The transaction that commits the rows.
        """
        for held in self.chunks.get(table, ()):
            if not records or not held.contains(event, by):
                continue
            if held.everything:
                return []
            try:
                keys = self._own_keys(table, tuple(zip(held.columns, held.kinds, strict=True)), records, rows)
            except SchemaError:
                # The key was changed before the rows went: what is not known to be of them is told.
                if held.gone:
                    continue
                raise
            inside = held.holding({key: self._values(key, held, event) for key in keys if key is not None}, self._ask)
            records = [r for key, r in zip(keys, records, strict=True) if key not in inside]
        return records

    def _own_keys(self, table: TableId, columns: Columns, records: list[Record], rows: RowsAt) -> list[bytes | None]:
        """Return for each record the key that its row has in the chunks.

        A delete that stands for a changed key speaks of the row as it was before, every other record of an UPDATE of
        the row as it is afterwards.
        """
        decoder = self._decoder(table, columns)
        made: list[Record] = []
        decode = (decoder.write, decoder.update, decoder.delete, decoder.partial_update)[rows.kind]
        decode(rows.event.buf, rows.pos, rows.event.end, EventContext(), made)
        before = {row: key for key, _, row, leg, _ in made if leg == 0}
        after = {row: key for key, _, row, _, _ in made}
        changed = {row for _, _, row, leg, _ in records if leg == 2}
        return [
            (before if leg == 1 or (leg == 0 and row in changed) else after).get(row) for _, _, row, leg, _ in records
        ]

    def _values(self, key: bytes, held: HeldChunks, event: Event) -> Bound:
        """Return a key's values in their written form.

        Raises:
            SchemaError: One has another form, so that nothing could be said of its place.
        """
        shown = json.loads(key)
        out = []
        for kind, text in zip(held.kinds, shown.values(), strict=True):
            value = int(text) if kind.form(0) else text
            if not kind.form(value):
                raise SchemaError(
                    "a key of an event cannot be compared with the snapshot's chunks",
                    where=f"table {held.chunks[0].table}, {event.where()}",
                    why=f"it does not look like {kind.name}",
                    remedy=NEW_SNAPSHOT + "; and report the definition",
                )
            out.append(value)
        return tuple(out)

    def _ask(self, sql: str) -> list[tuple[Any, ...]]:
        if self._conn is None:
            self._conn = connect(self.cfg.connection_settings())
        return fetch_all(self._conn, sql)

    def close(self) -> None:
        """Close the connection to the source, if one was needed."""
        if self._conn is not None:
            self._conn.close()
            self._conn = None


def _written(column: str, kind: KeyKind) -> tuple[str, CustomColumn]:
    def convert(value: object) -> str:
        return str(kind.of_plain(value))

    return column, CustomColumn(column, "the written form of a key", convert, "string")
