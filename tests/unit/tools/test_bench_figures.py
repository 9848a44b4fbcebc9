"""What the bench makes of what it sampled, and of what a snapshot beside changes has written."""

from __future__ import annotations

import pytest
from benchlib.process_tree import Sample, Usage, usage
from benchlib.run import Measured, WrittenRecords, invalid_reasons
from kit.cases import case


def at(second: float, pid: int, kind: str, cpu_s: float, mb: float = 1.0, peak_mb: float = 0.0) -> Sample:
    return Sample(second, pid, kind, cpu_s, mb, peak_mb or mb)


def test_every_process_counts_with_the_last_that_was_seen_of_it() -> None:
    samples = [at(0, 1, "java", 1.0), at(1, 2, "python", 0.2), at(2, 1, "java", 4.0), at(2, 3, "python", 0.5)]
    found = usage(samples)
    assert found.cpu_s == pytest.approx(4.7)
    assert found.cpu_by_kind == {"java": pytest.approx(4.0), "python": pytest.approx(0.7)}
    assert found.busiest_s == {"java": pytest.approx(4.0), "python": pytest.approx(0.5)}
    assert found.wall_s == 2
    assert usage([]) == Usage(0.0, 0.0)


def run(reads: int, changes: int, cpu_s: float, keys: int | None = None, beside_s: float = 0.0) -> Measured:
    wrote = WrittenRecords(reads, reads if keys is None else keys, changes)
    return Measured("x", wrote, Usage(10.0, cpu_s, {"java": cpu_s}, {"java": 70.4}), beside_s, 1.5)


def test_a_run_counts_only_with_all_rows_once_and_with_changes() -> None:
    for made, complaint in [
        (run(990, 5, 1.0), ""),
        (run(970, 5, 1.0), "x read 970 of 1000 rows"),
        (run(1000, 5, 1.0, keys=998), "x read 2 row(s) twice"),
        (run(1000, 4, 1.0), "x wrote 4 of about 50 changes of the stream"),
    ]:
        with case(made, complaint):
            assert invalid_reasons(made, 1000, rate=5) == ([complaint] if complaint else [])
