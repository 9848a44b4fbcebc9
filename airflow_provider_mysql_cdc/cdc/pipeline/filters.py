"""Drop events that a resumed snapshot has already seen.

A snapshot that was interrupted opens a new view for its remaining chunks. The drain then starts at the lowest position
of all views; for keys of a chunk read at a later position P', events up to P' are already contained in the chunk's rows
and are dropped (design, section 6).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect, fetch_all
from airflow_provider_mysql_cdc.cdc.binlog.stream import Event
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.model.names import field_name
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, file_number
from airflow_provider_mysql_cdc.cdc.model.table import TableId, quote_name
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import (
    SIGNED,
    UNSIGNED,
    KeyValue,
    SnapshotChunk,
    predicate,
    typed_literal,
)
from airflow_provider_mysql_cdc.cdc.state.plan import BatchPlan

Record = tuple[bytes | None, bytes | None, int, int, Any]
ASK_AT_ONCE = 100
"""Keys in one question to the server; with the longest keys that is 1 MB of SQL."""


@dataclass(slots=True)
class KeyFilters:
    """Decide for each record whether a later chunk contains it already.

    Args:
        cfg: For a connection to the source, which alone can compare character keys (its collation).
        chunks: Chunks read after the batch's start, with their positions.
    """

    cfg: ConnectorConfig
    chunks: dict[TableId, list[tuple[SnapshotChunk, tuple[int, int]]]]
    _conn: Any = None

    @classmethod
    def from_snapshot(cls, cfg: ConnectorConfig, snapshot: dict[str, Any] | None, plan: BatchPlan) -> KeyFilters | None:
        """Return the filters a batch needs, or None when all chunks were read before its start."""
        found: dict[TableId, list[tuple[SnapshotChunk, tuple[int, int]]]] = {}
        for entry in (snapshot or {}).get("filters", []):
            position = BinlogOffset.from_json(entry["offset"])
            if position.key() > plan.start.key():
                chunk = SnapshotChunk.from_json(entry["chunk"])
                found.setdefault(chunk.table, []).append((chunk, position.key()))
        return cls(cfg, found) if found else None

    def keep(self, table: TableId, records: list[Record], event: Event) -> list[Record]:
        """Return the records that no later chunk contains.

        Args:
            table: The records' table.
            records: What the decoder made of the event.
            event: The row event.
        """
        here = (file_number(event.file), event.end_pos)
        chunks = [chunk for chunk, position in self.chunks.get(table, ()) if here <= position]
        if not chunks:
            return records
        if any(not c.columns or (c.low is None and c.high is None) for c in chunks):
            return []
        left = {r[0]: _payload(r[0]) for r in records if r[0] is not None}
        for chunk in chunks:
            for key in self._held(chunk, left):
                del left[key]
        return [r for r in records if r[0] is None or r[0] in left]

    def close(self) -> None:
        """Close the connection to the source, if one was needed."""
        if self._conn is not None:
            self._conn.close()
            self._conn = None

    def _held(self, chunk: SnapshotChunk, keys: Mapping[bytes, dict[str, Any]]) -> list[bytes]:
        """Return those of some keys that lie in a chunk."""
        mode = str(self.cfg[F.FIELD_NAME_ADJUSTMENT_MODE])
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
