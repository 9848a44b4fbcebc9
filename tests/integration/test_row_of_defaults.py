"""An INSERT that names no column, with binlog_row_image=MINIMAL: the binlog holds an event without a byte of rows."""

from __future__ import annotations

from typing import Any

import pytest
from kit.records import payload
from kit.sql import execute
from pipelinelib.pipeline import Pipeline


@pytest.mark.req("SETUP-17")
def test_an_insert_that_names_no_column_arrives(properties: dict[str, str], root: Any, database: str) -> None:
    pipeline = Pipeline(
        properties | {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
    )
    execute(
        root,
        f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY DEFAULT 5, v VARCHAR(9) DEFAULT 'two')",
    )
    assert pipeline.snapshot().complete
    execute(
        root,
        "SET SESSION binlog_row_image = 'MINIMAL'",
        f"INSERT INTO `{database}`.t VALUES ()",
        f"INSERT INTO `{database}`.t (id) VALUES (6)",
        f"UPDATE `{database}`.t SET id = 7 WHERE id = 5",
        f"INSERT INTO `{database}`.t () VALUES ()",
    )
    outcome = pipeline.drain()
    assert outcome is not None and outcome.complete
    created = [payload(r.value) for r in pipeline.records("t") if r.value is not None]
    assert [(p["op"], p["after"] and p["after"]["id"]) for p in created] == [
        ("c", 5), ("c", 6), ("d", None), ("c", 7), ("c", 5),
    ]  # fmt: skip
    assert created[0]["after"] == created[-1]["after"] == {"id": 5, "v": "two"}
