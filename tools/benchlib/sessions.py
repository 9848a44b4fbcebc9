"""The file that the bench writes and documents are made from: one session a call of the bench, with all its runs."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from stacklib.errors import StackError
from stacklib.settings import KAFKA_VERSION, REPOSITORY

from airflow_provider_mysql_cdc.cdc.decode.native_kernel import kernel
from benchlib.debezium_worker import CONNECT_VERSION, VERSION
from benchlib.flink_worker import FLINK_VERSION
from benchlib.flink_worker import VERSION as FLINK_CDC_VERSION
from benchlib.result import WorkloadLine, lines
from benchlib.run import Run

START = "start"
"""Workload of next to nothing: what a start costs."""
RESULT = REPOSITORY / "docs" / "bench" / "result.json"


@dataclass(frozen=True, slots=True)
class Session:
    """Hold one call of the bench.

    Args:
        about: When, where, of what and with which arguments.
    """

    about: Mapping[str, Any]
    runs: tuple[Run, ...] = ()

    @property
    def starts(self) -> dict[str, float]:
        """Return the CPU seconds of a start by side; of several the least, since other load only adds to it."""
        found: dict[str, float] = {}
        for run in self.runs:
            if run.workload == START:
                found[run.side] = min(run.cpu_s, found.get(run.side, run.cpu_s))
        return found

    @property
    def lines(self) -> list[WorkloadLine]:
        """Return a line for each workload."""
        return lines((run for run in self.runs if run.workload != START), self.starts)

    def without(self, workloads: set[str]) -> Session:
        """Return it without some workloads."""
        return replace(self, runs=tuple(run for run in self.runs if run.workload not in workloads))

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {**self.about, "runs": [run.to_json() for run in self.runs]}


def read(path: Path) -> list[Session]:
    """Return the sessions of a result file, the oldest first; none when there is no file.

    Raises:
        StackError: It cannot be read, or is no result file.
    """
    if not path.exists():
        return []
    sessions = []
    try:
        for raw in json.loads(path.read_text(encoding="utf-8"))["sessions"]:
            runs = tuple(Run.from_json(run) for run in raw.pop("runs"))
            sessions.append(Session(raw, runs))
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise unreadable(path, error) from error
    return sessions


def unreadable(path: Path, error: Exception) -> StackError:
    """Return the error for a file that is not what the bench wrote."""
    why = f"{path} is not what the bench wrote ({type(error).__name__}: {error})"
    return StackError("reading measurements", why, "restore the file, or name another")


def text(sessions: Sequence[Session]) -> str:
    """Return the text of a result file, a line a run."""
    parts = []
    for session in sessions:
        about = json.dumps(dict(session.about))[1:-1]
        runs = ",\n".join(f"   {json.dumps(run.to_json())}" for run in session.runs)
        parts.append(f' {{{about},\n  "runs": [\n{runs}\n  ]}}')
    return '{"sessions": [\n' + ",\n".join(parts) + "\n]}\n"


def write(path: Path, sessions: Sequence[Session]) -> None:
    """Write a result file; a reader sees the old one or the new one."""
    replace_text(path, text(sessions))


def replace_text(path: Path, content: str) -> None:
    """Write a file at once: a reader, and a bench that is ended now, leave the old text or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Another bench may write the same file.
    half = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        half.write_text(content, encoding="utf-8")
        half.replace(path)
    finally:
        half.unlink(missing_ok=True)


def merge_sessions(earlier: Sequence[Session], now: Session) -> list[Session]:
    """Return sessions that each workload is in once: what is measured again leaves its earlier session."""
    measured_again = {run.workload for run in now.runs} - {START}
    kept_runs = [session.without(measured_again) for session in earlier]
    return [*(session for session in kept_runs if any(run.workload != START for run in session.runs)), now]


def about(arguments: Sequence[str], mysql: str) -> dict[str, Any]:
    """Return when, where, of what and with which arguments the bench runs."""
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "arguments": _measurement_arguments(arguments),
        "machine": {"cpu": _processor(), "cores": os.cpu_count(), "memory_gb": _memory_gb()},
        "versions": {
            "mysql": mysql,
            "kafka": KAFKA_VERSION,
            "debezium": VERSION,
            "connect": CONNECT_VERSION,
            "flink_cdc": FLINK_CDC_VERSION,
            "flink": FLINK_VERSION,
            "python": platform.python_version(),
            "spark": version("pyspark"),
            "kernel": kernel_version(),
        },
    }


def _measurement_arguments(arguments: Sequence[str]) -> list[str]:
    """Return the arguments that say what is measured: a path is of one machine only."""
    kept = [a for a in arguments if not a.startswith("--output=")]
    if "--output" in kept:
        at = kept.index("--output")
        del kept[at : at + 2]
    return kept


def kernel_version() -> str | None:
    """Return the version of the native kernel; None where none decodes."""
    module = kernel().module
    return None if module is None else str(module.__version__)


def _commit() -> str:
    """Return the commit that is measured, marked when files differ from it."""
    command = ["git", "-C", str(REPOSITORY), "describe", "--always", "--dirty", "--abbrev=10", "--exclude=*"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _memory_gb() -> int:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9)
