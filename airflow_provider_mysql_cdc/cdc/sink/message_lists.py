"""Read many records of one partition, as lists of the client's messages: no object is made for each record."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from airflow_provider_mysql_cdc.cdc.sink.client_errors import ClientErrors
from airflow_provider_mysql_cdc.cdc.sink.clients import make_consumer
from airflow_provider_mysql_cdc.cdc.sink.kafka_errors import to_sink_error
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import (
    IGNORED_ERRORS,
    HiddenByTransaction,
    RecordsDeleted,
    no_progress_error,
)

_MOST_MESSAGES = 100
"""Messages that one call fetches from the client; with 200, each takes a quarter more CPU (measured)."""


def read_message_lists(
    kafka_settings: Mapping[str, Any], topic: str, partition: int, bounds: tuple[int, int], timeout_s: float
) -> Iterator[list[Message]]:
    """Yield committed records of a partition in order, as lists.

    Args:
        kafka_settings: Client settings.
        topic: Topic name; it must exist.
        partition: The partition.
        bounds: First offset and the offset after the last record.
        timeout_s: Seconds without progress after which this fails.

    Raises:
        HiddenByTransaction: No record comes any more.
        RecordsDeleted: The first offset is not there any more.
        SinkError: Kafka refuses.
    """
    start, end = bounds
    if end <= start:
        return
    errors = ClientErrors(kafka_settings)
    consumer = make_consumer(kafka_settings, f"{topic}.reader", errors.note)
    try:
        consumer.assign([TopicPartition(topic, partition, start)])
        yield from _lists(consumer, topic, partition, bounds, timeout_s, errors)
    except HiddenByTransaction as hidden:
        if errors.last is None:
            raise
        raise no_progress_error(kafka_settings, topic, hidden, errors) from None
    finally:
        consumer.close()


def _lists(
    consumer: Consumer, topic: str, partition: int, bounds: tuple[int, int], timeout_s: float, errors: ClientErrors
) -> Iterator[list[Message]]:
    position, end = bounds
    deadline = time.monotonic() + timeout_s
    while position < end:
        # A call for many messages waits for its whole timeout if there are fewer: wait for one, then fetch the others.
        fetched = consumer.consume(1, 0.2)
        if fetched:
            fetched += consumer.consume(_MOST_MESSAGES, 0)
        records, reached = _without_ends(fetched, topic, position)
        if reached > position:
            position, deadline = reached, time.monotonic() + timeout_s
            errors.note_answer()
        if records and records[-1].offset() >= end:
            records = [record for record in records if record.offset() < end]
        if records:
            yield records
        waited_s = time.monotonic() + timeout_s - deadline
        if position < end and (waited_s > timeout_s or errors.is_refused(waited_s)):
            raise HiddenByTransaction(f"partition {partition}: {position} of {end}")


def _without_ends(fetched: list[Message], topic: str, position: int) -> tuple[list[Message], int]:
    """Return the records, and the offset after the last of what was fetched.

    The client reports the end of a partition in place of a record; where the last records there are no visible ones,
    as the markers of transactions, only that says how far it has read.
    """
    records = [message for message in fetched if message.error() is None]
    for message in fetched if len(records) < len(fetched) else ():
        error = message.error()
        if error is None:
            continue
        if error.code() == KafkaError._PARTITION_EOF:
            position = max(position, message.offset())
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise RecordsDeleted(
                "its first records were deleted while they were read (retention, or by hand); verify again"
            )
        elif not error.retriable() and error.code() not in IGNORED_ERRORS:
            raise to_sink_error(error, "while reading a topic", where=f"topic {topic}")
    return records, max(position, records[-1].offset() + 1) if records else position
