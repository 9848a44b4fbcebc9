"""What preflight says of Kafka and registry before a job: topics, replicas, transactions, retention; its command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kit.private_kafka import PrivateKafka
from kit.sql import execute
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.operate.check_setup import SystemReport, check_setup
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicSpec, ensure_topics
from airflow_provider_mysql_cdc.commands.program import main

SHORT = {"transaction.timeout.ms": "30000", "snapshot.locking.mode": "none"}


@pytest.fixture
def kafka(private_kafka: PrivateKafka) -> PrivateKafka:
    """Return a broker that takes transactions of 30 s at most."""
    return private_kafka


@pytest.fixture
def stream(properties: dict[str, str], kafka: PrivateKafka, root: Any, database: str) -> dict[str, str]:
    """Return the properties of a stream of one table to this broker."""
    execute(root, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY)", f"INSERT INTO `{database}`.t VALUES (1)")
    return properties | {"kafka.bootstrap.servers": kafka.address("PLAINTEXT")} | SHORT


def kafka_report(properties: dict[str, str]) -> SystemReport:
    """Return what is said of Kafka."""
    return next(r for r in check_setup(ConnectorConfig.from_properties(properties)) if r.system == "Kafka")


def errors(report: SystemReport) -> list[str]:
    return [str(finding.error) for finding in report.findings if finding.error is not None]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"transaction.timeout.ms": "600000"}, "Kafka refuses the transaction timeout"),
        ({"topic.creation.default.replication.factor": "3"}, "Kafka refuses the replication factor"),
        ({"topic.creation.default.min.insync.replicas": "2"}, "no record can be written to a topic"),
        ({"topic.creation.default.retention.ms": "soon"}, "Kafka refuses a topic setting"),
    ],
)
def test_what_kafka_would_refuse_is_found_before_the_job(
    stream: dict[str, str], change: dict[str, str], text: str
) -> None:
    found = errors(kafka_report(stream | change))
    assert found and all(text in line for line in found), found


def test_the_topics_that_exist_are_checked(stream: dict[str, str], kafka: PrivateKafka, database: str) -> None:
    prefix = stream["topic.prefix"]
    specs = {
        f"{prefix}.{database}.t": TopicSpec(1, 1, {"min.insync.replicas": "2", "retention.ms": "3600000"}),
        f"ledger.{prefix}": TopicSpec(1, 1, {"cleanup.policy": "delete"}),
        f"schemahistory.{prefix}": TopicSpec(1, 1, {"retention.ms": "3600000"}),
    }
    ensure_topics(make_admin(kafka.settings("PLAINTEXT")), specs)
    report = kafka_report(stream)
    found = errors(report)
    assert len(found) == 3
    for text in ("no record can be written", "the ledger topic would lose", "the schema history topic would lose"):
        assert any(text in line for line in found), text
    warned = [str(finding) for finding in report.findings if finding.error is None]
    assert len(warned) == 1 and f"{database}.t keeps its records for 3600 s (retention.ms)" in warned[0]


def test_each_job_logs_once_what_is_unwise_in_its_topics(
    stream: dict[str, str], kafka: PrivateKafka, root: Any, database: str
) -> None:
    topic = f"{stream['topic.prefix']}.{database}.t"
    admin = make_admin(kafka.settings("PLAINTEXT"))
    ensure_topics(admin, {topic: TopicSpec(1, 1, {"retention.ms": "3600000"})})
    pipeline = Pipeline(stream)
    text = f"WARNING: topic {topic} keeps its records for 3600 s (retention.ms)"
    assert pipeline.snapshot().complete
    assert [line.startswith(text) for line in pipeline.lines].count(True) == 1
    execute(root, f"INSERT INTO `{database}`.t VALUES (2)")
    pipeline.lines.clear()
    assert pipeline.drain() is not None
    assert [line.startswith(text) for line in pipeline.lines].count(True) == 1


def test_a_broker_that_refuses_the_login_is_named_and_the_rest_is_checked(
    stream: dict[str, str], kafka: PrivateKafka
) -> None:
    wrong = kafka.settings("SASL_SSL", sasl_password="not-this-one")
    reports = check_setup(
        ConnectorConfig.from_properties(stream | {f"kafka.{name}": value for name, value in wrong.items()})
    )
    assert [(report.system, report.ok) for report in reports] == [("MySQL", True), ("Kafka", False)]
    assert "Kafka refuses the account or its password" in "\n".join(reports[1].lines())
    assert "not-this-one" not in "\n".join(reports[1].lines())


def test_the_command_prints_everything_and_its_exit_code_says_whether_a_job_would_run(
    stream: dict[str, str], database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(**change: str) -> tuple[int, str]:
        path = tmp_path / "stream.json"
        path.write_text(json.dumps(stream | {name.replace("__", "."): value for name, value in change.items()}))
        code = main(["preflight", "--properties", str(path)])
        return code, capsys.readouterr().out

    code, printed = run()
    assert code == 0, printed
    assert "MySQL: reachable at" in printed and "Kafka: reachable" in printed
    code, printed = run(
        table__include__list=f"{database}.nothing",
        transaction__timeout__ms="600000",
        key__converter="io.confluent.connect.avro.AvroConverter",
        key__converter__schema__registry__url="http://127.0.0.1:1",
        key__converter__max__retries="0",
    )
    assert code == 1
    lines = printed.splitlines()
    for start, text in (
        ("MySQL: error: ", "no table is captured"),
        ("MySQL: warning: ", f"entries of table.include.list match no table: {database}.nothing"),
        ("Kafka: error: ", "Kafka refuses the transaction timeout"),
        ("Schema registry: error: ", "the schema registry cannot be reached"),
    ):
        assert any(line.startswith(start) and text in line for line in lines), (start, text, printed)
    assert stream["database.password"] not in printed


def test_the_topic_of_signals_is_checked(stream: dict[str, str], kafka: PrivateKafka) -> None:
    topic = f"{stream['topic.prefix']}-signals"
    properties = stream | {"signal.enabled.channels": "kafka", "signal.kafka.topic": topic}

    def report() -> SystemReport:
        return next(r for r in check_setup(ConnectorConfig.from_properties(properties)) if r.system == "Kafka signals")

    assert ["does not exist" in finding.what for finding in report().findings] == [True] and report().ok
    admin = make_admin(kafka.settings("PLAINTEXT"))
    ensure_topics(admin, {topic: TopicSpec(1, 1)})
    assert list(report().lines()) == [f"Kafka signals: topic {topic} can be read."]
    properties["signal.kafka.topic"] = f"{topic}-3"
    ensure_topics(admin, {f"{topic}-3": TopicSpec(3, 1)})
    assert ["has 3 partitions" in finding.what for finding in report().findings] == [True]
