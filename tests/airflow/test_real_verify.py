"""The DAG that compares tables with their topics, with everything real: MySQL, Kafka, Spark and Airflow."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from airflow_home import run_dag
from confluent_kafka import Producer
from real_servers import define_connections, execute, files_with, load, operations, trigger

pytestmark = [
    pytest.mark.stack,
    pytest.mark.spark,
    pytest.mark.exhaustive,
    pytest.mark.usefixtures("metadata_db"),
]
SECRET = "s3cret-0f-a-row"


@pytest.fixture
def prefix(monkeypatch: pytest.MonkeyPatch, properties: dict[str, str], database: str, stack: Any) -> str:
    """Define the connections for the test's own database and return its topic.prefix."""
    masked = {"column.mask.with.6.chars": f"{database}.orders.secret", "key.converter.schemas.enable": "false"}
    define_connections(monkeypatch, properties | masked | {"value.converter.schemas.enable": "false"}, stack)
    return properties["topic.prefix"]


@pytest.mark.timeout(1800)
def test_a_stream_verifies_clean_and_damage_is_reported_and_repaired(
    root: Any, database: str, prefix: str, stack: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    table = f"{database}.orders"
    topic = f"{prefix}.{table}"
    execute(
        root,
        f"CREATE TABLE {table} (id INT PRIMARY KEY, item VARCHAR(40), secret VARCHAR(40))",
        f"INSERT INTO {table} VALUES " + ",".join(f"({i}, 'item {i}', '{SECRET}')" for i in range(20)),
    )
    refused = run_dag(load("mysql_cdc_verify"))
    assert refused.state == "failed" and "NoOffsetError: there is no stream to verify" in "".join(capfd.readouterr())
    trigger("mysql_cdc_pipeline")
    execute(root, f"UPDATE {table} SET item = 'changed' WHERE id < 5", f"DELETE FROM {table} WHERE id = 19")

    verified = trigger("mysql_cdc_verify", fail_on_difference=True)["verify"]
    told = verified["verification"]
    assert (told["verdict"], told["tables_compared"], told["rows"]) == ("equal", 1, 19)
    assert verified["counts"][topic] == 7, "what was new is drained first"
    assert f"Every topic of {prefix} equals its table: 1 table compared." in "".join(capfd.readouterr())
    before = operations(stack.kafka, topic)

    ghost = {"before": None, "after": {"id": 99, "item": "ghost", "secret": SECRET}, "op": "c", "ts_ms": 1}
    ghost["source"] = {"db": database, "table": "orders", "file": "binlog.000001", "pos": 4, "row": 0}
    producer = Producer({"bootstrap.servers": stack.kafka})
    producer.produce(topic, key=b'{"id":99}', value=json.dumps(ghost).encode(), partition=0)
    assert producer.flush(10) == 0

    dag = load("mysql_cdc_verify")
    dag.get_task("verify").report_dir = str(tmp_path)
    form = {"tables": [table], "fail_on_difference": True}
    run = run_dag(dag, form)
    assert run.state == "failed"
    log = "".join(capfd.readouterr())
    assert "DifferencesFoundError: 1 of 1 tables differ from their topics" in log
    assert f"Where: {table}: ghost 1" in log and '- ghost: {"id": 99}' in log
    told = run.get_task_instances()[0].xcom_pull(task_ids="verify")["verification"]
    assert told["tables"] == {
        table: {"verdict": "different", "rows": 19, "records": 27, "findings": {"ghost": 1}, "repaired": {}}
    }
    (document,) = tmp_path.glob("*.json")
    assert json.loads(document.read_text())["tables"][table]["examples"][0]["key"] == {"id": 99}

    repaired = trigger("mysql_cdc_verify", repair="yes", fail_on_difference=True)["verify"]
    assert repaired["verification"]["repaired"] == {"ghost": 1}
    assert "repaired: ghost 1" in "".join(capfd.readouterr())
    after = operations(stack.kafka, topic)
    assert after - before == type(before)({"c": 1, "d": 1, "tombstone": 1})
    assert trigger("mysql_cdc_verify")["verify"]["verification"]["verdict"] == "equal"
    capfd.readouterr()

    for wrong in ({"tables": [f"{database}.ordrs"]}, {"tables": [f"{database}.(orders"]}):
        assert run_dag(load("mysql_cdc_verify"), wrong).state == "failed"
    assert "Spark-Submit cmd" not in "".join(capfd.readouterr())
    assert operations(stack.kafka, topic) == after
    for place in (Path(os.environ["AIRFLOW_HOME"]), tmp_path):
        assert files_with(SECRET, place) == [], "a masked column's value stands in a report"
    assert SECRET not in log
