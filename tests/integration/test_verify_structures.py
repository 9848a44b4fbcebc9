"""A verification of streams whose tables have changed: unchanged rows are no differences, and damage is found."""

from __future__ import annotations

from typing import Any

import pytest
from kit.sql import execute
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.verify.verify_request import RepairMode, VerifyRequest
from airflow_provider_mysql_cdc.cdc.verify.verify_result import DifferenceKind

PLAIN = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
HISTORY = VerifyRequest(history=True)
MODIFIED = (
    ("DECIMAL(10,2)", "1.50", "DECIMAL(10,4)", {}),
    ("DECIMAL(10,4)", "1.50", "DECIMAL(10,2)", {}),
    ("DECIMAL(10,2)", "1.50", "VARCHAR(20)", {}),
    ("INT", "7", "VARCHAR(20)", {}),
    ("INT", "7", "DECIMAL(12,1)", {}),
    ("VARCHAR(20)", "'12'", "BIGINT", {}),
    ("VARCHAR(20)", "'ab'", "VARBINARY(20)", {}),
    ("DATETIME(3)", "'2020-01-02 03:04:05.678'", "DATETIME(6)", {}),
    ("DATETIME(6)", "'2020-01-02 03:04:05'", "DATETIME", {}),
    ("DATE", "'2020-01-02'", "DATETIME", {}),
    ("TIME(3)", "'03:04:05.5'", "TIME(6)", {"time.precision.mode": "adaptive"}),
    ("TINYINT", "1", "BIGINT UNSIGNED", {"bigint.unsigned.handling.mode": "precise"}),
    ("FLOAT", "1.5", "DOUBLE", {}),
    ("ENUM('a','b')", "'b'", "ENUM('b','c')", {}),
    ("BIT(1)", "1", "BIT(8)", {}),
    ("DECIMAL(10,2)", "1.50", "DECIMAL(10,4)", {"decimal.handling.mode": "string"}),
    ("DECIMAL(10,2)", "1.50", "DOUBLE", {"decimal.handling.mode": "double"}),
    ("CHAR(3)", "'x'", "TEXT", {}),
    ("YEAR", "2020", "INT", {}),
)


@pytest.mark.parametrize(("before", "value", "after", "more"), MODIFIED)
def test_without_schemas_unchanged_rows_of_a_changed_type_are_no_differences(
    before: str, value: str, after: str, more: dict[str, str], properties: dict[str, str], root: Any, database: str
) -> None:
    pipeline = Pipeline(properties | PLAIN | more)
    name = f"`{database}`.t"
    execute(root, f"CREATE TABLE {name} (id INT PRIMARY KEY, v {before}, w INT)")
    execute(root, f"INSERT INTO {name} VALUES " + ",".join(f"({i}, {value}, {i})" for i in range(6)))
    pipeline.snapshot()
    execute(root, f"INSERT INTO {name} VALUES (6, {value}, 6)", f"ALTER TABLE {name} MODIFY v {after}")
    execute(root, f"INSERT INTO {name} VALUES (7, {value}, 7)", f"UPDATE {name} SET w = 99 WHERE id < 2")
    result = pipeline.verify(HISTORY)
    assert result.clean, [(v.findings, v.examples[:3]) for v in result.tables]
    execute(root, "SET sql_log_bin = 0", f"UPDATE {name} SET v = NULL WHERE id = 3", "SET sql_log_bin = 1")
    execute(root, "SET sql_log_bin = 0", f"UPDATE {name} SET v = NULL WHERE id = 0", "SET sql_log_bin = 1")
    result = pipeline.verify()
    assert [dict(v.findings) for v in result.tables] == [{DifferenceKind.DIFFERING: 2}], result


@pytest.mark.parametrize("rows", [1, 600])
def test_a_value_that_only_another_type_makes_equal_is_found(
    rows: int, properties: dict[str, str], root: Any, database: str
) -> None:
    """1.50 of DECIMAL(10,2) and 0.0150 of DECIMAL(10,4) have the same text, and so the same checksum."""
    pipeline = Pipeline(properties | PLAIN)
    name = f"`{database}`.t"
    execute(root, f"CREATE TABLE {name} (id INT PRIMARY KEY, v DECIMAL(10,2))")
    execute(root, f"INSERT INTO {name} VALUES " + ",".join(f"({i}, 1.50)" for i in range(rows)))
    pipeline.snapshot()
    execute(root, f"ALTER TABLE {name} MODIFY v DECIMAL(10,4)")
    pipeline.drain()
    execute(root, "SET sql_log_bin = 0", f"UPDATE {name} SET v = 0.0150", "SET sql_log_bin = 1")
    result = pipeline.verify(VerifyRequest(repair=RepairMode.YES))
    assert [dict(v.findings) for v in result.tables] == [{DifferenceKind.DIFFERING: rows}], result
    assert pipeline.verify(HISTORY).equal


@pytest.mark.parametrize("schemas", ["true", "false"])
@pytest.mark.parametrize("key", [True, False])
def test_a_column_that_is_dropped_and_added_again_is_no_gap(
    properties: dict[str, str], root: Any, database: str, schemas: str, key: bool
) -> None:
    both = dict.fromkeys(PLAIN, schemas)
    pipeline = Pipeline(properties | both)
    name = f"`{database}`.t"
    execute(root, f"CREATE TABLE {name} (id INT {'PRIMARY KEY' if key else ''}, v INT, w INT)")
    execute(root, f"INSERT INTO {name} VALUES (1, 1, 1), (2, 2, 2), (3, 3, 3)")
    pipeline.snapshot()
    execute(root, f"ALTER TABLE {name} DROP v", f"ALTER TABLE {name} ADD v INT AFTER id")
    execute(root, f"UPDATE {name} SET w = 9 WHERE id = 1", f"DELETE FROM {name} WHERE id = 2")
    execute(root, f"ALTER TABLE {name} DROP v, ADD v INT DEFAULT 5 AFTER id", f"UPDATE {name} SET w = 8 WHERE id = 1")
    result = pipeline.verify(HISTORY)
    assert [dict(v.findings) for v in result.tables] in ([{}], [{DifferenceKind.DIFFERING: 1}]), result
