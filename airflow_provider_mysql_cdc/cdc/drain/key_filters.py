"""Drop events that a resumed snapshot has already seen.

A snapshot that was interrupted opens a new view for its remaining chunks. The drain then starts at the lowest position
of all views; for keys of a chunk read at a later position P', events up to P' are already contained in the chunk's rows
and are dropped (design, section 6).

A table may have had other names until that view, and other tables its name; so each chunk says under which names, from
where to where, events are its table's (``snapshot.resume``).

Chunks are ranges of the table's own key. The key of an event may be another one (``message.key.columns``), may be shown
otherwise (converters), and may have changed since the snapshot; so rows are decoded once more for the chunk's columns.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect, fetch_all
from airflow_provider_mysql_cdc.cdc.binlog.stream import Event
from airflow_provider_mysql_cdc.cdc.commit.plan import CHUNK_PREFIX, BatchPlan
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.decode.compile import compile_decoder
from airflow_provider_mysql_cdc.cdc.decode.context import EventContext
from airflow_provider_mysql_cdc.cdc.decode.options import DecoderOptions, EnvelopeText
from airflow_provider_mysql_cdc.cdc.decode.tolerant import Tolerant
from airflow_provider_mysql_cdc.cdc.decode.wire_types import TableMapLike
from airflow_provider_mysql_cdc.cdc.drain.read_at import ReadAt
from airflow_provider_mysql_cdc.cdc.errors import SchemaError, StateError
from airflow_provider_mysql_cdc.cdc.model.avro_names import field_name
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, file_number
from airflow_provider_mysql_cdc.cdc.model.stored import stored_at
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId, quote_name
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import (
    SIGNED,
    UNSIGNED,
    KeyValue,
    SnapshotChunk,
    predicate,
    typed_literal,
)
from airflow_provider_mysql_cdc.cdc.snapshot.resume import spans_from_json
from airflow_provider_mysql_cdc.cdc.snapshot.table_life import START, Place

Record = tuple[bytes | None, bytes | None, int, int, Any]


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


@dataclass(frozen=True, slots=True)
class HeldChunk:
    """Hold a chunk whose rows contain the events of a name between two places of the binlog.

    Args:
        chunk: The chunk.
        read: The view that it was read in.
        since: The place after which the name was the table's.
        until: The place up to which it was; None for the view.
    """

    chunk: SnapshotChunk
    read: ReadAt
    since: Place = START
    until: Place | None = None

    def contains(self, event: Event, gtid: str | None) -> bool:
        """Return whether the chunk's rows contain a transaction's changes of the name.

        Args:
            event: An event of it.
            gtid: Its GTID, or None.

        Raises:
            StateError: The table was renamed between two views, and the stream is read on another server.
        """
        if not self.read.contains(event, gtid):
            return False
        if self.since == START and self.until is None:
            return True
        if self.read.gtids is not None:
            raise StateError(
                "which table a name meant cannot be told on this server",
                where=f"table {self.chunk.table}, {event.where()}",
                why="the table was renamed between two views of its snapshot, and places of binlog files mean nothing "
                "on another server",
                remedy="set database.hostname to the snapshot's server until the drain has passed "
                f"{self.read.offset}; or give it up (DAG mysql_cdc_reset_offset with current) and take a new snapshot",
            )
        here = (file_number(event.file), event.end_pos)
        return self.since < here and (self.until is None or here <= self.until)


ASK_AT_ONCE = 100
"""Keys in one question to the server; with the longest keys that is 1 MB of SQL."""


@dataclass(slots=True)
class KeyFilters:
    """Decide for each record whether a later chunk contains it already.

    Args:
        cfg: For a connection to the source, which alone can compare character keys (its collation).
        chunks: Chunks read after the batch's start, by each name that their tables had.
    """

    cfg: ConnectorConfig
    chunks: dict[TableId, list[HeldChunk]]
    _conn: Any = None
    _versions: dict[TableId, tuple[Table, TableMapLike]] = field(default_factory=dict)
    _decoders: dict[tuple[TableId, tuple[str, ...]], Tolerant] = field(default_factory=dict)

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
        found: dict[TableId, list[HeldChunk]] = {}
        for record in records:
            with stored_at(f"topic {cfg.ledger_topic}, a record with key {CHUNK_PREFIX}..."):
                read = ReadAt.after(plan.start, BinlogOffset.from_json(record["offset"]))
                if read is not None:
                    chunk = SnapshotChunk.from_json(record["chunk"])
                    spans = spans_from_json(record.get("spans", ())) or ((chunk.table, START, None),)
                    for name, since, until in spans:
                        found.setdefault(name, []).append(HeldChunk(chunk, read, since, until))
        return cls(cfg, found) if found else None

    def learn(self, table: Table, table_map: TableMapLike) -> None:
        """Prepare for the rows of a table version.

        Args:
            table: The table.
            table_map: The TABLE_MAP event that announces the rows.
        """
        if table.id in self.chunks:
            self._versions[table.id] = table, table_map
            self._decoders = {key: decoder for key, decoder in self._decoders.items() if key[0] != table.id}

    def _decoder(self, table_id: TableId, columns: tuple[str, ...]) -> Tolerant:
        """Return the decoder of the columns that bound a chunk.

        Raises:
            SchemaError: One of them has another name by now.
        """
        found = self._decoders.get((table_id, columns))
        if found is not None:
            return found
        table, table_map = self._versions[table_id]
        if missing := [name for name in columns if table.column(name) is None]:
            raise SchemaError(
                "the snapshot's chunks cannot be compared with the table's events",
                where=f"table {table.id}",
                why=f"its chunks are bounded by {', '.join(missing)}, which the table did not have at this place",
                remedy="take a new snapshot (mysql_cdc_snapshot with again=true)",
            )
        options = DecoderOptions(key_columns=columns, included=(), tombstones=False, skipped_ops=frozenset())
        # Rows whose key cannot be decoded are in no chunk; the event's own decoder says what becomes of them.
        decoder = Tolerant(compile_decoder(table, table_map, options, EnvelopeText()), [])
        self._decoders[table_id, columns] = decoder
        return decoder

    def keep(
        self, table: TableId, records: list[Record], event: Event, rows: RowsAt | None = None, gtid: str | None = None
    ) -> list[Record]:
        """Return the records that no later chunk contains.

        Args:
            table: The records' table.
            records: What the decoder made of the event.
            event: The row event, or the one that commits it.
            rows: Where its rows stand; None when the records' keys hold the chunk's columns.
            gtid: GTID of the transaction that commits the rows, or None.
        """
        chunks = [held.chunk for held in self.chunks.get(table, ()) if held.contains(event, gtid)]
        if any(not c.columns or (c.low is None and c.high is None) for c in chunks):
            return []
        for columns in dict.fromkeys(c.columns for c in chunks):
            keys = [r[0] for r in records] if rows is None else self._own_keys(table, columns, records, rows)
            left = {key: _payload(key) for key in keys if key is not None}
            for chunk in (c for c in chunks if c.columns == columns):
                for key in self._held(chunk, left, adjusted=rows is None):
                    del left[key]
            records = [r for key, r in zip(keys, records, strict=True) if key is None or key in left]
        return records

    def _own_keys(
        self, table: TableId, columns: tuple[str, ...], records: list[Record], rows: RowsAt
    ) -> list[bytes | None]:
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

    def close(self) -> None:
        """Close the connection to the source, if one was needed."""
        if self._conn is not None:
            self._conn.close()
            self._conn = None

    def _held(self, chunk: SnapshotChunk, keys: Mapping[bytes, dict[str, Any]], *, adjusted: bool) -> list[bytes]:
        """Return those of some keys that lie in a chunk."""
        mode = str(self.cfg[F.FIELD_NAME_ADJUSTMENT_MODE]) if adjusted else "none"
        kinds = chunk.kinds or (SIGNED,) * len(chunk.columns)
        names = [field_name(c, mode) for c in chunk.columns]
        values = {
            key: tuple(_column_value(payload[name], kind) for name, kind in zip(names, kinds, strict=True))
            for key, payload in keys.items()
        }
        if all(kind in (SIGNED, UNSIGNED) for kind in kinds):
            return [key for key, value in values.items() if _between(chunk, value)]
        every = list(values)
        return [every[i] for start in range(0, len(every), ASK_AT_ONCE) for i in self._ask(chunk, values, every, start)]

    def _ask(
        self, chunk: SnapshotChunk, values: Mapping[bytes, tuple[KeyValue, ...]], every: list[bytes], start: int
    ) -> Iterator[int]:
        """Let MySQL compare, with the columns' own character set and collation; the table itself is not touched."""
        number = "n"
        while number in (c.lower() for c in chunk.columns):
            number += "_"
        names = [f"`{number}`", *map(quote_name, chunk.columns)]
        rows = []
        for i, key in enumerate(every[start : start + ASK_AT_ONCE], start):
            given = [str(i), *(typed_literal(v, k) for v, k in zip(values[key], chunk.kinds, strict=True))]
            rows.append("SELECT " + ", ".join(f"{v} AS {n}" for v, n in zip(given, names, strict=True)))
        if self._conn is None:
            self._conn = connect(self.cfg.connection_settings())
        union = " UNION ALL ".join(rows)
        for row in fetch_all(self._conn, f"SELECT {names[0]} FROM ({union}) AS k WHERE {predicate(chunk)}"):
            yield int(row[0])


def _payload(key: bytes) -> dict[str, Any]:
    payload: dict[str, Any] = json.loads(key)
    return payload["payload"] if set(payload) == {"schema", "payload"} else payload


def _column_value(shown: Any, kind: str) -> KeyValue:
    """Return a column's value from what an event's key shows of it.

    BIGINT UNSIGNED is shown as Java's long, whose upper half is negative, or as the bytes of a decimal
    (bigint.unsigned.handling.mode).
    """
    if kind not in (SIGNED, UNSIGNED):
        return str(shown)
    number = int.from_bytes(base64.b64decode(shown), "big", signed=True) if isinstance(shown, str) else int(shown)
    return number + 2**64 if kind == UNSIGNED and number < 0 else number


def _between(chunk: SnapshotChunk, values: tuple[KeyValue, ...]) -> bool:
    below = chunk.low is not None and values <= chunk.low
    above = chunk.high is not None and values > chunk.high
    return not below and not above
