"""Where the tasks of a stage wait for each other and for the driver, and tasks that live from work to work.

Where the tasks of a stage wait for each other and for the driver.

Spark's own barrier and allGather cost about a second each (measured), too long to hold a global read lock. Here a task
calls an operation whose reply the driver holds back until all tasks have called it.

Tasks that carry out one piece of work after another, and live until their driver has no more for them.

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
from dataclasses import dataclass, replace
from typing import Generic, TypeVar, cast

from airflow_provider_mysql_cdc.cdc.errors import CdcError, StateError
from airflow_provider_mysql_cdc.cdc.job.coordinator import CoordinatorClient
from airflow_provider_mysql_cdc.cdc.job.task_operation import Message, TaskHandler, TaskOperation
from airflow_provider_mysql_cdc.cdc.model.stored_record import Record

ReleaseT = TypeVar("ReleaseT", bound=Message)


@dataclass(frozen=True, slots=True)
class Arrival(Record):
    """Report that a task has reached a point of the barrier.

    Args:
        point: Name of the point.
    """

    point: str


@dataclass(frozen=True, slots=True)
class BarrierPoint(Generic[ReleaseT]):
    """Name a point at which all tasks wait until the driver releases them.

    Args:
        operation: The operation with which a task arrives; its reply is what the driver releases the tasks with.
        name: Name of the point; the operation's where tasks come here once.
    """

    operation: TaskOperation[Arrival, ReleaseT]
    name: str

    @classmethod
    def declare(cls, name: str, reply: type[ReleaseT]) -> BarrierPoint[ReleaseT]:
        """Return the point of an operation.

        Args:
            name: Name of both.
            reply: Type of what the driver releases the tasks with.
        """
        return cls(TaskOperation(name, Arrival, reply), name)

    def named(self, name: str) -> BarrierPoint[ReleaseT]:
        """Return another point of the same operation, for tasks that repeat a step.

        Args:
            name: Its name.
        """
        return replace(self, name=name)

    def arrive(self, channel: CoordinatorClient) -> ReleaseT:
        """Wait in a task until the driver releases the tasks; return what it releases them with.

        Args:
            channel: Calls to the driver.

        Raises:
            CdcError: The stage failed meanwhile.
        """
        return channel.call(self.operation, Arrival(self.name))

    def __str__(self) -> str:
        return self.name


class TaskBarrier:
    """Let the driver wait for all tasks, and all tasks for the driver.

    Args:
        tasks: Number of tasks.
        timeout_s: Longest wait for all tasks, in seconds.
    """

    def __init__(self, tasks: int, timeout_s: float) -> None:
        self.tasks, self.timeout_s = tasks, timeout_s
        self._cond = threading.Condition()
        self._arrived: dict[str, set[int]] = {}
        self._released: dict[str, Message] = {}
        self._error: CdcError | None = None

    def handler(self, point: BarrierPoint[ReleaseT]) -> TaskHandler:
        """Return the coordinator's handler for the arrivals at a point, and at others of its operation.

        Args:
            point: The point.
        """
        return point.operation.handled_by(lambda task, request: self.arrive(point.named(request.point), task))

    def arrive(self, point: BarrierPoint[ReleaseT], task: int) -> ReleaseT:
        """Record that a task has reached a point; return the driver's reply when the driver releases it.

        A task comes to a point once. One that comes again is another attempt of it, which Spark started because it
        counts the first as lost; that one may still be running, and the view it belongs to is not the one that would be
        opened now.

        Args:
            point: The point.
            task: The task's index.

        Raises:
            CdcError: The stage failed meanwhile, or the task has arrived here before.
        """
        with self._cond:
            arrived = self._arrived.setdefault(point.name, set())
            if task in arrived and self._error is None:
                self._error = _restarted_task_error(task, point.name)
            arrived.add(task)
            self._cond.notify_all()
            self._cond.wait_for(lambda: point.name in self._released or self._error is not None)
            if self._error is not None:
                raise self._error
            return cast(ReleaseT, self._released[point.name])

    def wait(self, point: BarrierPoint[ReleaseT], *, unlimited: bool = False) -> None:
        """Wait until all tasks have arrived at a point.

        Args:
            point: The point.
            unlimited: Whether they may work on the way there for as long as it takes.

        Raises:
            CdcError: A task was lost, or not all came in time.
        """
        with self._cond:
            all_arrived = self._cond.wait_for(
                lambda: len(self._arrived.get(point.name, ())) == self.tasks or self._error is not None,
                None if unlimited else self.timeout_s,
            )
            if self._error is not None:
                raise self._error
            if not all_arrived:
                raise self._late_tasks_error(point.name)

    def _late_tasks_error(self, point: str) -> StateError:
        arrived, seen = self._arrived.get(point, set()), set[int]().union(*self._arrived.values())
        silent = sorted({*range(self.tasks)} - seen)
        working = sorted(seen - arrived)
        parts = [("no report yet from task", silent), ("on the way there: task", working)]
        remedy = (
            "a task reports when Spark has started it, its Python has imported this package, and it is connected: "
            "check that Spark has as many slots as the job has tasks (snapshot.parallelism), and read the "
            "executors' stderr"
            if silent
            else "read the executors' stderr for what these tasks wait for"
        )
        return StateError(
            f"only {len(arrived)} of {self.tasks} tasks reached the barrier {point!r} within {self.timeout_s:.0f} s",
            why="; ".join(f"{what} {', '.join(map(str, tasks))}" for what, tasks in parts if tasks),
            remedy=remedy,
            retriable=True,
        )

    def release(self, point: BarrierPoint[ReleaseT], reply: ReleaseT) -> None:
        """Release the tasks that wait at a point, and those that will arrive there.

        Args:
            point: The point.
            reply: What each of them gets.
        """
        with self._cond:
            self._released[point.name] = reply
            self._cond.notify_all()

    def last_reached(self, point: BarrierPoint[ReleaseT]) -> BarrierPoint[ReleaseT]:
        """Return the latest of an operation's points that tasks have reached.

        Args:
            point: The first of these points; the name of a later one is the same with a number appended.
        """
        with self._cond:
            reached = (name for name in self._arrived if name.startswith(point.name))
            return point.named(max(reached, key=lambda name: int(name[len(point.name) :] or 0)))

    def fail(self, error: CdcError) -> None:
        """End all waiting with an error; the first one counts.

        Args:
            error: What the driver and all tasks end with.
        """
        with self._cond:
            self._error = self._error or error
            self._cond.notify_all()


def lost_task_error(task: int) -> StateError:
    """Return the error for a task that was lost.

    Args:
        task: Its index; -1 for the whole stage.
    """
    return StateError(
        f"task {task} of the job was lost" if task >= 0 else "the stage of the job's tasks failed",
        remedy="run the Airflow task again; chunks and key ranges that are committed are not read again",
        retriable=True,
    )


def _restarted_task_error(task: int, point: str) -> StateError:
    return StateError(
        "Spark started a task a second time while the view of its first attempt is open",
        where=f"task {task}, barrier {point!r}",
        why="Spark counts the first attempt as lost",
        remedy="read the executors' logs, then run the Airflow task again; it reads only what is not committed",
        retriable=True,
    )


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
