"""Settings of the Kafka clients, as the real client takes or refuses them when it is made; no broker is asked."""

from __future__ import annotations

import subprocess
import sys
from itertools import product

import pytest
from confluent_kafka import KafkaError, Producer
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.sink import clients, topic_reader
from airflow_provider_mysql_cdc.cdc.sink.client_errors import ClientErrors
from airflow_provider_mysql_cdc.cdc.sink.clients import producer_settings
from airflow_provider_mysql_cdc.cdc.sink.writer import TransactionalWriter

BASE = {"topic.prefix": "p", "database.hostname": "h", "database.user": "u", "kafka.bootstrap.servers": "127.0.0.1:1"}
TIMES = (
    {"delivery.timeout.ms": "120000"},
    {"delivery.timeout.ms": "900000"},
    {"delivery.timeout.ms": "0"},
    {"delivery.timeout.ms": "5"},
    {"message.timeout.ms": "120000"},
    {"socket.timeout.ms": "300000"},
    {"linger.ms": "70000"},
    {"linger.ms": "0"},
    {"queue.buffering.max.ms": "70000", "message.timeout.ms": "65000"},
    {
        "delivery.timeout.ms": "120000",
        "linger.ms": "5000",
        "socket.timeout.ms": "119000",
        "request.timeout.ms": "90000",
    },
)


@for_each(("times", "timeout_ms"), list(product(TIMES, (10_000, 60_000, 600_000))))
def test_every_producer_takes_a_users_times(times: dict[str, str], timeout_ms: int) -> None:
    """Writers have ``transaction.timeout.ms``; whoever fences or plans has a minute, with the same settings."""
    given = {f"kafka.{name}": value for name, value in times.items()}
    for settings in (ConnectorConfig.from_properties(BASE | given).kafka_settings(), times):
        with TransactionalWriter(settings, "p.0", transaction_timeout_ms=timeout_ms) as writer:
            assert writer._kafka.settings["transaction.timeout.ms"] == timeout_ms
            assert isinstance(writer._kafka.producer, Producer), "the client has taken the settings"


def test_times_are_shortened_only_as_far_as_the_transaction_asks() -> None:
    def made(timeout_ms: int, **times: str) -> dict[str, object]:
        return producer_settings({k.replace("_", "."): v for k, v in times.items()}, "p.0", timeout_ms)

    assert made(60_000, delivery_timeout_ms="120000")["delivery.timeout.ms"] == 60_000
    assert made(600_000, delivery_timeout_ms="120000")["delivery.timeout.ms"] == "120000"
    assert made(600_000)["delivery.timeout.ms"] == 300_000
    assert made(60_000)["linger.ms"] == 10
    assert made(60_000, socket_timeout_ms="90000")["socket.timeout.ms"] == 60_000
    assert "socket.timeout.ms" not in made(60_000)


def test_a_time_that_is_no_number_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="refuses its settings"):
        TransactionalWriter({"bootstrap.servers": "127.0.0.1:1", "delivery.timeout.ms": "soon"}, "p.0")


def test_a_time_that_the_transaction_cuts_short_is_noted() -> None:
    cfg = ConnectorConfig.from_properties(BASE | {"kafka.delivery.timeout.ms": "900000"})
    assert [
        n for n in cfg.notes if "kafka.delivery.timeout.ms has no effect" in n and "transaction.timeout.ms=600000" in n
    ]
    assert not ConnectorConfig.from_properties(BASE | {"kafka.delivery.timeout.ms": "120000"}).notes


@for_each(
    ("name", "value"),
    [
        ("acks", "1"),
        ("request.required.acks", 0),
        ("enable.idempotence", "False"),
        ("max.in.flight.requests.per.connection", "5"),
        ("max.in.flight", 5),
    ],
)
def test_settings_that_would_lose_or_double_events_are_refused(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"kafka.{name} must be"):
        producer_settings({name: value}, "p.0", 60_000)
    assert producer_settings({"acks": "-1", "enable.idempotence": "TRUE"}, "p.0", 60_000)["acks"] == "-1"


def test_a_partition_gets_one_batch_after_the_other() -> None:
    for made in (producer_settings({}, "p.0", 60_000), clients.plain_producer_settings({}, 60_000)):
        assert made["max.in.flight.requests.per.connection"] == 1


def test_readers_pass_over_what_is_not_committed_unless_asked_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "_create", lambda kind, finished, settings: finished)
    mine = {"isolation.level": "read_uncommitted", "bootstrap.servers": "k:1"}
    made = [clients.make_consumer(mine, "g", lambda _: None, committed=committed) for committed in (True, False)]
    assert [m["isolation.level"] for m in made] == ["read_committed", "read_uncommitted"]


def test_a_producer_connects_at_once_where_the_client_knows_how(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, object]] = []

    def create(kind: object, finished: dict[str, object], settings: object) -> None:
        made.append(finished)
        if unknown and "enable.sparse.connections" in finished:
            raise ConfigError("the Kafka client refuses its settings")

    monkeypatch.setattr(clients, "_create", create)
    for unknown in (False, True):
        made.clear()
        clients.make_producer({"bootstrap.servers": "k:1"}, print, print)
        assert [m.get("enable.sparse.connections") for m in made] == [False, None][: 1 + unknown]
    unknown = False
    made.clear()
    clients.make_producer({"enable.sparse.connections": "true"}, print, print)
    assert [m["enable.sparse.connections"] for m in made] == ["true"]


class Message:
    """A record at an offset, or the end of the partition there."""

    def __init__(self, offset: int, *, last: bool = False) -> None:
        self._offset, self._last = offset, last

    def error(self) -> KafkaError | None:
        return KafkaError(KafkaError._PARTITION_EOF) if self._last else None

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes:
        return b"k"

    value = key

    def timestamp(self) -> tuple[int, int]:
        return 1, 0

    def headers(self) -> None:
        return None


class Shelf:
    """A consumer whose messages are all there; as the real one it waits out the time when fewer are than asked for."""

    def __init__(self, messages: list[Message]) -> None:
        self._messages, self.waited = messages, 0.0

    def consume(self, count: int, timeout: float) -> list[Message]:
        taken, self._messages = self._messages[:count], self._messages[count:]
        self.waited += timeout if len(taken) < count else 0
        return taken


def test_a_reader_does_not_wait_for_messages_after_the_end() -> None:
    shelf = Shelf([Message(0), Message(1), Message(2, last=True)])
    found = topic_reader._consume(shelf, "t", {0: 0}, {0: 2}, 60, ClientErrors({}))
    assert [record.offset for record in found] == [0, 1]
    assert shelf.waited == 0


FORKING = """
import gc, os
from airflow_provider_mysql_cdc.cdc.sink import clients
gc.disable()
class Garbage:
    def __init__(self):
        self.itself = self
    def __del__(self):
        os._exit(1)
Garbage()
child = os.fork()
if not child:
    gc.collect()
    os._exit(0)
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_child_collects_no_garbage_of_the_process_that_forked_it() -> None:
    """Clients may be in it; whether their end hangs or crashes in the child is a matter of time."""
    assert subprocess.run([sys.executable, "-c", FORKING], check=False).returncode == 0
