"""Signals that are sent again: corrected under their ids, or in a topic that was created again, on real servers."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from confluent_kafka import Producer
from kit.incremental_rig import FLAT, check_exact, reads
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
