"""Statements that change rows of captured tables without row events: logged, counted, and notified."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kit.cases import for_each
from kit.private_mysql import Pool
from kit.records import payload
from kit.sql import execute
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.drain.writer_meter import UNLOGGED_SUFFIX
from airflow_provider_mysql_cdc.cdc.faults import FaultRaised

PARTS = "PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (10), PARTITION q VALUES LESS THAN (20))"
TABLES = (
    "CREATE TABLE `{db}`.parts (id INT PRIMARY KEY, v INT) " + PARTS,
    "INSERT INTO `{db}`.parts VALUES (1, 1), (11, 11)",
    "CREATE TABLE `{db}`.hidden_stage (id INT PRIMARY KEY, v INT)",
    "INSERT INTO `{db}`.hidden_stage VALUES (2, 2)",
    "CREATE TABLE `{db}`.moved (id INT PRIMARY KEY, v INT)",
    "CREATE TABLE `{db}`.plain (id INT PRIMARY KEY, v INT)",
    "CREATE VIEW `{db}`.looks AS SELECT 1 AS x",
)
STATEMENTS = (
    "ALTER TABLE `{db}`.parts EXCHANGE PARTITION p WITH TABLE `{db}`.hidden_stage",
    "ALTER TABLE `{db}`.parts\n  TRUNCATE PARTITION q",
    "RENAME TABLE `{db}`.moved TO `{db}`.hidden_moved",
    "INSERT INTO `{db}`.hidden_moved VALUES (7, 7)",
    "RENAME TABLE `{db}`.hidden_moved TO `{db}`.moved",
    "RENAME TABLE `{db}`.looks TO `{db}`.looked",
    "ALTER TABLE `{db}`.plain ADD w INT",
    "INSERT INTO `{db}`.plain VALUES (1, 1, 1)",
    "ALTER TABLE `{db}`.plain DROP COLUMN w, ADD w INT DEFAULT 5",
)


@pytest.fixture
def pipeline(properties: dict[str, str], unique: str) -> Pipeline:
    return Pipeline(
        properties
        | {
            "table.exclude.list": r".*\.hidden_.*",
            "drain.writers": "2",
            "drain.small.batch.bytes": "0",
            "notification.enabled.channels": "sink",
            "notification.sink.topic.name": f"notes.{unique}",
        }
    )


def script(root: Any, database: str, statements: tuple[str, ...]) -> None:
    execute(root, *(s.format(db=database) for s in statements))


def warnings(pipeline: Pipeline) -> list[str]:
    return [line for line in pipeline.lines if "without row events" in line]


def notifications(pipeline: Pipeline) -> list[dict[str, Any]]:
    values = [payload(r.value) for r in pipeline.read(pipeline.properties["notification.sink.topic.name"])]
    return [value for value in values if value["aggregate_type"] == "Unlogged Change"]


def keyed(pipeline: Pipeline, table: str) -> list[tuple[str, int]]:
    return [(payload(r.value)["op"], payload(r.key)["id"]) for r in pipeline.records(table)]


def unlogged(counts: Any) -> dict[str, int]:
    return {name.removesuffix(UNLOGGED_SUFFIX): n for name, n in counts.items() if name.endswith(UNLOGGED_SUFFIX)}


def test_each_statement_is_logged_counted_and_published(pipeline: Pipeline, root: Any, database: str) -> None:
    script(root, database, TABLES)
    assert pipeline.snapshot().complete
    script(root, database, STATEMENTS)
    outcome = pipeline.drain()
    assert outcome is not None and outcome.complete and outcome.tally is not None
    lines = warnings(pipeline)
    assert len(lines) == 5
    parts = (
        ("parts", "EXCHANGE PARTITION", f"Statement: ALTER TABLE `{database}`.parts EXCHANGE PARTITION p WITH TABLE"),
        ("parts", "rows of partitions", f"Statement: ALTER TABLE `{database}`.parts TRUNCATE PARTITION q"),
        ("moved", f"it was renamed to {database}.hidden_moved", f"Statement: RENAME TABLE `{database}`.moved TO"),
        ("moved", f"it was {database}.hidden_moved before", f"Statement: RENAME TABLE `{database}`.hidden_moved TO"),
        ("plain", "w is another column than the one that had this name", f"Statement: ALTER TABLE `{database}`.plain"),
    )
    for line, (table, what, statement) in zip(lines, parts, strict=True):
        assert line.startswith(f"WARNING: rows of {database}.{table} were changed without row events by a statement")
        assert what in line and statement in line and "signal execute-snapshot" in line
    expected = {f"{database}.parts": 2, f"{database}.moved": 2, f"{database}.plain": 1}
    assert unlogged(outcome.counts) == unlogged(outcome.tally.counts) == expected
    notes = [note["additional_data"] for note in notifications(pipeline)]
    assert [note["data_collections"] for note in notes] == [f"{database}.{table}" for table, _, _ in parts]
    for line, note in zip(lines, notes, strict=True):
        assert f"a statement at {note['position']}: {note['reason']}" in line
    assert [json.loads(r.key)["payload"]["id"] for r in pipeline.records("plain")] == [1]
    assert pipeline.records("moved") == []


def test_tables_are_read_again_if_they_have_rows_without_events(pipeline: Pipeline, root: Any, database: str) -> None:
    script(root, database, TABLES)
    pipeline.snapshot()
    pipeline.properties["snapshot.after.unlogged.changes"] = "incremental"
    script(root, database, (*STATEMENTS, "ALTER TABLE `{db}`.plain DISCARD TABLESPACE"))
    outcome = pipeline.drain()
    assert outcome is not None and outcome.complete
    for _ in range(2):  # the second drain does not read them again
        assert keyed(pipeline, "parts") == [("r", 1), ("r", 11), ("r", 2)]
        assert keyed(pipeline, "moved") == [("r", 7)]
        pipeline.drain()
    assert len(warnings(pipeline)) == 6


def test_a_retry_counts_and_publishes_each_statement_once(
    pipeline: Pipeline, root: Any, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(root, database, TABLES)
    pipeline.snapshot()
    script(root, database, STATEMENTS[:2])
    pipeline.properties |= {"commit.bytes": "2000", "drain.writers": "1"}
    execute(root, *(f"INSERT INTO `{database}`.plain VALUES ({n}, REPEAT('1', 9))" for n in range(200)))
    script(root, database, STATEMENTS[2:5])
    fired = tmp_path / "fired"
    fault = {"point": "writer.after_commit", "nth": 1, "writer": 0, "fired": str(fired)}
    monkeypatch.setattr("airflow_provider_mysql_cdc.cdc.faults._passed", {})
    monkeypatch.setenv("MYSQL_CDC_FAULT", json.dumps(fault))
    with pytest.raises(FaultRaised):
        pipeline.drain()
    state = kafka_clients.ledger(pipeline.cfg).read()
    assert fired.exists() and state is not None and state.plan is not None
    marker = state.marker(0, state.plan.epoch)
    assert marker is not None and not marker.done and unlogged(marker.counts) == {f"{database}.parts": 2}
    monkeypatch.delenv("MYSQL_CDC_FAULT")
    outcome = pipeline.drain()
    assert outcome is not None and outcome.complete
    assert unlogged(outcome.counts) == {f"{database}.parts": 2, f"{database}.moved": 2}
    ids = [note["id"] for note in notifications(pipeline)]
    assert len(ids) == len(set(ids)) == 4


def test_statements_that_take_all_rows_are_counted_unless_an_event_tells(
    pipeline: Pipeline, root: Any, database: str
) -> None:
    names = ("emptied", "made_again", "away")
    script(root, database, tuple(f"CREATE TABLE `{{db}}`.{name} (id INT PRIMARY KEY)" for name in names))
    script(root, database, tuple(f"INSERT INTO `{{db}}`.{name} VALUES (1), (2)" for name in names))
    pipeline.snapshot()
    made_again = ("DROP TABLE `{db}`.made_again", "CREATE TABLE `{db}`.made_again (id INT PRIMARY KEY)")
    renamed = "RENAME TABLE `{db}`.away TO `{db}`.hidden_away"
    script(root, database, ("TRUNCATE `{db}`.emptied", "DROP TABLE IF EXISTS `{db}`.nothing", *made_again, renamed))
    outcome = pipeline.drain()
    assert outcome is not None and outcome.complete
    assert unlogged(outcome.counts) == {f"{database}.{name}": 1 for name in names}
    lines = warnings(pipeline)
    whats = ("TRUNCATE TABLE removed all", "it was dropped", f"it was renamed to {database}.hidden_away")
    for line, name, what in zip(lines, names, whats, strict=True):
        assert line.startswith(f"WARNING: rows of {database}.{name} were changed without row events") and what in line
        assert "mysql_cdc_verify with repair=yes" in line
    notes = [note["additional_data"]["data_collections"] for note in notifications(pipeline)]
    assert notes == [f"{database}.{name}" for name in names]
    pipeline.properties["skipped.operations"] = "none"
    pipeline.lines.clear()
    script(root, database, ("TRUNCATE `{db}`.emptied", "DROP TABLE `{db}`.made_again"))
    outcome = pipeline.drain()
    assert outcome is not None and unlogged(outcome.counts) == {f"{database}.made_again": 1}
    assert not any("settings of topics were not checked" in line for line in pipeline.lines)
    assert [payload(r.value)["op"] for r in pipeline.records("emptied")] == ["r", "r", "t"]


@pytest.mark.exhaustive
@for_each("version", ["9.7", "8.0.15", "5.7.22"])
def test_a_restart_that_empties_a_table_in_memory_is_counted(
    version: str, pool: Pool, properties: dict[str, str]
) -> None:
    with pool.lent(version) as server:
        with server.connect() as conn:
            execute(
                conn,
                "CREATE DATABASE mem",
                "CREATE TABLE mem.`größe` (id INT PRIMARY KEY) ENGINE=MEMORY",
                "INSERT INTO mem.`größe` VALUES (1), (2)",
                "CREATE TABLE mem.`a``b` LIKE mem.`größe`",
            )
        own = {"database.include.list": "mem", "topic.prefix": f"{properties['topic.prefix']}-{version}"}
        stream = Pipeline(properties | server.properties() | own)
        stream.snapshot()
        server.stop()
        server.start()
        with server.connect() as conn:
            execute(conn, "SET NAMES latin1")
            execute(conn, "SELECT COUNT(*) FROM mem.`größe`".encode("latin1"))
            execute(conn, "SET sql_mode = 'ANSI_QUOTES'", 'SELECT COUNT(*) FROM mem."a`b"')
        outcome = stream.drain()
        assert outcome is not None and outcome.complete
        assert unlogged(outcome.counts) == {"mem.größe": 1, "mem.a`b": 1}, stream.lines


@pytest.mark.exhaustive
@for_each(("version", "is_named"), [("8.0.15", True), ("9.7", False)])
def test_a_foreign_key_whose_cascades_are_not_logged_is_named(
    properties: dict[str, str], pool: Pool, version: str, is_named: bool
) -> None:
    with pool.lent(version) as server, server.connect() as conn:
        tables = (
            "par (id INT PRIMARY KEY)",
            "chi (id INT PRIMARY KEY, p INT)",
            "hidden_chi (id INT PRIMARY KEY, p INT)",
        )
        execute(conn, "CREATE DATABASE keys_db", *(f"CREATE TABLE keys_db.{table}" for table in tables))
        own = {"database.include.list": "keys_db", "table.exclude.list": r".*\.hidden_.*"}
        own["topic.prefix"] = f"{properties['topic.prefix']}-{version}"
        stream = Pipeline(properties | server.properties() | own)
        stream.snapshot()
        key = "ADD FOREIGN KEY (p) REFERENCES keys_db.par (id) ON DELETE"
        execute(conn, *(f"ALTER TABLE keys_db.{name} {key} CASCADE" for name in ("chi", "hidden_chi")))
        stream.drain()
        named = [line for line in stream.lines if "a foreign key that changes its rows by CASCADE or SET NULL" in line]
        assert len(named) == is_named and all("gave keys_db.chi a foreign key" in line for line in named)
