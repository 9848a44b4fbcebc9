"""How far a snapshot is: which chunks of which table are read, and how long the rest takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState

MAX_CELLS = 60
"""Cells of one table's row in the map; each stands for one chunk or several."""


@dataclass(frozen=True, slots=True)
class TableChunks:
    """Describe the chunks of one table.

    Args:
        table: ``database.table``.
        done: Whether each chunk is read, in the order of the keys.
        rows: Rows of the chunks that are read.
        rows_left: Estimated rows of the others.
    """

    table: str
    done: tuple[bool, ...]
    rows: int
    rows_left: int

    def cells(self) -> tuple[float, ...]:
        """Return at most ``MAX_CELLS`` shares of chunks that are read, from 0 to 1, in the order of the keys."""
        count = min(len(self.done), MAX_CELLS)
        bounds = [len(self.done) * n // count for n in range(count + 1)] if count else []
        parts = [self.done[low:high] for low, high in pairwise(bounds)]
        return tuple(round(sum(part) / len(part), 2) for part in parts)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {
            "table": self.table,
            "chunks": len(self.done),
            "done": sum(self.done),
            "rows": self.rows,
            "rows_left": self.rows_left,
            "cells": list(self.cells()),
        }


def snapshot_tables(ledger: LedgerState) -> list[TableChunks]:
    """Return the tables of the snapshot that is being taken, in order; none where there is none.

    Args:
        ledger: The ledger, with chunks.
    """
    plan = ledger.plan
    if plan is None or plan.kind != "snapshot" or ledger.complete():
        return []
    grouped: dict[str, list[Mapping[str, Any]]] = {}
    for name, record in ledger.chunks.items():
        if record["epoch"] == plan.epoch:
            grouped.setdefault(name.rpartition("/")[0], []).append(record)
    return [_table(table, grouped[table]) for table in sorted(grouped)]


def _table(table: str, records: Iterable[Mapping[str, Any]]) -> TableChunks:
    ordered = sorted(records, key=lambda record: int(record["chunk"]["number"]))
    done = [record for record in ordered if "offset" in record]
    left = [record for record in ordered if "offset" not in record]
    return TableChunks(
        table,
        tuple("offset" in record for record in ordered),
        sum(int(record["rows"]) for record in done),
        sum(int(record["chunk"]["rows"]) for record in left),
    )


def seconds_left(tables: Sequence[TableChunks], seconds: float) -> float | None:
    """Return how long the rest of a snapshot takes at the pace so far; None before the first chunk.

    Args:
        tables: Its tables.
        seconds: How long it has been reading.
    """
    rows, rows_left = sum(t.rows for t in tables), sum(t.rows_left for t in tables)
    chunks, chunks_left = sum(sum(t.done) for t in tables), sum(len(t.done) - sum(t.done) for t in tables)
    done, left = (rows, rows_left) if rows and rows_left else (chunks, chunks_left)
    return None if not done or seconds <= 0 else round(seconds * left / done, 1)
