"""What notifications report of a snapshot's tables while its view is read, and what is left for its end."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kit.memory_job import config, memory_job, transactions
from kit.memory_kafka import MemoryKafka

from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.job.task_operation import EMPTY
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.snapshot import table_reports
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk
from airflow_provider_mysql_cdc.cdc.snapshot.chunk_queue import ChunkQueue
from airflow_provider_mysql_cdc.cdc.snapshot.chunk_records import report_keys
from airflow_provider_mysql_cdc.cdc.snapshot.snapshot_operations import ChunkRows
from airflow_provider_mysql_cdc.cdc.snapshot.table_reports import TableReports, end_of_view_records

CFG = config(notification__enabled__channels="sink", notification__sink__topic__name="notes")
A, B = TableId("d", "a"), TableId("d", "b")
CHUNKS = [SnapshotChunk(A, 0, last=False), SnapshotChunk(A, 1), SnapshotChunk(B, 0)]
DONE: dict[str, Any] = {chunk.id: {"rows": 10 + n, "left_out": 1} for n, chunk in enumerate(CHUNKS)}


@pytest.fixture
def kafka() -> MemoryKafka:
    return MemoryKafka()


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch, kafka: MemoryKafka) -> JobLedger:
    return memory_job(monkeypatch, CFG, kafka)


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch, job: JobLedger) -> TableReports:
    monkeypatch.setattr(table_reports, "WRITE_INTERVAL_S", 0.0)
    entries = {chunk.id: {"list": "l", "order": n} for n, chunk in enumerate(CHUNKS)}
    return TableReports(CFG, job, ChunkQueue(list(CHUNKS), {}, lambda line: None, list_entries=entries))


def told(values: list[bytes | None]) -> list[tuple[str, ...]]:
    """Return type, table and rows of each notification."""
    notes = [json.loads(value or b"") for value in values]
    assert {note["aggregate_type"] for note in notes} <= {"Initial Snapshot"}
    assert len({note["id"] for note in notes}) == len(notes), "each has an id of its own"
    return [
        (
            note["type"],
            *(note["additional_data"].get(n, "") for n in ("current_collection_in_progress", "scanned_collection")),
            note["additional_data"].get("total_rows_scanned", ""),
            note["additional_data"].get("data_collections", ""),
        )
        for note in notes
    ]


def in_topic(kafka: MemoryKafka) -> list[tuple[str, ...]]:
    return told([record.value for record in kafka.committed("notes")])


def at_end(job: JobLedger, *ids: str) -> list[tuple[str, ...]]:
    done = {id_: DONE[id_] for id_ in ids}
    return told([record.value for record in end_of_view_records(CFG, job.read(), CHUNKS, done)])


BEGUN_A, BEGUN_B = ("IN_PROGRESS", "d.a", "", "", "d.a,d.b"), ("IN_PROGRESS", "d.b", "", "", "d.a,d.b")
READ_A = ("TABLE_SCAN_COMPLETED", "", "d.a", "23", "d.a,d.b")
READ_B = ("TABLE_SCAN_COMPLETED", "", "d.b", "13", "d.a,d.b")
COMPLETED = ("COMPLETED", "", "", "", "")


def test_a_table_is_reported_with_its_first_and_its_last_chunk(
    reports: TableReports, job: JobLedger, kafka: MemoryKafka
) -> None:
    reports.next(0, EMPTY), reports.next(1, EMPTY), reports.next(2, EMPTY)
    assert in_topic(kafka) == [BEGUN_A, BEGUN_B]
    reports.done(1, ChunkRows(CHUNKS[1].id, 12))
    reports.done(2, ChunkRows(CHUNKS[2].id, 13))
    reports.done(0, ChunkRows(CHUNKS[0].id, 11))
    assert in_topic(kafka) == [BEGUN_A, BEGUN_B, READ_B, READ_A]
    assert at_end(job, *DONE) == [COMPLETED]
    assert sorted(report_keys(job.read())) == ["snapshot-table/d.a", "snapshot-table/d.b"]
    both = [keys for keys in transactions(kafka, CFG.ledger_topic) if any(b"snapshot-table/" in key for key in keys)]
    assert len(both) == 4, "the ledger tells of each of them, in its transaction"


def test_what_is_not_reported_yet_is_reported_at_the_end(reports: TableReports, job: JobLedger) -> None:
    """A driver died between the last row of a table and its notification, or before a transaction was due."""
    assert at_end(job, *DONE) == [BEGUN_A, READ_A, BEGUN_B, READ_B, COMPLETED]
    reports.next(0, EMPTY)
    assert at_end(job, *DONE) == [READ_A, BEGUN_B, READ_B, COMPLETED]
    assert at_end(job, CHUNKS[0].id) == [], "windows read the rest of a, and report b when they begin with it"
    assert at_end(job, CHUNKS[1].id, CHUNKS[2].id) == [BEGUN_B, READ_B]


def test_thousands_of_small_tables_share_transactions(
    reports: TableReports, job: JobLedger, kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_reports, "WRITE_INTERVAL_S", 3600.0)
    reports.next(0, EMPTY)
    for number, chunk in enumerate(CHUNKS):
        reports.next(0, EMPTY)
        reports.done(0, ChunkRows(chunk.id, 11 + number))
    assert in_topic(kafka) == [BEGUN_A]
    assert at_end(job, *DONE) == [READ_A, BEGUN_B, READ_B, COMPLETED]


def test_without_notifications_nothing_is_written(
    monkeypatch: pytest.MonkeyPatch, job: JobLedger, reports: TableReports, kafka: MemoryKafka
) -> None:
    reports.cfg = config()
    monkeypatch.setattr(JobLedger, "commit", lambda *_: pytest.fail("a transaction"))
    for chunk in CHUNKS:
        reports.next(0, EMPTY)
        reports.done(0, ChunkRows(chunk.id, 1))
    assert end_of_view_records(config(), job.read(), CHUNKS, DONE) == []
