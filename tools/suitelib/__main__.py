"""Run the suite: ``python -m suitelib``, for scripts/test."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]
# prctl(2): what a descendant leaves behind becomes a child of this process, which waits for it and so counts its CPU.
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True, slots=True)
class Part:
    """One run of pytest.

    Args:
        name: Its line in the table.
        arguments: For pytest.
        variables: Added to the environment.
    """

    name: str
    arguments: Sequence[str]
    variables: Mapping[str, str] = field(default_factory=dict)


# One after the other: Airflow's parts end tasks that hear nothing for a while, and do so where the machine is busy with
# a dozen servers. Jobs of the last two parts decode in Python, so that a run means the same where there is no kernel.
_PYTHON = {"MYSQL_CDC_NATIVE": "off"}
_SERVERS = ("--dist", "loadgroup", "--no-loadscope-reorder")
_WORKERS = os.environ.get("TEST_WORKERS", "4")
QUICK = Part("quick", ("-n", os.environ.get("TEST_QUICK_WORKERS", "2"), "tests/unit", "tests/golden", "tests/property"))
NATIVE = Part(
    "native",
    ("-n", "2", *_SERVERS, "-m", "native and not quick", "tests/integration", "tests/fault", "tests/airflow"),
)
SERVERS = Part("servers", ("-n", _WORKERS, *_SERVERS, "tests/integration", "tests/fault"), _PYTHON)
AIRFLOW = Part("airflow", ("-n", "3", *_SERVERS, "tests/airflow"), _PYTHON)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a part was.

    Args:
        passed: By its exit code.
        tests: Those that ran.
        red: Failed tests and errors.
        seconds: By the clock.
        cpu_s: Of all its processes, servers included.
    """

    name: str
    passed: bool
    tests: int
    red: int
    seconds: float
    cpu_s: float


def main() -> int:
    """Run all parts and print the table; return the exit code."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    kernel = subprocess.run([sys.executable, "-c", "import mysql_cdc_native"], capture_output=True, check=False)
    parts = [QUICK, *([NATIVE] if kernel.returncode == 0 else []), SERVERS, AIRFLOW]
    with tempfile.TemporaryDirectory() as folder:
        outcomes = [_run(part, Path(folder)) for part in parts]
    print(table(outcomes))
    return 0 if all(outcome.passed for outcome in outcomes) else 1


def _run(part: Part, folder: Path) -> Outcome:
    print(f"== {part.name}", flush=True)
    report = folder / f"{part.name}.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-o", f"cache_dir={folder / part.name}", f"--junitxml={report}"]
    begin, used = time.monotonic(), _cpu_s()
    process = subprocess.Popen([*command, *part.arguments], cwd=ROOT, env={**os.environ, **part.variables})
    try:
        code = _wait(process.pid)
    except KeyboardInterrupt:
        # Behind SIGTERM pytest ends its servers, as behind Ctrl-C.
        process.terminate()
        process.wait()
        raise
    tests, red = _counts(report)
    return Outcome(part.name, code == 0, tests, red, time.monotonic() - begin, _cpu_s() - used)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _wait(pid: int) -> int:
    """Return a child's exit code; take the times of whatever else ends meanwhile and has no parent left."""
    while True:
        ended, status = os.waitpid(-1, 0)
        if ended == pid:
            return os.waitstatus_to_exitcode(status)


def _counts(report: Path) -> tuple[int, int]:
    """Return the number of tests, and of those that failed, from pytest's report; none when there is no report."""
    if not report.exists():
        return 0, 0
    suites = ElementTree.parse(report).getroot().iter("testsuite")
    numbers = [{name: int(suite.get(name, 0)) for name in ("tests", "failures", "errors")} for suite in suites]
    return sum(n["tests"] for n in numbers), sum(n["failures"] + n["errors"] for n in numbers)


def table(outcomes: Sequence[Outcome]) -> str:
    """Return what each part was, and all together."""
    rows = [(o.name, o.tests, o.seconds, o.cpu_s, o.red) for o in outcomes]
    rows.append(("together", *(sum(column) for column in list(zip(*rows, strict=True))[1:])))
    head = f"{'part':10}{'tests':>8}{'seconds':>10}{'CPU s':>10}{'red':>6}"
    return "\n".join([head, *(f"{n:10}{t:8}{s:10.0f}{c:10.0f}{r:6}" for n, t, s, c, r in rows)])


if __name__ == "__main__":
    sys.exit(main())
