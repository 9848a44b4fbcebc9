"""The writer that jobs use, single records without a transaction, and the fence around writers of a topic.prefix."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from airflow_provider_mysql_cdc.cdc.model.records import Headers, RowRecord, SideRecord
from airflow_provider_mysql_cdc.cdc.sink.client_errors import ClientErrors
from airflow_provider_mysql_cdc.cdc.sink.client_pool import CLIENT_LIFETIME_S
from airflow_provider_mysql_cdc.cdc.sink.clients import make_producer, plain_producer_settings
from airflow_provider_mysql_cdc.cdc.sink.kafka_errors import broker_addresses
from airflow_provider_mysql_cdc.cdc.sink.writer import SHORT_TIMEOUT_MS, TransactionalWriter


def transactional_id(prefix: str, writer: int | str) -> str:
    """Return ``<topic.prefix>.<writer>``, which is the same in every batch, so that an older attempt is fenced."""
    return f"{prefix}.{writer}"


class RecordWriter(Protocol):
    """One transactional writer."""

    def init(self, timeout_s: float = 60.0) -> None:
        """Fence older attempts of the same transactional id."""

    def produce(
        self, topic: str, key: bytes | None, value: bytes | None, partition: int, headers: Headers | None = None
    ) -> None:
        """Add a record to the current transaction."""

    def note_partition(self, topic: str, partition: int) -> None:
        """Note the partition of rows that are written with ``produce``, which also writes side records."""

    def produce_all(self, topic: str, records: Sequence[RowRecord], headers: Headers, partition: int = 0) -> None:
        """Add records to the current transaction."""

    def produce_plain(
        self, topic: str, records: Sequence[RowRecord], headers: Headers, partition: int, size: int
    ) -> None:
        """Add records of one partition to the current transaction."""

    @property
    def bytes_pending(self) -> int:
        """Bytes of keys and values in the current transaction."""

    def send(self, records: Sequence[SideRecord]) -> None:
        """Add side records to the current transaction, and wait until Kafka has them."""

    def commit(self, records: Sequence[SideRecord] = ()) -> None:
        """Add side records and commit."""

    def abort(self) -> None:
        """Abort the current transaction."""

    def close(self) -> None:
        """Close the client; an open transaction is aborted."""


_GIVE_UP_S = 5.0
"""Seconds by which the client gives a record up later than it should."""
_FLUSH_S = 0.5


class _RecordClient:
    """A producer with what it has reported."""

    def __init__(self, kafka_settings: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
        self.errors = ClientErrors(kafka_settings)
        self.failed: list[tuple[KafkaError, str]] = []
        self.expires_at = time.monotonic() + CLIENT_LIFETIME_S
        self.producer = make_producer(settings, self.errors.note, self._note_undelivered)

    def _note_undelivered(self, error: KafkaError, message: Message) -> None:
        self.failed.append((error, f"topic {message.topic()}"))

    def is_usable(self) -> bool:
        """Return whether it is not old and has reported no error, up to now."""
        self.producer.poll(0)
        return not self.errors.any_reported and time.monotonic() < self.expires_at


class _IdleClients:
    """Keep clients for the next write with the same settings; while one writes, nobody else has it.

    An idempotent producer writes nothing in the half second after it was created: librdkafka 2.16 asks for its id when
    no broker is connected yet, and the next time by a timer (rd_kafka_idemp_start).
    """

    def __init__(self) -> None:
        self._clients: dict[Hashable, _RecordClient] = {}
        self._lock = threading.Lock()

    def take(self, settings: Mapping[str, Any]) -> _RecordClient | None:
        """Return a client that nobody else uses, or None."""
        with self._lock:
            client = self._clients.pop(frozenset(settings.items()), None)
        return client if client is not None and client.is_usable() else None

    def give_back(self, settings: Mapping[str, Any], client: _RecordClient) -> None:
        """Keep a client that has written everything."""
        with self._lock:
            old, self._clients = self._clients, {k: c for k, c in self._clients.items() if c.is_usable()}
            self._clients[frozenset(settings.items())] = client
        old.clear()  # destroys those that are too old, when nobody waits for the lock

    def clear(self) -> None:
        """Drop all clients."""
        with self._lock:
            old, self._clients = self._clients, {}
        old.clear()


_IDLE = _IdleClients()
# A child has the memory of the clients, but not their threads.
os.register_at_fork(before=_IDLE.clear)
atexit.register(_IDLE.clear)


def write_plain(
    kafka_settings: Mapping[str, Any], records: Sequence[SideRecord], *, timeout_s: float = 60.0, partition: int = 0
) -> None:
    """Write records to one partition of their topics and wait until all replicas have them.

    Args:
        kafka_settings: Client settings under their librdkafka names.
        records: The records; none has headers.
        timeout_s: Seconds after which a record that has not arrived is given up.
        partition: The partition.

    Raises:
        SinkConnectionError: Kafka did not answer in time; the records may have arrived all the same.
        SinkError: Kafka refuses one.
    """
    settings = plain_producer_settings(kafka_settings, int(timeout_s * 1000))
    client = _IDLE.take(settings) or _RecordClient(kafka_settings, settings)
    producer, addresses = client.producer, broker_addresses(kafka_settings)
    has_written = False
    try:
        for record in records:
            producer.produce(record.topic, record.value, record.key, partition)
        remaining = _flush(producer, client.errors, timeout_s + _GIVE_UP_S)
        if client.failed:
            where = f"{client.failed[0][1]} at {addresses}"
            raise client.errors.to_error(client.failed[0][0], "while writing a record", where=where)
        if remaining:
            timeout_error = KafkaError(KafkaError._TIMED_OUT, f"{remaining} records were not delivered")
            raise client.errors.to_error(timeout_error, "while writing a record", where=addresses)
        has_written = True
    except KafkaException as error:
        raise client.errors.to_error(error, "while writing a record", where=addresses) from None
    finally:
        if has_written:
            _IDLE.give_back(settings, client)
        else:
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


def fence(
    kafka_settings: Mapping[str, Any],
    prefix: str,
    writers: Iterable[int | str],
    timeout_s: float = 60.0,
    *,
    transaction_timeout_ms: int = SHORT_TIMEOUT_MS,
) -> None:
    """Fence writers of a topic.prefix: their open transactions are aborted, and whatever they still send is refused.

    Each new epoch begins by fencing every writer that the ledger or the last plan names (``LedgerState.writer_ids``).
    So no writer that is left over from a plan with more writers can commit, and no open transaction hides what others
    have committed to the ledger.

    Args:
        kafka_settings: Client settings.
        prefix: topic.prefix.
        writers: Writer numbers.
        timeout_s: Seconds to wait for each writer.
        transaction_timeout_ms: A transaction timeout that the brokers accept; nothing is written, so it may be short.

    Raises:
        SinkConnectionError: Kafka cannot be reached in time.
        SinkError: Kafka refuses.
    """

    def fence_writer(writer: int | str) -> None:
        writer_id = transactional_id(prefix, writer)
        with TransactionalWriter(kafka_settings, writer_id, transaction_timeout_ms=transaction_timeout_ms) as client:
            client.init(timeout_s)

    ids = sorted(set(writers), key=str)
    if not ids:
        return
    with ThreadPoolExecutor(max_workers=min(4, len(ids))) as pool:
        for done in [pool.submit(fence_writer, writer) for writer in ids]:
            done.result()
