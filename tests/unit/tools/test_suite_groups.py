"""Workers of the suite keep a module's tests together, so that its servers are started once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

MODULE = """
import os, pytest
@pytest.mark.parametrize("n", range(6))
def test_it(n):
    with open({log!r}, "a") as log:
        log.write({group!r} + " " + os.environ["PYTEST_XDIST_WORKER"] + "\\n")
"""
CONFTEST = """
import pytest
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.xdist_group(item.path.stem))
"""


def test_a_group_runs_in_one_worker(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    log = tmp_path / "log"
    for group in ("one", "two"):
        (tmp_path / f"test_{group}.py").write_text(MODULE.format(log=str(log), group=group))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", "--dist", "loadgroup"]
    done = subprocess.run(
        [*command, str(tmp_path)], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout
    lines = log.read_text().split("\n")[:-1]
    assert len(lines) == 12
    assert len(set(lines)) == 2, sorted(set(lines))
