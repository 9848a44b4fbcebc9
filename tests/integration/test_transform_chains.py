"""Jobs behind transforms on real servers: what consumers read after crashes, windows and lost topics."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from kit.avro_rig import Readers, avro
from kit.chain_rig import CONNECT, DEBEZIUM, transforms
from kit.incremental_rig import ask_for, books
from kit.records import payload
from kit.sql import execute, rows
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.errors import TopicChangedError, TransformError
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin

PLAIN = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false", "cdc.id.header": "true"}
UNWRAP = {
    "type": f"{DEBEZIUM}ExtractNewRecordState",
    "delete.tombstone.handling.mode": "rewrite-with-tombstone",
    "add.fields": "op",
    "predicate": "rows",
}
OUTBOX = {
    "type": f"{DEBEZIUM}outbox.EventRouter",
    "route.topic.replacement": "PREFIX.out.${routedByValue}",
    "predicate": "outbox",
}


def chain(properties: dict[str, str], database: str) -> dict[str, str]:
    """Return the properties of a stream whose outbox table is routed, and whose other tables are unwrapped."""
    prefix = properties["topic.prefix"]
    outbox = {name: text.replace("PREFIX", prefix) for name, text in OUTBOX.items()}
    matches = f"{CONNECT}predicates.TopicNameMatches"
    return {
        **properties,
        **PLAIN,
        **transforms(outbox=outbox, unwrap=UNWRAP),
        "predicates": "outbox,rows",
        "predicates.outbox.type": matches,
        "predicates.outbox.pattern": rf"{prefix}\.{database}\.outbox",
        "predicates.rows.type": matches,
        "predicates.rows.pattern": rf"{prefix}\.{database}\.t",
        "topic.creation.default.partitions": "3",
        "drain.writers": "3",
        "drain.small.batch.bytes": "0",
    }


def filled(database: str) -> list[str]:
    return [
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY, v INT)",
        f"CREATE TABLE {database}.outbox (id INT PRIMARY KEY, aggregatetype VARCHAR(20), aggregateid VARCHAR(20), "
        "payload VARCHAR(50))",
        f"INSERT INTO {database}.t VALUES " + ",".join(f"({n}, 0)" for n in range(50)),
        f"INSERT INTO {database}.outbox VALUES (0, 'a', 'k0', 'first')",
    ]


def work(database: str, begin: int) -> list[str]:
    """Return transactions that insert, change and delete rows, and send events to two topics."""
    statements = ["BEGIN"]
    for n in range(begin, begin + 200):
        statements += [
            f"INSERT INTO {database}.t VALUES ({n}, 1)",
            f"UPDATE {database}.t SET v = {n} WHERE id = {n % 50}",
            f"INSERT INTO {database}.outbox VALUES ({n}, '{'ab'[n % 2]}', 'k{n % 5}', 'p{n}')",
            f"DELETE FROM {database}.outbox WHERE id = {n}",
        ]
        if n % 7 == 0:
            statements += [f"DELETE FROM {database}.t WHERE id = {n}", "COMMIT", "BEGIN"]
    return [*statements, "COMMIT"]


def latest(pipeline: Pipeline) -> dict[int, int]:
    """Return the rows that a consumer of the unwrapped topic has."""
    state: dict[int, int] = {}
    for record in pipeline.records("t"):
        value, key = payload(record.value), payload(record.key)["id"]
        if value is None or value["__deleted"] == "true":
            state.pop(key, None)
        else:
            state[key] = value["v"]
    return state


def ids(pipeline: Pipeline, topics: list[str]) -> Counter[bytes]:
    return Counter(dict(r.headers)["cdc-id"] for topic in topics for r in pipeline.read(topic))


@pytest.mark.req("TOPIC-05", "SNAP-07", "FAULT-03", "INC-20")
@pytest.mark.parametrize("point", ["writer.before_commit", "writer.after_commit"])
@pytest.mark.exhaustive(but="after_commit")
def test_consumers_behind_transforms_have_each_event_once(
    properties: dict[str, str], root: Any, database: str, tmp_path: Path, point: str
) -> None:
    pipeline = Pipeline(chain(properties, database) | {"commit.bytes": "2048"}, slots=3)
    prefix = pipeline.cfg.topic_prefix
    execute(root, *filled(database))
    pipeline.snapshot()
    assert latest(pipeline) == dict.fromkeys(range(50), 0)
    out = [f"{prefix}.out.{kind}" for kind in "ab"]
    # No topic of the outbox table itself: Connect creates none either.
    assert pipeline.topics() == {f"{prefix}.{database}.t": 3, out[0]: 3}
    execute(root, *work(database, 100))
    fired = tmp_path / "fired"
    fault = {"point": point, "action": "kill-self", "fired": str(fired)}
    process = pipeline.in_process("drain", tmp_path, fault=fault)
    assert fired.exists() and process.returncode == -signal.SIGKILL, process.stdout
    for _ in range(2):
        pipeline.drain()
    assert latest(pipeline) == dict(rows(root, f"SELECT id, v FROM {database}.t"))
    assert set(ids(pipeline, [*out, f"{prefix}.{database}.t"]).values()) == {1}
    for number, topic in enumerate(out):
        events = pipeline.read(topic)
        sent = [f"p{n}" for n in range(100, 300) if n % 2 == number]
        # Of one key in the order of the binlog, and each once.
        by_key: dict[str, list[str]] = {}
        for record in events:
            by_key.setdefault(payload(record.key), []).append(payload(record.value))
        expected: dict[str, list[str]] = {"k0": ["first"]} if number == 0 else {}
        for text in sent:
            expected.setdefault(f"k{int(text[1:]) % 5}", []).append(text)
        assert by_key == expected
        assert len({(r.key, r.partition) for r in events}) == len(by_key)
    ask_for(pipeline, ["t"])
    pipeline.drain()
    assert {scan.state for scan in books(pipeline).scans.values()} == {"done"}
    assert latest(pipeline) == dict(rows(root, f"SELECT id, v FROM {database}.t"))
    reads = [v for r in pipeline.records("t") if (v := payload(r.value)) and v["__op"] == "r"]
    assert len(reads) == 50 + len(latest(pipeline))


@pytest.mark.req("TOPIC-05")
def test_avro_behind_transforms_is_read_by_standard_deserializers(
    properties: dict[str, str], root: Any, database: str, registry: str
) -> None:
    """Unwrapped rows before and after ALTER, a delete and its tombstone, and events of an outbox, which are texts."""
    given = {name: text for name, text in chain(properties, database).items() if name not in PLAIN}
    pipeline, readers = Pipeline(given | avro(registry), slots=1), Readers(registry)
    execute(root, *filled(database), f"DELETE FROM {database}.t WHERE id > 1")
    pipeline.snapshot()
    execute(
        root,
        f"ALTER TABLE {database}.t ADD COLUMN name VARCHAR(9) DEFAULT 'é', ADD COLUMN d DECIMAL(5, 2)",
        f"UPDATE {database}.t SET name = NULL, d = 1.5 WHERE id = 1",
        f"INSERT INTO {database}.t VALUES (2, NULL, 'ü', -0.01)",
        f"DELETE FROM {database}.t WHERE id = 2",
        f"INSERT INTO {database}.outbox VALUES (1, 'a', 'k1', 'ключ'), (2, 'b', 'k1', NULL)",
    )
    pipeline.drain()

    def read(topic: str) -> list[Any]:
        return [
            (readers.read(topic, r.key, key=True), readers.read(topic, r.value), r.partition)
            for r in pipeline.read(topic)
        ]

    prefix = pipeline.cfg.topic_prefix
    before = [({"id": n}, {"id": n, "v": 0, "__deleted": "false", "__op": "r"}) for n in (0, 1)]
    after = [
        ({"id": 1}, {"id": 1, "v": 0, "name": "é", "d": b"\x00\x96", "__deleted": "false", "__op": "u"}),
        ({"id": 2}, {"id": 2, "v": None, "name": "ü", "d": b"\xff", "__deleted": "false", "__op": "c"}),
        ({"id": 2}, {"id": 2, "v": None, "name": "ü", "d": b"\xff", "__deleted": "true", "__op": "d"}),
        ({"id": 2}, None),
    ]
    found = read(f"{prefix}.{database}.t")
    by_key = {n: [value for key, value, _ in found if key == {"id": n}] for n in (0, 1, 2)}
    assert by_key == {n: [value for key, value in [*before, *after] if key == {"id": n}] for n in (0, 1, 2)}
    assert len({(key["id"], partition) for key, _, partition in found}) == 3
    assert [record[:2] for record in read(f"{prefix}.out.a")] == [("k0", "first"), ("k1", "ключ")]
    assert [record[:2] for record in read(f"{prefix}.out.b")] == [("k1", None)]


@pytest.mark.req("TOPIC-05", "SNAP-07", "INC-20")
def test_rows_that_jobs_unwrap_directly_are_those_of_the_table(
    properties: dict[str, str], root: Any, database: str
) -> None:
    """By a snapshot, drains that commit often, changed keys and an ad-hoc snapshot."""
    unwrap = {name: text for name, text in UNWRAP.items() if name != "predicate"}
    given = {**properties, **PLAIN, **transforms(unwrap=unwrap), "cdc.id.header": "false", "commit.bytes": "2048"}
    pipeline = Pipeline(given, slots=2)
    execute(root, *filled(database))
    pipeline.snapshot()
    execute(root, *work(database, 100), f"UPDATE {database}.t SET id = id + 1000 WHERE id % 3 = 0")
    pipeline.drain()
    table = dict(rows(root, f"SELECT id, v FROM {database}.t"))
    assert latest(pipeline) == table
    ops = Counter(value["__op"] for r in pipeline.records("t") if (value := payload(r.value)) is not None)
    moved = sum(key >= 1000 for key in table)
    deletes = sum(n % 7 == 0 for n in range(100, 300))
    assert ops == {"r": 50, "c": 200 + moved, "u": 200, "d": deletes + moved}
    ask_for(pipeline, ["t"])
    pipeline.drain()
    assert latest(pipeline) == table
    assert sum((payload(r.value) or {"__op": ""})["__op"] == "r" for r in pipeline.records("t")) == 50 + len(table)


def test_a_topic_behind_transforms_that_was_deleted_stops_the_stream(
    properties: dict[str, str], root: Any, database: str
) -> None:
    pipeline = Pipeline(chain(properties, database), slots=1)
    execute(root, *filled(database))
    pipeline.snapshot()
    (future,) = make_admin(pipeline.cfg.kafka_settings()).delete_topics([f"{pipeline.cfg.topic_prefix}.out.a"]).values()
    future.result(30)
    execute(root, f"INSERT INTO {database}.t VALUES (1000, 1)")
    with pytest.raises(TopicChangedError, match=r"out\.a: it was deleted"):
        pipeline.drain()


def test_a_record_that_a_transform_cannot_take_stops_before_it_and_goes_on_when_that_is_mended(
    properties: dict[str, str], root: Any, database: str
) -> None:
    given = {**properties, **PLAIN, **transforms(mask={"type": f"{CONNECT}MaskField$Value", "fields": "op"})}
    pipeline = Pipeline(given, slots=1)
    execute(root, f"CREATE TABLE {database}.t (id INT PRIMARY KEY, v INT)")
    pipeline.snapshot()
    execute(
        root,
        f"INSERT INTO {database}.t VALUES (1, 1)",
        f"DELETE FROM {database}.t",
        f"INSERT INTO {database}.t VALUES (2, 2)",
    )

    def values() -> list[bytes | None]:
        return [record.value for record in pipeline.records("t")]

    with pytest.raises(TransformError, match="the transform mask cannot take a record"):
        pipeline.drain()
    assert [value and payload(value)["op"] for value in values()] == [""]  # the transaction before it
    tombstone = {"transforms.mask.predicate": "tombstone", "transforms.mask.negate": "true", "predicates": "tombstone"}
    tombstone["predicates.tombstone.type"] = f"{CONNECT}predicates.RecordIsTombstone"
    mended = Pipeline(given | tombstone, pipeline.store, slots=1)
    mended.drain()
    assert [value and payload(value)["op"] for value in values()] == ["", "", None, ""]
