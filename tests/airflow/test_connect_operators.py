"""The operators over a Spark Connect server: no spark-submit, no Java; with the task in the worker, and deferred."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow_home import run_dag
from kit.connect_server import RunningServer
from kit.sql import execute
from real_servers import define_connections, files_with, operations, trigger

from airflow_provider_mysql_cdc.operators.drain import MySqlCdcDrainOperator

pytestmark = [pytest.mark.stack, pytest.mark.spark, pytest.mark.usefixtures("metadata_db")]


@pytest.fixture
def connections(
    properties: dict[str, str], monkeypatch: pytest.MonkeyPatch, stack: Any, connect_server: RunningServer
) -> dict[str, Any]:
    """Define the connections; Spark's is Airflow's own type, and neither Spark nor Java can be found."""
    define_connections(monkeypatch, properties | {"snapshot.parallelism": "2"}, stack)
    connection = {
        "conn_type": "spark_connect",
        "host": "localhost",
        "port": connect_server.port,
        "login": "cdc",
        "password": connect_server.token,
        "extra": {"use_ssl": False},
    }
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_CDC", json.dumps(connection))
    monkeypatch.setenv("JAVA_HOME", "/no/java")
    monkeypatch.setenv("SPARK_HOME", "/no/spark")
    return connection


def drain(dag_id: str, **arguments: Any) -> Any:
    with DAG(dag_id, schedule=None) as dag:
        MySqlCdcDrainOperator(task_id="drain", retries=0, **arguments)
    return run_dag(dag)


def test_snapshot_and_drains_attached_and_deferred(
    connections: dict[str, Any],
    connect_server: RunningServer,
    properties: dict[str, str],
    root: Any,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    topic = f"{properties['topic.prefix']}.{database}.t"
    execute(
        root,
        f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, v INT)",
        f"INSERT INTO `{database}`.t VALUES (1, 1), (2, 2)",
    )
    assert trigger("mysql_cdc_snapshot")["snapshot"]["complete"] is True
    execute(root, f"UPDATE `{database}`.t SET v = 3 WHERE id = 1")
    assert trigger("mysql_cdc_drain")["drain"]["complete"] is True

    # A connection of type spark whose host is the server; the driver works without its task.
    execute(root, f"DELETE FROM `{database}`.t WHERE id = 2")
    as_spark = {**connections, "conn_type": "spark", "host": "sc://localhost"}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_CDC", json.dumps(as_spark))
    run = drain("deferred_over_connect", deferrable=True, poll_interval=0.5, run_for=2)
    assert run.state == "success"
    assert run.get_task_instances()[0].xcom_pull(task_ids="drain")["counts"] == {topic: 2}
    bootstrap = properties["kafka.bootstrap.servers"]
    assert operations(bootstrap, topic) == {"r": 2, "u": 1, "d": 1, "tombstone": 1}

    output = "".join(capfd.readouterr())
    assert "The task is deferred until it has ended" in output
    assert f"Spark Connect server {connect_server.host_and_port}" in output
    for secret in (connect_server.token, properties["database.password"]):
        assert secret not in output
        assert files_with(secret, Path(os.environ["AIRFLOW_HOME"])) == []
    assert connect_server.secrets_left(connect_server.token, properties["database.password"]) == []


def test_what_a_running_server_cannot_do_is_refused_before_anything_is_planned(
    connections: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert drain("memory_over_connect", executor_memory="2g", num_executors=3).state == "failed"
    assert "arguments of the task have no effect on a Spark Connect server" in "".join(capfd.readouterr())
    assert drain("token_in_master", master="sc://127.0.0.1:1/;token=x").state == "failed"
    assert "master has parameters, which Airflow shows" in "".join(capfd.readouterr())
