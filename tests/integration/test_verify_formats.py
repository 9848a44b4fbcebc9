"""A verification of every format on real servers: after ALTER TABLE a stream verifies clean, a stale row does not."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from kit.avro_rig import avro
from kit.sql import execute
from kit.tiers import many
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import DifferenceKind, TableVerdict, VerifyResult

FORMATS: dict[str, dict[str, str]] = {
    "json with schemas": {"key.converter.schemas.enable": "true", "value.converter.schemas.enable": "true"},
    "json": {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"},
    "json 1.9": {"event.contract": "1.9", "decimal.handling.mode": "string"},
    "avro": {},
    "avro values": {},
    "ticdc": {"value.format": "ticdc-avro", "enable-tidb-extension": "true"},
}


def properties_of(name: str, registry: str) -> dict[str, str]:
    parts = {"avro": ("key", "value"), "avro values": ("value",)}.get(name, ())
    more = {"schema-registry": registry} if name == "ticdc" else avro(registry, *parts) if parts else {}
    return FORMATS[name] | more | {"topic.creation.default.partitions": "3"}


def verdict(result: VerifyResult, table: str) -> TableVerdict:
    (found,) = [v for v in result.tables if v.table.endswith("." + table)]
    return found


def fill(root: Any, db: str) -> None:
    execute(
        root,
        f"CREATE TABLE `{db}`.orders (id INT PRIMARY KEY, name VARCHAR(30), price DECIMAL(10,2), at DATETIME(3), "
        "j JSON, data VARBINARY(20), n INT, f FLOAT)",
        f"INSERT INTO `{db}`.orders VALUES "
        + ",".join(
            f"({i}, 'n{i}', {i}.5, '2020-01-01 00:00:0{i % 10}.123', '{{\"a\": {i}}}', X'00ff', {i}, {i}.1)"
            for i in range(30)
        ),
        f"CREATE TABLE `{db}`.log (line VARCHAR(20), n DECIMAL(10,2))",
        f"INSERT INTO `{db}`.log VALUES ('a', 1), ('a', 1), ('b', 2), (NULL, 3)",
    )


def change(root: Any, db: str) -> None:
    execute(
        root,
        f"UPDATE `{db}`.orders SET name = 'changed' WHERE id < 5",
        f"DELETE FROM `{db}`.orders WHERE id = 7",
        f"UPDATE `{db}`.orders SET id = 100 WHERE id = 8",
        f"INSERT INTO `{db}`.orders VALUES (200, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
    )


@pytest.mark.exhaustive(but="^(json|avro)$")
@pytest.mark.parametrize(
    "name", many([n for n in FORMATS if n not in ("json with schemas", "avro values")], list(FORMATS))
)
@pytest.mark.halves
def test_every_format(root: Any, properties: dict[str, str], database: str, registry: str, name: str) -> None:
    pipeline = Pipeline(properties | properties_of(name, registry))
    fill(root, database)
    pipeline.snapshot()
    change(root, database)
    if name != "ticdc":  # a deleted row without a key has no record there
        execute(root, f"DELETE FROM `{database}`.log WHERE line = 'b'", f"UPDATE `{database}`.log SET n = 9 LIMIT 1")
    result = pipeline.verify()
    assert result.verdict == "equal", result
    assert (verdict(result, "orders").rows, verdict(result, "orders").unjudged) == (30, 0)
    altered = "ADD COLUMN more INT, MODIFY n BIGINT, MODIFY at DATETIME(6)"
    if name != "json":  # a decimal there does not say its scale
        altered += ", MODIFY price DECIMAL(12,4)"
    execute(
        root,
        f"ALTER TABLE `{database}`.orders {altered}",
        f"UPDATE `{database}`.orders SET name = 'after' WHERE id = 2",
        f"ALTER TABLE `{database}`.log ADD COLUMN more INT",
    )
    result = pipeline.verify()
    log = verdict(result, "log")
    assert not log.findings and "events of an earlier structure" in log.unknown[0]
    orders = verdict(result, "orders")
    assert orders.verdict == "equal" and (orders.rows, orders.unjudged) == (30, 0), orders
    execute(root, "SET sql_log_bin = 0", f"UPDATE `{database}`.orders SET price = 77, n = -1 WHERE id = 3",
            f"UPDATE `{database}`.orders SET j = '[]', data = X'aa' WHERE id = 2", "SET sql_log_bin = 1")  # fmt: skip
    orders = verdict(pipeline.verify(), "orders")
    assert orders.findings[DifferenceKind.DIFFERING] == 2
    found = {example.key["id"]: set(example.columns) for example in orders.examples if example.columns}
    assert found == {3: {"n", "price"}, 2: {"data", "j"}}


@pytest.mark.parametrize("name", many(["avro"], ["json", "avro"]))
def test_other_message_keys(root: Any, properties: dict[str, str], database: str, registry: str, name: str) -> None:
    keys = {"message.key.columns": f"{database}.orders:name", "snapshot.chunk.rows": "10"}
    pipeline = Pipeline(properties | properties_of(name, registry) | keys)
    fill(root, database)
    pipeline.snapshot()
    change(root, database)
    execute(
        root,
        f"UPDATE `{database}`.orders SET id = 101 WHERE id = 9",
        f"DELETE FROM `{database}`.orders WHERE id = 4",
    )
    result = pipeline.verify()
    assert verdict(result, "orders").equal, result
    assert verdict(result, "orders").rows == 29
    execute(root, "SET sql_log_bin = 0", f"DELETE FROM `{database}`.orders WHERE id = 101", "SET sql_log_bin = 1")
    orders = verdict(pipeline.verify(), "orders")
    assert orders.findings == {DifferenceKind.GHOST: 1}
    assert [example.key for example in orders.examples] == [{"id": 101}]


def test_an_avro_record_of_an_unknown_schema_is_named_and_the_job_goes_on(
    root: Any, properties: dict[str, str], database: str, registry: str
) -> None:
    from confluent_kafka import Producer

    pipeline = Pipeline(properties | properties_of("avro", registry))
    fill(root, database)
    pipeline.snapshot()
    topic = pipeline.table_topic("orders")
    record = next(r for r in pipeline.read(topic))
    producer = Producer({"bootstrap.servers": pipeline.properties["kafka.bootstrap.servers"]})
    for value in (b"\0\x7f\0\0\1" + record.value[5:], record.value[:-2], json.dumps({"id": 1}).encode()):
        producer.produce(topic, key=record.key, value=value, partition=record.partition)
    assert producer.flush(10) == 0
    orders = verdict(replace(pipeline).verify(), "orders")
    assert orders.findings == {DifferenceKind.UNREADABLE: 3}
    reasons = " ".join(example.record for example in orders.examples)
    assert "does not have schema 2130706433 of the value" in reasons
    assert "is not Avro of its schema" in reasons and "with 7b22696422, and not with a schema id" in reasons
