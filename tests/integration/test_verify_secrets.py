"""A verification's ledger records and log lines hold no value of a masked column, also where it is part of a key."""

from __future__ import annotations

from typing import Any

from kit.sql import execute
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import DifferenceKind, RepairMode, VerifyRequest

SECRET = "card-4711-0815"


def test_a_masked_key_column_is_nowhere_in_the_ledger_or_the_log(
    properties: dict[str, str], root: Any, database: str
) -> None:
    rules = {
        "column.mask.with.10.chars": ".*masked\\.card",
        "column.mask.hash.SHA-256.with.salt.pepper": ".*hashed\\.card",
    }
    pipeline, names = Pipeline(properties | rules), [f"`{database}`.{table}" for table in ("hashed", "masked")]
    for name in names:
        execute(root, f"CREATE TABLE {name} (card VARCHAR(30) PRIMARY KEY, v INT)")
        execute(root, f"INSERT INTO {name} VALUES ('{SECRET}-1', 1), ('{SECRET}-2', 2), ('{SECRET}-3', 3)")
    pipeline.snapshot()
    execute(root, "SET sql_log_bin = 0")
    for name in names:
        execute(root, f"UPDATE {name} SET v = 9 WHERE v = 1", f"DELETE FROM {name} WHERE v = 2")
    for verdict in pipeline.verify(VerifyRequest(history=True, repair=RepairMode.DRY_RUN)).tables:
        assert dict(verdict.findings) == {DifferenceKind.DIFFERING: 1, DifferenceKind.GHOST: 1}, verdict
        assert {e.key["card"] for e in verdict.examples} == {"***"}, verdict
    for verdict in pipeline.verify(VerifyRequest(repair=RepairMode.YES)).tables:
        assert dict(verdict.repaired) == {DifferenceKind.DIFFERING: 1, DifferenceKind.GHOST: 1}, verdict
    stored = [text for record in pipeline.read(pipeline.cfg.ledger_topic) for text in (record.key, record.value)]
    assert stored and not any(SECRET.encode() in text for text in stored if text)
    assert not any(SECRET in line for line in pipeline.lines)
