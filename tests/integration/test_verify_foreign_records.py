"""Records that hands have written, and that a reader of the row alone would not notice, are reported and repaired."""

from __future__ import annotations

from typing import Any

import pytest
from kit.avro_rig import avro
from kit.repairs import verdict
from kit.sql import execute, rows
from kit.topic_damage import TopicDamage
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.verify.verify_request import RepairMode, VerifyRequest
from airflow_provider_mysql_cdc.cdc.verify.verify_result import DifferenceKind as Kind

PROPERTIES = {"topic.creation.default.partitions": "3", "snapshot.lock.timeout.ms": "240000"}
PLAIN = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
SCHEMAS = dict.fromkeys(PLAIN, "true")
HISTORY, CHECKSUMS, ROWS = VerifyRequest(history=True), VerifyRequest(), VerifyRequest(checksums=False)
REPAIR = VerifyRequest(history=True, repair=RepairMode.YES)


def filled(pipeline: Pipeline, root: Any, db: str, *, altered: bool = True) -> None:
    """Create a table of ten rows, of which two were updated and one was deleted; then perhaps drop a column."""
    execute(
        root,
        f"CREATE TABLE `{db}`.orders (id INT PRIMARY KEY, name VARCHAR(30), at POINT, j JSON, old INT)",
        f"INSERT INTO `{db}`.orders VALUES "
        + ",".join(f"({i}, 'n{i}', POINT(1, {i}), '{{\"a\": 1}}', 5)" for i in range(10)),
    )
    pipeline.snapshot()
    execute(
        root,
        f"UPDATE `{db}`.orders SET name = CONCAT(name, '\"') WHERE id IN (1, 2)",
        f"DELETE FROM `{db}`.orders WHERE id = 4",
        *([f"ALTER TABLE `{db}`.orders DROP old"] if altered else []),
        f"UPDATE `{db}`.orders SET name = 'new' WHERE id = 3",
    )
    pipeline.drain()


@pytest.mark.parametrize("where", ["after", "before", "envelope", "source"])
@pytest.mark.parametrize("schemas", [PLAIN, SCHEMAS], ids=["plain", "schemas"])
def test_a_member_that_the_stream_does_not_write_is_reported_and_repaired(
    pipeline: Pipeline, root: Any, database: str, schemas: dict[str, str], where: str
) -> None:
    pipeline.properties |= schemas
    altered = where in ("after", "source")
    filled(pipeline, root, database, altered=altered)
    for request in (CHECKSUMS, ROWS, HISTORY):
        result = pipeline.verify(request)
        assert result.clean, result
        assert verdict(result, "orders").by_checksums is (request is CHECKSUMS and not altered)
    damage = TopicDamage(pipeline, "orders")
    last = damage.last(3)

    def edit(event: dict[str, Any]) -> None:
        event["op"], event["before"] = "u", {**event["after"]}
        (event if where == "envelope" else event[where])["more"] = 1

    damage.produce((last.key, damage.edited(last, edit), last.partition))
    for request in (CHECKSUMS, ROWS, HISTORY):
        found = verdict(pipeline.verify(request), "orders")
        assert found.findings == {Kind.UNREADABLE: 1} and found.examples[0].key == {"id": 3}, (request, found)
        assert "members that the stream does not write: more" in found.examples[0].record
    assert verdict(pipeline.verify(REPAIR), "orders").repaired == {Kind.UNREADABLE: 1}
    for request in (CHECKSUMS, ROWS, HISTORY):
        assert pipeline.verify(request).clean


