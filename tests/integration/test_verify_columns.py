"""Names and keys of columns that a verification's own statements and folds might stumble over."""

from __future__ import annotations

from typing import Any

import pytest
from kit.repairs import verdict
from kit.sql import execute
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import DifferenceKind as Kind
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import RepairMode, VerifyRequest

PLAIN = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
ROWS, REPAIR = VerifyRequest(checksums=False), VerifyRequest(repair=RepairMode.YES)


def test_a_column_may_have_the_name_of_what_checksums_are_grouped_by(
    properties: dict[str, str], root: Any, database: str
) -> None:
    execute(
        root,
        f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, bucket INT, checksum INT)",
        "SET SESSION cte_max_recursion_depth = 4000",
        f"INSERT INTO `{database}`.t WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 3000) "
        "SELECT i, i % 7, 3 FROM n",
        f"ANALYZE TABLE `{database}`.t",
    )
    pipeline = Pipeline(properties | PLAIN)
    pipeline.snapshot()
    found = verdict(pipeline.verify(), "t")
    assert found.verdict == "equal" and found.by_checksums and found.rows == 3000


@pytest.mark.days("odd")
def test_rows_that_have_one_key_in_records_are_not_equal_to_their_topic(
    properties: dict[str, str], root: Any, database: str
) -> None:
    pipeline = Pipeline(properties | PLAIN | {"decimal.handling.mode": "double"})
    execute(
        root,
        f"CREATE TABLE `{database}`.t (k DECIMAL(30,10) PRIMARY KEY, v INT)",
        f"INSERT INTO `{database}`.t VALUES (1, 1), (12345678901234567890.1, 2), (12345678901234567890.2, 3)",
    )
    pipeline.snapshot()
    for request in (VerifyRequest(), ROWS, VerifyRequest(history=True)):
        result = pipeline.verify(request)
        found = verdict(result, "t")
        assert found.findings == {Kind.MISSING: 1} and result.verdict != "equal", (request, found)
        assert found.examples[0].key == {"k": 1.2345678901234567e19}, (request, found)
        assert found.examples[0].table_row in (
            {"k": 1.2345678901234567e19, "v": 2},
            {"k": 1.2345678901234567e19, "v": 3},
        ), (request, found)
        assert "2 rows of the table have this key in records" in found.examples[0].record, (request, found)
    tried = verdict(pipeline.verify(REPAIR), "t")
    assert not tried.repaired and any("2 rows have the same key in records" in text for text in tried.unknown), tried
    execute(root, f"DELETE FROM `{database}`.t WHERE v > 1")
    # The past of the key is that of two rows, which only a look at each step tells.
    assert pipeline.verify().verdict == "equal" and pipeline.verify(ROWS).verdict == "equal"
