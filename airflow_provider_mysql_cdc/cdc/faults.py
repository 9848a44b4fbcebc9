"""Named fault points: places where a test may kill, freeze or fail the process that passes them.

In production nothing is configured and passing a point costs one dictionary look-up. A test sets the environment
variable ``MYSQL_CDC_FAULT`` to a JSON object::

    {"point": "writer.before_commit", "action": "kill-driver", "nth": 2, "fired": "/path/to/flag", "writer": 1}

The action ``wait`` holds the process where it is until the file ``until`` exists, at most ``seconds`` (default 600).
``nth`` counts passages in one process (default 1); ``fired`` is created when the fault fires and holds the process id,
and a fault whose flag exists never fires again, so a retry runs undisturbed; ``writer`` limits it to one writer index.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from typing import Any

POINTS = (
    "takeover.after_plan",  # the plan stands in the ledger, writers of older plans are not fenced
    "plan.after_store",  # the plan stands in the ledger, nothing is read yet
    "writer.before_init",  # the plan was found in force, older attempts are not fenced
    "writer.after_init",  # older attempts are fenced, nothing is produced
    "writer.mid_batch",  # records are produced, the first commit has not happened
    "writer.before_commit",  # records and marker are produced, the commit has not been asked for
    "writer.after_commit",  # the commit is done, the next record is not
    "writer.done",  # this writer's last marker is committed
    "description.before_commit",  # a full description is produced, the commit has not been asked for
    "description.after_commit",  # it is committed, the driver has not gone on
    "driver.before_outcome",  # all markers are committed, the outcome is not written
    "failover.before_commit",  # the places of a batch on another server are found, nothing of them is written
    "snapshot.view_open",  # the consistent view stands, the lock is released
    "snapshot.chunk_read",  # a chunk's rows are read, none is produced
    "snapshot.after_chunk",  # a chunk and its marker are committed
    "snapshot.scans_queued",  # the scans of an interrupted snapshot stand in the ledger, its record does not
    "snapshot.before_books",  # all chunks are committed, the snapshot's record is not written
    "incremental.view_open",  # a task's view stands behind the low watermark, the high watermark is not taken
    "incremental.stretch_read",  # a stretch's rows are read, none is produced
    "incremental.before_commit",  # a stretch's rows and its record are produced, the commit has not been asked for
    "incremental.after_commit",  # a stretch is committed, the driver does not know
    "incremental.before_books",  # all stretches of a round are committed, no cursor has moved
    "verify.before_done",  # a group of tables is compared, its verdicts are not written
    "verify.after_done",  # the verdicts about a group are written, the next group has not begun
    "signals.before_commit",  # signals are carried out in memory, nothing of it stands in the ledger
    "airflow.before_commit",  # Kafka holds everything, Airflow's offset has not moved
)

_passed: dict[str, int] = {}
_driver_pids: list[int] = []


class FaultRaised(RuntimeError):
    """Raised by the action ``raise``."""


def set_driver_pids(pids: list[int]) -> None:
    """Tell which processes make up the Spark driver (JVM and Python).

    Args:
        pids: Process ids on this host, killed in this order by ``kill-driver``.
    """
    _driver_pids[:] = pids


def set_current_driver() -> None:
    """Take this process and its parent, the JVM, for the driver; in a test without Spark there is none.

    The driver of a Spark Connect server (``connect``) has no JVM: its parent is an Airflow task.
    """
    kind = os.environ.get("MYSQL_CDC_SPARK_DRIVER")
    set_driver_pids(([] if kind == "connect" else [os.getppid()]) + [os.getpid()] if kind else [])


def driver_pids() -> list[int]:
    """Return the process ids given to ``set_driver_pids``."""
    return list(_driver_pids)


def fault_point(name: str, writer: int | None = None) -> None:
    """Pass a named point.

    Args:
        name: One of ``POINTS``.
        writer: The writer or task index that passes, if any.
    """
    configured = os.environ.get("MYSQL_CDC_FAULT")
    if configured:
        _pass(json.loads(configured), name, writer)


def _pass(fault: dict[str, Any], name: str, writer: int | None) -> None:
    if fault["point"] not in POINTS:
        raise ValueError(f"unknown fault point {fault['point']!r}")
    if fault["point"] != name or ("writer" in fault and fault["writer"] != writer):
        return
    _passed[name] = _passed.get(name, 0) + 1
    if _passed[name] < int(fault.get("nth", 1)):
        return
    try:
        with open(fault["fired"], "x") as flag:
            flag.write(str(os.getpid()))
    except FileExistsError:
        return
    ACTIONS[fault.get("action", "raise")](fault)


def _kill_driver(fault: dict[str, Any]) -> None:
    for pid in _driver_pids or [os.getpid()]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    if os.getpid() not in _driver_pids and fault.get("self", True):
        os.kill(os.getpid(), signal.SIGKILL)


def _wait(fault: dict[str, Any]) -> None:
    deadline = time.monotonic() + float(fault.get("seconds", 600))
    while not os.path.exists(fault["until"]) and time.monotonic() < deadline:
        time.sleep(0.05)


def _raise(fault: dict[str, Any]) -> None:
    raise FaultRaised(fault["point"])


def _stop_alone(fault: dict[str, Any]) -> None:
    # The end of the parent would wake the stopped members of its process group, and end them (setpgid(2)).
    os.setsid()
    os.kill(os.getpid(), signal.SIGSTOP)


ACTIONS: dict[str, Callable[[dict[str, Any]], None]] = {
    "kill-driver": _kill_driver,
    "kill-self": lambda _: os.kill(os.getpid(), signal.SIGKILL),
    "stop-self": lambda _: os.kill(os.getpid(), signal.SIGSTOP),
    "stop-alone": _stop_alone,
    "sleep": lambda fault: time.sleep(float(fault.get("seconds", 5))),
    "wait": _wait,
    "raise": _raise,
}
