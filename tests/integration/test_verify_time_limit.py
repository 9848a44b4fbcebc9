"""A verification whose queries the server ends because of their time."""

from __future__ import annotations

from typing import Any

import pytest
from kit.sql import execute
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.errors import SourceError

LARGE = "SELECT NULL, REPEAT('x', 500000)"


def test_a_query_that_takes_too_long_is_named_and_one_that_does_not_is_read(
    properties: dict[str, str], root: Any, database: str
) -> None:
    limit, chunk = {"verify.max.execution.time.ms": "1"}, {"snapshot.chunk.rows": "1000"}
    pipeline = Pipeline(properties | limit | chunk)
    rows = " UNION ALL ".join([LARGE] * 60)
    execute(
        root,
        f"CREATE TABLE `{database}`.t (id INT AUTO_INCREMENT PRIMARY KEY, v LONGTEXT)",
        f"INSERT INTO `{database}`.t {rows}",
    )
    pipeline.snapshot()
    with pytest.raises(SourceError, match=r"verify\.max\.execution\.time\.ms=1") as raised:
        pipeline.verify()
    assert raised.value.can_retry
    pipeline.properties |= {"verify.max.execution.time.ms": "60000"}
    assert pipeline.verify().verdict == "equal"
