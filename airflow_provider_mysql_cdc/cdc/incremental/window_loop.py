"""Run windows after a batch, as long as an ad-hoc snapshot has something to read."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_provider_mysql_cdc.cdc.binlog.position import current_offset
from airflow_provider_mysql_cdc.cdc.drain.batch_planner import range_bytes
from airflow_provider_mysql_cdc.cdc.drain.drain_driver import BatchContext
from airflow_provider_mysql_cdc.cdc.formats.record_topics import table_topic_name
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import IncrementalState, read_incremental_state
from airflow_provider_mysql_cdc.cdc.incremental.signal_processor import process_signals
from airflow_provider_mysql_cdc.cdc.incremental.state_records import state_records
from airflow_provider_mysql_cdc.cdc.incremental.window_driver import WindowDriver
from airflow_provider_mysql_cdc.cdc.job.named_errors import named_errors

MAX_BACKLOG_BYTES = 8 * 2**20
"""Bytes of the binlog that a window drains at most while its views and their metadata locks are open."""
MAX_BATCHES_BEFORE = 10
"""Batches before a window, on a server that writes faster than it is drained; then its window opens all the same."""
MAX_IDLE_WINDOWS = 3
"""Consecutive windows without progress of a scan after which the rest is left to the next drain."""
_CONTINUES = "the ad-hoc snapshots continue in the next drain: {}"


def run_windows(context: BatchContext) -> dict[str, int]:
    """Process signals and read ad-hoc snapshots, until everything is read, paused, or cannot be read now.

    Args:
        context: The drain after a batch.

    Returns:
        Records by topic of all windows.

    Raises:
        CdcError: A window failed; its committed key ranges are kept.
    """
    cfg, conn, job, log = context.cfg, context.conn, context.job, context.log
    totals: dict[str, int] = {}
    idle_windows, deferred_scans, reason = 0, frozenset[int](), ""
    ledger = job.latest()
    while True:
        context.require_lock()
        reads = bool(read_incremental_state(ledger).with_advanced_cursors().runnable_scans)
        if reads and (drained := drain_backlog(context)):
            _add(totals, drained)
            ledger = job.read()
        with named_errors(cfg):
            state, moved = process_signals(cfg, conn, job, ledger, log, context.owner)
        _add(totals, _count_left_rows(context, state))
        if moved or not state.runnable_scans:
            return totals
        if all(scan.reason and scan.number in deferred_scans for scan in state.runnable_scans):
            # Only tables are left that a window of this drain could not read, and that somebody has to make readable.
            log(_CONTINUES.format(reason))
            return totals
        active_scan_numbers = {scan.number for scan in state.active_scans}
        result = WindowDriver(cfg, conn, job, context.runner, context.owner, log, context.weights, deferred_scans).run(
            ledger, state
        )
        deferred_scans, reason = deferred_scans | result.blocked_scans, result.reason
        _add(totals, result.counts)
        remaining_orders = (
            set[int]()
            if result.ranges_read
            else {scan.number for scan in read_incremental_state(job.read()).active_scans}
        )
        # Tables without rows and aborted scans have no key range.
        idle_windows = 0 if result.ranges_read or remaining_orders != active_scan_numbers else idle_windows + 1
        if idle_windows == MAX_IDLE_WINDOWS and remaining_orders:
            log(_CONTINUES.format(reason))
            return totals
        ledger = job.read()


def _count_left_rows(context: BatchContext, state: IncrementalState) -> dict[str, int]:
    """Count rows that a run has committed which ended before its window did; return them by topic."""
    cfg, uncounted = context.cfg, state.uncounted_rows()
    if not uncounted:
        return {}
    counts: dict[str, int] = {}
    tables: dict[str, int] = {}
    for number, row_count in uncounted.items():
        table = state.scans[number].table
        _add(counts, {table_topic_name(cfg, table): row_count})
        _add(tables, {table.path(): row_count})
    records = state_records(cfg, context.job, state, state.with_counted_rows(), [])
    return counts if context.job.count_rows(counts, tables, records) else {}


def drain_backlog(context: BatchContext) -> dict[str, int]:
    """Drain batches until the end of the binlog is near, where a window is going to open; return records by topic.

    What a window drains itself, it drains while its views hold metadata locks: a statement on one of its tables waits
    that long, and every query of the table behind it.

    Args:
        context: The drain after a batch.
    """
    totals: dict[str, int] = {}
    for _ in range(MAX_BATCHES_BEFORE):
        start = context.job.latest().end()
        if start is None or range_bytes(context.conn, start, current_offset(context.conn)) <= MAX_BACKLOG_BYTES:
            break
        context.require_lock()
        counts = context.drain_more()
        if counts is None:
            break
        _add(totals, counts)
    return totals


def _add(totals: dict[str, int], counts: Mapping[str, int]) -> None:
    for topic, n in counts.items():
        totals[topic] = totals.get(topic, 0) + n
