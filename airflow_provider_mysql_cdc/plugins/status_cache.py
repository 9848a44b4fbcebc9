"""Readings of pipelines, kept for some seconds and made by a few threads, and as one text for Prometheus.

Readings of pipelines, kept for some seconds and made by a few threads.

What hangs for good (a database whose driver has no timeout, a server that is stopped) keeps its own thread and no
other's: after ``OVERDUE_S`` another reading may begin in its place. No thread keeps the API server from ending.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from dataclasses import asdict, dataclass, field

from airflow_provider_mysql_cdc.cdc.metrics.prometheus_text import PREFIX, Sample, render_text
from airflow_provider_mysql_cdc.plugins.pipeline_status import PipelineReading
from airflow_provider_mysql_cdc.plugins.pipelines import Pipeline, PipelineTask

log = logging.getLogger(__name__)

THREADS = 4
"""Pipelines that are read at the same time, each over one connection to its source and one to Kafka."""
FRESH_S = 5.0
"""Seconds for which a reading is shown again."""
KEPT_S = 600.0
"""Seconds after which a reading that nobody asked for is forgotten."""
OVERDUE_S = 60.0
"""Seconds after which a reading counts as hung; each server that is asked has shorter timeouts, as far as its driver
knows any."""
WAITERS = 5
"""Requests that wait for readings at the same time: Airflow's API server has 40 threads for all that it answers."""
OVERDUE = {
    "what": f"the pipeline has not answered for {OVERDUE_S:.0f} s",
    "remedy": "find out which of its offset database, source, Kafka and schema registry hangs; it is read again when "
    "that has answered, or Airflow's API server was restarted",
}
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
    began_at: float | None = None
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
    _queue: deque[tuple[PipelineTask, _CachedReading]] = field(default_factory=deque)
    _begun: list[_CachedReading] = field(default_factory=list)
    _waiters: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def known(self, task: PipelineTask) -> Reading:
        """Return what is known of a pipeline, without reading anything.

        Args:
            task: The task whose arguments describe it.
        """
        with self._lock:
            return self._reading(self._entries.get(_key(task), _CachedReading()))

    def get(self, task: PipelineTask, wait_s: float, *, patient: bool = False) -> Reading:
        """Return a pipeline's reading, a new one if it is there in time.

        Args:
            task: The task whose arguments describe it.
            wait_s: Seconds to wait for a new one; none are waited where ``WAITERS`` requests do so already.
            patient: Whether to wait all the same.
        """
        with self._lock:
            now = self.clock()
            self._forget(now)
            entry = self._entries.setdefault(_key(task), _CachedReading())
            entry.asked_at = now
            if entry.content is not None and now - entry.read_at < FRESH_S:
                return self._reading(entry)
            if entry.future is None:
                entry.future = Future()
                self._queue.append((task, entry))
            self._begin_readings()
            if (self._waiters >= WAITERS and not patient) or self._is_overdue(entry):
                return self._reading(entry)
            future = entry.future
            self._waiters += 1
        wait([future], wait_s)
        with self._lock:
            self._waiters -= 1
            return self._reading(entry)

    def close(self) -> None:
        """Begin no further reading."""
        with self._lock:
            self._queue.clear()

    def _begin_readings(self) -> None:
        """Begin those that wait, as long as few are being made; one that hangs does not count."""
        while self._queue and sum(not self._is_overdue(entry) for entry in self._begun) < THREADS:
            task, entry = self._queue.popleft()
            entry.began_at = self.clock()
            self._begun.append(entry)
            # A daemon, and no pool: Python waits at its end for the threads of a pool.
            threading.Thread(target=self._read, args=(task, entry), name="mysql-cdc-page", daemon=True).start()

    def _is_overdue(self, entry: _CachedReading) -> bool:
        return entry.began_at is not None and self.clock() - entry.began_at >= OVERDUE_S

    def _read(self, task: PipelineTask, entry: _CachedReading) -> None:
        try:
            content = self.read(task)
        except Exception:  # of Airflow, of a driver: one pipeline must not end the page of the others
            log.exception("The pipeline %s could not be read", task.conn_id)
            content = PipelineReading({"unread": {"page": UNEXPECTED}, "state": "unknown"})
        with self._lock:
            future = entry.future
            entry.content, entry.read_at, entry.began_at, entry.future = content, self.clock(), None, None
            self._begun = [other for other in self._begun if other is not entry]
            self._begin_readings()
        if future is not None:
            future.set_result(None)

    def _reading(self, entry: _CachedReading) -> Reading:
        if self._is_overdue(entry):
            return Reading(PipelineReading({"unread": {"page": OVERDUE}, "state": "unknown"}))
        age_s = round(max(0.0, self.clock() - entry.read_at), 1) if entry.content is not None else 0.0
        return Reading(entry.content, age_s, entry.future is not None)

    def _forget(self, now: float) -> None:
        for key, entry in list(self._entries.items()):
            if entry.future is None and now - entry.asked_at > KEPT_S:
                del self._entries[key]


def _key(task: PipelineTask) -> str:
    return json.dumps(asdict(task), sort_keys=True, default=str)


READ = f"{PREFIX}_page_pipeline_read"
READ_HELP = "1 where Kafka could be read for this pipeline, otherwise 0: its other metrics are missing."
MAX_AGE_S = 90.0
"""Age of a reading from which it is not that of now; a scrape in a minute has what the one before has begun to read."""


def metrics_text(
    cache: StatusCache,
    pipelines: Iterable[Pipeline],
    wait_s: float,
    clock: Callable[[], float] = time.monotonic,
) -> str:
    """Return the metrics as text; pipelines that take longer have those of the reading before, or none if it is old.

    Args:
        cache: Reads the pipelines.
        pipelines: The pipelines.
        wait_s: Seconds to wait in all.
        clock: Monotonic time in seconds.
    """
    deadline, chosen = clock() + wait_s, list(pipelines)
    for pipeline in chosen:
        cache.get(pipeline.main_task, 0.0)  # all of them begin before the first is waited for
    samples: list[Sample] = []
    seen: set[tuple[str, tuple[tuple[str, str], ...]]] = set()
    for pipeline in chosen:
        reading = cache.get(pipeline.main_task, max(0.0, deadline - clock()), patient=True)
        if reading.content is None or reading.age_s > MAX_AGE_S:
            continue  # no value is better than one of minutes ago
        for sample in (_read_sample(pipeline, bool(reading.content.samples)), *reading.content.samples):
            # Two connections may lead to one stream; Prometheus refuses a sample that comes twice.
            if (sample.name, sample.labels) not in seen:
                seen.add((sample.name, sample.labels))
                samples.append(sample)
    return render_text(samples)


def _read_sample(pipeline: Pipeline, done: bool) -> Sample:
    return Sample(READ, "gauge", READ_HELP, (("connection", pipeline.conn_id),), float(done))
