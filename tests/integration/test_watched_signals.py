"""What a watcher sees of a Kafka signal topic: signals of its own stream, until a drain has read them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from kit.sql import execute
from kit.table_rig import filled
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.operate.due_drain import DrainRequest, next_request, read_stream_state
from airflow_provider_mysql_cdc.cdc.operate.lag import Thresholds
from airflow_provider_mysql_cdc.cdc.signals import signal_watch
from airflow_provider_mysql_cdc.cdc.sink import topic_reader
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicSpec, ensure_topics

pytestmark = [pytest.mark.stack]
FAR = Thresholds(bytes=10**12)
"""So much binlog that no change is due; only signals are."""


@pytest.fixture(autouse=True)
def watches(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Read the topic each time, and begin without consumers of other tests."""
    monkeypatch.setattr(signal_watch, "FRESH_S", -1.0)
    monkeypatch.setattr(signal_watch, "_watches", {})
    yield
    for watch in signal_watch._watches.values():
        watch.close()


class Topic:
    """A signal topic of two partitions."""

    def __init__(self, pipeline: Pipeline, kafka: str, name: str) -> None:
        self.name, self.pipeline = name, pipeline
        ensure_topics(make_admin(pipeline.cfg.kafka_settings()), {name: TopicSpec(2, 1)})
        self._producer = Producer({"bootstrap.servers": kafka, "transactional.id": f"{name}.sender"})
        self._producer.init_transactions()

    def send(self, key: str, partition: int = 0, message: str = "hello", *, commit: bool = True) -> None:
        value = json.dumps({"type": "log", "data": {"message": message}})
        self._producer.begin_transaction()
        self._producer.produce(self.name, value, key, partition)
        self._producer.flush(30)
        self._producer.commit_transaction() if commit else self._producer.abort_transaction()


@pytest.fixture
def stream(properties: dict[str, str], root: Any, database: str) -> Pipeline:
    signals = {"signal.enabled.channels": "kafka", "signal.kafka.topic": f"{properties['topic.prefix']}.in"}
    made = Pipeline(properties | signals)
    execute(root, *filled(database, "a", count=3))
    made.snapshot()
    return made


def due(stream: Pipeline, last: DrainRequest | None = None) -> DrainRequest | None:
    found = next_request(read_stream_state(stream.cfg), FAR, last, retry_after_s=600)
    return None if found is None else found[0]


def test_a_signal_is_asked_for_once_and_not_after_a_drain_has_read_it(
    stream: Pipeline, stack: Any, unique: str
) -> None:
    assert due(stream) is None, "the topic does not exist yet, which is a warning and no error"
    topic = Topic(stream, stack.kafka, f"{unique}.in")
    assert due(stream) is None
    topic.send(unique, commit=False)
    topic.send("another")
    assert due(stream) is None, "signals of other streams wake those alone"
    topic.send(unique)
    first = due(stream)
    assert first is not None and len(first.signals) == 1
    assert due(stream, first) is None
    topic.send(unique, partition=1)
    second = due(stream, first)
    assert second is not None and len(second.signals) == 2
    assert stream.drain() is not None
    assert due(stream, second) is None
    assert due(stream) is None, "a new triggerer does not ask for what is done either"
    topic.send(unique, partition=1)
    assert due(stream, second) is not None


def test_streams_of_one_topic_share_its_consumer(
    stream: Pipeline, stack: Any, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    real = topic_reader.make_consumer

    def make(settings: Any, group: str, *more: Any, **named: Any) -> Any:
        made.append(group)
        return real(settings, group, *more, **named)

    monkeypatch.setattr(topic_reader, "make_consumer", make)
    topic = Topic(stream, stack.kafka, f"{unique}.in")
    other = Pipeline(stream.properties | {"topic.prefix": f"{unique}-b", "ledger.topic": f"{unique}-b-ledger"})
    for n in range(3):
        topic.send(unique, message=str(n))
        topic.send(f"{unique}-b", message=str(n))
        for pipeline in (stream, other):
            state = signal_watch.signal_topic_state(pipeline.cfg)
            assert state.newest[pipeline.cfg.topic_prefix.encode()]
    assert len(made) == 1 and len(signal_watch._watches) == 1


def test_a_topic_that_was_created_again_is_read_from_its_beginning(stream: Pipeline, stack: Any, unique: str) -> None:
    topic = Topic(stream, stack.kafka, f"{unique}.in")
    for _ in range(3):
        topic.send(unique)
    assert stream.drain() is not None
    assert due(stream) is None
    admin = make_admin(stream.cfg.kafka_settings())
    next(iter(admin.delete_topics([topic.name]).values())).result(30)
    again = Topic(stream, stack.kafka, f"{unique}.in")
    again.send(unique)
    assert due(stream) is not None


def test_what_was_there_before_a_read_that_begins_at_the_end_wakes_nobody(
    stream: Pipeline, stack: Any, unique: str
) -> None:
    topic = Topic(stream, stack.kafka, f"{unique}.in")
    topic.send(unique)
    latest = Pipeline(stream.properties | {"signal.consumer.auto.offset.reset": "latest"}, stream.store)
    assert due(latest) is None
    assert due(stream) is not None
