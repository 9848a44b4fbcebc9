"""A verification while a snapshot has not read all rows: those are not reported as missing, and other damage is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kit.incremental_rig import ask_for, unfinished_request
from kit.sql import execute
from kit.table_rig import interrupt
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import DifferenceKind, TableVerdict, VerifyRequest

PROPERTIES = {"snapshot.chunk.rows": "10", "incremental.snapshot.chunk.size": "5"}
TABLES = ("aa", "bb")


def fill(root: Any, db: str) -> None:
    for table in TABLES:
        execute(root, f"CREATE TABLE `{db}`.{table} (id INT PRIMARY KEY, v INT)")
        execute(root, f"INSERT INTO `{db}`.{table} VALUES " + ",".join(f"({i}, {i})" for i in range(30)))


def verdicts(pipeline: Pipeline) -> dict[str, TableVerdict]:
    return {v.table.rpartition(".")[2]: v for v in pipeline.verify(VerifyRequest(history=True)).tables}


@pytest.mark.exhaustive
def test_rows_of_an_interrupted_snapshot_are_not_missing(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fill(root, database)
    interrupt(pipeline, monkeypatch, tmp_path / "fired", 2)
    pipeline.prepare("snapshot")
    assert unfinished_request(pipeline.cfg) is not None
    execute(root, "SET sql_log_bin = 0", f"UPDATE `{database}`.aa SET v = 99 WHERE id = 1", "SET sql_log_bin = 1")
    found = verdicts(pipeline)
    assert found["aa"].findings == {DifferenceKind.DIFFERING: 1} and found["bb"].findings == {}
    assert any("30 seen): a snapshot has not read all rows" in reason for reason in found["bb"].unknown), found
    for _ in range(5):
        pipeline.snapshot()
    assert unfinished_request(pipeline.cfg) is None
    found = verdicts(pipeline)
    assert found["aa"].findings == {DifferenceKind.DIFFERING: 1} and found["bb"].verdict == "equal"
    assert all(v.unknown == () for v in found.values())


def test_rows_without_a_key_that_went_before_a_window_read_their_table_are_not_missing(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The topic has their deletes and never had the rows."""
    for table in TABLES:
        execute(root, f"CREATE TABLE `{database}`.{table} (v INT)")
        execute(root, f"INSERT INTO `{database}`.{table} VALUES " + ",".join(f"({i // 2})" for i in range(30)))
    interrupt(pipeline, monkeypatch, tmp_path / "fired", 1)
    pipeline.prepare("snapshot")
    assert unfinished_request(pipeline.cfg) is not None
    for table in TABLES:
        name = f"`{database}`.{table}"
        execute(root, f"DELETE FROM {name} WHERE v = 3", f"DELETE FROM {name} WHERE v = 4 LIMIT 1")
        execute(root, f"UPDATE {name} SET v = 50 WHERE v = 5", f"INSERT INTO {name} VALUES (3)")
    for _ in range(5):
        pipeline.snapshot()
    assert unfinished_request(pipeline.cfg) is None
    assert all(verdict.verdict == "equal" for verdict in verdicts(pipeline).values()), verdicts(pipeline)


@pytest.mark.exhaustive
def test_rows_of_a_table_that_a_signal_has_asked_for_are_not_missing(
    pipeline: Pipeline, root: Any, database: str
) -> None:
    fill(root, database)
    pipeline.properties["table.include.list"] = f"{database}.aa"
    pipeline.snapshot()
    pipeline.properties["table.include.list"] = f"{database}.aa,{database}.bb"
    execute(root, f"UPDATE `{database}`.bb SET v = 7 WHERE id < 5")
    assert verdicts(pipeline)["bb"].findings == {DifferenceKind.MISSING: 25}
    ask_for(pipeline, ["bb"])
    found = verdicts(pipeline)["bb"]
    assert found.findings == {} and "25 seen" in found.unknown[0]
    pipeline.drain()
    found = verdicts(pipeline)["bb"]
    assert found.verdict == "equal" and found.unknown == ()
