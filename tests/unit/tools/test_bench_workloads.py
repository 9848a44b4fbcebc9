"""The table of workloads, and what a steady load tells."""

from __future__ import annotations

from dataclasses import replace

from benchlib.contest import RUNNERS, can_run
from benchlib.lag import lags
from benchlib.sides import FLINK, NATIVE, PYTHON, SIDES
from benchlib.workload import LEAST_ROWS, WORKLOADS
from kit.cases import case


def test_each_workload_is_run_by_one_peer_at_most() -> None:
    for workload in WORKLOADS.values():
        peers = [s.name for s in SIDES.values() if not s.provider and can_run(workload, s)]
        assert peers == ([workload.peer] if workload.peer else [])
        assert can_run(workload, PYTHON) and can_run(workload, NATIVE)
    flink = WORKLOADS["flink-narrow"]
    assert (flink.peer, flink.rows, flink.mysql, flink.quick) == (FLINK.name, 1_000_000, "8.0.15", 0)
    assert [w.name for w in WORKLOADS.values() if w.mysql or w.peer == FLINK.name] == ["flink-narrow"]
    assert flink.rows_as != replace(flink, mysql=None).rows_as


def test_a_scaled_workload_has_rows_for_each_of_its_tables() -> None:
    for scale in [1.0, 0.01, 0.00001]:
        with case(scale):
            for workload in (w.scaled(scale) for w in WORKLOADS.values()):
                assert workload.rows >= LEAST_ROWS // 2 and workload.rows % workload.tables == 0
                assert len(set(workload.names)) == workload.tables
                assert workload.kind in RUNNERS and (workload.seconds >= 20) == bool(workload.seconds)
            many = WORKLOADS["tables-10000"].scaled(scale)
            assert many.tables == {1.0: 10_000, 0.01: 100, 0.00001: 2}[scale]
            assert many.included == "bench[.]orders_[0-9]+" and many.names[1] == "orders_00001"


def test_events_that_waited_for_the_start_tell_no_lag() -> None:
    """The first arrives at 10 and was committed at 2, as were others until 9: the reader began at 10."""
    seen = [(10.0, 2.0), (10.0, 9.0), (10.5, 10.0), (12.0, 11.0), (15.0, 12.0)]
    assert lags(seen) == {"p50": 1.0, "p95": 3.0, "max": 3.0}
    assert lags(seen[:2]) == {"p50": 8.0, "p95": 8.0, "max": 8.0}
    assert lags([]) == {}
