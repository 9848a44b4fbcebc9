"""The DAGs with everything real: MySQL, Kafka, Spark, and Airflow's asset state in its metadata database."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest
from airflow_home import run_dag
from kit.connect_answers import LIST, answering, connector
from real_servers import define_connections, execute, files_with, load, operations, trigger

pytestmark = [pytest.mark.stack, pytest.mark.spark, pytest.mark.usefixtures("metadata_db")]


@pytest.fixture
def prefix(monkeypatch: pytest.MonkeyPatch, properties: dict[str, str], stack: Any) -> str:
    """Define the connections for the test's own database and return its topic.prefix."""
    define_connections(monkeypatch, properties, stack)
    return properties["topic.prefix"]


def forget_asset_state() -> None:
    """Lose what Airflow keeps, as its scheduler does when no DAG references the asset for a minute."""
    from airflow.models.asset_state_store import AssetStateStoreModel
    from airflow.utils.session import create_session

    with create_session() as session:
        assert session.query(AssetStateStoreModel).delete() > 0


def test_snapshot_drain_and_a_lost_offset(
    root: Any, database: str, prefix: str, stack: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    """Every row and change arrives once, the offset lives in Airflow, and losing it there repeats nothing.

    Nothing that Airflow keeps or says of these jobs holds a password: XComs, rendered fields, logs, exceptions.
    """
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

    form = {"tables": [f"{database}.orders"], "properties": {"read.only": True}}
    asked = trigger("mysql_cdc_adhoc_snapshot", condition="id <= 9", chunk_size=4, **form)
    assert asked["snapshot"]["rows"] == {f"{database}.orders": 6}, "ids 6 to 8 are gone by then"
    changes["r"] += 6
    assert operations(stack.kafka, topic) == changes

    execute(root, f"DELETE FROM {database}.orders WHERE id = 1")
    assert run_dag(load("mysql_cdc_reset_offset"), {"offset": "current", "confirm": "another"}).state == "failed"
    moved = trigger("mysql_cdc_reset_offset", offset="current", confirm=prefix)["reset"]
    assert moved["pos"] > again["drain"]["offset"]["pos"] or moved["file"] != again["drain"]["offset"]["file"]
    assert trigger("mysql_cdc_drain")["drain"]["offset"] == moved
    assert operations(stack.kafka, topic) == changes

    home, told = Path(os.environ["AIRFLOW_HOME"]), "".join(capfd.readouterr())
    assert files_with(topic, home) and "[mysql-cdc] batch" in told, "where results stand nobody has looked"
    assert files_with(stack.cdc_password, home) == [] and stack.cdc_password not in told


def test_a_wrong_password_fails_the_task_by_name_without_starting_spark(
    prefix: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    conn = json.loads(os.environ["AIRFLOW_CONN_MYSQL_CDC_DEFAULT"]) | {"password": "wr0ng-M4rked"}
    monkeypatch.setenv("AIRFLOW_CONN_MYSQL_CDC_DEFAULT", json.dumps(conn))
    run = run_dag(load("mysql_cdc_snapshot"))
    assert run.state == "failed"
    log = "".join(capfd.readouterr())
    assert "SourceAuthError" in log and "wr0ng-M4rked" not in log
    assert files_with("wr0ng-M4rked", Path(os.environ["AIRFLOW_HOME"])) == []
    assert "Spark-Submit cmd" not in log


@pytest.mark.req("FAULT-01")
def test_a_form_takes_a_stream_over_from_a_stopped_connector(
    root: Any, database: str, prefix: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    execute(root, f"CREATE TABLE {database}.orders (id INT PRIMARY KEY)")
    with root.cursor() as cursor:
        cursor.execute("SHOW BINARY LOG STATUS")
        file, pos, *_, gtids = cursor.fetchone()
    offset = {"file": file, "pos": pos, "gtids": gtids.replace("\n", ""), "ts_sec": 1}
    with answering() as connect:
        where = {"conn_type": "http", "host": connect.url, "login": "ann", "password": "p@ss-M4rked"}
        monkeypatch.setenv("AIRFLOW_CONN_CONNECT", json.dumps(where))
        form = {"connect_conn_id": "connect", "connector_name": "inventory"}
        connect.answers[LIST] = 200, {"inventory": connector("RUNNING", "RUNNING", prefix=prefix)}
        assert run_dag(load("mysql_cdc_import_debezium"), form).state == "failed"
        connect.answers[LIST] = 200, {"inventory": connector("STOPPED", prefix=prefix)}
        answer = {"offsets": [{"partition": {"server": prefix}, "offset": offset}]}
        connect.answers["/connectors/inventory/offsets"] = 200, answer
        planned = trigger("mysql_cdc_import_debezium", **form)["import"]
        assert (planned["offset"], planned["left_out"], planned["stored"]) == (f"{file}:{pos}", "nothing", False)
        form["dry_run"] = False
        assert run_dag(load("mysql_cdc_import_debezium"), {**form, "confirm": "another"}).state == "failed"
        assert trigger("mysql_cdc_import_debezium", **form, confirm=prefix)["import"] == planned | {"stored": True}
    basic = base64.b64encode(b"ann:p@ss-M4rked").decode()
    assert {authorization for _, authorization in connect.asked} == {f"Basic {basic}"}
    assert trigger("mysql_cdc_reset_offset", offset="stored", confirm=prefix)["reset"]["pos"] == pos
    home, told = Path(os.environ["AIRFLOW_HOME"]), "".join(capfd.readouterr())
    assert "the connector is not stopped" in told and "the take-over is not confirmed" in told
    for secret in ("p@ss-M4rked", basic):
        assert secret not in told and files_with(secret, home) == []
