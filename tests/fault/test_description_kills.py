"""kill -9 while a full description of the schema history is written: it is there as a whole or not at all."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from kit.records import duplicates, payload
from kit.sql import execute
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.schema.history import read_history

pytestmark = pytest.mark.fault

PROPERTIES = {
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
    "schema.history.description.statements": "3",
    "snapshot.locking.mode": "none",
    "schema.history.internal.store.only.captured.tables.ddl": "true",
    "cdc.id.header": "true",
}
POINTS = [
    ("description.before_commit", 0),
    ("description.after_commit", 1),
    ("driver.before_outcome", 1),
]


@pytest.fixture
def pipeline(properties: dict[str, str]) -> Pipeline:
    return Pipeline(properties | PROPERTIES, slots=1)


def descriptions(pipeline: Pipeline) -> int:
    return sum(found.continues_history for found in read_history(pipeline.cfg))


@pytest.mark.halves
@pytest.mark.parametrize(("point", "written"), POINTS, ids=[point for point, _ in POINTS])
def test_a_killed_drain_leaves_a_whole_description_or_none(
    pipeline: Pipeline, root: Any, database: str, tmp_path: Path, point: str, written: int
) -> None:
    execute(root, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, a INT, b INT)")
    pipeline.snapshot()
    swap = f"ALTER TABLE `{database}`.t RENAME COLUMN a TO b, RENAME COLUMN b TO a"
    for i in range(1, 6):
        execute(root, swap, f"INSERT INTO `{database}`.t (id, a, b) VALUES ({i}, {i * 10}, {i * 100})")
    fired = tmp_path / "fired"
    fault = {"point": point, "action": "kill-self", "fired": str(fired)}
    process = pipeline.in_process("drain", tmp_path, fault=fault)
    assert fired.exists() and process.returncode == -signal.SIGKILL, process.stdout
    execute(root, swap, f"INSERT INTO `{database}`.t (id, a, b) VALUES (6, 60, 600)")
    for _ in range(2):
        pipeline.drain()
    assert descriptions(pipeline) == 1
    assert sum("has a full description" in line for line in pipeline.lines) == 1 - written
    execute(root, swap, f"INSERT INTO `{database}`.t (id, a, b) VALUES (7, 70, 700)")
    pipeline.drain()
    records = pipeline.records("t")
    assert duplicates(records) == []
    assert [payload(r.value)["after"] for r in records] == [{"id": i, "a": i * 10, "b": i * 100} for i in range(1, 8)]
