"""The DAGs with everything real: MySQL, Kafka, Spark, and Airflow's asset state in its metadata database."""

from __future__ import annotations

import json
import os
import runpy
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow_home import run_dag
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

DAGS = Path(__file__).resolve().parents[2] / "dags"
pytestmark = [pytest.mark.stack, pytest.mark.spark, pytest.mark.usefixtures("metadata_db")]


@pytest.fixture
def prefix(monkeypatch: pytest.MonkeyPatch, properties: dict[str, str], stack: Any) -> str:
    """Define the connections for the test's own database and return its topic.prefix."""
    extra = {n: v for n, v in properties.items() if not n.startswith("database.") or n == "database.include.list"}
    kafka = {"bootstrap.servers": extra.pop("kafka.bootstrap.servers")}
    mysql = {
        "conn_type": "mysql_cdc",
        "host": properties["database.hostname"],
        "port": int(properties["database.port"]),
        "login": properties["database.user"],
        "password": properties["database.password"],
        "extra": {**extra, "kafka_conn_id": "kafka_cdc"},
    }
    for name, value in (
        ("MYSQL_CDC_DEFAULT", mysql),
        ("KAFKA_CDC", {"conn_type": "kafka", "extra": kafka}),
        ("SPARK_CDC", {"conn_type": "spark", "host": "local[2]"}),
    ):
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}", json.dumps(value))
    if java := getattr(stack, "java_home", None) or os.environ.get("JAVA_HOME"):
        monkeypatch.setenv("JAVA_HOME", str(java))
    return properties["topic.prefix"]


def load(name: str) -> DAG:
    """Import a DAG file; its tasks try once."""
    (dag,) = (value for value in runpy.run_path(str(DAGS / f"{name}.py")).values() if isinstance(value, DAG))
    for task in dag.tasks:
        task.retries = 0
    return dag


def trigger(name: str, **form: Any) -> dict[str, Any]:
    """Run a DAG and return the result of each task by its id."""
    run = run_dag(load(name), form)
    assert run.state == "success"
    return {ti.task_id: ti.xcom_pull(task_ids=ti.task_id) for ti in run.get_task_instances()}


def operations(bootstrap: str, topic: str) -> Counter[str]:
    """Count the committed events of a topic by operation; a tombstone counts as ``tombstone``."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: Counter[str] = Counter()
    while (message := consumer.poll(30)) is not None and message.error() is None:
        value = message.value()
        payload = json.loads(value) if value else None
        found[payload.get("payload", payload)["op"] if payload else "tombstone"] += 1
    consumer.close()
    return found


def execute(root: Any, *statements: str) -> None:
    with root.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def forget_asset_state() -> None:
    """Lose what Airflow keeps, as its scheduler does when no DAG references the asset for a minute."""
    from airflow.models.asset_state_store import AssetStateStoreModel
    from airflow.utils.session import create_session

    with create_session() as session:
        assert session.query(AssetStateStoreModel).delete() > 0


def test_snapshot_drain_and_a_lost_offset(root: Any, database: str, prefix: str, stack: Any) -> None:
    """Every row and change arrives once, the offset lives in Airflow, and losing it there repeats nothing."""
    topic = f"{prefix}.{database}.orders"
    execute(
        root,
        f"CREATE TABLE {database}.orders (id INT PRIMARY KEY AUTO_INCREMENT, item VARCHAR(40), amount DECIMAL(9,2))",
        f"INSERT INTO {database}.orders (item, amount) VALUES " + ",".join(f"('item {i}', {i}.25)" for i in range(50)),
    )
    first = trigger("mysql_cdc_pipeline")
    assert first["snapshot"]["complete"] is True
    assert operations(stack.kafka, topic) == {"r": 50}

    execute(
        root,
        f"INSERT INTO {database}.orders (item, amount) SELECT item, amount FROM {database}.orders WHERE id <= 10",
        f"UPDATE {database}.orders SET amount = amount + 1 WHERE id <= 5",
        f"DELETE FROM {database}.orders WHERE id BETWEEN 6 AND 8",
    )
    drained = trigger("mysql_cdc_drain")["drain"]
    changes = {"r": 50, "c": 10, "u": 5, "d": 3, "tombstone": 3}
    assert operations(stack.kafka, topic) == changes
    assert drained["counts"][topic] == 21

    forget_asset_state()
    again = trigger("mysql_cdc_pipeline")
    assert again["snapshot"]["counts"] == {}
    assert operations(stack.kafka, topic) == changes

    execute(root, f"DELETE FROM {database}.orders WHERE id = 1")
    assert run_dag(load("mysql_cdc_reset_offset"), {"offset": "current", "confirm": "another"}).state == "failed"
    moved = trigger("mysql_cdc_reset_offset", offset="current", confirm=prefix)["reset"]
    assert moved["pos"] > again["drain"]["offset"]["pos"] or moved["file"] != again["drain"]["offset"]["file"]
    assert trigger("mysql_cdc_drain")["drain"]["offset"] == moved
    assert operations(stack.kafka, topic) == changes


def test_a_wrong_password_fails_the_task_by_name_without_starting_spark(
    prefix: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    conn = json.loads(os.environ["AIRFLOW_CONN_MYSQL_CDC_DEFAULT"]) | {"password": "wrong"}
    monkeypatch.setenv("AIRFLOW_CONN_MYSQL_CDC_DEFAULT", json.dumps(conn))
    run = run_dag(load("mysql_cdc_snapshot"))
    assert run.state == "failed"
    log = "".join(capfd.readouterr())
    assert "SourceAuthError" in log
    assert "Spark-Submit cmd" not in log
