"""Servers of the local stack as processes: recognised by identity, ended only when they are the ones started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.cases import case
from stacklib import processes
from stacklib.errors import StackError

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[processes.Started]:
    started = processes.spawn(
        [*SLEEP, "marker-text"], tmp_path / "process.json", tmp_path / "log", "marker-text", dict(os.environ)
    )
    yield started
    if started.process.poll() is None:
        started.process.kill()
    started.process.wait()


def reaped(process: subprocess.Popen[bytes]) -> None:
    process.wait(timeout=10)


def test_a_started_process_is_recognised_from_its_record(tmp_path: Path, sleeper: processes.Started) -> None:
    identity = processes.load(tmp_path / "process.json")
    assert identity is not None and identity.pid == sleeper.process.pid
    assert processes.alive(identity)


def test_stop_ends_it_and_removes_the_record(tmp_path: Path, sleeper: processes.Started) -> None:
    assert processes.stop("test", tmp_path / "process.json") is True
    reaped(sleeper.process)
    assert sleeper.process.returncode == -signal.SIGTERM
    assert not (tmp_path / "process.json").exists()


def test_stop_kills_what_ignores_the_first_signal(tmp_path: Path) -> None:
    code = "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('on', flush=True); time.sleep(60)"
    log = tmp_path / "log"
    started = processes.spawn([sys.executable, "-c", code], tmp_path / "p.json", log, "SIG_IGN")
    processes.wait_ready("test", started, lambda: log.read_bytes() == b"on\n", 10)
    assert processes.stop("test", tmp_path / "p.json", seconds=0.2) is True
    reaped(started.process)
    assert started.process.returncode == -signal.SIGKILL


def test_stop_leaves_a_stranger_that_got_the_same_id_alone(tmp_path: Path, sleeper: processes.Started) -> None:
    """A record left by a machine that was reset may name an id that another program has now."""
    record = tmp_path / "process.json"
    raw = json.loads(record.read_text())
    for change in ({"started": raw["started"] + 1}, {"marker": "another-server"}):
        record.write_text(json.dumps({**raw, **change}))
        assert processes.stop("test", record) is False
        assert sleeper.process.poll() is None
        assert not record.exists()


def test_a_damaged_record_counts_as_none(tmp_path: Path) -> None:
    for text in ["", "{", "[]", '{"pid": "x"}', '{"pid": 1}']:
        with case(text):
            (tmp_path / "p.json").write_text(text)
            assert processes.load(tmp_path / "p.json") is None
            assert processes.stop("test", tmp_path / "p.json") is False


def test_a_server_that_dies_at_start_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("line of an earlier start\n")
    code = "import sys; print('cannot open the data folder'); sys.exit(3)"
    started = processes.spawn([sys.executable, "-c", code], tmp_path / "p.json", log, "x")
    with pytest.raises(StackError) as caught:
        processes.wait_ready("mysql", started, lambda: False, 10)
    first, _, rest = str(caught.value).partition("\n")
    assert "starting mysql" in first and "code 3" in first and str(log) in first
    assert "cannot open the data folder" in rest
    assert "earlier start" not in rest
