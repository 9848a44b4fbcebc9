"""The librdkafka producer of a writer: created from the writer's settings, and again where others suit better."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from confluent_kafka import KafkaException, Producer

from airflow_provider_mysql_cdc.cdc.errors import StateError
from airflow_provider_mysql_cdc.cdc.sink.adaptive_linger import AdaptiveLinger
from airflow_provider_mysql_cdc.cdc.sink.clients import make_producer, producer_settings
from airflow_provider_mysql_cdc.cdc.sink.delivery_failures import DeliveryFailures
from airflow_provider_mysql_cdc.cdc.sink.kafka_errors import broker_addresses, unwrap_error
from airflow_provider_mysql_cdc.cdc.sink.request_limit import limit_records, reports_batches


class ProducerOptions(NamedTuple):
    """Hold what each producer of a writer is created with.

    Args:
        kafka_settings: Client settings under their librdkafka names (``ConnectorConfig.kafka_settings()``).
        transactional_id: ``<topic.prefix>.<writer>``.
        transaction_timeout_ms: Milliseconds after which the broker aborts a transaction left open.
        request_max_bytes: The largest request that the brokers read; None if it is not known.
    """

    kafka_settings: Mapping[str, Any]
    transactional_id: str
    transaction_timeout_ms: int
    request_max_bytes: int | None


class ProducerClient:
    """Hold a writer's producer.

    Args:
        options: What it is created with.
        linger: Chooses its ``linger.ms``.
        failures: Gets the failures that it reports.
        on_statistics: Gets its statistics, where these show batches that no request can hold.

    Attributes:
        batch_bytes: Its ``batch.size``; the next one has the value that is set here.
        record_max_bytes: ``kafka.message.max.bytes``.
        limits_records: Whether it refuses records below that, because the brokers read no such request.
        watches_batches: Whether it reports statistics.
        settings: Its settings.
    """

    def __init__(
        self,
        options: ProducerOptions,
        linger: AdaptiveLinger,
        failures: DeliveryFailures,
        on_statistics: Callable[[str], None],
    ) -> None:
        self._options, self._linger, self._failures, self._on_statistics = options, linger, failures, on_statistics
        self.batch_bytes = 0
        self.create()

    def create(self) -> None:
        """Create a producer; the one before it is closed."""
        kafka_settings, transactional_id, timeout_ms, request_max_bytes = self._options
        settings = producer_settings(kafka_settings, transactional_id, timeout_ms, linger_ms=self._linger.linger_ms)
        if self.batch_bytes:
            settings["batch.size"] = self.batch_bytes
        self.record_max_bytes = settings["message.max.bytes"]
        self.settings = limit_records(settings, request_max_bytes)
        self.batch_bytes = int(self.settings["batch.size"])
        self.limits_records = self.settings["message.max.bytes"] != self.record_max_bytes
        self.watches_batches = reports_batches(self.settings, request_max_bytes)
        callbacks = self._failures.on_client_error, self._failures.on_undelivered
        self._producer: Producer | None = make_producer(
            self.settings, *callbacks, self._on_statistics if self.watches_batches else None
        )

    @property
    def producer(self) -> Producer:
        """Return the producer.

        Raises:
            StateError: It is closed.
        """
        return self.require_open()

    def require_open(self) -> Producer:
        """Return the producer; errors as for ``producer``."""
        if self._producer is None:
            where = f"{self._options.transactional_id} at {broker_addresses(self._options.kafka_settings)}"
            raise StateError("this writer is closed", where=where)
        return self._producer

    def poll(self, timeout_s: float) -> None:
        """Let the producer call back with its log lines, errors and delivery reports.

        Args:
            timeout_s: Seconds to wait for one.
        """
        try:
            self.producer.poll(timeout_s)
        except KafkaException as error:  # a fatal error; the next call fails and reports it
            self._failures.on_client_error(unwrap_error(error))

    @property
    def queued(self) -> int:
        """Return the records in the queue; none in a client that is closed."""
        return 0 if self._producer is None else len(self._producer)

    def flush(self, timeout_s: float) -> int:
        """Flush the queue, as the producer may wait for more records than fit into it; return the records left.

        Args:
            timeout_s: Seconds to wait.
        """
        try:
            left: int = self.producer.flush(timeout_s)
            return left
        except KafkaException as error:  # as in poll
            self._failures.on_client_error(unwrap_error(error))
            return 0

    def close(self, *, abort: bool) -> None:
        """Close the producer, if it is not closed.

        Args:
            abort: Whether it has an open transaction, which is aborted if Kafka answers soon.
        """
        producer, self._producer = self._producer, None
        if producer is None:
            return
        try:
            if abort:
                producer.abort_transaction(5.0)
        except KafkaException:
            pass  # the broker aborts it at its timeout, or the next attempt fences it
        finally:
            # A producer in a fatal state raises its error again from every call. Earlier commits are confirmed, and the
            # error that ended the work is already being raised.
            with contextlib.suppress(KafkaException):
                producer.purge()
                producer.flush(0)
