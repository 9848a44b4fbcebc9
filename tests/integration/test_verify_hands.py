"""Records that hands have written: what a consumer would read wrongly is reported."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka import Producer
from kit.sql import execute
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.verify.verify_request import RepairMode, VerifyRequest
from airflow_provider_mysql_cdc.cdc.verify.verify_result import DifferenceKind

PLAIN = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}


def produce(pipeline: Pipeline, table: str, key: bytes | None, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": pipeline.properties["kafka.bootstrap.servers"]})
    producer.produce(pipeline.table_topic(table), key=key, value=value)
    assert producer.flush(10) == 0


def findings(pipeline: Pipeline, table: str, request: VerifyRequest | None = None) -> dict[DifferenceKind, int]:
    (found,) = [v for v in pipeline.verify(request).tables if v.table.endswith("." + table)]
    return dict(found.findings)


@pytest.mark.parametrize("history", [True, False])
def test_a_record_of_another_table_is_reported_and_repaired(
    history: bool, properties: dict[str, str], root: Any, database: str
) -> None:
    pipeline = Pipeline(properties | PLAIN)
    for table in ("t", "o"):
        execute(root, f"CREATE TABLE `{database}`.{table} (id INT PRIMARY KEY, v INT)")
        execute(root, f"INSERT INTO `{database}`.{table} VALUES (1, 1), (2, 2)")
    pipeline.snapshot()
    (record, *_) = pipeline.records("o")
    assert record.value is not None
    produce(pipeline, "t", record.key, record.value)
    assert findings(pipeline, "t", VerifyRequest(history=history)) == {DifferenceKind.UNREADABLE: 1}
    assert findings(pipeline, "t", VerifyRequest(history=history, repair=RepairMode.YES))
    assert findings(pipeline, "t", VerifyRequest(history=history)) == {}


def test_a_table_of_a_former_name_has_its_events_in_its_own_topic(
    properties: dict[str, str], root: Any, database: str
) -> None:
    pipeline = Pipeline(properties | PLAIN)
    execute(
        root, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, v INT)", f"INSERT INTO `{database}`.t VALUES (1, 1)"
    )
    pipeline.snapshot()
    execute(root, f"RENAME TABLE `{database}`.t TO `{database}`.u", f"UPDATE `{database}`.u SET v = 2")
    execute(
        root, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, v INT)", f"INSERT INTO `{database}`.t VALUES (1, 9)"
    )
    assert findings(pipeline, "t") == {} == findings(pipeline, "u")


def test_true_is_not_one_in_a_document(properties: dict[str, str], root: Any, database: str) -> None:
    pipeline, name = Pipeline(properties | PLAIN), f"`{database}`.t"
    execute(root, f"CREATE TABLE {name} (id INT PRIMARY KEY, j JSON, b BIT(1))")
    execute(root, f"INSERT INTO {name} VALUES (1, '{{\"on\": true}}', b'1'), (2, '[0, 1]', b'0')")
    pipeline.snapshot()
    execute(root, "SET sql_log_bin = 0", f"UPDATE {name} SET j = '{{\"on\": 1}}' WHERE id = 1")
    execute(root, f"UPDATE {name} SET j = '[false, 1]' WHERE id = 2")
    assert findings(pipeline, "t", VerifyRequest(repair=RepairMode.YES)) == {DifferenceKind.DIFFERING: 2}
    assert findings(pipeline, "t") == {}
    event = json.loads(pipeline.records("t")[-1].value or b"")
    event["after"]["b"] = 0 if event["after"]["b"] is False else 1
    produce(pipeline, "t", pipeline.records("t")[-1].key, json.dumps(event).encode())
    assert findings(pipeline, "t") == {DifferenceKind.DIFFERING: 1}


@pytest.mark.parametrize("checksums", [True, False])
@pytest.mark.parametrize("change", [{"op": "d"}, {"op": "c", "after": None}])
def test_an_operation_that_does_not_fit_its_row_is_reported(
    change: dict[str, Any], checksums: bool, properties: dict[str, str], root: Any, database: str
) -> None:
    pipeline = Pipeline(properties | PLAIN)
    execute(
        root, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, v INT)", f"INSERT INTO `{database}`.t VALUES (1, 1)"
    )
    pipeline.snapshot()
    (record,) = pipeline.records("t")
    produce(pipeline, "t", record.key, json.dumps(json.loads(record.value or b"") | change).encode())
    asked = VerifyRequest(checksums=checksums)
    assert findings(pipeline, "t", asked) == {DifferenceKind.UNREADABLE: 1}
    produce(
        pipeline, "t", record.key, json.dumps(json.loads(record.value or b"") | change, separators=(",", ":")).encode()
    )
    assert findings(pipeline, "t", asked) == {DifferenceKind.UNREADABLE: 2}
    assert findings(pipeline, "t", VerifyRequest(repair=RepairMode.YES))
    assert findings(pipeline, "t", asked) == {}
