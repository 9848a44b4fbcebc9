"""The librdkafka producer of a writer, and the failures that it has reported.

Failures that a writer's producer has reported, and the errors that are raised from them.

librdkafka reports errors and undelivered records in callbacks; the call that fails afterwards often says less.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import orjson
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from airflow_provider_mysql_cdc.cdc.errors import CdcError, FencedError, RecordTooLargeError, StateError
from airflow_provider_mysql_cdc.cdc.sink.client_errors import ClientErrors
from airflow_provider_mysql_cdc.cdc.sink.clients import AdaptiveLinger, make_producer, producer_settings
from airflow_provider_mysql_cdc.cdc.sink.kafka_errors import broker_addresses, to_sink_error, unwrap_error
from airflow_provider_mysql_cdc.cdc.sink.request_limit import limit_records, reports_batches

_SHOWN = 200
"""Characters of a key in an error."""
_PURGED = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
_MISSING = (KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)


def key_text(key: bytes | str | None) -> str:
    """Return ``, key ...`` with the beginning of a record's key; empty for a record without one.

    Args:
        key: The key; of JSON with a schema only the payload is shown.
    """
    if not key:
        return ""
    text = key.decode("utf-8", "backslashreplace") if isinstance(key, bytes) else key
    with contextlib.suppress(ValueError):
        document = orjson.loads(text)
        if isinstance(document, dict) and "payload" in document:
            text = orjson.dumps(document["payload"]).decode()
    return f", key {text[:_SHOWN]}"


def _located(message: Message) -> tuple[str, int]:
    """Return where a record belongs, and the bytes of its key and value."""
    location = f"topic {message.topic()}, partition {message.partition()}{key_text(message.key())}"
    return location, len(message.key() or b"") + len(message.value() or b"")


class DeliveryFailures:
    """Keep the failures that a producer reports, until its transaction has ended.

    Args:
        where: The writer, for error messages.
        settings: The producer's settings.

    Attributes:
        client_errors: What the producer reported, or polling or flushing it raised.
        largest_refused: Bytes of the largest record that was refused as too large.
        oversized_batch: Topic and bytes of a batch that is larger than any request that the brokers read, or None.
        purged_record: Location and bytes of the largest record of its topic that was given up, or None.
    """

    def __init__(self, where: str, settings: Mapping[str, Any]) -> None:
        self._where = where
        self.client_errors = ClientErrors(settings)
        self.largest_refused = 0
        self.oversized_batch: tuple[str, int] | None = None
        self.purged_record: tuple[str, int] | None = None
        self._undelivered: tuple[KafkaError, str, int] | None = None

    def on_client_error(self, error: KafkaError) -> None:
        """Note an error of the producer."""
        self.client_errors.note(error)

    def on_undelivered(self, error: KafkaError, message: Message) -> None:
        """Note a record that was not delivered; only the first one is kept."""
        if error.code() in _PURGED:
            self._note_purged(message)
        elif self._undelivered is None:
            self._undelivered = error, *_located(message)

    def _note_purged(self, message: Message) -> None:
        if self.oversized_batch is None or message.topic() != self.oversized_batch[0]:
            return
        location, size = _located(message)
        if self.purged_record is None or size > self.purged_record[1]:
            self.purged_record = location, size

    @property
    def knows_record(self) -> bool:
        """Whether a record was reported that was not delivered."""
        return self._undelivered is not None

    def on_refused(self, error: KafkaException, topic: str, partition: int, size: int) -> None:
        """Note a record that the producer refused.

        It refuses a record at once if it knows that the topic or partition does not exist, and otherwise after the
        brokers have said so.
        """
        cause = unwrap_error(error)
        if self._undelivered is None and cause.code() in _MISSING:
            self._undelivered = cause, f"topic {topic}, partition {partition}", size

    def reset(self) -> None:
        """Forget the failures, for the next transaction."""
        self.client_errors.reset()
        self._undelivered = self.oversized_batch = self.purged_record = None

    def to_error(self, error: KafkaException, action: str) -> CdcError:
        """Return the error to raise for a call that failed.

        Args:
            error: The exception that the call raised.
            action: What the call was doing, as the end of a sentence: "while committing".
        """
        if self._undelivered is None:
            return self.client_errors.to_error(error, action, where=self._where)
        hint, location, size = self._undelivered
        sink_error = to_sink_error(error, action, where=self._where, hint=hint)
        if isinstance(sink_error, FencedError):
            return sink_error
        why = sink_error.why
        if isinstance(sink_error, RecordTooLargeError):
            self.largest_refused = max(self.largest_refused, size)
            why = f"the record has {size} bytes; {why}"
        return type(sink_error)(
            sink_error.what,
            where=f"{location}; {self._where}",
            why=why,
            remedy=sink_error.remedy,
            retriable=sink_error.can_retry,
        )


def outlived_timeout(error: CdcError, action: str, age_s: float, timeout_s: float) -> CdcError:
    """Return the error of a transaction that was open for longer than it may be.

    Errors about fencing, timeouts and unknown ids all follow from this.

    Args:
        error: The error that the client reported.
        action: What the call was doing, as the end of a sentence.
        age_s: Seconds since the transaction began.
        timeout_s: Seconds after which the broker aborts it.
    """
    return type(error)(
        f"a Kafka transaction outlived its timeout, {action}",
        where=error.where,
        why=f"it was open for {age_s:.0f} s and transaction.timeout.ms is {timeout_s * 1000:.0f}: "
        f"this process was suspended, or Kafka did not accept the records in time; {error.why}",
        remedy="run the task again: nothing of the transaction is visible, and it continues from the last commit",
        retriable=True,
    )


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
