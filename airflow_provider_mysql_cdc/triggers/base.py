"""The base of this provider's triggers, and the one poll for all of a process that poll the same state.

One poll for all triggers of a triggerer process that poll the same state.

A triggerer runs the triggers of many sensors in one event loop. Twenty sensors of one server would query it twenty
times each interval; here the first one starts the poll, the others join, and it ends with the last one.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import json
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.hooks.airflow_metrics import send_gauges
from airflow_provider_mysql_cdc.hooks.mysql_cdc import MySqlCdcHook

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig


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


class MySqlCdcTrigger(BaseTrigger):  # type: ignore[misc]
    """Poll a condition of a stream, together with all triggers of this process that poll the same, and fire once.

    The triggerer reads the connections at each poll, so neither this object nor its serialised form holds a secret, and
    a changed password applies from the next poll on. Properties from the environment are those of the triggerer.

    Args:
        mysql_cdc_conn_id: Connection of type ``mysql_cdc``.
        kafka_conn_id: Connection of type ``kafka``, or None.
        properties: The task's connector properties.
        poll_interval: Seconds between two polls.
    """

    def __init__(
        self,
        *,
        mysql_cdc_conn_id: str,
        kafka_conn_id: str | None,
        properties: Mapping[str, Any],
        poll_interval: float,
    ) -> None:
        super().__init__()
        self.mysql_cdc_conn_id = mysql_cdc_conn_id
        self.kafka_conn_id = kafka_conn_id
        self.properties = dict(properties)
        self.poll_interval = poll_interval
        self._subscription: Subscription | None = None

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return class path and arguments in the form that Airflow stores."""
        return f"{type(self).__module__}.{type(self).__qualname__}", {
            "mysql_cdc_conn_id": self.mysql_cdc_conn_id,
            "kafka_conn_id": self.kafka_conn_id,
            "properties": self.properties,
            "poll_interval": self.poll_interval,
            **self.extra_arguments(),
        }

    def extra_arguments(self) -> dict[str, Any]:
        """Return the arguments that only this kind of trigger has."""
        raise NotImplementedError

    def poll_scope(self) -> tuple[str, ...]:
        """Return what distinguishes polls over the same connections, for example an id."""
        return ()

    def read(self, cfg: ConnectorConfig) -> Any:
        """Read the polled state once; it may block.

        Args:
            cfg: The connector's configuration.

        Raises:
            CdcError: The state cannot be read.
        """
        raise NotImplementedError

    def gauges(self, result: Any) -> Iterable[tuple[str, float]]:
        """Return what Airflow's metrics get of a poll (``cdc.metrics.metric_table``).

        Args:
            result: What ``read`` returned.
        """
        return ()

    def evaluate(self, result: Any) -> dict[str, Any] | None:
        """Return the event's content when the condition holds, or None.

        Args:
            result: What ``read`` returned, of this trigger or of one that shares its poll.

        Raises:
            CdcError: The condition can never hold.
        """
        raise NotImplementedError

    async def report(self) -> None:
        """Write into the task's log what there is to say beside the polled state; called before each ``evaluate``."""

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait, then yield one event: ``{"status": "ready", ...}`` or ``{"status": "failed", "error": {...}}``."""
        try:
            self._subscription = Subscription(self._poll_key(), self._read, self.poll_interval)
            async for result in self._subscription.results():
                await self.report()
                if (event := self.evaluate(result)) is not None:
                    yield TriggerEvent({"status": "ready", **event})
                    return
        except CdcError as error:
            yield TriggerEvent({"status": "failed", "error": error.to_json()})
        except Exception as error:
            self.log.exception("The poll failed.")
            yield TriggerEvent({"status": "failed", "error": _unexpected_error(error).to_json()})
        finally:
            await self.cleanup()

    async def cleanup(self) -> None:
        """Leave the poll; it ends with its last subscriber."""
        if self._subscription is not None:
            self._subscription.leave()

    def _poll_key(self) -> tuple[str, ...]:
        settings = json.dumps(self.properties, sort_keys=True, default=str)
        return type(self).__qualname__, self.mysql_cdc_conn_id, self.kafka_conn_id or "", settings, *self.poll_scope()

    def _read(self) -> Any:
        cfg = MySqlCdcHook(self.mysql_cdc_conn_id, self.kafka_conn_id).get_config(self.properties)
        result = self.read(cfg)
        send_gauges(cfg.topic_prefix, lambda: self.gauges(result))
        return result


def _unexpected_error(error: Exception) -> CdcError:
    """Return an error for an unexpected exception; its text may contain secrets, so it stays in the log."""
    return CdcError(
        "the trigger could not poll",
        why=type(error).__name__,
        remedy="read the triggerer's log; the triggerer needs this package, the connections and the network",
        retriable=True,
    )
