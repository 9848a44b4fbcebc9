"""The transactional writer on a real Kafka."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from airflow_provider_mysql_cdc.cdc.errors import (
    FencedError,
    RecordTooLargeError,
    SinkConnectionError,
    SinkError,
)
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.record_writer import fence
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord, read_topic_committed
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicSpec, end_offsets, ensure_topics
from airflow_provider_mysql_cdc.cdc.sink.writer import TransactionalWriter

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def settings(stack: Any) -> dict[str, str]:
    return {"bootstrap.servers": stack.kafka}


@pytest.fixture
def topic(settings: dict[str, str], unique: str) -> str:
    """Return a new topic of three partitions; the broker takes records up to 100 000 bytes there."""
    admin = make_admin(settings)
    ensure_topics(admin, {f"{unique}.t": TopicSpec(3, 1, {"max.message.bytes": "100000"})})
    end_offsets(admin, f"{unique}.t", range(3))  # waits until the broker has opened the partitions
    return f"{unique}.t"


def writer(settings: dict[str, str], name: str, **more: Any) -> TransactionalWriter:
    made = TransactionalWriter(settings, name, **more)
    made.init()
    return made


def committed(settings: dict[str, str], topic: str) -> list[TopicRecord]:
    return list(read_topic_committed(settings, topic, timeout_s=20))


def values(settings: dict[str, str], topic: str) -> list[bytes | None]:
    return [record.value for record in committed(settings, topic)]


def test_nothing_is_missing_in_partitions_that_were_just_made(settings: dict[str, str], unique: str) -> None:
    """A batch comes before the broker has opened the partition, and is refused; the one behind it is accepted.

    With several requests under way, one topic in ten lacked records that a commit had confirmed.
    """
    partitions, each = 6, 12
    with writer(settings | {"linger.ms": "0", "batch.num.messages": "1"}, f"{unique}.0") as w:
        for n in range(20):
            ensure_topics(make_admin(settings), {f"{unique}.new{n}": TopicSpec(partitions, 1)})
            for number in range(each):
                for partition in reversed(range(partitions)):
                    w.produce(f"{unique}.new{n}", b"k", str(number).encode(), partition)
            w.commit()
    for n in range(20):
        found = Counter(record.partition for record in committed(settings, f"{unique}.new{n}"))
        assert found == dict.fromkeys(range(partitions), each)


def test_records_and_side_records_become_visible_together(settings: dict[str, str], topic: str, unique: str) -> None:
    with writer(settings, f"{unique}.0") as w:
        w.produce(topic, b"k", b"v1", 1, [("h", b"1"), ("n", None)])
        w.produce(topic, b"k", None, 1)
        w.produce(topic, None, b"no key", 0)
        assert w.bytes_pending == len("kv1" + "k" + "no key")
        consumer = Consumer(settings | {"group.id": unique, "isolation.level": "read_committed"})
        consumer.assign([TopicPartition(topic, p, 0) for p in range(3)])
        assert consumer.poll(1.0) is None
        w.commit([SideRecord(topic, b"marker", b"m")])
        assert w.bytes_pending == 0
        seen = []
        while len(seen) < 4:
            message = consumer.poll(10)
            assert message is not None and message.error() is None
            seen.append((message.partition(), message.key(), message.value(), message.headers()))
        consumer.close()
    expected = [
        (0, None, b"no key", None),
        (0, b"marker", b"m", None),
        (1, b"k", b"v1", [("h", b"1"), ("n", None)]),
        (1, b"k", None, None),
    ]
    assert sorted(seen, key=lambda s: s[0]) == expected
    ours = [(r.partition, r.key, r.value, list(r.headers) or None) for r in committed(settings, topic)]
    assert sorted(ours, key=lambda s: s[0]) == expected


def test_an_aborted_transaction_never_becomes_visible_and_the_writer_goes_on(
    settings: dict[str, str], topic: str, unique: str
) -> None:
    with writer(settings, f"{unique}.0") as w:
        w.produce(topic, b"k", b"thrown away", 0)
        w.abort()
        w.abort()
        w.produce(topic, b"k", b"kept", 0)
        w.commit()
        w.commit()
    assert values(settings, topic) == [b"kept"]


def test_a_newer_attempt_fences_the_older_one(settings: dict[str, str], topic: str, unique: str) -> None:
    old = writer(settings, f"{unique}.0")
    old.produce(topic, b"k", b"of the zombie", 0)
    with writer(settings, f"{unique}.0") as new:
        new.produce(topic, b"k", b"of the retry", 0)
        new.commit()
        with pytest.raises(FencedError) as caught:
            old.commit()
        with pytest.raises(FencedError):
            old.produce(topic, b"k", b"again", 0)
            old.commit()
    old.close()
    assert f"{unique}.0" in caught.value.where
    assert values(settings, topic) == [b"of the retry"]


def test_fence_stops_every_named_writer(settings: dict[str, str], topic: str, unique: str) -> None:
    zombies = [writer(settings, f"{unique}.{n}") for n in range(3)]
    for zombie in zombies:
        zombie.produce(topic, b"k", b"zombie", 0)
    fence(settings, unique, range(2))
    for zombie in zombies[:2]:
        with pytest.raises(FencedError):
            zombie.commit()
    zombies[2].commit()
    for zombie in zombies:
        zombie.close()
    assert values(settings, topic) == [b"zombie"]
    fence(settings, unique, [])


KILLED = """
import sys
from airflow_provider_mysql_cdc.cdc.sink.writer import TransactionalWriter
w = TransactionalWriter({"bootstrap.servers": sys.argv[1], "linger.ms": 0}, sys.argv[3])
w.init()
w.produce(sys.argv[2], b"k", b"committed", 0)
w.commit()
w.produce(sys.argv[2], b"k", b"open when killed", 0)
w._kafka.producer.flush(10)
print("ready", flush=True)
sys.stdin.read()
"""


def test_what_a_killed_process_left_open_is_aborted_by_its_successor(
    settings: dict[str, str], topic: str, unique: str
) -> None:
    command = [sys.executable, "-c", KILLED, settings["bootstrap.servers"], topic, f"{unique}.0"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGKILL)
        process.wait()
    with pytest.raises(SinkConnectionError, match="open transaction"):
        list(read_topic_committed(settings, topic, timeout_s=2))
    fence(settings, unique, [0])
    assert values(settings, topic) == [b"committed"]


def test_a_record_larger_than_the_client_takes_is_refused_at_once(
    settings: dict[str, str], topic: str, unique: str
) -> None:
    with writer(settings | {"message.max.bytes": "5000"}, f"{unique}.0") as w:
        with pytest.raises(RecordTooLargeError) as caught:
            w.produce(topic, b"key", b"x" * 6000, 0)
        with pytest.raises(RecordTooLargeError, match="larger"):
            w.produce_all(topic, [(b"key", b"x" * 6000, 0, 0, None, None)], [])
        assert topic in caught.value.where and "6003 bytes" in caught.value.why and "5000" in caught.value.why
        assert w.shrink_batches() is None
        w.abort()


def test_a_record_larger_than_the_broker_takes_fails_the_commit_and_nothing_is_visible(
    settings: dict[str, str], topic: str, unique: str
) -> None:
    with writer(settings | {"compression.type": "none"}, f"{unique}.0") as w:
        w.produce(topic, b"small", b"x", 1)
        w.produce(topic, b"key", b"x" * 200_000, 0)
        with pytest.raises(RecordTooLargeError) as caught:
            w.commit([SideRecord(topic, b"marker", b"m")])
        assert f"topic {topic}, partition 0, key key" in caught.value.where and "200003 bytes" in caught.value.why
        assert not caught.value.can_retry
    # The failed transaction is aborted, and the next attempt goes on.
    with writer(settings, f"{unique}.0") as w:
        w.produce(topic, b"small", b"next", 1)
        w.commit()
    assert values(settings, topic) == [b"next"]


def test_a_record_that_the_broker_has_refused_is_named_when_the_next_one_is_written(
    settings: dict[str, str], topic: str, unique: str
) -> None:
    """The client refuses every record from then on; its report of the refused one waits to be read."""
    with writer(settings | {"compression.type": "none"}, f"{unique}.0") as w:
        w.produce(topic, b"key", b"x" * 200_000, 0)
        deadline = time.monotonic() + 20
        with pytest.raises(RecordTooLargeError) as caught:
            while time.monotonic() < deadline:
                w.produce(topic, b"next", b"x", 1)
                time.sleep(0.01)
        assert f"topic {topic}, partition 0, key key" in caught.value.where and "200003 bytes" in caught.value.why
        assert caught.value.what.endswith("while writing")


def test_a_batch_that_is_larger_than_the_broker_takes_says_how_to_make_it_smaller(
    settings: dict[str, str], topic: str, unique: str
) -> None:
    def write(more: dict[str, str]) -> None:
        with writer(settings | more, f"{unique}.0") as w:
            for number in range(3_000):
                w.produce(topic, b"%d" % number, b"x" * 100, 0)
            w.commit()

    with pytest.raises(RecordTooLargeError, match=r"set that below max\.message\.bytes") as caught:
        write({})
    assert "kafka.batch.size" in str(caught.value)
    write({"batch.size": "90000"})
    assert len(values(settings, topic)) == 3_000


def test_batches_become_smaller_as_long_as_that_can_help(settings: dict[str, str], topic: str, unique: str) -> None:
    with writer(settings, f"{unique}.0") as w:
        w.produce(topic, b"key", b"x" * 99_500, 0)
        with pytest.raises(RecordTooLargeError):
            w.commit([SideRecord(topic, b"k", b"x" * 2_000)])
        sizes = [w.shrink_batches() for _ in range(3)]
        assert sizes == [100_000, 99_503, None], "a batch of the record's own size holds no other, and more is no help"
    with writer(settings, f"{unique}.0") as w:
        sizes = [w.shrink_batches() for _ in range(5)]
        assert sizes == [100_000, 10_000, 1_000, 100, None]
        w.init()
        for number in range(3_000):
            w.produce(topic, b"%d" % number, b"x" * 100, 0)
        w.commit()
    assert len(values(settings, topic)) == 3_000


@pytest.mark.parametrize("known", [False, True], ids=["asked", "known"])
def test_a_partition_that_does_not_exist_fails_the_transaction(
    settings: dict[str, str], topic: str, unique: str, known: bool
) -> None:
    """The client refuses the record at once where it knows the topic, and otherwise when the brokers have answered."""
    with writer(settings | {"topic.metadata.propagation.max.ms": "500"}, f"{unique}.0") as w:
        if known:
            w.commit([SideRecord(topic, b"k", b"before")])
        w.produce(topic, b"k", b"good", 0)
        with pytest.raises(SinkError, match="does not exist") as caught:
            w.produce(topic, b"k", b"v", 99)
            w.commit()
    assert type(caught.value) is SinkError and f"{topic}, partition 99" in caught.value.where
    assert values(settings, topic) == [b"before"] * known


def test_a_topic_that_does_not_exist_fails_the_transaction(settings: dict[str, str], unique: str) -> None:
    with writer(settings | {"topic.metadata.propagation.max.ms": "500"}, f"{unique}.0") as w:
        w.produce(f"{unique}.missing", b"k", b"v", 0)
        with pytest.raises(SinkError, match="does not exist") as caught:
            w.commit()
    assert f"{unique}.missing" in caught.value.where


def test_unreachable_brokers_are_named_in_time(unique: str) -> None:
    began = time.monotonic()
    dead = {"bootstrap.servers": "127.0.0.1:1"}
    with TransactionalWriter(dead, f"{unique}.0") as w, pytest.raises(SinkConnectionError) as caught:
        w.init(timeout_s=2)
    assert time.monotonic() - began < 8
    assert caught.value.can_retry
    assert "127.0.0.1:1" in caught.value.where and "refused" in caught.value.why


@pytest.mark.req("STRM-31", "FAULT-23")
@pytest.mark.parametrize("at_once", [1, 400])
def test_a_full_queue_holds_the_writer_back(
    settings: dict[str, str], topic: str, unique: str, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    small = {"queue.buffering.max.kbytes": "1024", "queue.buffering.max.messages": "100000", "batch.size": "90000"}
    value = bytes(range(256)) * 20
    most, waits = 0, 0
    with writer(settings | small, f"{unique}.0") as w:
        plain = w._produce_blocking

        def produce_slowly(*args: Any) -> None:
            nonlocal waits
            waits += 1
            plain(*args)

        monkeypatch.setattr(w, "_produce_blocking", produce_slowly)
        for start in range(0, 5_000, at_once):
            keys = range(start, min(start + at_once, 5_000))
            for part in range(3):
                rows = [(b"%d" % n, value, 0, 0, ("n", b"%d" % n), None) for n in keys if n % 3 == part]
                if at_once > 1:
                    w.produce_all(topic, rows, [("h", b"1")], part)
                for key, data, _, _, header, _ in rows if at_once == 1 else ():
                    w.produce(topic, key, data, part, [header, ("h", b"1")])
            most = max(most, len(w._kafka.producer))
        assert w.records_pending == 5_000
        assert w.bytes_pending == 5_000 * len(value) + sum(len(b"%d" % n) for n in range(5_000))
        w.commit()
    assert waits > 0, "the queue was never full"
    assert most <= 2 * 1024 * 1024 / len(value), f"{most} records waited in a queue of a megabyte"
    seen: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for record in read_topic_committed(settings, topic, timeout_s=20):
        assert record.key is not None and record.value == value
        assert list(record.headers) == [("n", record.key), ("h", b"1")]
        seen[record.partition].append(int(record.key))
    assert seen == {p: list(range(p, 5_000, 3)) for p in range(3)}


def test_a_transaction_that_timed_out_is_refused_loudly(settings: dict[str, str], topic: str, unique: str) -> None:
    # The broker looks for expired transactions every ten seconds.
    with writer(settings, f"{unique}.0", transaction_timeout_ms=2000) as w:
        w.produce(topic, b"k", b"too late", 0)
        w._kafka.producer.flush(5)
        deadline = time.monotonic() + 40
        while True:
            try:
                # Hidden until the broker has aborted the transaction.
                assert list(read_topic_committed(settings, topic, timeout_s=1)) == []
                break
            except SinkConnectionError:
                assert time.monotonic() < deadline
        with pytest.raises(SinkError) as caught:
            w.produce(topic, b"k", b"later still", 0)
            w.commit()
    assert caught.value.can_retry
    assert values(settings, topic) == []
