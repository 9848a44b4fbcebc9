"""A verification of streams whose tables have changed: unchanged rows are no differences, and damage is found."""

from __future__ import annotations

from typing import Any

import pytest
from kit.repairs import LOGGED, UNLOGGED, verdict
from kit.sql import execute
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import DifferenceKind, RepairMode, VerifyRequest

PLAIN = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
HISTORY = VerifyRequest(history=True)
# Type, value and later type of a column, one table each, by the modes in which they are written.
MODIFIED: dict[str, tuple[dict[str, str], tuple[tuple[str, str, str], ...]]] = {
    "as they are": (
        {},
        (
            ("DECIMAL(10,2)", "1.50", "DECIMAL(10,4)"),
            ("DECIMAL(10,4)", "1.50", "DECIMAL(10,2)"),
            ("DECIMAL(10,2)", "1.50", "VARCHAR(20)"),
            ("INT", "7", "VARCHAR(20)"),
            ("INT", "7", "DECIMAL(12,1)"),
            ("VARCHAR(20)", "'12'", "BIGINT"),
            ("VARCHAR(20)", "'ab'", "VARBINARY(20)"),
            ("DATETIME(3)", "'2020-01-02 03:04:05.678'", "DATETIME(6)"),
            ("DATETIME(6)", "'2020-01-02 03:04:05'", "DATETIME"),
            ("DATE", "'2020-01-02'", "DATETIME"),
            ("FLOAT", "1.5", "DOUBLE"),
            ("ENUM('a','b')", "'b'", "ENUM('b','c')"),
            ("BIT(1)", "1", "BIT(8)"),
            ("CHAR(3)", "'x'", "TEXT"),
            ("YEAR", "2020", "INT"),
        ),
    ),
    "texts": (
        {
            "time.precision.mode": "adaptive",
            "bigint.unsigned.handling.mode": "precise",
            "decimal.handling.mode": "string",
        },
        (
            ("TIME(3)", "'03:04:05.5'", "TIME(6)"),
            ("TINYINT", "1", "BIGINT UNSIGNED"),
            ("DECIMAL(10,2)", "1.50", "DECIMAL(10,4)"),
        ),
    ),
}


@pytest.mark.exhaustive(but="texts")
@pytest.mark.parametrize("mode", MODIFIED)
def test_without_schemas_unchanged_rows_of_a_changed_type_are_no_differences(
    mode: str, properties: dict[str, str], root: Any, database: str
) -> None:
    more, modified = MODIFIED[mode]
    pipeline = Pipeline(properties | PLAIN | more)
    tables = {f"t{number:02}": each for number, each in enumerate(modified)}
    for table, (before, value, _) in tables.items():
        execute(root, f"CREATE TABLE `{database}`.{table} (id INT PRIMARY KEY, v {before}, w INT)")
        execute(root, f"INSERT INTO `{database}`.{table} VALUES " + ",".join(f"({i}, {value}, {i})" for i in range(6)))
    pipeline.snapshot()
    for table, (_, value, after) in tables.items():
        name = f"`{database}`.{table}"
        execute(root, f"INSERT INTO {name} VALUES (6, {value}, 6)", f"ALTER TABLE {name} MODIFY v {after}")
        execute(root, f"INSERT INTO {name} VALUES (7, {value}, 7)", f"UPDATE {name} SET w = 99 WHERE id < 2")
    result = pipeline.verify(HISTORY)
    others = [
        (modified[n], v.verdict, v.findings, v.examples[:3])
        for n, v in enumerate(result.tables)
        if v.verdict != "equal"
    ]
    # Text and bytes are not known to stand for the same.
    expected = [(each, "not judged", {}, ()) for each in modified if each[0] == "VARCHAR(20)" and "BINARY" in each[2]]
    assert others == expected and len(result.tables) == len(tables)
    execute(root, UNLOGGED, *(f"UPDATE `{database}`.{t} SET v = NULL WHERE id IN (0, 3)" for t in tables), LOGGED)
    result = pipeline.verify()
    for table, each in tables.items():
        assert verdict(result, table).findings == {DifferenceKind.DIFFERING: 2}, (each, verdict(result, table))


