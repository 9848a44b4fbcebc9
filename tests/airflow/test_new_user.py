"""A new user's first hour: the wheel, a fresh Airflow, the quickstart's connections, the DAGs, and only the REST API.

Runs are triggered by an account that may do nothing else. What they are told, and what anybody can see of them, has
none of the secrets of the connections.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest
from kit.installed_package import install
from kit.sql import execute
from new_user import DAGS, NewUser, Watch, printed_spark_connection
from real_servers import files_with, operations
from stacklib import ports

pytestmark = [pytest.mark.stack, pytest.mark.spark, pytest.mark.exhaustive]
DB = "new_user"
PREFIX = f"newuser{os.getpid()}"
ORDERS = f"{PREFIX}.{DB}.orders"
SNAPSHOT, DRAIN, ADHOC = "mysql_cdc_snapshot", "mysql_cdc_drain", "mysql_cdc_adhoc_snapshot"
BACKFILL, RESET = "mysql_cdc_backfill", "mysql_cdc_reset_offset"
MARK = "Zq7Mark"
PASSWORD = f"{MARK}MySql9"
SECRETS = {"database.ssl.key.password": f"{MARK}KeyOfMySql"}
KAFKA_SECRETS = {
    "sasl.password": f"{MARK}Sasl",
    "ssl.key.password": f"{MARK}KeyOfKafka",
    "sasl.oauthbearer.client.secret": f"{MARK}OAuth",
}
SPARK_SECRETS = {
    "spark.hadoop.fs.s3a.secret.key": f"{MARK}S3",
    "spark.ssl.keyPassword": f"{MARK}KeyOfSpark",
    "spark.hadoop.a.token": f"{MARK}Token",
}


@pytest.fixture(scope="module")
def source(stack: Any) -> Iterator[Any]:
    """Return a connection; the account has the privileges that the quickstart names."""
    server = {"host": stack.mysql_host, "port": stack.mysql_port, "ssl_disabled": True, "autocommit": True}
    conn = pymysql.connect(user=stack.root_user, password=stack.root_password, **server)
    execute(
        conn,
        f"DROP DATABASE IF EXISTS {DB}",
        f"CREATE DATABASE {DB}",
        f"CREATE TABLE {DB}.orders (id INT PRIMARY KEY, item VARCHAR(20), updated_at TIMESTAMP(6) NOT NULL)",
        f"INSERT INTO {DB}.orders VALUES (1, 'ä', '2026-11-02 10:30'), (2, 'b', '2026-11-02 10:59'), (3, 'c', now(6))",
        f"CREATE USER IF NOT EXISTS {DB} IDENTIFIED BY '{PASSWORD}'",
        f"GRANT SELECT, RELOAD, SHOW DATABASES, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {DB}",
    )
    yield conn
    execute(conn, f"DROP DATABASE {DB}", f"DROP USER {DB}")
    conn.close()


@pytest.fixture(scope="module")
def watch() -> Iterator[Watch]:
    watch = Watch(ports.any_free(frozenset()))
    watch.start()
    yield watch
    watch.stop()


@pytest.fixture(scope="module")
def airflow(stack: Any, source: Any, watch: Watch) -> Iterator[NewUser]:
    """Return a running Airflow with the connections, which were made as in its UI."""
    folder = Path(tempfile.mkdtemp(prefix=f"mysql-cdc-airflow-{os.environ['MYSQL_CDC_SUITE']}-user-"))
    running = NewUser(folder, install(folder))
    try:
        running.open()
        extra = {
            "topic.prefix": PREFIX,
            "database.include.list": DB,
            "kafka_conn_id": "kafka_cdc",
            "topic.creation.default.replication.factor": "1",
            "topic.creation.default.partitions": "1",
            **SECRETS,
        }
        server = {"host": stack.mysql_host, "port": stack.mysql_port, "login": DB, "password": PASSWORD}
        account = {"login": "u", "password": f"{MARK}Registry"}
        spark = printed_spark_connection()
        spark["extra"] |= {"conf": {**SPARK_SECRETS, "spark.ui.port": str(watch.ui_port)}}
        for name, connection in {
            "mysql_cdc_default": {"conn_type": "mysql_cdc", **server, "extra": extra},
            "kafka_cdc": {
                "conn_type": "kafka",
                "password": f"{MARK}Kafka",
                "extra": {"bootstrap.servers": stack.kafka, **KAFKA_SECRETS},
            },
            "registry": {"conn_type": "schema_registry", "host": "http://127.0.0.1:9", **account, "extra": {}},
            "spark_cdc": {"password": f"{MARK}Spark", **spark},
        }.items():
            text = {"connection_id": name, **connection, "extra": json.dumps(connection["extra"])}
            assert running.ask("op", "POST", "connections", text).status == 201
        yield running
    finally:
        running.stop()
        shutil.rmtree(folder, ignore_errors=True)


def test_the_dags_are_there_and_each_role_may_do_its_own(airflow: NewUser) -> None:
    assert {dag["dag_id"] for dag in airflow.call("GET", "dags")["dags"]} == set(DAGS)
    assert airflow.call("GET", "importErrors")["total_entries"] == 0
    body = {"logical_date": None, "conf": {}}
    assert airflow.ask("viewer", "POST", f"dags/{SNAPSHOT}/dagRuns", body).status == 403
    for user in ("viewer", "user"):
        assert airflow.ask(user, "GET", "connections").status == 403
        assert airflow.ask(user, "GET", "variables").status == 403


def test_snapshot_drain_and_tables_that_are_read_again(airflow: NewUser, source: Any, stack: Any) -> None:
    first = airflow.result(SNAPSHOT, {}, "snapshot")
    assert first["counts"] == {ORDERS: 3}

    execute(source, f"UPDATE {DB}.orders SET item = 'x' WHERE id = 3", f"DELETE FROM {DB}.orders WHERE id = 2")
    drained = airflow.result(DRAIN, {}, "drain")
    assert drained["counts"][ORDERS] == 3

    again = airflow.result(ADHOC, {"tables": [f"{DB}.orders"], "condition": "id < 3"}, "snapshot")
    assert again["rows"] == {f"{DB}.orders": 1}
    interval = {"logical_date": "2026-11-02T11:00:00Z"}  # the hour that ends then
    of_hour = airflow.result(BACKFILL, {"tables": [f"{DB}.orders"]}, "snapshot", 0, **interval)
    assert of_hour["rows"] == {f"{DB}.orders": 1}
    assert operations(stack.kafka, ORDERS) == {"r": 5, "u": 1, "d": 1, "tombstone": 1}

    moved = airflow.result(RESET, {"offset": "current", "confirm": PREFIX}, "reset")
    assert moved["file"] >= drained["offset"]["file"]


class Listener:
    """Stands where a form would lead a job."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=50)
        self._socket.setblocking(False)
        self.port = self._socket.getsockname()[1]

    def heard(self) -> bool:
        try:
            self._socket.accept()[0].close()
        except BlockingIOError:
            return False
        return True


