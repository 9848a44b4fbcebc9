"""Histories and partitions of TiCDC's records, which say the row after a change and the time of its transaction."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from kit.repairs import verdict
from kit.row_writer import writer
from kit.sql import execute
from kit.topic_damage import TopicDamage
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import DifferenceKind as Kind
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import RepairMode, VerifyRequest

PROPERTIES = {"topic.creation.default.partitions": "3", "snapshot.lock.timeout.ms": "240000"}
HISTORY = VerifyRequest(history=True)
REPAIR = VerifyRequest(history=True, repair=RepairMode.YES)


def filled(
    pipeline: Pipeline, root: Any, db: str, registry: str, partition: str = "index-value", **more: str
) -> TopicDamage:
    """Create a table whose rows have had changes of every kind, some of them in one transaction."""
    pipeline.properties |= {"value.format": "ticdc-avro", "schema-registry": registry}
    topic = f"{pipeline.properties['topic.prefix']}.{{schema}}.{{table}}"
    rules = json.dumps([{"matcher": ["*.*"], "topic": topic, "partition": partition}])
    pipeline.properties |= {"enable-tidb-extension": "true", "dispatchers": rules} | more
    name = f"`{db}`.orders"
    execute(root, f"CREATE TABLE {name} (id INT PRIMARY KEY, name VARCHAR(30))")
    execute(root, f"INSERT INTO {name} VALUES " + ",".join(f"({i}, 'n{i}')" for i in range(30)))
    pipeline.snapshot()
    execute(
        root,
        "BEGIN",
        *(f"UPDATE {name} SET name = '{text}' WHERE id = 1" for text in ("a", "b", "a")),
        f"DELETE FROM {name} WHERE id = 1",
        f"INSERT INTO {name} VALUES (1, 'a')",
        "COMMIT",
        f"UPDATE {name} SET id = 100 WHERE id = 2",
        f"UPDATE {name} SET id = 2 WHERE id = 3",
        f"DELETE FROM {name} WHERE id IN (4, 5)",
        f"INSERT INTO {name} VALUES (5, 'again')",
        f"UPDATE {name} SET name = 'u' WHERE id IN (6, 7)",
    )
    pipeline.drain()
    pipeline.snapshot(again=True)
    execute(root, f"UPDATE {name} SET name = 'v' WHERE id IN (6, 7, 8)")
    pipeline.drain()
    return TopicDamage(pipeline, "orders", registry)


@pytest.mark.exhaustive
def test_what_the_form_permits_is_judged_and_settled_while_rows_change(
    stack: Any, pipeline: Pipeline, root: Any, database: str, registry: str
) -> None:
    damage = filled(pipeline, root, database, registry)
    clean = verdict(pipeline.verify(HISTORY), "orders")
    assert clean.verdict == "equal" and any("have no row before a change" in said for said in clean.unknown), clean
    doubled, old, updated, deleted = damage.last(6), damage.records(7)[-2], damage.last(8), damage.last(4)

    def later(row: dict[str, Any]) -> None:
        row["_tidb_commit_ts"] += 1 << 18
        row["_tidb_op"] = "u"

    def earlier(row: dict[str, Any]) -> None:
        row["_tidb_commit_ts"] -= 1 << 50
        row["name"] = "never there"

    last, gone, unread = damage.last(9), damage.last(10), damage.last(11)
    damage.produce(
        (doubled.key, doubled.value, doubled.partition),
        (old.key, old.value, old.partition),
        (updated.key, damage.edited(updated, earlier), updated.partition),
        (deleted.key, None, deleted.partition),
        (deleted.key, damage.edited(deleted, later), deleted.partition),
        (last.key, None, last.partition),
        (last.key, damage.edited(last, later), last.partition),
        (gone.key, None, gone.partition),
        (unread.key, b"\xff damaged", unread.partition),
    )
    expected = {
        Kind.DUPLICATE: 3, Kind.REORDERED: 1, Kind.GAP: 2, Kind.DIFFERING: 2, Kind.MISSING: 1, Kind.GHOST: 1,
        Kind.UNREADABLE: 1,
    }  # fmt: skip
    with writer(stack, database, more=""):
        found = verdict(pipeline.verify(HISTORY), "orders")
        assert found.findings == expected, found
        shown = {(str(example.finding), example.key["id"]) for example in found.examples}
        assert shown == {
            ("duplicate", 6), ("duplicate", 7), ("duplicate", 4), ("reordered", 8), ("gap", 9), ("gap", 4),
            ("ghost", 4), ("differing", 7), ("differing", 8), ("missing", 10), ("unreadable", 11),
        }  # fmt: skip
        repaired = verdict(pipeline.verify(REPAIR), "orders")
        assert repaired.repaired == expected, (repaired, pipeline.lines)
        assert pipeline.verify(HISTORY).verdict == "equal"
    assert pipeline.verify(HISTORY).verdict == "equal"


@pytest.mark.exhaustive
@pytest.mark.parametrize("named", ["true", pytest.param("false", marks=pytest.mark.exhaustive)])
def test_a_snapshot_writes_no_doubled_record(
    pipeline: Pipeline, root: Any, database: str, registry: str, named: str
) -> None:
    """Where a transaction's time is ahead of the clock, a snapshot right behind it has the same one."""
    damage = filled(pipeline, root, database, registry, **{"cdc.id.header": named})
    ahead_us = (int(time.time()) + 3600) * 1_000_000
    execute(root, f"SET original_commit_timestamp = {ahead_us}", f"INSERT INTO `{database}`.orders VALUES (50, 'last')")
    pipeline.drain()
    pipeline.snapshot(again=True)
    first, again = damage.records(50)
    assert first.value == again.value
    clean = verdict(pipeline.verify(HISTORY), "orders")
    assert clean.verdict == "equal", (clean.findings, clean.examples)


