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
class Lent:
    """Hold a consumer and the errors that concern the whole client.

    Args:
        consumer: The consumer.
        errors: What its error callback was told.
        topic_id: Kafka's id of the topic that it has learnt about.
    """

    consumer: Consumer
    errors: list[KafkaError]
    topic_id: str | None


Make = Callable[[Callable[[KafkaError], None]], Consumer]


@dataclass(slots=True)
class KeptConsumer:
    """Keep one consumer of one topic for its owner, who closes it: it ends with the work that it was made for.

    Outside of ``with``, and after it, each reading has a consumer of its own.
    """

    _idle: Lent | None = None
    _open: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> KeptConsumer:
        self._open = True
        return self

    def __exit__(self, *_: object) -> None:
        self._open = False
        if (idle := self._take()) is not None:
            idle.consumer.close()

    @contextmanager
    def lend(self, topic_id: str | None, make: Make) -> Iterator[Lent]:
        """Lend the consumer to one reading; it is kept when that came to its end.

        Args:
            topic_id: Kafka's id of the topic. None, from brokers that give none, keeps nothing: a topic made anew would
                be taken for the one before.
            make: Makes a consumer with an error callback.
        """
        lent = self._take()
        if lent is not None and not (lent.topic_id == topic_id and _sound(lent)):
            lent.consumer.close()
            lent = None
        if lent is None:
            errors: list[KafkaError] = []
            lent = Lent(make(errors.append), errors, topic_id)
        whole = False
        try:
            yield lent
            whole = True
        finally:
            if not (whole and topic_id is not None and self._put(lent)):
                lent.consumer.close()

    def _take(self) -> Lent | None:
        with self._lock:
            lent, self._idle = self._idle, None
        return lent

    def _put(self, lent: Lent) -> bool:
        lent.consumer.unassign()
        with self._lock:
            if not self._open or self._idle is not None:
                return False
            self._idle = lent
        return True


def _sound(lent: Lent) -> bool:
    # librdkafka tells of errors when it is polled, which nobody did since the last reading. After one it rests before
    # it connects anew (reconnect.backoff.max.ms).
    lent.consumer.poll(0)
    return not lent.errors
