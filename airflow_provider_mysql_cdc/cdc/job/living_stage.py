"""Tasks that carry out one piece of work after another, and live until their driver has no more for them.

A Spark job costs a tenth of a CPU second, and its tasks begin without any connection. So the driver of a job with many
pieces of work starts its tasks once, in a thread of its own: each task asks for work, carries it out, and says so when
it asks for more. The request is answered when there is some. A task that waits for an answer does nothing meanwhile; a
driver that dies closes the connection, and the task ends.

Spark may start a task again, as it does in any stage. The second copy is given what the first one has not finished.
The others end as soon as they have carried out their piece, and another stage carries out the next one: nobody waits in
a stage of which a task may not come back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.cdc.job.task_barrier import lost_task_error

WorkT = TypeVar("WorkT")
CLOSE_TIMEOUT_S = 30.0
"""Seconds for which the end of tasks that have nothing to do is awaited: they close their connections."""


class LivingStage(Generic[WorkT]):
    """Run tasks in a thread, and hand them one piece of work after another.

    Args:
        tasks: Number of tasks.
        run: Runs them; returns when all have ended, or raises an error.
        nothing_left: What a task is answered when there is no more work.
        single: Whether there is only one piece of work: a task ends as soon as it has carried it out, and so makes room
            for one that has not begun.
    """

    def __init__(self, tasks: int, run: Callable[[], object], nothing_left: WorkT, *, single: bool) -> None:
        self.tasks = tasks
        self._run, self._nothing_left, self._single = run, nothing_left, single
        self._cond = threading.Condition()
        self._work: tuple[int, WorkT] | None = None
        self._done: set[int] = set()
        self._closing = self._ended = self._has_lost = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run_tasks, name="cdc-living-stage", daemon=True)

    def _run_tasks(self) -> None:
        try:
            self._run()
        except BaseException as error:  # raised in the driver's own thread, whatever it is
            self._error = error
        with self._cond:
            self._ended = True
            self._cond.notify_all()

    @property
    def alive(self) -> bool:
        """Return whether the tasks can be given more work."""
        return not (self._single or self._ended or self._closing or self._has_lost)

    def on_lost(self, task: int, cause: CdcError | None) -> None:
        """Let the other tasks end when they have nothing to do (``coordinator.LostHandler``).

        Args:
            task: A task whose connection has ended without a goodbye.
            cause: The error that it reported, if any; the stage ends with it, unless the task is started again.
        """
        with self._cond:
            self._has_lost = True
            self._cond.notify_all()

    def next_work(self, task: int, done: int) -> WorkT:
        """Answer a task that asks for work; waits until there is some.

        Args:
            task: The task's index.
            done: Number of the piece that it has carried out; 0 for none.
        """
        with self._cond:
            if self._work is not None and self._work[0] == done:
                self._done.add(task)
                self._cond.notify_all()
            self._cond.wait_for(lambda: self._may_answer(task))
            if self._work is None or self._closing or self._ended or task in self._done:
                return self._nothing_left
            return self._work[1]

    def _may_answer(self, task: int) -> bool:
        has_work = self._work is not None and task not in self._done
        return has_work or self._closing or self._ended or self._has_lost or (self._single and task in self._done)

    def carry_out(self, number: int, work: WorkT) -> None:
        """Hand a piece of work to all tasks, and wait until each has carried it out.

        Args:
            number: Its number, greater than that of the piece before.
            work: The work.

        Raises:
            CdcError: A task ended with it, or the tasks cannot be run.
            StateError: The tasks ended without an error, and without having carried it out.
        """
        with self._cond:
            self._work, self._done = (number, work), set()
            self._cond.notify_all()
            if self._thread.ident is None:
                self._thread.start()
            self._cond.wait_for(lambda: self._ended or (not self._single and len(self._done) == self.tasks))
            complete = len(self._done) == self.tasks
            if self._error is not None and not (complete and not self._single):
                raise self._error
            if not complete:
                raise lost_task_error(-1)

    def close(self) -> None:
        """Let the tasks end, and wait for them; an error with which they end now has cost nothing."""
        with self._cond:
            self._closing = True
            self._cond.notify_all()
        if self._thread.ident is not None:
            self._thread.join(CLOSE_TIMEOUT_S)
