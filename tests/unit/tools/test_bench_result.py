"""What scripts/bench makes of its runs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from benchlib.process_tree import Usage
from benchlib.result import WorkloadLine, figures, lines, summary
from benchlib.run import Run
from benchlib.targets import verdicts

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


def compared() -> list[WorkloadLine]:
    runs = [
        *(run(THEIRS, 40.0), run(OURS, 8.0), run(KERNEL, 6.0)),
        *(run(THEIRS, 20.0, 100_000, "wide"), run(OURS, 4.0, 100_000, "wide")),
        run(OURS, 1.0, 10, "alone"),
    ]
    return lines(runs, {OURS: 4.0, KERNEL: 4.0, THEIRS: 10.0})


def test_a_ratio_is_a_side_s_share_with_and_without_starts() -> None:
    narrow, wide, alone = compared()
    assert narrow.ratio(OURS) == pytest.approx(0.2) and narrow.ratio(KERNEL) == pytest.approx(0.15)
    assert narrow.ratio(OURS, steady=True) == pytest.approx(4 / 30)
    assert narrow.ratio(THEIRS) is None
    assert wide.ratio(OURS, steady=True) == 0.0 and wide.ratio(KERNEL) is None
    assert alone.ratio(OURS) is None and alone.ratio(OURS, steady=True) is None
    assert (narrow.best, wide.best) == (KERNEL, OURS)


def test_a_steady_load_is_compared_by_its_time() -> None:
    """Who goes on a little longer has more records of it."""
    sides = {THEIRS: (20.0, 100.0, 10), OURS: (5.0, 50.0, 20)}
    runs = [Run("lag", s, n, Usage(wall, cpu), lag_s={"p50": 1.0}) for s, (cpu, wall, n) in sides.items()]
    (line,) = lines(runs, {})
    assert line.ratio(OURS) == pytest.approx(0.5) and line.ratio(OURS, steady=True) is None


def test_targets_of_a_steady_load_are_about_its_best_side() -> None:
    lag = {"p50": 0.25, "p95": 0.7, "max": 1.0}
    sides = {THEIRS: (20.0, 9.0), KERNEL: (10.0, 0.25), OURS: (30.0, 9.0)}
    runs = [
        Run("lag-run-for", side, 9, Usage(100.0, cpu_s), lag_s={**lag, "p50": p50})
        for side, (cpu_s, p50) in sides.items()
    ]
    found = {verdict.about: (verdict.value, verdict.missed) for verdict in verdicts(lines(runs, {}))}
    assert found == {
        "lag-run-for, share of CPU": (pytest.approx(0.5), False),
        "lag-run-for lag p50": (0.25, False),
        "lag-run-for lag p95": (0.7, True),
    }


def test_one_line_says_all() -> None:
    told = "ratios to Debezium, Python / native kernel: narrow 0.200 / 0.150, wide 0.200"
    assert summary(compared(), []) == told
    assert summary(compared(), ["narrow 0.15 (> 0.1)"]) == f"{told}; missed: narrow 0.15 (> 0.1)"


def test_this_provider_is_compared_with_the_peer_that_ran() -> None:
    runs = [run(side, s, workload="flink-narrow") for side, s in (("flink", 40.0), (OURS, 20.0), (KERNEL, 10.0))]
    (flink,) = lines(runs, {"flink": 20.0, OURS: 5.0})
    assert flink.peer == "flink" and compared()[0].peer == THEIRS and compared()[-1].peer is None
    assert flink.ratio(OURS) == pytest.approx(0.5) and flink.ratio(OURS, steady=True) == pytest.approx(0.75)
    assert flink.ratio("flink") is None
    told = "ratios to Debezium, Python / native kernel: none; to Flink CDC: flink-narrow 0.500 / 0.250"
    assert summary([flink], []) == told
    (both,) = lines([*runs, run(THEIRS, 80.0, workload="flink-narrow")], {})
    assert both.ratio(OURS) == pytest.approx(0.25) and both.ratio("flink") is None


def test_a_run_comes_back_from_its_json_as_it_was() -> None:
    used = Usage(2.0, 1.5, {"java": 1.5}, {"java": 70})
    for each in (
        Run("narrow", KERNEL, 7, used, beside_s=0.25, load=1.5, native_rows=7),
        Run("lag", OURS, 7, used, lag_s={"p50": 1.5}),
    ):
        assert Run.from_json(each.to_json()) == each