@pytest.mark.exhaustive(but="False")
@pytest.mark.parametrize("by_key", [True, False])
def test_partitions_are_judged_where_the_key_alone_chooses_them(
    pipeline: Pipeline, root: Any, database: str, registry: str, by_key: bool
) -> None:
    damage = filled(pipeline, root, database, registry, "index-value" if by_key else "ts")
    clean = verdict(pipeline.verify(HISTORY), "orders")
    assert not clean.findings, (clean.findings, clean.examples)
    # The time of a transaction chooses partitions, so a delete may be in the one of the row before it, or in another.
    is_split = any(len({record.partition for record in damage.records(id_)}) > 1 for id_ in (3, 4))
    assert any("deletes of TiCDC's protocol have no time" in said for said in clean.unknown) is not (
        clean.verdict == "equal"
    )
    assert (clean.verdict == "equal") is not is_split
    assert not (by_key and is_split)
    # Records of several partitions are read in any order. An earlier one behind the last would be reordered.
    written = [record for record in damage.records(9) if record.value is not None]
    last = max(written, key=lambda record: damage.decode(record.value)["_tidb_commit_ts"])
    damage.produce((last.key, last.value, (last.partition + 1) % 3))
    found = verdict(pipeline.verify(HISTORY), "orders")
    assert found.findings == ({Kind.WRONG_PARTITION: 1} if by_key else {}), found
    if by_key:
        assert found.examples[0].key == {"id": 9}
        left = verdict(pipeline.verify(REPAIR), "orders")
        assert not left.repaired and any("a record in another partition" in said for said in left.unknown), left


@pytest.mark.exhaustive
def test_without_the_extension_only_doubled_deletes_show(
    pipeline: Pipeline, root: Any, database: str, registry: str
) -> None:
    damage = filled(pipeline, root, database, registry, **{"enable-tidb-extension": "false"})
    clean = verdict(pipeline.verify(HISTORY), "orders")
    assert clean.verdict == "equal" and any("do not say their order" in said for said in clean.unknown), clean
    doubled, deleted = damage.last(6), damage.last(4)
    damage.produce((doubled.key, doubled.value, doubled.partition), (deleted.key, None, deleted.partition))
    assert verdict(pipeline.verify(HISTORY), "orders").findings == {Kind.DUPLICATE: 1}


@pytest.mark.days("odd")
def test_a_key_in_place_of_the_row_and_a_longer_key_are_found(
    pipeline: Pipeline, root: Any, database: str, registry: str
) -> None:
    pipeline.properties |= {"value.format": "ticdc-avro", "schema-registry": registry}
    name = f"`{database}`.t"
    execute(root, f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT)", f"INSERT INTO {name} VALUES (1, 1), (2, NULL)")
    pipeline.snapshot()
    execute(root, f"ALTER TABLE {name} ADD w INT")
    pipeline.drain()
    assert pipeline.verify().verdict == "equal"
    damage = TopicDamage(pipeline, "t", registry)
    lacking, twin = damage.last(2), damage.last(1)
    assert lacking.key is not None and twin.key is not None
    longer = twin.key[:-1] + bytes((twin.key[-1] | 0x80, 0))
    damage.produce((lacking.key, lacking.key, lacking.partition), (longer, twin.value, twin.partition))
    for request in (VerifyRequest(), HISTORY):
        found = verdict(pipeline.verify(request), "t")
        assert (found.findings, found.columns) == ({Kind.DIFFERING: 1, Kind.GHOST: 1}, {"v": 1, "w": 1}), (
            request,
            found,
        )
    assert verdict(pipeline.verify(REPAIR), "t").repaired == {Kind.DIFFERING: 1, Kind.GHOST: 1}
    assert pipeline.verify(HISTORY).verdict == "equal"
    assert [r.value is None for r in pipeline.records("t") if r.key == longer] == [False, True]


@pytest.mark.parametrize("extended", ["false", pytest.param("true", marks=pytest.mark.exhaustive)])
def test_records_from_before_a_history_that_was_recorded_anew_are_no_differences(
    pipeline: Pipeline, root: Any, database: str, registry: str, extended: str
) -> None:
    ticdc = {"value.format": "ticdc-avro", "schema-registry": registry, "enable-tidb-extension": extended}
    pipeline.properties |= ticdc
    name = f"`{database}`.t"
    execute(
        root, f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT)", f"INSERT INTO {name} VALUES (1, 1), (2, 2), (3, 3)"
    )
    pipeline.snapshot()
    execute(root, f"ALTER TABLE {name} DROP v, ADD w INT", f"UPDATE {name} SET w = 7 WHERE id = 1")
    execute(root, f"DELETE FROM {name} WHERE id = 2")
    pipeline.drain()
    pipeline.properties["snapshot.mode"] = "recovery"
    pipeline.snapshot()
    pipeline.properties["snapshot.mode"] = "initial"
    for request in (VerifyRequest(), HISTORY):
        found = verdict(pipeline.verify(request), "t")
        assert not found.findings and found.rows == 2, (request, found)
    execute(root, "SET sql_log_bin = 0", f"DELETE FROM {name} WHERE id = 3", "SET sql_log_bin = 1")
    assert verdict(pipeline.verify(), "t").findings == {Kind.GHOST: 1}
