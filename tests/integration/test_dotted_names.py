"""Databases and tables whose names have dots: ``d.x`` with ``y``, and ``d`` with ``x.y``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kit.incremental_rig import FLAT, books
from kit.records import compacted, payload
from kit.signals import send
from kit.sql import execute, rows
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topics import all_partition_counts


@pytest.fixture
def dotted(root: Any, database: str) -> Iterator[str]:
    """Return the name of a second database, whose table has the same ``database.table`` as one of the first."""
    other = f"{database}.x"
    execute(root, f"CREATE DATABASE `{other}`")
    for number, name in enumerate((f"`{database}`.`x.y`", f"`{other}`.`y`")):
        execute(root, f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT)", f"INSERT INTO {name} VALUES ({number}, 0)")
    yield other
    execute(root, f"DROP DATABASE `{other}`")


def test_two_tables_of_one_topic_are_refused_before_anything_is_written(
    properties: dict[str, str], root: Any, database: str, dotted: str
) -> None:
    pipeline = Pipeline(properties | FLAT | {"database.include.list": f"{database},{dotted}".replace(".", r"\.")})
    with pytest.raises(ConfigError, match="cannot be told apart") as caught:
        pipeline.snapshot()
    assert caught.value.where == f'"{database}"."x.y" and "{dotted}"."y"'
    assert "database.exclude.list" in caught.value.remedy
    topics = all_partition_counts(make_admin(pipeline.cfg.kafka_settings()))
    assert not [t for t in topics if t.startswith(pipeline.cfg.topic_prefix)], topics


@pytest.mark.parametrize("captured", [0, 1], ids=["dot in the table", "dot in the database"])
@pytest.mark.exhaustive(but="database")
def test_one_of_them_is_captured_and_the_other_left_out(
    properties: dict[str, str], root: Any, database: str, dotted: str, captured: int
) -> None:
    names = [(database, "x.y"), (dotted, "y")]
    db, table = names[captured]
    pipeline = Pipeline(properties | FLAT | {"database.include.list": db.replace(".", r"\.")}, slots=2)
    pipeline.snapshot()
    for n, (each_db, each) in enumerate(names):
        execute(root, f"INSERT INTO `{each_db}`.`{each}` VALUES ({n + 10}, 1)",
                f"UPDATE `{each_db}`.`{each}` SET v = 5 WHERE id = {n}")  # fmt: skip
    pipeline.drain()
    for id_, name in enumerate((f'"{db}"."{table}"', f"{db}.{table}")):
        send(pipeline.cfg, "execute-snapshot", {"data-collections": [name]}, f"s{id_}")
    pipeline.drain()
    assert [(scan.table, scan.state, scan.rows) for _, scan in sorted(books(pipeline).scans.items())] == [
        (TableId(db, table), "done", 2)
    ] * 2
    records = pipeline.read(f"{pipeline.cfg.topic_prefix}.{db}.{table}")
    sources = {(v["source"]["db"], v["source"]["table"]) for r in records if (v := payload(r.value))}
    assert sources == {(db, table)}
    found = sorted((v["id"], v["v"]) for v in compacted(records).values())
    assert found == sorted(rows(root, f"SELECT id, v FROM `{db}`.`{table}`"))


def test_a_table_that_is_created_later_is_refused_before_its_rows_are_written(
    properties: dict[str, str], root: Any, database: str, dotted: str
) -> None:
    execute(root, f"DROP TABLE `{dotted}`.`y`")
    pipeline = Pipeline(properties | FLAT | {"database.include.list": f"{database},{dotted}".replace(".", r"\.")})
    pipeline.snapshot()
    execute(
        root, f"CREATE TABLE `{dotted}`.`y` (id INT PRIMARY KEY, v INT)", f"INSERT INTO `{dotted}`.`y` VALUES (7, 7)"
    )
    with pytest.raises(ConfigError, match="cannot be told apart"):
        pipeline.drain()
    records = pipeline.read(f"{pipeline.cfg.topic_prefix}.{database}.x.y")
    assert [payload(r.value)["after"]["id"] for r in records] == [0]
