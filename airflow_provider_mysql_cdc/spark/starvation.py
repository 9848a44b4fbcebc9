"""Say in a driver's log that the cluster runs none of its tasks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

POLL_S = 5.0
"""Seconds between two looks."""
FIRST_WARNING_S = 15.0
"""Seconds without a task after which it is said; Spark's own first warning comes then (spark.starvation.timeout)."""
MAX_WARNING_INTERVAL_S = 900.0
"""Longest time between two lines."""


@dataclass(slots=True)
class StarvationTimer:
    """Count for how long a stage has had no task.

    Args:
        idle_s: Seconds so far.
        due_s: Seconds at which it is said next.
    """

    idle_s: float = 0.0
    due_s: float = FIRST_WARNING_S

    def update(self, running: int | None) -> float | None:
        """Take one look and return the seconds to be told, or None.

        Args:
            running: Tasks that run now; None when there is no stage.
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
    """Look every few seconds whether a stage inside has tasks that run.

    A stage waits for executors without an end. Spark warns of it, but only of the first stage of an application, and in
    words that do not say what this job asks for.

    Args:
        running: Returns how many tasks run, None when there is no stage.
        warn: Called with the seconds without one.
    """
    end = threading.Event()
    thread = threading.Thread(target=_watch, args=(end, running, warn), name="cdc-starvation", daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()


def _watch(end: threading.Event, running: Callable[[], int | None], warn: Callable[[float], None]) -> None:
    timer = StarvationTimer()
    while not end.wait(POLL_S):
        try:
            idle_s = timer.update(running())
            if idle_s is not None and not end.is_set():
                warn(idle_s)
        except Exception:  # the context is gone; the stage says so
            return
