"""A repair settles the past of a key: what is reported of any kind is repaired, and verifies clean with its history."""

from __future__ import annotations

from typing import Any

import pytest
from kit.avro_rig import avro
from kit.repairs import fill, verdict
from kit.row_writer import writer
from kit.sql import execute, rows
from kit.tiers import many
from kit.topic_damage import TopicDamage, damage_every_kind
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.errors import RepairLimitError
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import DifferenceKind as Kind
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import RepairMode, VerifyRequest

HISTORY = VerifyRequest(history=True)
REPAIR = VerifyRequest(history=True, repair=RepairMode.YES)
EVERY_KIND = {
    Kind.MISSING: 1, Kind.GHOST: 1, Kind.DIFFERING: 1, Kind.UNREADABLE: 3, Kind.WRONG_PARTITION: 1, Kind.DUPLICATE: 1,
    Kind.REORDERED: 1, Kind.GAP: 1, Kind.NO_TOMBSTONE: 1,
}  # fmt: skip
PROPERTIES = {
    "topic.creation.default.partitions": "3",
    "snapshot.lock.timeout.ms": "240000",
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
}
FORMATS: dict[str, dict[str, str]] = {
    "json": {},
    "json with ids": {"cdc.id.header": "true"},
    "json with schemas": {"key.converter.schemas.enable": "true", "value.converter.schemas.enable": "true"},
    "json 1.9": {"event.contract": "1.9"},
    "avro": {},
}


@pytest.mark.exhaustive(but="^json$")
@pytest.mark.parametrize("name", many(["json", "json with schemas", "avro"], list(FORMATS)))
@pytest.mark.days("even")
def test_every_kind_of_damage_is_repaired_exactly_while_rows_change(
    stack: Any, pipeline: Pipeline, root: Any, database: str, registry: str, name: str
) -> None:
    pipeline.properties |= FORMATS[name] | (avro(registry) if name == "avro" else {})
    fill(root, database)
    pipeline.snapshot()
    execute(
        root,
        f"UPDATE `{database}`.orders SET name = 'u' WHERE id IN (1, 2)",
        f"DELETE FROM `{database}`.orders WHERE id = 4",
    )
    pipeline.drain()
    damage = TopicDamage(pipeline, "orders", registry if name == "avro" else None)
    damage_every_kind(damage)
    ghost = damage.last(3)

    def rename(row: dict[str, Any]) -> None:
        row["id"] = 999

    def become_ghost(event: dict[str, Any]) -> None:
        event["op"], event["before"] = "c", None
        rename(event["after"])

    damage.produce((damage.edited(ghost, rename, key=True), damage.edited(ghost, become_ghost), 2))
    with writer(stack, database):
        found = verdict(pipeline.verify(HISTORY), "orders")
        assert found.findings == EVERY_KIND, found
        assert {tuple(e.key.values()) for e in found.examples} == {
            (8,), (999,), (9,), (6,), (7,), (5,), (1,), (2,), (3,), (4,), (),
        }, found.examples  # fmt: skip
        dry = verdict(pipeline.verify(VerifyRequest(history=True, repair=RepairMode.DRY_RUN)), "orders")
        assert dry.findings == EVERY_KIND and not repair_records_of(pipeline)
        (said,) = dry.unknown
        assert all(f"{n} {kind}" in said for kind, n in EVERY_KIND.items()), said
        result = verdict(pipeline.verify(REPAIR), "orders")
        assert result.findings == result.repaired == EVERY_KIND, (result, pipeline.lines)
        assert pipeline.verify(HISTORY).verdict == "equal"
    final = pipeline.verify(HISTORY)
    assert final.verdict == "equal", final
    told = damage.compacted_rows(("id", "name"))
    assert told == sorted(rows(root, f"SELECT id, name FROM `{database}`.orders"), key=repr)


def repair_records_of(pipeline: Pipeline, table: str = "orders") -> list[Any]:
    return [record for record in pipeline.records(table) if "cdc-repair" in dict(record.headers)]


