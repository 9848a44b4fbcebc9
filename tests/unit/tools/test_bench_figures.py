"""What the bench makes of what it sampled, and of what a snapshot beside changes has written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import NoReturn

import pytest
from benchlib import spark_job
from benchlib.figures import Measured, WrittenRecords, count_written, invalid_reasons
from benchlib.process_tree import ENDED_KIND, Sample, Usage, kind_of, process_ids, sample, sample_tree, usage


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


def test_a_process_is_what_it_became_and_one_that_has_ended_keeps_its_kind() -> None:
    """A worker begins as a copy of its parent; a zombie has no command line, but all its CPU time."""
    found = usage([at(0, 9, "java", 0.0), at(1, 9, "pyspark.daemon", 2.0, 80), at(2, 9, "gone", 2.5, 0.0)])
    assert found.cpu_by_kind == {"pyspark.daemon": 2.5}
    assert found.peak_mb == {"pyspark.daemon": 80}
    command = "python -m pyspark.daemon pyspark.worker"
    assert [kind_of(text) for text in (command, "/usr/bin/java -cp x", "python x.py", "bash", "")] == [
        *("pyspark.daemon", "java", "python", "other", "gone")
    ]


def test_memory_is_reported_for_each_quarter_of_the_time() -> None:
    """Two processes of a kind do not add up: each has a memory of its own."""
    samples = [at(t, pid, "python", 0.0, mb) for t, mb in enumerate((10, 20, 30, 40, 50)) for pid in (1, 2)]
    samples.append(at(3.9, 2, "python", 0.0, 5, 90))
    found = usage(samples)
    assert found.quarters_mb == {"python": [10, 20, 30, 50]}
    assert found.peak_mb == {"python": 90}


def test_a_tree_is_sampled_until_it_is_over() -> None:
    program = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(flush=True); input()'])"
    process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        # A process that is just becoming another program has neither memory nor a command line.
        assert process.stdout is not None and process.stdout.readline()
        tree = process_ids(process.pid)
        assert len(tree) == 2
        looks = iter([False, True])
        samples = sample_tree(process.pid, lambda: next(looks))
        assert {s.pid for s in samples} >= set(tree)
        assert all(s.rss_mb > 0 and s.kind == "python" for s in samples)
        assert process.pid in process_ids(os.getpid())
    finally:
        process.communicate(b"\n")


def test_a_job_ends_with_all_its_processes_when_the_bench_gets_a_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    program = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    tree: list[int] = []

    def told(pid: int, _: object) -> NoReturn:
        while len(process_ids(pid)) < 2:
            time.sleep(0.02)
        tree.extend(process_ids(pid))
        raise SystemExit(143)

    monkeypatch.setattr(spark_job, "submit_command", lambda *_, **__: [sys.executable, "-c", program])
    monkeypatch.setattr(spark_job, "submit_env", dict)
    monkeypatch.setattr(spark_job, "sample_tree", told)
    limit = time.monotonic() + 30
    with pytest.raises(SystemExit):
        spark_job.run_job(None, 1)
    # A child whose parent was killed may wait for whoever takes it over.
    while any((found := sample(pid, 0.0)) is not None and found.kind != ENDED_KIND for pid in tree):
        assert time.monotonic() < limit
        time.sleep(0.02)
    assert len(tree) == 2 and time.monotonic() < limit


def test_rows_that_were_read_are_distinguished_from_changes() -> None:
    def record(op: str, text: str = "") -> bytes:
        return json.dumps({"after": {"note": text}, "op": op}, separators=(",", ":")).encode()

    records = [(b"1", record("r")), (b"2", record("r")), (b"1", record("r")), (b"1", record("u")), (b"1", None)]
    assert count_written(records) == WrittenRecords(reads=3, keys=2, changes=2)
    assert count_written([(b"1", record("u", 'a text with "op":"r" in it'))]) == WrittenRecords(0, 0, 1)


def run(reads: int, changes: int, cpu_s: float, keys: int | None = None, beside_s: float = 0.0) -> Measured:
    wrote = WrittenRecords(reads, reads if keys is None else keys, changes)
    return Measured("x", wrote, Usage(10.0, cpu_s, {"java": cpu_s}, {"java": 70.4}, {"java": [1.2] * 4}), beside_s, 1.5)


@pytest.mark.parametrize(
    ("made", "complaint"),
    [
        (run(990, 5, 1.0), ""),
        (run(970, 5, 1.0), "x read 970 of 1000 rows"),
        (run(1000, 5, 1.0, keys=998), "x read 2 row(s) twice"),
        (run(1000, 4, 1.0), "x wrote 4 of about 50 changes of the stream"),
    ],
)
def test_a_run_counts_only_with_all_rows_once_and_with_changes(made: Measured, complaint: str) -> None:
    assert invalid_reasons(made, 1000, rate=5) == ([complaint] if complaint else [])
