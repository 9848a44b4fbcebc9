"""CPU time and memory of a process and all its descendants, sampled from ``/proc`` (Linux, proc(5))."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")
SAMPLE_INTERVAL_S = 0.1
ENDED_KIND = "gone"
_KINDS = ("pyspark.daemon", "java", "python")
"""Texts of command lines that name a kind of process; the first that fits counts."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Hold what one process had used at a moment.

    Args:
        kind: What it is: ``java``, ``python``, ``pyspark.daemon`` (Spark's Python workers), ``other`` or ``gone``.
        cpu_s: CPU seconds since it began, user and system.
        rss_mb: Resident memory in MB.
        peak_mb: The most it ever had.
    """

    at_s: float
    pid: int
    kind: str
    cpu_s: float
    rss_mb: float
    peak_mb: float


@dataclass(frozen=True, slots=True)
class Usage:
    """Say what a tree of processes used.

    Args:
        wall_s: Seconds from the first sample to the last.
        cpu_s: CPU seconds of all processes.
        cpu_by_kind: The same by kind of process.
        peak_mb: Greatest memory of one process, by kind.
        busiest_s: CPU seconds of the process that used most, by kind: with a processor for each, none takes longer.
    """

    wall_s: float
    cpu_s: float
    cpu_by_kind: dict[str, float] = field(default_factory=dict)
    peak_mb: dict[str, float] = field(default_factory=dict)
    busiest_s: dict[str, float] = field(default_factory=dict)


def kind_of(command: str) -> str:
    """Return the kind of process that a command line is; one that has ended and waits for its parent has none."""
    return next((kind for kind in _KINDS if kind in command), "other") if command else ENDED_KIND


def process_ids(pid: int) -> list[int]:
    """Return a process and all its descendants that are alive."""
    found, queue = [], [pid]
    while queue:
        current = queue.pop()
        found.append(current)
        try:
            for task in Path(f"/proc/{current}/task").iterdir():
                queue += [int(c) for c in (task / "children").read_text().split()]
        except OSError:
            continue
    return found


def kill_tree(pid: int) -> None:
    """Kill a process and all its descendants."""
    for each in process_ids(pid):
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)


def sample(pid: int, at_s: float) -> Sample | None:
    """Return what a process has used so far, or None when it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        command = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    memory = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("Vm")}
    cpu_s = (int(stat[11]) + int(stat[12])) / TICK
    return Sample(at_s, pid, kind_of(command), cpu_s, memory.get("VmRSS", 0.0), memory.get("VmHWM", 0.0))


def sample_tree(pid: int, is_over: Callable[[], bool]) -> list[Sample]:
    """Sample a process tree until something is over; a process that ends between two samples loses a tenth of a second.

    Args:
        pid: The root of the tree.
        is_over: Says whether it is over; called after each sample.
    """
    samples: list[Sample] = []
    while True:
        now = time.monotonic()
        samples += [found for each in process_ids(pid) if (found := sample(each, now)) is not None]
        if is_over():
            return samples
        time.sleep(SAMPLE_INTERVAL_S)


def usage(samples: Iterable[Sample]) -> Usage:
    """Return what the processes of some samples used.

    Args:
        samples: Samples of one tree; a process's last kind counts, since it begins as a copy of its parent.
    """
    known = list(samples)
    if not known:
        return Usage(0.0, 0.0)
    first, last = min(s.at_s for s in known), max(s.at_s for s in known)
    spent: dict[int, float] = {}
    kinds: dict[int, str] = {}
    for each in sorted(known, key=lambda s: s.at_s):
        spent[each.pid] = max(spent.get(each.pid, 0.0), each.cpu_s)
        if each.kind != ENDED_KIND or each.pid not in kinds:
            kinds[each.pid] = each.kind
    cpu: dict[str, float] = {}
    busiest: dict[str, float] = {}
    for pid, seconds in spent.items():
        cpu[kinds[pid]] = cpu.get(kinds[pid], 0.0) + seconds
        busiest[kinds[pid]] = max(busiest.get(kinds[pid], 0.0), seconds)
    peak = dict.fromkeys(cpu, 0.0)
    for each in known:
        peak[kinds[each.pid]] = max(peak[kinds[each.pid]], each.peak_mb)
    return Usage(last - first, sum(cpu.values()), cpu, peak, busiest)
