"""The time left of ad-hoc snapshots: at the pace so far, and none where something is not known."""

from __future__ import annotations

from airflow_provider_mysql_cdc.cdc.operate.snapshot_progress import ScanProgress, seconds_left_of


def test_the_time_left_is_that_of_the_rest_at_the_pace_so_far() -> None:
    half = ScanProgress(rows=500, estimate=1_000, seconds=10.0)
    assert seconds_left_of([half]) == 10.0
    assert seconds_left_of([half, ScanProgress(rows=0, estimate=1_000)]) == 30.0, "a scan that waits"
    assert seconds_left_of([half, half]) == 10.0, "scans that are read at the same time"
    assert seconds_left_of([ScanProgress(rows=1_200, estimate=1_000, seconds=10.0)]) == 0.0, "an estimate too low"


def test_no_time_is_said_where_something_is_not_known() -> None:
    half = ScanProgress(rows=500, estimate=1_000, seconds=10.0)
    assert seconds_left_of([]) is None
    assert seconds_left_of([ScanProgress(rows=0, estimate=1_000)]) is None, "nothing is read yet"
    assert seconds_left_of([half, ScanProgress(rows=5, seconds=1.0)]) is None, "a scan with a condition"
