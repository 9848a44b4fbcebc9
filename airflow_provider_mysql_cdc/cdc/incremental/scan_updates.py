"""The scans that a signal, a table that joined or an interrupted snapshot adds, changes or ends: pure functions.

The scans that finish an interrupted snapshot: one for each table that its view did not read completely.

The stream begins at the position of the view. Chunks that were read there stay; the others become key ranges that
windows of the drain read later, like those of any ad-hoc snapshot. Events of rows that no key range has read yet are
produced as the stream has them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.unread_tables import unread_tables
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.enums import NewTablesMode
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import IncrementalState, RequestRecord, StopTime
from airflow_provider_mysql_cdc.cdc.incremental.table_scan import DoneKeyRange, KeyRange, TableScan
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.signals.actions import SnapshotKind, entry_for
from airflow_provider_mysql_cdc.cdc.signals.signal import Signal, build_signal
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk

STOP_REASON = "stopped by a signal"
UNCAPTURED_REASON = "the configuration does not capture the table any more"


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """Describe which tables are to be read, and how.

    Args:
        id: The signal's id.
        kind: ``incremental`` or ``blocking``.
        tables: The tables, in the order of the signal.
        conditions: SQL conditions by table.
        surrogate_key: Column by which tables are split instead of their keys, or None.
        chunk_size: Rows of a chunk; 0 means incremental.snapshot.chunk.size.
        digest: Digest of the signal's content (``content_digest``).
        sequence: ``Signal.sequence``.
        sent_ms: When the signal was sent, milliseconds since 1970; 0 if it is not known.
    """

    id: str
    kind: SnapshotKind
    tables: Sequence[TableId]
    conditions: Mapping[TableId, str]
    surrogate_key: str | None = None
    chunk_size: int = 0
    digest: str = ""
    sequence: str = ""
    sent_ms: int = 0


def is_new_request(state: IncrementalState, request_id: str, digest: str) -> bool:
    """Return whether a signal may be carried out, although the state may know its id.

    A signal that was refused, or of whose scans none read its table to the end, can be corrected and sent again under
    its id. So a refused one is checked again, whatever its content; one whose scans were aborted is not started
    again by a copy of itself.

    Args:
        state: The state.
        request_id: The signal's id.
        digest: Digest of its content.
    """
    known = state.requests.get(request_id)
    if known is None or known.verdict == "refused":
        return True
    scans = [scan for scan in state.scans.values() if scan.request == request_id]
    return bool(scans) and known.digest not in ("", digest) and all(scan.state == "aborted" for scan in scans)


def queue_scans(state: IncrementalState, request: SnapshotRequest, now_ms: int) -> IncrementalState:
    """Queue a scan for each table, in place of those of a request that was corrected (``is_new_request``).

    Any other request whose id is known is the same request and changes nothing.

    Args:
        state: The state.
        request: The request.
        now_ms: Current time, milliseconds since 1970.
    """
    if not is_new_request(state, request.id, request.digest):
        return state
    if request.id in state.requests:
        state = replace(state, scans={n: scan for n, scan in state.scans.items() if scan.request != request.id})
    first = state.next_scan_number
    scans = [
        TableScan(
            table,
            request.id,
            order,
            request.kind,
            request.conditions.get(table),
            request.surrogate_key,
            request.chunk_size,
        )
        for order, table in enumerate(request.tables, first)
    ]
    request_record = RequestRecord(
        request.id,
        "accepted",
        first,
        len(scans),
        ts_ms=now_ms,
        digest=request.digest,
        sequence=request.sequence,
        sent_ms=request.sent_ms,
    )
    queued = replace(state.with_scans(scans).with_request(request_record), next_scan_number=first + len(scans))
    return queued.pruned()


def is_reported(state: IncrementalState, request_id: str, reason: str, digest: str) -> bool:
    """Return whether the outcome of a signal that is refused now has been reported: it is a copy of an earlier one.

    Args:
        state: The state.
        request_id: The signal's id.
        reason: Why it is refused now.
        digest: Digest of its content.
    """
    known = state.requests.get(request_id)
    if known is None or known.digest not in ("", digest):
        return False
    return known.reason == reason if known.verdict == "refused" else known.digest == digest


def record_refusal(
    state: IncrementalState, request_id: str, reason: str, now_ms: int, digest: str = ""
) -> IncrementalState:
    """Record that a request was refused; one that was accepted, and is not corrected by it, keeps its outcome.

    Args:
        state: The state.
        request_id: The signal's id.
        reason: Why it was refused.
        now_ms: Current time, milliseconds since 1970.
        digest: Digest of the signal's content.
    """
    if not is_new_request(state, request_id, digest):
        return state
    return state.with_request(RequestRecord(request_id, "refused", reason=reason, ts_ms=now_ms, digest=digest))


def stop_scans(
    state: IncrementalState, tables: Collection[TableId] | None, stop: StopTime | None = None
) -> IncrementalState:
    """Abort incremental scans, except those of ``scans_after_stop``.

    Args:
        state: The state.
        tables: Their tables; None for all.
        stop: When the stop was sent; None stops all of them.
    """
    later = [] if stop is None else scans_after_stop(state, tables, stop)
    stopped = [scan.abort(STOP_REASON) for scan in _incremental_scans(state, tables) if scan not in later]
    return state.with_scans(stopped).with_advanced_cursors()


def scans_after_stop(state: IncrementalState, tables: Collection[TableId] | None, stop: StopTime) -> list[TableScan]:
    """Return the incremental scans of which it is not certain that they were requested before a stop.

    Args:
        state: The state.
        tables: Their tables; None for all.
        stop: When the stop was sent.
    """
    requests = state.requests
    return [
        scan
        for scan in _incremental_scans(state, tables)
        if scan.request not in requests or not requests[scan.request].is_before(stop)
    ]


def _incremental_scans(state: IncrementalState, tables: Collection[TableId] | None) -> list[TableScan]:
    return [s for s in state.active_scans if s.kind == "incremental" and (tables is None or s.table in tables)]


def end_uncaptured(state: IncrementalState, captures: Callable[[TableId], bool]) -> IncrementalState:
    """End the scans of tables that the configuration does not capture any more: the stream skips their changes.

    If such a table is captured again, its cursor would stand before changes that no record tells of.

    Args:
        state: The state.
        captures: Returns whether a table is captured.
    """
    uncaptured = [scan for scan in state.active_scans if not captures(scan.table)]
    ended = [scan.finish(UNCAPTURED_REASON) if scan.initial else scan.abort(UNCAPTURED_REASON) for scan in uncaptured]
    return state.with_scans(ended).with_advanced_cursors() if ended else state


def restart_scans(state: IncrementalState, stream_offset: BinlogOffset) -> IncrementalState:
    """Restart all scans that have not ended, because the stream was moved.

    Args:
        state: The state.
        stream_offset: Its new position, from which those of an interrupted snapshot follow the names of their tables.
    """
    scans = [
        replace(scan.restart(), start_offset=stream_offset) if scan.initial else scan.restart()
        for scan in state.active_scans
    ]
    return state.with_scans(scans).without_ranges({scan.number for scan in scans})


def set_paused(state: IncrementalState, *, paused: bool) -> IncrementalState:
    """Pause reading, or resume it; without an active scan there is nothing to pause."""
    return replace(state, paused=paused and bool(state.active_scans))


_ID_PREFIX = "new-tables-"


def new_tables_signal(cfg: ConnectorConfig, ledger: LedgerState, state: IncrementalState) -> Signal | None:
    """Return the signal that reads the tables that were never read; None where nothing is to be requested.

    Its id stands for these tables and for when they joined, so one that was carried out is not sent again; nor is a
    table read again of which a person has stopped the snapshot. A signal that was refused is sent again.

    Args:
        cfg: The connector's configuration.
        ledger: The ledger's content.
        state: The state of ad-hoc snapshots.
    """
    if cfg[F.SNAPSHOT_NEW_TABLES] is not NewTablesMode.INCREMENTAL:
        return None
    left_alone = {scan.table for scan in state.active_scans if scan.condition is None} | {
        scan.table
        for scan in state.scans.values()
        if scan.reason == STOP_REASON and scan.request.startswith(_ID_PREFIX)
    }
    unread = [each for table, each in unread_tables(ledger).items() if table not in left_alone and cfg.captures(table)]
    joined = "|".join(f"{each.table.path()}@{each.where}" for each in unread)
    id_ = f"{_ID_PREFIX}{hashlib.sha256(joined.encode()).hexdigest()[:16]}"
    request = state.requests.get(id_)
    if not unread or (request is not None and request.verdict == "accepted"):
        return None
    data = {"data-collections": [entry_for(each.table) for each in unread], "type": "incremental"}
    return build_signal(id_, "execute-snapshot", json.dumps(data), "airflow")


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
