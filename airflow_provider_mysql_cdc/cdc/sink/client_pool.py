"""Kafka clients that a process keeps: admin clients shared by callers, and the consumer of a topic read again and
again.

Admin clients that a process shares between callers with the same settings.

A client costs three threads and two connections, each with a handshake if TLS or SASL is used; a drain of one row
created twenty-two of them (measured), one after the other and with the same settings.

A consumer that is kept between repeated reads of one topic.

A drain reads its ledger eight times. A new consumer for each read opens three connections and looks up a group
coordinator that is not needed; together this costs four times as much as the read itself (measured). Between reads the
consumer has no partition assigned, so it fetches nothing; librdkafka drops messages of an earlier assignment by itself
(rd_kafka_op_version_outdated).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from confluent_kafka import Consumer, KafkaError

from airflow_provider_mysql_cdc.cdc.sink.client_errors import ClientErrors

CLIENT_LIFETIME_S = 60.0
"""Seconds after which a client is replaced, so that its metadata (leaders, addresses) does not get older."""


class _Client(Protocol):
    @property
    def has_failed(self) -> bool: ...

    def poll(self, timeout: float) -> Any: ...


C = TypeVar("C", bound=_Client)


@dataclass(frozen=True, slots=True)
class _Entry(Generic[C]):
    client: C
    expires_at: float


@dataclass(slots=True)
class ClientPool(Generic[C]):
    """Share one client between all callers with the same settings; it must be safe to use from several threads.

    Args:
        clock: Monotonic time in seconds.
    """

    clock: Callable[[], float] = time.monotonic
    _entries: dict[Hashable, _Entry[C]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, settings: Mapping[str, Any], create: Callable[[], C]) -> C:
        """Return the client for the settings: the shared one, or a new one.

        A client that has reported an error is replaced: it would wait before it reconnects
        (reconnect.backoff.max.ms), and its old error would be reported as the cause of a later one.

        Args:
            settings: The client's settings.
            create: Creates a client.
        """
        key = frozenset(settings.items())
        with self._lock:
            entry, now = self._entries.get(key), self.clock()
            if entry is not None and now < entry.expires_at and _is_healthy(entry.client):
                return entry.client
            # An unused client stops its threads when it is destroyed, which happens after the lock is released.
            expired = [self._entries.pop(k) for k, e in list(self._entries.items()) if now >= e.expires_at]
            client = create()
            self._entries[key] = _Entry(client, now + CLIENT_LIFETIME_S)
        del expired
        return client

    def clear(self) -> None:
        """Drop all clients."""
        with self._lock:
            entries = list(self._entries.values())
            self._entries.clear()
        entries.clear()


def _is_healthy(client: _Client) -> bool:
    # librdkafka reports errors in poll(), which was not called since the last use.
    client.poll(0)
    return not client.has_failed


def clear_at_fork(pool: ClientPool[Any]) -> None:
    """Drop the clients of a pool before this process forks: a child has their memory, but not their threads.

    Args:
        pool: The pool.
    """
    os.register_at_fork(before=pool.clear)


@dataclass(frozen=True, slots=True)
class CachedConsumer:
    """Hold a consumer and its errors.

    Args:
        consumer: The consumer.
        errors: What its error callback has received.
        topic_id: Kafka's id of the topic that the consumer reads.
    """

    consumer: Consumer
    errors: ClientErrors
    topic_id: str | None


CreateConsumer = Callable[[Callable[[KafkaError], None]], Consumer]


@dataclass(slots=True)
class ConsumerCache:
    """Keep one consumer of one topic between reads, and close it at the end of the ``with`` block.

    Outside of a ``with`` block each read has a consumer of its own.
    """

    _idle: CachedConsumer | None = None
    _open: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> ConsumerCache:
        self._open = True
        return self

    def __exit__(self, *_: object) -> None:
        self._open = False
        if (idle := self._take()) is not None:
            idle.consumer.close()

    @contextmanager
    def borrow(
        self, topic_id: str | None, settings: Mapping[str, Any], create: CreateConsumer
    ) -> Iterator[CachedConsumer]:
        """Lend the consumer for one read, and keep it if the read is completed.

        Args:
            topic_id: Kafka's id of the topic. With None, from brokers without topic ids, the consumer is not kept: a
                recreated topic could not be distinguished from the deleted one.
            settings: The consumer's settings.
            create: Creates a consumer with an error callback.
        """
        cached = self._take()
        if cached is not None and not (cached.topic_id == topic_id and _is_consumer_healthy(cached)):
            cached.consumer.close()
            cached = None
        if cached is None:
            errors = ClientErrors(settings)
            cached = CachedConsumer(create(errors.note), errors, topic_id)
        completed = False
        try:
            yield cached
            completed = True
        finally:
            if not (completed and topic_id is not None and self._put(cached)):
                cached.consumer.close()

    def _take(self) -> CachedConsumer | None:
        with self._lock:
            cached, self._idle = self._idle, None
        return cached

    def _put(self, cached: CachedConsumer) -> bool:
        cached.consumer.unassign()
        with self._lock:
            if not self._open or self._idle is not None:
                return False
            self._idle = cached
        return True


def _is_consumer_healthy(cached: CachedConsumer) -> bool:
    # librdkafka reports errors in poll(), which was not called since the last read. After an error it waits before it
    # reconnects (reconnect.backoff.max.ms).
    cached.consumer.poll(0)
    return not cached.errors.any_reported
