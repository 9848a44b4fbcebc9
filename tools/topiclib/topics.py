"""The committed records of a topic, read with a consumer of its own."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from topiclib.wire import WireReader

_TIMEOUT_S = 30.0
_FETCH = 2_000


class TopicError(Exception):
    """Say that a topic could not be read to its end."""


@dataclass(frozen=True, slots=True)
class KafkaRecord:
    """Hold a record as Kafka gave it.

    Args:
        value: Value, None for a tombstone.
        timestamp_ms: When it was written, milliseconds since 1970.
    """

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes | None]
    timestamp_ms: int = 0

    @property
    def where(self) -> str:
        """Name the record in a message."""
        return f"partition {self.partition} offset {self.offset}"


def read_topic(bootstrap: str, topic: str) -> Iterator[KafkaRecord]:
    """Yield a topic's committed records up to its end at the start of reading, each partition's in offset order.

    Raises:
        TopicError: The topic does not exist, or its end is not reached: a transaction is still open.
    """
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "topic-check",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "fetch.max.bytes": 32 * 2**20,
        # How long the broker may wait at the end of a partition.
        "fetch.wait.max.ms": 20,
        "queued.max.messages.kbytes": 64 * 1024,
    }
    consumer = Consumer(settings)
    try:
        found = consumer.list_topics(topic, timeout=_TIMEOUT_S).topics[topic]
        if found.error is not None:
            raise TopicError(f"topic {topic}: {found.error.str()}")
        ends = {}
        for partition in found.partitions:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_TIMEOUT_S)
            if high > low:
                ends[partition] = (low, high)
        consumer.assign([TopicPartition(topic, p, low) for p, (low, _) in ends.items()])
        yield from _records(consumer, topic, {p: high for p, (_, high) in ends.items()})
    except KafkaException as error:
        raise TopicError(f"reading {topic}: {error}") from error
    finally:
        consumer.close()


def _records(consumer: Any, topic: str, ends: dict[int, int]) -> Iterator[KafkaRecord]:
    deadline = time.monotonic() + _TIMEOUT_S
    while ends:
        messages = consumer.consume(_FETCH, timeout=0.1)
        if messages:
            deadline = time.monotonic() + _TIMEOUT_S
        elif time.monotonic() > deadline:
            raise TopicError(
                f"topic {topic}: the end of partition(s) {sorted(ends)} is not reached; a transaction is open"
            )
        for message in messages:
            error = message.error()
            if error is None:
                if message.offset() < ends.get(message.partition(), 0):
                    yield _record(message)
            elif error.code() != KafkaError._PARTITION_EOF:
                raise TopicError(f"reading {topic}: {error.str()}")
            elif message.offset() >= ends.get(message.partition(), 0):
                ends.pop(message.partition(), None)


def _record(message: Any) -> KafkaRecord:
    headers = dict(message.headers() or ())
    return KafkaRecord(
        message.partition(), message.offset(), message.key(), message.value(), headers, message.timestamp()[1]
    )


def schema_changes(bootstrap: str, topic: str, wire: WireReader | None = None) -> Iterator[dict[str, Any]]:
    """Yield the payloads of the schema change topic.

    Args:
        bootstrap: Kafka's addresses.
        topic: The topic.
        wire: Reads its records when they are Avro; None for JSON.
    """
    for record in read_topic(bootstrap, topic):
        if record.value is not None and wire is not None:
            yield wire.split(record.value)[1]
        elif record.value is not None:
            document = json.loads(record.value)
            yield document.get("payload", document)
