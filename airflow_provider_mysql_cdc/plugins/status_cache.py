"""Readings of pipelines, kept for some seconds and made by a few threads: a source that hangs holds one of them."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field

from airflow_provider_mysql_cdc.plugins.pipeline_status import PipelineReading
from airflow_provider_mysql_cdc.plugins.serialized_tasks import PipelineTask

log = logging.getLogger(__name__)

THREADS = 4
"""Pipelines that are read at the same time, each over one connection to its source and one to Kafka."""
FRESH_S = 5.0
"""Seconds for which a reading is shown again."""
KEPT_S = 600.0
"""Seconds after which a reading that nobody asked for is forgotten."""
UNEXPECTED = {"what": "the pipeline could not be read", "remedy": "read the log of Airflow's API server"}


@dataclass(frozen=True, slots=True)
class Reading:
    """Hold what is known of a pipeline.

    Args:
        content: The last reading; None before the first.
        age_s: Its age in seconds.
        running: Whether a newer one is being made.
    """

    content: PipelineReading | None = None
    age_s: float = 0.0
    running: bool = False


@dataclass(slots=True)
class _CachedReading:
    content: PipelineReading | None = None
    read_at: float = 0.0
    asked_at: float = 0.0
    future: Future[None] | None = None


@dataclass(slots=True)
class StatusCache:
    """Read pipelines when somebody asks, each at most once at a time.

    Args:
        read: Reads a pipeline.
        clock: Monotonic time in seconds.
    """

    read: Callable[[PipelineTask], PipelineReading]
    clock: Callable[[], float] = time.monotonic
    _entries: dict[str, _CachedReading] = field(default_factory=dict)
    _pool: ThreadPoolExecutor | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def known(self, task: PipelineTask) -> Reading:
        """Return what is known of a pipeline, without reading anything.

        Args:
            task: The task whose arguments describe it.
        """
        with self._lock:
            return self._reading(self._entries.get(_key(task), _CachedReading()))

    def get(self, task: PipelineTask, wait_s: float) -> Reading:
        """Return a pipeline's reading, a new one if it is there in time.

        Args:
            task: The task whose arguments describe it.
            wait_s: Seconds to wait for a new one.
        """
        with self._lock:
            now = self.clock()
            self._forget(now)
            entry = self._entries.setdefault(_key(task), _CachedReading())
            entry.asked_at = now
            if entry.content is not None and now - entry.read_at < FRESH_S:
                return self._reading(entry)
            if entry.future is None:
                # Made here, not before: a process that forks has no threads of its parent.
                self._pool = self._pool or ThreadPoolExecutor(THREADS, thread_name_prefix="mysql-cdc-page")
                entry.future = self._pool.submit(self._read, task, entry)
            future = entry.future
        wait([future], wait_s)
        with self._lock:
            return self._reading(entry)

    def close(self) -> None:
        """End the threads when they have read what they are reading."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _read(self, task: PipelineTask, entry: _CachedReading) -> None:
        try:
            content = self.read(task)
        except Exception:  # of Airflow, of a driver: one pipeline must not end the page of the others
            log.exception("The pipeline %s could not be read", task.conn_id)
            content = PipelineReading({"unread": {"page": UNEXPECTED}, "state": "unknown"})
        with self._lock:
            entry.content, entry.read_at, entry.future = content, self.clock(), None

    def _reading(self, entry: _CachedReading) -> Reading:
        age_s = round(max(0.0, self.clock() - entry.read_at), 1) if entry.content is not None else 0.0
        return Reading(entry.content, age_s, entry.future is not None)

    def _forget(self, now: float) -> None:
        for key, entry in list(self._entries.items()):
            if entry.future is None and now - entry.asked_at > KEPT_S:
                del self._entries[key]


def _key(task: PipelineTask) -> str:
    return json.dumps(asdict(task), sort_keys=True, default=str)
