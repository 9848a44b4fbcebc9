"""The list of a snapshot's chunks in the ledger, over the in-memory twins."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kit.memory_job import config, memory_job
from kit.memory_kafka import MemoryKafka
from kit.store_contract import END, plan

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import CHUNK_PREFIX, SNAPSHOT_KEY
from airflow_provider_mysql_cdc.cdc.errors import StateError
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk
from airflow_provider_mysql_cdc.cdc.snapshot.chunk_records import (
    count_rows,
    delete_chunk_records,
    done_record,
    done_records,
    record_chunks,
    recorded_chunks,
)

TABLE = TableId("d", "t")
CHUNKS = [SnapshotChunk(TABLE, n, ("id",), (n * 10,), (n * 10 + 10,), n == 2, 10, ("SIGNED",)) for n in range(3)]


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> JobLedger:
    return memory_job(monkeypatch, config(), MemoryKafka())


def finish(
    job: JobLedger, chunk: SnapshotChunk, place: dict[str, Any], offset: BinlogOffset, epoch: int = 1, **more: Any
) -> None:
    rest = {"offset": offset.to_json(), "rows": 10, "left_out": 0, "ts_ms": 7}
    job.put(CHUNK_PREFIX + chunk.id, {"epoch": epoch, **place, "chunk": chunk.to_json(), **rest, **more})


def test_a_list_is_read_back_in_its_order_whatever_is_done(job: JobLedger) -> None:
    places = record_chunks(job, 1, CHUNKS, {})
    finish(job, CHUNKS[1], places[CHUNKS[1].id], END)
    ledger = job.read()
    assert recorded_chunks(ledger, 1) == (CHUNKS, places)
    assert list(ledger.done_chunks(1)) == [CHUNKS[1].id] and ledger.done_chunks(2) == {}
    with pytest.raises(StateError):
        recorded_chunks(ledger, 2)


def test_a_list_that_lacks_a_chunk_is_not_taken_for_a_whole_one(job: JobLedger) -> None:
    record_chunks(job, 1, CHUNKS, {})
    job.put_all([(CHUNK_PREFIX + CHUNKS[1].id, None)])
    with pytest.raises(StateError, match="does not contain all chunks") as caught:
        recorded_chunks(job.read(), 1)
    assert "2 of 3" in caught.value.why


def test_an_empty_list_of_the_snapshot_before_is_not_this_ones(job: JobLedger) -> None:
    record_chunks(job, 1, [], {})
    assert recorded_chunks(job.read(), 1) == ([], {})
    with pytest.raises(StateError, match="does not contain all chunks"):
        recorded_chunks(job.read(), 2)


def test_a_list_that_was_not_finished_leaves_nothing_in_the_next_one(job: JobLedger) -> None:
    record_chunks(job, 1, CHUNKS, {})
    other = SnapshotChunk(TableId("d", "z"), 0)
    places = record_chunks(job, 1, [other], {})
    assert recorded_chunks(job.read(), 1) == ([other], places)


def test_a_snapshot_whose_chunks_are_listed_is_not_complete(job: JobLedger) -> None:
    job.begin(replace(plan(writers=1), kind="snapshot"))
    record_chunks(job, 1, CHUNKS, {})
    assert not job.read().complete()
    job.put(SNAPSHOT_KEY, {"epoch": 1, "status": "planned", "offset": END.to_json(), "list": "x", "count": 3})
    assert not job.read().complete()
    job.put(SNAPSHOT_KEY, done_record(1, END))
    assert job.read().complete() and job.read().end() == END


def test_the_records_of_all_chunks_go_when_the_snapshot_is_done(job: JobLedger) -> None:
    places = record_chunks(job, 1, CHUNKS, {})
    finish(job, CHUNKS[0], places[CHUNKS[0].id], END)
    delete_chunk_records(job, job.read())
    assert job.read().chunks == {}


def test_chunks_that_are_not_read_again_keep_their_records_in_the_new_list(job: JobLedger) -> None:
    places = record_chunks(job, 1, CHUNKS, {})
    finish(job, CHUNKS[1], places[CHUNKS[1].id], END)
    places = record_chunks(job, 1, CHUNKS, job.read().done_chunks(1))
    ledger = job.read()
    assert recorded_chunks(ledger, 1) == (CHUNKS, places)
    (kept,) = ledger.done_chunks(1).values()
    assert (kept["offset"], kept["rows"], kept["list"]) == (END.to_json(), 10, places[CHUNKS[1].id]["list"])


def test_only_what_is_read_of_the_list_is_done_and_counted(job: JobLedger) -> None:
    """A chunk that an earlier list had, and the valid one has not, may be left behind."""
    places = record_chunks(job, 1, CHUNKS, {})
    finish(job, CHUNKS[0], places[CHUNKS[0].id], END, left_out=2)
    finish(job, CHUNKS[2], places[CHUNKS[2].id], END)
    done = done_records(job.read(), 1, CHUNKS[:2])
    assert list(done) == [CHUNKS[0].id] and done_records(job.read(), 2, CHUNKS) == {}
    assert count_rows(config(), job, done) == {"p.d.t": 10, "p.d.t (rows left out)": 2}
