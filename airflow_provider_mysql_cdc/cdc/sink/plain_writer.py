"""Write single records without a transaction, which read_committed consumers see at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message

from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.sink.clients import make_producer, plain_producer_settings
from airflow_provider_mysql_cdc.cdc.sink.kafka_errors import broker_addresses, to_sink_error


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
    client_errors: list[KafkaError] = []
    failed: list[tuple[KafkaError, str]] = []

    def on_undelivered(error: KafkaError, message: Message) -> None:
        failed.append((error, f"topic {message.topic()}"))

    settings = plain_producer_settings(kafka_settings, int(timeout_s * 1000))
    producer = make_producer(settings, client_errors.append, on_undelivered)
    addresses, hint = broker_addresses(kafka_settings), None
    try:
        for record in records:
            producer.produce(record.topic, record.value, record.key, 0)
        # The client gives a record up by itself, a little later than its time.
        remaining = producer.flush(timeout_s + 5)
        hint = client_errors[-1] if client_errors else None
        if failed:
            raise to_sink_error(
                failed[0][0], "while writing a record", where=f"{failed[0][1]} at {addresses}", hint=hint
            )
        if remaining:
            timeout_error = KafkaError(KafkaError._TIMED_OUT, f"{remaining} records were not delivered")
            raise to_sink_error(timeout_error, "while writing a record", where=addresses, hint=hint)
    except KafkaException as error:
        raise to_sink_error(error, "while writing a record", where=addresses, hint=hint) from None
    finally:
        producer.purge()
        producer.flush(0)
