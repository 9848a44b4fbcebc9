"""A writer whose client is refused in the middle of its work ends soon, and one that is accepted again goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from airflow_provider_mysql_cdc.cdc.errors import SinkAuthorizationError, SinkConnectionError
from airflow_provider_mysql_cdc.cdc.sink import producer_client, writer
from airflow_provider_mysql_cdc.cdc.sink.writer import TransactionalWriter

E = KafkaError
REFUSED = (
    E(E._AUTHENTICATION, "sasl_ssl://b:1/1: SASL authentication error: Authentication failed: the account is gone"),
    E(E._ALL_BROKERS_DOWN, "1/1 brokers are down"),
)


class Client:
    """A producer whose commits do not end for a while; it reports errors in poll()."""

    def __init__(self, on_error: Callable[[KafkaError], None], clock: Any, commits_after_s: float) -> None:
        self._on_error, self._clock, self._commits_after_s = on_error, clock, commits_after_s
        self.room = True

    def begin_transaction(self) -> None: ...

    def produce(self, *_: Any) -> None:
        if not self.room:
            raise BufferError

    def poll(self, timeout: float) -> None:
        self._clock.now += timeout
        for error in REFUSED:
            self._on_error(error)

    def flush(self, timeout: float) -> int:
        return 0

    def purge(self) -> None: ...

    def abort_transaction(self, timeout: float) -> None: ...

    def commit_transaction(self, timeout: float) -> None:
        self._clock.now += timeout
        if self._clock.now < self._commits_after_s:
            raise KafkaException(E(E._TIMED_OUT, "retry call to resume", retriable=True))


class Rig:
    """A writer with such a producer, and a clock that stands still but for its waiting."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, accepted: bool, commits_after_s: float) -> None:
        self.now, self.asked = 100.0, 0
        self.accepted = accepted
        monkeypatch.setattr(writer.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(writer, "accepts_clients", self._accepts)

        def create(settings: Any, on_error: Any, *_: Any) -> Client:
            self.client = Client(on_error, self, 100.0 + commits_after_s)
            return self.client

        monkeypatch.setattr(producer_client, "make_producer", create)
        self.writer = TransactionalWriter({"bootstrap.servers": "b:1"}, "p.0", transaction_timeout_ms=600_000)

    def _accepts(self, settings: Any, timeout_s: float) -> bool:
        self.asked += 1
        return self.accepted


def test_a_commit_ends_soon_when_kafka_refuses_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch, accepted=False, commits_after_s=1e6)
    rig.writer.produce("t", b"k", b"v", 0)
    with pytest.raises(SinkAuthorizationError, match="while committing") as caught:
        rig.writer.commit()
    assert not caught.value.can_retry and rig.now <= 110 and rig.asked == 1


def test_a_commit_goes_on_when_kafka_accepts_a_new_client(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch, accepted=True, commits_after_s=30)
    rig.writer.produce("t", b"k", b"v", 0)
    rig.writer.commit()
    assert rig.now >= 130 and rig.asked > 0 and rig.writer.records_pending == 0


@pytest.mark.parametrize("accepted", [True, False])
def test_a_full_queue_is_waited_for_while_kafka_accepts_clients(
    monkeypatch: pytest.MonkeyPatch, accepted: bool
) -> None:
    rig = Rig(monkeypatch, accepted=accepted, commits_after_s=0)
    rig.client.room = False
    with pytest.raises((SinkAuthorizationError, SinkConnectionError)):
        rig.writer.produce("t", b"k", b"v", 0)
    assert (rig.now >= 700) is accepted and (rig.now <= 110) is not accepted
