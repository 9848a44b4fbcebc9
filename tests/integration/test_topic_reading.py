"""A topic is read again and again with the same consumer, and each time as a new one would read it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from pipelinelib.topics import TopicReader, delete_topics

from airflow_provider_mysql_cdc.cdc.sink.client_pool import ConsumerCache
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord, read_topic
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicSpec, ensure_topics, existing_topics

READS = int(os.environ.get("KEPT_CONSUMER_READS", "40"))


@pytest.fixture
def kept() -> Iterator[ConsumerCache]:
    with ConsumerCache() as kept:
        yield kept


def read(kafka: str, topic: str, kept: ConsumerCache) -> Iterator[TopicRecord]:
    return read_topic({"bootstrap.servers": kafka}, topic, timeout_s=30, consumer_cache=kept)


@pytest.fixture
def topic(stack: Any, unique: str) -> str:
    ensure_topics(make_admin({"bootstrap.servers": stack.kafka}), {unique: TopicSpec(1, 1)})
    return unique


class Writing:
    """Write numbers in transactions of three, every fourth of them aborted, until told to end."""

    def __init__(self, kafka: str, topic: str) -> None:
        self.committed, self.ended = 0, threading.Event()
        self._producer = Producer({"bootstrap.servers": kafka, "transactional.id": topic})
        self._topic = topic
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Writing:
        self._producer.init_transactions(30)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self._thread.join()

    def _run(self) -> None:
        turn = 0
        while not self.ended.is_set():
            turn += 1
            aborted = turn % 4 == 0
            self._producer.begin_transaction()
            for n in range(self.committed, self.committed + 3):
                self._producer.produce(self._topic, b"never" if aborted else str(n).encode())
            if aborted:
                self._producer.flush(30)
                self._producer.abort_transaction(30)
            else:
                self._producer.commit_transaction(30)
                self.committed += 3


def test_each_read_is_whole_and_in_order_while_others_write(stack: Any, topic: str, kept: ConsumerCache) -> None:
    used = set()
    with Writing(stack.kafka, topic) as writing:
        for _ in range(READS):
            least = writing.committed
            found = [int(r.value or b"") for r in read(stack.kafka, topic, kept)]
            assert found == list(range(len(found)))
            assert len(found) >= least
            used.add(kept._idle and id(kept._idle.consumer))
    assert len(used - {None}) == 1


def test_a_topic_created_again_is_read_by_another_consumer(stack: Any, topic: str, kept: ConsumerCache) -> None:
    settings = {"bootstrap.servers": stack.kafka}
    admin = make_admin(settings)
    for text in ("before", "after"):
        producer = Producer(settings)
        producer.produce(topic, text.encode())
        assert producer.flush(30) == 0
        assert [r.value for r in read(stack.kafka, topic, kept)] == [text.encode()]
        admin.delete_topics([topic])[topic].result(30)
        while existing_topics(admin, [topic]):
            pass
        ensure_topics(admin, {topic: TopicSpec(1, 1)})


def test_a_reading_that_is_given_up_keeps_nothing(stack: Any, topic: str, kept: ConsumerCache) -> None:
    producer = Producer({"bootstrap.servers": stack.kafka})
    for n in range(3):
        producer.produce(topic, str(n).encode())
    assert producer.flush(30) == 0
    reading = read(stack.kafka, topic, kept)
    assert next(iter(reading)).value == b"0"
    reading.close()  # type: ignore[attr-defined]
    assert kept._idle is None


def test_one_consumer_reads_many_topics_and_one_that_was_created_again(stack: Any, unique: str) -> None:
    """The reader of tests and captures: it has learnt about the first topic of a name, and reads the second."""
    settings = {"bootstrap.servers": stack.kafka}
    reader, admin = TopicReader(), make_admin(settings)
    names = [f"{unique}_{n}" for n in range(3)]

    def write(topic: str, *values: str) -> None:
        ensure_topics(admin, {topic: TopicSpec(1, 1)})
        producer = Producer(settings)
        for value in values:
            producer.produce(topic, value)
        assert producer.flush(30) == 0

    for name in names:
        write(name, name, "more")
    for _ in range(2):
        assert [[r.value for r in reader.read(settings, name)] for name in names] == [
            [name.encode(), b"more"] for name in names
        ]
    [kept] = reader._kept.values()
    first = kept._idle
    assert first is not None
    delete_topics(settings, names[0])
    write(names[0], "anew")
    assert [r.value for r in reader.read(settings, names[0])] == [b"anew"]
    assert kept._idle is not None and kept._idle.consumer is not first.consumer
    assert [r.value for r in reader.read(settings, names[1])] == [names[1].encode(), b"more"]
    reader.close()
    assert kept._idle is None
