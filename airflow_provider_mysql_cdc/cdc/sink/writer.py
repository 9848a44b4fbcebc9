"""The transactional writer: records and their marker become visible together, or not at all.

``commit_transaction`` flushes first, and if a message has failed permanently, the transaction is in error and the
commit is refused (librdkafka INTRODUCTION.md, "Transactional producer"); the tests show this for a record that the
broker refuses and for a topic that does not exist. So a successful commit means that every record was delivered. One
delivery callback for the whole producer, called for failures only, notes which record failed; a callback per message is
not needed.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from airflow_provider_mysql_cdc.cdc.errors import CdcError, StateError
from airflow_provider_mysql_cdc.cdc.model.records import PARTITION, Headers, RowRecord, SideRecord
from airflow_provider_mysql_cdc.cdc.sink.clients import LINGER_NAMES, AdaptiveLinger
from airflow_provider_mysql_cdc.cdc.sink.kafka_errors import broker_addresses, unwrap_error
from airflow_provider_mysql_cdc.cdc.sink.producer_client import (
    DeliveryFailures,
    ProducerClient,
    ProducerOptions,
    key_text,
    outlived_timeout,
)
from airflow_provider_mysql_cdc.cdc.sink.request_limit import oversized_batch, record_too_large
from airflow_provider_mysql_cdc.cdc.sink.topics import accepts_clients

SHORT_TIMEOUT_MS = 60_000
"""Transaction timeout in milliseconds of a producer that writes little; the brokers' maximum may be lower."""
_SERVE_BYTES = 1 << 20
_BATCH_DIVISOR, _MIN_BATCH_BYTES = 10, 100
_PAUSE_S, _FLUSH_S, _PAUSES_BEFORE_FLUSH = 0.005, 0.002, 4
_WATCH_S = _REPORT_S = 1.0
_CONFIRM_S = 3.0


