"""Which targets of the bench are reached."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from benchlib.result import Figures, WorkloadLine
from benchlib.targets import (
    FULL_SCALE_ROWS,
    TARGETS,
    CpuShare,
    DrainCost,
    LinearScaling,
    MemoryShare,
    SteadyShare,
    StreamCost,
    Target,
    Throughput,
    WorkloadRatio,
    WriterSpeedup,
    verdicts,
)
from benchlib.workload import WORKLOADS


def side(
    cpu_s: float, steady_s: float = 0.0, wall_s: float = 1.0, mb: float = 1.0, records: int = FULL_SCALE_ROWS
) -> Figures:
    return Figures(1, records, wall_s, cpu_s, steady_s, 0.0, mb)


def line(name: str, **sides: Figures) -> WorkloadLine:
    return WorkloadLine(name, sides)


THEIRS = side(40.0, 30.0, wall_s=40.0, mb=1000.0)


@pytest.mark.parametrize(
    ("target", "good", "bad"),
    [
        (CpuShare("a", 0.2), side(8.0), side(8.1)),
        (CpuShare("a", 0.2, steady=True), side(9.0, 6.0), side(1.0, 6.1)),
        (MemoryShare("a", 0.2), side(9.0, mb=200.0), side(1.0, mb=201.0)),
        (Throughput("a", 4.0), side(9.0, wall_s=10.0), side(1.0, wall_s=10.1)),
    ],
)
def test_a_side_is_held_against_debezium(target: Target, good: Figures, bad: Figures) -> None:
    for found, missed in ((good, False), (bad, True)):
        judged = target.judge({"a": line("a", python=found, debezium=THEIRS)})
        assert judged is not None and judged.missed is missed, judged
        # The kernel counts where it ran.
        judged = target.judge({"a": line("a", python=good if missed else bad, native=found, debezium=THEIRS)})
        assert judged is not None and judged.missed is missed, judged
    assert target.judge({"a": line("a", python=good)}) is None
    assert target.judge({"a": line("a", debezium=THEIRS)}) is None
    assert target.judge({}) is None


def test_the_side_without_the_kernel_has_a_target_of_its_own() -> None:
    judged = CpuShare("a", 0.2, side="python").judge({"a": line("a", python=side(9), native=side(1), debezium=THEIRS)})
    assert judged is not None and judged.missed and judged.text == "a in python 0.225 (> 0.2)"


def test_starts_are_left_out_of_fewer_records_than_a_target_is_about() -> None:
    found = {"a": line("a", python=side(20.0, 6.0, records=FULL_SCALE_ROWS - 1), debezium=THEIRS)}
    judged = CpuShare("a", 0.2).judge(found)
    assert judged is not None and not judged.missed and judged.text == "a without start 0.2 (> 0.2)"
    judged = CpuShare("a", 0.4, side="python").judge(found)
    assert judged is not None and judged.missed and judged.text == "a in python 0.5 (> 0.4)"


def test_one_workload_is_held_against_another() -> None:
    found = {"a": line("a", python=side(9.0, wall_s=2.0)), "b": line("b", python=side(8.0, wall_s=3.0))}
    dearer, cheaper = WorkloadRatio("a", "b", 1.0).judge(found), WorkloadRatio("b", "a", 1.0).judge(found)
    assert dearer is not None and dearer.missed and cheaper is not None and not cheaper.missed
    fast = WorkloadRatio("a", "b", 1.5, wall=True).judge(found)
    assert fast is not None and not fast.missed and fast.value == 1.5
    slow = WorkloadRatio("a", "b", 1.6, wall=True).judge(found)
    assert slow is not None and slow.missed and slow.text == "a against b, times 1.5 (< 1.6)"
    assert WorkloadRatio("a", "c", 1.0).judge(found) is None


def test_a_drain_over_connect_is_held_against_its_limits_and_debezium() -> None:
    lag_s, drain = {"p50": 1.0}, {"cpu_s": 1.2, "wall_s": 3.1}
    ours, theirs = (replace(side(1.0), busy=busy, lag_s=lag_s) for busy in (0.02, 0.05))
    found = {"a": line("a", python=replace(ours, drain=drain), debezium=theirs)}
    judged = [target.judge(found) for target in (DrainCost("a", 1.3, "cpu_s"), DrainCost("a", 3.0, "wall_s"))]
    assert [verdict and verdict.missed for verdict in judged] == [False, True]
    share = SteadyShare("a", 0.39).judge(found)
    assert share is not None and share.missed and share.value == pytest.approx(0.4)
    assert DrainCost("a", 1.3, "cpu_s").judge({"a": line("a", python=ours)}) is None
    assert SteadyShare("a", 1.0).judge({"a": line("a", python=ours)}) is None


def test_several_writers_are_to_use_less_each() -> None:
    def writers(cpu_s: float) -> WorkloadLine:
        return line("w", native=replace(side(9.0), writer_s=cpu_s))

    found = {"one": writers(8.0), "two": writers(5.0), "unknown": line("u", native=side(9.0))}
    judged = WriterSpeedup("two", "one", 1.6).judge(found)
    assert judged is not None and not judged.missed and judged.value == 1.6
    judged = WriterSpeedup("two", "one", 1.7).judge(found)
    assert judged is not None and judged.missed
    assert (
        WriterSpeedup("two", "unknown", 1.6).judge(found) is None
        and WriterSpeedup("two", "none", 1.6).judge(found) is None
    )


def test_costs_that_grow_with_the_events_are_not_linear() -> None:
    target = LinearScaling(("a", "b"), 0.1)

    def judged(*costs: float) -> Any:
        return target.judge({name: line(name, python=side(1.0, cost)) for name, cost in zip("ab", costs, strict=False)})

    assert not judged(10.0, 10.9).missed and judged(11.2, 10.0).missed
    assert judged(10.0) is None


def test_a_stream_of_a_fleet_has_its_share_of_the_whole_drain() -> None:
    """Forty streams with three records each: 10 CPU s together are 0.25 for each."""
    target = StreamCost("fleet-quiet", 0.25)
    assert WORKLOADS["fleet-quiet"].tables == 40

    def judged(cpu_s: float, records: int = 120) -> Any:
        return target.judge({"fleet-quiet": line("fleet-quiet", python=side(cpu_s / records * 1e6, records=records))})

    assert judged(9.9).value == pytest.approx(0.2475) and not judged(9.9).missed and judged(10.1).missed
    assert judged(9.9, records=60) is None and target.judge({}) is None


def test_targets_are_about_workloads_that_there_are() -> None:
    named = {t.workload for t in TARGETS if not isinstance(t, LinearScaling)}  # type: ignore[attr-defined]
    named |= {t.other for t in TARGETS if isinstance(t, WorkloadRatio)}
    named |= {name for t in TARGETS if isinstance(t, LinearScaling) for name in t.workloads}
    assert named <= set(WORKLOADS)
    assert verdicts([]) == []
