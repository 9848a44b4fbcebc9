"""Records that are larger than a request that the brokers read."""

from __future__ import annotations

import json
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from airflow_provider_mysql_cdc.cdc.errors import RecordTooLargeError
from airflow_provider_mysql_cdc.cdc.sink import producer_client, request_limit
from airflow_provider_mysql_cdc.cdc.sink.producer_client import DeliveryFailures, key_text
from airflow_provider_mysql_cdc.cdc.sink.request_limit import (
    broker_settings,
    limit_records,
    oversized_batch,
    reports_batches,
    request_max_bytes,
)
from airflow_provider_mysql_cdc.cdc.sink.topics import broker_ids
from airflow_provider_mysql_cdc.cdc.sink.writer import TransactionalWriter

NAME = "statistics.interval.ms"
LARGE = {"bootstrap.servers": "127.0.0.1:9", "message.max.bytes": "64000000"}


@pytest.fixture(autouse=True)
def plain_producers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Create producers without transactions, which begin only with a broker."""

    def create(settings: dict[str, Any], *_: object) -> Producer:
        return Producer({name: settings[name] for name in LARGE})

    monkeypatch.setattr(producer_client, "make_producer", create)
    monkeypatch.setattr(TransactionalWriter, "_begin", lambda self: None)


def refused(settings: dict[str, str], value: bytes, headers: Any = None) -> RecordTooLargeError:
    with TransactionalWriter(settings, "p.0", request_max_bytes=3_000_000) as sink:
        with pytest.raises(RecordTooLargeError) as caught:
            sink.produce("p.d.t", b"key", value, 0, headers)
        assert sink.shrink_batches() is None
    return caught.value


def test_a_record_that_no_request_holds_is_refused_at_once_with_the_setting_of_the_brokers() -> None:
    error = refused(LARGE, b"x" * 3_000_000)
    assert not error.can_retry and error.where == "topic p.d.t, key key"
    assert "3000003 bytes" in error.why and "at most 3000000 bytes (socket.request.max.bytes)" in error.why
    assert "raise socket.request.max.bytes" in error.remedy and "column.exclude.list" in error.remedy
    assert "3000009 bytes" in refused(LARGE, b"x", [("h", b"x" * 3_000_004)]).why, "its headers count"


def test_a_record_above_the_clients_own_limit_names_that() -> None:
    error = refused(LARGE | {"message.max.bytes": "2000000"}, b"x" * 3_000_000)
    assert "kafka.message.max.bytes is 2000000" in error.why and "socket.request" not in str(error)


@pytest.mark.parametrize(("chosen", "interval"), [({}, 1_000), ({NAME: "0"}, 1_000), ({NAME: "5000"}, "5000")])
def test_a_record_that_may_become_small_enough_by_compression_is_not_refused(
    chosen: dict[str, str], interval: object
) -> None:
    settings: dict[str, Any] = {"message.max.bytes": 9_000_000, "compression.type": "zstd", **chosen}
    assert limit_records(settings, 3_000_000) == {**settings, NAME: interval}
    assert reports_batches({**settings, NAME: interval}, 3_000_000)


def test_batches_are_not_watched_where_none_can_be_too_large() -> None:
    compressed = {"message.max.bytes": 2_000_000, "compression.codec": "lz4"}
    for settings, request_bytes in (
        ({"message.max.bytes": 9_000_000}, None),
        (compressed, 3_000_000),
        (compressed | {"message.max.bytes": 9_000_000}, None),
    ):
        assert limit_records(settings, request_bytes) == settings
        assert not reports_batches(settings, request_bytes)
    assert not reports_batches(limit_records({"message.max.bytes": 9_000_000, NAME: "5"}, 3_000_000), 3_000_000)


def test_a_batch_that_no_request_holds_is_found_in_the_statistics() -> None:
    def statistics(**sizes: int) -> str:
        topics = {name: {"topic": name, "batchsize": {"min": 1, "max": size}} for name, size in sizes.items()}
        return json.dumps({"name": "rdkafka#producer-1", "topics": topics})

    largest = 1_000 - 32 - len("p.0") - len("t")
    assert oversized_batch(statistics(t=largest), 1_000, "p.0") is None
    assert oversized_batch(statistics(t=largest + 1), 1_000, "p.0") == ("t", largest + 1)
    assert oversized_batch(statistics(t=2_000, u=3_000, v=0), 1_000, "p.0") == ("u", 3_000)
    assert oversized_batch("{}", 1_000, "p.0") is None


class Client:
    """A client whose commit would wait for a record that is sent again and again."""

    def __init__(self, failures: DeliveryFailures, statistics: Any) -> None:
        self._failures, self._statistics, self.calls = failures, statistics, list[str]()

    def flush(self, timeout_s: float) -> int:
        self.calls.append("flush")
        assert len(self.calls) < 10, "the record is sent again and again"
        return 0 if "abort" in self.calls and self._report_purged() is None else 1

    def _report_purged(self) -> None:
        for key, topic, size in ((b"a", "u", 9_000_000), (b"b", "t", 10), (b"c", "t", 8_000_000), (b"d", "t", 20)):
            message: Any = SimpleNamespace(
                topic=lambda t=topic: t, partition=lambda: 0, key=lambda k=key: k, value=lambda n=size: b"x" * n
            )
            self._failures.on_undelivered(KafkaError(KafkaError._PURGE_QUEUE), message)

    def poll(self, timeout_s: float) -> None:
        self._statistics(json.dumps({"topics": {"t": {"batchsize": {"max": 4_000_000}}}}))

    def abort_transaction(self, timeout_s: float) -> None:
        self.calls.append("abort")

    def commit_transaction(self, timeout_s: float) -> None:
        self.calls.append("commit")


def test_a_compressed_record_that_no_request_holds_ends_the_transaction_and_is_named() -> None:
    settings = LARGE | {"compression.type": "gzip"}
    sink = TransactionalWriter(settings, "p.0", request_max_bytes=3_000_000)
    client: Any = Client(sink._failures, sink._on_statistics)
    sink._on_statistics(json.dumps({"topics": {"t": {"batchsize": {"max": 4_000_000}}}}))
    assert sink._failures.oversized_batch is None, "it was of the last transaction"
    sink._kafka._producer, sink._open = client, True
    with pytest.raises(RecordTooLargeError) as caught:
        sink.commit()
    assert client.calls == ["flush", "abort", "flush"]
    assert caught.value.where == "topic t, partition 0, key c" and not caught.value.can_retry
    assert "8000001 bytes (its batch has 4000000 after compression)" in caught.value.why
    assert "at most 3000000 bytes (socket.request.max.bytes)" in caught.value.why
    assert sink.shrink_batches() is None and sink._failures.oversized_batch is None and not sink._open


def test_the_brokers_are_asked_once_and_only_where_a_record_can_reach_their_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[object] = []

    def settings_of(admin: object) -> dict[str, str]:
        asked.append(admin)
        return {"socket.request.max.bytes": "104857600"}

    monkeypatch.setattr(request_limit, "_LIMITS", {})
    monkeypatch.setattr(request_limit, "make_admin", lambda settings: settings["bootstrap.servers"])
    monkeypatch.setattr(request_limit, "broker_settings", settings_of)
    assert request_max_bytes({"bootstrap.servers": "a:1"}) is None and asked == []
    assert [request_max_bytes(LARGE) for _ in range(2)] == [104_857_600] * 2 and len(asked) == 1
    assert request_max_bytes(LARGE | {"message.max.bytes": "many"}) is None


class Cluster:
    """An admin client of a cluster of two brokers, which counts what it is asked."""

    def __init__(self, *answers: object) -> None:
        self.broker_ids: tuple[int, ...] = ()
        self.asked, self._answers = 0, list(answers)

    def describe_cluster(self, **_: object) -> Future[object]:
        self.asked += 1
        return done(self._answers.pop(0))

    def describe_configs(self, resources: list[object], **_: object) -> dict[object, Future[object]]:
        return {resource: done({"a": SimpleNamespace(value=1)}) for resource in resources}


def done(answer: object) -> Future[object]:
    future: Future[object] = Future()
    future.set_exception(answer) if isinstance(answer, Exception) else future.set_result(answer)
    return future


def test_a_client_asks_for_the_brokers_once_and_again_after_it_got_no_answer() -> None:
    nodes = SimpleNamespace(nodes=[SimpleNamespace(id=1), SimpleNamespace(id=2)])
    admin: Any = Cluster(KafkaException(KafkaError(KafkaError._TIMED_OUT)), nodes)
    assert broker_ids(admin) == ()
    assert [broker_ids(admin) for _ in range(2)] == [(1, 2)] * 2
    assert broker_settings(admin) == {"a": "1"} and admin.asked == 2


def test_a_key_is_shown_without_its_schema_and_not_at_full_length() -> None:
    assert key_text(b'{"schema":{"type":"struct"},"payload":{"id":5}}') == ', key {"id":5}'
    assert key_text(b'{"id":5}') == ', key {"id":5}' and key_text(None) == key_text(b"") == ""
    assert key_text(b"\x00\xff" + b"x" * 1_000).startswith(", key \x00\\xffxxx") and len(key_text(b"x" * 999)) == 206
