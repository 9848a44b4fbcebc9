"""Drop events that a resumed snapshot has already seen.

A snapshot that was interrupted opens a new view for its remaining chunks. The drain then starts at the lowest position
of all views; for keys of a chunk read at a later position P', events up to P' are already contained in the chunk's rows
and are dropped (design, section 6).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.binlog.stream import Event
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.model.names import field_name
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, file_number
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk, literal
from airflow_provider_mysql_cdc.cdc.state.plan import BatchPlan

Record = tuple[bytes | None, bytes | None, int, int, Any]


@dataclass(slots=True)
class KeyFilters:
    """Decide for each record whether a later chunk contains it already.

    Args:
        cfg: For a connection to the source, which alone can compare character keys (its collation).
        chunks: Chunks read after the batch's start, with their positions.
        types: Per table the key columns' SQL types, to compare literals as the column would.
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
        return [r for r in records if not self._covered(table, chunks, r[0])]

    def _covered(self, table: TableId, chunks: list[SnapshotChunk], key: bytes | None) -> bool:
        if any(not c.columns or (c.low is None and c.high is None) for c in chunks):
            return True
        if key is None:
            return False
        payload = json.loads(key)
        payload = payload.get("payload", payload) if "schema" in payload else payload
        return any(self._contains(table, chunk, payload) for chunk in chunks)

    def _contains(self, table: TableId, chunk: SnapshotChunk, payload: dict[str, Any]) -> bool:
        mode = str(self.cfg[F.FIELD_NAME_ADJUSTMENT_MODE])
        values = [payload[field_name(c, mode)] for c in chunk.columns]
        if all(isinstance(v, int) for v in values):
            below = chunk.low is not None and tuple(values) <= chunk.low
            above = chunk.high is not None and tuple(values) > chunk.high
            return not below and not above
        return self._ask(table, chunk, values)

    def _ask(self, table: TableId, chunk: SnapshotChunk, values: list[Any]) -> bool:
        """Let MySQL compare, with the columns' own character set and collation.

        A UNION with the table's own columns gives the literals the columns' types without reading a row.
        """
        from airflow_provider_mysql_cdc.cdc.snapshot.chunk import predicate

        names = ", ".join("`" + c.replace("`", "``") + "`" for c in chunk.columns)
        shape = f"SELECT {names} FROM {table.quoted()} WHERE FALSE"
        row = "SELECT " + ", ".join(literal(v) for v in values)
        if self._conn is None:
            self._conn = connect(self.cfg.connection_settings())
        with self._conn.cursor() as cursor:
            cursor.execute(f"SELECT COUNT(*) FROM ({shape} UNION ALL {row}) AS k WHERE {predicate(chunk)}")
            return bool(cursor.fetchone()[0])
