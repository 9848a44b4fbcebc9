"""Which targets of the bench are reached."""

from __future__ import annotations

from benchlib.result import Figures, WorkloadLine
from benchlib.targets import (
    FULL_SCALE_ROWS,
    TARGETS,
    CpuShare,
    LinearScaling,
    MemoryShare,
    Throughput,
    WorkloadRatio,
    verdicts,
)
from benchlib.workload import WORKLOADS
from kit.cases import case


def side(
    cpu_s: float, steady_s: float = 0.0, wall_s: float = 1.0, mb: float = 1.0, records: int = FULL_SCALE_ROWS
) -> Figures:
    return Figures(1, records, wall_s, cpu_s, steady_s, 0.0, mb)


def line(name: str, **sides: Figures) -> WorkloadLine:
    return WorkloadLine(name, sides)


THEIRS = side(40.0, 30.0, wall_s=40.0, mb=1000.0)


def test_a_side_is_held_against_debezium() -> None:
    for target, good, bad in [
        (CpuShare("a", 0.2), side(8.0), side(8.1)),
        (CpuShare("a", 0.2, steady=True), side(9.0, 6.0), side(1.0, 6.1)),
        (MemoryShare("a", 0.2), side(9.0, mb=200.0), side(1.0, mb=201.0)),
        (Throughput("a", 4.0), side(9.0, wall_s=10.0), side(1.0, wall_s=10.1)),
    ]:
        with case(target, good, bad):
            for found, missed in ((good, False), (bad, True)):
                judged = target.judge({"a": line("a", python=found, debezium=THEIRS)})
                assert judged is not None and judged.missed is missed, judged
                # The kernel counts where it ran.
                judged = target.judge({"a": line("a", python=good if missed else bad, native=found, debezium=THEIRS)})
                assert judged is not None and judged.missed is missed, judged
            assert target.judge({"a": line("a", python=good)}) is None
            assert target.judge({"a": line("a", debezium=THEIRS)}) is None
            assert target.judge({}) is None


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


def test_targets_are_about_workloads_that_there_are() -> None:
    named = {t.workload for t in TARGETS if not isinstance(t, LinearScaling)}  # type: ignore[attr-defined]
    named |= {t.other for t in TARGETS if isinstance(t, WorkloadRatio)}
    named |= {name for t in TARGETS if isinstance(t, LinearScaling) for name in t.workloads}
    assert named <= set(WORKLOADS)
    assert verdicts([]) == []
