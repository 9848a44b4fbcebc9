"""The driver of a snapshot: what it makes sure of before the view, and how it closes the books."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from kit.memory_job import config, memory_job
from kit.memory_kafka import MemoryKafka
from kit.store_contract import END, START, plan

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import CHUNK_PREFIX, RUN_KEY, VIEW_KEY
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.run_tally import RunTally
from airflow_provider_mysql_cdc.cdc.drain.chunk_visibility import is_passed
from airflow_provider_mysql_cdc.cdc.errors import FencedError, StateError
from airflow_provider_mysql_cdc.cdc.job.coordinator import Endpoint
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.snapshot import snapshot_driver as driver
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk
from airflow_provider_mysql_cdc.cdc.snapshot.chunk_records import (
    contained_event_range,
    filtering_chunk_records,
    record_chunks,
    renamed_rows_members,
    rows_by_table,
)
from airflow_provider_mysql_cdc.cdc.snapshot.remaining_chunks import DroppedChunk, RemainingChunks, ResolvedChunk

CFG = config()
TABLE = TableId("d", "t")
CHUNKS = [SnapshotChunk(TABLE, n, ("id",), (n,), (n + 1,), n == 2, 1, ("SIGNED",)) for n in range(3)]
LATER = END.with_position(END.file, END.pos + 100)
BATCH = replace(plan(writers=1), kind="snapshot")


@pytest.fixture
def kafka() -> MemoryKafka:
    return MemoryKafka()


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch, kafka: MemoryKafka) -> JobLedger:
    return memory_job(monkeypatch, CFG, kafka, run="run")


def snapshot(job: JobLedger, runner: Any = None, **more: Any) -> Any:
    batch = job.begin(replace(BATCH, **more)).plan_in_force()
    return driver._SnapshotDriver(CFG, batch, job, runner, lambda line: None)


# -- the books ---------------------------------------------------------------------------------------------------------


def finish(job: JobLedger, view: BinlogOffset, *read_at: BinlogOffset) -> None:
    """Write the records of a view and of chunks that are done."""
    places = record_chunks(job, 1, CHUNKS)
    job.put(VIEW_KEY, {"epoch": 1, "offset": view.to_json(), "ts_ms": 7})
    for chunk, offset in zip(CHUNKS, read_at, strict=False):
        record = {"chunk": chunk.to_json(), "offset": offset.to_json(), "rows": 1, "writer": 0}
        job.put(CHUNK_PREFIX + chunk.id, {"epoch": 1, **places[chunk.id], **record})


def test_a_snapshot_is_not_completed_while_a_chunk_is_missing(job: JobLedger) -> None:
    made = snapshot(job)
    finish(job, END, END, END)
    with pytest.raises(StateError, match="1 of 3 chunks of the snapshot are not committed") as caught:
        made._finish(CHUNKS)
    assert CHUNKS[2].id in caught.value.where and not job.read().complete()


def test_the_drain_begins_at_the_lowest_view_and_chunks_of_later_ones_filter(
    job: JobLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []
    monkeypatch.setattr(driver, "connect", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(driver, "require_same_binlog", lambda cfg, conn, ledger, epoch: looked.append(epoch))
    made = snapshot(job)
    finish(job, END, END, LATER, LATER)
    rows, first = made._finish(CHUNKS)
    assert first == job.read().end() == END and looked == [1]
    assert rows == {"p.d.t": 3}
    job.write_outcome(made.plan, counts=rows)
    assert RunTally.from_json(job.read().other_records[RUN_KEY]).tables == {"d.t": 3}
    assert sorted(job.read().done_chunks(1)) == [c.id for c in CHUNKS[1:]]


def test_chunks_of_rows_that_were_gone_filter_up_to_there_and_leave_the_start_where_it_was(
    job: JobLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = snapshot(job)
    finish(job, END, END, END)
    gone = RemainingChunks(dropped=(DroppedChunk(CHUNKS[2], ((TABLE, (-1, -1), (1, 7)),)),), reasons=("it is gone",))
    made._record_dropped(gone, LATER, job.read())
    rows, first = made._finish(CHUNKS)
    assert first == END and rows == {"p.d.t": 2}
    (kept,) = filtering_chunk_records(job.read())
    assert contained_event_range(kept) == {"offset": LATER.to_json(), "spans": [["d", "t", [-1, -1], [1, 7]]]}
    assert not is_passed(kept, END) and is_passed(kept, LATER)


# -- before the view ---------------------------------------------------------------------------------------------------


@pytest.fixture
def still(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return what a source says whose tables keep still; a test changes it."""
    says: dict[str, Any] = {"gone": None, "left": [RemainingChunks(), RemainingChunks()], "read": 0}
    monkeypatch.setattr(driver, "connect", lambda _: contextlib.nullcontext())
    for name in ("require_same_binlog", "require_readable", "prepare_topics"):
        monkeypatch.setattr(driver, name, lambda *_: None)
    monkeypatch.setattr(driver, "wait_for_visible_offset", lambda *_: (END, True))
    monkeypatch.setattr(driver, "captured_tables", lambda *_: [TABLE])
    monkeypatch.setattr(driver, "lock_metadata", lambda *_: says["gone"])
    monkeypatch.setattr(driver, "read_definitions", lambda *_: None)
    monkeypatch.setattr(driver, "captured_state", lambda _: SimpleNamespace(tables={TABLE: None}))
    monkeypatch.setattr(driver, "edge_chunks_of", lambda *_: ("", ""))
    resumption = SimpleNamespace(remaining_at=lambda end: says["left"].pop(0), position=END)
    monkeypatch.setattr(driver._SnapshotDriver, "_resumption", lambda *_: resumption)
    monkeypatch.setattr(driver._SnapshotDriver, "_record_dropped", lambda *_: None)
    monkeypatch.setattr(driver._SnapshotDriver, "_planned_chunks", lambda *_: (CHUNKS, {}))

    def read(*_: Any) -> list[str]:
        says["read"] += 1
        return []

    monkeypatch.setattr(driver._SnapshotDriver, "_read_chunks", read)
    return says


