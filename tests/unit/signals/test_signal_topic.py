"""The Kafka signal topic is checked before a run; what is wrong with it is a warning."""

from __future__ import annotations

from typing import Any

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import SinkConnectionError
from airflow_provider_mysql_cdc.cdc.model.finding import Finding
from airflow_provider_mysql_cdc.cdc.operate import check_setup
from airflow_provider_mysql_cdc.cdc.signals import kafka_channel
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicInfo

TOPIC = "shop-signals"


def configured(**more: str) -> ConnectorConfig:
    properties = {
        "database.hostname": "mysql",
        "database.user": "cdc",
        "database.password": "x",
        "topic.prefix": "shop",
        "kafka.bootstrap.servers": "kafka:9092",
        "signal.enabled.channels": "kafka",
        "signal.kafka.topic": TOPIC,
        "signal.kafka.bootstrap.servers": "signals:9092",
        "kafka.sasl.username": "cdc",
    }
    return ConnectorConfig.from_properties(properties | {name.replace("__", "."): text for name, text in more.items()})


def found(
    monkeypatch: pytest.MonkeyPatch, topics: dict[str, TopicInfo], operations: dict[str, frozenset[str]]
) -> list[Finding]:
    monkeypatch.setattr(kafka_channel, "make_admin", lambda settings: settings)
    monkeypatch.setattr(kafka_channel, "describe_topics", lambda *_: topics)
    monkeypatch.setattr(kafka_channel, "allowed_operations", lambda *_: operations)
    return kafka_channel.signal_topic_findings(configured())


READ = {TOPIC: frozenset({"DESCRIBE", "READ"})}


@for_each(
    ("topics", "operations", "what", "fix"),
    [
        ({TOPIC: TopicInfo(1, "id")}, READ, None, ""),
        ({TOPIC: TopicInfo(1, "id")}, {}, None, ""),  # brokers that do not say
        ({}, {}, "does not exist at signals:9092", "create it with one partition"),
        (
            {TOPIC: TopicInfo(1, "id")},
            {TOPIC: frozenset({"DESCRIBE"})},
            f"may not read the signal topic {TOPIC}",
            f"kafka-acls.sh --add --allow-principal User:cdc --operation Read --topic {TOPIC}",
        ),
        ({TOPIC: TopicInfo(3, "id")}, READ, "has 3 partitions", "one partition"),
    ],
)
def test_what_keeps_signals_from_being_read_is_a_warning(
    monkeypatch: pytest.MonkeyPatch,
    topics: dict[str, TopicInfo],
    operations: dict[str, frozenset[str]],
    what: str | None,
    fix: str,
) -> None:
    findings = found(monkeypatch, topics, operations)
    assert [what is not None and what in finding.what for finding in findings] == [True] * (what is not None)
    assert all(finding.level == "warning" and fix in finding.fix and finding.error is None for finding in findings)


def test_a_cluster_of_signals_that_cannot_be_reached_keeps_no_job_from_running(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise SinkConnectionError("Kafka cannot be reached", where="signals:9092", why="nobody answers")

    monkeypatch.setattr(kafka_channel, "make_admin", lambda settings: settings)
    monkeypatch.setattr(kafka_channel, "describe_topics", refuse)
    (warning,) = kafka_channel.signal_topic_findings(configured())
    assert warning.error is None and "Kafka cannot be reached" in warning.what and warning.fix


def test_it_is_checked_only_where_signals_come_from_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = configured(signal__enabled__channels="source")
    assert kafka_channel.signal_topic_findings(silent) == [] and list(check_setup._check_signal_topic(silent)) == []
    monkeypatch.setattr(check_setup, "signal_topic_findings", lambda cfg: [])
    (report,) = check_setup._check_signal_topic(configured())
    assert report.ok and list(report.lines()) == [f"Kafka signals: topic {TOPIC} can be read."]
