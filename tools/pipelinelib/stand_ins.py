"""What jobs without Spark and Airflow run on: threads in place of executors, and an offset store in memory."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

from airflow_provider_mysql_cdc.cdc.commit.offset_store import (
    StoredState,
    conflict_error,
    is_same_write,
    next_revision,
)
from airflow_provider_mysql_cdc.cdc.job.coordinator import Endpoint
from airflow_provider_mysql_cdc.cdc.job.task_runner import ArgumentsT, Block, BucketResultT, Shuffle, TaskResultT
from airflow_provider_mysql_cdc.cdc.model.stored_record import parse_json


class ThreadRunner:
    """Run a driver's tasks as threads of this process.

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


class MemoryOffsetStore:
    """Keep the state in this process, for tests and trials; safe to use from several threads."""

    def __init__(self) -> None:
        self._text: str | None = None
        self._lock = threading.Lock()

    def load(self) -> StoredState | None:
        """Return the state, or None when nothing is stored."""
        text = self._text
        return StoredState.from_json(parse_json(text)) if text is not None else None

    def save(self, new: StoredState, expected: StoredState | None) -> StoredState:
        """Replace the state, if it is still the expected one; see ``OffsetStore.save``."""
        with self._lock:
            current = self.load()
            if not is_same_write(current, expected):
                raise conflict_error("memory", expected, current)
            stored = next_revision(new, current)
            self._text = json.dumps(stored.to_json())
            return stored

    def clear(self) -> None:
        """Lose the state, as Airflow does with an asset that no DAG references."""
        self._text = None
