"""How far a snapshot is with each table: in the log, and in the progress record."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.job.job_metrics import JobMetrics
from airflow_provider_mysql_cdc.cdc.job.task_operation import EMPTY
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.snapshot import chunk_queue
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk
from airflow_provider_mysql_cdc.cdc.snapshot.chunk_queue import MAX_TABLES, ChunkQueue, SnapshotMeter, SnapshotProgress
from airflow_provider_mysql_cdc.cdc.snapshot.snapshot_operations import ChunkRows

BIG = [SnapshotChunk(TableId("d", "big"), n, rows=1000) for n in range(4)]
SMALL = [SnapshotChunk(TableId("d", "small"), 0, rows=0)]


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_the_time_left_is_that_of_this_attempt_and_counts_running_chunks(clock: Clock) -> None:
    found = SnapshotProgress([*BIG, *SMALL], {"d.big/0": 900}, clock)
    assert found.lines(5) == [] and [t["table"] for t in found.to_json()] == ["d.big", "d.small"]
    found.on_assigned(BIG[1])
    clock.now += 10
    assert found.lines(5) == ["d.big: 900 of about 4,000 rows, 1 of 4 chunks"], "nothing says how fast it is"
    found.on_rows("d.big/1", 500)
    assert found.lines(5) == ["d.big: 1,400 of about 4,000 rows, 1 of 4 chunks, 50 s left"]
    found.on_rows("d.big/1", 5000)
    assert found.to_json()[0]["seconds_left"] == 20, "more rows than estimated do not make the table ready"
    assert found.on_done("d.big/1", 1100) is None
    assert found.to_json()[0] == {
        "table": "d.big",
        "rows": 2000,
        "estimate": 4000,
        "chunks": 4,
        "done": 2,
        "running": True,
        "seconds_left": 20,
    }


def test_a_table_that_is_read_leaves_the_record_and_one_without_an_estimate_says_no_time(clock: Clock) -> None:
    found = SnapshotProgress(SMALL, {}, clock)
    found.on_assigned(SMALL[0])
    found.on_rows("d.small/0", 10_000)
    assert found.lines(5) == ["d.small: 10,000 rows, 0 of 1 chunks"]
    clock.now += 40
    table = found.on_done("d.small/0", 12_000)
    assert table is not None and (table.rows, table.seconds()) == (12_000, 40.0)
    assert found.to_json() == [] and found.lines(5) == []


def test_thousands_of_tables_do_not_fill_log_and_record(clock: Clock) -> None:
    chunks = [SnapshotChunk(TableId("d", f"t{n}"), 0, rows=n) for n in range(5000)]
    found = SnapshotProgress(chunks, {}, clock)
    for chunk in chunks[:20]:
        found.on_assigned(chunk)
    assert len(found.lines(5)) == 6 and found.lines(5)[-1] == "and 15 more tables are being read"
    record = found.to_json()
    assert len(record) == MAX_TABLES and sum(table["running"] for table in record) == 20
    assert [table["table"] for table in record][:2] == ["d.t19", "d.t18"]


def test_the_log_names_tables_that_take_long_and_those_that_are_read(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    lines: list[str] = []
    monkeypatch.setattr(chunk_queue, "time", SimpleNamespace(monotonic=clock, time_ns=lambda: 1))
    progress = SnapshotProgress([*BIG, *SMALL], {}, clock)
    queue = ChunkQueue([*SMALL, *BIG], {}, lines.append, 5, list_entries={c.id: {} for c in (*BIG, *SMALL)})
    queue.tables, queue._tables_logged_at, queue._started_at = progress, clock.now, clock.now
    queue.next(0, EMPTY)
    queue.done(0, ChunkRows("d.small/0", 3))
    for chunk in BIG:
        queue.next(0, EMPTY)
        clock.now += 20
        queue.progress(0, ChunkRows(chunk.id, 500))
        queue.done(0, ChunkRows(chunk.id, 1000))
    assert [line for line in lines if "d." in line] == [
        "snapshot: d.big: 1,500 of about 4,000 rows, 1 of 4 chunks, 67 s left",
        "snapshot: d.big: 3,500 of about 4,000 rows, 3 of 4 chunks, 11 s left",
        "snapshot: d.big is read: 4,000 rows in 80 s",
    ]


def test_the_progress_record_has_the_tables(clock: Clock) -> None:
    cfg = ConnectorConfig.from_properties(
        {
            "topic.prefix": "p",
            "database.hostname": "h",
            "database.user": "u",
            "database.password": "p",
            "kafka.bootstrap.servers": "k:9",
        }
    )
    queue = ChunkQueue(list(BIG), {}, print, 4, list_entries={c.id: {} for c in BIG})
    queue.tables = SnapshotProgress(BIG, {}, clock)
    meter = SnapshotMeter()
    assert meter.tables() == []
    meter.begin([TableId("d", "big")], BIG, queue)
    metrics = JobMetrics(cfg, snapshot=meter.attributes, snapshot_tables=meter.tables)
    metrics.begin(BatchPlan(1, "snapshot", BinlogOffset("b.1", 4), BinlogOffset("b.1", 4), 1), [TableId("d", "big")])
    queue.next(0, EMPTY)
    (record,) = metrics.progress_records()
    found: dict[str, Any] = json.loads(record.value or b"")
    assert [(table["table"], table["running"]) for table in found["tables"]] == [("d.big", True)]
