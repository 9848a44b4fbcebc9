"""Ending a process with everything it has started, also what has put itself into a session of its own."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Process:
    """Name a process beyond doubt: ids are used again, ids with a start time are not.

    Args:
        started: Kernel start time in clock ticks since boot (proc(5), stat field 22).
    """

    pid: int
    started: int


@dataclass(frozen=True, slots=True)
class _Stat:
    parent: int
    session: int
    started: int
    dead: bool


def _stat(pid: int) -> _Stat | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return _Stat(int(fields[1]), int(fields[3]), int(fields[19]), fields[0] in {"Z", "X"})


def _tagged(pid: int, tag: bytes) -> bool:
    try:
        return tag in (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def shown(pid: int) -> str:
    """Return a process's command line, or the title that it has given itself; empty when it is gone."""
    try:
        return (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def started(pid: int) -> Process | None:
    """Return a living process by its id."""
    stat = _stat(pid)
    return None if stat is None or stat.dead else Process(pid, stat.started)


def alive(process: Process) -> bool:
    """Return whether it still lives."""
    return started(process.pid) == process


def members(root: Process | None, tag: str) -> set[Process]:
    """Return the living processes of a family.

    Args:
        root: The first process, leader of its session; None when only the tag is known.
        tag: ``NAME=value`` that the family's processes have in their environment.

    Returns:
        Processes of the root's session, those with the tag, and the descendants of all these.
    """
    stats = {int(p.name): stat for p in _PROC.iterdir() if p.name.isdigit() and (stat := _stat(int(p.name)))}
    session = root.pid if root is not None and alive(root) else None
    family = {pid for pid, stat in stats.items() if stat.session == session or _tagged(pid, os.fsencode(tag))}
    larger = True
    while larger:
        more = {pid for pid, stat in stats.items() if stat.parent in family} - family
        family |= more
        larger = bool(more)
    family.discard(os.getpid())
    return {Process(pid, stats[pid].started) for pid in family if not stats[pid].dead}


def end(root: Process | None, tag: str, grace_s: float, say: Callable[[str], None]) -> int:
    """End a family: SIGTERM to all, after ``grace_s`` seconds SIGKILL; return how many processes there were."""
    known = members(root, tag)
    if not known:
        return 0
    say(f"ending {len(known)} process(es)")
    _signal(known, signal.SIGTERM)
    limit = time.monotonic() + grace_s
    while time.monotonic() < limit and any(map(alive, known)):
        time.sleep(0.1)
        known |= members(root, tag)
    for _ in range(20):
        left = {p for p in known if alive(p)} | members(root, tag)
        if not left:
            break
        known |= left
        _signal(left, signal.SIGKILL)
        time.sleep(0.1)
    return len(known)


def _signal(processes: set[Process], number: signal.Signals) -> None:
    for process in processes:
        if alive(process):
            try:
                os.kill(process.pid, number)
            except ProcessLookupError:
                continue
