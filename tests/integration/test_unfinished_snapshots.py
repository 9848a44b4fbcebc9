"""An interrupted snapshot is finished by windows of the drain, whatever happened to its tables meanwhile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kit.incremental_rig import unfinished_request
from kit.records import compacted, duplicates, payload
from kit.sql import execute, rows
from kit.table_rig import FLAT, changes, filled, interrupt
from kit.window_rig import Places
from pipelinelib.pipeline import Pipeline
from pipelinelib.stand_ins import ThreadRunner

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.faults import FaultRaised
from airflow_provider_mysql_cdc.cdc.incremental import drain_job
from airflow_provider_mysql_cdc.cdc.snapshot.snapshot_driver import run_snapshot

PROPERTIES = FLAT
SLOTS = 2
COPY = ["CREATE TABLE _aa_new (id INT PRIMARY KEY, v INT)", "INSERT INTO _aa_new SELECT * FROM aa"]


def state_of(pipeline: Pipeline, topic: str) -> dict[Any, Any]:
    """Return the rows that a consumer of a topic has in the end; each event continues what it has of a key."""
    if pipeline.table_topic(topic) not in pipeline.topics():
        return {}
    records = pipeline.records(topic)
    assert duplicates([r for r in records if r.key]) == []
    last: dict[bytes | None, Any] = {}
    for record in records:
        value = payload(record.value)
        if value is None or value["op"] == "t":
            continue
        if value["op"] not in ("r", "c") and last.get(record.key) is not None:
            common = last[record.key].keys() & value["before"].keys()
            assert {n: last[record.key][n] for n in common} == {n: value["before"][n] for n in common}, record.key
        last[record.key] = value["after"]
    return {v["id"]: v["v"] for v in compacted(records).values() if "id" in v}


def require_equal(pipeline: Pipeline, root: Any, *tables: str) -> None:
    for table in tables:
        assert state_of(pipeline, table) == dict(rows(root, f"SELECT id, v FROM {table}")), table


def finish(pipeline: Pipeline) -> None:
    """Run the snapshot's task again, and the drain, until both have nothing left."""
    assert pipeline.snapshot().complete
    for _ in range(5):
        if unfinished_request(pipeline.cfg) is None:
            break
        assert pipeline.snapshot().complete
    assert unfinished_request(pipeline.cfg) is None, pipeline.lines
    pipeline.drain()


