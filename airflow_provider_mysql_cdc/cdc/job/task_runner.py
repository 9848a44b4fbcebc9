"""Run a driver's tasks: on Spark, or in this process for tests."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from airflow_provider_mysql_cdc.cdc.job.coordinator import Endpoint

ArgumentsT = TypeVar("ArgumentsT")
TaskResultT = TypeVar("TaskResultT")


class TaskRunner(Protocol):
    """Run the same function once for each task index, all at the same time."""

    endpoint: Endpoint
    """Where the driver listens for its tasks."""

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
