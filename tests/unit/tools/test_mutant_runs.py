"""A forked run is a fresh one: it finds the files as they are, and nothing of the run before it."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from mutatelib.copies import compile_by_hash
from mutatelib.runs import PytestRunner

PRODUCT = "LIMIT = 1\nSEEN = []\n"
HELPER = """import os, product
def pids():
    return os.getpid(), os.getsid(0)
"""
TESTS = """import subprocess, sys, time
import helper, product, pytest

def test_limit():
    assert product.LIMIT == 1

def test_nothing_is_left_of_another_run():
    product.SEEN.append(1)
    assert product.SEEN == [1] and sys.path[0] and "json_of_a_run" not in sys.modules
    sys.modules["json_of_a_run"] = product

@pytest.fixture
def broken():
    raise OSError("no server")

def test_setup(broken): ...

def test_made():
    exec(compile("1 / 0", "made as it ran", "exec"), {})

def test_hang():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print(child.pid, file=open("left", "w"), flush=True)
    time.sleep(600)

def test_leaves():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    open("left", "w").write(str(child.pid))

def test_exit():
    import os
    os._exit(7)

def test_says():
    print("said", *helper.pids())
    assert False, "and failed"
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("checkout")
    (root / "tests").mkdir()
    for name, text in {"product": PRODUCT, "helper": HELPER, "tests/test_it": TESTS}.items():
        (root / f"{name}.py").write_text(text)
    compile_by_hash(root)
    return root


@pytest.fixture(scope="module")
def runs(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PytestRunner]:
    # One process for all these tests: what one leaves would be seen by the next one.
    made = PytestRunner(checkout, tmp_path_factory.mktemp("home"), {**os.environ, "PYTHONPATH": str(checkout)})
    yield made
    made.end()


def _run(
    runs: PytestRunner, name: str, limit_s: float = 120.0, *options: str
) -> tuple[int | None, list[tuple[str, str]], str]:
    ended = runs.test((f"test_it.py::{name}",), *options, limit_s=limit_s)
    assert ended.cpu_s > 0
    return ended.code, [(red.phase, red.error) for red in ended.reds], ended.output


def _gone(pid: int) -> bool:
    for _ in range(200):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.05)
    return False


def test_a_run_finds_the_text_as_it_is(runs: PytestRunner, checkout: Path) -> None:
    file = checkout / "product.py"
    for limit, code in ((1, 0), (2, 1), (1, 0)):
        # Of one length and second: what is compiled may not be taken for fresh.
        file.write_text(PRODUCT.replace("LIMIT = 1", f"LIMIT = {limit}"))
        os.utime(file, (1, 1))
        assert _run(runs, "test_limit", 120.0)[:2] == (code, [("call", "AssertionError")] * code)


def test_nothing_is_left_of_the_run_before(runs: PytestRunner) -> None:
    for _ in range(2):
        assert _run(runs, "test_nothing_is_left_of_another_run")[0] == 0


def test_how_a_test_failed_is_reported(runs: PytestRunner) -> None:
    code, reds, output = _run(runs, "test_setup")
    assert (code, reds) == (1, [("setup", "OSError")]) and "no server" in output
    ended = runs.test(("test_it.py::test_says",), limit_s=120)
    assert "said" in ended.output and ended.code == 1
    (red,) = ended.reds
    assert (
        red.node == "tests/test_it.py::test_says" and red.text.startswith("and failed") and "assert False" in red.line
    )
    assert _run(runs, "test_made")[:2] == (1, [("call", "ZeroDivisionError")])
    said = ended.output.split("said ")[1].split()
    assert said[0] == said[1] != str(os.getsid(0)), "a session of its own"


def test_what_is_no_test_is_no_red_one(runs: PytestRunner, checkout: Path) -> None:
    assert _run(runs, "test_that_is_not_there")[0] == 4
    assert _run(runs, "test_exit")[:2] == (7, [])
    (checkout / "product.py").write_text("no python")
    try:
        code, reds, _ = _run(runs, "test_limit")
        assert code not in (0, 1) and reds == [("collect", "")]
    finally:
        (checkout / "product.py").write_text(PRODUCT)


def test_a_run_ends_with_its_time_and_takes_along_what_it_started(runs: PytestRunner, checkout: Path) -> None:
    assert _run(runs, "test_hang", 120.0, "--timeout=2")[:2] == (1, [("call", "Failed")])
    assert _gone(int((checkout / "left").read_text()))
    (checkout / "left").unlink()
    assert runs.test(("test_it.py::test_hang",), limit_s=6).code is None
    assert not (checkout / "left").exists() or _gone(int((checkout / "left").read_text()))
    assert _run(runs, "test_leaves")[0] == 0 and _gone(int((checkout / "left").read_text()))


def test_a_name_of_the_project_that_is_loaded_beforehand_is_refused(tmp_path: Path) -> None:
    # Whatever the tests call `json` would be the interpreter's.
    (tmp_path / "json.py").write_text("")
    runs = PytestRunner(tmp_path, tmp_path, {**os.environ, "PYTHONPATH": ""})
    with pytest.raises(RuntimeError, match="has ended"):
        runs.test(("x.py",), limit_s=60)
    runs.end()


def test_runs_end_with_whoever_asked_for_them(checkout: Path, tmp_path: Path) -> None:
    (checkout / "left").unlink(missing_ok=True)
    code = (
        "import os, pathlib, sys; from mutatelib.runs import PytestRunner; "
        "PytestRunner(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), os.environ)"
        ".test(('test_it.py::test_hang',), limit_s=600)"
    )
    scripts = str(Path(__file__).resolve().parents[3] / "tools")
    asking = os.spawnve(
        os.P_NOWAIT,
        sys.executable,
        [sys.executable, "-c", code, str(checkout), str(tmp_path)],
        {**os.environ, "PYTHONPATH": scripts},
    )
    left = checkout / "left"
    while not (left.exists() and left.read_text().endswith("\n")):
        assert os.waitpid(asking, os.WNOHANG) == (0, 0)
        time.sleep(0.05)
    os.kill(asking, signal.SIGKILL)
    os.waitpid(asking, 0)
    assert _gone(int(left.read_text()))
