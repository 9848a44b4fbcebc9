"""Topics of a test or a capture: read to their ends with one consumer, and deleted.

A consumer for each topic costs three connections and a group's coordinator: 2 ms of CPU here, 4 ms in the broker
(measured), of 12 that the reading of a small topic takes. Tests and captures read thousands of them.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException

from airflow_provider_mysql_cdc.cdc.sink.client_pool import CachedConsumer, ConsumerCache
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord, read_topic_committed
from airflow_provider_mysql_cdc.cdc.sink.topics import existing_topics

_ANY = "any topic"


@dataclass(slots=True)
class _SharedConsumer(ConsumerCache):
    """Keep one consumer of many topics."""

    _topic: str = ""
    _ids: dict[str, str] = field(default_factory=dict)

    def will_read(self, topic: str, topic_id: str) -> None:
        """Let the consumer go when it has learnt about a topic of the same name that is no more."""
        if self._ids.get(topic, topic_id) != topic_id and (idle := self._take()) is not None:
            idle.consumer.close()
        self._topic, self._ids[topic] = topic, topic_id

    @contextmanager
    def borrow(
        self,
        topic_id: str | None,
        settings: Mapping[str, Any],
        make: Callable[[Callable[[KafkaError], None]], Consumer],
    ) -> Iterator[CachedConsumer]:
        """Lend the consumer to one reading; see ``ConsumerCache.borrow``."""
        with ConsumerCache.borrow(self, topic_id, settings, make) as lent:
            # A topic that it has not heard of it would ask for within a second only.
            with contextlib.suppress(KafkaException):
                lent.consumer.list_topics(self._topic, timeout=10)
            yield lent


class TopicReader:
    """Read topics to their ends; for one thread at a time."""

    def __init__(self) -> None:
        self._kept: dict[frozenset[tuple[str, Any]], _SharedConsumer] = {}

    def read(self, kafka_settings: Mapping[str, Any], topic: str) -> list[TopicRecord]:
        """Return what is committed in a topic; see ``read_topic_committed``.

        Raises:
            SinkError: As ``read_topic_committed``.
        """
        admin = make_admin(kafka_settings)
        metadata = existing_topics(admin, [topic]).get(topic)
        if metadata is None or metadata.id is None:
            return list(read_topic_committed(kafka_settings, topic, admin=admin))
        consumer = self._consumer_of(kafka_settings)
        consumer.will_read(topic, metadata.id)
        named = replace(metadata, id=_ANY)
        return list(read_topic_committed(kafka_settings, topic, admin=admin, topic_info=named, consumer_cache=consumer))

    def _consumer_of(self, kafka_settings: Mapping[str, Any]) -> _SharedConsumer:
        key = frozenset(kafka_settings.items())
        if key not in self._kept:
            self.close()
            self._kept[key] = _SharedConsumer()
            self._kept[key].__enter__()
        return self._kept[key]

    def close(self) -> None:
        """Let the consumer go."""
        for consumer in self._kept.values():
            consumer.__exit__()
        self._kept.clear()


READER = TopicReader()
"""What this process reads topics with."""
# A child has a consumer's memory, but not the threads that end it.
os.register_at_fork(before=READER.close)
atexit.register(READER.close)


def delete_topics(kafka_settings: Mapping[str, Any], *topics: str) -> None:
    """Delete topics, and wait until the broker no longer names them.

    The broker answers before it has heard of the deletion itself: asked at once it may say that the topic is there, and
    a moment later that it is not.
    """
    admin = make_admin(kafka_settings)
    for future in admin.delete_topics(list(topics)).values():
        future.result(30)
    while existing_topics(admin, topics):
        time.sleep(0.02)
