"""Write single records without a transaction, which read_committed consumers see at once."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.sink.admin_pool import CLIENT_LIFETIME_S
from airflow_provider_mysql_cdc.cdc.sink.client_errors import ClientErrors
from airflow_provider_mysql_cdc.cdc.sink.clients import make_producer, plain_producer_settings
from airflow_provider_mysql_cdc.cdc.sink.kafka_errors import broker_addresses

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
