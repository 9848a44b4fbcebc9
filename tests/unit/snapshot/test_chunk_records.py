"""The list of a snapshot's chunks in the ledger, over the in-memory twins."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kit.memory_job import config, memory_job
from kit.memory_kafka import MemoryKafka
from kit.store_contract import END, START, plan

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import CHUNK_PREFIX, SNAPSHOT_KEY, VIEW_KEY
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.errors import StateError
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk
from airflow_provider_mysql_cdc.cdc.snapshot.chunk_records import (
    delete_chunk_records,
    done_record,
    filtering_chunk_records,
    record_chunks,
    recorded_chunks,
)
from airflow_provider_mysql_cdc.cdc.snapshot.same_binlog import view_offsets

TABLE = TableId("d", "t")
CHUNKS = [SnapshotChunk(TABLE, n, ("id",), (n * 10,), (n * 10 + 10,), n == 2, 10, ("SIGNED",)) for n in range(3)]
LATER = END.with_position(END.file, END.pos + 100)


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> JobLedger:
    return memory_job(monkeypatch, config(), MemoryKafka())


def finish(job: JobLedger, chunk: SnapshotChunk, place: dict[str, Any], offset: BinlogOffset, epoch: int = 1) -> None:
    rest = {"offset": offset.to_json(), "rows": 10, "writer": 0}
    job.put(CHUNK_PREFIX + chunk.id, {"epoch": epoch, **place, "chunk": chunk.to_json(), **rest})


def test_a_list_is_read_back_in_its_order_whatever_is_done(job: JobLedger) -> None:
    places = record_chunks(job, 1, CHUNKS)
    finish(job, CHUNKS[1], places[CHUNKS[1].id], END)
    ledger = job.read()
    assert recorded_chunks(ledger, 1) == (CHUNKS, places)
    assert list(ledger.done_chunks(1)) == [CHUNKS[1].id] and ledger.done_chunks(2) == {}
    with pytest.raises(StateError):
        recorded_chunks(ledger, 2)


def test_a_list_that_lacks_a_chunk_is_not_taken_for_a_whole_one(job: JobLedger) -> None:
    record_chunks(job, 1, CHUNKS)
    job.put_all([(CHUNK_PREFIX + CHUNKS[1].id, None)])
    with pytest.raises(StateError, match="does not contain all chunks") as caught:
        recorded_chunks(job.read(), 1)
    assert "2 of 3" in caught.value.why


def test_an_empty_list_of_the_snapshot_before_is_not_this_ones(job: JobLedger) -> None:
    record_chunks(job, 1, [])
    assert recorded_chunks(job.read(), 1) == ([], {})
    with pytest.raises(StateError, match="does not contain all chunks"):
        recorded_chunks(job.read(), 2)


def test_a_list_that_was_not_finished_leaves_nothing_in_the_next_one(job: JobLedger) -> None:
    record_chunks(job, 1, CHUNKS)
    other = SnapshotChunk(TableId("d", "z"), 0)
    places = record_chunks(job, 1, [other])
    assert recorded_chunks(job.read(), 1) == ([other], places)


def test_a_snapshot_whose_chunks_are_listed_is_not_complete(job: JobLedger) -> None:
    job.begin(replace(plan(writers=1), kind="snapshot"))
    record_chunks(job, 1, CHUNKS)
    assert not job.read().complete() and filtering_chunk_records(job.read()) == []
    job.put(SNAPSHOT_KEY, {"epoch": 1, "status": "planned", "offset": END.to_json(), "list": "x", "count": 3})
    assert not job.read().complete()
    job.put(SNAPSHOT_KEY, done_record(1, END))
    assert job.read().complete() and job.read().end() == END


def test_only_chunks_that_filter_events_are_kept(job: JobLedger) -> None:
    places = record_chunks(job, 1, CHUNKS)
    for chunk, offset in zip(CHUNKS, (END, LATER, END), strict=True):
        finish(job, chunk, places[chunk.id], offset)
    assert filtering_chunk_records(job.read()) == [], "the snapshot is not done"
    job.put(SNAPSHOT_KEY, done_record(1, END, repeated=True))
    assert filtering_chunk_records(job.read()) == [], "it was taken beside a stream"
    job.put(SNAPSHOT_KEY, done_record(1, END))
    ledger = job.read()
    delete_chunk_records(job, ledger, [r for r in filtering_chunk_records(ledger) if r["offset"]["pos"] > END.pos])
    assert [r["offset"]["pos"] for r in filtering_chunk_records(job.read())] == [LATER.pos]


def test_the_views_of_a_snapshot_are_those_of_its_chunks_and_of_its_structures(job: JobLedger) -> None:
    places = record_chunks(job, 1, CHUNKS)
    job.put(VIEW_KEY, {"epoch": 1, "offset": START.to_json(), "ts_ms": 7})
    for chunk in CHUNKS[:2]:
        finish(job, chunk, places[chunk.id], END)
    assert sorted(o.pos for o in view_offsets(job.read(), 1)) == [START.pos, END.pos]
    assert view_offsets(job.read(), 2) == view_offsets(LedgerState(), 1) == []
