"""The table of workloads, and what a steady load tells."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from benchlib.contest import RUNNERS, Repeats, can_run, group_by_rows
from benchlib.ground import WorkloadRun
from benchlib.lag import committed_at, lags
from benchlib.loading import load
from benchlib.sides import DEBEZIUM, FLINK, NATIVE, PYTHON, SIDES
from benchlib.workload import LEAST_ROWS, WORKLOADS


def test_neighbours_on_the_same_rows_share_a_load() -> None:
    shared = [[w.name for w in some] for some in group_by_rows(list(WORKLOADS.values())) if len(some) > 1]
    assert shared == [
        *(
            ["narrow", "avro", "snapshot", "verify", "verify-rows", "narrow-lz4", "ticdc"],
            ["wide-schemas", "snapshot-wide"],
        ),
        *([f"{where}-{how}-{n}" for how in ("writers", "cores") for n in (1, 2)] for where in ("hot", "tables")),
    ]
    quick = [w.scaled(1.0, quick=True) for w in WORKLOADS.values() if w.quick]
    assert [[w.name for w in some] for some in group_by_rows(quick)] == [
        *(["narrow", "avro", "snapshot"], ["narrow-schemas"], ["wide"], ["incremental"])
    ]


def test_each_workload_is_run_by_one_peer_at_most() -> None:
    for workload in WORKLOADS.values():
        peers = [s.name for s in SIDES.values() if not s.provider and can_run(workload, s)]
        assert peers == ([workload.peer] if workload.peer else [])
        assert can_run(workload, PYTHON) and can_run(workload, NATIVE)
    flink = WORKLOADS["flink-narrow"]
    assert (flink.peer, flink.rows, flink.mysql, flink.quick) == (FLINK.name, 1_000_000, "8.0.15", 0)
    assert [w.name for w in WORKLOADS.values() if w.mysql or w.peer == FLINK.name] == ["flink-narrow"]
    assert flink.rows_as != replace(flink, mysql=None).rows_as


def test_each_server_has_names_of_its_own_in_the_broker() -> None:
    ground: Any = None
    entries = [
        WorkloadRun(ground, w, PYTHON, Path(), 1)
        for w in (replace(WORKLOADS["narrow"], mysql=v) for v in (None, "8.0.15"))
    ]
    assert [entry.prefix(0) for entry in entries] == ["bench_narrow_python_0", "bench_narrow_8_0_15_python_0"]


def test_only_a_workload_of_compressed_transactions_sets_what_older_servers_do_not_know(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []
    cursor = MagicMock()
    cursor.__enter__.return_value.execute.side_effect = said.append
    cursor.__enter__.return_value.fetchone.return_value = (1_000_000,)
    source = MagicMock()
    source.connect.return_value.__enter__.return_value.cursor.return_value = cursor
    load(source, WORKLOADS["flink-narrow"])
    assert said and not any("compression" in each for each in said)
    load(source, WORKLOADS["compressed"])
    assert "SET binlog_transaction_compression = ON" in said


@pytest.mark.parametrize("scale", [1.0, 0.01, 0.00001])
def test_a_scaled_workload_has_rows_for_each_of_its_tables(scale: float) -> None:
    for workload in (w.scaled(scale) for w in WORKLOADS.values()):
        assert workload.rows >= LEAST_ROWS // 2 and workload.rows % workload.tables == 0
        assert len(set(workload.names)) == workload.tables
        assert workload.kind in RUNNERS and (workload.seconds >= 20) == bool(workload.seconds)
    many = WORKLOADS["tables-10000"].scaled(scale)
    assert many.tables == {1.0: 10_000, 0.01: 100, 0.00001: 2}[scale]
    assert many.included == "bench[.]orders_[0-9]+" and many.names[1] == "orders_00001"


def test_what_takes_long_is_run_once() -> None:
    repeats = Repeats(3, 2)
    assert [repeats.of(WORKLOADS["narrow"], side) for side in (PYTHON, DEBEZIUM)] == [3, 2]
    assert repeats.of(WORKLOADS["lag-run-for"], PYTHON) == repeats.of(WORKLOADS["tables-10000"], DEBEZIUM) == 1
    assert repeats.of(WORKLOADS["tables-1000"], PYTHON) == 3


def test_events_that_waited_for_the_start_tell_no_lag() -> None:
    """The first arrives at 10 and was committed at 2, as were others until 9: the reader began at 10."""
    seen = [(10.0, 2.0), (10.0, 9.0), (10.5, 10.0), (12.0, 11.0), (15.0, 12.0)]
    assert lags(seen) == {"p50": 1.0, "p95": 3.0, "max": 3.0}
    assert lags(seen[:2]) == {"p50": 8.0, "p95": 8.0, "max": 8.0}
    assert lags([]) == {}


def test_only_updates_are_timed() -> None:
    def value(op: str) -> bytes:
        return json.dumps({"op": op, "source": {"ts_us": 1_500_000}}).encode()

    assert committed_at(value("u")) == 1.5
    assert committed_at(value("c")) is None and committed_at(None) is None