def test_unreadable_records_of_ticdc_are_settled_where_no_row_can_be_lost(
    pipeline: Pipeline, root: Any, database: str, registry: str
) -> None:
    pipeline.properties |= {
        "value.format": "ticdc-avro", "schema-registry": registry, "enable-tidb-extension": "true",
    }  # fmt: skip
    fill(root, database)
    execute(root, f"DROP TABLE `{database}`.log", f"DELETE FROM `{database}`.orders WHERE id = 9")
    pipeline.snapshot()
    execute(root, f"DELETE FROM `{database}`.orders WHERE id = 4")
    pipeline.drain()
    damage = TopicDamage(pipeline, "orders", registry)
    kept, misplaced, deleted = damage.last(1), damage.last(2), damage.last(4)
    damage.produce(
        (kept.key, b"\xff damaged", kept.partition),
        (misplaced.key, b"\xff damaged", (misplaced.partition + 1) % 3),
        (deleted.key, b"\xff damaged", deleted.partition),
        (b"\xfe damaged", b"x", 0),
    )
    result = verdict(pipeline.verify(REPAIR), "orders")
    assert result.findings == {Kind.UNREADABLE: 4} and result.repaired == {Kind.UNREADABLE: 3}, result
    assert any("a record in another partition than that of its row stays" in said for said in result.unknown)
    after = verdict(pipeline.verify(HISTORY), "orders")
    assert after.equal and after.findings == {Kind.UNREADABLE: 1}


def test_in_a_table_without_a_key_only_records_with_one_are_settled(
    pipeline: Pipeline, root: Any, database: str
) -> None:
    fill(root, database)
    pipeline.snapshot()
    damage = TopicDamage(pipeline, "log")
    damage.produce((b"\xfe damaged", b"x", 1), (b'{"n":1}', b"x", 1), (None, b"x", 0))
    execute(root, "SET sql_log_bin = 0", f"INSERT INTO `{database}`.log VALUES ('more', 5)", "SET sql_log_bin = 1")
    result = verdict(pipeline.verify(REPAIR), "log")
    assert result.findings == {Kind.UNREADABLE: 3, Kind.MISSING: 1}, result
    assert result.repaired == {Kind.UNREADABLE: 2, Kind.MISSING: 1}
    (said,) = result.unknown
    assert said.startswith("1 unreadable cannot be repaired: records without a key of one row")
    assert {(r.partition, r.key) for r in repair_records_of(pipeline, "log") if r.value is None} == {
        (1, b"\xfe damaged"), (1, b'{"n":1}'),
    }  # fmt: skip
    written = len(repair_records_of(pipeline, "log"))
    again = verdict(pipeline.verify(REPAIR), "log")
    assert again.findings == {Kind.UNREADABLE: 1} and not again.repaired
    assert len(repair_records_of(pipeline, "log")) == written, "what is settled is not written again"


def test_differences_of_every_kind_count_for_the_limit(pipeline: Pipeline, root: Any, database: str) -> None:
    fill(root, database)
    pipeline.snapshot()
    damage = TopicDamage(pipeline, "orders")
    for id_ in (1, 2, 3):
        last = damage.last(id_)
        damage.produce((last.key, b"damaged", last.partition), (last.key, b"damaged", last.partition))
    pipeline.properties["repair.max.rows"] = "5"
    with pytest.raises(RepairLimitError, match=r"6 rows differ.*none was written"):
        pipeline.verify(REPAIR)
    assert repair_records_of(pipeline) == []
    pipeline.properties["repair.max.rows"] = "6"
    assert verdict(pipeline.verify(REPAIR), "orders").repaired == {Kind.UNREADABLE: 6}
    assert len(repair_records_of(pipeline)) == 3 and pipeline.verify(HISTORY).verdict == "equal"


def test_in_a_topic_of_several_tables_no_row_of_another_one_is_forgotten(
    pipeline: Pipeline, root: Any, database: str
) -> None:
    pipeline.properties |= {
        "transforms": "r",
        "transforms.r.type": "io.debezium.transforms.ByLogicalTableRouter",
        "transforms.r.topic.regex": f"(.*){database}.(one|two)",
        "transforms.r.topic.replacement": f"$1{database}.orders",
        "transforms.r.key.enforce.uniqueness": "false",
    }
    for table in ("one", "two"):
        values = ", ".join(f"({n}, '{table}')" for n in range(10))
        execute(root, f"CREATE TABLE `{database}`.{table} (id INT PRIMARY KEY, name VARCHAR(9))")
        execute(root, f"INSERT INTO `{database}`.{table} VALUES {values}")
    pipeline.snapshot()
    damage = TopicDamage(pipeline, "orders")
    last = damage.last(3)
    damage.produce((last.key, b"damaged", last.partition), (last.key, last.value, (last.partition + 1) % 3),
                   (b"\xfe damaged", b"x", 0))  # fmt: skip
    result = pipeline.verify(REPAIR)
    kinds: dict[Kind, int] = {}
    for each in result.tables:
        for kind, number in each.repaired.items():
            kinds[kind] = kinds.get(kind, 0) + number
    assert kinds == {Kind.WRONG_PARTITION: 1, Kind.UNREADABLE: 1}, result
    left = [each.findings for each in pipeline.verify(HISTORY).tables]
    assert left == [{Kind.UNREADABLE: 1}, {Kind.UNREADABLE: 1}], "its key may be that of a row of either table"
