"""A client waits long for more records where all go to one partition, and shortly where several share it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from kit.cases import for_each
from kit.drain_rig import Rig

from airflow_provider_mysql_cdc.cdc.drain.drain_writer_factory import create_writer
from airflow_provider_mysql_cdc.cdc.errors import RecordTooLargeError, SinkError
from airflow_provider_mysql_cdc.cdc.sink import producer_client
from airflow_provider_mysql_cdc.cdc.sink import writer as sink_writer
from airflow_provider_mysql_cdc.cdc.sink.clients import SHARED_LINGER_MS, SINGLE_PARTITION_LINGER_MS, AdaptiveLinger
from airflow_provider_mysql_cdc.cdc.sink.writer import TransactionalWriter

LARGE, SMALL = 32 << 20, 1 << 20


def waits(pace: AdaptiveLinger, *transactions: tuple[int, list[tuple[str, int]]]) -> list[int]:
    """Return how long the client waits behind each transaction, where it is replaced whenever that is due."""
    found = []
    for size, places in transactions:
        for place in places:
            pace.note_partition(*place)
        pace.transaction_ended(size)
        due, before = pace.switch_due, pace.linger_ms
        pace.switch()
        assert due is (pace.linger_ms != before) and not pace.switch_due
        found.append(pace.linger_ms)
    return found


ONE, OTHER, TWO = [("t", 0)] * 3, [("u", 0)], [("t", 0), ("t", 1)]


def test_the_last_transaction_says_what_suits_the_next() -> None:
    assert waits(AdaptiveLinger(), (LARGE, ONE), (LARGE, OTHER), (LARGE, TWO)) == [
        SINGLE_PARTITION_LINGER_MS,
        SINGLE_PARTITION_LINGER_MS,
        SHARED_LINGER_MS,
    ]
    assert waits(AdaptiveLinger(single_partition=True), (LARGE, [*ONE, *OTHER]), (LARGE, ONE)) == [
        SHARED_LINGER_MS,
        SINGLE_PARTITION_LINGER_MS,
    ]


def test_what_says_little_changes_nothing() -> None:
    """Not a small transaction, nor one of records whose places nobody told."""
    assert waits(AdaptiveLinger(), (SMALL, ONE), (LARGE, [])) == [SHARED_LINGER_MS, SHARED_LINGER_MS]
    assert waits(AdaptiveLinger(single_partition=True), (SMALL, TWO), (LARGE, [])) == [
        SINGLE_PARTITION_LINGER_MS,
        SINGLE_PARTITION_LINGER_MS,
    ]


def test_a_stream_that_goes_to_and_fro_costs_few_clients() -> None:
    found = waits(AdaptiveLinger(), *[(LARGE, ONE), (LARGE, TWO)] * 9)
    assert found[:4] == [SINGLE_PARTITION_LINGER_MS, SHARED_LINGER_MS] * 2 and set(found[4:]) == {SHARED_LINGER_MS}


class Client:
    """A producer's client, which takes so many records and then says that its queue is full, so many times."""

    def __init__(self, settings: Mapping[str, Any], *, room: int = 1 << 30, full: int = 0) -> None:
        self.settings, self.room, self.full = settings, room, full
        self.taken: list[tuple[Any, ...]] = []
        self.calls: list[str] = []

    def produce(self, topic: str, value: Any, key: Any, partition: int, *rest: Any) -> None:
        if value == b"refused":
            raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
        if len(self.taken) >= self.room and self.full:
            self.full -= 1
            raise BufferError
        self.taken.append((topic, key, value, partition, rest[-1]))

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self.calls.append(name)


def clients(monkeypatch: pytest.MonkeyPatch, **more: int) -> list[Client]:
    made: list[Client] = []

    def make(settings: Mapping[str, Any], *_: Any) -> Any:
        made.append(Client(settings, **more))
        return made[-1]

    monkeypatch.setattr(producer_client, "make_producer", make)
    monkeypatch.setattr(sink_writer, "_PAUSE_S", 0)
    return made


RECORD = (b"k", b"v", 0, 0, None, None)


def transaction(writer: TransactionalWriter, *partitions: int) -> None:
    for partition in partitions:
        writer.produce_plain("t", [RECORD], [], partition, 16 << 20)
    # The marker's topic is not one that records wait for.
    writer.produce("ledger", b"m", b"1", 0)
    writer.commit()


def lingers(made: list[Client]) -> list[Any]:
    return [client.settings["linger.ms"] for client in made]


