"""Connections to the stack, and what stands there, for tests of whole DAGs."""

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

DAGS = Path(__file__).resolve().parents[2] / "airflow_provider_mysql_cdc" / "example_dags"


def define_connections(monkeypatch: pytest.MonkeyPatch, properties: dict[str, str], stack: Any) -> None:
    """Define the connections that the DAGs expect, for connector properties."""
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


def files_with(text: str, folder: Path) -> list[Path]:
    """Return the files below a folder that hold a text, databases among them.

    Args:
        text: The text.
        folder: The folder.
    """
    return [path for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


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
    """Run statements."""
    with root.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
