"""A condition that is slow to look for does not hold a snapshot up."""

from __future__ import annotations

from typing import Any

import pytest
from kit.incremental_rig import FLAT, books, reads
from kit.sql import execute
from kit.table_rig import filled
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.incremental import scan_bounds
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import read_incremental_state, state_changes
from airflow_provider_mysql_cdc.cdc.incremental.scan_updates import SnapshotRequest, queue_scans
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.model.table import TableId

PROPERTIES = FLAT


def test_key_ranges_of_a_slow_condition_are_those_of_all_rows(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each row takes 20 ms: sixteen of them can be read, and 100 rows take longer than half a second."""
    monkeypatch.setattr(scan_bounds, "CONDITION_TIME_MS", 500)
    execute(root, f"USE `{database}`", *filled(database, "aa", count=100))
    pipeline.snapshot()
    table = TableId(database, "aa")
    condition = {table: "SLEEP(0.02) = 0 AND id % 20 = 3"}
    with JobLedger(pipeline.cfg) as job:
        before = read_incremental_state(job.read())
        asked = SnapshotRequest("slow", "incremental", [table], condition)
        job.put_all(state_changes(before, queue_scans(before, asked, 1)))
    pipeline.drain()
    for _ in range(5):
        if not books(pipeline).active_scans:
            break
        execute(root, "UPDATE aa SET v = v + 1 WHERE id = 1")
        pipeline.drain()
    assert books(pipeline).scans[0].state == "done", pipeline.lines
    assert len(reads(pipeline, "aa")) == 5
    assert any("found too slowly" in line for line in pipeline.lines)