@pytest.mark.req("SNAP-14")
@pytest.mark.parametrize("nth", [1, 2, 4])
@pytest.mark.exhaustive(but="4")
def test_rows_that_change_and_move_meanwhile(
    nth: int, pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    execute(root, f"USE `{database}`", *filled(database, "aa", "bb", count=50))
    interrupt(pipeline, monkeypatch, tmp_path / "fired", nth)
    execute(root, *changes("aa"), *changes("bb"))
    execute(root, "UPDATE aa SET id = id - 1000 WHERE id IN (45, 46)", "INSERT INTO aa VALUES (45, 1)")
    finish(pipeline)
    execute(root, *changes("aa"), *changes("bb"))
    pipeline.drain()
    require_equal(pipeline, root, "aa", "bb")
    read = [
        payload(r.value)["after"]["id"] for r in pipeline.records("aa") if r.value and payload(r.value)["op"] == "r"
    ]
    assert len(read) == len(set(read)), "no row is read twice"


# Statements between the two attempts, and the tables whose topics equal them in the end.
STATEMENTS = {
    "renamed": (["RENAME TABLE aa TO cc"], ["cc", "bb"]),
    "renamed twice": (["RENAME TABLE aa TO _x", *changes("bb"), "RENAME TABLE _x TO cc"], ["cc", "bb"]),
    "there and back": (["RENAME TABLE aa TO cc", *changes("cc"), "RENAME TABLE cc TO aa"], ["aa", "bb"]),
    "renamed and altered": (["ALTER TABLE aa RENAME TO cc, ADD COLUMN w INT"], ["cc", "bb"]),
    "renamed out": (["RENAME TABLE aa TO _gone"], ["bb"]),
    "swapped": (["RENAME TABLE aa TO cc, bb TO aa, cc TO bb"], ["aa", "bb"]),
    "other dropped": (["DROP TABLE bb", "RENAME TABLE aa TO bb"], ["bb"]),
    "online change": ([*COPY, "RENAME TABLE aa TO _aa_old, _aa_new TO aa"], ["aa", "bb"]),
    "rotated": (
        ["RENAME TABLE aa TO cc", "CREATE TABLE aa LIKE cc", "INSERT INTO aa VALUES (7, 7)"], ["aa", "bb", "cc"]
    ),
    "truncated": (["TRUNCATE TABLE aa", "INSERT INTO aa VALUES (5, 5), (45, 45)"], ["aa", "bb"]),
    "recreated": (["DROP TABLE aa", *filled("{db}", "aa", count=3)], ["aa", "bb"]),
    "dropped": (["DROP TABLE aa"], ["bb"]),
    "column added": (["ALTER TABLE aa ADD COLUMN w INT NOT NULL DEFAULT 5"], ["aa", "bb"]),
    "key renumbered": (
        ["ALTER TABLE aa DROP PRIMARY KEY, DROP COLUMN id, ADD COLUMN id INT AUTO_INCREMENT PRIMARY KEY FIRST"],
        ["aa", "bb"],
    ),
    "key swapped": (
        ["ALTER TABLE aa CHANGE id id2 INT, ADD COLUMN id3 INT", "UPDATE aa SET id3 = 100 - id2",
         "ALTER TABLE aa DROP PRIMARY KEY, CHANGE id3 id INT NOT NULL, ADD PRIMARY KEY (id), DROP COLUMN id2"],
        ["aa", "bb"],
    ),
    "key as text": (["ALTER TABLE aa MODIFY id VARCHAR(9)"], ["aa", "bb"]),
    "partition exchanged": (
        ["CREATE TABLE _p (id INT PRIMARY KEY, v INT)", "INSERT INTO _p VALUES (3000, 1)",
         "ALTER TABLE aa PARTITION BY RANGE (id) "
         "(PARTITION p0 VALUES LESS THAN (2000), PARTITION p1 VALUES LESS THAN MAXVALUE)",
         "ALTER TABLE aa EXCHANGE PARTITION p1 WITH TABLE _p"],
        ["aa", "bb"],
    ),
}  # fmt: skip
# Of the others the topic also has rows that statements took away, or moved to another name, without row events.
EQUAL = ("renamed", "renamed twice", "renamed and altered", "renamed out", "dropped", "column added")


@pytest.mark.exhaustive(but="renamed")
@pytest.mark.req("SNAP-14")
@pytest.mark.parametrize("what", STATEMENTS)
@pytest.mark.halves
def test_each_topic_equals_its_table_after_statements(
    what: str, pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    statements, tables = STATEMENTS[what]
    pipeline.properties["table.exclude.list"] = rf"{database}\._.*"
    execute(root, f"USE `{database}`", *filled(database, "aa", count=50), *filled(database, "bb", value=1))
    interrupt(pipeline, monkeypatch, tmp_path / "fired")
    execute(root, *changes("aa"), *(s.replace("{db}", database) for s in statements))
    finish(pipeline)
    for table in tables:
        if what not in ("key as text",):
            execute(root, *changes(table))
    pipeline.drain()
    for table in tables:
        expected = dict(rows(root, f"SELECT id, v FROM {table}"))
        found = state_of(pipeline, table)
        # Rows that a statement took away without row events are in the topic still, as with Debezium.
        assert found.items() >= expected.items(), table
        if what in EQUAL:
            assert found == expected, table


def test_a_snapshot_of_which_nothing_is_committed_begins_again(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    execute(root, f"USE `{database}`", *filled(database, "aa"))
    monkeypatch.setattr(faults, "_passed", {})
    fault = {"point": "snapshot.chunk_read", "action": "raise", "nth": 1, "fired": str(tmp_path / "fired")}
    monkeypatch.setenv("MYSQL_CDC_FAULT", json.dumps(fault))
    with pytest.raises(faults.FaultRaised):
        run_snapshot(pipeline.prepare("snapshot").spec, ThreadRunner(1), pipeline.log)
    monkeypatch.delenv("MYSQL_CDC_FAULT")
    execute(root, *changes("aa"))
    assert pipeline.snapshot().complete
    assert any("begins again: no row of it is committed" in line for line in pipeline.lines)
    assert {payload(r.value)["op"] for r in pipeline.records("aa") if r.value} == {"r"}
    require_equal(pipeline, root, "aa")


def test_initial_only_keeps_finished_tables_and_reads_the_others_anew(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pipeline.properties["snapshot.mode"] = "initial_only"
    execute(root, f"USE `{database}`", *filled(database, "aa", "bb"))
    interrupt(pipeline, monkeypatch, tmp_path / "fired", 4)
    execute(root, "UPDATE aa SET v = 1", "UPDATE bb SET v = 1")
    assert pipeline.snapshot().complete
    assert set(state_of(pipeline, "aa").values()) == {0}, "aa was read before"
    require_equal(pipeline, root, "bb")
    assert len([r for r in pipeline.records("aa") if r.value]) == 30


def test_scans_are_queued_once_by_a_task_that_dies_between_the_records(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    execute(root, f"USE `{database}`", *filled(database, "aa", "bb"))
    interrupt(pipeline, monkeypatch, tmp_path / "fired")
    monkeypatch.setattr(faults, "_passed", {})
    fault = {"point": "snapshot.scans_queued", "action": "raise", "nth": 1, "fired": str(tmp_path / "queued")}
    monkeypatch.setenv("MYSQL_CDC_FAULT", json.dumps(fault))
    with pytest.raises(faults.FaultRaised):
        pipeline.snapshot()
    monkeypatch.delenv("MYSQL_CDC_FAULT")
    finish(pipeline)
    require_equal(pipeline, root, "aa", "bb")
    for table in ("aa", "bb"):
        assert len([r for r in pipeline.records(table) if r.value and payload(r.value)["op"] == "r"]) == 30


def test_a_table_without_a_key_is_read_under_the_lock_while_others_write(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    execute(root, f"USE `{database}`", *filled(database, "aa"), "CREATE TABLE bare (id INT, v INT)")
    execute(root, "INSERT INTO bare VALUES (1, 1), (2, 2)")
    interrupt(pipeline, monkeypatch, tmp_path / "fired")
    execute(root, "INSERT INTO bare VALUES (3, 3)", "UPDATE bare SET v = 20 WHERE id = 2")
    finish(pipeline)
    read = {payload(r.value)["after"]["id"]: payload(r.value)["after"]["v"] for r in pipeline.records("bare")
            if r.value and payload(r.value)["op"] == "r"}  # fmt: skip
    assert read == {1: 1, 2: 20, 3: 3}
    require_equal(pipeline, root, "aa")


def test_the_statement_of_a_table_reads_it_in_a_window_too(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    execute(root, f"USE `{database}`", *filled(database, "aa", "bb"))
    pipeline.properties["snapshot.select.statement.overrides"] = f"{database}.bb"
    name = f"snapshot.select.statement.overrides.{database}.bb"
    pipeline.properties[name] = f"SELECT * FROM `{database}`.bb WHERE id < 10"
    interrupt(pipeline, monkeypatch, tmp_path / "fired")
    finish(pipeline)
    assert sorted(state_of(pipeline, "bb")) == list(range(10))
    require_equal(pipeline, root, "aa")


def test_the_backlog_is_drained_before_a_window_opens_its_views(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(drain_job, "MAX_BACKLOG_BYTES", 1000)
    pipeline.properties["max.batch.bytes"] = "1"
    execute(root, f"USE `{database}`", *filled(database, "aa", "bb"))
    interrupt(pipeline, monkeypatch, tmp_path / "fired")
    for _ in range(3):
        execute(root, *changes("aa"), *changes("bb"), "FLUSH BINARY LOGS")
    finish(pipeline)
    require_equal(pipeline, root, "aa", "bb")
    first_range = next(n for n, line in enumerate(pipeline.lines) if "key range" in line and "row(s)" in line)
    batches = [line for line in pipeline.lines[:first_range] if line.startswith("batch ") and "writer(s)" in line]
    assert len(batches) >= 4, pipeline.lines


@pytest.mark.req("SNAP-14")
def test_rows_that_are_inserted_while_windows_go_on_are_not_read(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The stream has them: a table that grows as fast as it is read would never be read completely."""
    execute(root, f"USE `{database}`", *filled(database, "aa", count=90))
    pipeline.properties["incremental.snapshot.chunk.size"] = "1"
    pipeline.slots = 1
    interrupt(pipeline, monkeypatch, tmp_path / "fired")
    places = Places(monkeypatch)
    places.die("incremental.after_commit", 2)
    with pytest.raises(FaultRaised):
        pipeline.snapshot()
    execute(root, "INSERT INTO aa SELECT id + 1000, v FROM aa")
    finish(pipeline)
    assert not places.left
    require_equal(pipeline, root, "aa")
    values = [payload(r.value) for r in pipeline.records("aa") if r.value]
    assert sorted(v["after"]["id"] for v in values if v["op"] == "r") == [*range(90)]
    assert sorted(v["after"]["id"] for v in values if v["op"] == "c") == [*range(1000, 1090)]
