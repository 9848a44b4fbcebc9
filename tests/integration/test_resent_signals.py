"""Signals that are sent again: corrected under their ids, or in a topic that was created again, on real servers."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from confluent_kafka import Producer
from kit.incremental_rig import FLAT, books, check_exact, reads
from kit.records import payload
from kit.sql import execute
from kit.table_rig import filled
from kit.window_rig import SIGNALS
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicSpec, ensure_topics, partition_counts


@pytest.fixture
def pipeline(properties: dict[str, str], root: Any, database: str) -> Pipeline:
    """Return a stream of a table ``a`` of 40 rows with a signal table, after its first snapshot."""
    made = Pipeline(
        properties
        | FLAT
        | {
            "table.include.list": f"{database}.a",
            "signal.data.collection": f"{database}.signals",
            "notification.enabled.channels": "sink",
            "notification.sink.topic.name": f"{properties['topic.prefix']}.notes",
        },
        slots=1,
    )
    execute(root, *filled(database, "a", count=40), SIGNALS.format(database))
    execute(root, f"ALTER TABLE `{database}`.signals DROP PRIMARY KEY")
    execute(root, f"GRANT INSERT, DELETE ON `{database}`.signals TO {properties['database.user']}")
    made.snapshot()
    return made


def ask(database: str, condition: str, table: str = "a") -> str:
    conditions = [{"data-collection": f"{database}.{table}", "filter": condition}]
    return json.dumps({"data-collections": [f"{database}.{table}"], "additional-conditions": conditions})


def send(pipeline: Pipeline, root: Any, database: str, texts: dict[str, str]) -> None:
    """Insert a row for each signal, and drain."""
    with root.cursor() as cursor:
        sql = f"INSERT INTO `{database}`.signals VALUES (%s, 'execute-snapshot', %s)"
        cursor.executemany(sql, list(texts.items()))
    pipeline.drain()


def failed(pipeline: Pipeline) -> dict[str, int]:
    """Return how many notifications tell of each id that its signal was refused, or its table could not be read."""
    values = [payload(r.value) for r in pipeline.read(pipeline.properties["notification.sink.topic.name"])]
    found: dict[str, int] = {}
    for value in values:
        if value["type"] == "ABORTED" or value["additional_data"].get("status") in ("SQL_EXCEPTION", "UNKNOWN_SCHEMA"):
            found[value["id"]] = found.get(value["id"], 0) + 1
    return found


@pytest.mark.exhaustive
@pytest.mark.req("INC-29")
def test_corrected_signals_are_carried_out_and_copies_are_reported_once(
    pipeline: Pipeline, root: Any, database: str
) -> None:
    wrong = {
        "json": ask(database, "id < 10")[:-1],
        "table": ask(database, "id < 10", "b"),
        "condition": ask(database, "id < 10) OR (1 = 1"),
        "column": ask(database, "number < 10"),
    }
    send(pipeline, root, database, wrong)
    assert failed(pipeline) == dict.fromkeys(wrong, 1) and reads(pipeline, "a") == {}
    send(pipeline, root, database, wrong)
    assert failed(pipeline) == dict.fromkeys(wrong, 1), "a copy is not reported again"
    send(pipeline, root, database, dict.fromkeys(wrong, ask(database, "id < 10")))
    assert {name: r.verdict for name, r in books(pipeline).requests.items()} == dict.fromkeys(wrong, "accepted")
    assert [scan.state for scan in books(pipeline).scans.values()] == ["done"] * 4
    assert set(reads(pipeline, "a").values()) == {4} and len(reads(pipeline, "a")) == 10
    check_exact(pipeline, root, "a")


@pytest.mark.req("INC-40", "INC-46")
def test_a_signal_in_a_topic_created_again_is_not_the_one_that_had_its_offset(
    pipeline: Pipeline, root: Any, database: str, stack: Any
) -> None:
    pipeline.properties["signal.enabled.channels"] = "source,kafka"
    admin, topic = make_admin(pipeline.cfg.kafka_settings()), pipeline.cfg.topic_prefix + "-signal"
    value = json.dumps({"type": "execute-snapshot", "data": {"data-collections": [f"{database}.a"]}})
    for times in (1, 2):
        ensure_topics(admin, {topic: TopicSpec(1, 1)})
        producer = Producer({"bootstrap.servers": stack.kafka})
        producer.produce(topic, value, pipeline.cfg.topic_prefix, 0)
        assert producer.flush(30) == 0
        pipeline.drain()
        assert set(reads(pipeline, "a").values()) == {times}, pipeline.lines[-5:]
        admin.delete_topics([topic])[topic].result(30)
        while topic in partition_counts(admin, [topic]):
            time.sleep(0.05)
    check_exact(pipeline, root, "a")


@pytest.mark.req("INC-40")
def test_signals_of_every_partition_are_carried_out(pipeline: Pipeline, root: Any, database: str, stack: Any) -> None:
    pipeline.properties["signal.enabled.channels"] = "source,kafka"
    topic = pipeline.cfg.topic_prefix + "-signal"
    ensure_topics(make_admin(pipeline.cfg.kafka_settings()), {topic: TopicSpec(3, 1)})
    producer = Producer({"bootstrap.servers": stack.kafka})

    def produce(type_: str, partition: int, **data: Any) -> None:
        producer.produce(topic, json.dumps({"type": type_, "data": data}), pipeline.cfg.topic_prefix, partition)
        assert producer.flush(30) == 0
        time.sleep(0.01)

    for partition in (2, 0, 1):
        produce("log", partition, message=f"from partition {partition}")
    produce("execute-snapshot", 2, **{"data-collections": [f"{database}.a"]})
    pipeline.drain()
    assert [line for line in pipeline.lines if line.startswith("from")] == [f"from partition {p}" for p in (2, 0, 1)]
    assert set(reads(pipeline, "a").values()) == {1}
    produce("log", 1, message="from partition 1 again")
    pipeline.drain()
    assert len([line for line in pipeline.lines if line.startswith("from")]) == 4 and pipeline.drain() is None
    check_exact(pipeline, root, "a")


@pytest.mark.exhaustive
@pytest.mark.req("INC-28")
def test_a_stop_in_kafka_ends_the_snapshots_that_were_requested_before_it_only(
    pipeline: Pipeline, root: Any, database: str, stack: Any
) -> None:
    topic = pipeline.cfg.topic_prefix + "-signal"
    ensure_topics(make_admin(pipeline.cfg.kafka_settings()), {topic: TopicSpec(1, 1)})
    producer = Producer({"bootstrap.servers": stack.kafka})

    def stop() -> None:
        producer.produce(topic, '{"type": "stop-snapshot", "data": {}}', pipeline.cfg.topic_prefix, 0)
        assert producer.flush(30) == 0

    def insert(*signals: tuple[str, str]) -> None:
        data = json.dumps({"data-collections": [f"{database}.a"]})
        with root.cursor() as cursor:
            sql = f"INSERT INTO `{database}`.signals VALUES (%s, %s, %s)"
            cursor.executemany(sql, [(*signal, data) for signal in signals])

    def drain(channels: str) -> None:
        pipeline.properties["signal.enabled.channels"] = channels
        pipeline.drain()

    stop()
    time.sleep(0.01)
    insert(("later", "execute-snapshot"), ("p1", "pause-snapshot"))
    drain("source")  # the topic is read later than the table
    drain("source,kafka")
    assert [scan.state for scan in books(pipeline).active_scans] == ["waiting"], pipeline.lines[-3:]
    assert any("continue, because it is not certain" in line for line in pipeline.lines)
    insert(("r1", "resume-snapshot"))
    drain("source,kafka")
    assert set(reads(pipeline, "a").values()) == {1} and len(reads(pipeline, "a")) == 40
    insert(("earlier", "execute-snapshot"), ("p2", "pause-snapshot"))
    drain("source,kafka")
    time.sleep(0.01)
    stop()
    drain("source,kafka")
    assert [scan.state for _, scan in sorted(books(pipeline).scans.items())] == ["done", "aborted"]
    check_exact(pipeline, root, "a")
