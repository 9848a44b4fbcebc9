"""Run a driver's tasks: on Spark, or in this process for tests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from airflow_provider_mysql_cdc.cdc.job.coordinator import Endpoint

ArgumentsT = TypeVar("ArgumentsT")
TaskResultT = TypeVar("TaskResultT")
BucketResultT = TypeVar("BucketResultT")
Block = tuple[int, bytes]
"""Bytes that a task hands to the task of a bucket, with the bucket's number."""


@dataclass(frozen=True, slots=True)
class Shuffle(Generic[BucketResultT]):
    """Describe what is done with the blocks that tasks yield.

    Args:
        buckets: Number of buckets.
        reduce: Returns the result of one bucket from its blocks, in any order; a value that can be pickled.
    """

    buckets: int
    reduce: Callable[[Iterable[bytes]], BucketResultT]


class TaskRunner(Protocol):
    """Run the same function once for each task index, all at the same time."""

    @property
    def endpoint(self) -> Endpoint:
        """Return where the driver listens for its tasks."""
        ...

    def slots(self, required: int = 0) -> int:
        """Return how many tasks can run at once.

        Args:
            required: How many slots to wait for, while executors may still register; 0 waits for all that register.
        """
        ...

    def run(
        self, task: Callable[[int, ArgumentsT], TaskResultT], count: int, arguments: ArgumentsT, *, barrier: bool
    ) -> list[TaskResultT]:
        """Run ``task(index, arguments)`` for index 0 to count - 1 and return the results in order.

        Args:
            task: A module-level function.
            count: Number of tasks, at most ``slots()`` when ``barrier`` is set.
            arguments: Values that can be pickled.
            barrier: Whether all tasks must be running at once (a barrier stage).
        """
        ...

    def run_shuffled(
        self,
        task: Callable[[int, ArgumentsT], Iterator[Block]],
        count: int,
        arguments: ArgumentsT,
        shuffle: Shuffle[BucketResultT],
    ) -> list[BucketResultT]:
        """Run tasks of a barrier stage that yield blocks, then one task for each bucket; return the buckets' results.

        Args:
            task: A module-level function.
            count: Number of tasks, at most ``slots()``.
            arguments: Values that can be pickled.
            shuffle: The buckets.
        """
        ...


class ThreadRunner:
    """Run tasks as threads of this process.

    Args:
        slots: Number of tasks at once.
    """

    endpoint = Endpoint()

    def __init__(self, slots: int = 4) -> None:
        self._slots = slots

    def slots(self, required: int = 0) -> int:
        """Return how many tasks can run at once."""
        return self._slots

    def run(
        self, task: Callable[[int, ArgumentsT], TaskResultT], count: int, arguments: ArgumentsT, *, barrier: bool
    ) -> list[TaskResultT]:
        """Run the tasks; the first error is raised after all have ended."""
        results: list[Any] = [None] * count
        errors: list[BaseException] = []

        def run_one(index: int) -> None:
            try:
                results[index] = task(index, arguments)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=run_one, args=(i,)) for i in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        return results

    def run_shuffled(
        self,
        task: Callable[[int, ArgumentsT], Iterator[Block]],
        count: int,
        arguments: ArgumentsT,
        shuffle: Shuffle[BucketResultT],
    ) -> list[BucketResultT]:
        """Run the tasks, and keep their blocks in memory."""
        collected = self.run(lambda index, shared: list(task(index, shared)), count, arguments, barrier=True)
        buckets: list[list[bytes]] = [[] for _ in range(shuffle.buckets)]
        for bucket, block in (item for blocks in collected for item in blocks):
            buckets[bucket].append(block)
        return [shuffle.reduce(blocks) for blocks in buckets]
