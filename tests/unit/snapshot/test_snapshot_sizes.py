"""A snapshot of thousands of tables costs each of them the same: what is kept, compiled and counted does not add up."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from kit.decode_builder import column, packet, table
from kit.memory_job import config
from kit.memory_kafka import MemoryKafka, MemoryWriter
from kit.row_blocks import each_alone
from kit.store_contract import END, plan

from airflow_provider_mysql_cdc.cdc.decode.codegen import text_row_source as text
from airflow_provider_mysql_cdc.cdc.job.task_operation import EMPTY
from airflow_provider_mysql_cdc.cdc.model.records import NativeCounts
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId
from airflow_provider_mysql_cdc.cdc.snapshot import chunk_queue, range_writer
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk
from airflow_provider_mysql_cdc.cdc.snapshot.chunk_queue import ChunkQueue
from airflow_provider_mysql_cdc.cdc.snapshot.chunk_records import count_rows
from airflow_provider_mysql_cdc.cdc.snapshot.snapshot_operations import (
    NEXT_CHUNK,
    AssignedChunk,
    ChunkRows,
    NextChunk,
    OpenedView,
)
from airflow_provider_mysql_cdc.cdc.snapshot.snapshot_task import SnapshotTask

CFG = config()
ONE = table(column("id", "INT", nullable=False), key=("id",))
TABLES: dict[TableId, Table] = {i: replace(ONE, id=i) for i in (TableId("db", f"t{n}") for n in range(300))}


class Channel:
    """A driver with one chunk of each table."""

    def __init__(self) -> None:
        self.waiting = list(TABLES)

    def call(self, operation: Any, request: Any) -> Any:
        if operation is not NEXT_CHUNK:
            return EMPTY
        if not self.waiting:
            return NextChunk()
        chunk = SnapshotChunk(self.waiting.pop(0), 0)
        return NextChunk(AssignedChunk(chunk, False, False, {"list": "x", "order": 0}))


def read_all(monkeypatch: pytest.MonkeyPatch, rows: int) -> tuple[SnapshotTask, MemoryKafka, dict[str, int]]:
    monkeypatch.setattr(
        range_writer, "stream_blocks", lambda *_: each_alone(packet(str(n).encode()) for n in range(rows))
    )
    text.compile_source.cache_clear()
    kafka, channel = MemoryKafka(), Channel()
    sink: Any = MemoryWriter(kafka, "p.0")
    sink.init()
    sink.open_s = 0.0
    given: Any = channel
    batch = replace(plan(writers=1), kind="snapshot", attempt="a1")
    view = OpenedView(END, 7)
    task = SnapshotTask(CFG, batch, 0, None, sink, given, dict(TABLES), {}, view, [])
    return task, kafka, task.run()


def test_a_task_compiles_a_shape_once_and_keeps_a_few_decoders(monkeypatch: pytest.MonkeyPatch) -> None:
    task, kafka, counts = read_all(monkeypatch, 2)
    assert len(counts) == 300 and set(counts.values()) == {2}
    assert all(len(kafka.committed(f"p.db.{t.table}")) == 2 for t in TABLES)
    assert len(task._routes) <= 64 and text.compile_source.cache_info().misses == 1
    assert max(len(r.value or b"") for r in kafka.committed(CFG.ledger_topic)) < 1_000


def test_an_empty_table_compiles_nothing_and_is_marked_as_read(monkeypatch: pytest.MonkeyPatch) -> None:
    task, kafka, _ = read_all(monkeypatch, 0)
    assert not task._routes and text.compile_source.cache_info().misses == 0
    assert len(kafka.committed(CFG.ledger_topic)) == 300


class Job:
    """A ledger that hears how many rows came of which table."""

    def __init__(self) -> None:
        self.noted: list[dict[str, int]] = []
        self.native_counts = NativeCounts()

    def add_table_counts(self, tables: dict[str, int]) -> None:
        self.noted.append(dict(tables))

    def add_native_counts(self, counts: NativeCounts) -> None:
        self.native_counts = self.native_counts.add(counts)


def test_rows_of_all_chunks_are_summed_up_once() -> None:
    chunks = {}
    for n in range(3_000):
        chunk = SnapshotChunk(TableId("db", f"t{n % 1000}"), n // 1000)
        chunks[chunk.id] = {
            "epoch": 1,
            "chunk": chunk.to_json(),
            "offset": END.to_json(),
            "rows": n % 2,
            "left_out": n // 2999,
            "native": NativeCounts(n % 2, {"table": 1} if n == 7 else {}).to_json(),
        }
    job: Any = Job()
    counts = count_rows(CFG, job, chunks)
    assert job.native_counts == NativeCounts(1_500, {"table": 1})
    assert counts == {f"p.db.t{n}": 3 for n in range(1, 1000, 2)} | {"p.db.t999 (rows left out)": 1}
    assert job.noted == [{f"db.t{n}": 3 for n in range(1, 1000, 2)}]


def test_what_an_earlier_attempt_has_read_does_not_count_for_the_speed_of_this_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines: list[str] = []
    queue = ChunkQueue([], {f"old {n}": 10 for n in range(5_000)}, lines.append, 9_000)
    queue._started_at = 0.0
    monkeypatch.setattr(chunk_queue, "time", SimpleNamespace(monotonic=lambda: 100.0, time_ns=lambda: 1))
    queue.finished_rows |= {f"new {n}": 40 for n in range(9)}
    queue.done(0, ChunkRows("new 9", 40))
    assert lines == ["snapshot: 50,400 rows, 4/s, 5010 of 9000 chunks, about 11.1 h left"]


def test_a_snapshot_that_keeps_tables_says_no_time_before_its_first_chunk() -> None:
    lines: list[str] = []
    queue = ChunkQueue([], {"old": 10}, lines.append, 9)
    queue.progress(0, ChunkRows("new", 0))
    assert "1 of 9 chunks" in lines[0] and "left" not in lines[0]