@pytest.fixture
def fresh(job: JobLedger) -> Any:
    return snapshot(job)


def test_tables_that_keep_still_are_read(still: dict[str, Any], fresh: Any) -> None:
    assert fresh._read_remaining(LedgerState()) == (CHUNKS, []) and still["read"] == 1


def test_a_table_that_is_gone_when_it_shall_be_held_is_looked_up_again(still: dict[str, Any], fresh: Any) -> None:
    still["gone"] = TABLE
    assert fresh._read_remaining(LedgerState()) == ([], ["d.t no longer exists"]) and still["read"] == 0


def test_a_table_that_moved_before_it_was_held_is_looked_up_again(still: dict[str, Any], fresh: Any) -> None:
    """Between the look at the binlog and the guard a rename may put another table under the name."""
    still["left"] = [RemainingChunks(), RemainingChunks((ResolvedChunk.unmoved(CHUNKS[0]),))]
    assert fresh._read_remaining(LedgerState())[1] and still["read"] == 0


def test_an_older_attempt_does_not_delete_the_history_that_a_newer_one_has_written(
    still: dict[str, Any], fresh: Any, job: JobLedger, kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka fences transactions, not the deletion of a topic."""
    monkeypatch.setattr(driver.recovery, "is_recovery", lambda _: True)
    monkeypatch.setattr(driver, "current_offset", lambda _: END)
    deleted: list[Any] = []
    monkeypatch.setattr(driver.recovery, "replace_history", lambda *given: deleted.append(given))
    fresh._read_remaining(LedgerState())
    assert len(deleted) == 1
    memory_job(monkeypatch, CFG, kafka).begin(BATCH)
    still["left"] = [RemainingChunks(), RemainingChunks()]
    with pytest.raises(FencedError):
        fresh._read_remaining(LedgerState())
    assert len(deleted) == 1


# -- the view ----------------------------------------------------------------------------------------------------------


class Opener:
    """A thread that has opened a view: what the driver looks for in it."""

    view: Any = SimpleNamespace(offset=LATER)

    def __init__(self, cfg: Any, rendezvous: Any, tables: Any, guard_conn: Any, use: Any) -> None:
        self._use, self.changed_tables = use, list[str]()

    def lead(self, stage_ended: Any) -> None:
        self.changed_tables = self._use.find_changes(self.view)


@pytest.mark.parametrize("gapless", [True, False])
def test_what_lies_between_plan_and_view_is_looked_at_and_tasks_are_written_down_before_they_start(
    job: JobLedger, monkeypatch: pytest.MonkeyPatch, gapless: bool
) -> None:
    """A retry with fewer tasks would not fence those that have committed nothing yet."""
    looked: list[Any] = []
    fenced: list[tuple[int, ...]] = []
    monkeypatch.setattr(driver, "ViewOpener", Opener)
    monkeypatch.setattr(driver, "build_snapshot_schema", lambda _: "described")
    monkeypatch.setattr(driver, "topic_partitions", lambda *_: {})
    monkeypatch.setattr(driver, "require_drained", lambda cfg, start, end: looked.append((start, end)))
    monkeypatch.setattr(driver, "tables_created_since", lambda cfg, listed, begin, end, names_in: [f"{begin} to {end}"])
    runner = SimpleNamespace(
        endpoint=Endpoint(), slots=lambda wanted: 3, run=lambda *_, **__: fenced.append(job.read().writer_ids())
    )
    made = snapshot(job, runner, gapless=gapless)
    queue = driver.ChunkQueue([ResolvedChunk.unmoved(c) for c in CHUNKS], {}, lambda line: None)
    definitions: Any = SimpleNamespace(tables={TABLE: 1}, lower_case_table_names=0)
    state: Any = SimpleNamespace(tables={TABLE: None})
    moved = made._read_chunks(queue, CHUNKS, END, state, definitions, None, job.read())
    assert moved == [f"{END} to {LATER}"]
    assert looked == ([(START, LATER)] if gapless else []) and fenced == [(0, 1, 2)]


def test_rows_count_for_the_tables_under_whose_names_they_went_out() -> None:
    """A table renamed between two views is read where it is by then; its chunk is still the old name's."""
    chunk, other = CHUNKS[0], TableId("d", "moved")
    assert renamed_rows_members(chunk, {TABLE: (5, 1)}) == renamed_rows_members(chunk, {}) == {}
    record = {"chunk": chunk.to_json(), "rows": 7, "left_out": 1}
    assert rows_by_table(record) == {TABLE: (7, 1)}
    named = record | renamed_rows_members(chunk, {TABLE: (5, 0), other: (2, 1)})
    assert rows_by_table(named) == {TABLE: (5, 0), other: (2, 1)}
