"""Topics on a real Kafka."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from airflow_provider_mysql_cdc.cdc.errors import CdcError, SinkError
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import read_topic_committed
from airflow_provider_mysql_cdc.cdc.sink.topics import (
    TopicSpec,
    all_partition_counts,
    end_offsets,
    ensure_topics,
    partition_counts,
    topic_config,
)
from airflow_provider_mysql_cdc.cdc.sink.writer import TransactionalWriter


@pytest.fixture
def settings(stack: Any) -> dict[str, str]:
    return {"bootstrap.servers": stack.kafka}


@pytest.mark.req("TOPIC-11")
def test_missing_topics_are_created_as_asked_and_existing_ones_left_alone(
    settings: dict[str, str], unique: str
) -> None:
    admin = make_admin(settings)
    a, b = f"{unique}.a", f"{unique}.b"
    assert ensure_topics(admin, {a: TopicSpec(3, 1, {"cleanup.policy": "compact"})}) == (a,)
    assert ensure_topics(admin, {a: TopicSpec(9, 1), b: TopicSpec(-1, -1)}) == (b,)
    assert partition_counts(admin, [a, b, f"{unique}.none"]) == {a: 3, b: 1}
    assert all_partition_counts(admin)[a] == 3
    config = topic_config(admin, a)
    assert config is not None and config["cleanup.policy"] == "compact"
    assert ensure_topics(admin, {a: TopicSpec(3, 1)}) == ()


def test_a_topic_deleted_between_two_questions_is_named(settings: dict[str, str], unique: str) -> None:
    with pytest.raises(SinkError, match="deleted while") as caught:
        topic_config(make_admin(settings), f"{unique}.gone")
    assert type(caught.value) is SinkError and unique in caught.value.where and caught.value.can_retry


def test_several_may_create_the_same_topics_at_once(settings: dict[str, str], unique: str) -> None:
    specs = {f"{unique}.{n}": TopicSpec(2, 1) for n in range(4)}
    barrier, created, errors = threading.Barrier(3), [], []

    def run() -> None:
        barrier.wait()
        try:
            created.extend(ensure_topics(make_admin(settings), specs))
        except CdcError as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert sorted(created) == sorted(specs)


@pytest.mark.parametrize(
    ("name", "spec", "what"),
    [
        ("t", TopicSpec(1, 3), "replication factor"),
        ("t", TopicSpec(0, 1), "number of partitions"),
        ("t", TopicSpec(1, 1, {"cleanup.policy": "shred"}), "topic setting"),
        ("bad name/", TopicSpec(1, 1), "name"),
    ],
)
def test_a_topic_that_cannot_be_created_is_named_with_the_property_to_correct(
    settings: dict[str, str], unique: str, name: str, spec: TopicSpec, what: str
) -> None:
    with pytest.raises(SinkError, match=what) as caught:
        ensure_topics(make_admin(settings), {f"{unique}.{name}": spec})
    assert f"{unique}.{name}" in caught.value.where
    assert "topic." in caught.value.remedy


def test_reading_returns_all_partitions_in_order_without_what_was_aborted(
    settings: dict[str, str], unique: str
) -> None:
    admin = make_admin(settings)
    ensure_topics(admin, {unique: TopicSpec(3, 1)})
    assert list(read_topic_committed(settings, unique)) == []
    with TransactionalWriter(settings, f"{unique}.0") as w:
        w.init()
        for n in range(300):
            w.produce(unique, b"%d" % n, b"v", n % 2)
        w.commit()
        w.produce(unique, b"aborted", b"v", 0)
        w.abort()
    seen: dict[int, list[int]] = {0: [], 1: []}
    for record in read_topic_committed(settings, unique, admin=admin):
        seen[record.partition].append(int(record.key or b""))
        assert record.timestamp_ms > 0
    assert seen == {0: list(range(0, 300, 2)), 1: list(range(1, 300, 2))}
    assert end_offsets(admin, unique, [2]) == {2: (0, 0)}


def test_reading_a_topic_that_does_not_exist_is_named(settings: dict[str, str], unique: str) -> None:
    with pytest.raises(SinkError, match="does not exist"):
        list(read_topic_committed(settings, unique))
