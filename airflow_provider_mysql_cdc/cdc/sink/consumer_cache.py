"""The consumer that whoever reads one topic again and again keeps for its own next reading.

A drain reads its ledger eight times. A consumer made for each time opens three connections and asks for a group's
coordinator that nobody needs; both together cost four times as much as the reading (measured). A kept consumer has no
partition assigned meanwhile, so it fetches nothing; what it may still hold of an earlier assignment librdkafka drops by
itself (rd_kafka_op_version_outdated).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError


@dataclass(frozen=True, slots=True)
class CachedConsumer:
    """Hold a consumer and the errors that concern the whole client.

    Args:
        consumer: The consumer.
        errors: What its error callback was told.
        topic_id: Kafka's id of the topic that it has learnt about.
    """

    consumer: Consumer
    errors: list[KafkaError]
    topic_id: str | None


CreateConsumer = Callable[[Callable[[KafkaError], None]], Consumer]


@dataclass(slots=True)
class ConsumerCache:
    """Keep one consumer of one topic for its owner, who closes it: it ends with the work that it was made for.

    Outside of ``with``, and after it, each reading has a consumer of its own.
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
    def borrow(self, topic_id: str | None, create: CreateConsumer) -> Iterator[CachedConsumer]:
        """Lend the consumer to one reading; it is kept when that came to its end.

        Args:
            topic_id: Kafka's id of the topic. None, from brokers that give none, keeps nothing: a topic made anew would
                be taken for the one before.
            create: Makes a consumer with an error callback.
        """
        cached = self._take()
        if cached is not None and not (cached.topic_id == topic_id and _is_healthy(cached)):
            cached.consumer.close()
            cached = None
        if cached is None:
            errors: list[KafkaError] = []
            cached = CachedConsumer(create(errors.append), errors, topic_id)
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


def _is_healthy(cached: CachedConsumer) -> bool:
    # librdkafka tells of errors when it is polled, which nobody did since the last reading. After one it rests before
    # it connects anew (reconnect.backoff.max.ms).
    cached.consumer.poll(0)
    return not cached.errors
