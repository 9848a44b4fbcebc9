"""A verification of topics in which rows or events come again, of tables without a key too."""

from __future__ import annotations

from typing import Any

import pytest
from kit.records import payload
from kit.sql import execute, rows
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.operate.reset_offset import reset_offset
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import (
    DifferenceKind,
    NotCompared,
    RepairMode,
    VerifyRequest,
)

PLAIN = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
UNLOGGED, LOGGED = "SET sql_log_bin = 0", "SET sql_log_bin = 1"


def place(root: Any) -> str:
    ((file, pos, *_),) = rows(root, "SHOW BINARY LOG STATUS")
    return f"{file}:{pos}"


def found(pipeline: Pipeline, request: VerifyRequest | None = None) -> list[dict[DifferenceKind, int]]:
    result = pipeline.verify(request)
    assert not any(v.not_compared for v in result.tables), result
    return [dict(v.findings) for v in result.tables]


@pytest.mark.exhaustive
def test_events_that_come_again_after_a_reset_count_once(properties: dict[str, str], root: Any, database: str) -> None:
    pipeline, name = Pipeline(properties | PLAIN), f"`{database}`.log"
    execute(root, f"CREATE TABLE {name} (line VARCHAR(20), n INT)", f"INSERT INTO {name} VALUES ('a', 1), ('b', 2)")
    pipeline.snapshot()
    execute(root, f"INSERT INTO {name} VALUES ('a', 1)")
    pipeline.drain()
    at = place(root)
    for compressed in ("ON", "OFF"):
        execute(root, f"SET SESSION binlog_transaction_compression = {compressed}", "BEGIN")
        execute(root, *[f"INSERT INTO {name} VALUES ('a', 1), ('c', 3)"] * 3, "COMMIT")
    execute(root, f"DELETE FROM {name} WHERE line = 'a' LIMIT 1", f"UPDATE {name} SET n = 4 WHERE line = 'b'")
    execute(root, "XA START 'x'", f"INSERT INTO {name} VALUES ('a', 1)", "XA END 'x'", "XA PREPARE 'x'")
    execute(root, "XA COMMIT 'x'")
    pipeline.drain()
    assert found(pipeline) == [{}]
    for _ in range(2):
        reset_offset(pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log, to=at)
        execute(root, f"INSERT INTO {name} VALUES ('a', 1)")
        assert found(pipeline) == [{}]
    execute(
        root, UNLOGGED, f"INSERT INTO {name} VALUES ('a', 1)", f"DELETE FROM {name} WHERE line = 'c' LIMIT 2", LOGGED
    )
    expected = {DifferenceKind.MISSING: 1, DifferenceKind.GHOST: 2}
    assert found(pipeline, VerifyRequest(repair=RepairMode.YES)) == [expected]
    assert found(pipeline) == [{}]


def test_two_snapshots_at_one_position_in_one_second_are_two(
    properties: dict[str, str], root: Any, database: str
) -> None:
    pipeline, name = Pipeline(properties | PLAIN), f"`{database}`.log"
    execute(root, f"CREATE TABLE {name} (line VARCHAR(20), n INT)", f"INSERT INTO {name} VALUES ('a', 1), ('a', 1)")
    pipeline.snapshot()
    for _ in range(3):
        pipeline.snapshot(again=True)
    assert len(pipeline.records("log")) == 8
    assert found(pipeline) == [{}]
    times = {value["source"]["ts_ms"] for value in map(payload, (r.value for r in pipeline.records("log")))}
    assert len(times) == 4, "each view has a second of its own"


@pytest.mark.exhaustive
def test_a_second_snapshot_of_a_table_without_a_key_in_ticdcs_protocol(
    properties: dict[str, str], registry: str, root: Any, database: str
) -> None:
    ticdc = {"value.format": "ticdc-avro", "schema-registry": registry, "enable-tidb-extension": "true"}
    pipeline, name = Pipeline(properties | ticdc), f"`{database}`.log"
    execute(root, f"CREATE TABLE {name} (line VARCHAR(20), n INT)", f"INSERT INTO {name} VALUES ('a', 1), ('a', 1)")
    pipeline.snapshot()
    execute(root, f"INSERT INTO {name} VALUES ('a', 1), ('b', 2)")
    pipeline.drain()
    assert found(pipeline) == [{}]
    pipeline.snapshot(again=True)
    assert found(pipeline) == [{}]
    execute(root, f"INSERT INTO {name} VALUES ('a', 1)", f"UPDATE {name} SET n = 3 WHERE line = 'b'")
    result = pipeline.verify()
    execute(root, UNLOGGED, f"INSERT INTO {name} VALUES ('a', 1)", LOGGED)
    again = pipeline.verify()
    assert dict(again.tables[0].findings).get(DifferenceKind.MISSING) == 1 + dict(result.tables[0].findings).get(
        DifferenceKind.MISSING, 0
    )


@pytest.mark.exhaustive
def test_rows_without_a_key_are_not_judged_behind_a_reset_to_before_a_snapshot(
    properties: dict[str, str], root: Any, database: str
) -> None:
    pipeline, name = Pipeline(properties | PLAIN), f"`{database}`.log"
    execute(root, f"CREATE TABLE {name} (line VARCHAR(20), n INT)", f"INSERT INTO {name} VALUES ('a', 1), ('b', 2)")
    at = place(root)
    execute(root, f"INSERT INTO {name} VALUES ('a', 1), ('c', 3)", f"UPDATE {name} SET n = 4 WHERE line = 'c'")
    pipeline.snapshot()
    assert found(pipeline) == [{}]
    reset_offset(pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log, to=at)
    for _ in range(2):
        (judged,) = pipeline.verify().tables
        assert judged.not_compared is NotCompared.UNDECIDABLE and "that a snapshot contains" in judged.unknown[0]
        pipeline.snapshot(again=True)
