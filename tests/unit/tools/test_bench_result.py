"""What scripts/bench makes of its runs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from benchlib.process_tree import Usage
from benchlib.result import figures
from benchlib.run import Run

OURS, KERNEL, THEIRS = "python", "native", "debezium"


def run(side: str, cpu_s: float, records: int = 1_000_000, workload: str = "narrow", **more: float) -> Run:
    used = Usage(more.get("wall_s", 10.0), cpu_s, {"java": cpu_s}, {"java": 200.0, "python": more.get("mb", 100.0)})
    return Run(workload, side, records, used, beside_s=more.get("beside_s", 0.0))


def test_figures_are_medians_with_their_spread_and_what_a_start_takes_is_left_out() -> None:
    found = figures([run(OURS, 8.0), run(OURS, 10.0, wall_s=30, mb=150), run(OURS, 9.0, beside_s=3.0)], 4.0)
    assert (found.cpu_s, found.wall_s, found.runs, found.records) == (10.0, 10.0, 3, 1_000_000)
    assert found.steady_s == 6.0
    assert found.spread == pytest.approx(0.2)
    assert found.peak_mb == 350.0
    assert found.busy == pytest.approx(0.8)
    assert figures([run(OURS, 8.0)], None).steady_s is None


def test_runs_that_wrote_different_numbers_of_records_are_not_compared() -> None:
    with pytest.raises(ValueError, match=r"wrote \[5, 6\] records in narrow"):
        figures([run(OURS, 1.0, 5), run(OURS, 1.0, 6)], None)
    with pytest.raises(ValueError, match="wrote"):
        figures([run(OURS, 1.0, 0)], None)
    beside_changes = figures([run(OURS, 1.0, 99), run(OURS, 1.0, 100), run(OURS, 1.0, 100)], None)
    assert beside_changes.records == 100
    steady = [Run("lag", OURS, n, Usage(60.0, 1.0), lag_s={"p50": n / 10}) for n in (10, 20, 30)]
    assert figures(steady, None).lag_s == {"p50": 2.0} and figures(steady, None).drain == {}
    drains = {"count": 10.0, "wall_s": 2.5}
    each = replace(steady[0], used=Usage(600.0, 11.0), beside_s=1.0, drains=drains)
    assert figures([each], None).drain == {"cpu_s": 1.2, "wall_s": 2.5} and Run.from_json(each.to_json()) == each
