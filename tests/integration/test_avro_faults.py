"""A registry that refuses, fails, forgets or is wiped: nothing is half-sent, and each event comes once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from avrolib.fake_registry import DOWN, SLOW, Answer, FakeRegistry, running_registry
from kit.avro_rig import Readers, avro
from kit.sql import execute, rows
from kit.tiers import many
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.errors import (
    IncompatibleSchemaError,
    RegistryConnectionError,
    SchemaIdChangedError,
    ValueDecodeError,
)
from airflow_provider_mysql_cdc.cdc.operate.reset_offset import reset_offset

# The first row event is committed by itself, so that a part of a batch is visible before the registry fails.
OFTEN = {"commit.bytes": "1024", "cdc.id.header": "true", "topic.creation.default.partitions": "3"}


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeRegistry]:
    with running_registry() as found:
        yield found


@pytest.fixture
def pipeline(fake: FakeRegistry, properties: dict[str, str], root: Any, database: str) -> Pipeline:
    fake.broken, fake.refuses = [], lambda subject, text: None
    quick = {f"{part}.converter.{n}": "1" for part in ("key", "value") for n in ("max.retries", "retries.wait.ms")}
    made = Pipeline(properties | OFTEN | avro(fake.url) | quick)
    execute(root, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, a INT)", insert(database, 0, 20))
    made.snapshot()
    return made


def insert(database: str, first: int, count: int, more: str = "") -> str:
    return f"INSERT INTO `{database}`.t VALUES " + ",".join(f"({n}, {n}{more})" for n in range(first, first + count))


def require_once(pipeline: Pipeline, fake: FakeRegistry, root: Any, database: str) -> list[dict[str, Any]]:
    """Fail unless every row came once and the topic ends with the table; return the values."""
    readers, records = Readers(fake.url), pipeline.records("t")
    counted = Counter(dict(r.headers)["cdc-id"] for r in records)
    assert [i for i, n in counted.items() if n > 1] == []
    places = {(r.key, r.partition) for r in records}
    assert len(places) == len({key for key, _ in places})
    values = [readers.read(pipeline.table_topic("t"), r.value) for r in records]
    found = sorted(tuple(v["after"].values())[:2] for v in values)
    assert found == sorted(rows(root, f"SELECT id, a FROM `{database}`.t"))
    return values


def test_a_snapshot_reads_nothing_while_the_registry_refuses_any_table(
    fake: FakeRegistry, properties: dict[str, str], root: Any, database: str
) -> None:
    pipeline = Pipeline(properties | OFTEN | avro(fake.url))
    for name in ("t", "u"):
        execute(
            root,
            f"CREATE TABLE `{database}`.{name} (id INT PRIMARY KEY)",
            f"INSERT INTO `{database}`.{name} VALUES (1)",
        )
    # Key and value of the first table pass, and the key of the second.
    fake.broken = [None] * 3 + [(422, {"error_code": 42201, "message": "no schema to me"})] * 2
    with pytest.raises(IncompatibleSchemaError, match=f"table {database}.u"):
        pipeline.snapshot()
    assert pipeline.records("t") == []
    assert not any("view" in line for line in pipeline.lines)
    fake.broken = []
    pipeline.snapshot()
    assert [len(pipeline.records(name)) for name in ("t", "u")] == [1, 1]


@pytest.mark.req("FAULT-28")
def test_a_change_that_readers_could_not_read_stops_before_anything_of_it_is_sent(
    pipeline: Pipeline, fake: FakeRegistry, root: Any, database: str
) -> None:
    execute(
        root,
        insert(database, 100, 30),
        f"ALTER TABLE `{database}`.t ADD b INT NOT NULL DEFAULT 1, MODIFY a BIGINT",
        insert(database, 200, 5, ", 1"),
    )
    before = pipeline.store.load()
    fake.refuses = lambda subject, text: "reader field b has no default" if subject.endswith("-value") else None
    with pytest.raises(IncompatibleSchemaError) as found:
        pipeline.drain()
    assert f"table {database}.t" in found.value.where
    assert "column a was null or int with default None, is null or long with default None" in found.value.why
    assert "column b is new: int with default 1" in found.value.why
    assert pipeline.settle().complete  # up to the refused version
    after = pipeline.store.load()
    assert before is not None and after is not None and after.committed != before.committed
    ids = [v["after"]["id"] for v in read(pipeline, fake)]
    assert max(ids) < 200 and {100, 129} <= set(ids)
    fake.refuses = lambda subject, text: None
    assert pipeline.drain() is not None
    values = require_once(pipeline, fake, root, database)
    assert [v["after"]["b"] for v in values if v["after"]["id"] >= 200] == [1] * 5


def test_schemas_that_somebody_else_registers_are_waited_for_when_a_column_gets_another_unit(
    properties: dict[str, str], root: Any, database: str, registry: str
) -> None:
    pipeline, table = Pipeline(properties | OFTEN | avro(registry)), f"`{database}`.t"
    execute(root, f"CREATE TABLE {table} (id INT PRIMARY KEY, at DATETIME(3))")
    execute(root, f"INSERT INTO {table} VALUES (1, '1970-01-01 00:00:01')")
    pipeline.snapshot()
    registering = pipeline.properties
    latest = {"use.latest.version": "true", "auto.register.schemas": "false"}
    pipeline.properties = registering | {f"{p}.converter.{n}": v for p in ("key", "value") for n, v in latest.items()}
    execute(
        root,
        f"INSERT INTO {table} VALUES (2, '1970-01-01 00:00:02')",
        f"ALTER TABLE {table} MODIFY at DATETIME(6)",
        f"INSERT INTO {table} VALUES (3, '1970-01-01 00:00:03')",
    )
    with pytest.raises(
        IncompatibleSchemaError, match=r"column at is io\.debezium\.time\.Timestamp .*MicroTimestamp"
    ) as found:
        pipeline.drain()
    assert f"table {database}.t, subject {pipeline.table_topic('t')}-value" in found.value.where
    readers, topic = Readers(registry), pipeline.table_topic("t")
    text = str(readers.client.get_latest_version(f"{topic}-value").schema.schema_str)
    changed = text.replace("io.debezium.time.Timestamp", "io.debezium.time.MicroTimestamp")
    assert changed != text
    readers.register(f"{topic}-value", json.loads(changed))
    assert pipeline.drain() is not None
    records = pipeline.records("t")
    told = {v["id"]: v["at"] for v in (readers.read(topic, r.value)["after"] for r in records)}
    assert told == {1: 1000, 2: 2000, 3: 3_000_000} and len(records) == 3
    assert len({readers.id_of(r.value) for r in records if r.value}) == 2


def read(pipeline: Pipeline, fake: FakeRegistry) -> list[dict[str, Any]]:
    readers = Readers(fake.url)
    return [readers.read(pipeline.table_topic("t"), r.value) for r in pipeline.records("t")]


FAILURES: dict[str, tuple[Answer, str]] = {
    "500": ((500, {"error_code": 50001, "message": "the store is gone"}), "the store is gone"),
    "down": (DOWN, "cannot be reached"),
    "slow": (SLOW, "cannot be reached"),
}


@pytest.mark.parametrize("kind", many(["500"], list(FAILURES)))
def test_a_registry_that_fails_inside_a_batch_costs_a_retry_and_nothing_else(
    pipeline: Pipeline, fake: FakeRegistry, root: Any, database: str, kind: str
) -> None:
    if kind == "slow":
        pipeline.properties |= {f"{part}.converter.http.read.timeout.ms": "3000" for part in ("key", "value")}
    execute(root, insert(database, 100, 30), f"ALTER TABLE `{database}`.t ADD b INT", insert(database, 200, 5, ", 1"))
    # The schemas of the table before the change, of keys and of the schema change topic pass.
    fake.requests.clear()
    answer, said = FAILURES[kind]
    fake.broken = [None] * 4 + [answer] * 40
    with pytest.raises(RegistryConnectionError, match=said) as found:
        pipeline.drain()
    assert found.value.can_retry
    assert fake.broken.count(None) == 0, "the fault did not fire"
    # A subject that somebody deletes comes again, with the id that its schema has.
    fake.broken = []
    pipeline.properties = {n: v for n, v in pipeline.properties.items() if "http.read" not in n}
    fake.subjects.clear()
    assert pipeline.drain() is not None
    require_once(pipeline, fake, root, database)


def test_a_registry_that_was_wiped_stops_the_stream_until_a_person_decides(
    pipeline: Pipeline, fake: FakeRegistry, root: Any, database: str
) -> None:
    execute(root, insert(database, 100, 30))
    fake.wipe(first_id=500)
    with pytest.raises(SchemaIdChangedError) as found:
        pipeline.drain()
    assert "now it is 50" in found.value.why
    assert len(pipeline.records("t")) == 20
    pipeline.settle()
    reset_offset(pipeline.cfg, pipeline.store, "test/reset", pipeline.log)
    assert pipeline.drain() is not None
    keys = {int.from_bytes((r.key or b"")[1:5], "big") for r in pipeline.records("t")}
    assert len(keys) == 2 and max(keys) >= 500


def test_a_batch_that_was_killed_is_finished_with_the_ids_it_was_begun_with_and_no_others(
    pipeline: Pipeline, fake: FakeRegistry, root: Any, database: str, tmp_path: Path
) -> None:
    pipeline.properties |= {"drain.writers": "3", "drain.small.batch.bytes": "0"}
    # Its schemas are new to the ledger in this batch.
    execute(
        root,
        f"CREATE TABLE `{database}`.n (id INT PRIMARY KEY, a INT)",
        *(insert(database, n, 30).replace("`.t", "`.n") for n in range(0, 300, 30)),
    )
    fired = tmp_path / "fired"
    killed = pipeline.in_process(
        "drain",
        tmp_path,
        fault={"point": "writer.after_commit", "action": "kill-driver", "writer": 0, "fired": str(fired)},
    )
    assert fired.exists() and killed.returncode == -9, killed.stdout
    ids, subjects = dict(fake.ids), dict(fake.subjects)
    fake.wipe(first_id=700)
    with pytest.raises(SchemaIdChangedError):
        pipeline.drain()
    fake.wipe(first_id=1)
    fake.ids, fake.subjects = ids, subjects  # restored, with its ids
    assert pipeline.drain() is not None
    records = pipeline.records("n")
    counted = Counter(dict(r.headers)["cdc-id"] for r in records)
    assert len(counted) == len(records) == 300
    assert len({(r.key, r.partition) for r in records}) == 300
    assert len({r.partition for r in records}) == 3


JSON = "org.apache.kafka.connect.json.JsonConverter"
FORMS = {
    "at once": {},
    "by way of JSON": {"provide.transaction.metadata": "true"},
    "values alone": {"key.converter": JSON, "key.converter.schemas.enable": "false"},
}


@pytest.mark.req("FAULT-13")
@pytest.mark.parametrize("form", many(["at once"], list(FORMS)))
def test_a_row_that_cannot_be_written_stops_the_run_or_is_left_out(
    fake: FakeRegistry, properties: dict[str, str], root: Any, database: str, unique: str, form: str
) -> None:
    fake.broken, fake.refuses = [], lambda subject, text: None
    parts = ("value",) if form == "values alone" else ()
    # TIME beyond one day has no form in Connect's Time.
    pipeline = Pipeline(
        properties
        | avro(fake.url, *parts)
        | {"time.precision.mode": "connect", "topic.creation.default.partitions": "3"}
        | FORMS[form]
    )
    topic, dead = pipeline.table_topic("t"), f"dead.{unique}"
    table = f"`{database}`.t"
    execute(
        root,
        f"CREATE TABLE {table} (id INT PRIMARY KEY, at TIME NOT NULL)",
        f"INSERT INTO {table} VALUES (1, '1:00'), (2, '99:00')",
    )
    with pytest.raises(ValueDecodeError, match="column at "):
        pipeline.snapshot()
    allowed = {
        "event.processing.failure.handling.mode": "skip" if form == "at once" else "warn",
        "errors.deadletterqueue.topic.name": dead,
    }
    pipeline.properties |= allowed
    assert pipeline.snapshot().complete
    execute(
        root,
        f"INSERT INTO {table} VALUES (3, '3:00'), (4, '99:00'), (5, '5:00')",
        f"UPDATE {table} SET id = 10 + id, at = IF(id = 13, '99:00', at) WHERE id IN (3, 5)",
        f"DELETE FROM {table} WHERE id IN (13, 15)",
    )
    pipeline.properties = {n: v for n, v in pipeline.properties.items() if n not in allowed}
    with pytest.raises(ValueDecodeError, match="column at ") as found:
        pipeline.drain()
    assert found.value.where.endswith(f", table {database}.t, row 1, key id=4")
    assert len(pipeline.read(topic)) == 1
    pipeline.properties |= allowed | {"drain.writers": "3", "drain.small.batch.bytes": "0"}
    outcome = pipeline.drain()
    assert outcome is not None and outcome.complete
    readers = Readers(fake.url)
    told: dict[int, list[str]] = {}
    for record in pipeline.read(topic):
        key = json.loads(record.key or b"") if form == "values alone" else readers.read(topic, record.key, key=True)
        value = readers.read(topic, record.value)
        told.setdefault(key["id"], []).append("" if value is None else value["op"])
    assert told == {1: ["r"], 3: ["c"], 5: ["c", "d", ""], 15: ["c", "d", ""]}
    letters = [json.loads(r.value or b"") for r in pipeline.read(dead)]
    assert sorted((n["op"], (n["key"] or {}).get("id"), n["before"], n["after"]) for n in letters if n["key"]) == [
        ("c", 4, None, {"id": 4}),
        ("d", 13, {"id": 13}, None),
        ("r", 2, None, {"id": 2}),
        ("u", 3, {"id": 3, "at": 10_800_000}, {"id": 13}),
    ]
    assert all(n["source"]["table"] == "t" and n["topic"] == topic for n in letters) and len(letters) == 4
