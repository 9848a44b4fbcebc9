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
from airflow_provider_mysql_cdc.cdc.errors import FencedError, StateError
from airflow_provider_mysql_cdc.cdc.job.coordinator import Endpoint
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.snapshot import snapshot_driver as driver
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk
from airflow_provider_mysql_cdc.cdc.snapshot.chunk_records import record_chunks

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
    places = record_chunks(job, 1, CHUNKS, {})
    job.put(VIEW_KEY, {"epoch": 1, "offset": view.to_json(), "ts_ms": 7})
    for chunk, offset in zip(CHUNKS, read_at, strict=False):
        record = {"chunk": chunk.to_json(), "offset": offset.to_json(), "rows": 1, "left_out": 0, "ts_ms": 7}
        job.put(CHUNK_PREFIX + chunk.id, {"epoch": 1, **places[chunk.id], **record})


def test_a_snapshot_is_not_completed_while_a_chunk_is_missing(job: JobLedger) -> None:
    made = snapshot(job)
    finish(job, END, END, END)
    with pytest.raises(StateError, match="1 of 3 chunks of the snapshot are not committed") as caught:
        made._finish(CHUNKS)
    assert CHUNKS[2].id in caught.value.where and not job.read().complete()


def test_the_drain_begins_at_the_view_and_the_chunks_are_deleted(job: JobLedger) -> None:
    made = snapshot(job)
    finish(job, END, END, END, END)
    rows, first = made._finish(CHUNKS)
    assert first == job.read().end() == END
    assert rows == {"p.d.t": 3}
    job.write_outcome(made.plan, counts=rows)
    assert RunTally.from_json(job.read().other_records[RUN_KEY]).tables == {"d.t": 3}
    assert job.read().chunks == {}


def test_only_the_chunks_of_this_list_are_counted(job: JobLedger) -> None:
    """A table may have had other chunks when it was read before."""
    made = snapshot(job)
    finish(job, END, END, END, END)
    rows, _ = made._finish(CHUNKS[:2])
    assert rows == {"p.d.t": 2}


# -- initial_only, which keeps the tables that were read completely ----------------------------------------------------


OTHER = TableId("d", "other")


def chunks_of(table: TableId, *numbers: int, of: int) -> list[SnapshotChunk]:
    return [SnapshotChunk(table, n, ("id",), (n,), (n + 1,), n == of - 1, 1, ("SIGNED",)) for n in numbers]


@pytest.mark.parametrize(
    ("numbers", "complete"),
    [((0, 1, 2), True), ((2, 1, 0), True), ((0, 1), False), ((0, 2), False), ((1, 2), False), ((2,), False)],
)
def test_only_a_table_whose_every_chunk_was_read_is_kept(
    job: JobLedger, monkeypatch: pytest.MonkeyPatch, numbers: tuple[int, ...], complete: bool
) -> None:
    made = snapshot(job)
    made.cfg = config(snapshot__mode="initial_only")
    read = [*chunks_of(TABLE, *numbers, of=3), *chunks_of(OTHER, 0, of=1)]
    done = {"offset": END.to_json(), "rows": 1, "left_out": 0, "ts_ms": 7, "list": "x", "order": 0}
    for chunk in read:
        job.put(CHUNK_PREFIX + chunk.id, {"epoch": 1, "chunk": chunk.to_json(), **done})
    planned = chunks_of(TableId("d", "planned"), 0, of=1)[0]
    job.put(CHUNK_PREFIX + planned.id, {"epoch": 1, "chunk": planned.to_json(), "list": "x", "order": 0})
    kept = made._finished_tables(job.read())
    assert kept == ({TABLE: chunks_of(TABLE, 0, 1, 2, of=3)} if complete else {}) | {OTHER: chunks_of(OTHER, 0, of=1)}
    assert snapshot(job, **{})._finished_tables(job.read()) == {}, "with a stream nothing is kept: the view is another"
    tables: Any = {TABLE: SimpleNamespace(id=TABLE), OTHER: SimpleNamespace(id=OTHER)}
    monkeypatch.setattr(driver, "check_override", lambda *_: None)
    monkeypatch.setattr(driver, "split_table", lambda conn, table, *_, **__: chunks_of(table.id, 0, 1, of=2))
    assert made._plan_chunks(None, tables, kept) == [
        *chunks_of(TABLE, *((0, 1, 2) if complete else (0, 1)), of=3 if complete else 2),
        *chunks_of(OTHER, 0, of=1),
    ]


