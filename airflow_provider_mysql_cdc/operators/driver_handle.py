"""The driver that a task has started or follows, and how to end it from outside the task's main thread."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow_provider_mysql_cdc.cdc.errors import CdcError, StateError
from airflow_provider_mysql_cdc.operators.task_error import airflow_error
from airflow_provider_mysql_cdc.triggers.task_state import UNFINISHED_STATES, state_of

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.hooks.spark_submit import CdcSparkSubmitHook
    from airflow_provider_mysql_cdc.hooks.submission import Submission


class DriverHandle:
    """Hold what is needed to end the driver of one try of a task.

    Airflow calls ``on_kill`` from a signal handler, at any moment, and the task's code continues afterwards.

    Attributes:
        hook: The hook of the latest job that this try has submitted.
        timed_out: Whether ``execution_timeout`` has passed; Airflow then calls ``on_kill`` while the task is running.
        deadline_passed: Whether ``kill_at`` has ended the driver.
        output_error: The error in the output of a driver that ran on its own.
        kill_note: What to write into the task log when the task is killed.
    """

    def __init__(self) -> None:
        self.hook: CdcSparkSubmitHook | None = None
        self.killed = self.timed_out = self.deadline_passed = False
        self.output_error: CdcError | None = None
        self.kill_note = ""
        self._submission: Submission | None = None
        self._ti: Any = None

    def follow(self, ti: Any, submission: Submission | None) -> None:
        """Remember a driver that outlives this process.

        Args:
            ti: The task instance.
            submission: What is known about the driver; None when there is no such driver.
        """
        self._ti, self._submission = ti, submission

    def kill(self, log: Callable[..., None]) -> None:
        """End the driver when the task was ended or its timeout has passed; otherwise leave it to the next try.

        Airflow sends the same signal when a restarted scheduler has assigned the task to another try, when the worker
        shuts down, and when the heartbeats of this process came too late. In these cases the task is unfinished.

        Args:
            log: Takes a line with its arguments.
        """
        detached = self._submission
        if detached is not None and not self.timed_out and (state := state_of(self._ti)) in UNFINISHED_STATES:
            log("The task is %s and not finished, so its driver keeps running and the next try follows it.", state)
        else:
            self.killed = True
            if self.hook is not None:
                self.hook.on_kill()
            if detached is not None and self.hook is None:
                detached.kill()
        if self.kill_note:
            log("%s", self.kill_note)

    def raise_if_killed(self) -> None:
        """Stop here when the task was killed.

        Raises:
            TaskRetryError: It was.
        """
        if self.killed:
            raise airflow_error(
                StateError(
                    "the task was killed",
                    remedy="run it again; it continues from the last committed marker",
                    retriable=True,
                )
            )

    def error(self) -> CdcError | None:
        """Return the named error in the output of the driver on this host."""
        return self.output_error or (self.hook.driver_error() if self.hook is not None else None)

    @contextmanager
    def kill_at(self, deadline: float) -> Iterator[None]:
        """End the driver when the deadline passes inside.

        Args:
            deadline: In seconds of ``time.monotonic``; infinity for none.
        """
        if deadline == math.inf:
            yield
            return
        timer = threading.Timer(max(0.0, deadline - time.monotonic()), self._pass_deadline)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _pass_deadline(self) -> None:
        self.deadline_passed = True
        if self.hook is not None:
            self.hook.on_kill()
