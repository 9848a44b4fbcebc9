"""Snapshots of many chunks: one ledger record each, against a real ledger."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from kit.store_contract import START
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import CHUNK_PREFIX
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.errors import StateError
from airflow_provider_mysql_cdc.cdc.job import job_ledger
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import read_topic_committed
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk
from airflow_provider_mysql_cdc.cdc.snapshot.chunk_records import (
    delete_chunk_records,
    done_record,
    done_records,
    record_chunks,
    recorded_chunks,
)


def chunks_of(count: int, tables: int = 4) -> list[SnapshotChunk]:
    return [
        SnapshotChunk(
            TableId("shop", f"orders_{n % tables}"), n // tables, ("id",), (n,), (n + 1,), False, 10, ("SIGNED",)
        )
        for n in range(count)
    ]


def done(ledger: LedgerState, names: list[str], offset: Any) -> list[tuple[str, dict[str, Any] | None]]:
    more = {"offset": offset.to_json(), "rows": 10, "left_out": 0, "ts_ms": 7}
    return [(CHUNK_PREFIX + name, ledger.chunks[name] | more) for name in names]


@pytest.fixture
def job(properties: dict[str, str]) -> Any:
    with JobLedger(Pipeline(properties).cfg) as made:
        made.begin(BatchPlan(1, "snapshot", START, START, 1))
        yield made


def largest_record(properties: dict[str, str]) -> int:
    cfg = Pipeline(properties).cfg
    return max(len(r.value or b"") for r in read_topic_committed(cfg.kafka_settings(), cfg.ledger_topic))


@pytest.mark.req("SNAP-14")
@pytest.mark.exhaustive
def test_twenty_thousand_chunks_are_listed_resumed_and_forgotten(job: JobLedger, properties: dict[str, str]) -> None:
    chunks = chunks_of(20_000)
    places = record_chunks(job, 1, chunks, {})
    ledger = job.read()
    assert recorded_chunks(ledger, 1) == (chunks, places)
    assert not ledger.has_commits() and ledger.done_chunks(1) == {}
    job.put_all(done(ledger, [c.id for c in chunks], START))
    began = time.process_time()
    ledger = job.read()
    assert time.process_time() - began < 10
    assert set(ledger.done_chunks(1)) == {c.id for c in chunks} and recorded_chunks(ledger, 1) == (chunks, places)
    assert set(done_records(ledger, 1, chunks[:15_000])) == {c.id for c in chunks[:15_000]}
    job.put("snapshot", done_record(1, START))
    job.write_outcome(BatchPlan(1, "snapshot", START, START, 1), counts={c.id: 10 for c in chunks})
    ledger = job.read()
    assert ledger.complete() and ledger.end() == START
    assert ledger.outcome is not None and sum(ledger.outcome["counts"].values()) == 200_000
    delete_chunk_records(job, ledger)
    assert job.read().chunks == {}
    assert largest_record(properties) < 100_000


def test_a_list_that_was_interrupted_is_never_taken_for_a_whole_one(
    job: JobLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_ledger, "MAX_TRANSACTION_RECORDS", 10)
    record_chunks(job, 1, chunks_of(50), {})
    complete = job.read()
    again = chunks_of(30, tables=2)
    monkeypatch.setattr(job, "put", lambda key, value: None)  # the attempt dies before the list is whole
    record_chunks(job, 1, again, {})
    monkeypatch.undo()
    with pytest.raises(StateError, match="does not contain all chunks"):
        recorded_chunks(job.read(), 1)
    places = record_chunks(job, 1, again, {})
    assert recorded_chunks(job.read(), 1) == (again, places)
    assert len(recorded_chunks(complete, 1)[0]) == 50
    with pytest.raises(StateError, match="does not contain all chunks"):
        recorded_chunks(replace(complete, chunks=dict(list(complete.chunks.items())[1:])), 1)
