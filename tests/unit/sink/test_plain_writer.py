"""Single records: which client writes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError

from airflow_provider_mysql_cdc.cdc.errors import SinkError
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.sink import record_writer
from airflow_provider_mysql_cdc.cdc.sink.record_writer import write_plain

RECORD = SideRecord("ledger", b"k", b"v")
SETTINGS = {"bootstrap.servers": "h:1"}


class FakeMessage:
    def topic(self) -> str:
        return "ledger"


class FakeProducer:
    """Delivers at once; reports what it is told to, when it is polled or flushed."""

    def __init__(self, on_error: Callable[[KafkaError], None], on_undelivered: Callable[..., None]) -> None:
        self.on_error, self.on_undelivered = on_error, on_undelivered
        self.written: list[bytes | None] = []
        self.error: KafkaError | None = None
        self.refuses = self.purged = False
        self.while_writing: Callable[[], None] = lambda: None

    def produce(self, topic: str, value: bytes | None, key: bytes | None, partition: int) -> None:
        self.written.append(value)

    def poll(self, timeout: float) -> None:
        if self.error is not None:
            self.on_error(self.error)

    def flush(self, timeout: float) -> int:
        act, self.while_writing = self.while_writing, lambda: None
        act()
        if self.refuses:
            self.on_undelivered(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "no"), FakeMessage())
        return 0

    def purge(self) -> None:
        self.purged = True


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[FakeProducer]:
    found: list[FakeProducer] = []

    def make(settings: Any, on_error: Any, on_undelivered: Any) -> FakeProducer:
        found.append(FakeProducer(on_error, on_undelivered))
        return found[-1]

    monkeypatch.setattr(record_writer, "make_producer", make)
    monkeypatch.setattr(record_writer, "_IDLE", record_writer._IdleClients())
    return found


def test_a_client_that_has_written_writes_again(made: list[FakeProducer]) -> None:
    for _ in range(3):
        write_plain(SETTINGS, [RECORD, RECORD])
    assert [len(producer.written) for producer in made] == [6] and not made[0].purged


def test_other_settings_have_a_client_of_their_own(made: list[FakeProducer]) -> None:
    write_plain(SETTINGS, [RECORD])
    write_plain(SETTINGS, [RECORD], timeout_s=5)
    write_plain({"bootstrap.servers": "other:1"}, [RECORD])
    assert len(made) == 3


def test_a_client_that_has_reported_an_error_meanwhile_is_replaced(made: list[FakeProducer]) -> None:
    write_plain(SETTINGS, [RECORD])
    made[0].error = KafkaError(KafkaError._TRANSPORT, "h:1/bootstrap: Connection refused")
    write_plain(SETTINGS, [RECORD])
    assert [len(producer.written) for producer in made] == [1, 1]


def test_a_client_whose_record_was_refused_is_replaced(made: list[FakeProducer]) -> None:
    write_plain(SETTINGS, [RECORD])
    made[0].refuses = True
    with pytest.raises(SinkError, match="while writing a record"):
        write_plain(SETTINGS, [RECORD])
    assert made[0].purged
    write_plain(SETTINGS, [RECORD])
    assert [len(producer.written) for producer in made] == [2, 1]


def test_a_client_that_is_old_is_replaced(made: list[FakeProducer], monkeypatch: pytest.MonkeyPatch) -> None:
    write_plain(SETTINGS, [RECORD])
    later = record_writer.time.monotonic() + record_writer.CLIENT_LIFETIME_S
    monkeypatch.setattr(record_writer.time, "monotonic", lambda: later)
    write_plain(SETTINGS, [RECORD])
    assert len(made) == 2


def test_while_a_client_writes_nobody_else_has_it(made: list[FakeProducer]) -> None:
    write_plain(SETTINGS, [RECORD])
    made[0].while_writing = lambda: write_plain(SETTINGS, [RECORD])
    write_plain(SETTINGS, [RECORD])
    assert [len(producer.written) for producer in made] == [2, 1]
