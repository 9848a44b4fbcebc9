"""A thousand tables asked for at once: no record grows with their number, and a step writes what changed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kit.memory_job import config, memory_job
from kit.memory_kafka import MemoryKafka

from airflow_provider_mysql_cdc.cdc.incremental import notifications as notices
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import (
    IncrementalState,
    read_incremental_state,
    state_changes,
)
from airflow_provider_mysql_cdc.cdc.incremental.notifications import state_records
from airflow_provider_mysql_cdc.cdc.incremental.scan_updates import SnapshotRequest, queue_scans
from airflow_provider_mysql_cdc.cdc.incremental.window_driver import MAX_SCANS_PER_WINDOW, select_scans
from airflow_provider_mysql_cdc.cdc.model.table import TableId

TABLES = [TableId("d" * 64, f"{n:04}".rjust(64, "t")) for n in range(1000)]
"""Names as long as MySQL allows."""
TOLD = {"notification.enabled.channels": "sink", "notification.sink.topic.name": "notes"}
MAX_NOTICE, MAX_OTHERS = 100_000, 4096


def test_no_record_grows_with_the_tables_that_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each scan is a record of its own; only the text of a notification names them all, up to its limit."""
    cfg = config(**TOLD)
    job = memory_job(monkeypatch, cfg, MemoryKafka())
    condition = {table: "updated_at >= '2026-01-01'" for table in TABLES}
    books = queue_scans(IncrementalState(), SnapshotRequest("all", "incremental", TABLES, condition), 1)
    told = [notices.started(books, "all")]
    records = state_records(cfg, job, IncrementalState(), books, told)
    sizes = {topic: [len(value or b"") for t, _, value, _ in records if t == topic] for topic, *_ in records}
    assert len(sizes[cfg.ledger_topic]) == len(TABLES) + 2
    assert max(sizes[cfg.ledger_topic]) < MAX_OTHERS
    assert len(sizes["notes"]) == 1 and max(sizes["notes"]) < MAX_NOTICE
    job.commit(records)
    assert read_incremental_state(job.read()) == books


def test_a_window_takes_a_part_of_the_tables_and_writes_what_changed() -> None:
    books = queue_scans(IncrementalState(), SnapshotRequest("all", "incremental", TABLES, {}), 1)
    part = select_scans(books.runnable_scans, frozenset())
    assert len(part) < len(TABLES)
    after = books.with_scans(replace(scan, state="done") for scan in part)
    assert len(state_changes(books, after)) == len(part)
    assert [scan.number for scan in after.runnable_scans[:2]] == [len(part), len(part) + 1]


def test_scans_that_cannot_continue_keep_no_others_from_a_window() -> None:
    work = queue_scans(IncrementalState(), SnapshotRequest("all", "incremental", TABLES, {}), 1).runnable_scans
    assert [scan.number for scan in select_scans(work, frozenset())] == list(range(MAX_SCANS_PER_WINDOW))
    late = frozenset(range(MAX_SCANS_PER_WINDOW))
    assert [scan.number for scan in select_scans(work, late)] == list(
        range(MAX_SCANS_PER_WINDOW, 2 * MAX_SCANS_PER_WINDOW)
    )
    assert [scan.number for scan in select_scans(work[:3], frozenset({0}))] == [1, 2, 0], "they are tried again"
