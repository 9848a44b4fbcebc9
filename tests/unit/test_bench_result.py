"""What scripts/bench makes of its runs."""

from __future__ import annotations

import pytest
from benchlib.process_tree import Usage
from benchlib.result import Line, Run, figures, lines, summary, table

OURS, THEIRS = "this provider", "Debezium"


def run(name: str, cpu_s: float, records: int = 1_000_000, workload: str = "narrow", **more: float) -> Run:
    used = Usage(more.get("wall_s", 10.0), cpu_s, {"java": cpu_s}, {"java": 200.0, "python": more.get("mb", 100.0)})
    return Run(workload, name, records, used, beside_s=more.get("beside_s", 0.0))


def test_figures_are_medians_with_their_spread_and_what_a_start_takes_is_left_out() -> None:
    found = figures([run(OURS, 8.0), run(OURS, 10.0, wall_s=30, mb=150), run(OURS, 9.0, beside_s=3.0)], 4.0)
    assert (found.cpu_s, found.wall_s, found.runs, found.records) == (10.0, 10.0, 3, 1_000_000)
    assert found.steady_s == 6.0
    assert found.spread == pytest.approx(0.2)
    assert found.peak_mb == 350.0


def test_runs_that_wrote_different_numbers_of_records_are_not_compared() -> None:
    with pytest.raises(ValueError, match=r"wrote \[5, 6\] records in narrow"):
        figures([run(OURS, 1.0, 5), run(OURS, 1.0, 6)], None)
    with pytest.raises(ValueError, match="wrote"):
        figures([run(OURS, 1.0, 0)], None)


def compared() -> list[Line]:
    runs = [
        *(run(THEIRS, 40.0), run(OURS, 8.0), run(THEIRS, 20.0, 100_000, "wide"), run(OURS, 4.0, 100_000, "wide")),
        run(OURS, 1.0, 10, "alone"),
    ]
    return lines(runs, OURS, THEIRS, {OURS: 4.0, THEIRS: 10.0}, {"narrow": 1 / 6, "wide": 0.3})


def test_a_ratio_above_its_target_is_a_miss() -> None:
    narrow, wide, alone = compared()
    assert narrow.ratio == pytest.approx(0.2) and narrow.missed
    assert narrow.steady_ratio == pytest.approx(4 / 30)
    assert wide.ratio == pytest.approx(0.2) and not wide.missed
    assert wide.steady_ratio == 0.0
    assert alone.ratio is None and alone.steady_ratio is None and not alone.missed


def test_the_report_has_both_sides_and_one_line_says_all() -> None:
    text = table(compared(), OURS, THEIRS)
    assert "| narrow | Debezium | 1,000,000 | 10 | 40.0 | 30.0 | 0% | 300 |  |  |" in text
    assert "| narrow | this provider | 1,000,000 | 10 | 8.0 | 4.0 | 0% | 300 | 0.200 | 0.133 |" in text
    assert summary(compared()) == "ratios to Debezium: narrow 0.200 (> 0.167), wide 0.200"
