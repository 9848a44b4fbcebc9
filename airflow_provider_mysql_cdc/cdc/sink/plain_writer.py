"""Write single records without a transaction: visible at once, to read_committed readers too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message

from airflow_provider_mysql_cdc.cdc.sink.clients import make_producer, plain_producer_settings
from airflow_provider_mysql_cdc.cdc.sink.kafka_errors import brokers, named_error
from airflow_provider_mysql_cdc.cdc.sink.record_writer import SideRecord


def write_plain(kafka_settings: Mapping[str, Any], records: Sequence[SideRecord], *, timeout_s: float = 60.0) -> None:
    """Write records to partition 0 of their topics and wait until all replicas have them.

    Args:
        kafka_settings: Client settings under their librdkafka names.
        records: Topic, key, value of each.
        timeout_s: Seconds after which a record that has not arrived is given up.

    Raises:
        SinkConnectionError: Kafka did not answer in time; the records may have arrived all the same.
        SinkError: Kafka refuses one.
    """
    reports: list[KafkaError] = []
    failed: list[tuple[KafkaError, str]] = []

    def undelivered(error: KafkaError, message: Message) -> None:
        failed.append((error, f"topic {message.topic()}"))

    settings = plain_producer_settings(kafka_settings, int(timeout_s * 1000))
    producer = make_producer(settings, reports.append, undelivered)
    at, hint = brokers(kafka_settings), None
    try:
        for topic, key, value in records:
            producer.produce(topic, value, key, 0)
        # The client gives a record up by itself, a little later than its time.
        left = producer.flush(timeout_s + 5)
        hint = reports[-1] if reports else None
        if failed:
            raise named_error(failed[0][0], "while writing a record", where=f"{failed[0][1]} at {at}", hint=hint)
        if left:
            late = KafkaError(KafkaError._TIMED_OUT, f"{left} records did not arrive")
            raise named_error(late, "while writing a record", where=at, hint=hint)
    except KafkaException as error:
        raise named_error(error, "while writing a record", where=at, hint=hint) from None
    finally:
        producer.purge()
        producer.flush(0)
