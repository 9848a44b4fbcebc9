"""Ledger and schema history on a real Kafka: settings that lose records, and records that are lost already."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, ResourceType
from kit.sql import execute
from pipelinelib.pipeline import Pipeline
from pipelinelib.topics import delete_topics

from airflow_provider_mysql_cdc.cdc.errors import SchemaError, SinkError
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicSpec, ensure_topics, partition_counts


@pytest.fixture
def pipeline(properties: dict[str, str], root: Any, database: str) -> Pipeline:
    made = Pipeline(properties)
    execute(
        root, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, v INT)", f"INSERT INTO `{database}`.t VALUES (1, 0)"
    )
    made.snapshot()
    execute(root, f"INSERT INTO `{database}`.t VALUES (2, 0)")
    return made


def configure(pipeline: Pipeline, topic: str, **settings: str) -> None:
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    admin = make_admin(pipeline.cfg.kafka_settings())
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)


@pytest.mark.req("SCH-06")
def test_a_topic_that_loses_records_stops_every_job_until_it_is_set_right(pipeline: Pipeline) -> None:
    wrong: list[tuple[str, str, str, str]] = [
        (pipeline.cfg.history_topic, "retention_ms", "604800000", "-1"),
        (pipeline.cfg.history_topic, "cleanup_policy", "compact", "delete"),
        (pipeline.cfg.ledger_topic, "cleanup_policy", "delete", "compact"),
    ]
    for topic, name, bad, good in wrong:
        configure(pipeline, topic, **{name: bad})
        for run in (pipeline.drain, lambda: pipeline.snapshot(again=True)):
            with pytest.raises(SinkError, match="would lose records") as caught:
                run()
            assert topic in caught.value.where and f"{name.replace('_', '.')}={bad}" in caught.value.why
        configure(pipeline, topic, **{name: good})
    outcome = pipeline.drain()
    assert outcome is not None and outcome.complete
    topic_warnings = [line for line in pipeline.lines if line.startswith("WARNING: topic ")]
    assert not topic_warnings, "one broker alone can keep nothing twice"


def test_a_history_without_its_beginning_is_named_and_rebuilt(pipeline: Pipeline) -> None:
    topic = pipeline.cfg.history_topic
    admin = make_admin(pipeline.cfg.kafka_settings())
    for future in admin.delete_records([TopicPartition(topic, 0, 1)]).values():
        future.result(30)
    with pytest.raises(SchemaError, match="first records of the schema history were deleted") as caught:
        pipeline.drain()
    assert "recovery" in caught.value.remedy
    before = pipeline.properties["snapshot.mode"] = "recovery"
    assert pipeline.snapshot().complete
    assert before and pipeline.drain() is not None
    assert len(pipeline.records("t")) == 2


@pytest.mark.req("SCH-05")
def test_the_history_has_one_partition(properties: dict[str, str], root: Any, database: str) -> None:
    """Made by a job it has one, whatever other topics have; made by hand with more it is refused before any work."""
    pipeline = Pipeline(properties | {"topic.creation.default.partitions": "3"})
    execute(root, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, v INT)")
    topic, admin = pipeline.cfg.history_topic, make_admin(pipeline.cfg.kafka_settings())
    kept = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
    ensure_topics(admin, {topic: TopicSpec(2, 1, kept)})
    with pytest.raises(SchemaError, match="no single order") as caught:
        pipeline.snapshot()
    assert topic in caught.value.where and "2 partitions" in caught.value.why and pipeline.store.load() is None
    assert "delete the topic" in caught.value.remedy
    delete_topics(pipeline.cfg.kafka_settings(), topic)

    assert pipeline.snapshot().complete
    table = pipeline.table_topic("t")
    assert partition_counts(admin, [topic, table]) == {topic: 1, table: 3}
    for future in admin.create_partitions([NewPartitions(topic, 2)]).values():
        future.result(30)
    execute(root, f"INSERT INTO `{database}`.t VALUES (1, 0)")
    with pytest.raises(SchemaError, match="no single order"):
        pipeline.drain()
    pipeline.properties["snapshot.mode"] = "recovery"
    assert pipeline.snapshot().complete and partition_counts(admin, [topic]) == {topic: 1}
    assert pipeline.drain() is not None and len(pipeline.records("t")) == 1
