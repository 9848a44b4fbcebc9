"""Errors of the Kafka client become named errors; its log stays short and shows no secret."""

from __future__ import annotations

import logging
import time
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.errors import (
    FencedError,
    RecordTooLargeError,
    SinkAuthorizationError,
    SinkConnectionError,
    SinkError,
)
from airflow_provider_mysql_cdc.cdc.sink.clients import common_settings, make_admin, producer_settings
from airflow_provider_mysql_cdc.cdc.sink.kafka_errors import ClientLogHandler, client_logger, to_sink_error
from airflow_provider_mysql_cdc.cdc.sink.writer import TransactionalWriter

E = KafkaError


@for_each(
    ("code", "kind", "retriable"),
    [
        (E._TRANSPORT, SinkConnectionError, True),
        (E._ALL_BROKERS_DOWN, SinkConnectionError, True),
        (E._TIMED_OUT, SinkConnectionError, True),
        (E._MSG_TIMED_OUT, SinkConnectionError, True),
        (E._RESOLVE, SinkConnectionError, True),
        (E._NOENT, SinkConnectionError, True),
        (E.NOT_ENOUGH_REPLICAS, SinkConnectionError, True),
        (E.NOT_LEADER_FOR_PARTITION, SinkConnectionError, True),
        (E.UNKNOWN_LEADER_EPOCH, SinkConnectionError, True),
        (E.FENCED_LEADER_EPOCH, SinkConnectionError, True),
        (E._AUTHENTICATION, SinkAuthorizationError, False),
        (E.TOPIC_AUTHORIZATION_FAILED, SinkAuthorizationError, False),
        (E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, SinkAuthorizationError, False),
        (E.CLUSTER_AUTHORIZATION_FAILED, SinkAuthorizationError, False),
        (E.GROUP_AUTHORIZATION_FAILED, SinkAuthorizationError, False),
        (E._FENCED, FencedError, True),
        (E.PRODUCER_FENCED, FencedError, True),
        (E.INVALID_PRODUCER_ID_MAPPING, SinkError, True),
        (E.INVALID_TXN_STATE, SinkError, True),
        (E.INVALID_PRODUCER_EPOCH, FencedError, True),
        (E.MSG_SIZE_TOO_LARGE, RecordTooLargeError, False),
        (E._UNKNOWN_TOPIC, SinkError, False),
        (E._UNKNOWN_PARTITION, SinkError, False),
        (E.INVALID_TRANSACTION_TIMEOUT, SinkError, False),
        (E.INVALID_REPLICATION_FACTOR, SinkError, False),
        (E.INVALID_TIMESTAMP, SinkError, False),
        (E.POLICY_VIOLATION, SinkError, False),
        (E.UNKNOWN, SinkError, False),
    ],
)
def test_each_code_has_its_leaf_with_place_cause_and_remedy(code: int, kind: type[SinkError], retriable: bool) -> None:
    error = to_sink_error(KafkaException(E(code, "told by the broker")), "while testing", where="topic t")
    assert type(error) is kind
    assert error.can_retry is retriable
    assert "while testing" in error.what and error.where == "topic t"
    assert "told by the broker" in error.why and error.remedy


def test_a_record_of_another_time_than_the_brokers_names_the_clocks() -> None:
    """Since Kafka 4.0 a broker refuses what is an hour ahead; its word for it, invalid timestamp, tells nobody why."""
    assert "clock" in to_sink_error(E(E.INVALID_TIMESTAMP, "Broker: Invalid timestamp"), "x", where="w").remedy


def test_a_timeout_is_explained_by_what_the_client_reported_on_the_side() -> None:
    timeout = KafkaError(E._TIMED_OUT, "timed out")
    refused = to_sink_error(timeout, "x", where="w", hint=KafkaError(E._AUTHENTICATION, "wrong password"))
    assert isinstance(refused, SinkAuthorizationError) and "wrong password" in refused.why
    unknown = to_sink_error(timeout, "x", where="w", hint=KafkaError(E.UNKNOWN, "something odd"))
    assert isinstance(unknown, SinkConnectionError) and "something odd" in unknown.why
    clear = KafkaError(E.TOPIC_AUTHORIZATION_FAILED, "no")
    kept = to_sink_error(clear, "x", where="w", hint=KafkaError(E._TRANSPORT, "down"))
    assert isinstance(kept, SinkAuthorizationError)


