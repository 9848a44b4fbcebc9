"""Records that are larger than a request that the brokers read."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Producer

from airflow_provider_mysql_cdc.cdc.errors import RecordTooLargeError
from airflow_provider_mysql_cdc.cdc.sink import request_limit, writer
from airflow_provider_mysql_cdc.cdc.sink.delivery_failures import key_text
from airflow_provider_mysql_cdc.cdc.sink.request_limit import limit_records, request_max_bytes
from airflow_provider_mysql_cdc.cdc.sink.writer import TransactionalWriter

LARGE = {"bootstrap.servers": "127.0.0.1:9", "message.max.bytes": "64000000"}


@pytest.fixture(autouse=True)
def plain_producers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Create producers without transactions, which begin only with a broker."""

    def create(settings: dict[str, Any], *_: object) -> Producer:
        return Producer({name: settings[name] for name in LARGE})

    monkeypatch.setattr(writer, "make_producer", create)
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


def test_a_record_that_may_become_small_enough_by_compression_is_not_refused() -> None:
    assert limit_records({"message.max.bytes": 9_000_000, "compression.type": "zstd"}, 3_000_000) == {
        "message.max.bytes": 9_000_000,
        "compression.type": "zstd",
    }
    assert limit_records({"message.max.bytes": 9_000_000}, None) == {"message.max.bytes": 9_000_000}


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


def test_a_key_is_shown_without_its_schema_and_not_at_full_length() -> None:
    assert key_text(b'{"schema":{"type":"struct"},"payload":{"id":5}}') == ', key {"id":5}'
    assert key_text(b'{"id":5}') == ', key {"id":5}' and key_text(None) == key_text(b"") == ""
    assert key_text(b"\x00\xff" + b"x" * 1_000).startswith(", key \x00\\xffxxx") and len(key_text(b"x" * 999)) == 206