class TransactionalWriter:
    """Write records to Kafka in transactions under one transactional id.

    Not thread-safe: a writer belongs to one task.

    Args:
        kafka_settings: Client settings under their librdkafka names (``ConnectorConfig.kafka_settings()``).
        transactional_id: ``<topic.prefix>.<writer>``.
        transaction_timeout_ms: Milliseconds after which the broker aborts a transaction left open.
        commit_bytes: Bytes of keys and values from which ``should_commit`` is true.
        commit_interval_s: Seconds after which it is true as well.
        single_partition: Whether all records of a transaction are expected to go to one partition.
        request_max_bytes: The largest request that the brokers read; None if it is not known.
    """

    def __init__(
        self,
        kafka_settings: Mapping[str, Any],
        transactional_id: str,
        *,
        transaction_timeout_ms: int = 600_000,
        commit_bytes: int = 32 << 20,
        commit_interval_s: float = 10.0,
        single_partition: bool = False,
        request_max_bytes: int | None = None,
    ) -> None:
        self.transactional_id = transactional_id
        self.bytes_pending = 0
        self.records_pending = 0
        self._commit_bytes, self._commit_interval_s = commit_bytes, commit_interval_s
        self._timeout_s = transaction_timeout_ms / 1000
        self._where = f"{transactional_id} at {broker_addresses(kafka_settings)}"
        self._kafka_settings, self._request_max_bytes = kafka_settings, request_max_bytes
        self._linger = AdaptiveLinger(
            single_partition=single_partition, fixed=not LINGER_NAMES.isdisjoint(kafka_settings)
        )
        self._failures = DeliveryFailures(self._where, kafka_settings)
        self._open = False
        self._began = 0.0
        self._serve_at = _SERVE_BYTES
        self._kafka = ProducerClient(
            ProducerOptions(kafka_settings, transactional_id, transaction_timeout_ms, request_max_bytes),
            self._linger,
            self._failures,
            self._on_statistics,
        )
        self._produce = self._kafka.producer.produce

    def _replace(self) -> None:
        self.close()
        self._kafka.create()
        self._produce = self._kafka.producer.produce
        self._reset()

    def _on_statistics(self, statistics: str) -> None:
        if self._request_max_bytes is not None and self._open:
            batch = oversized_batch(statistics, self._request_max_bytes, self.transactional_id)
            self._failures.oversized_batch = self._failures.oversized_batch or batch

    def _serve(self, timeout_s: float) -> None:
        """Let the client call back with its log lines and errors.

        Raises:
            RecordTooLargeError: A batch is larger than any request that the brokers read.
        """
        self._kafka.poll(timeout_s)
        if self._failures.oversized_batch is not None:
            raise self._oversized_error(*self._failures.oversized_batch) from None

    def init(self, timeout_s: float = 60.0) -> None:
        """Fence every older producer of this transactional id; its open transaction is aborted.

        When this returns, the outcome of the older producer's last commit is final and readable.

        Args:
            timeout_s: Seconds to wait for Kafka.

        Raises:
            SinkConnectionError: Kafka cannot be reached in time.
            SinkAuthorizationError: Kafka refuses the account or the transactional id.
            SinkError: Kafka refuses for another reason.
        """
        client, started = self._kafka.producer, time.monotonic()
        deadline = started + timeout_s
        while True:
            try:
                client.init_transactions(max(0.1, min(1.0, deadline - time.monotonic())))
                self._serve(0)
                self._failures.client_errors.note_answer()
                return
            except KafkaException as error:
                self._serve(0)
                if not self._may_wait(error, started, deadline):
                    raise self._to_error(error, "while taking over the writer") from None

    def _may_wait(self, error: KafkaException, started: float, deadline: float) -> bool:
        """Return whether a call that failed may succeed later: Kafka has not refused the client meanwhile."""
        now, errors = time.monotonic(), self._failures.client_errors
        if not unwrap_error(error).retriable() or now >= deadline:
            return False
        if not errors.is_refused(now - started):
            return True
        # The refusal may have passed since: a client reports neither that nor, for half a minute, the same error again.
        if accepts_clients(self._kafka_settings, _CONFIRM_S):
            errors.note_answer()
            return True
        return False

    def renew(self) -> None:
        """Replace the client with a new one without topics in its metadata and with a suitable ``linger.ms``.

        Call ``init`` next.

        Raises:
            StateError: A transaction is open, or the writer is closed.
        """
        self._kafka.require_open()
        if self._open:
            raise StateError("a writer's client cannot be replaced inside a transaction", where=self._where)
        self._linger.switch()
        self._replace()

    @property
    def queued(self) -> int:
        """Return the records in the client's queue: not sent to Kafka yet, or not confirmed."""
        return self._kafka.queued

    @property
    def renewal_due(self) -> bool:
        """Whether another ``linger.ms`` would suit the last transaction better (``clients``)."""
        return self._linger.switch_due

    def shrink_batches(self) -> int | None:
        """Replace the client with one that has a smaller ``batch.size``, if the broker refused a batch as too large.

        ``max.message.bytes`` of a topic limits a batch as a whole (Kafka documentation, "Topic Configs"). A batch size
        equal to the size of one record leaves no room for another. Call ``init`` next.

        Returns:
            The new ``batch.size`` in bytes; None if smaller batches would not help.
        """
        smaller = max(self._kafka.batch_bytes // _BATCH_DIVISOR, self._failures.largest_refused, _MIN_BATCH_BYTES)
        if smaller >= self._kafka.batch_bytes:
            return None
        self._kafka.batch_bytes = smaller
        self._replace()
        return smaller

    def produce(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int,
        headers: Headers | None = None,
        timestamp: int = 0,
    ) -> None:
        """Add a record to the current transaction, and begin one if none is open.

        Blocks while the client's queue is full, so memory stays bounded when Kafka is slow.

        Args:
            topic: Topic name.
            key: Serialized key or None.
            value: Serialized value, or None for a tombstone.
            partition: Partition number.
            headers: List of (name, value) tuples; the same list can be passed for many records.
            timestamp: Milliseconds since 1970; 0 for the current time.

        Raises:
            RecordTooLargeError: The record exceeds kafka.message.max.bytes.
            SinkError: The transaction has failed; the subclass says why.
        """
        if not self._open:
            self._begin()
        try:
            # Positional: topic, value, key, partition, callback, on_delivery, timestamp (0: now), headers.
            self._produce(topic, value, key, partition, None, None, timestamp, headers)
        except BufferError:
            self._produce_blocking(topic, key, value, partition, headers, timestamp)
        except KafkaException as error:
            raise self._produce_error(error, topic, key, value, partition, headers) from None
        size = (len(value) if value is not None else 0) + (len(key) if key is not None else 0)
        self.records_pending += 1
        self.bytes_pending += size
        if self.bytes_pending >= self._serve_at:
            self._serve_at = self.bytes_pending + _SERVE_BYTES
            self._serve(0)

    def note_partition(self, topic: str, partition: int) -> None:
        """Note the partition of rows that are written with ``produce``, which also writes side records.

        Args:
            topic: Topic name.
            partition: Partition number.
        """
        self._linger.note_partition(topic, partition)

    def produce_all(self, topic: str, records: Sequence[RowRecord], headers: Headers, partition: int = 0) -> None:
        """Add records to the current transaction; see ``produce``.

        Args:
            topic: Topic name.
            records: The records.
            headers: Headers of all records, after a record's own header.
            partition: Partition number of the records without a partition.

        Raises:
            RecordTooLargeError: A record exceeds kafka.message.max.bytes.
            SinkError: The transaction has failed; the subclass says why.
        """
        if records and not self._open:
            self._begin()
        produce, pending, serve_at = self._produce, self.bytes_pending, self._serve_at
        if records:
            first_partition = records[0][PARTITION]
            self.note_partition(topic, partition if first_partition is None else first_partition)
        for key, value, _, _, header, own_partition in records:
            record_partition = partition if own_partition is None else own_partition
            record_headers = headers if header is None else [header, *headers]
            try:
                produce(topic, value, key, record_partition, None, None, 0, record_headers)
            except BufferError:
                self._produce_blocking(topic, key, value, record_partition, record_headers)
            except KafkaException as error:
                raise self._produce_error(error, topic, key, value, record_partition, headers) from None
            pending += (len(value) if value is not None else 0) + (len(key) if key is not None else 0)
            if pending >= serve_at:
                serve_at = pending + _SERVE_BYTES
                self._serve(0)
        self.records_pending += len(records)
        self.bytes_pending, self._serve_at = pending, serve_at

    def produce_plain(
        self, topic: str, records: Sequence[RowRecord], headers: Headers, partition: int, size: int
    ) -> None:
        """Add records of one partition; faster than ``produce_all``.

        Args:
            topic: Topic name.
            records: The records.
            headers: Headers of all records, after a record's own header.
            partition: Partition number of all records; a record that has a partition has this one.
            size: Bytes of their keys and values.

        Raises:
            RecordTooLargeError: A record exceeds kafka.message.max.bytes.
            SinkError: The transaction has failed; the subclass says why.
        """
        if records and not self._open:
            self._begin()
        produce = self._produce
        self.note_partition(topic, partition)
        for key, value, _, _, header, _ in records:
            record_headers = headers if header is None else [header, *headers]
            try:
                produce(topic, value, key, partition, None, None, 0, record_headers)
            except BufferError:
                self._produce_blocking(topic, key, value, partition, record_headers)
            except KafkaException as error:
                raise self._produce_error(error, topic, key, value, partition, headers) from None
        self.records_pending += len(records)
        self.bytes_pending += size
        if self.bytes_pending >= self._serve_at:
            self._serve_at = self.bytes_pending + _SERVE_BYTES
            self._serve(0)

    def _produce_blocking(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int,
        headers: Headers | None,
        timestamp: int = 0,
    ) -> None:
        started, pauses = time.monotonic(), 0
        full = KafkaError(KafkaError._TIMED_OUT, "the queue of the producer remained full", retriable=True)
        while True:
            self._serve(_PAUSE_S)
            pauses += 1
            if pauses % _PAUSES_BEFORE_FLUSH == 0:
                self._kafka.flush(_FLUSH_S)
            try:
                self._produce(topic, value, key, partition, None, None, timestamp, headers)
                return
            except BufferError:
                error = KafkaException(full)
                if not self._may_wait(error, started, started + self._timeout_s):
                    raise self._to_error(error, f"while writing to {topic}") from None
            except KafkaException as error:
                raise self._produce_error(error, topic, key, value, partition, headers) from None

    def _begin(self) -> None:
        try:
            self._kafka.producer.begin_transaction()
        except KafkaException as error:
            raise self._to_error(error, "while beginning a transaction") from None
        self._open, self._began = True, time.monotonic()

    @property
    def open_s(self) -> float:
        """Seconds since the current transaction began; 0 if none is open."""
        return time.monotonic() - self._began if self._open else 0.0

    @property
    def should_commit(self) -> bool:
        """Whether the current transaction has reached ``commit_bytes`` or ``commit_interval_s``."""
        return self._open and (
            self.bytes_pending >= self._commit_bytes or time.monotonic() - self._began >= self._commit_interval_s
        )

    def _produce_side(self, records: Sequence[SideRecord]) -> None:
        for topic, key, value, headers in records:
            self.produce(topic, key, value, 0, headers)

    def send(self, records: Sequence[SideRecord]) -> None:
        """Add side records to the current transaction, and wait until Kafka has them; ``commit`` reports a refusal.

        Args:
            records: The records.

        Raises:
            SinkError: The transaction has failed; the subclass says why.
        """
        self._produce_side(records)
        deadline = time.monotonic() + self._timeout_s
        while self._kafka.flush(_WATCH_S) and time.monotonic() < deadline:
            self._serve(0)

    def commit(self, records: Sequence[SideRecord] = ()) -> None:
        """Add side records (the marker, schema history) on partition 0 and commit the current transaction.

        Does nothing if there is no open transaction and no record.

        Args:
            records: The records.

        Raises:
            SinkConnectionError: Kafka did not answer in time. The commit may have succeeded all the same: fence the
                writer with ``init`` and read the ledger before anything else.
            SinkError: The transaction was refused and nothing of it is visible; the subclass says why.
        """
        self._produce_side(records)
        if not self._open:
            return
        client, started = self._kafka.producer, time.monotonic()
        deadline = started + self._timeout_s
        # A commit that is under way cannot be aborted, so batches that cannot be sent are noticed before.
        while self._kafka.watches_batches and self._kafka.flush(_WATCH_S) and time.monotonic() < deadline:
            self._serve(0)
        while True:
            try:
                client.commit_transaction(max(0.1, min(5.0, deadline - time.monotonic())))
                break
            except KafkaException as error:
                # The next call resumes a commit that timed out (librdkafka: rd_kafka_commit_transaction).
                self._serve(0)
                if not self._may_wait(error, started, deadline):
                    raise self._abort_and_wrap(error, "while committing") from None
        self._linger.transaction_ended(self.bytes_pending)
        self._reset()

    def abort(self) -> None:
        """Abort the current transaction; its records never become visible.

        Raises:
            SinkError: Kafka did not confirm this; the transaction ends at its timeout, or when the writer is fenced.
        """
        if not self._open:
            return
        try:
            self._kafka.producer.abort_transaction(30.0)
        except KafkaException as error:
            raise self._to_error(error, "while aborting") from None
        finally:
            self._reset()

    def close(self) -> None:
        """Close the client. An open transaction is aborted if Kafka answers soon."""
        self._produce = None
        self._kafka.close(abort=self._open)
        self._open = False

    def __enter__(self) -> TransactionalWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _reset(self) -> None:
        self._open = False
        self.bytes_pending = self.records_pending = 0
        self._serve_at = _SERVE_BYTES
        self._failures.reset()

    def _produce_error(
        self,
        error: KafkaException,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int,
        headers: Headers | None,
    ) -> CdcError:
        cause, size = unwrap_error(error), len(value or b"") + len(key or b"")
        if cause.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            # The client itself refuses the record, whatever the batch size is.
            self._failures.largest_refused = self._kafka.batch_bytes
            size += sum(len(name) + len(content or b"") for name, content in headers or ())
            location = f"topic {topic}{key_text(key)}"
            limit = self._request_max_bytes if self._kafka.limits_records else None
            return record_too_large(location, size, self._kafka.record_max_bytes, limit)
        self._failures.on_refused(error, topic, partition, size)
        # In a transaction that has failed, the record that failed is another one.
        earlier = cause.code() == KafkaError._STATE
        return self._abort_and_wrap(error, "while writing" if earlier else f"while writing to {topic}")

    def _oversized_error(self, topic: str, batch_bytes: int) -> CdcError:
        """Give up the transaction, and return the error that names the largest record of the topic that was left."""
        with contextlib.suppress(KafkaException):  # otherwise fencing or the transaction timeout ends it
            self._kafka.producer.abort_transaction(30.0)
        self._kafka.flush(_WATCH_S)
        location, size = self._failures.purged_record or (f"topic {topic}", batch_bytes)
        self._reset()
        self._failures.largest_refused = max(self._failures.largest_refused, size)
        return record_too_large(location, size, self._kafka.record_max_bytes, self._request_max_bytes, batch_bytes)

    def _abort_and_wrap(self, error: KafkaException, action: str) -> CdcError:
        """Return the error to raise for a failed transaction, after aborting it if possible."""
        cause = unwrap_error(error)
        if cause.code() in (KafkaError._STATE, KafkaError._FATAL):
            # The transaction failed in the background; only another call of the transaction API returns the cause.
            try:
                self._kafka.producer.commit_transaction(0.1)
            except KafkaException as reported:
                error = reported
            if unwrap_error(error).code() == KafkaError.MSG_SIZE_TOO_LARGE:
                self._await_report()
        sink_error = self._to_error(error, action)
        if unwrap_error(error).txn_requires_abort():
            with contextlib.suppress(CdcError):  # otherwise fencing or the transaction timeout ends it
                self.abort()
        return sink_error

    def _await_report(self) -> None:
        """Wait for the report that names the record which a broker refused; the error comes a moment earlier."""
        deadline = time.monotonic() + _REPORT_S
        while not self._failures.knows_record and time.monotonic() < deadline:
            self._kafka.poll(_PAUSE_S)

    def _to_error(self, error: KafkaException, action: str) -> CdcError:
        sink_error, age = self._failures.to_error(error, action), time.monotonic() - self._began
        if not self._open or age < self._timeout_s or not sink_error.can_retry:
            return sink_error
        return outlived_timeout(sink_error, action, age, self._timeout_s)
