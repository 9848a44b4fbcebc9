"""Records whose keys say little, or nothing, and rows whose records had other keys: each is told, none invented."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kit.repairs import LOGGED, UNLOGGED, verdict
from kit.sql import execute
from kit.topic_damage import TopicDamage
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord
from airflow_provider_mysql_cdc.cdc.verify.report.verify_request import RepairMode, VerifyRequest
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import DifferenceKind as Kind
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import VerifyResult

PROPERTIES = {"topic.creation.default.partitions": "3"}
PLAIN = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
CHECKS = VerifyRequest(), VerifyRequest(checksums=False), VerifyRequest(history=True)
REPAIR = VerifyRequest(history=True, repair=RepairMode.YES)
ROUTED = {
    "transforms": "route",
    "transforms.route.type": "io.debezium.transforms.ByLogicalTableRouter",
    "transforms.route.topic.regex": "(.*)\\.routed_[^.]*",
    "transforms.route.topic.replacement": "$1.routed",
}


def findings(result: VerifyResult) -> dict[str, dict[Kind, int]]:
    """Return what was found of each table that has findings, or was not judged."""
    return {v.table.partition(".")[2]: dict(v.findings) for v in result.tables if v.findings or not v.judged}


def of_row(damage: TopicDamage, table: str, id_: int) -> TopicRecord:
    """Return the first record of a row."""
    for record in damage.pipeline.records(damage.table):
        event = damage.decode(record.value)
        if event and event["source"]["table"] == table and (event["after"] or {}).get("id") == id_:
            return record
    raise AssertionError(f"no record of row {id_} of {table}")


def test_records_without_keys_and_those_of_tables_that_share_a_topic(
    pipeline: Pipeline, root: Any, database: str
) -> None:
    pipeline.properties |= PLAIN | ROUTED
    keys = {"view": "", "copy": "", "bare": "PRIMARY KEY", "routed_a": "PRIMARY KEY", "routed_b": "PRIMARY KEY"}
    tables = {table: f"`{database}`.{table}" for table in keys}
    for table, name in tables.items():
        execute(root, f"CREATE TABLE {name} (id INT {keys[table]}, v INT)", f"INSERT INTO {name} VALUES (1, 1), (2, 2)")
    pipeline.snapshot()
    for name in tables.values():
        execute(root, f"INSERT INTO {name} VALUES (3, 3), (4, 4)", f"DELETE FROM {name} WHERE id = 4")
    for request in CHECKS:
        assert findings(pipeline.verify(request)) == {}, request

    def of_a_later_view(event: dict[str, Any]) -> None:
        event["source"]["ts_ms"] += 60_000

    for table in ("view", "copy"):
        damage = TopicDamage(pipeline, table)
        record = of_row(damage, table, 1)
        damage.produce((None, damage.edited(record, of_a_later_view) if table == "view" else record.value, 2))
    TopicDamage(pipeline, "bare").produce((None, None, 1))
    shared = TopicDamage(pipeline, "routed")
    one, two = of_row(shared, "routed_a", 1), of_row(shared, "routed_b", 2)
    shared.produce((one.key, None, one.partition), (two.key, b"\xff damaged", two.partition))
    left = {"bare": {Kind.UNREADABLE: 1}}
    expected = {
        "view": {Kind.GHOST: 1},
        "copy": {Kind.GHOST: 1},
        "routed_a": {Kind.MISSING: 1},
        "routed_b": {Kind.UNREADABLE: 1},
    }
    for request in CHECKS:
        result = pipeline.verify(request)
        assert findings(result) == expected | left, request
        assert "neither a key nor a value" in verdict(result, "bare").examples[0].record, request
    result = pipeline.verify(REPAIR)
    assert {table: verdict(result, table).repaired for table in expected} == expected
    for request in CHECKS:
        assert findings(pipeline.verify(request)) == left, request


def test_rows_whose_records_have_had_other_keys(pipeline: Pipeline, root: Any, database: str) -> None:
    """One has a record under a key of message.key.columns that no event ended; one was repaired by a key of before."""
    pipeline.properties |= PLAIN | {"message.key.columns": r"(.*)\.chosen:name"}
    chosen, dropped = (f"`{database}`.{table}" for table in ("chosen", "dropped"))
    for name in (chosen, dropped):
        execute(root, f"CREATE TABLE {name} (id INT PRIMARY KEY, name VARCHAR(9), v INT)")
        execute(root, f"INSERT INTO {name} VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3), (4, 'd', 4), (5, 'e', 5)")
    pipeline.snapshot()
    execute(root, f"UPDATE {chosen} SET name = 'x' WHERE id = 1", f"DELETE FROM {chosen} WHERE id = 2")
    execute(root, f"UPDATE {chosen} SET id = 7 WHERE id = 4")
    execute(root, UNLOGGED, f"UPDATE {chosen} SET name = 'z' WHERE id = 5", LOGGED)
    execute(root, UNLOGGED, f"UPDATE {dropped} SET v = 9 WHERE id = 1", f"DELETE FROM {dropped} WHERE id = 2", LOGGED)
    repaired = {"chosen": {Kind.DIFFERING: 1}, "dropped": {Kind.DIFFERING: 1, Kind.GHOST: 1}}
    result = pipeline.verify(VerifyRequest(repair=RepairMode.YES))
    assert {table: verdict(result, table).repaired for table in repaired} == repaired
    for request in CHECKS:
        assert findings(pipeline.verify(request)) == {}, request
    execute(root, UNLOGGED, f"UPDATE {chosen} SET name = 'y' WHERE id = 3", LOGGED)
    execute(root, f"UPDATE {chosen} SET v = 7 WHERE id = 3", f"ALTER TABLE {dropped} DROP PRIMARY KEY")
    reasons = {"chosen": "a key of message.key.columns that they no longer have", "dropped": "of an earlier structure"}
    for request in CHECKS:
        result = pipeline.verify(request)
        assert findings(result) == {"chosen": {}, "dropped": {}}, request
        for table, reason in reasons.items():
            assert any(reason in said for said in verdict(result, table).unknown), (request, table)


def test_a_renamed_key_and_a_record_of_nothing_in_ticdcs_protocol(
    pipeline: Pipeline, root: Any, database: str, registry: str
) -> None:
    pipeline.properties |= {"value.format": "ticdc-avro", "schema-registry": registry, "enable-tidb-extension": "true"}
    renamed, bare = (f"`{database}`.{table}" for table in ("renamed", "bare"))
    for name in (renamed, bare):
        execute(root, f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT)", f"INSERT INTO {name} VALUES (1, 1), (2, 2)")
    pipeline.snapshot()
    execute(root, f"ALTER TABLE {renamed} CHANGE id id2 INT", f"UPDATE {renamed} SET v = 9 WHERE id2 = 1")
    pipeline.drain()
    TopicDamage(pipeline, "bare", registry).produce((None, None, 1))
    for request in CHECKS:
        result = pipeline.verify(request)
        assert findings(result) == {"renamed": {}, "bare": {Kind.UNREADABLE: 1}}, request
        assert any("do not say the present one" in said for said in verdict(result, "renamed").unknown), request


@pytest.mark.exhaustive
def test_equal_rows_that_a_dispatcher_writes_to_several_partitions_are_counted_from_the_last_view_on(
    pipeline: Pipeline, root: Any, database: str, registry: str
) -> None:
    topic = f"{pipeline.properties['topic.prefix']}.{{schema}}.{{table}}"
    rules = json.dumps([{"matcher": ["*.*"], "topic": topic, "partition": "ts"}])
    ticdc = {"value.format": "ticdc-avro", "schema-registry": registry, "enable-tidb-extension": "true"}
    pipeline.properties |= ticdc | {"dispatchers": rules}
    name = f"`{database}`.log"
    execute(root, f"CREATE TABLE {name} (id INT, v INT)", f"INSERT INTO {name} VALUES (1, 1), (2, 2), (1, 1)")
    for number in range(4):
        pipeline.snapshot(again=number > 0)
        execute(root, f"INSERT INTO {name} VALUES (1, 1)")
        assert findings(pipeline.verify()) == {}, number
    execute(root, UNLOGGED, f"INSERT INTO {name} VALUES (1, 1)", LOGGED)
    assert findings(pipeline.verify()) == {"log": {Kind.MISSING: 1}}