@pytest.mark.parametrize("name", ["plain", "schemas", "avro", "keys of hands"])
def test_an_event_without_a_key_is_reported_with_its_row_and_repaired(
    pipeline: Pipeline, root: Any, database: str, registry: str, name: str
) -> None:
    of_hands = {"message.key.columns": f"{database}.orders:name"}
    more = {"plain": PLAIN, "schemas": SCHEMAS, "avro": avro(registry), "keys of hands": PLAIN | of_hands}
    pipeline.properties |= more[name]
    filled(pipeline, root, database)
    damage = TopicDamage(pipeline, "orders", registry if name == "avro" else None)
    events = [(r, damage.decode(r.value)) for r in pipeline.records("orders") if r.value is not None]
    of_row = {(event["after"] or event["before"])["id"]: record for record, event in events}

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
    for request in (CHECKSUMS, ROWS, HISTORY):
        found = verdict(pipeline.verify(request), "orders")
        assert found.findings == {Kind.UNREADABLE: 4}, (request, found)
        assert sorted(example.key["id"] for example in found.examples) == [3, 4, 5, 77]
    written = verdict(pipeline.verify(REPAIR), "orders")
    assert written.repaired == {Kind.UNREADABLE: 4}, (written, pipeline.lines)
    for request in (CHECKSUMS, ROWS, HISTORY):
        result = pipeline.verify(request)
        assert result.clean, result
    execute(root, f"UPDATE `{database}`.orders SET name = 'later' WHERE id = 3")
    assert pipeline.verify(HISTORY).clean


@pytest.mark.parametrize("schemas", [PLAIN, SCHEMAS], ids=["plain", "schemas"])
def test_events_from_before_the_table_had_a_key_are_events(
    pipeline: Pipeline, root: Any, database: str, schemas: dict[str, str]
) -> None:
    pipeline.properties |= schemas
    execute(root, f"CREATE TABLE `{database}`.orders (id INT NOT NULL, name VARCHAR(9), gone INT)")
    execute(root, f"INSERT INTO `{database}`.orders VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3)")
    pipeline.snapshot()
    execute(root, f"ALTER TABLE `{database}`.orders ADD PRIMARY KEY (id)", f"ALTER TABLE `{database}`.orders DROP gone")
    execute(root, f"UPDATE `{database}`.orders SET name = 'd' WHERE id = 1")
    for request in (CHECKSUMS, ROWS, HISTORY):
        result = pipeline.verify(request)
        assert result.clean, result
    damage = TopicDamage(pipeline, "orders")
    last = damage.last(1)
    damage.produce((None, last.value, last.partition))
    for request in (CHECKSUMS, ROWS, HISTORY):
        assert verdict(pipeline.verify(request), "orders").findings == {Kind.UNREADABLE: 1}


@pytest.mark.parametrize("name", ["plain", "schemas", "avro"])
def test_a_tombstone_in_a_wrong_partition_is_reported_and_repaired(
    pipeline: Pipeline, root: Any, database: str, registry: str, name: str
) -> None:
    pipeline.properties |= {"plain": PLAIN, "schemas": SCHEMAS, "avro": avro(registry)}[name]
    filled(pipeline, root, database)
    damage = TopicDamage(pipeline, "orders", registry if name == "avro" else None)
    alive, deleted = damage.last(3), damage.last(4)
    damage.produce(*((record.key, None, (record.partition + 1) % 3) for record in (alive, deleted)))
    for request in (CHECKSUMS, ROWS, HISTORY):
        found = verdict(pipeline.verify(request), "orders")
        assert found.findings == {Kind.WRONG_PARTITION: 2}, (request, found)
        assert sorted(example.key["id"] for example in found.examples) == [3, 4]
    assert verdict(pipeline.verify(REPAIR), "orders").repaired == {Kind.WRONG_PARTITION: 2}
    for request in (CHECKSUMS, ROWS, HISTORY):
        assert pipeline.verify(request).clean
    told = damage.compacted_rows(("id", "name"))
    assert told == sorted(rows(root, f"SELECT id, name FROM `{database}`.orders"), key=repr)


