"""The status of an ad-hoc snapshot, for operators and sensors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import IncrementalState, read_incremental_state
from airflow_provider_mysql_cdc.cdc.incremental.table_scan import ScanState, TableScan

SnapshotState = Literal["unknown", "waiting", "running", "paused", "done", "aborted"]


@dataclass(frozen=True, slots=True)
class TableStatus:
    """Hold the status of one table.

    Args:
        state: ``waiting``, ``running``, ``done`` or ``aborted``.
        rows: Rows written.
        reason: Why it was aborted.
    """

    state: ScanState
    rows: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SnapshotStatus:
    """Hold the status of an ad-hoc snapshot.

    Args:
        state: ``unknown`` if no drain has processed a signal with this id and none is pending; ``waiting`` until a
            drain reads the first table; ``aborted`` if a table was not read completely or the signal was refused.
        tables: By ``database.table``.
        reason: Why it was refused or aborted.
    """

    state: SnapshotState
    tables: dict[str, TableStatus] = field(default_factory=dict)
    reason: str = ""


def snapshot_status(ledger: LedgerState, signal_id: str | None) -> SnapshotStatus:
    """Return the status of the snapshot that a signal requested, or of all that have not ended.

    Args:
        ledger: The ledger.
        signal_id: The signal's id; None for all that have not ended.

    Raises:
        DamagedRecordError: A record of the ledger is not valid.
    """
    incremental = read_incremental_state(ledger).with_advanced_cursors()
    signal_pending = any(signal_id in (None, record["id"]) for record in ledger.signals.values())
    if signal_id is None:
        scans = incremental.active_scans
        if not scans:
            return SnapshotStatus("waiting" if signal_pending else "done")
        return SnapshotStatus(_snapshot_state(incremental, scans), _table_statuses(scans))
    request = incremental.requests.get(signal_id)
    if signal_pending and (request is None or request.verdict == "refused"):
        return SnapshotStatus("waiting")
    if request is None:
        return SnapshotStatus("unknown")
    if request.verdict == "refused":
        return SnapshotStatus("aborted", reason=request.reason)
    scans = [scan for _, scan in sorted(incremental.scans.items()) if scan.request == signal_id]
    reasons = [f"{scan.table}: {scan.reason}" for scan in scans if scan.reason]
    return SnapshotStatus(_snapshot_state(incremental, scans), _table_statuses(scans), "; ".join(reasons))


def _snapshot_state(incremental: IncrementalState, scans: list[TableScan]) -> SnapshotState:
    states = {scan.state for scan in scans}
    if states <= {"done", "aborted"}:
        return "aborted" if "aborted" in states else "done"
    if incremental.paused:
        return "paused"
    return "waiting" if states == {"waiting"} else "running"


def _table_statuses(scans: list[TableScan]) -> dict[str, TableStatus]:
    return {str(scan.table): TableStatus(scan.state, scan.rows, scan.reason) for scan in scans}
