"""Listing the topics of a cluster: a busy broker with very many is waited for, one that cannot be reached is not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from airflow_provider_mysql_cdc.cdc.errors import SinkConnectionError
from airflow_provider_mysql_cdc.cdc.sink import client_errors, topic_permissions, topics
from airflow_provider_mysql_cdc.cdc.sink.client_errors import ClientErrors


class Slow:
    """An admin client whose broker needs so many seconds to list its topics."""

    def __init__(self, needs_s: float, last_error: KafkaError | None = None, addresses: str = "") -> None:
        self.now = 0.0
        self.needs_s, self.errors = needs_s, ClientErrors({"bootstrap.servers": addresses})
        if last_error is not None:
            self.errors.note(last_error)

    def list_topics(self, timeout: float) -> Any:
        self.now += min(timeout, self.needs_s)
        if timeout < self.needs_s:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return SimpleNamespace(topics={"a": SimpleNamespace(partitions={0: None, 1: None})})

    def poll(self, timeout: float) -> None:
        pass


def listed(monkeypatch: pytest.MonkeyPatch, admin: Slow) -> dict[str, int]:
    monkeypatch.setattr(topics.time, "monotonic", lambda: admin.now)
    return topics.all_partition_counts(admin)  # type: ignore[arg-type]


@pytest.mark.parametrize("needs_s", [0.1, 4, 11])
def test_a_busy_broker_is_given_longer_each_time(monkeypatch: pytest.MonkeyPatch, needs_s: float) -> None:
    assert listed(monkeypatch, Slow(needs_s)) == {"a": 2}


@pytest.mark.parametrize(("told", "within"), [(KafkaError._ALL_BROKERS_DOWN, 15), (None, 65)])
def test_one_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch, told: int | None, within: float) -> None:
    admin = Slow(1e6, None if told is None else KafkaError(told))
    with pytest.raises(SinkConnectionError, match="listing topics"):
        listed(monkeypatch, admin)
    assert 15 <= admin.now <= within


@pytest.mark.req("FAULT-12")
def test_a_broker_that_has_answered_before_may_take_long_to_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_errors, "_ANSWERED", set())
    assert listed(monkeypatch, Slow(0.1, addresses="known:9092")) == {"a": 2}
    back = Slow(1e6, KafkaError(KafkaError._ALL_BROKERS_DOWN), addresses="known:9092")
    with pytest.raises(SinkConnectionError):
        listed(monkeypatch, back)
    assert back.now >= 60
    other = Slow(1e6, KafkaError(KafkaError._ALL_BROKERS_DOWN), addresses="typing-error:9092")
    with pytest.raises(SinkConnectionError):
        listed(monkeypatch, other)
    assert other.now < 20


def test_a_broker_that_does_not_say_what_is_allowed_forbids_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    read = SimpleNamespace(authorized_operations=[SimpleNamespace(name="READ")])
    answers = {"t": SimpleNamespace(authorized_operations=None), "u": read}
    admin: Any = SimpleNamespace(describe_topics=lambda *_, **__: answers)
    monkeypatch.setattr(topic_permissions, "await_result", lambda admin, answer, timeout_s: answer)
    assert topic_permissions.allowed_operations(admin, ["t", "u"]) == {"u": frozenset({"READ"})}
