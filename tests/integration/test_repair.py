"""Repair on real servers: damage of each kind is repaired exactly, while the source and the stream go on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka import Producer
from kit.records import compacted
from kit.repairs import LOGGED, REPAIR, UNLOGGED, damage_orders, fill, repair_records, repairs, verdict
from kit.sql import execute, rows
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.errors import RepairLimitError
from airflow_provider_mysql_cdc.cdc.verify.verify_request import RepairMode, VerifyRequest
from airflow_provider_mysql_cdc.cdc.verify.verify_result import DifferenceKind

PROPERTIES = {
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
    "snapshot.chunk.rows": "10",
    "topic.creation.default.partitions": "3",
}
MISSING, DIFFERING, GHOST = DifferenceKind.MISSING, DifferenceKind.DIFFERING, DifferenceKind.GHOST


def same(pipeline: Pipeline, root: Any, db: str) -> None:
    """Fail unless the topic of orders, compacted, is the table."""
    told = compacted(pipeline.records("orders"))
    names = sorted((row["id"], row["name"]) for row in told.values())
    assert names == sorted(rows(root, f"SELECT id, name FROM `{db}`.orders"))


def test_differences_are_repaired_and_verify_clean(pipeline: Pipeline, root: Any, database: str) -> None:
    fill(root, database)
    pipeline.snapshot()
    damage_orders(root, database)
    result = pipeline.verify(REPAIR)
    orders = verdict(result, "orders")
    assert orders.findings == orders.repaired == {MISSING: 2, DIFFERING: 2, GHOST: 2}, pipeline.lines
    assert verdict(result, "log").clean and verdict(result, "log").repaired == {}
    written = repair_records(pipeline, "orders")
    assert sorted((op or "", key["id"]) for op, key, _ in written) == [
        ("", 3), ("", 4), ("d", 3), ("d", 4), ("r", 10), ("r", 11), ("r", 100), ("r", 101),
    ]  # fmt: skip
    assert {row["name"] for op, _, row in written if op == "r"} == {"unlogged", "Zoë", None}
    (record,) = repairs(pipeline)
    assert (record.run, record.table, record.owner) == (result.run, f"{database}.orders", pipeline.owner)
    assert record.repaired == orders.repaired
    again = pipeline.verify(REPAIR)
    assert again.equal and not any(v.repaired for v in again.tables)
    assert len(repair_records(pipeline, "orders")) == 8 and len(repairs(pipeline)) == 1
    same(pipeline, root, database)


def test_rows_without_a_key_are_repaired_by_number(pipeline: Pipeline, root: Any, database: str) -> None:
    fill(root, database)
    pipeline.snapshot()
    execute(
        root,
        UNLOGGED,
        f"INSERT INTO `{database}`.log VALUES ('b', 2), ('b', 2), (NULL, 9)",
        f"DELETE FROM `{database}`.log WHERE line = 'a'",
        LOGGED,
    )
    result = pipeline.verify(REPAIR)
    assert verdict(result, "log").repaired == {MISSING: 3, GHOST: 2}, pipeline.lines
    written = [(op, row["line"], row["n"]) for op, _, row in repair_records(pipeline, "log")]
    assert sorted(written, key=str) == [("d", "a", 1), ("d", "a", 1), ("r", "b", 2), ("r", "b", 2), ("r", None, 9)]
    assert pipeline.verify().equal


def test_a_dry_run_writes_nothing(pipeline: Pipeline, root: Any, database: str) -> None:
    fill(root, database)
    pipeline.snapshot()
    damage_orders(root, database)
    result = pipeline.verify(VerifyRequest(repair=RepairMode.DRY_RUN))
    assert verdict(result, "orders").findings == {MISSING: 2, DIFFERING: 2, GHOST: 2}
    assert verdict(result, "orders").repaired == {}
    assert repair_records(pipeline, "orders") == [] and repairs(pipeline) == []
    assert any("2 ghost, 2 " in line and "nothing is written (dry run)" in line for line in pipeline.lines)
    assert pipeline.verify(REPAIR).tables[1].repaired == {MISSING: 2, DIFFERING: 2, GHOST: 2}


def test_more_differences_than_allowed_are_named_and_none_is_written(
    pipeline: Pipeline, root: Any, database: str
) -> None:
    fill(root, database)
    pipeline.snapshot()
    damage_orders(root, database)
    pipeline.properties["repair.max.rows"] = "5"
    with pytest.raises(RepairLimitError, match=r"6 rows differ.*none was written.*repair\.max\.rows=6"):
        pipeline.verify(REPAIR)
    assert repair_records(pipeline, "orders") == [] and repairs(pipeline) == []
    pipeline.properties["repair.max.rows"] = "6"
    assert verdict(pipeline.verify(REPAIR), "orders").repaired == {MISSING: 2, DIFFERING: 2, GHOST: 2}


def test_hands_in_the_topic_are_repaired(pipeline: Pipeline, root: Any, database: str) -> None:
    fill(root, database)
    pipeline.snapshot()
    topic = pipeline.table_topic("orders")
    records = {json.loads(r.key)["id"]: r for r in pipeline.read(topic)}
    stale = json.loads(records[1].value)
    stale["after"]["name"] = "stale"
    ghost = json.loads(records[2].value)
    ghost["after"]["id"] = 999
    gone = json.loads(records[5].value) | {"op": "d", "before": json.loads(records[5].value)["after"], "after": None}
    producer = Producer({"bootstrap.servers": pipeline.properties["kafka.bootstrap.servers"]})
    producer.produce(topic, key=records[1].key, value=json.dumps(stale).encode(), partition=records[1].partition)
    producer.produce(topic, key=b'{"id":999}', value=json.dumps(ghost).encode(), partition=2)
    producer.produce(topic, key=records[5].key, value=json.dumps(gone).encode(), partition=records[5].partition)
    assert producer.flush(10) == 0
    result = pipeline.verify(REPAIR)
    assert verdict(result, "orders").repaired == {DIFFERING: 1, GHOST: 1, MISSING: 1}, pipeline.lines
    assert [r.partition for r in pipeline.records("orders") if r.key == b'{"id":999}'] == [2, 2, 2]
    assert pipeline.verify().equal
    same(pipeline, root, database)
