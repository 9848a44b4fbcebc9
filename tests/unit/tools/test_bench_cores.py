"""A processor of its own for each worker."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from benchlib import slow_cores
from benchlib.slow_cores import CgroupControl, SlowCores


def groups(root: Path) -> CgroupControl:
    """Return a hierarchy of plain files, as far as a group has them before it is bound."""

    def limits(us: int) -> Mapping[str, str]:
        for folder in root.iterdir():
            (folder / "cpu.max").touch()
        return {"cpu.max": str(us)}

    return CgroupControl(root, limits)


def _bound(folder: Path, cores: SlowCores, workers: Sequence[subprocess.Popen[bytes]]) -> dict[int, str]:
    """Bind the workers of this process; return the share of those that are bound, by their place in the list."""
    cores.bind_workers(os.getpid())
    found = {(each / "cgroup.procs").read_text(): (each / "cpu.max").read_text() for each in folder.iterdir()}
    return {n: found[str(worker.pid)] for n, worker in enumerate(workers) if str(worker.pid) in found}


def test_each_worker_of_a_tree_has_a_share_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_cores, "_CONTROLS", (groups(tmp_path),))
    monkeypatch.setattr(Path, "rmdir", lambda path: [each.unlink() for each in path.iterdir()] and os.rmdir(path))
    cores = SlowCores(0.2)
    assert list(tmp_path.iterdir()) == []
    sleep = "import time; time.sleep(60)"
    workers = [
        subprocess.Popen([sys.executable, "-c", sleep, name]) for name in ("pyspark.daemon", "x", "pyspark.daemon")
    ]
    try:
        # Other tests of this process may have left children that end by themselves; while one does, the list of
        # children may lack others (proc_pid_task_children(5)). The bench, too, looks again and again.
        end = time.monotonic() + 20
        while len(bound := _bound(tmp_path, cores, workers)) < 2 and time.monotonic() < end:
            time.sleep(0.05)
        assert _bound(tmp_path, cores, workers) == bound == {0: "2000", 2: "2000"}
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    cores.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_machine_that_binds_nothing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_cores, "_CONTROLS", (CgroupControl(tmp_path / "none", lambda us: {"cpu.max": str(us)}),))
    with pytest.raises(
        RuntimeError, match=r"CPU bandwidth this user may set \(user \d+: .*none.*\); run as root, or leave"
    ):
        SlowCores(0.2)
    monkeypatch.setattr(slow_cores, "_CONTROLS", (CgroupControl(tmp_path, lambda us: {"cpu.max": str(us)}),))
    with pytest.raises(RuntimeError, match=r"its groups have no cpu\.max"):
        SlowCores(0.2)
    assert list(tmp_path.iterdir()) == []
