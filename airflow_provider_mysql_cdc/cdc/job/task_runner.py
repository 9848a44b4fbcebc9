"""Run a driver's tasks at the same time, as Spark does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

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