def test_a_new_client_waits_as_suits_the_records_before(monkeypatch: pytest.MonkeyPatch) -> None:
    made = clients(monkeypatch)
    writer = TransactionalWriter({}, "p.0")
    transaction(writer, 7)
    assert writer.renewal_due
    writer.renew()
    transaction(writer, 7, 7)
    assert not writer.renewal_due
    # Smaller batches do not change how long they wait.
    assert writer.shrink_batches() == 100_000
    writer.produce_all("t", [(b"k", b"v", 0, 0, None, 3)], [])
    transaction(writer, 4)
    assert writer.renewal_due
    writer.renew()
    assert lingers(made) == [SHARED_LINGER_MS, SINGLE_PARTITION_LINGER_MS, SINGLE_PARTITION_LINGER_MS, SHARED_LINGER_MS]
    assert [client.settings["batch.size"] for client in made] == [1_000_000] * 2 + [100_000] * 2


def test_a_user_says_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("linger.ms", "queue.buffering.max.ms"):
        made = clients(monkeypatch)
        writer = TransactionalWriter({name: "3"}, "p.0", single_partition=True)
        transaction(writer, 1, 2)
        assert not writer.renewal_due
        assert lingers(made) == ["3"]


@for_each(
    ("settings", "timeout_ms", "linger"),
    [
        ({}, 500, 25),
        ({"delivery.timeout.ms": "1000"}, 600_000, 50),
        ({"message.timeout.ms": 1_000}, 600_000, 50),
        ({"delivery.timeout.ms": "0"}, 600_000, SINGLE_PARTITION_LINGER_MS),
        ({"delivery.timeout.ms": "1000", "linger.ms": "900"}, 600_000, "900"),
        ({"delivery.timeout.ms": "1000", "linger.ms": "1200"}, 600_000, 999),
    ],
)
def test_a_record_that_waited_for_others_has_time_left_to_be_delivered(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], timeout_ms: int, linger: Any
) -> None:
    """With 999 ms of 1,000 a broker that takes 300 ms to answer was too late for a record that no commit followed."""
    made = clients(monkeypatch)
    TransactionalWriter(settings, "p.0", transaction_timeout_ms=timeout_ms, single_partition=True)
    assert lingers(made) == [linger]


@pytest.mark.req("STRM-31")
@pytest.mark.parametrize("way", ["all", "plain"])
def test_records_that_find_no_room_wait_in_their_order(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """Where nothing that waits fills a batch, the client is asked to send what there is."""
    made = clients(monkeypatch, room=2, full=9)
    writer = TransactionalWriter({}, "p.0", single_partition=True)
    own = (None, None, ("own", b"2"), None)
    records = [(b"%d" % n, b"v", 0, 0, header, None) for n, header in enumerate(own)]
    if way == "all":
        writer.produce_all("t", records, [("h", b"1")], 5)
    else:
        writer.produce_plain("t", records, [("h", b"1")], 5, 8)
    assert [headers for *_, headers in made[0].taken] == [[*filter(None, [header]), ("h", b"1")] for header in own]
    assert [taken[:4] for taken in made[0].taken] == [("t", key, value, 5) for key, value, *_ in records]
    assert made[0].calls.count("flush") == 2 and made[0].calls.count("poll") == 9
    assert (writer.records_pending, writer.bytes_pending) == (4, 8)


def test_records_without_their_own_are_served_and_refused_as_others(monkeypatch: pytest.MonkeyPatch) -> None:
    made = clients(monkeypatch)
    writer = TransactionalWriter({}, "p.0")
    writer.produce_plain("t", [], [], 0, 0)
    assert made[0].calls == []
    writer.produce_plain("t", [RECORD], [], 0, 1 << 20)
    writer.produce_plain("t", [RECORD], [], 0, 2)
    assert made[0].calls == ["begin_transaction", "poll"]
    with pytest.raises(RecordTooLargeError, match="larger than Kafka accepts"):
        writer.produce_plain("t", [(b"k", b"refused", 0, 0, None, None)], [], 0, 8)


def test_a_queue_that_stays_full_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    clients(monkeypatch, room=0, full=1 << 30)
    writer = TransactionalWriter({}, "p.0", transaction_timeout_ms=200)
    with pytest.raises(SinkError, match="while writing to t"):
        writer.produce_plain("t", [RECORD], [], 0, 2)


def test_a_drains_writer_asks_for_the_client_that_suits(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, sink = Rig(monkeypatch), SimpleNamespace(renewal_due=False, produce=None)
    made = create_writer(replace(rig.writer.context, sink=sink, renew_producer=lambda _: None))  # type: ignore[arg-type]
    turn = made.committer.renewal
    assert turn is not None and not turn.due()
    sink.renewal_due = True
    assert turn.due()