@pytest.mark.exhaustive
def test_a_value_that_only_another_type_makes_equal_is_found(
    properties: dict[str, str], root: Any, database: str
) -> None:
    """1.50 of DECIMAL(10,2) and 0.0150 of DECIMAL(10,4) have the same text, and so the same checksum."""
    pipeline = Pipeline(properties | PLAIN)
    tables = {f"`{database}`.few": 1, f"`{database}`.many": 600}
    for name, rows in tables.items():
        execute(root, f"CREATE TABLE {name} (id INT PRIMARY KEY, v DECIMAL(10,2))")
        execute(root, f"INSERT INTO {name} VALUES " + ",".join(f"({i}, 1.50)" for i in range(rows)))
    pipeline.snapshot()
    execute(root, *(f"ALTER TABLE {name} MODIFY v DECIMAL(10,4)" for name in tables))
    pipeline.drain()
    execute(root, UNLOGGED, *(f"UPDATE {name} SET v = 0.0150" for name in tables), LOGGED)
    result = pipeline.verify(VerifyRequest(repair=RepairMode.YES))
    found = [dict(v.findings) for v in result.tables]
    assert found == [{DifferenceKind.DIFFERING: rows} for rows in tables.values()], result
    assert pipeline.verify(HISTORY).equal


@pytest.mark.parametrize("schemas", ["true", "false"])
def test_a_column_that_is_dropped_and_added_again_is_no_gap(
    properties: dict[str, str], root: Any, database: str, schemas: str
) -> None:
    pipeline = Pipeline(properties | dict.fromkeys(PLAIN, schemas))
    tables = {f"`{database}`.keyed": "PRIMARY KEY", f"`{database}`.plain": ""}
    for name, key in tables.items():
        execute(root, f"CREATE TABLE {name} (id INT {key}, v INT, w INT)")
        execute(root, f"INSERT INTO {name} VALUES (1, 1, 1), (2, 2, 2), (3, 3, 3)")
    pipeline.snapshot()
    for name in tables:
        execute(root, f"ALTER TABLE {name} DROP v", f"ALTER TABLE {name} ADD v INT AFTER id")
        execute(root, f"UPDATE {name} SET w = 9 WHERE id = 1", f"DELETE FROM {name} WHERE id = 2")
        execute(root, f"ALTER TABLE {name} DROP v, ADD v INT DEFAULT 5 AFTER id")
        execute(root, f"UPDATE {name} SET w = 8 WHERE id = 1")
    for each in pipeline.verify(HISTORY).tables:
        assert dict(each.findings) in ({}, {DifferenceKind.DIFFERING: 1}), each


@pytest.mark.parametrize("schemas", ["false", pytest.param("true", marks=pytest.mark.exhaustive)])
@pytest.mark.days("even")
def test_a_repair_deletes_ghosts_whose_columns_the_history_does_not_know(
    schemas: str, properties: dict[str, str], root: Any, database: str
) -> None:
    """It was recorded anew since then: the delete has the columns of the ghost."""
    pipeline = Pipeline(properties | dict.fromkeys(PLAIN, schemas))
    for table in ("dropped", "renamed"):
        execute(root, f"CREATE TABLE `{database}`.{table} (id INT PRIMARY KEY, v INT, s VARCHAR(9))")
        execute(root, f"INSERT INTO `{database}`.{table} VALUES (1, 1, 'a'), (2, 2, 'b')")
    pipeline.snapshot()
    execute(root, f"ALTER TABLE `{database}`.dropped DROP s", f"ALTER TABLE `{database}`.renamed CHANGE id id2 INT")
    pipeline.drain()
    pipeline.properties["snapshot.mode"] = "recovery"
    pipeline.snapshot()
    pipeline.properties["snapshot.mode"] = "initial"
    execute(root, UNLOGGED, f"DELETE FROM `{database}`.dropped WHERE id = 1", LOGGED)
    repaired = pipeline.verify(VerifyRequest(repair=RepairMode.YES))
    assert verdict(repaired, "dropped").repaired == {DifferenceKind.GHOST: 1}
    assert verdict(repaired, "renamed").repaired == {DifferenceKind.GHOST: 2, DifferenceKind.MISSING: 2}
    for checksums in (True, False):
        assert pipeline.verify(VerifyRequest(checksums=checksums)).verdict == "equal", checksums