def test_errors_that_are_no_kafka_errors_are_named_too() -> None:
    assert "odd" in to_sink_error(KafkaException("odd"), "x", where="w").why


def test_the_clients_log_is_bounded_and_masks_secrets(caplog: pytest.LogCaptureFixture) -> None:
    logger = client_logger({"sasl.password": "hunter2", "ssl.key.password": "s3cret"})
    handler = logger.handlers[0]
    assert isinstance(handler, ClientLogHandler)
    with caplog.at_level(logging.DEBUG, "airflow_provider_mysql_cdc"):
        for _ in range(500):
            logger.error("connect with hunter2 and %s", "s3cret")
        handler._minute_start -= 61
        logger.error("once more")
    texts = [record.getMessage() for record in caplog.records]
    assert len(texts) == 12
    assert not any("hunter2" in text or "s3cret" in text for text in texts)
    assert any("490 more lines" in text for text in texts)
    assert max(record.levelno for record in caplog.records) <= logging.WARNING


def test_kafka_settings_go_to_the_clients_that_know_them() -> None:
    given = {
        "bootstrap.servers": "b:1",
        "sasl.password": "x",
        "linger.ms": "5",
        "fetch.max.bytes": "9",
        "group.id": "g",
        "partitioner": "random",
    }
    assert common_settings(given) == {"bootstrap.servers": "b:1", "sasl.password": "x"}
    producer = producer_settings(given, "p.0", 60_000)
    assert producer["linger.ms"] == "5" and producer["transactional.id"] == "p.0"
    assert "group.id" not in producer and "fetch.max.bytes" not in producer and "partitioner" not in producer


def test_a_producer_holds_at_most_3_mb_and_gives_up_before_its_transaction_does() -> None:
    settings = producer_settings({}, "p.0", 60_000)
    assert settings["queue.buffering.max.kbytes"] == 3_072
    assert settings["delivery.timeout.ms"] == 60_000 and settings["transaction.timeout.ms"] == 60_000
    assert settings["compression.type"] == "none", "Connect's default: a consumer may have no codec"


@for_each(
    ("record", "queue", "kept"),
    [
        ("3145728", None, 3_072),
        ("3145729", None, 3_073),
        (120_000_000, None, 117_188),
        ("2097152", "1024", 2048),
        ("1", "9", "9"),
    ],
)
def test_a_producers_queue_holds_its_largest_record(record: Any, queue: str | None, kept: Any) -> None:
    given = {"message.max.bytes": record} | ({} if queue is None else {"queue.buffering.max.kbytes": queue})
    assert producer_settings(given, "p.0", 60_000)["queue.buffering.max.kbytes"] == kept


def test_an_admin_client_knows_whom_it_talks_to() -> None:
    assert make_admin({"bootstrap.servers": "127.0.0.1:1"}).where == "127.0.0.1:1"


@for_each(
    ("code", "age_s", "is_open", "named"),
    [
        (E.INVALID_PRODUCER_EPOCH, 61, True, True),
        (E._TIMED_OUT, 61, True, True),
        (E.INVALID_PRODUCER_EPOCH, 59, True, False),
        (E.INVALID_PRODUCER_EPOCH, 61, False, False),
        (E.TOPIC_AUTHORIZATION_FAILED, 61, True, False),
    ],
    ids=["fenced", "timed out", "in time", "none is open", "another cause"],
)
def test_a_transaction_that_outlived_its_timeout_is_named(code: int, age_s: float, is_open: bool, named: bool) -> None:
    """The broker aborts it and answers as it would to a writer that another one has fenced."""
    with TransactionalWriter({"bootstrap.servers": "127.0.0.1:1"}, "p.0", transaction_timeout_ms=60_000) as writer:
        writer._open, writer._began = is_open, time.monotonic() - age_s
        found = writer._to_error(KafkaException(E(code)), "while committing")
        writer._open = False
    assert ("outlived its timeout" in found.what) == named
    if named:
        assert "transaction.timeout.ms is 60000" in found.why and "last commit" in found.remedy and found.can_retry
