"""The effects of signals on the state of ad-hoc snapshots: pure functions from state to state."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import IncrementalState, RequestRecord, StopTime
from airflow_provider_mysql_cdc.cdc.incremental.table_scan import TableScan
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.signals.actions import SnapshotKind

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
