"""How far an initial or an ad-hoc snapshot is, and how long the rest takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import read_incremental_state
from airflow_provider_mysql_cdc.cdc.incremental.table_scan import TableScan
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.operate.source_server import at_server_of, offset_of_ledger
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import estimated_rows

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


MAX_ESTIMATED = 100
"""Scans whose tables the server is asked about, one short query each."""


@dataclass(frozen=True, slots=True)
class ScanProgress:
    """Describe how far one scan is.

    Args:
        rows: Rows that it has written.
        estimate: Rows that it will have written in the end, as the server estimates them; None where nobody knows, as
            with a condition.
        seconds: How long it has been reading; 0 while it waits.
    """

    rows: int
    estimate: int | None = None
    seconds: float = 0.0

    @property
    def rows_left(self) -> int | None:
        """Estimated rows that are not read; None where nobody knows."""
        return None if self.estimate is None else max(0, self.estimate - self.rows)

    @property
    def pace(self) -> float:
        """Rows a second so far."""
        return self.rows / self.seconds if self.seconds > 0 else 0.0


def seconds_left_of(scans: Iterable[ScanProgress]) -> float | None:
    """Return how long scans that are read at the same time, and those that wait, will take at the pace so far.

    Args:
        scans: The scans that have not ended.

    Returns:
        None without a pace, or where the rows of one of them are not known.
    """
    known = list(scans)
    left = [scan.rows_left for scan in known]
    pace = sum(scan.pace for scan in known)
    if not known or pace <= 0 or None in left:
        return None
    return round(sum(rows for rows in left if rows is not None) / pace, 1)


def read_scan_progress(cfg: ConnectorConfig, ledger: LedgerState, now_ms: int) -> dict[str, Any]:
    """Return the progress of the scans that have not ended, as JSON: each by its number, and all together.

    Args:
        cfg: The connector's configuration.
        ledger: The ledger.
        now_ms: The time, milliseconds since 1970.

    Raises:
        CdcError: The source cannot be asked, or a record of the ledger is not valid.
    """
    incremental = read_incremental_state(ledger).with_advanced_cursors()
    active, written = incremental.active_scans, incremental.written_rows()
    if not active:
        return {"by_number": {}, "seconds_left": None}
    cfg = at_server_of(cfg, offset_of_ledger(ledger))
    with connect(cfg.connection_settings()) as conn:
        estimates = {scan.number: _estimate(conn, scan) for scan in active[:MAX_ESTIMATED]}
    found = {scan.number: _progress(scan, written[scan.number], estimates.get(scan.number), now_ms) for scan in active}
    paused = incremental.paused
    shown = {number: found[number] for number in estimates}
    return {
        "by_number": {number: _shown(progress, paused) for number, progress in shown.items()},
        "seconds_left": None if paused else seconds_left_of(found.values()),
    }


def _estimate(conn: MySqlConnection, scan: TableScan) -> int | None:
    return None if scan.condition else estimated_rows(conn, scan.table) or None


def _progress(scan: TableScan, rows: int, estimate: int | None, now_ms: int) -> ScanProgress:
    seconds = max(0, now_ms - scan.started_ms) / 1000 if scan.state == "running" and scan.started_ms else 0.0
    return ScanProgress(rows, estimate, seconds)


def _shown(progress: ScanProgress, paused: bool) -> Mapping[str, Any]:
    left = None if paused else seconds_left_of([progress])
    return {"estimate": progress.estimate, "seconds_left": left}
