"""Run the suite: ``python -m suitelib``, for scripts/test."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from suitelib import reaper

ROOT = Path(__file__).resolve().parents[2]
_PROGRESS_EVERY_S = 30.0
_PERCENT = re.compile(r"\[ *(\d+)%\]")


@dataclass(frozen=True, slots=True)
class Part:
    """One run of pytest.

    Args:
        name: Its line in the table.
        arguments: For pytest.
        variables: Added to the environment.
        niceness: Parts with a higher one get what the others leave of the machine.
    """

    name: str
    arguments: Sequence[str]
    variables: Mapping[str, str] = field(default_factory=dict)
    niceness: int = 0


# All parts run at once: what waits for a server leaves its core to the others. The servers' part takes longest, so it
# has the first say; the quick part fills what is left.
# Jobs of the last two parts decode in Python, so that a run means the same where there is no kernel.
_PYTHON = {"MYSQL_CDC_NATIVE": "off"}
_GROUPS = ("--dist", "loadgroup", "--no-loadscope-reorder")
_QUICK_WORKERS = os.environ.get("TEST_QUICK_WORKERS", "2")
QUICK = Part("quick", ("-n", _QUICK_WORKERS, "tests/unit", "tests/golden", "tests/property"), niceness=10)
SERVERS = Part(
    "servers", ("-n", os.environ.get("TEST_WORKERS", "5"), *_GROUPS, "tests/integration", "tests/fault"), _PYTHON
)
AIRFLOW = Part("airflow", ("-n", "2", *_GROUPS, "tests/airflow"), _PYTHON, niceness=5)
PARTS = (QUICK, SERVERS, AIRFLOW)


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


class _Running:
    """A part that runs, with its output and its report in a folder."""

    def __init__(self, part: Part, folder: Path) -> None:
        self.part, self._begin = part, time.monotonic()
        self._report, self._output = folder / f"{part.name}.xml", folder / f"{part.name}.out"
        cache = f"cache_dir={folder / part.name}"
        pytest = [sys.executable, "-m", "pytest", "-q", "-o", cache, f"--junitxml={self._report}", *part.arguments]
        nice = ["nice", "-n", str(part.niceness)]
        with self._output.open("wb") as output:
            # Ctrl-C reaches this process alone, which ends the part once.
            self.process = subprocess.Popen(
                [*nice, sys.executable, reaper.__file__, *pytest],
                cwd=ROOT,
                env={**os.environ, **part.variables},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def progress(self) -> str:
        """Return how many percent of its tests have ended, by pytest's last whole line of them."""
        found = _PERCENT.findall(self.output())
        return f"{self.part.name} {found[-1] if found else 0} %"

    def output(self) -> str:
        """Return what pytest has written."""
        return self._output.read_text(encoding="utf-8", errors="replace")

    def ended(self) -> Outcome | None:
        """Return what the part was; None while it runs."""
        pid, status, used = os.wait4(self.process.pid, os.WNOHANG)
        if pid == 0:
            return None
        self.process.returncode = code = os.waitstatus_to_exitcode(status)
        tests, red = _counts(self._report)
        seconds = time.monotonic() - self._begin
        return Outcome(self.part.name, code == 0, tests, red, seconds, used.ru_utime + used.ru_stime)


def main() -> int:
    """Run all parts and print the table; return the exit code."""
    # A shell that runs this in the background lets it ignore SIGINT.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        outcomes = run(PARTS, Path(folder))
    print(table(outcomes, time.monotonic() - begin))
    return 0 if all(outcome.passed for outcome in outcomes) else 1


def run(parts: Sequence[Part], folder: Path) -> list[Outcome]:
    """Run parts at once; print the output of each when it ends, and until then how far they are.

    Args:
        parts: Their names differ.
        folder: For reports and outputs.
    """
    begin = said = time.monotonic()
    running = [_Running(part, folder) for part in parts]
    outcomes: dict[str, Outcome] = {}
    try:
        while living := [one for one in running if one.part.name not in outcomes]:
            for one in living:
                if outcome := one.ended():
                    outcomes[one.part.name] = outcome
                    print(f"== {one.part.name}\n{one.output()}", flush=True)
            if time.monotonic() - said > _PROGRESS_EVERY_S:
                said = time.monotonic()
                print(f"[{said - begin:4.0f}s] " + ", ".join(one.progress() for one in living), flush=True)
            time.sleep(0.2)
    except KeyboardInterrupt:
        for one in living:
            one.process.terminate()
        for one in living:
            one.process.wait()
            print(f"== {one.part.name}, interrupted\n{one.output()}", flush=True)
        raise
    return [outcomes[part.name] for part in parts]


def _counts(report: Path) -> tuple[int, int]:
    """Return the number of tests, and of those that failed, from pytest's report; none when there is no report."""
    if not report.exists():
        return 0, 0
    suites = ElementTree.parse(report).getroot().iter("testsuite")
    numbers = [{name: int(suite.get(name, 0)) for name in ("tests", "failures", "errors")} for suite in suites]
    return sum(n["tests"] for n in numbers), sum(n["failures"] + n["errors"] for n in numbers)


def table(outcomes: Sequence[Outcome], seconds: float) -> str:
    """Return what each part was, and all together.

    Args:
        outcomes: Of the parts.
        seconds: What all took by the clock.
    """
    rows = [(o.name, o.tests, o.seconds, o.cpu_s, o.red) for o in outcomes]
    rows.append(
        (
            "together",
            sum(o.tests for o in outcomes),
            seconds,
            sum(o.cpu_s for o in outcomes),
            sum(o.red for o in outcomes),
        )
    )
    head = f"{'part':10}{'tests':>8}{'seconds':>10}{'CPU s':>10}{'red':>6}"
    return "\n".join([head, *(f"{n:10}{t:8}{s:10.0f}{c:10.0f}{r:6}" for n, t, s, c, r in rows)])


if __name__ == "__main__":
    sys.exit(main())
