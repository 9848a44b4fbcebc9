"""Log a warning in the driver while the cluster runs none of its tasks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

POLL_S = 5.0
"""Seconds between two checks."""
FIRST_WARNING_S = 15.0
"""Seconds without a running task before the first warning, as for Spark's own (spark.starvation.timeout)."""
MAX_WARNING_INTERVAL_S = 900.0
"""Longest time between two warnings, in seconds."""


@dataclass(slots=True)
class StarvationTimer:
    """Measure for how long a stage has had no running task.

    Args:
        idle_s: Seconds so far.
        due_s: Value of ``idle_s`` at which the next warning is due.
    """

    idle_s: float = 0.0
    due_s: float = FIRST_WARNING_S

    def update(self, running: int | None) -> float | None:
        """Count one check and return the seconds for a warning, or None when none is due.

        Args:
            running: Number of running tasks; None when there is no stage.
        """
        if running != 0:
            self.idle_s, self.due_s = 0.0, FIRST_WARNING_S
            return None
        self.idle_s += POLL_S
        if self.idle_s < self.due_s:
            return None
        self.due_s += min(self.due_s, MAX_WARNING_INTERVAL_S)
        return self.idle_s


@contextmanager
def warn_while_starving(running: Callable[[], int | None], warn: Callable[[float], None]) -> Iterator[None]:
    """Check every few seconds whether the stage inside has running tasks, and warn when it has none.

    A stage waits for executors without a limit. Spark warns only for the first stage of an application, and its message
    does not name the resources that the job requests.

    Args:
        running: Returns the number of running tasks, None when there is no stage.
        warn: Called with the seconds without a running task.
    """
    end = threading.Event()
    thread = threading.Thread(target=_watch, args=(end, running, warn), name="cdc-starvation", daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()


def _watch(end: threading.Event, running: Callable[[], int | None], warn: Callable[[float], None]) -> None:
    timer = StarvationTimer(due_s=FIRST_WARNING_S)
    while not end.wait(POLL_S):
        try:
            idle_s = timer.update(running())
            if idle_s is not None and not end.is_set():
                warn(idle_s)
        except Exception:  # the context has stopped, and the stage raises that
            return
