"""Plan the streams of a fleet at the same time, without waiting for those whose servers do not answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Generic, TypeVar

StreamT = TypeVar("StreamT")
PlanT = TypeVar("PlanT")
MAX_THREADS = 16
"""Streams that are planned or settled at the same time; most of that is waiting for MySQL and Kafka."""
MORE_AFTER_S = 2.0
"""Seconds without a plan after which as many streams more are planned beside those that wait for their servers."""
STALL_S = 10.0
"""Seconds without a plan after which the streams that are planned go on without the others. The plans of streams whose
servers answer come faster, also of 200 streams on a slow machine; then all of them are in one Spark application."""
POLL_S = 0.5
"""Seconds between two looks whether the task was killed."""


class PlanWaves(Generic[StreamT, PlanT]):
    """Plan streams, and hand out the plans in waves: nearly always one, another one for plans that come late.

    Args:
        streams: The streams.
        plan: Plans one; called in a thread, and raises nothing.
        is_job: Whether a plan is worth a wave.
        check: Called while plans are awaited; raises what ends the task.
    """

    def __init__(
        self,
        streams: Sequence[StreamT],
        plan: Callable[[StreamT], PlanT],
        is_job: Callable[[PlanT], bool],
        check: Callable[[], None],
    ) -> None:
        self._is_job, self._check = is_job, check
        self._order = {id(stream): index for index, stream in enumerate(streams)}
        self._turns = threading.Semaphore(MAX_THREADS)
        self._pool = ThreadPoolExecutor(max(1, len(streams)))

        def in_turn(stream: StreamT) -> PlanT:
            with self._turns:
                return plan(stream)

        self._open: dict[Future[PlanT], StreamT] = {self._pool.submit(in_turn, stream): stream for stream in streams}

    def __enter__(self) -> PlanWaves[StreamT, PlanT]:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def next(self, *, all_at_once: bool) -> list[tuple[StreamT, PlanT]]:
        """Return the streams that were planned since the last call, in order, with their plans; none when all are out.

        Args:
            all_at_once: Whether to wait for all.
        """
        ready: list[tuple[StreamT, PlanT]] = []
        last = more = time.monotonic()
        while self._open:
            done = wait(self._open, POLL_S, FIRST_COMPLETED).done
            self._check()
            ready += self._taken(done)
            now = time.monotonic()
            if done:
                last = more = now
            elif now - more >= MORE_AFTER_S:
                more = now
                self._turns.release(MAX_THREADS)
            if not all_at_once and now - last >= STALL_S and any(self._is_job(plan) for _, plan in ready):
                break
        return sorted(ready, key=lambda planned: self._order[id(planned[0])])

    def _taken(self, done: Iterable[Future[PlanT]]) -> list[tuple[StreamT, PlanT]]:
        return [(self._open.pop(future), future.result()) for future in done]
