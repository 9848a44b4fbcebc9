"""The scans that finish an interrupted snapshot: one for each table that its view did not read completely.

The stream begins at the position of the view. Chunks that were read there stay; the others become key ranges that
windows of the drain read later, like those of any ad-hoc snapshot. Events of rows that no key range has read yet are
produced as the stream has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import IncrementalState, RequestRecord
from airflow_provider_mysql_cdc.cdc.incremental.table_scan import DoneKeyRange, KeyRange, TableScan
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk

NUMBER_STEP = 1_000_000
"""Numbers of key ranges that fit between two chunks of the view, which may have more rows than a key range."""


@dataclass(frozen=True, slots=True)
class InterruptedSnapshot:
    """Describe what an interrupted snapshot has read.

    Args:
        epoch: Its epoch.
        chunks: All its chunks, in order.
        done: The records of the chunks that were read in its view, by chunk id.
        view: The position of the view.
        format_digest: Digest of the record format (``scan_validity.record_format_digest``).
    """

    epoch: int
    chunks: tuple[SnapshotChunk, ...]
    done: Mapping[str, Mapping[str, Any]]
    view: BinlogOffset
    format_digest: str

    @property
    def unfinished_tables(self) -> tuple[TableId, ...]:
        """Return the tables that were not read completely, in order."""
        return tuple(dict.fromkeys(chunk.table for chunk in self.chunks if chunk.id not in self.done))


def initial_request_id(epoch: int) -> str:
    """Return the id of the request whose scans finish a snapshot.

    Args:
        epoch: The snapshot's epoch.
    """
    return f"snapshot-{epoch}"


def queue_initial_scans(state: IncrementalState, snapshot: InterruptedSnapshot, now_ms: int) -> IncrementalState:
    """Queue the scans that finish an interrupted snapshot, in place of those that an earlier try has queued.

    Args:
        state: The state.
        snapshot: The snapshot.
        now_ms: Current time, milliseconds since 1970.
    """
    request_id = initial_request_id(snapshot.epoch)
    state = replace(state, scans={number: scan for number, scan in state.scans.items() if scan.request != request_id})
    first, scans, ranges = state.next_scan_number, list[TableScan](), list[DoneKeyRange]()
    for number, table in enumerate(snapshot.unfinished_tables, first):
        chunks = [chunk for chunk in snapshot.chunks if chunk.table == table]
        scan = TableScan(
            table, request_id, number, "blocking", start_offset=snapshot.view, format_digest=snapshot.format_digest
        )
        scan = replace(scan, initial=True)
        done_ranges = [
            _done_range(scan, chunk, snapshot.done[chunk.id]) for chunk in chunks if chunk.id in snapshot.done
        ]
        if done_ranges and all(chunk.columns for chunk in chunks):
            scan = replace(scan, state="running", columns=chunks[0].columns, kinds=chunks[0].kinds, started_ms=now_ms)
            scan = replace(scan, counted_rows=sum(done_range.rows for done_range in done_ranges))
            ranges += done_ranges
        scans.append(scan)
    request = RequestRecord(request_id, "accepted", first, len(scans), "", now_ms)
    queued = replace(state.with_scans(scans).with_request(request), next_scan_number=first + len(scans))
    return replace(queued, done_ranges=(*queued.done_ranges, *ranges)).with_advanced_cursors().pruned()


def active_initial_request(state: IncrementalState) -> str | None:
    """Return the id of the request whose scans finish a snapshot and have not ended; None when there is none.

    Args:
        state: The state in the ledger: where a window has died after its last key range, a drain still has to write
            that its scans have ended.
    """
    return next((scan.request for scan in state.active_scans if scan.initial), None)


def follow_renamed(
    state: IncrementalState, renamed: Iterable[tuple[TableScan, TableId]], stream_offset: BinlogOffset
) -> IncrementalState:
    """Queue a scan for each captured name that a table got before it was read completely.

    Its rows are in no event of the new name. The scan of the old name is kept for the table that may have it now. A
    scan of the new name that has not begun reads this table, and follows it from here on.

    Args:
        state: The state.
        renamed: Scans of a snapshot, each with the name that its table has now.
        stream_offset: Position at which the tables have these names; statements before it do not rename them again.
    """
    active = {(scan.request, scan.table): scan for scan in state.active_scans}
    number, scans = state.next_scan_number, list[TableScan]()
    for scan, name in renamed:
        other = active.get((scan.request, name))
        if other is None:
            other = replace(scan.restart(), table=name, number=number, rows=0, counted_rows=0)
            number += 1
        elif other.state == "running":
            continue
        active[scan.request, name] = other = replace(other, start_offset=stream_offset)
        scans.append(other)
    return replace(state.with_scans(scans), next_scan_number=number)


def _done_range(scan: TableScan, chunk: SnapshotChunk, record: Mapping[str, Any]) -> DoneKeyRange:
    key_range = KeyRange(
        scan.table,
        scan.number,
        chunk.number * NUMBER_STEP,
        chunk.columns,
        chunk.kinds,
        chunk.low,
        chunk.high,
        chunk.last,
    )
    return DoneKeyRange(key_range, int(record["rows"]), 0)
