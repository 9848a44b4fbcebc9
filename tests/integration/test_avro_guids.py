"""Ids of schemas in headers: the same records as with ids before the bytes, whatever job writes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from avrolib.fake_registry import FakeRegistry, running_registry
from kit.avro_rig import Readers, avro
from kit.incremental_rig import ask_for
from kit.sql import execute, rows
from kit.tiers import many
from pipelinelib.pipeline import Pipeline
from test_avro_jobs import without_volatile

from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.errors import RegistryError
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord

IDS = "io.confluent.kafka.serializers.schema.id."
GUIDS = {f"{part}.converter.{part}.schema.id.serializer": f"{IDS}HeaderSchemaIdSerializer" for part in ("key", "value")}
NAMES = ("__key_schema_id", "__value_schema_id")
EXTRAS = {
    "topic.creation.default.partitions": "3",
    "skipped.operations": "none",
    "heartbeat.interval.ms": "1",
    "notification.enabled.channels": "sink",
}
WAYS = {"at once": {}, "by way of JSON": {"provide.transaction.metadata": "true", "cdc.id.header": "true"}}


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with running_registry() as found:
        found.guids = True
        yield found


def told(readers: Readers, topic: str, records: list[TopicRecord], unique: str) -> dict[str, list[str]]:
    """Return what records say, by their keys, with the names of the headers that a converter does not add."""
    found: dict[str, list[str]] = {}
    for record in records:
        names = [name for name, _ in record.headers]
        ids = [name for name in names if name in NAMES]
        assert names[len(names) - len(ids) :] == ids, "ids stand behind the other headers"
        key = readers.read(topic, record.key, key=True, headers=record.headers)
        value = readers.read(topic, record.value, headers=record.headers)
        value = {n: v for n, v in (value or {}).items() if n != "timestamp"} if value else value
        said = without_volatile(value), [name for name in names if name not in NAMES]
        # Names of topics have the prefix.
        found.setdefault(str(without_volatile(key)).replace(f"{unique}v", unique), []).append(
            str(said).replace(f"{unique}v", unique)
        )
    return found


@pytest.mark.parametrize("way", many(["at once"], list(WAYS)))
def test_all_records_are_those_with_ids_before_the_bytes(
    fake: FakeRegistry, properties: dict[str, str], root: Any, database: str, unique: str, way: str
) -> None:
    base = properties | EXTRAS | WAYS[way] | avro(fake.url)
    plain = Pipeline(base | {"notification.sink.topic.name": f"{unique}.notes"})
    other = {"topic.prefix": f"{unique}v", "database.server.id": "7000"}
    headed = Pipeline(base | GUIDS | other | {"notification.sink.topic.name": f"{unique}v.notes"})
    table = f"`{database}`.t"
    execute(
        root,
        f"CREATE TABLE {table} (id VARCHAR(20) PRIMARY KEY, a VARCHAR(9))",
        f"CREATE TABLE `{database}`.keyless (a INT)",
        f"INSERT INTO {table} VALUES ('number 1', 'x'), ('number 2', 'y'), ('number 3', NULL)",
        f"INSERT INTO `{database}`.keyless VALUES (1)",
    )
    plain.snapshot()
    headed.snapshot()
    execute(
        root,
        f"INSERT INTO {table} VALUES ('number 4', 'z')",
        f"UPDATE {table} SET a = 'w' WHERE id = 'number 2'",
        f"UPDATE {table} SET id = 'number 10' WHERE id = 'number 1'",
        f"DELETE FROM {table} WHERE id = 'number 3'",
        f"ALTER TABLE {table} ADD b INT NULL",
        f"INSERT INTO {table} VALUES ('number 5', 'v', 5)",
        f"INSERT INTO `{database}`.keyless VALUES (2)",
        f"TRUNCATE TABLE `{database}`.keyless",
    )
    for pipeline in (plain, headed):
        ask_for(pipeline, ["t"], "snapshot 1")
        assert pipeline.drain() is not None
    readers = Readers(fake.url)
    topics = {topic: topic.replace(unique, f"{unique}v", 1) for topic in (*plain.topics(), unique)}
    topics |= {f"__debezium-heartbeat.{unique}": f"__debezium-heartbeat.{unique}v"}
    kinds: Counter[tuple[bool, bool, tuple[str, ...]]] = Counter()
    for topic, twin in topics.items():
        ours, theirs = headed.read(twin), plain.read(topic)
        assert ours
        # Heartbeats come by the clock.
        if "heartbeat" not in topic:
            assert told(readers, twin, ours, unique) == told(readers, topic, theirs, unique)
        assert {(r.key, r.partition) for r in ours if r.key} == {
            (r.key, r.partition) for r in {r.key: r for r in ours}.values() if r.key
        }
        for r in ours:
            ids = tuple(name for name, _ in r.headers if name in NAMES)
            kinds[r.key is not None, r.value is not None, ids] += 1
        assert not [name for r in theirs for name, _ in r.headers if name in NAMES]
    both, tombstone, keyless = (True, True, NAMES), (True, False, NAMES[:1]), (False, True, NAMES[1:])
    assert kinds.keys() == {both, tombstone, keyless}
    assert kinds[tombstone] == 2
    schemas = [kafka_clients.ledger(pipeline.cfg).read().schemas for pipeline in (plain, headed)]  # type: ignore[union-attr]
    assert schemas[0] and not schemas[1], "GUIDs need no memory"


def test_rows_of_a_topic_with_one_partition_and_guids_of_values_alone(
    fake: FakeRegistry, properties: dict[str, str], root: Any, database: str
) -> None:
    only = {name: text for name, text in GUIDS.items() if name.startswith("value")}
    pipeline = Pipeline(properties | avro(fake.url) | only)
    execute(root, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY)", f"INSERT INTO `{database}`.t VALUES (1)")
    pipeline.snapshot()
    execute(root, f"INSERT INTO `{database}`.t VALUES (2)", f"UPDATE `{database}`.t SET id = 3 WHERE id = 1")
    assert pipeline.drain() is not None
    readers, topic = Readers(fake.url), pipeline.table_topic("t")
    seen = []
    for r in pipeline.records("t"):
        value = readers.read(topic, r.value, headers=r.headers)
        names = [name for name, _ in r.headers if not name.startswith("__debezium.context")]
        seen.append((readers.read(topic, r.key, key=True)["id"], value and value["op"], names))
    ids = list(NAMES[1:])
    assert seen == [
        (1, "r", ids),
        (2, "c", ids),
        (1, "d", ["__debezium.newkey", *ids]),
        (1, None, ["__debezium.newkey"]),
        (3, "c", ["__debezium.oldkey", *ids]),
    ]


def test_a_batch_that_was_killed_is_finished_once_although_the_registry_gives_other_ids_now(
    fake: FakeRegistry, properties: dict[str, str], root: Any, database: str, tmp_path: Path
) -> None:
    more = {"commit.bytes": "1024", "cdc.id.header": "true", "drain.writers": "3", "drain.small.batch.bytes": "0"}
    more |= {"topic.creation.default.partitions": "3"}
    pipeline = Pipeline(properties | more | avro(fake.url) | GUIDS)
    table = f"`{database}`.t"
    execute(root, f"CREATE TABLE {table} (id INT PRIMARY KEY, a INT)", f"INSERT INTO {table} VALUES (1, 1)")
    pipeline.snapshot()
    for first in range(100, 400, 30):
        execute(root, f"INSERT INTO {table} VALUES " + ",".join(f"({n}, {n})" for n in range(first, first + 30)))
    fired = tmp_path / "fired"
    fault = {"point": "writer.after_commit", "action": "kill-driver", "writer": 0, "fired": str(fired)}
    killed = pipeline.in_process("drain", tmp_path, fault=fault)
    assert fired.exists() and killed.returncode == -9, killed.stdout
    texts = list(fake.ids)
    fake.wipe(first_id=700)
    assert pipeline.drain() is not None
    assert min(fake.ids.values()) == 700 and set(fake.ids) & set(texts)
    records, readers = pipeline.records("t"), Readers(fake.url)
    assert len(records) == len({dict(r.headers)["cdc-id"] for r in records}) == 301
    assert len({(r.key, r.partition) for r in records}) == len({r.key for r in records}) == 301
    values = [readers.read(pipeline.table_topic("t"), r.value, headers=r.headers) for r in records]
    assert sorted((v["after"]["id"], v["after"]["a"]) for v in values) == sorted(rows(root, f"SELECT * FROM {table}"))


def test_a_registry_without_guids_is_refused_by_name_before_anything_is_read(
    properties: dict[str, str], root: Any, database: str, registry: str
) -> None:
    pipeline = Pipeline(properties | avro(registry) | GUIDS)
    execute(root, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY)", f"INSERT INTO `{database}`.t VALUES (1)")
    with pytest.raises(RegistryError, match="the schema registry returned no GUID") as found:
        pipeline.snapshot()
    assert f"table {database}.t, subject {pipeline.table_topic('t')}-key, registry {registry}" in found.value.where
    assert "remove key.converter.key.schema.id.serializer" in found.value.remedy
    assert not found.value.can_retry
    assert pipeline.records("t") == []
    pipeline.properties = {name: text for name, text in pipeline.properties.items() if name not in GUIDS}
    pipeline.snapshot()
    assert len(pipeline.records("t")) == 1
