"""Signals of the Kafka topic and of Airflow: what is taken, from which place on, and what is said of the rest."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.commit.ledger_records import build_ledger_state
from airflow_provider_mysql_cdc.cdc.commit.plan import encode
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, SinkConnectionError
from airflow_provider_mysql_cdc.cdc.signals import kafka_channel
from airflow_provider_mysql_cdc.cdc.signals.kafka_channel import (
    KafkaSignalChannel,
    PollResult,
    record_id,
    signal_from_record,
)
from airflow_provider_mysql_cdc.cdc.signals.signal import ExecuteSnapshot, SignalRefused, read_action
from airflow_provider_mysql_cdc.cdc.sink.clients import plain_producer_settings
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import HiddenByTransaction, TopicRecord

BASE = {
    "topic.prefix": "test_connector",
    "database.hostname": "h",
    "database.user": "u",
    "kafka.bootstrap.servers": "k:1",
    "signal.enabled.channels": "source,kafka",
    "signal.kafka.poll.timeout.ms": "0",
}
TOPIC = "test_connector-signal"


def config(**given: str) -> ConnectorConfig:
    return ConnectorConfig.from_properties(BASE | {name.replace("__", "."): text for name, text in given.items()})


class Topic:
    """The signal topic, as the reader sees it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *values: Any, first: int = 0, id_: str | None = "T1") -> None:
        self.first, self.id, self.there = first, id_, True
        self.records = [self.record(first + n, v) for n, v in enumerate(values)]
        self.error: Exception | None = None
        self.asked = 0
        self.others: list[list[TopicRecord]] = []
        self.admins: list[Any] = []
        monkeypatch.setattr(kafka_channel, "make_admin", lambda s: self.admins.append(s) or object())
        monkeypatch.setattr(kafka_channel, "partition_counts", self.counts)
        monkeypatch.setattr(kafka_channel, "topic_id", lambda a, t: self.id)
        monkeypatch.setattr(kafka_channel, "end_offsets", self.ends)
        monkeypatch.setattr(kafka_channel, "read_between", self.read)

    def id_of(self, offset: int) -> str:
        return kafka_channel.record_id(next(r for r in self.records if r.offset == offset), self.id or "")

    def record(self, offset: int, value: Any, key: bytes | None = b"test_connector", ms: int = 0) -> TopicRecord:
        if isinstance(value, tuple):
            key, value = value
        return TopicRecord(0, offset, key, json.dumps(value).encode() if isinstance(value, dict) else value, ms)

    def add_partition(self, *values: Any, ms: int = 0) -> None:
        """Add a partition; times of its records are 10 ms apart."""
        records = [self.record(n, value, ms=ms + 10 * n) for n, value in enumerate(values)]
        self.others.append([replace(record, partition=len(self.others) + 1) for record in records])

    def counts(self, admin: Any, topics: Any) -> dict[str, int]:
        return {TOPIC: 1 + len(self.others)} if self.there else {}

    def ends(self, admin: Any, topic: str, partitions: Any, *, stable: bool) -> dict[int, tuple[int, int]]:
        self.asked += 1
        assert stable and list(partitions) == list(range(1 + len(self.others)))
        others = {p: (0, len(records)) for p, records in enumerate(self.others, 1)}
        return {0: (self.first, self.first + len(self.records)), **others}

    def read(self, settings: Any, topic: str, bounds: Any, *, timeout_s: float, group: str) -> Iterator[TopicRecord]:
        assert (topic, group) == (TOPIC, "kafka-signal")
        if self.error is not None:
            raise self.error
        for partition, records in enumerate([self.records, *self.others]):
            start, end = bounds[partition]
            yield from [r for r in records if start <= r.offset < end]


def poll(cfg: ConnectorConfig | None = None, place: dict[str, Any] | None = None) -> PollResult:
    ledger = build_ledger_state({} if place is None else {"signal-offset": encode(place)})
    return KafkaSignalChannel(cfg or config()).poll(ledger)