@pytest.mark.parametrize("schemas", [PLAIN, SCHEMAS], ids=["plain", "schemas"])
def test_events_under_a_former_key_that_do_not_say_the_present_one_are_no_ghosts(
    pipeline: Pipeline, root: Any, database: str, schemas: dict[str, str]
) -> None:
    pipeline.properties |= schemas
    name = f"`{database}`.orders"
    execute(root, f"CREATE TABLE {name} (id INT PRIMARY KEY, name VARCHAR(9))")
    execute(root, f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    pipeline.snapshot()
    execute(root, f"ALTER TABLE {name} DROP PRIMARY KEY, ADD uid INT NOT NULL AUTO_INCREMENT PRIMARY KEY")
    execute(root, f"UPDATE {name} SET name = 'd' WHERE id = 1", f"INSERT INTO {name} VALUES (9, 'z', 50), (8, 'y', 51)")
    for request in (CHECKSUMS, ROWS, HISTORY):
        found = verdict(pipeline.verify(request), "orders")
        assert found.clean and any("do not say the present one" in said for said in found.unknown), (request, found)
    execute(root, "SET sql_log_bin = 0", f"DELETE FROM {name} WHERE uid = 50", "SET sql_log_bin = 1")
    execute(root, f"DELETE FROM {name} WHERE uid = 51")
    damage = TopicDamage(pipeline, "orders")
    event = next(r for r in pipeline.records("orders") if r.value is not None and b'"uid":50' in r.value)
    damage.produce((b'{"other":1}' if schemas is PLAIN else b"\xff", event.value, event.partition))
    for request in (CHECKSUMS, ROWS, HISTORY):
        findings = verdict(pipeline.verify(request), "orders").findings
        assert findings[Kind.GHOST] >= 1 and Kind.MISSING not in findings, (request, findings)


def test_events_under_a_former_key_that_say_the_present_one_are_folded_by_it(
    pipeline: Pipeline, root: Any, database: str
) -> None:
    pipeline.properties |= PLAIN
    name = f"`{database}`.orders"
    execute(root, f"CREATE TABLE {name} (id INT PRIMARY KEY, name VARCHAR(9) NOT NULL)")
    execute(root, f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd')")
    pipeline.snapshot()
    execute(root, f"ALTER TABLE {name} DROP PRIMARY KEY, ADD PRIMARY KEY (name)")
    execute(root, f"UPDATE {name} SET id = 9 WHERE name = 'a'", f"DELETE FROM {name} WHERE name = 'b'")
    for request in (CHECKSUMS, ROWS, HISTORY):
        result = pipeline.verify(request)
        assert result.clean, (request, result)
    execute(root, "SET sql_log_bin = 0", f"DELETE FROM {name} WHERE name = 'c'", f"INSERT INTO {name} VALUES (7, 'x')")
    execute(root, f"UPDATE {name} SET id = 6 WHERE name = 'd'", "SET sql_log_bin = 1")
    expected = {Kind.MISSING: 1, Kind.GHOST: 1, Kind.DIFFERING: 1}
    for request in (CHECKSUMS, ROWS, HISTORY):
        assert verdict(pipeline.verify(request), "orders").findings == expected
    assert verdict(pipeline.verify(REPAIR), "orders").repaired == expected
    assert pipeline.verify(HISTORY).clean


@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_of_a_compacted_topic_whose_keys_several_rows_have_missing_rows_are_not_judged(
    pipeline: Pipeline, root: Any, database: str, policy: str
) -> None:
    of_hands = {"message.key.columns": f"{database}.orders:name", "topic.creation.default.cleanup.policy": policy}
    pipeline.properties |= PLAIN | of_hands
    filled(pipeline, root, database)
    execute(root, "SET sql_log_bin = 0", f"DELETE FROM `{database}`.orders WHERE id = 9", "SET sql_log_bin = 1")
    execute(root, "SET sql_log_bin = 0", f"INSERT INTO `{database}`.orders (id, name) VALUES (77, 'n5')")
    execute(root, "SET sql_log_bin = 1")
    found = verdict(pipeline.verify(HISTORY), "orders")
    judged = {Kind.GHOST: 1} if policy == "compact" else {Kind.GHOST: 1, Kind.MISSING: 1}
    assert found.findings == judged, found
    assert any("keys that several rows may have" in said for said in found.unknown) is (policy == "compact")
