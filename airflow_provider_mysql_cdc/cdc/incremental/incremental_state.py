"""Ad-hoc snapshots in the ledger, a record for each table scan and each finished key range, and their status.

Ad-hoc snapshots in the ledger: a record for each table scan and each finished key range, so no record grows.

``incremental/scan/<n>`` is the scan of a table, ``incremental/done/<scan>/<n>`` a key range whose rows are committed
but that the scan's cursor has not passed, ``incremental/request/<id>`` the outcome of a signal that requested scans,
and ``incremental/state`` the state that is common to all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import DONE_RANGE_PREFIX, REQUEST_PREFIX, SCAN_PREFIX, STATE_KEY
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.incremental.table_scan import (
    DoneKeyRange,
    KeyRange,
    ScanState,
    TableScan,
    advance_cursor,
)
from airflow_provider_mysql_cdc.cdc.model.stored_record import Count, Members, Record, record_location

MAX_ENDED_SCANS = 5000
"""Ended scans that are kept, so that their outcome can be queried."""
MAX_REQUESTS = 1000
_NO_STATE = {"next_order": 0, "paused": False}

StateChange = tuple[str, dict[str, Any] | None]
"""A ledger key and its new value; None deletes the key."""
RequestVerdict = Literal["accepted", "refused"]


@dataclass(frozen=True, slots=True)
class StopTime:
    """Say which requests a stop-snapshot follows.

    Args:
        sequence: ``Signal.sequence``.
        sent_ms: When it was sent, milliseconds since 1970; 0 if it is not known.
    """

    sequence: str
    sent_ms: int


@dataclass(frozen=True, slots=True)
class RequestRecord(Record):
    """Hold the outcome of a signal that requested scans.

    Args:
        id: The signal's id.
        verdict: Whether it was accepted.
        first_order: ``order`` of its first scan.
        scan_count: Number of its scans; they have consecutive orders.
        reason: Why it was refused.
        ts_ms: Time of the decision, milliseconds since 1970.
        digest: Digest of the signal's content (``content_digest``); empty for a request that no signal made.
        sequence: ``Signal.sequence``; empty for a request that no signal made.
        sent_ms: When the signal was sent, milliseconds since 1970; 0 if it is not known.
    """

    id: str
    verdict: RequestVerdict
    first_order: Count = 0
    scan_count: Count = 0
    reason: str = ""
    ts_ms: Count = 0
    digest: str = ""
    sequence: str = ""
    sent_ms: Count = 0

    def is_before(self, stop: StopTime) -> bool:
        """Return whether the request was certainly made before a stop was sent.

        The order within a sequence is known, and signals are processed in it. Otherwise the times decide; a request was
        made before it was decided. If the order is not known, the answer is no: the snapshot continues.
        """
        made_ms = min(self.sent_ms or self.ts_ms, self.ts_ms)
        return self.sequence == stop.sequence or 0 < made_ms < stop.sent_ms


@dataclass(frozen=True, slots=True)
class IncrementalState:
    """Hold all ad-hoc snapshots of a stream.

    Args:
        scans: Scans by their order.
        done_ranges: Finished key ranges that no cursor has passed.
        requests: Outcomes of signals, by their ids.
        paused: Whether reading is paused until a resume-snapshot signal.
        next_scan_number: Number of the next scan.
    """

    scans: Mapping[int, TableScan] = field(default_factory=dict)
    done_ranges: tuple[DoneKeyRange, ...] = ()
    requests: Mapping[str, RequestRecord] = field(default_factory=dict)
    paused: bool = False
    next_scan_number: int = 0

    @property
    def active_scans(self) -> list[TableScan]:
        """Return the scans that have not ended, in their order; blocking ones come first."""
        return sorted((s for s in self.scans.values() if not s.ended), key=lambda s: (s.kind != "blocking", s.number))

    @property
    def runnable_scans(self) -> list[TableScan]:
        """Return the scans of the next window: none while paused, only the blocking ones while there are any."""
        active = [] if self.paused else self.active_scans
        blocking = [s for s in active if s.kind == "blocking"]
        return blocking or active

    def with_scans(self, scans: Iterable[TableScan]) -> IncrementalState:
        """Return the state with scans added or replaced."""
        return replace(self, scans={**self.scans, **{s.number: s for s in scans}})

    def with_request(self, request: RequestRecord) -> IncrementalState:
        """Return the state with a request added; above ``MAX_REQUESTS`` the oldest finished requests are removed."""
        requests = {**self.requests, request.id: request}
        if (surplus := len(requests) - MAX_REQUESTS) > 0:
            active_ids = {scan.request for scan in self.active_scans} | {request.id}
            finished = sorted((r for r in requests.values() if r.id not in active_ids), key=lambda r: r.ts_ms)
            for oldest in finished[:surplus]:
                del requests[oldest.id]
        return replace(self, requests=requests)

    def with_advanced_cursors(self) -> IncrementalState:
        """Return the state with every cursor advanced as far as possible, without key ranges of ended scans."""
        ranges_by_scan: dict[int, list[DoneKeyRange]] = {}
        for done_range in self.done_ranges:
            ranges_by_scan.setdefault(done_range.key_range.scan_number, []).append(done_range)
        scans, pending_ranges = dict(self.scans), []
        for order, done in ranges_by_scan.items():
            if order in scans:
                scans[order], pending = advance_cursor(scans[order], done)
                if scans[order].ended:  # rows after the cursor of an aborted scan are in the topic, too
                    scans[order] = scans[order].counting(pending)
                else:
                    pending_ranges += pending
        # A pause ends with the snapshots that it holds; the next ones begin as usual.
        paused = self.paused and any(not scan.ended for scan in scans.values())
        return replace(self, scans=scans, done_ranges=tuple(pending_ranges), paused=paused)

    def pruned(self) -> IncrementalState:
        """Return the state without the oldest ended scans above ``MAX_ENDED_SCANS``."""
        ended = sorted(order for order, scan in self.scans.items() if scan.ended)
        oldest = set(ended[: max(0, len(ended) - MAX_ENDED_SCANS)])
        return replace(self, scans={order: scan for order, scan in self.scans.items() if order not in oldest})

    @property
    def complete_since_ms(self) -> int:
        """Since when no ended scan was removed; 0 for always."""
        ended = [scan.started_ms for scan in self.scans.values() if scan.ended]
        return min(ended) if len(ended) >= MAX_ENDED_SCANS else 0

    def without_ranges(self, scan_orders: Collection[int]) -> IncrementalState:
        """Return the state without the key ranges of some scans, which restart; their rows are in the topic.

        Args:
            scan_orders: Orders of the scans.
        """
        scans = [self.scans[n].counting(self.done_ranges_of(n)) for n in scan_orders if n in self.scans]
        kept = tuple(d for d in self.done_ranges if d.key_range.scan_number not in scan_orders)
        return replace(self.with_scans(scans), done_ranges=kept)

    def written_rows(self) -> dict[int, int]:
        """Return how many rows of each scan are written, after its cursor too."""
        written = {number: scan.rows for number, scan in self.scans.items()}
        for done_range in self.done_ranges:
            if (number := done_range.key_range.scan_number) in written:
                written[number] += done_range.rows
        return written

    def uncounted_rows(self) -> dict[int, int]:
        """Return the rows of each scan that no tally has counted; a window that was killed leaves some."""
        left = {number: rows - self.scans[number].counted_rows for number, rows in self.written_rows().items()}
        return {number: rows for number, rows in left.items() if rows > 0}

    def with_counted_rows(self) -> IncrementalState:
        """Return the state after all its rows were counted."""
        return self.with_scans(replace(self.scans[n], counted_rows=rows) for n, rows in self.written_rows().items())

    def done_ranges_of(self, scan_order: int) -> list[DoneKeyRange]:
        """Return a scan's finished key ranges after its cursor, in their order."""
        return sorted(
            (d for d in self.done_ranges if d.key_range.scan_number == scan_order), key=lambda d: d.key_range.number
        )


