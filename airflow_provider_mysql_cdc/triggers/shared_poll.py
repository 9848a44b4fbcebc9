"""One poll for all triggers of a triggerer process that poll the same state.

A triggerer runs the triggers of many sensors in one event loop. Twenty sensors of one server would query it twenty
times each interval; here the first one starts the poll, the others join, and it ends with the last one.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import AsyncIterator, Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from weakref import WeakKeyDictionary

PollFunction = Callable[[], Any]

_polls: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Hashable, _Poll]] = WeakKeyDictionary()


class Subscription:
    """Subscribe to a poll.

    Args:
        key: What is polled; equal keys share one poll.
        read: Reads it; it may block, because it runs in the poll's own thread. The first subscriber's is used.
        interval_s: Longest time between two reads, in seconds; the shortest interval of all subscribers applies.
    """

    def __init__(self, key: Hashable, read: PollFunction, interval_s: float) -> None:
        self.interval_s = interval_s
        loop_polls = _polls.setdefault(asyncio.get_running_loop(), {})
        if key not in loop_polls:
            loop_polls[key] = _Poll(key, read, loop_polls)
        self._poll = loop_polls[key]
        self._poll.join(self)

    async def results(self) -> AsyncIterator[Any]:
        """Yield the latest result, then each new one.

        Raises:
            Exception: The read raised it; the poll has ended.
        """
        last_sequence = 0
        try:
            while True:
                while self._poll.sequence == last_sequence:
                    await self._poll.changed.wait()
                last_sequence = self._poll.sequence
                if self._poll.error is not None:
                    raise self._poll.error
                yield self._poll.latest
        finally:
            self.leave()

    def leave(self) -> None:
        """Unsubscribe; the poll ends with its last subscriber, and a second call does nothing."""
        self._poll.leave(self)


class _Poll:
    """Read periodically while there are subscribers."""

    def __init__(self, key: Hashable, read: PollFunction, loop_polls: dict[Hashable, _Poll]) -> None:
        self._key, self._read, self._loop_polls = key, read, loop_polls
        self._subscribers: set[Subscription] = set()
        self._wake = asyncio.Event()
        self.sequence = 0
        self.latest: Any = None
        self.error: Exception | None = None
        self.changed = asyncio.Event()
        # A thread of its own: a server that does not answer must not hold up the polls of others.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="mysql-cdc-poll")
        # The poll belongs to no single trigger, so its log lines must not go to the task log of the first one.
        self._task = asyncio.create_task(self._run(), context=contextvars.Context())

    def join(self, subscriber: Subscription) -> None:
        self._subscribers.add(subscriber)
        self._wake.set()

    def leave(self, subscriber: Subscription) -> None:
        self._subscribers.discard(subscriber)
        if not self._subscribers:
            self._task.cancel()
            self._end()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._subscribers:
            started = loop.time()
            try:
                self.latest = await loop.run_in_executor(self._thread, self._read)
            except Exception as error:
                self.error = error
                self._end()  # the next subscriber starts a new poll
            self._publish()
            if self.error is not None:
                return
            await self._wait(started)

    async def _wait(self, started: float) -> None:
        """Wait for the shortest interval of all subscribers; a new subscriber may have a shorter one."""
        loop = asyncio.get_running_loop()
        while (remaining_s := started + min((s.interval_s for s in self._subscribers), default=0.0) - loop.time()) > 0:
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), remaining_s)

    def _publish(self) -> None:
        self.sequence += 1
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    def _end(self) -> None:
        if self._loop_polls.get(self._key) is self:
            del self._loop_polls[self._key]
        self._thread.shutdown(wait=False, cancel_futures=True)
