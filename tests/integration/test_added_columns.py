"""Columns whose values no event tells, because the server filled them when they were added."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kit.avro_rig import avro
from kit.incremental_rig import unfinished_request
from kit.records import payload
from kit.repairs import LOGGED, UNLOGGED, verdict
from kit.sql import execute, rows
from kit.table_rig import interrupt
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import DifferenceKind as Kind
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import RepairMode, VerdictKind, VerifyRequest

FORMATS = {
    "json": {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"},
    "json with schemas": {"key.converter.schemas.enable": "true", "value.converter.schemas.enable": "true"},
}
UNTOLD = (
    "BIGINT AUTO_INCREMENT UNIQUE",
    "SERIAL",
    "DATETIME DEFAULT CURRENT_TIMESTAMP",
    "TIMESTAMP NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP",
    "INT DEFAULT (1 + 1)",
    "INT GENERATED ALWAYS AS (v * 2) STORED",
    "INT NOT NULL",
)
TOLD = (
    "INT",
    "BIGINT NOT NULL DEFAULT 7",
    "DECIMAL(9,2) DEFAULT 1.5",
    "VARCHAR(9) NOT NULL DEFAULT ''",
    "DATETIME(3) DEFAULT '2020-01-01 00:00:00.5'",
    "ENUM('a','b') DEFAULT 'b'",
    "JSON",
)
ZONED = "TIMESTAMP NULL DEFAULT '2020-01-01 00:00:00'"
VERIFICATIONS = (VerifyRequest(), VerifyRequest(checksums=False))


@pytest.mark.exhaustive(but="^json$")
@pytest.mark.parametrize("name", ["json", "json with schemas", "avro"])
@pytest.mark.days("odd")
def test_rows_without_values_that_no_event_tells_differ(
    name: str, properties: dict[str, str], root: Any, database: str, registry: str
) -> None:
    pipeline = Pipeline(properties | (avro(registry) if name == "avro" else FORMATS[name]))
    columns = [*UNTOLD, *TOLD, ZONED]
    for number, _ in enumerate(columns):
        execute(root, f"CREATE TABLE `{database}`.t{number:02} (id INT PRIMARY KEY, v INT)")
        execute(root, f"INSERT INTO `{database}`.t{number:02} VALUES (1, 1), (2, 2), (3, 3)")
    pipeline.snapshot()
    for number, column in enumerate(columns):
        execute(root, f"ALTER TABLE `{database}`.t{number:02} ADD COLUMN z {column}")
        execute(root, f"UPDATE `{database}`.t{number:02} SET v = 9 WHERE id = 3")
    for request in VERIFICATIONS:
        result = pipeline.verify(request)
        for column, found in zip(columns, result.tables, strict=True):
            if column in UNTOLD:
                assert (found.findings, found.columns) == ({Kind.DIFFERING: 2}, {"z": 2}), (column, found)
            elif column == ZONED:
                assert found.verdict is VerdictKind.NOT_JUDGED and "in columns z" in found.unknown[0], found
            else:
                assert found.verdict == "equal", (column, found)
    told = [f"`{database}`.t{n:02}" for n, column in enumerate(columns) if column in TOLD]
    other = {"JSON": "'[]'", "ENUM('a','b') DEFAULT 'b'": "'a'", TOLD[4]: "'2021-01-01'"}
    changed = [f"UPDATE {t} SET z = {other.get(c, 5)} WHERE id = 1" for t, c in zip(told, TOLD, strict=True)]
    execute(root, UNLOGGED, *changed, LOGGED)
    result = pipeline.verify(VerifyRequest(repair=RepairMode.YES))
    for column, found in zip(columns, result.tables, strict=True):
        expected = {} if column == ZONED else {Kind.DIFFERING: 2 if column in UNTOLD else 1}
        assert found.findings == found.repaired == expected, (column, found)
    assert [v.verdict for v in pipeline.verify().tables if v.verdict != "equal"] == [VerdictKind.NOT_JUDGED]


def test_a_half_read_table_is_read_again_when_values_are_added_that_no_event_tells(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pipeline.properties |= FORMATS["json"] | {"snapshot.chunk.rows": "10", "incremental.snapshot.chunk.size": "5"}
    execute(root, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, v INT)")
    execute(root, f"INSERT INTO `{database}`.t VALUES " + ",".join(f"({i}, {i})" for i in range(60)))
    interrupt(pipeline, monkeypatch, tmp_path / "fired", 4)
    execute(root, f"ALTER TABLE `{database}`.t ADD COLUMN z BIGINT AUTO_INCREMENT UNIQUE")
    for _ in range(5):
        pipeline.snapshot()
    assert unfinished_request(pipeline.cfg) is None
    last = {event["after"]["id"]: event["after"].get("z") for r in pipeline.records("t") if (event := payload(r.value))}
    assert last == dict(rows(root, f"SELECT id, z FROM `{database}`.t"))
    assert verdict(pipeline.verify(), "t").verdict == "equal"
