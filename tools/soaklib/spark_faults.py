"""Faults of Spark's processes: a task stops itself at a step of the commit protocol, so it is known what is hit."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from demolib import family

from soaklib.attempts import Attempt
from soaklib.steps import TASK_POINTS, fill_batch, point
from soaklib.world import SoakStream

_STOPPED_S = 240.0
_TRIES = 3
FindVictim = Callable[[int], int | None]


def _parent(pid: int) -> int:
    text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    return int(text[text.rindex(")") + 2 :].split()[1])


def _jvm(main: bytes) -> FindVictim:
    """Return what finds the JVM above a Python worker, when it runs a main class."""

    def find(pid: int) -> int | None:
        with suppress(OSError):
            while pid > 1:
                pid = _parent(pid)
                if Path(f"/proc/{pid}/comm").read_bytes().strip() == b"java":
                    return pid if main in Path(f"/proc/{pid}/cmdline").read_bytes() else None
        return None

    return find


def _stopped(attempt: Attempt) -> family.Process | None:
    """Wait for the worker that stops itself at the fault point; None when the attempt ends without it."""
    limit = time.monotonic() + _STOPPED_S
    while time.monotonic() < limit:
        with suppress(OSError, ValueError):
            return family.started(int(attempt.flag.read_text(encoding="ascii")))
        if not attempt.alive:
            return None
        time.sleep(0.05)
    return None


def _continue(world: SoakStream, worker: family.Process) -> None:
    """Let a stopped worker go on, if it lives."""
    if family.alive(worker):
        with suppress(ProcessLookupError):
            os.kill(worker.pid, signal.SIGCONT)
            world.fired["worker went on after its executor's death"] += 1


def _kill_at_point(world: SoakStream, master: str, victim: FindVictim) -> bool:
    fill_batch(world)
    fault = point(world, "stop-self", TASK_POINTS[world.kind], (1, 1, 2))
    attempt = world.start(fault=fault, spark=master)
    worker = _stopped(attempt)
    pid = victim(worker.pid) if worker is not None else None
    if pid is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if worker is not None:
        # A worker that outlives its executor continues during Spark's next try, or after a later attempt has finished.
        if pid not in (None, worker.pid) and world.rng.random() < 0.5:
            world.run(world.start(), excused=True)
        if pid != worker.pid:
            _continue(world, worker)
    world.run(attempt, excused=True)
    return pid is not None


def _kill_with_retries(world: SoakStream, master: str, victim: FindVictim) -> bool:
    return any(_kill_at_point(world, master, victim) for _ in range(_TRIES))


def kill_driver_jvm(world: SoakStream) -> bool:
    """Kill -9 of the JVM of a Spark driver, which in local mode is its executor too, while a task works."""
    return _kill_with_retries(world, "local", _jvm(b"org.apache.spark.deploy.SparkSubmit"))


def kill_executor_jvm(world: SoakStream) -> bool:
    """Kill -9 of an executor's JVM while a task works; the driver lives and Spark tries the task again."""
    return _kill_with_retries(world, "cluster", _jvm(b"CoarseGrainedExecutorBackend"))


def kill_python_worker(world: SoakStream) -> bool:
    """Kill -9 of a Python worker while it works on a task, on one of the two masters."""
    return _kill_with_retries(world, world.rng.choice(("local", "local", "cluster")), lambda pid: pid)
