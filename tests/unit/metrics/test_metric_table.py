"""The table of metrics: every one of Debezium's is in it, and its page and its text for Prometheus follow from it."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.metrics import metrics_page
from airflow_provider_mysql_cdc.cdc.metrics.metric_table import METRICS, MetricFamily, metric
from airflow_provider_mysql_cdc.cdc.metrics.prometheus_text import prometheus_name

pytestmark = pytest.mark.quick
ROOT = Path(__file__).resolve().parents[3]
COMMON = """LastEvent MilliSecondsSinceLastEvent TotalNumberOfEventsSeen NumberOfEventsFiltered CapturedTables
    QueueTotalCapacity QueueRemainingCapacity MaxQueueSizeInBytes CurrentQueueSizeInBytes"""
NAMES = {
    "snapshot": f"""{COMMON} TotalTableCount RemainingTableCount SnapshotRunning SnapshotAborted SnapshotCompleted
        SnapshotDurationInSeconds RowsScanned HoldingGlobalLock""",
    "streaming": f"""{COMMON} ChunkId ChunkFrom ChunkTo TableFrom TableTo TotalNumberOfCreateEventsSeen
        TotalNumberOfUpdateEventsSeen TotalNumberOfDeleteEventsSeen Connected MilliSecondsBehindSource
        NumberOfCommittedTransactions SourceEventPosition LastTransactionId BinlogFilename BinlogPosition
        IsGtidModeEnabled GtidSet NumberOfSkippedEvents NumberOfDisconnects NumberOfRolledBackTransactions
        NumberOfNotWellFormedTransactions NumberOfLargeTransactions""",
    "schema-history": """Status RecoveryStartTime ChangesRecovered ChangesApplied MilliSecondsSinceLastRecoveredChange
        MilliSecondsSinceLastAppliedChange LastRecoveredChange LastAppliedChange""",
}
"""Debezium's names (requirements MET-01 to MET-56), by family."""


@pytest.mark.req("MET-57", "MET-58", "MET-59")
def test_every_metric_of_debezium_is_in_the_table_once() -> None:
    described = [(str(each.family), each.name) for each in METRICS]
    assert sorted(described) == sorted((family, name) for family, names in NAMES.items() for name in names.split())
    assert [str(family) for family in MetricFamily] == ["snapshot", "streaming", "schema-history"]


@pytest.mark.req("MET-06", "MET-07", "MET-15", "MET-16", "MET-48", "MET-61", "TXN-12")
def test_what_is_absent_says_why() -> None:
    """A snapshot has no queue; and what counts transactions by a buffer exists only where there is one."""
    absent = {(str(each.family), each.name): each.absent for each in METRICS if each.absent}
    queue = ("QueueTotalCapacity", "QueueRemainingCapacity", "MaxQueueSizeInBytes", "CurrentQueueSizeInBytes")
    assert set(absent) == {*(("snapshot", name) for name in queue), ("streaming", "NumberOfLargeTransactions")}
    assert "no queue" in absent["snapshot", "QueueTotalCapacity"]
    assert "binlog.buffer.size" in absent["streaming", "NumberOfLargeTransactions"]
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert page.count("**absent**") == 5


def test_the_page_is_current() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert page == metrics_page.render_page(), (
        "run: python -m airflow_provider_mysql_cdc.cdc.metrics.metrics_page docs/metrics.md"
    )


@for_each(
    ("family", "name", "expected"),
    [
        ("streaming", "MilliSecondsBehindSource", "mysql_cdc_streaming_seconds_behind_source"),
        ("streaming", "TotalNumberOfEventsSeen", "mysql_cdc_streaming_total_number_of_events_seen_total"),
        ("streaming", "MaxQueueSizeInBytes", "mysql_cdc_streaming_max_queue_size_in_bytes"),
        ("snapshot", "SnapshotDurationInSeconds", "mysql_cdc_snapshot_snapshot_duration_in_seconds"),
        ("schema-history", "RecoveryStartTime", "mysql_cdc_schema_history_recovery_start_time_seconds"),
    ],
)
def test_names_in_prometheus_have_words_and_units(family: str, name: str, expected: str) -> None:
    assert prometheus_name(metric(family, name)) == expected


def test_names_in_prometheus_differ() -> None:
    assert len({prometheus_name(each) for each in METRICS}) == len(METRICS)
