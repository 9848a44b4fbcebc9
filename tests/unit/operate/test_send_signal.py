"""Signals over each channel: checked once, and then sent as they are."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
from kit.signals import send

from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.ledger_records import build_ledger_state
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, LedgerMissingError
from airflow_provider_mysql_cdc.cdc.operate import send_signal
from airflow_provider_mysql_cdc.cdc.signals.signal import Signal, pending_signals

BASE = {
    "topic.prefix": "test_connector",
    "database.hostname": "h",
    "database.user": "u",
    "kafka.bootstrap.servers": "k:1",
}


def config(**more: str) -> ConnectorConfig:
    return ConnectorConfig.from_properties(BASE | more)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Return what stands in the ledger, by key; the last value of each."""
    records: dict[str, bytes] = {}

    def write(settings: Any, written: Any) -> None:
        for topic, key, value, _ in written:
            assert topic == "ledger.test_connector"
            records[key.decode()] = value

    monkeypatch.setattr(send_signal, "make_admin", lambda settings: None)
    monkeypatch.setattr(send_signal, "partition_counts", lambda admin, topics: dict.fromkeys(topics, 1))
    monkeypatch.setattr(send_signal, "write_plain", write)
    monkeypatch.setattr(kafka_clients, "ledger", lambda _: SimpleNamespace(claim=LedgerState))
    return records


def test_a_signal_from_airflow_waits_in_the_ledger(sent: dict[str, bytes]) -> None:
    id_ = send(config(), "execute-snapshot", '{"data-collections": ["d.ä"]}')
    other = send(config(), "pause-snapshot", id_="mine")
    assert other == "mine" and id_ != other
    found = [signal for _, signal in pending_signals(build_ledger_state(dict(sent)).signals)]
    assert [(s.id, s.type, s.channel) for s in found] == [
        (id_, "execute-snapshot", "airflow"), ("mine", "pause-snapshot", "airflow"),
    ]  # fmt: skip
    assert found[0].data == '{"data-collections": ["d.ä"]}'
    assert all(0 <= time.time() * 1000 - signal.sent_ms < 600_000 for signal in found)


def test_signals_from_airflow_keep_their_order(sent: dict[str, bytes]) -> None:
    """That of the ledger: by the clocks of two workers a pause could come behind the resumption that followed it."""
    ids = [str(n) for n in range(20)]
    for id_ in ids:
        send(config(), "pause-snapshot", id_=id_)
    assert [s.id for _, s in pending_signals(build_ledger_state(dict(sent)).signals)] == ids


def test_a_repeated_attempt_sends_nothing_more(sent: dict[str, bytes]) -> None:
    for _ in range(2):
        send(config(), "pause-snapshot", id_="run-1")
    assert len(sent) == 1


def test_what_cannot_be_carried_out_is_not_sent(sent: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="data-collections is missing"):
        send(config(), "execute-snapshot", {})
    with pytest.raises(ConfigError, match="is not known"):
        send(config(), "run-snapshot", {})
    with pytest.raises(ConfigError, match=r"changes\[0\] of its data cannot be read"):
        send(config(), "schema-changes", {"database": "d", "changes": [{"type": "ALTER"}]})
    monkeypatch.setattr(send_signal, "partition_counts", lambda admin, topics: {})
    with pytest.raises(LedgerMissingError, match="cannot be stored") as caught:
        send(config(), "pause-snapshot")
    assert "mysql_cdc_snapshot" in caught.value.remedy
    assert sent == {}


def test_a_signal_that_was_checked_is_sent_without_another_check(
    sent: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    checks: list[str] = []
    real = send_signal.read_action
    monkeypatch.setattr(send_signal, "read_action", lambda signal, t: checks.append(signal.type) or real(signal, t))
    signal = send_signal.checked_signal(config(), "log", {"message": "hello"}, id_="one")
    assert signal == Signal("one", "log", '{"message": "hello"}', "airflow") and sent == {}
    send_signal.send_signal(config(), signal)
    assert checks == ["log"] and len(sent) == 1


def test_a_kafka_signal_is_one_record_under_the_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Any] = []
    monkeypatch.setattr(send_signal, "write_plain", lambda settings, records: written.extend(records))
    cfg = config(**{"signal.enabled.channels": "kafka"})
    send_signal.send_signal(cfg, send_signal.checked_signal(cfg, "pause-snapshot", "", channel="kafka", id_="one"))
    value = b'{"id": "one", "type": "pause-snapshot", "data": {}}'
    assert written == [("test_connector-signal", b"test_connector", value, None)]