# -- before the view ---------------------------------------------------------------------------------------------------


@pytest.fixture
def still(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return what a source says whose tables keep still; a test changes it."""
    says: dict[str, Any] = {"gone": None, "read": [], "logs": []}
    monkeypatch.setattr(driver, "connect", lambda _: contextlib.nullcontext())
    for name in ("prepare_topics", "require_own_history"):
        monkeypatch.setattr(driver, name, lambda *_: None)
    monkeypatch.setattr(driver, "wait_for_visible_offset", lambda *_: (END, True))
    monkeypatch.setattr(driver, "captured_tables", lambda *_: [TABLE])
    monkeypatch.setattr(driver, "lock_metadata", lambda *_: says["gone"])
    monkeypatch.setattr(driver, "read_definitions", lambda conn, cfg, tables, *log: says["logs"].extend(log))
    monkeypatch.setattr(driver, "captured_state", lambda _: SimpleNamespace(tables={TABLE: SimpleNamespace(id=TABLE)}))
    monkeypatch.setattr(driver, "edge_chunks_of", lambda *_: ("", ""))
    monkeypatch.setattr(driver, "check_override", lambda *_: None)
    monkeypatch.setattr(driver, "split_table", lambda *_, **__: CHUNKS)
    monkeypatch.setattr(JobLedger, "register_schemas", lambda *_: None)

    def read(self: Any, queue: Any, *_: Any) -> list[str]:
        says["read"].append([chunk.id for chunk in queue.waiting])
        return []

    monkeypatch.setattr(driver._SnapshotDriver, "_read_chunks", read)
    return says


@pytest.fixture
def fresh(job: JobLedger) -> Any:
    return snapshot(job)


def test_tables_that_keep_still_are_read(still: dict[str, Any], fresh: Any) -> None:
    assert fresh._read_tables(LedgerState()) == (CHUNKS, [])
    assert still["read"] == [[chunk.id for chunk in CHUNKS]]
    assert still["logs"] == [fresh.log], "what takes long before the rows is said"


def test_a_table_that_is_gone_when_it_shall_be_held_is_looked_up_again(still: dict[str, Any], fresh: Any) -> None:
    still["gone"] = TABLE
    assert fresh._read_tables(LedgerState()) == ([], ["d.t no longer exists"]) and still["read"] == []


def test_a_snapshot_that_begins_again_reads_every_chunk_but_those_of_initial_only(
    still: dict[str, Any], fresh: Any, job: JobLedger
) -> None:
    finish(job, END, END, END, END)
    assert fresh._read_tables(job.read())[0] == CHUNKS and len(still["read"].pop()) == 3
    finish(job, END, END, END, END)
    fresh.cfg = config(snapshot__mode="initial_only")
    assert fresh._read_tables(job.read())[0] == CHUNKS and still["read"] == [[]]
    assert len(job.read().done_chunks(1)) == 3, "they are in the new list as they were"


def test_an_older_attempt_does_not_delete_the_history_that_a_newer_one_has_written(
    still: dict[str, Any], fresh: Any, job: JobLedger, kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka fences transactions, not the deletion of a topic."""
    monkeypatch.setattr(driver.recovery, "is_recovery", lambda _: True)
    monkeypatch.setattr(driver, "current_offset", lambda _: END)
    deleted: list[Any] = []
    monkeypatch.setattr(driver.recovery, "replace_history", lambda *given: deleted.append(given))
    fresh._read_tables(LedgerState())
    assert len(deleted) == 1
    memory_job(monkeypatch, CFG, kafka).begin(BATCH)
    with pytest.raises(FencedError):
        fresh._read_tables(LedgerState())
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
    queue = driver.ChunkQueue(list(CHUNKS), {}, lambda line: None)
    definitions: Any = SimpleNamespace(tables={TABLE: 1}, lower_case_table_names=0)
    state: Any = SimpleNamespace(tables={TABLE: None})
    moved = made._read_chunks(queue, END, state, definitions, None, job.read())
    assert moved == [f"{END} to {LATER}"]
    assert looked == ([(START, LATER)] if gapless else []) and fenced == [(0, 1, 2)]
