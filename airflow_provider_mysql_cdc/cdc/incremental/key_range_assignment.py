"""The key ranges of scans: their bounds, read as they are needed, and their assignment to tasks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import IncrementalState
from airflow_provider_mysql_cdc.cdc.incremental.scan_bounds import TableUnreadable, find_bound
from airflow_provider_mysql_cdc.cdc.incremental.table_scan import (
    DoneKeyRange,
    KeyRange,
    MissingRange,
    TableScan,
    missing_ranges,
)
from airflow_provider_mysql_cdc.cdc.incremental.window_operations import (
    AssignedKeyRange,
    NextKeyRange,
    RangeDone,
    RangeReadOptions,
    RangeReturned,
)
from airflow_provider_mysql_cdc.cdc.job.task_operation import EMPTY, EmptyMessage
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import Bound

CHUNKS_PER_RANGE = 16
"""Chunks of incremental.snapshot.chunk.size that one task reads in one key range and commits together."""


@dataclass(slots=True)
class _ScanQueue:
    """Queue of one scan: first the missing key ranges, then those after the last one that was assigned."""

    scan: TableScan
    missing_ranges: list[MissingRange]
    next_low: Bound | None
    next_number: int
    exhausted: bool = False
    blocked_reason: str = ""
    permanent: bool = False


@dataclass(slots=True)
class KeyRangeQueue:
    """Assign key ranges to tasks, and collect those that are done.

    Args:
        conn: An open connection to the source, used by one call at a time.
        chunk_rows: Rows of a chunk unless the request has a value of its own.
        deadline: Value of ``time.monotonic()`` from which no more key ranges are assigned.
        log: Writes one line to the log.
        scan_queues: The rest of each scan, in order.
        request_bounds: Orders of the first and last scan of each blocking request.
        done_ranges: Key ranges that tasks have committed.
        on_assigned: Called with each key range that is assigned and its scan, for the metrics.
    """

    conn: MySqlConnection
    chunk_rows: int
    deadline: float
    log: Log
    scan_queues: list[_ScanQueue] = field(default_factory=list)
    request_bounds: dict[str, tuple[int, int]] = field(default_factory=dict)
    done_ranges: list[DoneKeyRange] = field(default_factory=list)
    on_assigned: Callable[[TableScan, KeyRange], None] = lambda scan, key_range: None
    _slow_conditions: set[int] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def for_scans(
        cls,
        conn: MySqlConnection,
        state: IncrementalState,
        scans: Iterable[TableScan],
        chunk_rows: int,
        deadline: float,
        log: Any,
    ) -> KeyRangeQueue:
        """Return the queue of running scans.

        Args:
            conn: An open connection to the source.
            state: The state with advanced cursors.
            scans: The scans, in their order.
            chunk_rows: See above.
            deadline: See above.
            log: See above.
        """
        queue = cls(conn, chunk_rows, deadline, log)
        for scan in scans:
            request = state.requests.get(scan.request)
            if scan.kind == "blocking" and request is not None:
                # The view of an interrupted snapshot has written its first row.
                first_order = -1 if scan.initial else request.first_order
                queue.request_bounds[request.id] = first_order, request.first_order + request.scan_count - 1
            done_ranges = state.done_ranges_of(scan.number)
            last_range = done_ranges[-1].key_range if done_ranges else None
            next_low, next_number = (
                (last_range.high, last_range.number + 1) if last_range is not None else (scan.cursor, scan.next_number)
            )
            exhausted = last_range is not None and last_range.final
            queue.scan_queues.append(
                _ScanQueue(scan, missing_ranges(scan, done_ranges), next_low, next_number, exhausted)
            )
        return queue

    def next(self, task: int, request: EmptyMessage) -> NextKeyRange:
        """Return the reply with the next key range; its ``assigned`` is None when the window ends."""
        with self._lock:
            while time.monotonic() < self.deadline:
                scan_queue = next(
                    (
                        scan_queue
                        for scan_queue in self.scan_queues
                        if not scan_queue.blocked_reason and (scan_queue.missing_ranges or not scan_queue.exhausted)
                    ),
                    None,
                )
                if scan_queue is None:
                    break
                if (key_range := self._next_range(scan_queue)) is not None:
                    self.on_assigned(scan_queue.scan, key_range)
                    return NextKeyRange(AssignedKeyRange(key_range, self._read_options(scan_queue.scan)))
            return NextKeyRange()

    def _read_options(self, scan: TableScan) -> RangeReadOptions:
        """Return the options that a task needs to read the scan."""
        first, last = self.request_bounds.get(scan.request, (-1, -1))
        return RangeReadOptions(
            scan.kind,
            scan.condition,
            first_table=scan.number == first,
            last_table=scan.number == last,
            cut_by_key=scan.surrogate_key is None and bool(scan.columns),
            initial=scan.initial,
        )

    def _next_range(self, scan_queue: _ScanQueue) -> KeyRange | None:
        try:
            if scan_queue.missing_ranges:
                return self._next_missing(scan_queue)
            return self._next_unread(scan_queue)
        except TableUnreadable as error:
            scan_queue.blocked_reason, scan_queue.permanent = str(error), not error.transient
            return None

    def _next_missing(self, scan_queue: _ScanQueue) -> KeyRange:
        """Return the next part of the first missing range; chunks of a snapshot's view may have many rows."""
        missing = scan_queue.missing_ranges.pop(0)
        key_range = missing.key_range
        if key_range.number >= missing.last_number:
            return key_range
        high = self._upper_bound(scan_queue.scan, key_range.low, key_range.high)
        if high is None or high == key_range.high:
            return key_range
        rest = replace(key_range, number=key_range.number + 1, low=high)
        scan_queue.missing_ranges.insert(0, replace(missing, key_range=rest))
        return replace(key_range, high=high)

    def _upper_bound(self, scan: TableScan, low: Bound | None, high: Bound | None) -> Bound | None:
        """Return the last key of a key range of the usual size; None where fewer rows are left."""
        condition = None if scan.number in self._slow_conditions else scan.condition
        range_rows = (scan.chunk_size or self.chunk_rows) * CHUNKS_PER_RANGE
        try:
            return find_bound(
                self.conn,
                scan.table,
                scan.columns,
                scan.kinds,
                condition=condition,
                low=low,
                high=high,
                skip=range_rows - 1,
            )
        except TableUnreadable as error:
            if not error.timed_out or condition is None:
                raise
        self._slow_conditions.add(scan.number)
        self.log(
            f"snapshot of {scan.table}: the rows of its condition are found too slowly, so its key ranges are those "
            "of all rows"
        )
        return self._upper_bound(scan, low, high)

    def _next_unread(self, scan_queue: _ScanQueue) -> KeyRange:
        """Return the key range after the last one that was assigned."""
        scan = scan_queue.scan
        high = self._upper_bound(scan, scan_queue.next_low, scan.last_key) if scan.columns else scan.last_key
        final = high is None or high == scan.last_key
        if final:
            high, scan_queue.exhausted = scan.last_key, True
        key_range = KeyRange(
            scan.table, scan.number, scan_queue.next_number, scan.columns, scan.kinds, scan_queue.next_low, high, final
        )
        scan_queue.next_low, scan_queue.next_number = high, scan_queue.next_number + 1
        return key_range

    def mark_done(self, task: int, request: RangeDone) -> EmptyMessage:
        """Record that the rows of a key range are committed."""
        done_range = request.done_range
        with self._lock:
            self.done_ranges.append(done_range)
        self.log(
            f"{done_range.key_range}: {done_range.rows} row(s)"
            + (f", {done_range.left_out} left out as the stream changed them" if done_range.left_out else "")
        )
        return EMPTY

    def mark_unreadable(self, task: int, request: RangeReturned) -> EmptyMessage:
        """Record that a key range cannot be read; no more of its table is assigned in this window."""
        key_range = request.key_range
        with self._lock:
            for scan_queue in self.scan_queues:
                # What blocks one scan of a table also blocks the others, unless the scan's own condition is the reason.
                if scan_queue.scan.number == key_range.scan_number or (
                    scan_queue.scan.table == key_range.table and not request.permanent
                ):
                    scan_queue.blocked_reason, scan_queue.permanent = request.reason, request.permanent
        aborted = request.permanent and not any(
            queue.scan.initial for queue in self.scan_queues if queue.scan.number == key_range.scan_number
        )
        consequence = "is aborted" if aborted else "continues in a later window"
        self.log(f"snapshot of {key_range.table} {consequence}: {request.reason}")
        return EMPTY

    def blocked_scans(self, *, permanent: bool) -> dict[int, str]:
        """Return why scans could not continue, by their order.

        Args:
            permanent: Whether to return the scans that can never continue, or the others.
        """
        return {
            scan_queue.scan.number: scan_queue.blocked_reason
            for scan_queue in self.scan_queues
            if scan_queue.blocked_reason and scan_queue.permanent == permanent
        }
