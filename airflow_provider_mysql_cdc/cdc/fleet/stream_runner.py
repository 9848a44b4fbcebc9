"""The task runner of one stream of a fleet: all streams run their tasks on one runner and share its slots."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic

from airflow_provider_mysql_cdc.cdc.fleet.shared_slots import SharedSlots
from airflow_provider_mysql_cdc.cdc.fleet.slot_tasks import SlotTasks
from airflow_provider_mysql_cdc.cdc.job.coordinator import Endpoint
from airflow_provider_mysql_cdc.cdc.job.task_runner import (
    ArgumentsT,
    Block,
    BucketResultT,
    Shuffle,
    TaskResultT,
    TaskRunner,
)


@dataclass(frozen=True, slots=True)
class SingleTask(Generic[ArgumentsT, TaskResultT]):
    """Hold one of the tasks of a stage.

    Args:
        task: The stage's function.
        index: The task's index in the stage.
        arguments: The stage's arguments.
    """

    task: Callable[[int, ArgumentsT], TaskResultT]
    index: int
    arguments: ArgumentsT


def single_task(index: int, single: SingleTask[ArgumentsT, TaskResultT]) -> TaskResultT:
    """Run one task of a stage.

    Args:
        index: Its index in its job, always 0.
        single: The task.
    """
    return single.task(single.index, single.arguments)


class StreamRunner:
    """Run the tasks of one stream.

    Args:
        runner: Runs the tasks of all streams; it is called by several threads.
        slots: The slots of that runner.
        slot_tasks: Carries out tasks that do not wait for each other.
    """

    def __init__(self, runner: TaskRunner, slots: SharedSlots, slot_tasks: SlotTasks) -> None:
        self._runner, self._slots, self._slot_tasks = runner, slots, slot_tasks
        self.endpoint: Endpoint = slot_tasks.endpoint

    def slots(self, required: int = 0) -> int:
        """Return the most tasks of a barrier stage of this stream."""
        return self._slots.barrier_limit

    def run(
        self, task: Callable[[int, ArgumentsT], TaskResultT], count: int, arguments: ArgumentsT, *, barrier: bool
    ) -> list[TaskResultT]:
        """Run the tasks as soon as they have slots; those of an ordinary stage perhaps one after the other.

        Args:
            task: A module-level function.
            count: Number of tasks, at most ``slots()`` when ``barrier`` is set.
            arguments: Values that can be pickled.
            barrier: Whether all tasks must be running at once.
        """
        if barrier:
            with self._slots.lend(count, barrier=True):
                return self._runner.run(task, count, arguments, barrier=True)
        results = self._slot_tasks.run(task, count, arguments)
        return self._run_alone(task, count, arguments) if results is None else results

    def _run_alone(
        self, task: Callable[[int, ArgumentsT], TaskResultT], count: int, arguments: ArgumentsT
    ) -> list[TaskResultT]:
        """Run each task of an ordinary stage as a job of its own."""
        results: list[TaskResultT] = []
        for index in range(count):
            with self._slots.lend(1, barrier=False):
                results += self._runner.run(single_task, 1, SingleTask(task, index, arguments), barrier=False)
        return results

    def run_shuffled(
        self,
        task: Callable[[int, ArgumentsT], Iterator[Block]],
        count: int,
        arguments: ArgumentsT,
        shuffle: Shuffle[BucketResultT],
    ) -> list[BucketResultT]:
        """Run the tasks of a barrier stage as soon as all have slots, then those of the buckets in the same slots.

        Args:
            task: A module-level function.
            count: Number of tasks, at most ``slots()``.
            arguments: Values that can be pickled.
            shuffle: The buckets.
        """
        with self._slots.lend(count, barrier=True):
            return self._runner.run_shuffled(task, count, arguments, shuffle)
