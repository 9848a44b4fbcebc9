"""The largest request that the brokers read, which limits a record whatever its topic accepts.

A broker closes the connection on which a larger request arrives, without an answer (``socket.request.max.bytes``,
``NetworkReceive`` in Kafka 4.1). librdkafka takes this for a broken connection and sends the record again, until it
gives up after ``delivery.timeout.ms``. So the client has to refuse such a record itself.

What a compressed record takes is known only once the client has compressed it. Its statistics have the size of the
largest batch that it has made (``topics.*.batchsize.max`` of librdkafka 2.16, after compression), so a batch that no
request can hold is noticed after the first time that it is sent.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import orjson
from confluent_kafka import KafkaException
from confluent_kafka.admin import ConfigResource, ResourceType

from airflow_provider_mysql_cdc.cdc.errors import RecordTooLargeError
from airflow_provider_mysql_cdc.cdc.sink.client_errors import await_result
from airflow_provider_mysql_cdc.cdc.sink.clients import MAX_RECORD_BYTES, Admin, make_admin
from airflow_provider_mysql_cdc.cdc.sink.kafka_errors import broker_addresses, unwrap_error
from airflow_provider_mysql_cdc.cdc.sink.topics import broker_ids

log = logging.getLogger(__name__)

BROKER_LIMIT = "socket.request.max.bytes"
_REQUEST_OVERHEAD = 4_096
"""Bytes of a request beside its records: client id, transactional id, topic name and the header of the batch."""
_LEAST_OVERHEAD = 32
"""Bytes of the shortest request beside its records, the transactional id and the topic name."""
_STATISTICS = "statistics.interval.ms"
_STATISTICS_INTERVAL_MS = 1_000
_TIMEOUT_S = 10.0
_LIMITS: dict[str, int | None] = {}


def request_max_bytes(settings: Mapping[str, Any]) -> int | None:
    """Return the largest request that the brokers read; None if it is not known or no record can reach it.

    One broker is asked, once in a process, and only if ``message.max.bytes`` is above its default.

    Args:
        settings: User settings under their librdkafka names.
    """
    try:
        largest = int(settings.get("message.max.bytes", 0))
    except ValueError:
        return None  # the client reports what is wrong with it
    if largest <= MAX_RECORD_BYTES:
        return None
    addresses = broker_addresses(settings)
    if addresses not in _LIMITS:
        text = broker_settings(make_admin(settings)).get(BROKER_LIMIT, "")
        _LIMITS[addresses] = int(text) if text.isdecimal() else None
    return _LIMITS[addresses]


def broker_settings(admin: Admin) -> dict[str, str]:
    """Return the settings of a broker; none if the account may not read them.

    Args:
        admin: From ``clients.make_admin``.
    """
    if not (ids := broker_ids(admin)):
        return {}
    try:
        resource = ConfigResource(ResourceType.BROKER, str(ids[0]))
        answer = admin.describe_configs([resource], request_timeout=_TIMEOUT_S)[resource]
        entries = await_result(admin, answer, _TIMEOUT_S + 5)
    except KafkaException as error:
        cause = unwrap_error(error).str()
        log.info("the settings of the brokers cannot be read, so %s is not known: %s", BROKER_LIMIT, cause)
        return {}
    return {name: str(entry.value) for name, entry in entries.items()}


def limit_records(settings: Mapping[str, Any], request_bytes: int | None) -> dict[str, Any]:
    """Return producer settings with which the client refuses a record that the brokers do not read.

    With compression the size of a request is not known beforehand, so nothing is refused, and the client reports the
    sizes of its batches (``oversized_batch``).

    Args:
        settings: From ``clients.producer_settings``.
        request_bytes: From ``request_max_bytes``.
    """
    if request_bytes is None:
        return dict(settings)
    largest = max(request_bytes - _REQUEST_OVERHEAD, 1_000)  # the least that librdkafka accepts
    if int(settings["message.max.bytes"]) <= largest:
        return dict(settings)
    if not _is_compressed(settings):
        return {**settings, "message.max.bytes": largest}
    chosen = str(settings.get(_STATISTICS, "0"))
    return {**settings, _STATISTICS: _STATISTICS_INTERVAL_MS if chosen == "0" else chosen}


def _is_compressed(settings: Mapping[str, Any]) -> bool:
    return {str(settings.get(name, "none")).lower() for name in ("compression.type", "compression.codec")} != {"none"}


def reports_batches(settings: Mapping[str, Any], request_bytes: int | None) -> bool:
    """Return whether the client has to report the sizes of its batches, because a record may become too large.

    Args:
        settings: From ``limit_records``.
        request_bytes: From ``request_max_bytes``.
    """
    return request_bytes is not None and _is_compressed(settings) and _STATISTICS in settings


def oversized_batch(statistics: str, request_bytes: int, transactional_id: str) -> tuple[str, int] | None:
    """Return topic and size in bytes of the largest batch that no request can hold, or None.

    Args:
        statistics: JSON text of the client's statistics.
        request_bytes: The largest request that the brokers read.
        transactional_id: The transactional id of the producer.
    """
    topics = orjson.loads(statistics).get("topics", {})
    sizes = ((name, int(topic.get("batchsize", {}).get("max", 0))) for name, topic in topics.items())
    overhead = _LEAST_OVERHEAD + len(transactional_id)
    too_large = [(name, size) for name, size in sizes if size + overhead + len(name) > request_bytes]
    return max(too_large, key=lambda batch: batch[1], default=None)


def record_too_large(
    location: str, size: int, configured: object, request_bytes: int | None, batch_bytes: int | None = None
) -> RecordTooLargeError:
    """Return the error for a record that the client or the brokers refuse because of its size.

    Args:
        location: Its topic and key.
        size: Bytes of its key, value and headers.
        configured: ``kafka.message.max.bytes``.
        request_bytes: The largest request that the brokers read, if it is below that; otherwise None.
        batch_bytes: Bytes of its batch after compression; None if the client has not compressed it.
    """
    compressed = "" if batch_bytes is None else f" (its batch has {batch_bytes} after compression)"
    limit = f"kafka.message.max.bytes is {configured}"
    remedy = "raise kafka.message.max.bytes and max.message.bytes of the topic"
    if request_bytes is not None:
        limit = f"the brokers read requests of at most {request_bytes} bytes ({BROKER_LIMIT})"
        remedy = f"raise {BROKER_LIMIT} of the brokers (they have to be restarted)"
    return RecordTooLargeError(
        "a record is larger than Kafka accepts",
        where=location,
        why=f"it has {size} bytes{compressed}; {limit}",
        remedy=f"{remedy}, or exclude the column (column.exclude.list)",
    )
