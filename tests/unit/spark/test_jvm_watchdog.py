"""A driver's Python does not outlive the JVM that has started it, and says when Spark gives it nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.spark import cluster_slots
from airflow_provider_mysql_cdc.spark.cluster_slots import StarvationTimer, warn_while_starving

ROOT = Path(__file__).resolve().parents[3]
# The driver of a stream that is idle: it calls nothing of Spark.
DRIVER = """
import os, sys, time
from airflow_provider_mysql_cdc.spark import main
def idle(run, spec):
    print(os.getpid(), flush=True)
    time.sleep(600)
main._on_spark = idle
main.main(print, [sys.argv[1]])
"""
# In the place of the JVM: it waits for its child and does nothing else.
PARENT = "import subprocess, sys; subprocess.run([sys.executable, *sys.argv[1:]])"


def alive(pid: int) -> bool:
    """Return whether a process runs; one that has ended and that nobody has asked for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_driver_ends_when_its_jvm_is_killed(tmp_path: Path) -> None:
    JobSpec("drain", {}, {}, "dag/run/task/-1").write(tmp_path / "job-spec.json")
    (tmp_path / "driver.py").write_text(DRIVER)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_GATEWAY_PORT": "1"}
    command = [sys.executable, "-c", PARENT, str(tmp_path / "driver.py"), str(tmp_path / "job-spec.json")]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as jvm:
        assert jvm.stdout is not None
        driver = int(jvm.stdout.readline())
        try:
            time.sleep(0.2)
            assert alive(driver)
            jvm.kill()
            deadline = time.monotonic() + 30
            while alive(driver):
                assert time.monotonic() < deadline, "the driver goes on without its JVM"
                time.sleep(0.05)
        finally:
            if alive(driver):
                os.kill(driver, signal.SIGKILL)


def test_missing_slots_are_reported_at_first_soon_and_then_ever_more_rarely() -> None:
    hunger = StarvationTimer()
    told = [said for _ in range(500) if (said := hunger.update(0)) is not None]
    assert told[:5] == [15, 30, 60, 120, 240] and told[-1] - told[-2] == cluster_slots.MAX_WARNING_INTERVAL_S
    assert hunger.update(1) is None and hunger.idle_s == 0, "a task that runs ends it"
    assert [hunger.update(0) for _ in range(3)] == [None, None, 15]
    assert hunger.update(None) is None and hunger.idle_s == 0, "between two stages nobody waits"


def test_it_is_reported_only_while_a_stage_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_slots, "POLL_S", 0.01)
    monkeypatch.setattr(cluster_slots, "FIRST_WARNING_S", 0.02)
    told: list[float] = []
    with warn_while_starving(lambda: 0, told.append):
        deadline = time.monotonic() + 30
        while not told:
            assert time.monotonic() < deadline, "nothing was told"
            time.sleep(0.01)

    def gone() -> int:
        raise RuntimeError("the context is gone")

    with warn_while_starving(gone, lambda idle_s: pytest.fail("told without a look")):
        time.sleep(0.05)
