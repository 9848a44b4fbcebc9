"""Snapshot and drain on real servers, with tasks as threads; tests/fault uses Spark."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pymysql
import pytest
from kit.records import compacted, duplicates, payload
from kit.sql import execute, rows
from pipelinelib.pipeline import Pipeline
from pipelinelib.stand_ins import MemoryOffsetStore, ThreadRunner

from airflow_provider_mysql_cdc.cdc.drain.drain_driver import run_drain
from airflow_provider_mysql_cdc.cdc.errors import (
    ConfigError,
    NoOffsetError,
    StateError,
)
from airflow_provider_mysql_cdc.cdc.faults import FaultRaised

TABLES = {
    "orders": "CREATE TABLE `{db}`.orders "
    "(id BIGINT PRIMARY KEY AUTO_INCREMENT, customer INT NOT NULL, note VARCHAR(80))",
    "lines": "CREATE TABLE `{db}`.`lines` (o BIGINT, n INT, sku VARCHAR(20), qty INT, PRIMARY KEY (o, n))",
    "names": "CREATE TABLE `{db}`.names (k VARCHAR(30) CHARACTER SET latin1 PRIMARY KEY, v TEXT CHARACTER SET latin1)",
    "log": "CREATE TABLE `{db}`.log (a INT, b VARCHAR(20))",
}
PROPERTIES = {
    "cdc.id.header": "true",
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
    "drain.small.batch.bytes": "0",
}


def fill(root: Any, database: str, count: int = 1000) -> None:
    execute(root, *(t.format(db=database) for t in TABLES.values()))
    orders = ",".join(f"({i % 17}, 'note {i}')" for i in range(count))
    lines = ",".join(f"({i // 3}, {i % 3}, 'sku-{i}', {i})" for i in range(count))
    execute(
        root,
        f"INSERT INTO `{database}`.orders (customer, note) VALUES {orders}",
        f"INSERT INTO `{database}`.`lines` VALUES {lines}",
        f"INSERT INTO `{database}`.names VALUES ('Ärger', 'Müller'), ('arger', 'x'), ('b', 'é'), ('Z', NULL)",
        f"INSERT INTO `{database}`.log VALUES (1, 'a'), (1, 'a'), (2, NULL)",
    )


def churn(root: Any, database: str) -> None:
    execute(
        root,
        f"UPDATE `{database}`.orders SET note = CONCAT(note, '.') WHERE id % 3 = 0",
        f"DELETE FROM `{database}`.orders WHERE id % 10 = 0",
        f"UPDATE `{database}`.orders SET id = id + 1000000 WHERE id < 20",
        "BEGIN",
        f"INSERT INTO `{database}`.`lines` VALUES (9000, 1, 'x', 1), (9000, 2, 'y', 2)",
        f"INSERT INTO `{database}`.log VALUES (3, 'c')",
        f"UPDATE `{database}`.names SET v = 'ß' WHERE k = 'b'",
        "COMMIT",
        f"ALTER TABLE `{database}`.`lines` ADD COLUMN price DECIMAL(8,2) NOT NULL DEFAULT '1.50' AFTER sku",
        f"UPDATE `{database}`.`lines` SET price = qty / 2 WHERE n = 1",
        f"DELETE FROM `{database}`.log WHERE a = 1 LIMIT 1",
    )


def check_table(pipeline: Pipeline, root: Any, database: str, table: str, skip: tuple[str, ...] = ()) -> None:
    names = [r[0] for r in rows(root, f"SHOW COLUMNS FROM `{database}`.`{table}`")]
    expected = [
        {n: v for n, v in zip(names, row, strict=True) if n not in skip}
        for row in rows(root, f"SELECT * FROM `{database}`.`{table}`")
    ]
    records = pipeline.records(table)
    assert duplicates(records) == []
    found = [{k: v for k, v in row.items() if k not in skip} for row in compacted(records).values()]
    key = lambda row: json.dumps(row, sort_keys=True)  # noqa: E731
    assert sorted(found, key=key) == sorted(expected, key=key)


@pytest.mark.req("SNAP-01", "SNAP-14", "STRM-01", "EVT-33", "SETUP-19", "SETUP-26", "SETUP-37")
@pytest.mark.parametrize("writers", [1, 3])
@pytest.mark.exhaustive(but="3")
def test_snapshot_then_drain_equals_the_tables(pipeline: Pipeline, root: Any, database: str, writers: int) -> None:
    pipeline.properties |= {"drain.writers": str(writers), "topic.creation.default.partitions": str(writers)}
    pipeline.properties["snapshot.chunk.rows"] = "100"
    fill(root, database)
    execute(root, *(f"ANALYZE TABLE `{database}`.`{t}`" for t in TABLES))
    assert pipeline.snapshot().complete
    churn(root, database)
    outcome = pipeline.drain()
    assert outcome is not None and outcome.complete
    churn_again = f"UPDATE `{database}`.orders SET customer = customer + 1 WHERE id % 2 = 1"
    execute(root, churn_again)
    pipeline.drain()
    check_table(pipeline, root, database, "orders")
    check_table(pipeline, root, database, "lines", skip=("price",))
    check_table(pipeline, root, database, "names")
    logs = [payload(r.value) for r in pipeline.records("log")]
    assert [v and v["op"] for v in logs] == ["r", "r", "r", "c", "d", None]


@pytest.mark.req("STRM-03", "STRM-04", "STRM-11", "FAULT-10")
@pytest.mark.parametrize("point", ["writer.before_commit", "writer.after_commit", "airflow.before_commit"])
@pytest.mark.exhaustive(but="writer.after|airflow")
def test_a_batch_begins_at_the_stored_offset_ends_where_planned_and_moves_it_last(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, point: str
) -> None:
    """A crash at any point leaves the offset; the next run goes on from it, and shows nothing twice."""

    def shown() -> list[int]:
        return [payload(r.value)["after"]["id"] for r in pipeline.records("t")]

    execute(root, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY)", f"INSERT INTO `{database}`.t VALUES (1)")
    pipeline.snapshot()
    begun = pipeline.store.load()
    execute(root, f"INSERT INTO `{database}`.t VALUES (2)")
    job = pipeline.prepare("drain")
    execute(root, f"INSERT INTO `{database}`.t VALUES (3)")
    planned = pipeline.store.load()
    assert begun is not None and planned is not None
    assert planned.committed == begun.committed == job.plan.start and planned.pending == job.plan
    fired = tmp_path / "fired"
    monkeypatch.setenv("MYSQL_CDC_FAULT", json.dumps({"point": point, "fired": str(fired)}))
    if point == "airflow.before_commit":
        run_drain(job.spec, ThreadRunner(3), pipeline.log)
        with pytest.raises(FaultRaised):
            pipeline.settle()
        assert shown() == [1, 2], "what was committed after the plan is the next batch's"
    else:
        with pytest.raises((FaultRaised, StateError)):
            run_drain(job.spec, ThreadRunner(3), pipeline.log)
    stored = pipeline.store.load()
    assert fired.exists() and stored is not None and stored.committed == begun.committed

    next_run = Pipeline(pipeline.properties, pipeline.store)
    if not next_run.settle().complete:
        next_run.drain()
    moved = next_run.store.load()
    assert shown() == [1, 2] and moved is not None and moved.committed is not None
    assert (moved.committed.file, moved.committed.pos) == (job.plan.end.file, job.plan.end.pos)
    assert moved.committed.gtids == job.plan.end.gtids and moved.committed.server_uuid == job.plan.end.server_uuid
    next_run.drain()
    assert shown() == [1, 2, 3] and duplicates(pipeline.records("t")) == []


def test_a_batch_that_would_be_larger_ends_with_a_file(pipeline: Pipeline, root: Any, database: str) -> None:
    execute(root, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY)")
    pipeline.snapshot()
    for number in (1, 2):
        execute(root, f"INSERT INTO `{database}`.t VALUES ({number})", "FLUSH BINARY LOGS")
    pipeline.properties["max.batch.bytes"] = "1"
    assert pipeline.drain() is not None
    assert [payload(r.value)["after"]["id"] for r in pipeline.records("t")] == [1]
    del pipeline.properties["max.batch.bytes"]
    pipeline.drain()
    assert [payload(r.value)["after"]["id"] for r in pipeline.records("t")] == [1, 2]


@pytest.mark.req("EVT-23", "EVT-35", "STRM-18")
def test_an_event_contains_the_origin_of_the_change_and_its_times(pipeline: Pipeline, root: Any, database: str) -> None:
    execute(root, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY)")
    pipeline.snapshot()
    asked = time.time_ns()
    server_id, *_ = rows(root, "SELECT @@server_id")[0]
    with pymysql.connect(
        host=root.host, port=root.port, user="root", password="", autocommit=True, ssl_disabled=True
    ) as other:
        execute(other, f"INSERT INTO `{database}`.t VALUES (1), (2), (3)")
        thread = other.thread_id()
    execute(root, f"INSERT INTO `{database}`.t VALUES (4)")
    committed = time.time_ns()
    pipeline.drain()
    done = time.time_ns()
    events = [payload(r.value) for r in pipeline.records("t")]
    for event in events:
        assert committed <= event["ts_ns"] <= done
        assert (event["ts_ms"], event["ts_us"]) == (event["ts_ns"] // 1_000_000, event["ts_ns"] // 1000)
        source = event["source"]
        assert asked // 1000 <= source["ts_us"] <= committed // 1000
        assert (source["ts_ms"], source["ts_ns"]) == (source["ts_us"] // 1000, source["ts_us"] * 1000)
        assert source["server_id"] == server_id
    assert [(e["source"]["row"], e["source"]["thread"]) for e in events] == [
        (0, thread), (1, thread), (2, thread), (0, root.thread_id()),
    ]  # fmt: skip


def test_one_hot_table_is_split_over_writers_and_keeps_its_order(pipeline: Pipeline, root: Any, database: str) -> None:
    pipeline.properties |= {"drain.writers": "3", "topic.creation.default.partitions": "4"}
    execute(root, f"CREATE TABLE `{database}`.hot (id INT PRIMARY KEY, n INT)")
    pipeline.snapshot()
    for _ in range(5):
        values = ",".join(f"({i}, 0)" for i in range(200))
        execute(
            root,
            f"INSERT INTO `{database}`.hot VALUES {values}",
            f"UPDATE `{database}`.hot SET n = n + 1",
            f"DELETE FROM `{database}`.hot",
        )
    # The second batch knows the first one's counts, so the topic outweighs a writer's share.
    pipeline.drain()
    execute(root, f"INSERT INTO `{database}`.hot VALUES (1, 1), (2, 2), (3, 3), (4, 4), (5, 5)")
    job = pipeline.prepare("drain")
    owners = job.plan.assignment[pipeline.table_topic("hot")]
    assert len(set(owners)) == 3
    pipeline.drain()
    records = pipeline.records("hot")
    assert duplicates(records) == []
    assert len(records) == 5 * (200 + 200 + 400) + 5
    per_key: dict[bytes, list[str]] = {}
    for record in records:
        value = payload(record.value)
        per_key.setdefault(record.key or b"", []).append(value["op"] if value else "tombstone")
    assert per_key[b'{"id":77}'] == ["c", "u", "d", "tombstone"] * 5


@pytest.mark.parametrize("metadata", ["MINIMAL", "FULL"])
@pytest.mark.parametrize("compression", ["OFF", "ON"])
@pytest.mark.exhaustive(but="ON-MINIMAL")
def test_metadata_and_compression_make_no_difference(
    pipeline: Pipeline, root: Any, database: str, metadata: str, compression: str
) -> None:
    execute(
        root,
        f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, u BIGINT UNSIGNED, e ENUM('x','y'), s SET('p','q'), "
        "b BINARY(4), l VARCHAR(9) CHARACTER SET latin1, j JSON, d DECIMAL(9,3), dt DATETIME(6), ts TIMESTAMP(3) NULL)",
    )
    pipeline.snapshot()
    before = rows(root, "SELECT @@global.binlog_row_metadata")[0][0]
    try:
        execute(
            root,
            f"SET GLOBAL binlog_row_metadata = {metadata}",
            f"SET SESSION binlog_transaction_compression = {compression}",
            "SET SESSION time_zone = '+00:00'",
            f"INSERT INTO `{database}`.t VALUES (1, 18446744073709551615, 'y', 'p,q', 'ab', 'é', "
            "'{\"a\": [1, 2.5, null]}', -12.345, '2020-02-29 12:34:56.123456', '2021-01-01 00:00:00.5')",
            f"UPDATE `{database}`.t SET u = 1",
        )
    finally:
        execute(root, f"SET GLOBAL binlog_row_metadata = {before}")
    pipeline.drain()
    create, update = (payload(r.value) for r in pipeline.records("t"))
    assert create["after"] == {
        "id": 1, "u": -1, "e": "y", "s": "p,q", "b": "YWIAAA==", "l": "é", "j": '{"a":[1,2.5,null]}',
        "d": "z8c=", "dt": 1582979696123456, "ts": "2021-01-01T00:00:00.500Z",
    }  # fmt: skip
    assert update["before"] == create["after"] and update["after"] == create["after"] | {"u": 1}
    assert duplicates(pipeline.records("t")) == []


@pytest.mark.req("SNAP-02", "SNAP-03")
def test_lost_offset_is_restored_and_never_snapshots_again(pipeline: Pipeline, root: Any, database: str) -> None:
    fill(root, database, 10)
    pipeline.snapshot()
    churn(root, database)
    pipeline.drain()
    before = {t: len(pipeline.read(t)) for t in pipeline.topics()}
    pipeline.store = MemoryOffsetStore()
    assert pipeline.snapshot_is_refused()
    assert any("restore" in line for line in pipeline.lines)
    state = pipeline.store.load()
    assert state is not None and state.committed is not None
    execute(root, f"INSERT INTO `{database}`.log VALUES (77, 'new')")
    pipeline.drain()
    after = {t: len(pipeline.read(t)) for t in pipeline.topics()}
    assert {t: after[t] - n for t, n in before.items() if after[t] != n} == {pipeline.table_topic("log"): 1}


def test_drain_without_snapshot_says_what_to_do(pipeline: Pipeline) -> None:
    with pytest.raises(NoOffsetError, match="run the snapshot first"):
        pipeline.drain()


def test_no_captured_table_is_a_named_error(pipeline: Pipeline) -> None:
    with pytest.raises(ConfigError, match="no table is captured"):
        pipeline.snapshot()
