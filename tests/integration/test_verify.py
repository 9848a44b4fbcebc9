"""A verification on real servers: clean streams verify clean, and each kind of damage is reported exactly."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from kit.sql import execute
from kit.verify_reads import before_reading
from pipelinelib.pipeline import Pipeline
from pipelinelib.submit import submit

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import (
    DifferenceKind,
    RepairMode,
    TableVerdict,
    VerifyRequest,
    VerifyResult,
)
from airflow_provider_mysql_cdc.cdc.verify.views import view_batch

PROPERTIES = {
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
    "snapshot.chunk.rows": "10",
    "snapshot.lock.timeout.ms": "60000",
    "topic.creation.default.partitions": "3",
}


def fill(root: Any, db: str) -> None:
    execute(
        root,
        f"CREATE TABLE `{db}`.orders (id INT PRIMARY KEY, name VARCHAR(30), price DECIMAL(10,2), at DATETIME(3), "
        "j JSON)",
        f"INSERT INTO `{db}`.orders VALUES "
        + ",".join(f"({i}, 'n{i}', {i}.5, '2020-01-01 00:00:0{i % 10}.123', '{{\"a\": {i}}}')" for i in range(30)),
        f"CREATE TABLE `{db}`.log (line VARCHAR(20), n INT)",
        f"INSERT INTO `{db}`.log VALUES ('a', 1), ('a', 1), ('b', 2), (NULL, 3)",
        f"CREATE TABLE `{db}`.empty_one (id INT PRIMARY KEY)",
    )


def change(root: Any, db: str) -> None:
    execute(
        root,
        f"UPDATE `{db}`.orders SET name = 'changed' WHERE id < 5",
        f"DELETE FROM `{db}`.orders WHERE id = 7",
        f"UPDATE `{db}`.orders SET id = 100 WHERE id = 8",
        f"INSERT INTO `{db}`.orders VALUES (200, NULL, NULL, NULL, NULL)",
        f"DELETE FROM `{db}`.log WHERE n = 2",
        f"UPDATE `{db}`.log SET n = 9 WHERE line = 'a' LIMIT 1",
    )


def verdict(result: VerifyResult, table: str) -> TableVerdict:
    (found,) = [v for v in result.tables if v.table.endswith("." + table)]
    return found


def produce(pipeline: Pipeline, topic: str, *records: tuple[bytes | None, bytes | None, int]) -> None:
    """Write records past the stream, as a hand in the topic does."""
    producer = Producer({"bootstrap.servers": pipeline.properties["kafka.bootstrap.servers"]})
    for key, value, partition in records:
        producer.produce(topic, key=key, value=value, partition=partition)
    assert producer.flush(10) == 0


def test_a_stream_verifies_clean_while_it_is_written_to(pipeline: Pipeline, root: Any, database: str) -> None:
    fill(root, database)
    pipeline.snapshot()
    change(root, database)
    result = pipeline.verify()
    assert result.verdict == "equal", result
    assert [(v.table, v.rows, v.unknown) for v in result.tables] == [
        (f"{database}.empty_one", 0, ()),
        (f"{database}.log", 3, ()),
        (f"{database}.orders", 30, ()),
    ]
    execute(root, f"INSERT INTO `{database}`.orders VALUES (300, 'later', 1, NULL, NULL)")
    again = pipeline.verify()
    assert again.verdict == "equal" and verdict(again, "orders").rows == 31
    assert again.offset.pos > result.offset.pos or again.offset.file > result.offset.file
    assert pipeline.drain() is None, "the verification has drained everything"


def test_each_kind_of_damage_is_reported_exactly(pipeline: Pipeline, root: Any, database: str) -> None:
    fill(root, database)
    pipeline.snapshot()
    topic = f"{pipeline.cfg.topic_prefix}.{database}.orders"
    records = {json.loads(r.key)["id"]: r for r in pipeline.read(topic)}

    def edited(id_: int, **columns: Any) -> bytes:
        event = json.loads(records[id_].value)
        event["after"] |= columns
        return json.dumps(event).encode()

    def key(id_: int) -> bytes:
        return json.dumps({"id": id_}, separators=(",", ":")).encode()

    deleted = json.loads(records[2].value) | {"op": "d", "after": None}
    produce(
        pipeline,
        topic,
        (key(1), edited(1, name="stale"), records[1].partition),
        (key(2), json.dumps(deleted).encode(), records[2].partition),
        (key(2), None, records[2].partition),
        (key(999), edited(3, id=999), 0),
        (key(4), b"\xff not json", records[4].partition),
        (key(5), records[5].value, (records[5].partition + 1) % 3),
        (key(6), None, records[6].partition),
    )
    result = pipeline.verify()
    orders = verdict(result, "orders")
    assert orders.findings == {
        DifferenceKind.DIFFERING: 1,
        DifferenceKind.MISSING: 2,
        DifferenceKind.GHOST: 1,
        DifferenceKind.UNREADABLE: 1,
        DifferenceKind.WRONG_PARTITION: 1,
    }
    assert not result.equal and verdict(result, "log").verdict == "equal"
    found = {example.finding: example for example in orders.examples}
    assert found[DifferenceKind.DIFFERING].key == {"id": 1}
    assert found[DifferenceKind.DIFFERING].columns == ("name",)
    assert found[DifferenceKind.DIFFERING].table_row["name"] == "n1"
    assert found[DifferenceKind.DIFFERING].topic_row["name"] == "stale"
    missing = [example.key for example in orders.examples if example.finding is DifferenceKind.MISSING]
    assert sorted(key["id"] for key in missing) == [2, 6], "one has a delete, one only a tombstone"
    assert found[DifferenceKind.GHOST].key == {"id": 999}
    assert found[DifferenceKind.WRONG_PARTITION].key == {"id": 5}
    assert orders.columns == {"name": 1}
    repaired = verdict(pipeline.verify(VerifyRequest(repair=RepairMode.YES)), "orders")
    assert repaired.repaired == repaired.findings == orders.findings, pipeline.lines
    assert pipeline.verify().verdict == "equal"


@pytest.mark.exhaustive
def test_a_second_snapshot_is_no_false_alarm_and_ghosts_are_still_found(
    pipeline: Pipeline, root: Any, database: str
) -> None:
    fill(root, database)
    pipeline.snapshot()
    time.sleep(1.1)  # two views are told apart by position and time of their rows, which may be in whole seconds
    pipeline.snapshot(again=True)
    assert pipeline.verify().verdict == "equal"
    change(root, database)
    execute(root, "SET sql_log_bin = 0", f"DELETE FROM `{database}`.log WHERE n = 3", "SET sql_log_bin = 1")
    result = pipeline.verify()
    assert verdict(result, "log").findings == {DifferenceKind.GHOST: 1} and verdict(result, "orders").verdict == "equal"


@pytest.mark.parametrize("schemas", ["false", pytest.param("true", marks=pytest.mark.exhaustive)])
def test_another_primary_key_is_no_false_alarm(
    properties: dict[str, str], root: Any, database: str, schemas: str
) -> None:
    with_schemas = {"key.converter.schemas.enable": schemas, "value.converter.schemas.enable": schemas}
    pipeline = Pipeline(properties | PROPERTIES | with_schemas)
    execute(root, f"CREATE TABLE `{database}`.plain (id INT, n INT)")
    execute(root, f"CREATE TABLE `{database}`.keyed (id INT PRIMARY KEY, n INT)")
    execute(root, *(f"INSERT INTO `{database}`.{t} VALUES (1,11),(2,12),(3,13),(4,14)" for t in ("plain", "keyed")))
    pipeline.snapshot()
    for table, alter in (("plain", "ADD PRIMARY KEY (n)"), ("keyed", "DROP PRIMARY KEY, ADD PRIMARY KEY (n)")):
        name = f"`{database}`.{table}"
        execute(root, f"DELETE FROM {name} WHERE id = 4", f"ALTER TABLE {name} {alter}")
        execute(root, f"UPDATE {name} SET n = 99 WHERE id = 2", f"DELETE FROM {name} WHERE id = 3")
    result = pipeline.verify(VerifyRequest(history=True))
    assert result.verdict == "equal" and [v.rows for v in result.tables] == [2, 2], result


def test_tables_are_chosen_unknown_ones_are_named_and_a_sample_is_the_same_share_of_both_sides(
    pipeline: Pipeline, root: Any, database: str
) -> None:
    fill(root, database)
    pipeline.snapshot()
    result = pipeline.verify(VerifyRequest(tables=(f"{database}.orders",), show_values=False))
    assert [v.table for v in result.tables] == [f"{database}.orders"]
    with pytest.raises(ConfigError, match="not captured"):
        pipeline.verify(VerifyRequest(tables=(f"{database}.nothing",)))
    result = pipeline.verify(VerifyRequest(sample_percent=40.0))
    assert result.verdict == "equal"
    assert 0 < verdict(result, "orders").rows < 30


@pytest.mark.exhaustive
@pytest.mark.spark
def test_a_verification_on_spark_finds_the_same(pipeline: Pipeline, root: Any, database: str, tmp_path: Path) -> None:
    fill(root, database)
    pipeline.snapshot()
    change(root, database)
    execute(root, "SET sql_log_bin = 0", f"DELETE FROM `{database}`.orders WHERE id = 20", "SET sql_log_bin = 1")
    # Several rounds in one session of Spark, with all limits.
    limits = {"group.rows": "1", "max.execution.time.ms": "60000", "rows.per.second": "100000"}
    pipeline.properties |= {f"verify.{name}": value for name, value in limits.items()}
    execute(root, f"ANALYZE TABLE `{database}`.orders, `{database}`.log")
    spec = pipeline.verify_spec()
    process = submit(spec, tmp_path)
    assert process.returncode == 0, process.stdout + process.stderr
    assert "verification: group 3 of 3" in process.stdout + process.stderr
    result = pipeline.verify_result(spec.run)
    assert verdict(result, "orders").findings == {DifferenceKind.GHOST: 1}
    assert [example.key for example in verdict(result, "orders").examples] == [{"id": 20}]
    assert verdict(result, "log").verdict == "equal"


def test_the_stream_goes_on_while_tables_and_topics_are_compared(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(root, database)
    pipeline.snapshot()
    drained: list[Any] = []

    def drain_first(topic: str) -> None:
        if not drained:
            drained.append(None)
            execute(
                root,
                f"UPDATE `{database}`.orders SET name = 'meanwhile'",
                f"DELETE FROM `{database}`.orders WHERE id = 3",
                f"INSERT INTO `{database}`.log VALUES ('new', 1)",
            )
            other = replace(pipeline, owner="test/other/task/-1")
            drained.append(other.drain())

    before_reading(monkeypatch, drain_first)
    result = pipeline.verify()
    assert drained[1].complete and sum(drained[1].counts.values()) > 30
    assert result.verdict == "equal" and verdict(result, "orders").rows == 30
    monkeypatch.undo()
    watermark, altered = view_batch.low_watermark, list[None]()

    def alter_first(*arguments: Any, **more: Any) -> Any:
        if not altered:
            altered.append(None)
            execute(root, f"ALTER TABLE `{database}`.orders ADD COLUMN late INT DEFAULT 5")
        return watermark(*arguments, **more)

    monkeypatch.setattr(view_batch, "low_watermark", alter_first)
    after = pipeline.verify()
    assert after.verdict == "equal" and verdict(after, "orders").rows == 29
    assert altered and any("altered meanwhile" in line for line in pipeline.lines)


@pytest.mark.exhaustive
def test_the_history_of_keys_is_checked_when_asked_for(pipeline: Pipeline, root: Any, database: str) -> None:
    fill(root, database)
    pipeline.snapshot()
    change(root, database)
    execute(root, f"ALTER TABLE `{database}`.orders ADD COLUMN more INT", f"UPDATE `{database}`.orders SET more = 1")
    history = VerifyRequest(history=True)
    assert pipeline.verify(history).verdict == "equal"
    topic = f"{pipeline.cfg.topic_prefix}.{database}.orders"
    records = [r for r in pipeline.read(topic) if r.key == b'{"id":1}']
    *_, last = records
    produce(pipeline, topic, (last.key, last.value, last.partition))
    result = pipeline.verify(history)
    assert result.equal and verdict(result, "orders").findings == {DifferenceKind.DUPLICATE: 1}
    assert [example.key for example in verdict(result, "orders").examples] == [{"id": 1}]
    assert pipeline.verify().verdict == "equal", "histories are read only when asked for"
