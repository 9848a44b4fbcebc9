"""Records that hands have written, and that a reader of the row alone would not notice, are reported and repaired."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kit.avro_rig import avro
from kit.repairs import LOGGED, UNLOGGED, verdict
from kit.sql import execute, rows
from kit.topic_damage import TopicDamage
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import DifferenceKind as Kind
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import RepairMode, VerifyRequest

PROPERTIES = {"topic.creation.default.partitions": "3", "snapshot.lock.timeout.ms": "240000"}
PLAIN = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
SCHEMAS = dict.fromkeys(PLAIN, "true")
HISTORY, CHECKSUMS, ROWS = VerifyRequest(history=True), VerifyRequest(), VerifyRequest(checksums=False)
REPAIR = VerifyRequest(history=True, repair=RepairMode.YES)


def fill(root: Any, db: str, tables: tuple[str, ...]) -> None:
    """Create tables of ten rows."""
    for table in tables:
        execute(
            root,
            f"CREATE TABLE `{db}`.{table} (id INT PRIMARY KEY, name VARCHAR(30), at POINT, j JSON, old INT)",
            f"INSERT INTO `{db}`.{table} VALUES "
            + ",".join(f"({i}, 'n{i}', POINT(1, {i}), '{{\"a\": 1}}', 5)" for i in range(10)),
        )


def change(root: Any, db: str, table: str) -> None:
    """Update two rows and delete one; then drop a column, unless the table is ``whole``."""
    execute(
        root,
        f"UPDATE `{db}`.{table} SET name = CONCAT(name, '\"') WHERE id IN (1, 2)",
        f"DELETE FROM `{db}`.{table} WHERE id = 4",
        *([] if table == "whole" else [f"ALTER TABLE `{db}`.{table} DROP old"]),
        f"UPDATE `{db}`.{table} SET name = 'new' WHERE id = 3",
    )


def add_members(damage: TopicDamage, *places: str) -> None:
    """Write events of row 3, then of row 5, with a member that the stream does not write."""
    for id_, where in zip((3, 5), places, strict=True):

        def edit(event: dict[str, Any], where: str = where) -> None:
            event["op"], event["before"] = "u", {**event["after"]}
            (event if where == "envelope" else event[where])["more"] = 1

        last = damage.last(id_)
        damage.produce((last.key, damage.edited(last, edit), last.partition))


def write_without_key(damage: TopicDamage) -> None:
    """Write events of rows 3 to 5, and one of a row that never was, without a key."""
    records = [(r, damage.decode(r.value)) for r in damage.pipeline.records(damage.table) if r.value is not None]
    # A row under a new key is deleted at the same position, maybe in a later partition: keys differ from run to run.
    records.sort(key=lambda pair: (pair[1]["source"]["file"], pair[1]["source"]["pos"], pair[1]["after"] is not None))
    of_row = {(event["after"] or event["before"])["id"]: record for record, event in records}

    def become_ghost(event: dict[str, Any]) -> None:
        event["op"], event["before"], event["after"]["id"] = "c", None, 77

    def stale(event: dict[str, Any]) -> None:
        event["op"], event["before"], event["after"]["name"] = "c", None, "stale"

    other = (of_row[3].partition + 1) % 3
    damage.produce(
        (None, damage.edited(of_row[3], stale), other),
        (None, damage.edited(of_row[5], stale), of_row[5].partition),
        (None, damage.edited(of_row[6], become_ghost), other),
        (None, of_row[4].value, other),
    )


def misplace_tombstones(damage: TopicDamage) -> None:
    alive, deleted = damage.last(3), damage.last(4)
    damage.produce(*((record.key, None, (record.partition + 1) % 3) for record in (alive, deleted)))


MEMBERS: dict[str, tuple[Callable[[TopicDamage], None], Kind, tuple[int, ...]]] = {
    "altered": (lambda damage: add_members(damage, "after", "source"), Kind.UNREADABLE, (3, 5)),
    "whole": (lambda damage: add_members(damage, "before", "envelope"), Kind.UNREADABLE, (3, 5)),
}
# What is done to the topic of a table, what is found then, and of which rows.
DAMAGES = {
    "keyless": (write_without_key, Kind.UNREADABLE, (3, 4, 5, 77)),
    "by_name": (write_without_key, Kind.UNREADABLE, (3, 4, 5, 77)),
    "tombs": (misplace_tombstones, Kind.WRONG_PARTITION, (3, 4)),
}


@pytest.mark.exhaustive(but="plain")
@pytest.mark.parametrize("form", ["plain", "schemas", "avro"])
@pytest.mark.days("even")
def test_what_hands_have_written_is_reported_with_its_row_and_repaired(
    pipeline: Pipeline, root: Any, database: str, registry: str, form: str
) -> None:
    pipeline.properties |= {"plain": PLAIN, "schemas": SCHEMAS, "avro": avro(registry)}[form]
    pipeline.properties["message.key.columns"] = r"(.*)\.by_name:name"
    damages = DAMAGES if form == "avro" else DAMAGES | MEMBERS  # a schema of Avro has no other members
    fill(root, database, tuple(damages))
    pipeline.snapshot()
    for table in damages:
        change(root, database, table)
    pipeline.drain()
    for request in (CHECKSUMS, ROWS, HISTORY):
        result = pipeline.verify(request)
        assert result.verdict == "equal", (request, result)
        for table in MEMBERS.keys() & damages:
            summed = request is CHECKSUMS and table == "whole"
            assert verdict(result, table).by_checksums is summed, (request, table)
    for table, (act, _, _) in damages.items():
        act(TopicDamage(pipeline, table, registry if form == "avro" else None))
    for request in (CHECKSUMS, ROWS, HISTORY):
        result = pipeline.verify(request)
        for table, (_, kind, ids) in damages.items():
            found = verdict(result, table)
            assert found.findings == {kind: len(ids)}, (request, found)
            assert sorted(example.key["id"] for example in found.examples) == list(ids), (request, found)
            if table in MEMBERS:
                told = [example.record for example in found.examples]
                assert all("members that the stream does not write: more" in text for text in told), (request, told)
    result = pipeline.verify(REPAIR)
    for table, (_, kind, ids) in damages.items():
        assert verdict(result, table).repaired == {kind: len(ids)}, (verdict(result, table), pipeline.lines)
    for request in (CHECKSUMS, ROWS, HISTORY):
        result = pipeline.verify(request)
        assert result.verdict == "equal", (request, result)
    left = TopicDamage(pipeline, "tombs", registry if form == "avro" else None).compacted_rows(("id", "name"))
    assert left == sorted(rows(root, f"SELECT id, name FROM `{database}`.tombs"), key=repr)
    execute(root, *(f"UPDATE `{database}`.{table} SET name = 'later' WHERE id = 3" for table in damages))
    result = pipeline.verify(HISTORY)
    assert result.verdict == "equal", result


@pytest.mark.exhaustive(but="plain")
@pytest.mark.parametrize("schemas", [PLAIN, SCHEMAS], ids=["plain", "schemas"])
@pytest.mark.days("odd")
def test_events_under_a_former_key_or_none(
    pipeline: Pipeline, root: Any, database: str, schemas: dict[str, str]
) -> None:
    """A table that had no key, one whose events do not say its present key, and one whose events say it."""
    pipeline.properties |= schemas
    none, other, said = (f"`{database}`.{table}" for table in ("none", "other", "said"))
    execute(
        root,
        f"CREATE TABLE {none} (id INT NOT NULL, name VARCHAR(9), gone INT)",
        f"INSERT INTO {none} VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3)",
        f"CREATE TABLE {other} (id INT PRIMARY KEY, name VARCHAR(9))",
        f"INSERT INTO {other} VALUES (1, 'a'), (2, 'b'), (3, 'c')",
        f"CREATE TABLE {said} (id INT PRIMARY KEY, name VARCHAR(9) NOT NULL)",
        f"INSERT INTO {said} VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd')",
    )
    pipeline.snapshot()
    execute(
        root,
        f"ALTER TABLE {none} ADD PRIMARY KEY (id)",
        f"ALTER TABLE {none} DROP gone",
        f"UPDATE {none} SET name = 'd' WHERE id = 1",
        f"ALTER TABLE {other} DROP PRIMARY KEY, ADD uid INT NOT NULL AUTO_INCREMENT PRIMARY KEY",
        f"UPDATE {other} SET name = 'd' WHERE id = 1",
        f"INSERT INTO {other} VALUES (9, 'z', 50), (8, 'y', 51)",
        f"ALTER TABLE {said} DROP PRIMARY KEY, ADD PRIMARY KEY (name)",
        f"UPDATE {said} SET id = 9 WHERE name = 'a'",
        f"DELETE FROM {said} WHERE name = 'b'",
    )
    for request in (CHECKSUMS, ROWS, HISTORY):
        result = pipeline.verify(request)
        verdicts = {name: verdict(result, name).verdict.value for name in ("none", "other", "said")}
        assert verdicts == {"none": "equal", "other": "not judged", "said": "equal"}, (request, result)
        told = verdict(result, "other").unknown
        assert any("do not say the present one" in text for text in told), (request, told)
    execute(
        root,
        UNLOGGED,
        f"DELETE FROM {other} WHERE uid = 50",
        f"DELETE FROM {said} WHERE name = 'c'",
        f"INSERT INTO {said} VALUES (7, 'x')",
        f"UPDATE {said} SET id = 6 WHERE name = 'd'",
        LOGGED,
        f"DELETE FROM {other} WHERE uid = 51",
    )
    last = (damage := TopicDamage(pipeline, "none")).last(1)
    damage.produce((None, last.value, last.partition))
    event = next(r for r in pipeline.records("other") if r.value is not None and b'"uid":50' in r.value)
    unknown_key = b'{"other":1}' if schemas is PLAIN else b"\xff"
    TopicDamage(pipeline, "other").produce((unknown_key, event.value, event.partition))
    expected = {Kind.MISSING: 1, Kind.GHOST: 1, Kind.DIFFERING: 1}
    for request in (CHECKSUMS, ROWS, HISTORY):
        result = pipeline.verify(request)
        assert verdict(result, "none").findings == {Kind.UNREADABLE: 1}, (request, result)
        ghosts = verdict(result, "other").findings
        assert ghosts[Kind.GHOST] >= 1 and Kind.MISSING not in ghosts, (request, ghosts)
        assert verdict(result, "said").findings == expected, (request, result)
    assert verdict(pipeline.verify(REPAIR), "said").repaired == expected
    assert verdict(pipeline.verify(HISTORY), "said").verdict == "equal"


@pytest.mark.exhaustive(but="^compact")
@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_of_a_compacted_topic_whose_keys_several_rows_have_missing_rows_are_not_judged(
    pipeline: Pipeline, root: Any, database: str, policy: str
) -> None:
    of_hands = {"message.key.columns": f"{database}.orders:name", "topic.creation.default.cleanup.policy": policy}
    pipeline.properties |= PLAIN | of_hands
    fill(root, database, ("orders",))
    pipeline.snapshot()
    change(root, database, "orders")
    pipeline.drain()
    ghost = f"DELETE FROM `{database}`.orders WHERE id = 9"
    execute(root, UNLOGGED, ghost, f"INSERT INTO `{database}`.orders (id, name) VALUES (77, 'n5')", LOGGED)
    found = verdict(pipeline.verify(HISTORY), "orders")
    judged = {Kind.GHOST: 1} if policy == "compact" else {Kind.GHOST: 1, Kind.MISSING: 1}
    assert found.findings == judged, found
    assert any("keys that several rows may have" in said for said in found.unknown) is (policy == "compact")
