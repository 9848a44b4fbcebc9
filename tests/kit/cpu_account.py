"""What a run of the suite costs in CPU: per kind of process and per test file (MYSQL_CDC_SUITE_CPU=1 scripts/test).

Times of the clock say little where others work on the same machine; CPU seconds can be compared.
"""

from __future__ import annotations

import collections
import os
import re
import threading
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from demolib import family
from demolib.family import Process

_TICK = os.sysconf("SC_CLK_TCK")
_EVERY_SECONDS = 1.0
_FILES_SHOWN = 40
# The first of these texts that a command line holds says what a process is.
_KINDS = (
    ("kafka.tools.StorageTool", "Kafka, storage formatted"),
    ("kafka.Kafka", "Kafka, broker"),
    ("quarkus", "schema registry"),
    ("--initialize", "mysqld, data made"),
    ("/mysqld", "mysqld"),
    ("org.apache.spark.deploy.SparkSubmit", "Spark, driver's JVM"),
    ("org.apache.spark.", "Spark, other JVMs"),
    ("pyspark", "Spark, Python tasks"),
    ("/java", "other JVMs"),
    ("pytest", "pytest"),
    ("soaklib", "soak"),
    ("python", "other Python processes"),
)


# Airflow's processes give themselves titles, behind having been started as `airflow scheduler` and the like.
_AIRFLOW = re.compile(r"(?:^|/bin/)airflow ([\w-]+)")


def _kind(command: str) -> str:
    """Return what a process is, by its command line."""
    if part := _AIRFLOW.search(command):
        return f"Airflow, {part[1].replace('_', '-')}"
    return next((kind for word, kind in _KINDS if word in command), "others")


@dataclass(frozen=True, slots=True)
class _Seen:
    """A process when it was last read; its own CPU seconds, and those of the children that it has waited for."""

    kind: str
    parent: int
    own: float
    below: float


class Sampler(threading.Thread):
    """Read each second what every process of the run has used; those that end in between count for their parents.

    Args:
        tag: ``NAME=value`` in the environment of what the run starts.
    """

    def __init__(self, tag: str) -> None:
        super().__init__(daemon=True)
        self._tag = tag
        self._done = threading.Event()
        self._seen: dict[Process, _Seen] = {}
        self._living: set[Process] = set()
        self._known_below: dict[Process, float] = collections.defaultdict(float)

    def run(self) -> None:
        """Sample until the run ends."""
        while not self._done.wait(_EVERY_SECONDS):
            self._sample()

    def _sample(self) -> None:
        me = family.started(os.getpid())
        living = family.members(None, self._tag) | ({me} if me else set())
        now = {process: seen for process in living if (seen := self._read(process)) is not None}
        self._seen |= now
        waiting = self._living - now.keys()
        parents = {process.pid: process for process in now}
        for process in waiting:
            parent = parents.get(self._seen[process].parent)
            # Behind its end a process stays as a zombie until its parent takes its times.
            if parent is not None and Path(f"/proc/{process.pid}").exists():
                continue
            self._living.discard(process)
            if parent is not None:
                ended = self._seen[process]
                self._known_below[parent] += ended.own + ended.below
        self._living |= now.keys()

    def _read(self, process: Process) -> _Seen | None:
        try:
            text = Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii", errors="replace")
            command = Path(f"/proc/{process.pid}/cmdline").read_bytes().decode(errors="replace")
        except OSError:
            return None
        fields = text[text.rindex(")") + 2 :].split()
        # proc(5): utime, stime, then the same of the children that were waited for.
        user, system, user_below, system_below = (int(field) / _TICK for field in fields[11:15])
        kind = _kind(command.replace("\0", " "))
        if not command and process in self._seen:
            kind = self._seen[process].kind  # it ends just now
        return _Seen(kind, int(fields[1]), user + system, user_below + system_below)

    def end(self) -> Mapping[str, tuple[int, float]]:
        """Return the number of processes and their CPU seconds by kind."""
        self._done.set()
        self.join()
        self._sample()
        counts: dict[str, int] = collections.Counter()
        seconds: dict[str, float] = collections.defaultdict(float)
        for process, seen in self._seen.items():
            counts[seen.kind] += 1
            seconds[seen.kind] += seen.own
            seconds[f"  too short to be seen, started by: {seen.kind}"] += seen.below - self._known_below[process]
        return {kind: (counts[kind], spent) for kind, spent in seconds.items()}


class Account:
    """Collect what tests have used, and tell it at the end of the run.

    Args:
        sampler: Counts processes; None in a worker, whose controller does.
    """

    def __init__(self, sampler: Sampler | None) -> None:
        self._sampler = sampler
        self._files: dict[str, float] = collections.defaultdict(float)
        if sampler is not None:
            sampler.start()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Count a test with its fixtures, and the processes that were waited for meanwhile."""
        before = sum(os.times()[:4])
        result = yield
        self._files[item.nodeid.partition("::")[0]] += sum(os.times()[:4]) - before
        return result

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hand over what a worker has counted."""
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["cpu"] = dict(self._files)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Take what a worker has counted."""
        for name, seconds in getattr(node, "workeroutput", {}).get("cpu", {}).items():
            self._files[name] += seconds

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Tell it."""
        if self._sampler is None:
            return
        kinds = self._sampler.end()
        terminalreporter.section("CPU seconds")
        for kind, (count, seconds) in sorted(kinds.items(), key=lambda item: -item[1][1]):
            terminalreporter.line(f"{seconds:8.1f}  {kind}" + (f" ({count})" if count else ""))
        terminalreporter.line(f"{sum(seconds for _, seconds in kinds.values()):8.1f}  together")
        terminalreporter.section("CPU seconds in pytest's processes, and of what they waited for, by file")
        for name, seconds in sorted(self._files.items(), key=lambda item: -item[1])[:_FILES_SHOWN]:
            terminalreporter.line(f"{seconds:8.1f}  {name}")
