"""A window reads a table with the structure that the server has, whatever the schema history says."""

from __future__ import annotations

from typing import Any

import pytest
from kit.incremental_rig import FLAT, ask_for, books
from kit.records import payload
from kit.sql import execute
from kit.window_rig import connection
from pipelinelib.pipeline import Pipeline

UNLOGGED: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "zero-filled": ("b INT UNSIGNED", "MODIFY b INT(7) ZEROFILL", "(2, 6)", {"id": 2, "b": 6}),
    "text of a number": ("b INT", "MODIFY b VARCHAR(9)", "(2, 'a\"b')", {"id": 2, "b": 'a"b'}),
    "date and time": ("b DATETIME", "MODIFY b DATE", "(2, '2020-01-03')", {"id": 2, "b": 18264}),
    "sign": ("b BIGINT", "MODIFY b BIGINT UNSIGNED", "(2, 18446744073709551615)", {"id": 2, "b": -1}),
    "member": ("b ENUM('x')", "MODIFY b ENUM('x', 'z')", "(2, 'z')", {"id": 2, "b": "z"}),
    "more columns": ("b INT", "ADD c INT FIRST", "(4, 2, 3)", {"c": 4, "id": 2, "b": 3}),
    "less columns": ("b INT, c INT", "DROP b", "(2, 3)", {"id": 2, "c": 3}),
    "swapped columns": ("b INT, c INT", "RENAME COLUMN b TO c, RENAME COLUMN c TO b", "(2, 3, 4)", {"c": 3, "b": 4}),
    "other key": ("b INT NOT NULL", "RENAME COLUMN id TO n", "(2, 3)", {"n": 2, "b": 3}),
}
"""Columns, an ALTER that is not in the binlog, a row and its event."""


@pytest.mark.exhaustive(but="swapped")
@pytest.mark.req("INC-20")
@pytest.mark.parametrize("metadata", ["MINIMAL", "FULL"])
@pytest.mark.parametrize("name", UNLOGGED)
def test_a_window_reads_no_row_with_a_structure_that_the_server_does_not_have(
    name: str, metadata: str, properties: dict[str, str], root: Any, stack: Any, database: str
) -> None:
    columns, change, values, expected = UNLOGGED[name]
    execute(
        root,
        f"SET GLOBAL binlog_row_metadata = {metadata}",
        f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, {columns})",
        f"CREATE TABLE `{database}`.other (id INT PRIMARY KEY)",
    )
    pipeline = Pipeline(properties | FLAT)
    pipeline.snapshot()
    unlogged = connection(stack)
    execute(
        unlogged,
        "SET sql_log_bin = 0",
        f"ALTER TABLE `{database}`.t {change}",
        f"INSERT INTO `{database}`.t VALUES {values}",
    )
    unlogged.close()
    ask_for(pipeline, ["t"])
    execute(root, f"INSERT INTO `{database}`.other VALUES (1)")
    pipeline.drain()
    pipeline.drain()
    lines = [line for line in pipeline.lines if "differs from the server's" in line]
    assert any(f"{database}.t" in line and "the schema history is corrected" in line for line in lines), pipeline.lines
    assert [(scan.state, scan.rows) for scan in books(pipeline).scans.values()] == [("done", 1)]
    (after,) = [payload(record.value)["after"] for record in pipeline.records("t")]
    assert expected.items() <= after.items()
    execute(root, "SET GLOBAL binlog_row_metadata = MINIMAL")
