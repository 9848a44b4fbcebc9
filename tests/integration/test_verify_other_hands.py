"""Records whose keys say little, or nothing, and rows whose records had other keys: each is told, none invented."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from kit.avro_rig import avro
from kit.incremental_rig import ask_for
from kit.repairs import LOGGED, UNLOGGED, verdict
from kit.sql import execute
from kit.topic_damage import TopicDamage
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import DifferenceKind as Kind
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import RepairMode, VerifyRequest, VerifyResult

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


@pytest.mark.days("even")
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
    damage.copy(of_row(damage, "copy", 3))  # no reset has let the stream read it again
    TopicDamage(pipeline, "bare").produce((None, None, 1))
    shared = TopicDamage(pipeline, "routed")
    one, two = of_row(shared, "routed_a", 1), of_row(shared, "routed_b", 2)
    shared.produce((one.key, None, one.partition), (two.key, b"\xff damaged", two.partition))
    left = {"bare": {Kind.UNREADABLE: 1}}
    expected = {
        "view": {Kind.GHOST: 1},
        "copy": {Kind.GHOST: 2},
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


@pytest.mark.days("odd")
def test_rows_whose_records_have_had_other_keys(pipeline: Pipeline, root: Any, database: str) -> None:
    """One has a record under a key of message.key.columns that no event ended; one was repaired by a key of before.

    Of the third one, columns have swapped their names before one of them came into the key.
    """
    pipeline.properties |= PLAIN | {"message.key.columns": r"(.*)\.chosen:name"}
    chosen, dropped, swapped = (f"`{database}`.{table}" for table in ("chosen", "dropped", "swapped"))
    for name in (chosen, dropped, swapped):
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
    execute(root, f"ALTER TABLE {swapped} RENAME COLUMN name TO v, RENAME COLUMN v TO name")
    execute(root, f"UPDATE {swapped} SET v = 'x' WHERE id = 1", f"DELETE FROM {swapped} WHERE id = 2")
    execute(root, f"ALTER TABLE {swapped} DROP PRIMARY KEY, ADD PRIMARY KEY (id, name)")
    reasons = {"chosen": "a key of message.key.columns that they no longer have", "dropped": "of an earlier structure"}
    reasons["swapped"] = "do not say the present one"
    for request in CHECKS:
        result = pipeline.verify(request)
        assert findings(result) == {"chosen": {}, "dropped": {}, "swapped": {}}, request
        for table, reason in reasons.items():
            assert any(reason in said for said in verdict(result, table).unknown), (request, table)


@pytest.mark.days("even")
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
    damage = TopicDamage(pipeline, "bare", registry)
    damage.produce((None, None, 1), (None, damage.last(1).value, 1))
    for request in CHECKS:
        result = pipeline.verify(request)
        assert findings(result) == {"renamed": {}, "bare": {Kind.UNREADABLE: 2}}, request
        assert any("do not say the present one" in said for said in verdict(result, "renamed").unknown), request


@pytest.mark.days("even")
def test_rows_of_views_that_the_ledger_does_not_know(pipeline: Pipeline, root: Any, database: str) -> None:
    """Whole and ad-hoc snapshots have read a table without a key again; other hands have written rows as if one had."""
    pipeline.properties |= PLAIN
    name = f"`{database}`.t"
    execute(root, f"CREATE TABLE {name} (id INT, v INT)", f"INSERT INTO {name} VALUES (1, 1), (1, 1), (2, 2)")
    pipeline.snapshot()
    for _ in range(2):
        execute(root, f"INSERT INTO {name} VALUES (1, 1), (3, 3)", f"DELETE FROM {name} WHERE id = 3")
        pipeline.drain()
        pipeline.snapshot(again=True)
    for number in range(2):
        ask_for(pipeline, ["t"], f"b{number}", kind="blocking")
        pipeline.drain()
        execute(root, f"DELETE FROM {name} WHERE id = 1 LIMIT 1", f"INSERT INTO {name} VALUES (5, 5)")
    for request in CHECKS:
        assert findings(pipeline.verify(request)) == {}, request

    def of_a_view(event: dict[str, Any]) -> None:
        event["op"] = "r"
        event["source"]["ts_ms"] += 60_000

    damage = TopicDamage(pipeline, "t")
    for id_ in (1, 5):
        damage.produce((None, damage.edited(of_row(damage, "t", id_), of_a_view), 0))
    for request in CHECKS:
        assert findings(pipeline.verify(request)) == {"t": {Kind.GHOST: 2}}, request
    assert verdict(pipeline.verify(REPAIR), "t").repaired == {Kind.GHOST: 2}
    ask_for(pipeline, ["t"], "b2", kind="blocking")
    pipeline.drain()
    for request in CHECKS:
        assert findings(pipeline.verify(request)) == {}, request


@pytest.mark.days("even")
def test_rows_that_were_replaced_by_a_key_and_tables_whose_keys_were_chosen_later(
    pipeline: Pipeline, root: Any, database: str
) -> None:
    pipeline.properties |= PLAIN
    whole, ad_hoc, once, chosen = (f"`{database}`.{table}" for table in ("whole", "ad_hoc", "once", "chosen"))
    for name in (whole, ad_hoc, once):
        execute(root, f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT)", f"INSERT INTO {name} VALUES (1, 1), (2, 2)")
    values = ", ".join(f"({i}, {i})" for i in range(12))
    execute(root, f"CREATE TABLE {chosen} (id INT, v INT)", f"INSERT INTO {chosen} VALUES {values}")
    by_id = {"message.key.columns": r"(.*)\.chosen:id"}
    plain, pipeline.properties = pipeline.properties, pipeline.properties | by_id
    pipeline.snapshot()
    execute(root, f"ALTER TABLE {once} DROP PRIMARY KEY", f"INSERT INTO {once} VALUES (1, 1)")
    pipeline.properties = plain
    execute(root, f"DELETE FROM {chosen} WHERE id < 6", f"DELETE FROM {once} WHERE id = 2")
    assert findings(pipeline.verify()) == {"chosen": {}}, "its keys were others"
    pipeline.properties = plain | by_id
    execute(root, f"INSERT INTO {chosen} VALUES (1, 1), (2, 2), (3, 3)", f"DELETE FROM {chosen} WHERE id > 8")
    assert findings(pipeline.verify()) == {}
    execute(root, UNLOGGED, *(f"UPDATE {name} SET v = 9 WHERE id = 2" for name in (whole, ad_hoc)), LOGGED)
    ask_for(pipeline, ["ad_hoc"], kind="blocking")
    pipeline.drain()
    execute(root, f"ALTER TABLE {ad_hoc} DROP PRIMARY KEY")
    result = pipeline.verify()
    assert findings(result) == {"ad_hoc": {}, "whole": {Kind.DIFFERING: 1}}
    pipeline.snapshot(again=True)
    execute(root, f"ALTER TABLE {whole} DROP PRIMARY KEY")
    result = pipeline.verify()
    assert findings(result) == {"ad_hoc": {}, "whole": {}}
    for table in ("ad_hoc", "whole"):
        assert any("of an earlier structure" in said for said in verdict(result, table).unknown), table


@pytest.mark.days("odd")
def test_a_topic_into_which_a_table_is_led_whose_name_is_that_of_another_one(
    pipeline: Pipeline, root: Any, database: str
) -> None:
    router = {"type": "org.apache.kafka.connect.transforms.RegexRouter", "regex": r"(.*)\.b", "replacement": "$1.a"}
    pipeline.properties |= PLAIN | {"transforms": "route"} | {f"transforms.route.{n}": v for n, v in router.items()}
    a, b = (f"`{database}`.{table}" for table in "ab")
    for name, first in ((a, 1), (b, 11)):
        execute(root, f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT)")
        execute(root, f"INSERT INTO {name} VALUES ({first}, 1), ({first + 1}, 2), ({first + 2}, 3)")
    pipeline.snapshot()
    execute(root, f"DELETE FROM {b} WHERE id = 11", f"INSERT INTO {b} VALUES (1, 9)", f"DELETE FROM {b} WHERE id = 1")
    for request in (*CHECKS, VerifyRequest(tables=(f"{database}.a",))):
        assert findings(pipeline.verify(request)) == {}, request
    damage = TopicDamage(pipeline, "a")
    lone = of_row(damage, "a", 2)
    damage.produce((lone.key, None, lone.partition))
    for request in CHECKS:
        result = pipeline.verify(request)
        assert findings(result) == {table: {Kind.UNREADABLE: 1} for table in "ab"}, request
        assert "behind no delete" in verdict(result, "a").examples[0].record, request


@pytest.mark.days("odd")
def test_records_with_keys_of_rows_that_they_are_not_about(pipeline: Pipeline, root: Any, database: str) -> None:
    pipeline.properties |= PLAIN | ROUTED | {"message.key.columns": r"(.*)\.chosen:v"}
    for table in ("plain", "chosen", "routed_a", "routed_b"):
        name = f"`{database}`.{table}"
        execute(root, f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT)", f"INSERT INTO {name} VALUES (1, 1), (2, 2)")
    pipeline.snapshot()
    execute(
        root, f"UPDATE `{database}`.chosen SET v = 3 WHERE id = 2", f"INSERT INTO `{database}`.chosen VALUES (3, 9)"
    )
    execute(root, f"DELETE FROM `{database}`.chosen WHERE id = 3")
    for request in CHECKS:
        assert findings(pipeline.verify(request)) == {}, request
    heartbeat = b'{"ts_ms":1700000000000}'
    plain, chosen, routed = (TopicDamage(pipeline, table) for table in ("plain", "chosen", "routed"))
    one, two, other = of_row(plain, "plain", 1), of_row(chosen, "chosen", 1), of_row(plain, "plain", 2)
    plain.produce((one.key, heartbeat, one.partition), (b'{"serverName":"p"}', heartbeat, 0))
    chosen.produce(
        (two.key, heartbeat, two.partition), (two.key, None, two.partition), (b'{"v":7}', two.value, two.partition)
    )
    a, b = of_row(routed, "routed_a", 1), of_row(routed, "routed_b", 1)
    routed.produce((b.key, a.value, b.partition))
    # The marks of a repair that the ledger does not know say nothing.
    chosen.produce((two.key, None, two.partition), cdc_repair=b"forged")
    expected = {
        "plain": {Kind.UNREADABLE: 1}, "chosen": {Kind.UNREADABLE: 4}, "routed_b": {Kind.UNREADABLE: 1},
    }  # fmt: skip
    for request in CHECKS:
        assert findings(pipeline.verify(request)) == expected, request
    pipeline.verify(REPAIR)
    for request in CHECKS:
        assert findings(pipeline.verify(request)) == {"chosen": expected["chosen"]}, request
    run = next(value for r in pipeline.records("plain") for name, value in r.headers if name == "cdc-repair")
    plain.produce((other.key, b"damaged", other.partition))
    plain.produce((other.key, other.value, other.partition), cdc_repair=run)  # copied from the repair
    assert findings(pipeline.verify())["plain"] == {Kind.UNREADABLE: 1}


@pytest.mark.days("even")
def test_keys_and_numbers_in_avro_that_the_stream_does_not_write(
    pipeline: Pipeline, root: Any, database: str, registry: str
) -> None:
    """A schema of the same fields has another id, which is part of a key's bytes; and what is no number is no null."""
    pipeline.properties |= avro(registry)
    keys, numbers = (f"`{database}`.{table}" for table in ("keys_", "numbers"))
    for name in (keys, numbers):
        execute(
            root, f"CREATE TABLE {name} (id INT PRIMARY KEY, v DOUBLE)", f"INSERT INTO {name} VALUES (1, NULL), (2, 2)"
        )
    pipeline.snapshot()
    execute(root, f"ALTER TABLE {keys} ADD w INT", f"UPDATE {keys} SET v = 3 WHERE id = 2")
    for request in CHECKS:
        assert findings(pipeline.verify(request)) == {}, request
    damage, other = (TopicDamage(pipeline, table, registry) for table in ("keys_", "numbers"))
    record, null, two = of_row(damage, "keys_", 1), of_row(other, "numbers", 1), of_row(other, "numbers", 2)
    client = SchemaRegistryClient({"url": registry})
    schema = json.loads(client.get_schema(int.from_bytes((record.key or b"")[1:5], "big")).schema_str)
    number = client.register_schema(f"{database}-hands", Schema(json.dumps(schema | {"doc": "by hand"}), "AVRO"))
    damage.produce((b"\0" + number.to_bytes(4, "big") + (record.key or b"")[5:], record.value, record.partition))

    def not_a_number(event: dict[str, Any]) -> None:
        event["after"]["v"] = float("nan")

    other.produce((null.key, other.edited(null, not_a_number), null.partition))
    # By the schema of another table, which has the same columns.
    other.produce((two.key, (record.value or b"")[:5] + (two.value or b"")[5:], two.partition))
    expected = {"keys_": {Kind.GHOST: 1}, "numbers": {Kind.UNREADABLE: 2}}
    for request in CHECKS:
        assert findings(pipeline.verify(request)) == expected, request
    pipeline.verify(REPAIR)
    assert findings(pipeline.verify()) == {}


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
