"""What notifications report of a snapshot while its view is read: each table, and the end.

The driver writes them, in a transaction with a ledger record for each table, ``snapshot-table/<db.table>``. So whoever
finishes the snapshot after a failure knows which tables are reported. What is left is written in the transaction that
completes the snapshot, or hands it over to windows of the drain (``incremental.scan_updates``).
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import TABLE_REPORT_PREFIX
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.unread_tables import unread_key, unread_tables
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.job.task_operation import EmptyMessage
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.signals.notification_record import (
    Notification,
    NotificationType,
    list_in_progress,
    notification_records,
    notifications_enabled,
    snapshot_notification,
    table_in_progress,
    table_list,
    table_scan_completed,
)
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk
from airflow_provider_mysql_cdc.cdc.snapshot.chunk_queue import ChunkQueue
from airflow_provider_mysql_cdc.cdc.snapshot.snapshot_operations import ChunkRows, NextChunk

WRITE_INTERVAL_S = 1.0
"""Shortest time in seconds between two transactions, as there may be thousands of small tables."""


@dataclass(slots=True)
class TableReports:
    """Report tables while tasks read their chunks.

    Args:
        cfg: The connector's configuration.
        job: The ledger.
        queue: The chunks that wait for a task; none is assigned yet.
    """

    cfg: ConnectorConfig
    job: JobLedger
    queue: ChunkQueue
    _tables: dict[str, TableId] = field(init=False)
    _table_list: str = field(init=False)
    _list_in_progress: str = field(init=False)
    _chunks_left: Counter[TableId] = field(init=False)
    _rows: Counter[TableId] = field(default_factory=Counter)
    _reported: set[TableId] = field(default_factory=set)
    _pending: list[tuple[TableId, Notification]] = field(default_factory=list)
    _written_at: float = -math.inf
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._tables = {chunk.id: chunk.table for chunk in self.queue.waiting}
        self._table_list = table_list(self._tables.values())
        self._list_in_progress = list_in_progress(self._tables.values())
        self._chunks_left = Counter(self._tables.values())

    def next(self, task: int, request: EmptyMessage) -> NextChunk:
        """Answer a task that asks for a chunk, and report the table whose first chunk it is."""
        reply = self.queue.next(task, request)
        if reply.assigned is not None and reply.assigned.chunk.table not in self._reported:
            self._report_begun(reply.assigned.chunk.table)
        return reply

    def done(self, task: int, request: ChunkRows) -> EmptyMessage:
        """Record that a chunk is committed, and report the table whose last chunk it is."""
        reply = self.queue.done(task, request)
        table = self._tables[request.chunk]
        with self._lock:
            self._chunks_left[table] -= 1
            self._rows[table] += request.rows
            if self._chunks_left[table] == 0:
                notification = table_scan_completed(table, self._rows[table], self._table_list)
                self._pending.append((table, notification))
            self._write_pending()
        return reply

    def _report_begun(self, table: TableId) -> None:
        with self._lock:
            if table not in self._reported:
                self._reported.add(table)
                self._pending.append((table, table_in_progress(table, self._list_in_progress)))
            self._write_pending()

    def _write_pending(self) -> None:
        """Write what is pending, unless the last transaction was a moment ago."""
        if not notifications_enabled(self.cfg):
            self._pending.clear()
        if not self._pending or time.monotonic() - self._written_at < WRITE_INTERVAL_S:
            return
        states = {table: notification.type for table, notification in self._pending}
        records = notification_records(self.cfg, (notification for _, notification in self._pending))
        self.job.commit([*records, *(self.job.record(_report_key(t), {"state": s.value}) for t, s in states.items())])
        self._pending.clear()
        self._written_at = time.monotonic()


def end_of_view_records(
    cfg: ConnectorConfig, ledger: LedgerState, chunks: Sequence[SnapshotChunk], done: Mapping[str, Mapping[str, Any]]
) -> list[SideRecord]:
    """Return the notifications of tables that are not reported yet, and that of the end if every chunk is done.

    Tables that were never read, and are read completely now, are not unread any more; until here the snapshot may be
    discarded.

    Args:
        cfg: The connector's configuration.
        ledger: The ledger.
        chunks: All chunks, in the order of the snapshot.
        done: The records of the chunks that were read, by chunk id.
    """
    missing = {chunk.table for chunk in chunks if chunk.id not in done}
    read = unread_tables(ledger).keys() & {chunk.table for chunk in chunks} - missing
    records = [SideRecord(cfg.ledger_topic, unread_key(table).encode(), None) for table in sorted(read)]
    return records + (
        notification_records(cfg, _end_of_view(ledger, chunks, done)) if notifications_enabled(cfg) else []
    )


def _end_of_view(
    ledger: LedgerState, chunks: Sequence[SnapshotChunk], done: Mapping[str, Mapping[str, Any]]
) -> Iterator[Notification]:
    tables = list(dict.fromkeys(chunk.table for chunk in chunks))
    listed, begun = table_list(tables), list_in_progress(tables)
    missing = Counter(chunk.table for chunk in chunks if chunk.id not in done)
    rows = Counter[TableId]()
    for chunk in chunks:
        if (record := done.get(chunk.id)) is not None:
            rows[chunk.table] += int(record["rows"]) + int(record["left_out"])
    read_tables = {chunk.table for chunk in chunks if chunk.id in done}
    for table in tables:
        state = ledger.other_records.get(_report_key(table), {}).get("state")
        if table in read_tables and state is None:
            yield table_in_progress(table, begun)
        if not missing[table] and state != NotificationType.TABLE_SCAN_COMPLETED.value:
            yield table_scan_completed(table, rows[table], listed)
    if not missing.total():
        yield snapshot_notification(NotificationType.COMPLETED)


def _report_key(table: TableId) -> str:
    return f"{TABLE_REPORT_PREFIX}{table}"
