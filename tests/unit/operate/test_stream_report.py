"""What a person sees of a stream: its state in a word, errors with remedies, and nothing of a row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kit.cases import for_each
from kit.verify_results import CUSTOMERS, ORDERS, verify_result

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import JOB_ERROR_PREFIX
from airflow_provider_mysql_cdc.cdc.commit.ledger_records import build_ledger_state
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import encode
from airflow_provider_mysql_cdc.cdc.errors import BinlogPurgedError
from airflow_provider_mysql_cdc.cdc.metrics.prometheus_text import StreamLag
from airflow_provider_mysql_cdc.cdc.metrics.stream_metrics import StreamMetrics
from airflow_provider_mysql_cdc.cdc.operate.snapshot_progress import MAX_CELLS, TableChunks, seconds_left
from airflow_provider_mysql_cdc.cdc.operate.stream_report import MAX_ENTRIES, stream_report, stream_state, table_counts
from airflow_provider_mysql_cdc.cdc.operate.stream_status import FRESH_MS, StreamStatus
from airflow_provider_mysql_cdc.cdc.verify.report.verdict_records import verdict_values
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import DifferenceKind, VerifyRequest

pytestmark = pytest.mark.quick

DONE = {"epoch": 3, "kind": "drain", "complete": True, "ok": True, "outcome_of": 3, "ended_ms": 5}
NOW_MS = 1_000_000
SAMPLE = VerifyRequest(("shop.customers",), sample_percent=1.0)


def state(active: bool | None, batch: dict[str, Any], lag: StreamLag, progress_ms: int | None = None) -> str:
    return stream_state(StreamStatus("shop", NOW_MS, active, lag, StreamMetrics(), batch, progress_ms))


@for_each(
    ("expected", "active", "batch", "lag", "progress_ms"),
    [
        ("not started", False, {}, StreamLag(), None),
        ("up to date", False, DONE, StreamLag(0), None),
        ("behind", False, DONE, StreamLag(1), None),
        ("lag unknown", None, DONE, StreamLag(why="down"), None),
        ("draining", True, DONE | {"complete": False}, StreamLag(9), NOW_MS - 5),
        ("draining", True, DONE, StreamLag(9), None),
        ("snapshot", True, {"epoch": 1, "kind": "snapshot", "complete": False}, StreamLag(), None),
        ("draining", True, DONE, StreamLag(0), NOW_MS - FRESH_MS),
        ("no progress", True, DONE | {"complete": False}, StreamLag(9), NOW_MS - FRESH_MS),
        ("interrupted", False, DONE | {"epoch": 4, "complete": False}, StreamLag(9), None),
        ("failed", False, DONE | {"complete": False, "ok": False}, StreamLag(9), None),
        ("interrupted", False, DONE | {"epoch": 4, "complete": False, "ok": False}, StreamLag(9), None),
    ],
)
def test_the_state_is_one_of_few_words(
    expected: str, active: bool | None, batch: dict[str, Any], lag: StreamLag, progress_ms: int | None
) -> None:
    assert state(active, batch, lag, progress_ms) == expected


def test_errors_come_newest_first_with_what_to_do() -> None:
    errors = {
        f"{JOB_ERROR_PREFIX}{n}": {"owner": f"d/r{n}/t/-1", "ts_ms": n, "error": BinlogPurgedError("gone").to_json()}
        for n in range(MAX_ENTRIES + 20)
    }
    found = stream_report(LedgerState(other_records=errors))["errors"]
    assert [error["ts_ms"] for error in found] == sorted(range(20, MAX_ENTRIES + 20), reverse=True)
    assert found[0]["type"] == "BinlogPurgedError" and found[0]["remedy"] == BinlogPurgedError.advice.rstrip(".")


def test_tables_have_their_records_and_the_verdict_that_counts() -> None:
    records: dict[str, bytes | None] = {}
    ghosts = replace(CUSTOMERS, findings={DifferenceKind.GHOST: 1})
    for found in (verify_result(ORDERS, ghosts, run="r1"), verify_result(CUSTOMERS, run="r2", request=SAMPLE)):
        for key, value in verdict_values(build_ledger_state(records), found):
            records[key] = None if value is None else encode(value)
    rows = {row["table"]: row for row in table_counts(build_ledger_state(records), {"shop.orders": 3, "a.z": 1})}
    assert {name: (row["records"], row["verdict"]) for name, row in rows.items()} == {
        "shop.orders": (3, "different"),
        "shop.customers": (0, "different"),
        "a.z": (1, None),
    }


def test_an_empty_ledger_has_an_empty_report() -> None:
    found = stream_report(LedgerState())
    assert (found["errors"], found["scans"], found["signals"]) == ([], [], [])
    assert table_counts(LedgerState(), {"a.z": 1}) == [{"table": "a.z", "records": 1, "verdict": None}]


def test_cells_of_a_table_stand_for_its_chunks_in_order() -> None:
    few = TableChunks("a.b", (True, False, True), 10, 5)
    assert few.cells() == (1.0, 0.0, 1.0)
    many = TableChunks("a.b", (True,) * 300 + (False,) * 300, 10, 5)
    assert many.cells() == (1.0,) * (MAX_CELLS // 2) + (0.0,) * (MAX_CELLS // 2)
    assert TableChunks("a.b", (), 0, 0).cells() == ()


def test_the_time_left_follows_rows_and_without_an_estimate_chunks() -> None:
    by_rows = [TableChunks("a", (True, False, False), 100, 300)]
    assert seconds_left(by_rows, 10) == 30
    by_chunks = [TableChunks("a", (True, False, False), 100, 0)]
    assert seconds_left(by_chunks, 10) == 20
    assert seconds_left([TableChunks("a", (False,), 0, 10)], 10) is None
    assert seconds_left([TableChunks("a", (True,), 10, 0)], 10) == 0
