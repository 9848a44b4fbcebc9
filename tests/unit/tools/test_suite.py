"""The whole suite leaves no folder out, counts what its parts cost, is red when one is, and ends what it started."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from suitelib import __main__ as suite
from suitelib.__main__ import PARTS, Part

TEST = """
import pathlib, subprocess, sys, time
def test_good():
    # Whoever started it ends before it.
    subprocess.Popen([sys.executable, "-c",
        "import subprocess, sys; subprocess.Popen([sys.executable, '-c', sys.argv[1]])", {work!r}])
    while not pathlib.Path({cost!r}).exists():
        time.sleep(0.05)
def test_bad():
    assert not {bad}
"""
WORK = """
import os, time
sum(range(30_000_000))
with open({cost!r} + ".new", "w") as cost:
    cost.write(str(time.process_time()))
os.rename({cost!r} + ".new", {cost!r})
"""
# As tests/conftest.py has it; the server ends with its test, the driver is left to run.
ENDLESS = """
import os, pathlib, signal, subprocess
signal.signal(signal.SIGTERM, signal.default_int_handler)
def test_endless():
    server = subprocess.Popen(["sleep", "600"])
    driver = subprocess.Popen(["sleep", "601"], start_new_session=True)
    try:
        pathlib.Path({pids!r}).write_text(f"{{os.getpid()}} {{server.pid}} {{driver.pid}}")
        server.wait()
    finally:
        server.kill()
        server.wait()
"""


def part(name: str, folder: Path, text: str) -> Part:
    """Return a part with one file of tests."""
    (folder / name).mkdir()
    (folder / name / f"test_{name}.py").write_text(text)
    return Part(name, ("-p", "no:cacheprovider", str(folder / name)), niceness=1)


def test_the_parts_leave_no_folder_out() -> None:
    folders = {f.relative_to(suite.ROOT).parts[:2] for f in (suite.ROOT / "tests").rglob("test_*.py")}
    named = [word for part in PARTS for word in part.arguments if word.startswith("tests/")]
    assert sorted(named) == sorted("/".join(folder) for folder in folders)


def test_parts_are_counted_and_their_red_tests_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    costs = {name: str(tmp_path / f"cost of {name}") for name in ("one", "two")}
    texts = {name: TEST.format(bad=name == "two", cost=c, work=WORK.format(cost=c)) for name, c in costs.items()}
    parts = [part(name, tmp_path, text) for name, text in texts.items()]
    outcomes = suite.run(parts, tmp_path)
    assert [(o.name, o.passed, o.tests, o.red) for o in outcomes] == [("one", True, 2, 0), ("two", False, 2, 1)]
    [alone] = suite.run([part("alone", tmp_path, "def test_nothing(): pass")], tmp_path)
    assert all(o.cpu_s > alone.cpu_s + float(Path(costs[o.name]).read_text()) / 2 for o in outcomes), (outcomes, alone)
    output = capsys.readouterr().out
    assert "2 passed" in output and "FAILED" in output and output.count("== ") >= 2
    assert suite.table(outcomes, 77.0).splitlines()[-1].split()[:3] == ["together", "4", "77"]


def test_a_run_without_a_report_is_red(tmp_path: Path) -> None:
    [outcome] = suite.run([Part("some", (str(tmp_path / "missing"),))], tmp_path)
    assert (outcome.passed, outcome.tests) == (False, 0)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_told_to_end_ends_its_parts(tmp_path: Path, number: signal.Signals) -> None:
    pids = tmp_path / "pids"
    endless = part("endless", tmp_path, ENDLESS.format(pids=str(pids)))
    code = f"import suitelib.__main__ as s; s.PARTS = [s.{endless!r}]; s.main()"
    command = [sys.executable, "-c", code]
    ignored = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in the background of a shell
    run = subprocess.Popen(command, cwd=suite.ROOT / "tools", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    signal.signal(signal.SIGINT, ignored)
    while not pids.exists() or len(pids.read_text().split()) < 3:
        assert run.poll() is None
        time.sleep(0.05)
    run.send_signal(number)
    output, _ = run.communicate()
    assert (b"== endless, interrupted" in output) == (number != signal.SIGKILL)
    while any(Path(f"/proc/{pid}").exists() for pid in pids.read_text().split()):
        time.sleep(0.05)
