"""The scans that finish an interrupted snapshot: what they begin with, and that a retry queues them once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kit.store_contract import END

from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import IncrementalState
from airflow_provider_mysql_cdc.cdc.incremental.key_range_assignment import KeyRangeQueue
from airflow_provider_mysql_cdc.cdc.incremental.scan_updates import (
    NUMBER_STEP,
    InterruptedSnapshot,
    SnapshotRequest,
    active_initial_request,
    follow_renamed,
    initial_request_id,
    queue_initial_scans,
    queue_scans,
)
from airflow_provider_mysql_cdc.cdc.incremental.table_scan import TableScan, missing_ranges
from airflow_provider_mysql_cdc.cdc.job.task_operation import EMPTY
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk

A, B, WHOLE = TableId("d", "a"), TableId("d", "b"), TableId("d", "whole")


def chunks(table: TableId, count: int) -> list[SnapshotChunk]:
    """Return chunks with the keys up to 10, 20, ...; the last one has no upper bound."""
    return [
        SnapshotChunk(
            table,
            n,
            ("id",),
            (n * 10,) if n else None,
            (n * 10 + 10,) if n < count - 1 else None,
            n == count - 1,
            10,
            ("SIGNED",),
        )
        for n in range(count)
    ]


def interrupted(*tables: list[SnapshotChunk], done: str = "", epoch: int = 3) -> InterruptedSnapshot:
    """Return a snapshot of which chunks are done, as ``d.a/0 d.b/2``; each has 10 rows."""
    every = tuple(chunk for of_table in tables for chunk in of_table)
    records = {id_: {"epoch": epoch, "rows": 10} for id_ in done.split()}
    return InterruptedSnapshot(epoch, every, records, END, "digest")


def queued(snapshot: InterruptedSnapshot, state: IncrementalState | None = None, now_ms: int = 7) -> IncrementalState:
    return queue_initial_scans(state or IncrementalState(), snapshot, now_ms)


def only(state: IncrementalState) -> TableScan:
    (scan,) = state.scans.values()
    return scan


def gaps(state: IncrementalState) -> list[tuple[Any, Any, int, int]]:
    """Return bounds, first and last number of each missing range of the only scan."""
    scan = only(state)
    missing = missing_ranges(scan, state.done_ranges_of(scan.number))
    return [(m.key_range.low, m.key_range.high, m.key_range.number, m.last_number) for m in missing]


def test_a_table_of_which_nothing_was_read_waits() -> None:
    state = queued(interrupted(chunks(A, 3), chunks(B, 1), done="d.b/0"))
    scan = only(state)
    assert (scan.table, scan.state, scan.initial, scan.kind) == (A, "waiting", True, "blocking")
    assert (scan.start_offset, scan.format_digest, scan.request) == (END, "digest", "snapshot-3")
    assert state.done_ranges == () and scan.columns == () and scan.rows == 0


def test_a_table_that_was_read_completely_has_no_scan() -> None:
    state = queued(interrupted(chunks(A, 2), chunks(B, 2), done="d.a/0 d.a/1 d.b/0"))
    assert [scan.table for scan in state.scans.values()] == [B]
    assert state.requests["snapshot-3"].scan_count == 1


def test_a_partly_read_table_runs_behind_the_chunks_that_follow_its_first_one() -> None:
    state = queued(interrupted(chunks(A, 6), done="d.a/0 d.a/1 d.a/4"))
    scan = only(state)
    assert (scan.state, scan.columns, scan.kinds, scan.started_ms) == ("running", ("id",), ("SIGNED",), 7)
    assert (scan.cursor, scan.rows, scan.next_number) == ((20,), 20, NUMBER_STEP + 1)
    assert [d.key_range.number for d in state.done_ranges] == [4 * NUMBER_STEP]
    assert gaps(state) == [((20,), (40,), NUMBER_STEP + 1, 4 * NUMBER_STEP - 1)]


def test_the_last_chunk_may_be_read_before_the_first_one() -> None:
    state = queued(interrupted(chunks(A, 3), done="d.a/2"))
    scan = only(state)
    assert (scan.state, scan.cursor, scan.next_number, scan.rows) == ("running", None, 0, 0)
    assert gaps(state) == [(None, (20,), 0, 2 * NUMBER_STEP - 1)]
    queue = KeyRangeQueue.for_scans(None, state, [scan], 1, float("inf"), lambda line: None)
    assert queue.scan_queues[0].exhausted, "nothing is above the last chunk"


def test_a_table_that_is_one_chunk_is_read_from_its_beginning() -> None:
    state = queued(interrupted([SnapshotChunk(WHOLE, 0)], chunks(A, 1), done="d.a/0"))
    scan = next(scan for scan in state.scans.values() if scan.table == WHOLE)
    assert scan.state == "waiting" and state.done_ranges == ()


def test_a_retry_queues_the_same_scans() -> None:
    snapshot = interrupted(chunks(A, 3), chunks(B, 3), done="d.a/1 d.b/0")
    once = queued(snapshot)
    again = queued(snapshot, once)
    assert [scan.table for scan in again.active_scans] == [A, B] and len(again.requests) == 1
    assert {d.key_range.scan_number for d in again.done_ranges} <= set(again.scans)
    assert [replace(s, number=0) for s in again.scans.values()] == [replace(s, number=0) for s in once.scans.values()]
    assert gap_numbers(again) == gap_numbers(once) and again.next_scan_number == once.next_scan_number + 2


def gap_numbers(state: IncrementalState) -> list[list[int]]:
    scans = state.active_scans
    return [[m.key_range.number for m in missing_ranges(s, state.done_ranges_of(s.number))] for s in scans]


def test_other_scans_stay_and_no_order_is_given_twice() -> None:
    before = queue_scans(IncrementalState(), SnapshotRequest("s", "incremental", [A], {}), 1)
    state = queued(interrupted(chunks(A, 2), done="d.a/0"), before)
    assert [(s.number, s.request) for s in state.scans.values()] == [(0, "s"), (1, "snapshot-3")]
    assert (state.requests["snapshot-3"].first_order, state.next_scan_number) == (1, 2)
    assert [s.number for s in state.runnable_scans] == [1], "blocking scans come first"


def test_the_request_is_active_until_the_last_scan_has_ended() -> None:
    state = queued(interrupted(chunks(A, 2), chunks(B, 2)))
    assert active_initial_request(state) == initial_request_id(3) == "snapshot-3"
    first, second = state.active_scans
    state = state.with_scans([first.finish()])
    assert active_initial_request(state) == "snapshot-3"
    assert active_initial_request(state.with_scans([second.abort("gone")])) is None
    other = queue_scans(IncrementalState(), SnapshotRequest("s", "blocking", [A], {}), 1)
    assert active_initial_request(other) is None


def test_an_initial_scan_is_stored_as_one() -> None:
    scan = only(queued(interrupted(chunks(A, 2), done="d.a/0")))
    assert scan.initial and TableScan.from_json(scan.to_json()) == scan


def test_the_first_row_of_the_snapshot_was_in_its_view_and_the_last_one_is_in_a_window() -> None:
    state = queued(interrupted(chunks(A, 2), [SnapshotChunk(WHOLE, 0)]))
    a, whole = (scan.begin((), (), None, 1) for scan in state.active_scans)
    queue = KeyRangeQueue.for_scans(None, state.with_scans([a, whole]), [a, whole], 1, float("inf"), lambda line: None)
    options = [found.options for found in (queue.next(0, EMPTY).assigned for _ in range(2)) if found is not None]
    assert [(o.initial, o.first_table, o.last_table, o.cut_by_key) for o in options] == [
        (True, False, False, False),
        (True, False, True, False),
    ]


# -- tables that were renamed before they were read --------------------------------------------------------------------


def test_a_table_that_has_another_name_now_is_read_under_it_from_its_beginning() -> None:
    state = queued(interrupted(chunks(A, 3), done="d.a/0"))
    scan, new = only(state), TableId("d", "new")
    here = replace(END, pos=END.pos + 1000)
    after = follow_renamed(state, [(scan, new)], here)
    old, renamed = after.active_scans
    assert old == scan, "another table may have its name"
    assert (renamed.table, renamed.number, renamed.state, renamed.cursor) == (new, 1, "waiting", None)
    assert (renamed.initial, renamed.request, renamed.rows) == (True, "snapshot-3", 0)
    assert renamed.start_offset == here, "statements before it are of tables that had this name earlier"
    assert after.next_scan_number == 2 and after.done_ranges_of(1) == []


def test_a_name_is_queued_once() -> None:
    state = queued(interrupted(chunks(A, 2), chunks(B, 2)))
    a, b = state.active_scans
    assert follow_renamed(state, [(a, B)], END) == state, "it has a scan already"
    both = follow_renamed(state, [(a, WHOLE), (b, WHOLE)], END)
    assert len(both.scans) == 3 and follow_renamed(both, [(a, WHOLE)], END) == both
    assert follow_renamed(state, [], END) == state


def test_a_scan_that_waits_follows_the_table_that_got_its_name_and_one_that_runs_follows_its_own() -> None:
    state = queued(interrupted(chunks(A, 2), chunks(B, 2)))
    (a, b), here = state.active_scans, replace(END, pos=END.pos + 1000)
    assert follow_renamed(state, [(a, B)], here) == state.with_scans([replace(b, start_offset=here)])
    running = state.with_scans([replace(b, state="running")])
    assert follow_renamed(running, [(a, B)], here) == running