def at(offset: int, id_: str | None = "T1", topic: str = TOPIC, **others: int) -> dict[str, Any]:
    offsets = {"0": offset} | {name.removeprefix("p"): n for name, n in others.items()}
    return {"topic": topic, "topic_id": id_, "offsets": offsets}


LOG = {"type": "log", "data": {"message": "m"}}
EX_15 = {
    "type": "execute-snapshot",
    "data": {"data-collections": ["schema1.table1", "schema1.table2"], "type": "INCREMENTAL"},
}


@pytest.mark.req("EX-15", "INC-41", "INC-42", "INC-46")
def test_a_signal_of_the_topic_has_the_connectors_name_as_key_and_no_id(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic(monkeypatch, LOG, (b"other", EX_15), (None, EX_15), EX_15, b"", None, EX_15 | {"id": "mine"})
    found = poll()
    assert [(key, signal.id) for key, signal in found.signals] == [
        ("signal/kafka/0", topic.id_of(0)), ("signal/kafka/3", topic.id_of(3)), ("signal/kafka/6", "mine"),
    ]  # fmt: skip
    assert read_action(found.signals[1][1], frozenset()) == ExecuteSnapshot(
        topic.id_of(3), "kafka", "incremental", ("schema1.table1", "schema1.table2")
    )
    assert found.new_offset == at(7)
    assert found.log_lines == [f"2 records of the signal topic {TOPIC} are skipped: their key is not test_connector"]
    assert topic.admins and all(settings == {"bootstrap.servers": "k:1"} for settings in topic.admins)


@pytest.mark.req("CFG-96")
def test_signals_come_from_the_topic_that_the_property_names(monkeypatch: pytest.MonkeyPatch) -> None:
    Topic(monkeypatch, LOG)
    monkeypatch.setitem(globals(), "TOPIC", "requests")
    found = poll(config(**{"signal.kafka.topic": "requests"}))
    assert [key for key, _ in found.signals] == ["signal/kafka/0"] and found.new_offset == at(1, topic="requests")


def test_each_poll_begins_where_the_ledger_says(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic(monkeypatch, LOG, LOG, LOG)
    found = poll(place=at(2))
    assert [key for key, _ in found.signals] == ["signal/kafka/2"] and found.new_offset == at(3)
    again = poll(place=found.new_offset)
    assert again.signals == [] and again.new_offset is None and again.log_lines == []
    topic.records.append(topic.record(3, (b"other", LOG)))
    passed = poll(place=found.new_offset)
    assert passed.signals == [] and passed.new_offset == at(4), "what is passed over is not read again"


@pytest.mark.req("INC-46")
def test_an_id_of_a_record_is_that_of_no_record_in_a_topic_created_again(monkeypatch: pytest.MonkeyPatch) -> None:
    record = TopicRecord(0, 7, b"p", b'{"type": "log"}', 1_700_000_000_000)
    assert record_id(record, "T1") == record_id(replace(record, key=b"p"), "T1"), "a poll that is repeated"
    others = [
        record_id(record, "T2"),
        record_id(replace(record, timestamp_ms=1_700_000_000_001), "T1"),
        record_id(replace(record, value=b"{}"), "T1"),
        record_id(replace(record, partition=1), "T1"),
        record_id(replace(record, offset=8), "T1"),
    ]
    assert len({record_id(record, "T1"), *others}) == 6 and all(len(id_) <= 42 for id_ in others)
    topic = Topic(monkeypatch, LOG)
    [(_, before)] = poll().signals
    topic.id = "T2"
    [(_, after)] = poll(place=at(1)).signals
    assert before.id != after.id and before.data == after.data


# -- partitions --------------------------------------------------------------------------------------------------------


def message(text: str) -> dict[str, Any]:
    return {"type": "log", "data": {"message": text}}


def messages(found: PollResult) -> str:
    return "".join(json.loads(signal.data)["message"] for _, signal in found.signals)


def test_signals_of_all_partitions_are_read_in_the_order_of_their_times(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic(monkeypatch)
    topic.records = [topic.record(0, message("c"), ms=30), topic.record(1, message("d"), ms=5)]
    topic.add_partition(message("b"), message("e"), (b"other", LOG), ms=22)
    topic.add_partition(message("a"))
    found = poll()
    assert messages(found) == "abcde", "an earlier time does not change the order of a partition"
    assert [key for key, _ in found.signals][:3] == ["signal/kafka/2-0", "signal/kafka/1-0", "signal/kafka/0"]
    assert [(s.sequence, s.sent_ms) for _, s in found.signals][1:4] == [
        ("kafka/1", 22),
        ("kafka/0", 30),
        ("kafka/0", 5),
    ]
    assert found.new_offset == at(2, p1=3, p2=1)
    again = poll(place=found.new_offset)
    assert again.signals == [] and again.new_offset is None and again.log_lines == []
    ledger = build_ledger_state({"signal-offset": encode(found.new_offset)})
    assert not kafka_channel.has_new_signals(config(), ledger)
    topic.others[1].append(replace(topic.record(1, message("f")), partition=2))
    assert kafka_channel.has_new_signals(config(), ledger)
    assert messages(later := poll(place=found.new_offset)) == "f" and later.new_offset == at(2, p1=3, p2=2)


def test_a_bounded_poll_stores_how_far_each_partition_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic(monkeypatch, message("a"))
    topic.add_partition(message("b"), message("c"), message("d"), ms=1)
    topic.add_partition(message("e"), ms=99)
    monkeypatch.setattr(kafka_channel, "MAX_POLL_RECORDS", 3)
    first = poll()
    assert messages(first) == "abc" and first.new_offset == at(1, p1=2, p2=0)
    assert messages(second := poll(place=first.new_offset)) == "de" and second.new_offset == at(1, p1=3, p2=1)


def test_partitions_that_were_added_are_read_from_their_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic(monkeypatch, LOG)
    topic.add_partition({"type": "pause-snapshot"})
    found = poll(config(**{"signal.consumer.auto.offset.reset": "latest"}), at(1))
    assert [(s.type, s.invalid_reason) for _, s in found.signals] == [("pause-snapshot", "")]
    topic.id = "T2"
    assert len(poll(place=at(1, p1=1)).signals) == 2, "a topic that was created again"


@for_each("reset, place", [("", 0), ("earliest", 0), ("latest", 2), ("END", 2)])
def test_the_first_poll_begins_with_the_topic_or_at_a_configured_offset(
    monkeypatch: pytest.MonkeyPatch, reset: str, place: int
) -> None:
    Topic(monkeypatch, LOG, LOG)
    cfg = config(**{"signal.consumer.auto.offset.reset": reset} if reset else {})
    found = poll(cfg)
    assert len(found.signals) == 2 - place and found.new_offset == at(2)
    other = poll(cfg, at(1, topic="another"))
    assert len(other.signals) == 2 - place, "another topic is begun anew"


def test_a_topic_created_again_is_read_from_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic(monkeypatch, LOG, LOG, id_="T2")
    found = poll(place=at(1))
    assert len(found.signals) == 2 and found.new_offset == at(2, "T2") and "was recreated" in found.log_lines[0]
    topic.id = None  # brokers before Kafka 3.1
    assert poll(place=at(1, None)).new_offset == at(2, None)
    topic.id = "T2"
    assert len(poll(place=at(1, None)).signals) == 1, "an upgrade of the brokers makes nothing anew"


def test_what_was_deleted_unread_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    Topic(monkeypatch, LOG, first=10)
    found = poll(place=at(4))
    assert [key for key, _ in found.signals] == ["signal/kafka/10"] and found.new_offset == at(11)
    assert "the signals from offset 4 on were deleted" in found.log_lines[0]
    assert poll(place=at(50)).new_offset == at(11), "behind the end after an unclean election"


def test_a_poll_reads_a_bounded_part(monkeypatch: pytest.MonkeyPatch) -> None:
    Topic(monkeypatch, *[LOG, (b"other", LOG)] * 5)
    monkeypatch.setattr(kafka_channel, "MAX_POLL_RECORDS", 4)
    first = poll()
    assert [key for key, _ in first.signals] == ["signal/kafka/0", "signal/kafka/2"] and first.new_offset == at(4)
    second = poll(place=first.new_offset)
    assert [key for key, _ in second.signals] == ["signal/kafka/4", "signal/kafka/6"] and second.new_offset == at(8)
    monkeypatch.setattr(kafka_channel, "MAX_POLL_BYTES", 1)
    assert poll().new_offset == at(1)


def test_a_topic_that_cannot_be_read_is_a_line_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic(monkeypatch, LOG)
    topic.error = SinkConnectionError("Kafka is silent", where="k:1")
    found = poll()
    assert (found.signals, found.new_offset) == ([], None)
    assert "cannot be read now: Kafka is silent [k:1]" in found.log_lines[0]
    topic.error = HiddenByTransaction("partition 0: 1 of 2")
    assert "an open transaction hides the rest" in poll().log_lines[0]
    topic.there = False
    missing = poll(place=at(1))
    assert missing.new_offset is None and "(signal.kafka.topic) does not exist" in missing.log_lines[0]


@pytest.mark.req("CFG-98")
def test_a_poll_without_signals_waits_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic(monkeypatch, LOG)
    monkeypatch.setattr(kafka_channel.time, "sleep", lambda s: topic.records.append(topic.record(1, LOG)))
    found = poll(config(**{"signal.kafka.poll.timeout.ms": "60000"}), at(1))
    assert [key for key, _ in found.signals] == ["signal/kafka/1"] and topic.asked == 2


@for_each(
    "value, why",
    [
        (b"{", "value at offset 7 is not JSON"),
        (b"\xff", "value at offset 7 is not JSON"),
        (b"[" * 100_000, "value at offset 7 is not JSON"),
        (b"[]", "value at offset 7 is not a JSON object"),
        (b'{"type": 7}', "type at offset 7 is not a string"),
        (b'{"type": "log", "id": 7}', "id at offset 7 is not a string"),
        (b'{"type": "log", "data": "{}"}', "data at offset 7 is not a JSON object"),
        (b'{"type": "log", "data": {"message": "\\ud800"}}', "not a valid character"),
        (b'{"data": {}}', "the type '' is not known"),
    ],
)
def test_a_malformed_record_is_a_refused_signal(value: bytes, why: str) -> None:
    signal = signal_from_record(TopicRecord(0, 7, b"p", value))
    assert signal.id.startswith("kafka-0-7-") and signal.channel == "kafka"
    with pytest.raises(SignalRefused) as refused:
        read_action(signal, frozenset({"kafka"}))
    assert why in refused.value.reason


# -- from Airflow ----------------------------------------------------------------------------------------------------


def test_a_plain_producer_is_as_safe_as_one_with_transactions() -> None:
    given = {"bootstrap.servers": "k:1", "acks": "all", "linger.ms": "5", "delivery.timeout.ms": "900000"}
    settings = plain_producer_settings(given, 60_000)
    assert settings["acks"] == "all" and settings["enable.idempotence"] is True
    assert not [name for name in settings if name.startswith("transaction")]
    assert settings["delivery.timeout.ms"] == 60_000
    with pytest.raises(ConfigError, match="acks"):
        plain_producer_settings({"acks": "1"}, 60_000)


@pytest.mark.parametrize("place, waits", [(None, True), (1, True), (2, False)])
def test_a_drain_has_something_to_do_when_signals_wait(
    monkeypatch: pytest.MonkeyPatch, place: int | None, waits: bool
) -> None:
    topic = Topic(monkeypatch, LOG, LOG)
    ledger = build_ledger_state({} if place is None else {"signal-offset": encode(at(place))})
    assert kafka_channel.has_new_signals(config(), ledger) is waits
    topic.there = False
    assert not kafka_channel.has_new_signals(config(), ledger)
    topic.there = True
    off = config(**{"signal.enabled.channels": "source"})
    assert not kafka_channel.has_new_signals(off, ledger) and kafka_channel.poll_signals(off, ledger) == PollResult()
    assert len(kafka_channel.poll_signals(config(), ledger).signals) == 2 - (place or 0)