def test_a_form_leads_nowhere_and_the_log_ends_with_what_to_do(airflow: NewUser) -> None:
    """Each run is refused before anything connects, by one record of level ERROR at the end of its log."""
    elsewhere = Listener()
    at = f"127.0.0.1:{elsewhere.port}"
    refused = {
        "confirm='no'": {"confirm": "no"},
        "database.port, kafka.bootstrap.servers": {"properties": {"database.port": "1", "kafka.bootstrap.servers": at}},
        "DATABASE.port": {"properties": {"DATABASE.port": elsewhere.port}},
        "signal.kafka.bootstrap.servers": {"properties": {"signal.kafka.bootstrap.servers": at}},
        "connection spark_cdc": {"kafka_conn_id": "spark_cdc"},
        "connection no_such_connection": {"mysql_cdc_conn_id": "no_such_connection"},
        "connection registry": {"schema_registry_conn_id": "registry"},
        "database.password": {"properties": {"database.password": f"{MARK}Form"}},
        "confrim (did you mean confirm?)": {"confrim": PREFIX},
    }
    runs = {
        where: airflow.trigger(RESET, {"offset": "current", "confirm": PREFIX, **form})
        for where, form in refused.items()
    }
    for where, run_id in runs.items():
        assert airflow.end_of(RESET, run_id) == "failed"
        records = airflow.records(RESET, run_id, "reset")
        errors = [n for n, record in enumerate(records) if record.get("level") in ("error", "critical")]
        assert len(errors) == 1, (where, errors)
        text = records[errors[0]]["event"]
        assert text.startswith("ConfigError: ") and f"Where: {where}" in text and "\nWhat to do: " in text, text
        assert "error_detail" not in records[errors[0]]
        last = [record["event"] for record in records[errors[0] + 1 :]]
        assert all(event.startswith("::") for event in last), last
    assert not elsewhere.heard()


def test_nobody_sees_a_secret_of_the_connections(airflow: NewUser, watch: Watch) -> None:
    """After the tests above: REST API, Airflow's files with its database, programs' arguments, Spark's web page."""
    seen = airflow.seen()
    assert any("[mysql-cdc] snapshot" in text for text in seen.values())
    # What a run's form holds Airflow stores and shows; the text on the form says so.
    form = f"{MARK}Form"
    assert {path for path, text in seen.items() if MARK in text.replace(form, "")} == set()
    secret = [PASSWORD, f"{MARK}Kafka", f"{MARK}Registry", f"{MARK}Spark"]
    secret += [*SECRETS.values(), *KAFKA_SECRETS.values(), *SPARK_SECRETS.values()]
    assert files_with(ORDERS, airflow.home), "where results stand nobody has looked"
    for value in secret:
        assert files_with(value, airflow.home) == []
        assert not any(value.encode() in command for command in watch.commands)
        assert not any(value in page for page in watch.pages)
    assert any(b"spark_jobs/snapshot_tables.py" in command for command in watch.commands)
    assert any("spark.hadoop.fs.s3a.secret.key" in page for page in watch.pages)
