"""The operators over a Spark Connect server: no spark-submit, no Java; with the task in the worker, and deferred."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow_home import run_dag
from kit.connect_server import RunningServer
from kit.sql import execute, rows
from pipelinelib.topics import READER
from real_servers import define_connections, files_with, load, operations, trigger

from airflow_provider_mysql_cdc.operators.drain import MySqlCdcDrainOperator
from airflow_provider_mysql_cdc.operators.fleet import MySqlCdcFleetDrainOperator

pytestmark = [pytest.mark.stack, pytest.mark.spark, pytest.mark.usefixtures("metadata_db"), pytest.mark.days("odd")]


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


def topic_rows(kafka: str, topic: str) -> dict[int, int]:
    """Return what the topic says of each key at its end."""
    found: dict[int, int] = {}
    for record in READER.read({"bootstrap.servers": kafka}, topic):
        if record.value is not None:
            key, after = json.loads(record.key)["id"], json.loads(record.value)["after"]
            found.pop(key, None)
            found |= {} if after is None else {key: after["v"]}
    return found


@pytest.mark.usefixtures("connections")
def test_tables_are_read_again_and_repaired(
    properties: dict[str, str], root: Any, database: str, stack: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ad-hoc snapshot that holds the stream, a backfill in windows, a reset that skips a change, and its repair."""
    table, prefix = f"{database}.t", properties["topic.prefix"]
    plain(monkeypatch)
    values = ",".join(f"({i}, {i}, '2026-11-{1 + i % 3:02} 05:00')" for i in range(30))
    execute(
        root,
        f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT, updated_at TIMESTAMP)",
        f"INSERT INTO {table} VALUES {values}",
    )
    trigger("mysql_cdc_snapshot")
    execute(root, f"UPDATE {table} SET v = -v WHERE id < 5", f"DELETE FROM {table} WHERE id = 29")
    adhoc = trigger("mysql_cdc_adhoc_snapshot", tables=[table], condition="id < 2", kind="blocking")
    assert adhoc["snapshot"]["rows"] == {table: 2}
    form = {"tables": [table], "column": "updated_at"}
    assert run_dag(load("mysql_cdc_backfill"), form, logical_date=datetime(2026, 11, 3, tzinfo=UTC)).state == "success"
    assert operations(stack.kafka, f"{prefix}.{table}")["r"] > 30 + 2

    execute(root, f"UPDATE {table} SET v = 1000 WHERE id = 3")
    trigger("mysql_cdc_reset_offset", offset="current", confirm=prefix)
    repaired = trigger("mysql_cdc_verify", repair="yes")["verify"]["verification"]
    assert repaired["repaired"] == {"differing": 1}
    assert topic_rows(stack.kafka, f"{prefix}.{table}") == dict(rows(root, f"SELECT id, v FROM {table}"))


@pytest.mark.usefixtures("connections")
def test_the_runs_of_a_fleet_share_a_session(
    properties: dict[str, str],
    root: Any,
    database: str,
    stack: Any,
    monkeypatch: pytest.MonkeyPatch,
    connect_server: RunningServer,
) -> None:
    """The second run has another set of streams, as one has no changes; the server starts no further daemon for it."""
    plain(monkeypatch)
    conn_ids, prefix = [f"fleet_{number}" for number in range(3)], properties["topic.prefix"]
    stream = json.loads(os.environ["AIRFLOW_CONN_MYSQL_CDC_DEFAULT"])
    for conn_id in conn_ids:
        execute(
            root,
            f"CREATE DATABASE {database}_{conn_id}",
            f"CREATE TABLE {database}_{conn_id}.t (id INT PRIMARY KEY, v INT)",
            f"INSERT INTO {database}_{conn_id}.t VALUES (1, 1), (2, 2)",
        )
        extra = {"topic.prefix": f"{prefix}_{conn_id}", "database.include.list": f"{database}_{conn_id}"}
        more = {**stream["extra"], **extra, "snapshot.mode": "never"}
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps({**stream, "extra": more}))
    daemons = []
    try:
        for deferrable in (False, True):
            with DAG("fleet_over_connect", schedule=None) as dag:
                MySqlCdcFleetDrainOperator(
                    task_id="drain",
                    mysql_cdc_conn_ids=conn_ids,
                    retries=0,
                    **({"deferrable": True, "poll_interval": 0.5} if deferrable else {}),
                )
            assert run_dag(dag).state == "success"
            daemons.append(connect_server.daemons())
            for conn_id in conn_ids:
                found = topic_rows(stack.kafka, f"{prefix}_{conn_id}.{database}_{conn_id}.t")
                assert found == dict(rows(root, f"SELECT id, v FROM {database}_{conn_id}.t"))
                if conn_id != conn_ids[0]:
                    execute(root, f"UPDATE {database}_{conn_id}.t SET v = 7 WHERE id = 1")
    finally:
        for conn_id in conn_ids:
            execute(root, f"DROP DATABASE IF EXISTS {database}_{conn_id}")
    assert daemons[0] and daemons[0] >= daemons[1]


def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the stream write events without their schemas, and read tables without a signal table."""
    stream = json.loads(os.environ["AIRFLOW_CONN_MYSQL_CDC_DEFAULT"])
    stream["extra"] |= {
        "value.converter.schemas.enable": "false",
        "key.converter.schemas.enable": "false",
        "read.only": "true",
    }
    monkeypatch.setenv("AIRFLOW_CONN_MYSQL_CDC_DEFAULT", json.dumps(stream))


def test_what_a_running_server_cannot_do_is_refused_before_anything_is_planned(
    connections: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert drain("memory_over_connect", executor_memory="2g", num_executors=3).state == "failed"
    assert "arguments of the task have no effect on a Spark Connect server" in "".join(capfd.readouterr())
    assert drain("token_in_master", master="sc://127.0.0.1:1/;token=x").state == "failed"
    assert "master has parameters, which Airflow shows" in "".join(capfd.readouterr())
