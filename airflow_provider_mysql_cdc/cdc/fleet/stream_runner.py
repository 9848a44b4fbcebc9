"""The task runner of one stream of a fleet: all streams run their tasks on one runner and share its slots."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic

from airflow_provider_mysql_cdc.cdc.fleet.shared_slots import SharedSlots
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
class TaskGroup(Generic[ArgumentsT, TaskResultT]):
    """Hold some of the tasks of a stage: those whose slots were free together.

    Args:
        task: The stage's function.
        first: Index of the first of these tasks.
        arguments: The stage's arguments.
    """

    task: Callable[[int, ArgumentsT], TaskResultT]
    first: int
    arguments: ArgumentsT


def group_task(index: int, group: TaskGroup[ArgumentsT, TaskResultT]) -> TaskResultT:
    """Run one task of a group.

    Args:
        index: Its index in the group.
        group: The group.
    """
    return group.task(group.first + index, group.arguments)


class StreamRunner:
    """Run the tasks of one stream.

    Args:
        runner: Runs the tasks of all streams; it is called by several threads.
        slots: The slots of that runner.
    """

    def __init__(self, runner: TaskRunner, slots: SharedSlots) -> None:
        self._runner, self._slots = runner, slots
        self.endpoint: Endpoint = runner.endpoint

    def slots(self, required: int = 0) -> int:
        """Return the most tasks of a barrier stage of this stream."""
        return self._slots.barrier_limit

    def run(
        self, task: Callable[[int, ArgumentsT], TaskResultT], count: int, arguments: ArgumentsT, *, barrier: bool
    ) -> list[TaskResultT]:
        """Run the tasks as soon as they have slots; those of an ordinary stage perhaps in several groups.

        Args:
            task: A module-level function.
            count: Number of tasks, at most ``slots()`` when ``barrier`` is set.
            arguments: Values that can be pickled.
            barrier: Whether all tasks must be running at once.
        """
        results: list[TaskResultT] = []
        while len(results) < count:
            with self._slots.lend(count - len(results), barrier=barrier) as granted:
                if granted == count:
                    return self._runner.run(task, count, arguments, barrier=barrier)
                group = TaskGroup(task, len(results), arguments)
                results += self._runner.run(group_task, granted, group, barrier=False)
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