def read_incremental_state(ledger: LedgerState) -> IncrementalState:
    """Return the state that the ledger holds.

    Args:
        ledger: The ledger.

    Raises:
        DamagedRecordError: A record is not valid.
    """
    scans: dict[int, TableScan] = {}
    done: list[DoneKeyRange] = []
    requests: dict[str, RequestRecord] = {}
    for key, value in ledger.other_records.items():
        with record_location(f"key {key}"):
            if key.startswith(SCAN_PREFIX):
                scan = TableScan.from_json(value)
                scans[scan.number] = scan
            elif key.startswith(DONE_RANGE_PREFIX):
                done.append(DoneKeyRange.from_json(value))
            elif key.startswith(REQUEST_PREFIX):
                request = RequestRecord.from_json(value)
                requests[request.id] = request
    with record_location(f"key {STATE_KEY}"):
        state = Members(ledger.other_records.get(STATE_KEY, _NO_STATE))
        # Even if the record is lost, no scan gets the order or the key ranges of another one.
        order_candidates = [
            0,
            state.integer("next_order"),
            *(order + 1 for order in scans),
            *(d.key_range.scan_number + 1 for d in done),
        ]
        return IncrementalState(scans, tuple(done), requests, state.flag("paused"), max(order_candidates))


def state_changes(before: IncrementalState, after: IncrementalState) -> list[StateChange]:
    """Return the ledger records that lead from one state to another.

    Args:
        before: The state in the ledger.
        after: The new state.
    """
    records_before, records_after = _ledger_values(before), _ledger_values(after)
    written: list[StateChange] = [
        (key, value) for key, value in records_after.items() if records_before.get(key) != value
    ]
    return sorted(
        [*written, *((key, None) for key in records_before.keys() - records_after.keys())], key=lambda change: change[0]
    )


def done_range_key(key_range: KeyRange) -> str:
    """Return the ledger key of a finished key range."""
    return DONE_RANGE_PREFIX + key_range.id


def _ledger_values(state: IncrementalState) -> dict[str, dict[str, Any]]:
    return {
        STATE_KEY: {"paused": state.paused, "next_order": state.next_scan_number},
        **{f"{SCAN_PREFIX}{order}": scan.to_json() for order, scan in state.scans.items()},
        **{f"{REQUEST_PREFIX}{name}": request.to_json() for name, request in state.requests.items()},
        **{done_range_key(d.key_range): d.to_json() for d in state.done_ranges},
    }


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
