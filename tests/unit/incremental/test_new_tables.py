"""The signal with which a stream reads the tables that joined it."""

from __future__ import annotations

import json
from dataclasses import replace

from kit.memory_job import config

from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.unread_tables import NeverReadTable
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import IncrementalState
from airflow_provider_mysql_cdc.cdc.incremental.new_tables import new_tables_signal
from airflow_provider_mysql_cdc.cdc.incremental.scan_updates import (
    SnapshotRequest,
    queue_scans,
    record_refusal,
    stop_scans,
)
from airflow_provider_mysql_cdc.cdc.model.table import TableId

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
