"""What ends with a scan: its pause, its rows after the cursor, and its place when the configuration drops its table.

The signal with which a stream reads the tables that joined it.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from kit.memory_job import config, memory_job
from kit.memory_kafka import MemoryKafka
from kit.store_contract import plan

from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.unread_tables import NeverReadTable
from airflow_provider_mysql_cdc.cdc.incremental import notifications, signal_processor
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import IncrementalState
from airflow_provider_mysql_cdc.cdc.incremental.scan_updates import (
    UNCAPTURED_REASON,
    SnapshotRequest,
    end_uncaptured,
    new_tables_signal,
    queue_scans,
    record_refusal,
    set_paused,
    stop_scans,
)
from airflow_provider_mysql_cdc.cdc.incremental.table_scan import DoneKeyRange, KeyRange
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.signals.kafka_channel import PollResult
from airflow_provider_mysql_cdc.cdc.signals.notification_record import NotificationType

ORDERS, ITEMS = TableId("shop", "orders"), TableId("shop", "items")


def done(number: int, low: int | None, high: int, rows: int, *, final: bool = False) -> DoneKeyRange:
    bounds = (None if low is None else (low,)), (high,)
    return DoneKeyRange(KeyRange(ORDERS, 0, number, ("id",), ("SIGNED",), *bounds, final), rows)


@pytest.fixture
def running() -> IncrementalState:
    """Return a state with a running scan of one table, and one of another that waits."""
    state = queue_scans(IncrementalState(), SnapshotRequest("ask", "incremental", (ORDERS, ITEMS), {}), 1)
    return state.with_scans([state.scans[0].begin(("id",), ("SIGNED",), (90,), 1)])


def test_a_pause_ends_with_the_snapshots_that_it_holds(running: IncrementalState) -> None:
    paused = set_paused(running, paused=True)
    assert paused.with_advanced_cursors().paused and paused.runnable_scans == []
    ended = paused.with_scans([scan.abort("stopped") for scan in paused.active_scans]).with_advanced_cursors()
    assert not ended.paused
    later = queue_scans(ended, SnapshotRequest("later", "incremental", (ITEMS,), {}), 2)
    assert [scan.request for scan in later.runnable_scans] == ["later"]


def test_rows_after_the_cursor_of_a_stopped_scan_are_counted(running: IncrementalState) -> None:
    ranges = (done(0, None, 10, 5), done(2, 20, 30, 7))
    stopped = stop_scans(replace(running, done_ranges=ranges).with_advanced_cursors(), None)
    assert stopped.scans[0].rows == 12 and stopped.done_ranges == ()
    assert stopped.with_advanced_cursors().scans[0].rows == 12


def test_the_end_of_a_scan_is_published_by_the_run_after_a_crash(running: IncrementalState) -> None:
    """The last key range is committed, and the driver dies before it writes that the scan has ended."""
    before = replace(running, done_ranges=(done(0, None, 90, 3, final=True),))
    kinds = [n.type for n in notifications.changed(before, before.with_advanced_cursors())]
    assert kinds == [NotificationType.TABLE_SCAN_COMPLETED]


def test_the_end_of_a_scan_is_logged_by_the_run_after_a_crash(
    running: IncrementalState, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, lines = replace(running, done_ranges=(done(0, None, 90, 3, final=True),)), list[str]()
    monkeypatch.setattr(signal_processor, "read_incremental_state", lambda ledger: before)
    monkeypatch.setattr(signal_processor, "poll_signals", lambda *_: PollResult([]))
    cfg = config()
    job = memory_job(monkeypatch, cfg, MemoryKafka())
    job.begin(plan(1, writers=1))
    signal_processor.process_signals(cfg, None, job, job.read(), lines.append)
    assert lines == [
        "snapshot ask: data_collections=shop.orders,shop.items, scanned_collection=shop.orders, total_rows_scanned=3, "
        "status=SUCCEEDED"
    ]


def test_the_scan_of_a_table_that_is_not_captured_any_more_ends(running: IncrementalState) -> None:
    after = end_uncaptured(running, lambda table: table != ORDERS)
    assert (after.scans[0].state, after.scans[0].reason) == ("aborted", UNCAPTURED_REASON)
    assert after.scans[1].state == "waiting"
    initial = running.with_scans([replace(running.scans[0], initial=True)])
    ended = end_uncaptured(initial, lambda table: table != ORDERS)
    assert (ended.scans[0].state, ended.scans[0].reason) == ("done", UNCAPTURED_REASON)
    (notification,) = notifications.changed(initial, ended)
    assert notification.additional_data["status"] == "SQL_EXCEPTION", "the table was not read"
    assert notification.additional_data["reason"] == UNCAPTURED_REASON
    assert end_uncaptured(running, lambda table: True) is running


A, B = TableId("d", "a"), TableId("d", "b")
CFG = config(**{"snapshot.new.tables": "Parallel"})


def unread(*tables: TableId, where: str = "f:4") -> LedgerState:
    records = (NeverReadTable(table, where, "it joined") for table in tables)
    return LedgerState(other_records={each.ledger_key(): each.to_json() for each in records})


def test_all_tables_that_nothing_reads_are_asked_for_once() -> None:
    assert new_tables_signal(config(), unread(A), IncrementalState()) is None
    assert new_tables_signal(CFG, unread(), IncrementalState()) is None
    signal = new_tables_signal(CFG, unread(B, A), IncrementalState())
    assert signal is not None and signal.type == "execute-snapshot"
    assert json.loads(signal.data) == {"data-collections": ["d.a", "d.b"], "type": "incremental"}
    asked = queue_scans(IncrementalState(), SnapshotRequest(signal.id, "incremental", [A, B], {}), 1)
    assert new_tables_signal(CFG, unread(A, B), asked) is None
    done = asked.with_scans(replace(scan, state="done") for scan in asked.scans.values())
    again = new_tables_signal(CFG, unread(A, B, where="f:900"), done)  # they have left and joined once more
    assert again is not None and again.id != signal.id
    assert new_tables_signal(CFG, unread(A, B), stop_scans(asked, [A])) is None  # a person has stopped one


def test_one_that_was_refused_is_asked_for_again_and_one_with_a_condition_does_not_count() -> None:
    signal = new_tables_signal(CFG, unread(A), IncrementalState())
    assert signal is not None
    assert new_tables_signal(CFG, unread(A), record_refusal(IncrementalState(), signal.id, "no GTIDs", 1)) == signal
    partly = queue_scans(IncrementalState(), SnapshotRequest("s1", "incremental", [A], {A: "id < 5"}), 1)
    assert new_tables_signal(CFG, unread(A), partly) == signal
