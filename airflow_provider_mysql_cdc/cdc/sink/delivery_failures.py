"""What a writer's client has told of failures, and the named errors that follow from it.

librdkafka tells errors and undelivered records as it goes; the call that fails behind them often says less.
"""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException, Message

from airflow_provider_mysql_cdc.cdc.errors import CdcError, FencedError, RecordTooLargeError
from airflow_provider_mysql_cdc.cdc.sink.kafka_errors import to_sink_error, unwrap_error

_PURGED = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
_MISSING = (KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)


class DeliveryFailures:
    """Keep what a client tells until its transaction has ended.

    Args:
        where: The writer, for errors.

    Attributes:
        told: The last error that the client told, or that came from a call that is no work of its own.
        largest_refused: Bytes of the largest record that was refused as too large.
    """

    def __init__(self, where: str) -> None:
        self._where = where
        self.client_error: KafkaError | None = None
        self.largest_refused = 0
        self._undelivered: tuple[KafkaError, str, int] | None = None

    def on_client_error(self, error: KafkaError) -> None:
        """Take an error of the client."""
        self.client_error = error

    def on_undelivered(self, error: KafkaError, message: Message) -> None:
        """Take a record that will not arrive; the first one counts."""
        if self._undelivered is None and error.code() not in _PURGED:
            size = len(message.key() or b"") + len(message.value() or b"")
            self._undelivered = error, f"topic {message.topic()}, partition {message.partition()}", size

    def on_refused(self, error: KafkaException, topic: str, partition: int, size: int) -> None:
        """Take what the client said of a record that it did not take.

        It refuses at once what it knows to be missing, and otherwise when it has asked the brokers.
        """
        cause = unwrap_error(error)
        if self._undelivered is None and cause.code() in _MISSING:
            self._undelivered = cause, f"topic {topic}, partition {partition}", size

    def reset(self) -> None:
        """Begin a new transaction."""
        self.client_error = self._undelivered = None

    def to_error(self, error: KafkaException, action: str) -> CdcError:
        """Return the named error of a call that failed.

        Args:
            error: What the call raised.
            action: What was being done.
        """
        if self._undelivered is None:
            return to_sink_error(error, action, where=self._where, hint=self.client_error)
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
