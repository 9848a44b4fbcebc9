"""The quickstart, step by step as it is printed, and the DAG of operators on the page about Airflow."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow_home import run_dag
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from kit.doc_blocks import blocks, commands
from live_airflow import SUBMIT
from real_servers import execute, operations

from airflow_provider_mysql_cdc.commands.program import main

pytestmark = [pytest.mark.stack, pytest.mark.usefixtures("metadata_db")]
PAGE, AIRFLOW_PAGE, CONCEPTS = "docs/quickstart.md", "docs/airflow.md", "docs/concepts.md"
VOLATILE = {"ts_ms", "ts_us", "ts_ns", "file", "pos", "gtid", "server_id", "thread"}
"""Members of an event that differ from run to run; what the page prints of them has their form."""


@pytest.fixture
def here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, properties: dict[str, str], unique: str, stack: Any
) -> Callable[[str], str]:
    """Return what replaces the names of the pages by those of this test, and make the connections of the quickstart.

    Its spark-submit runs tasks as threads.
    """
    names = {
        "'cdc'": f"'{unique}'",
        "cdc:change-me@": f"{unique}:change-me@",
        "cdc@'%'": f"{unique}@'%'",
        "mysql.example:3306": f"{stack.mysql_host}:{stack.mysql_port}",
        "kafka.example%3A9092": stack.kafka.replace(":", "%3A"),
        "kafka.example:9092": stack.kafka,
        "=shop&": f"={unique}&",
        "shop.": f"{unique}.",
        "DATABASE shop;": f"DATABASE IF NOT EXISTS {unique};",
    }

    def replaced(text: str) -> str:
        for name, own in names.items():
            text = text.replace(name, own)
        return text

    for block in blocks(PAGE, "sh"):
        for program, *words in commands(block):
            if program == "export":
                name, _, value = replaced(words[0]).partition("=")
                monkeypatch.setenv(name, value)
    (tmp_path / "bin").mkdir()
    files = {name: str(tmp_path / name) for name in ("started", "drivers", "hold")}
    text = SUBMIT.format(python=sys.executable, root=str(Path(__file__).resolve().parents[2]), **files)
    for name, program in (("spark-submit", text), ("java", "#!/bin/sh\n")):
        (tmp_path / "bin" / name).write_text(program)
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return replaced


def made_by(text: str, folder: Path) -> Mapping[str, DAG]:
    """Return the DAGs of a DAG file by id; their tasks try once."""
    from airflow.dag_processing.dagbag import DagBag

    (folder / "printed.py").write_text(text)
    bag = DagBag(dag_folder=str(folder / "printed.py"))
    assert bag.import_errors == {}
    for dag in bag.dags.values():
        for task in dag.tasks:
            task.retries = 0
    return bag.dags


def payloads(bootstrap: str, topic: str) -> list[dict[str, Any]]:
    """Return the payloads of the committed records of a topic."""
    settings = {"bootstrap.servers": bootstrap, "group.id": topic, "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found = []
    while (message := consumer.poll(30)) is not None and message.error() is None:
        found.append(json.loads(message.value())["payload"])
    consumer.close()
    return found


def masked(event: dict[str, Any]) -> dict[str, Any]:
    """Return an event with the types of what differs from run to run in place of the values."""
    return {
        name: masked(value) if isinstance(value, dict) else type(value).__name__ if name in VOLATILE else value
        for name, value in event.items()
    }


def test_the_quickstart_as_printed(
    root: Any, unique: str, here: Callable[[str], str], stack: Any, tmp_path: Path
) -> None:
    """From an empty database to the printed event; then the commands that the page about concepts advises."""
    prepare, change = (here(block.text).split(";\n") for block in blocks(PAGE, "sql"))
    execute(root, *(statement for statement in prepare if statement.strip()))
    try:
        connection = ["--mysql-cdc-conn-id", "mysql_shop"]
        assert ["mysql-cdc", "preflight", *connection] in commands_of(PAGE)
        assert main(["preflight", *connection]) == 0
        (dag_file,) = blocks(PAGE, "python")
        dags = made_by(dag_file.text, tmp_path)
        assert ["airflow", "dags", "trigger", "shop_snapshot"] in commands_of(PAGE)
        assert run_dag(dags["shop_snapshot"]).state == "success"
        execute(root, *(statement for statement in change if statement.strip()))
        assert run_dag(dags["shop_drain"]).state == "success"

        read, _, changed = payloads(stack.kafka, f"{unique}.{unique}.orders")
        assert (read["op"], read["after"]["item"], changed["op"]) == ("r", "tea", "u")
        printed = [json.loads(block.text) for page in (PAGE, "README.md") for block in blocks(page, "json")]
        assert len(printed) == 2
        for event in printed:
            assert masked(json.loads(here(json.dumps(event)).replace('"shop"', f'"{unique}"'))) == masked(changed)
        for words in commands_of(CONCEPTS):
            if words[0] == "mysql-cdc":
                assert main(words[1:]) == 0
        execute(root, *(s for b in blocks("docs/guides/read-again.md", "sql") for s in here(b.text).split(";\n") if s))
    finally:
        execute(root, f"DROP USER IF EXISTS {unique}")


def commands_of(page: str) -> list[list[str]]:
    return [words for block in blocks(page, "sh") for words in commands(block)]


@pytest.mark.exhaustive
def test_the_dag_of_operators_runs_as_printed(
    root: Any, database: str, here: Callable[[str], str], stack: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its first run reads the tables, the next one brings the changes."""
    prefix = database
    server = {"host": stack.mysql_host, "port": stack.mysql_port, "login": stack.cdc_user}
    extra = {"topic.prefix": prefix, "database.include.list": database, "kafka.bootstrap.servers": stack.kafka}
    conn = {"conn_type": "mysql_cdc", **server, "password": stack.cdc_password, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_MYSQL_SHOP", json.dumps(conn))
    execute(
        root, f"CREATE TABLE {database}.orders (id INT PRIMARY KEY)", f"INSERT INTO {database}.orders VALUES (1), (2)"
    )
    (block,) = (block for block in blocks(AIRFLOW_PAGE, "python") if 'DAG("orders_cdc",' in block.text)
    topic = f"{prefix}.{database}.orders"
    assert run_dag(made_by(block.text, tmp_path)["orders_cdc"]).state == "success"
    assert operations(stack.kafka, topic) == {"r": 2}
    execute(root, f"INSERT INTO {database}.orders VALUES (3)")
    assert run_dag(made_by(block.text, tmp_path)["orders_cdc"]).state == "success"
    assert operations(stack.kafka, topic) == {"r": 2, "c": 1}
