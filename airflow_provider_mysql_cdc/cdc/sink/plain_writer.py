"""Write single records without a transaction, which read_committed consumers see at once."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.sink.client_errors import ClientErrors
from airflow_provider_mysql_cdc.cdc.sink.clients import make_producer, plain_producer_settings
from airflow_provider_mysql_cdc.cdc.sink.kafka_errors import broker_addresses

_GIVE_UP_S = 5.0
"""Seconds by which the client gives a record up later than it should."""
_FLUSH_S = 0.5


def write_plain(kafka_settings: Mapping[str, Any], records: Sequence[SideRecord], *, timeout_s: float = 60.0) -> None:
    """Write records to partition 0 of their topics and wait until all replicas have them.

    Args:
        kafka_settings: Client settings under their librdkafka names.
        records: The records; none has headers.
        timeout_s: Seconds after which a record that has not arrived is given up.

    Raises:
        SinkConnectionError: Kafka did not answer in time; the records may have arrived all the same.
        SinkError: Kafka refuses one.
    """
    client_errors = ClientErrors(kafka_settings)
    failed: list[tuple[KafkaError, str]] = []

    def on_undelivered(error: KafkaError, message: Message) -> None:
        failed.append((error, f"topic {message.topic()}"))

    settings = plain_producer_settings(kafka_settings, int(timeout_s * 1000))
    producer = make_producer(settings, client_errors.note, on_undelivered)
    addresses = broker_addresses(kafka_settings)
    try:
        for record in records:
            producer.produce(record.topic, record.value, record.key, 0)
        remaining = _flush(producer, client_errors, timeout_s + _GIVE_UP_S)
        if failed:
            where = f"{failed[0][1]} at {addresses}"
            raise client_errors.to_error(failed[0][0], "while writing a record", where=where)
        if remaining:
            timeout_error = KafkaError(KafkaError._TIMED_OUT, f"{remaining} records were not delivered")
            raise client_errors.to_error(timeout_error, "while writing a record", where=addresses)
    except KafkaException as error:
        raise client_errors.to_error(error, "while writing a record", where=addresses) from None
    finally:
        producer.purge()
        producer.flush(0)


def _flush(producer: Producer, client_errors: ClientErrors, timeout_s: float) -> int:
    """Wait until all records have arrived or Kafka has refused the client; return the records left."""
    started = time.monotonic()
    while True:
        waited_s = time.monotonic() - started
        remaining: int = producer.flush(max(0.0, min(_FLUSH_S, timeout_s - waited_s)))
        if not remaining or waited_s >= timeout_s or client_errors.is_refused(waited_s):
            return remaining
