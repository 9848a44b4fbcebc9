"""Statements whose records are larger than Kafka accepts; the limit is small here, as the server has other users."""

from __future__ import annotations

import contextlib
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from kit.sql import execute
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.errors import RecordTooLargeError
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topics import topic_config

LIMITED = {"kafka.message.max.bytes": "60000", "value.converter.schemas.enable": "false"}
STORE = "schema.history.internal.store.only.captured"


@pytest.fixture
def other(root: Any, database: str) -> Iterator[str]:
    """Create a database that is not captured."""
    name = f"{database}_other"
    execute(root, f"CREATE DATABASE `{name}`")
    yield name
    with contextlib.suppress(Exception):
        execute(root, f"DROP DATABASE `{name}`")


def long_create(table: str) -> str:
    """Return a CREATE TABLE statement of 100 KB; comments of columns remain in SHOW CREATE TABLE."""
    return (
        f"CREATE TABLE {table} (id INT PRIMARY KEY, "
        + ", ".join(f"c{n} INT COMMENT '{'x' * 1000}'" for n in range(100))
        + ")"
    )


@pytest.mark.req("SCH-10")
def test_a_drain_names_a_large_statement_and_passes_it_with_what_the_error_recommends(
    properties: dict[str, str], root: Any, database: str, other: str
) -> None:
    execute(root, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY)")
    pipeline = Pipeline(properties | LIMITED | {"commit.bytes": "1024"})
    pipeline.snapshot()
    execute(root, *(f"INSERT INTO `{database}`.t VALUES ({n})" for n in range(20)))
    execute(root, long_create(f"`{other}`.big"), f"INSERT INTO `{database}`.t VALUES (20)")
    with pytest.raises(RecordTooLargeError) as caught:
        pipeline.drain()
    error = caught.value
    assert f"CREATE TABLE `{other}`.big (id INT" in error.where and "x" * 250 not in error.where
    assert "binlog." in error.where and not error.can_retry
    assert f"{STORE}.databases.ddl=true" in error.remedy and "--add-config max.message.bytes" in error.remedy
    assert pipeline.records("t"), "a part is committed, and the property may be set all the same"
    pipeline.properties[f"{STORE}.databases.ddl"] = "true"
    outcome = pipeline.drain()
    assert outcome is not None and outcome.complete
    assert len(pipeline.records("t")) == 21


@pytest.mark.req("SCH-10")
def test_a_snapshot_names_a_large_statement_and_passes_it_with_what_the_error_recommends(
    properties: dict[str, str], root: Any, database: str, other: str
) -> None:
    execute(root, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY)", long_create(f"`{database}`.big"))
    pipeline = Pipeline(properties | LIMITED | {"table.include.list": f"{database}.t"})
    with pytest.raises(RecordTooLargeError) as caught:
        pipeline.snapshot()
    assert "CREATE TABLE `big` (" in caught.value.where and f"database {database}" in caught.value.where
    assert f"{STORE}.tables.ddl=true" in caught.value.remedy
    pipeline.properties[f"{STORE}.tables.ddl"] = "true"
    assert pipeline.snapshot().complete
    execute(root, f"ALTER TABLE `{database}`.big ADD INDEX (c1), COMMENT '{'x' * 1000}' /* {'x' * 70_000} */")
    execute(root, f"INSERT INTO `{database}`.t VALUES (1)")
    outcome = pipeline.drain()
    assert outcome is not None and outcome.complete and len(pipeline.records("t")) == 1


@pytest.mark.req("SCH-05")
def test_the_topics_of_statements_take_the_largest_record_of_the_client(
    properties: dict[str, str], root: Any, database: str
) -> None:
    execute(root, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY)")
    pipeline = Pipeline(properties | {"kafka.message.max.bytes": "4000000"})
    pipeline.snapshot()
    admin = make_admin(pipeline.cfg.kafka_settings())
    cfg = pipeline.cfg
    limits = [topic_config(admin, topic) or {} for topic in (cfg.topic_prefix, cfg.history_topic, cfg.ledger_topic)]
    assert [config["max.message.bytes"] for config in limits] == ["4000128"] * 3
    assert limits[2]["segment.bytes"] == "4000128"


@pytest.mark.parametrize("writers", ["1", "2"])
@pytest.mark.exhaustive(but="2")
def test_a_drain_does_not_hold_a_large_row_of_a_table_that_is_not_captured(
    properties: dict[str, str], root: Any, database: str, other: str, writers: str
) -> None:
    """It held such a row four times; here the row has 20 MB, and comes in two packets."""
    execute(
        root,
        f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY)",
        f"CREATE TABLE `{other}`.big (id INT PRIMARY KEY, v LONGTEXT)",
    )
    pipeline = Pipeline(properties | {"drain.writers": writers, "drain.small.batch.bytes": "0"})
    pipeline.snapshot()
    insert = f"INSERT INTO `{other}`.big VALUES (1, REPEAT('x', 20000000))"
    execute(root, "BEGIN", f"INSERT INTO `{database}`.t VALUES (1)", insert, "COMMIT")
    execute(root, f"UPDATE `{other}`.big SET v = REPEAT('y', 20000000)", f"INSERT INTO `{database}`.t VALUES (2)")
    tracemalloc.start()
    try:
        outcome = pipeline.drain()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert outcome is not None and outcome.complete and len(pipeline.records("t")) == 2
    assert peak < 15_000_000, peak
