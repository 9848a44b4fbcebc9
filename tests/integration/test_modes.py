"""Snapshot modes, transaction metadata, truncate events, heartbeats and contract 1.9, on real servers."""

from __future__ import annotations

import threading
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from kit.private_mysql import Pool
from kit.records import payload
from kit.sql import execute, purge, rows
from pipelinelib.pipeline import Pipeline
from pipelinelib.stand_ins import ThreadRunner
from pipelinelib.topics import delete_topics

from airflow_provider_mysql_cdc.cdc.drain.drain_driver import run_drain
from airflow_provider_mysql_cdc.cdc.errors import BinlogPurgedError, NoOffsetError, SchemaError
from airflow_provider_mysql_cdc.cdc.operate.reset_offset import reset_offset
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topics import all_partition_counts

PROPERTIES = {
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
    "drain.small.batch.bytes": "0",
}


def tables(root: Any, database: str) -> None:
    execute(
        root,
        f"CREATE TABLE `{database}`.a (id INT PRIMARY KEY, v INT)",
        f"CREATE TABLE `{database}`.b (id INT PRIMARY KEY, v INT)",
        f"CREATE TABLE `{database}`.c (v INT)",
    )


def work(root: Any, database: str) -> None:
    execute(
        root,
        "BEGIN",
        f"INSERT INTO `{database}`.a VALUES (3, 3)",
        f"INSERT INTO `{database}`.b VALUES (3, 3), (4, 4)",
        f"INSERT INTO `{database}`.c VALUES (1)",
        f"UPDATE `{database}`.a SET id = 30 WHERE id = 3",
        f"DELETE FROM `{database}`.b WHERE id = 4",
        "COMMIT",
        f"INSERT INTO `{database}`.a VALUES (5, 5)",
    )


@pytest.mark.req("TXN-01", "TXN-02", "TXN-03", "TXN-04", "TXN-05", "TXN-06", "TXN-07", "TXN-09")
@pytest.mark.parametrize("writers", [1, 3])
@pytest.mark.exhaustive(but="3")
def test_transaction_metadata_is_exact_with_any_number_of_writers(
    pipeline: Pipeline, root: Any, database: str, writers: int
) -> None:
    pipeline.properties |= {
        "provide.transaction.metadata": "true",
        "drain.writers": str(writers),
        "topic.creation.default.partitions": str(writers),
    }
    tables(root, database)
    pipeline.snapshot()
    work(root, database)
    pipeline.drain()
    ours = [
        (payload(r.key)["id"], payload(r.value))
        for r in pipeline.read(f"{pipeline.properties['topic.prefix']}.transaction")
    ]
    ends = [v for _, v in ours if v["status"] == "END" and v["event_count"]]
    assert all(key == value["id"] for key, value in ours)
    counts = [{c["data_collection"].split(".")[1]: c["event_count"] for c in v["data_collections"]} for v in ends]
    # A key change is two events; tombstones do not count.
    assert [v["event_count"] for v in ends] == [7, 1] and counts == [{"a": 3, "b": 3, "c": 1}, {"a": 1}]
    blocks = []
    for table in "abc":
        for record in pipeline.records(table):
            value = payload(record.value)
            if value is not None:
                block = value["transaction"]
                blocks.append((block["id"], block["total_order"], table, block["data_collection_order"], value["op"]))
    first = sorted(b[1:] for b in blocks if b[0] == ends[0]["id"])
    assert first == [
        (1, "a", 1, "c"), (2, "b", 1, "c"), (3, "b", 2, "c"), (4, "c", 1, "c"),
        (5, "a", 2, "d"), (6, "a", 3, "c"), (7, "b", 3, "d"),
    ]  # fmt: skip


@pytest.mark.req("STRM-15", "EVT-34")
def test_truncate_events_are_skipped_by_default_and_written_on_request(
    pipeline: Pipeline, root: Any, database: str
) -> None:
    tables(root, database)
    pipeline.snapshot()
    execute(root, f"INSERT INTO `{database}`.c VALUES (1)", f"TRUNCATE TABLE `{database}`.c")
    pipeline.drain()
    assert [payload(r.value)["op"] for r in pipeline.records("c")] == ["c"]
    pipeline.properties["skipped.operations"] = "none"
    execute(root, f"TRUNCATE TABLE `{database}`.c")
    pipeline.drain()
    record = pipeline.records("c")[-1]
    value = payload(record.value)
    assert record.key is None and (value["op"], value["before"], value["after"]) == ("t", None, None)


@pytest.mark.req("STRM-27", "STRM-29", "TOPIC-09")
def test_a_batch_ends_with_a_heartbeat_when_asked(pipeline: Pipeline, root: Any, database: str) -> None:
    tables(root, database)
    pipeline.snapshot()
    work(root, database)
    pipeline.drain()
    topic = f"__debezium-heartbeat.{pipeline.properties['topic.prefix']}"
    everything = all_partition_counts(make_admin(pipeline.cfg.kafka_settings()))
    assert pipeline.table_topic("a") in everything and topic not in everything, "the default is none"
    pipeline.properties["heartbeat.interval.ms"] = "1000"
    execute(root, f"GRANT INSERT ON `{database}`.a TO cdc@'%'")
    pipeline.properties["heartbeat.action.query"] = f"INSERT INTO `{database}`.a VALUES (99, 99)"
    execute(root, f"INSERT INTO `{database}`.a VALUES (98, 98)")
    pipeline.drain()
    assert rows(root, f"SELECT v FROM `{database}`.a WHERE id = 99") == [(99,)]
    prefix = pipeline.properties["topic.prefix"]
    beats = pipeline.read(topic)
    assert (
        len(beats) == 1 and payload(beats[-1].key) == {"serverName": prefix} and payload(beats[-1].value)["ts_ms"] > 0
    )


@pytest.mark.req("STRM-27", "STRM-30")
def test_a_job_of_many_batches_writes_heartbeats_at_their_interval(
    pipeline: Pipeline, root: Any, database: str
) -> None:
    """Also while nothing is logged."""
    tables(root, database)
    pipeline.snapshot()
    pipeline.properties |= {"heartbeat.interval.ms": "1000", "poll.interval.ms": "100"}
    execute(root, f"INSERT INTO `{database}`.a VALUES (1, 1)")
    job = pipeline.prepare("drain")
    stopped = threading.Event()

    def insert_rows() -> None:
        for number in range(100, 120):
            execute(root, f"INSERT INTO `{database}`.a VALUES ({number}, 1)")
            if stopped.wait(0.1):
                return

    writer = threading.Thread(target=insert_rows)
    writer.start()
    try:
        run_drain(replace(job.spec, run_for_s=7), ThreadRunner(1), pipeline.log)
    finally:
        stopped.set()
        writer.join()
    beats = pipeline.read(f"__debezium-heartbeat.{pipeline.properties['topic.prefix']}")
    times = [payload(beat.value)["ts_ms"] for beat in beats]
    assert len(times) >= 3 and min(later - earlier for earlier, later in pairwise(times)) >= 950, times
    assert times[-1] - times[0] > 3000, "also when the last batch is over"
    pipeline.settle()


@pytest.mark.req("SNAP-07", "SCH-18", "EVT-32", "STRM-29", "CFG-25", "CFG-38", "CFG-57")
def test_what_is_switched_off_is_in_no_topic(pipeline: Pipeline, root: Any, database: str) -> None:
    tables(root, database)
    execute(root, f"INSERT INTO `{database}`.a VALUES (1, 1), (2, 2)")
    prefix = pipeline.properties["topic.prefix"]
    pipeline.properties |= {
        "snapshot.mode": "no_data",
        "include.schema.changes": "false",
        "tombstones.on.delete": "false",
        "heartbeat.interval.ms": "1",
        "heartbeat.topics.prefix": f"hb-{prefix}",
    }
    assert pipeline.snapshot().complete
    execute(root, f"ALTER TABLE `{database}`.a ADD w INT", f"DELETE FROM `{database}`.a WHERE id = 1")
    pipeline.drain()
    values = [payload(r.value) for r in pipeline.records("a")]
    assert [v and (v["op"], v["before"]) for v in values] == [("d", {"id": 1, "v": 1, "w": None})]
    everything = all_partition_counts(make_admin(pipeline.cfg.kafka_settings()))
    assert prefix not in everything, "there is a topic of schema changes"
    assert f"__debezium-heartbeat.{prefix}" not in everything
    assert {payload(r.key)["serverName"] for r in pipeline.read(f"hb-{prefix}.{prefix}")} == {prefix}


@pytest.mark.req("SNAP-08", "SCH-16")
def test_recovery_rebuilds_a_lost_history_and_keeps_the_offset(pipeline: Pipeline, root: Any, database: str) -> None:
    tables(root, database)
    pipeline.snapshot()
    before = pipeline.store.load()
    work(root, database)
    delete_topics(pipeline.cfg.kafka_settings(), pipeline.cfg.history_topic)
    with pytest.raises(SchemaError, match=r"snapshot\.mode=recovery"):
        pipeline.drain()
    pipeline.properties["snapshot.mode"] = "recovery"
    assert pipeline.snapshot().complete
    after = pipeline.store.load()
    assert before is not None and after is not None and after.committed is not None
    assert before.committed is not None and after.committed.key() == before.committed.key()
    pipeline.properties["snapshot.mode"] = "initial"
    pipeline.drain()
    created = [v["after"]["id"] for r in pipeline.records("a") if (v := payload(r.value)) and v["op"] == "c"]
    assert created == [3, 30, 5]


@pytest.mark.req("SNAP-08")
def test_recovery_refuses_when_a_table_changed_since_the_offset(pipeline: Pipeline, root: Any, database: str) -> None:
    tables(root, database)
    pipeline.snapshot()
    execute(root, f"ALTER TABLE `{database}`.a ADD COLUMN x INT")
    pipeline.properties["snapshot.mode"] = "recovery"
    with pytest.raises(SchemaError, match="changed since the stored offset"):
        pipeline.snapshot()
    # The history is as it was: giving the recovery up, the drain goes on over the change.
    pipeline.properties["snapshot.mode"] = "initial"
    reset_offset(pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log)
    execute(root, f"INSERT INTO `{database}`.a (id, v, x) VALUES (77, 1, 2)")
    pipeline.drain()
    assert payload(pipeline.records("a")[-1].value)["after"] == {"id": 77, "v": 1, "x": 2}


@pytest.mark.req("SNAP-04", "SNAP-02", "SNAP-18", "SNAP-37")
def test_initial_only_reads_the_rows_and_never_the_binlog(pipeline: Pipeline, root: Any, database: str) -> None:
    tables(root, database)
    execute(root, f"INSERT INTO `{database}`.a VALUES (1, 1)")
    pipeline.properties["snapshot.mode"] = "initial_only"
    assert pipeline.snapshot().complete
    assert pipeline.snapshot_is_refused(), "an offset is stored"
    stored = pipeline.store.load()
    work(root, database)
    assert pipeline.drain() is None and pipeline.store.load() == stored
    assert [payload(r.value)["op"] for r in pipeline.records("a")] == ["r"]
    # What was not read is still there for another mode.
    pipeline.properties["snapshot.mode"] = "initial"
    pipeline.drain()
    assert [v["op"] if (v := payload(r.value)) else "" for r in pipeline.records("a")] == ["r", "c", "d", "", "c", "c"]


@pytest.mark.req("SNAP-05", "SNAP-06", "SNAP-08")
def test_modes_that_decide_whether_to_snapshot(pipeline: Pipeline, root: Any, database: str) -> None:
    tables(root, database)
    execute(root, f"INSERT INTO `{database}`.a VALUES (1, 1)")
    pipeline.properties["snapshot.mode"] = "never"
    assert pipeline.snapshot_is_refused() and "snapshot.mode=never: no snapshot is taken" in pipeline.lines
    pipeline.properties["snapshot.mode"] = "recovery"
    with pytest.raises(NoOffsetError):
        pipeline.snapshot()
    pipeline.properties["snapshot.mode"] = "when_needed"
    assert pipeline.snapshot().complete
    assert pipeline.snapshot_is_refused()
    pipeline.properties["snapshot.mode"] = "always"
    assert pipeline.snapshot().complete
    assert len(pipeline.records("a")) == 2


@pytest.mark.req("SNAP-05", "SNAP-06", "SNAP-38")
def test_what_the_binlog_still_holds_decides(
    properties: dict[str, str], pipeline: Pipeline, pool: Pool, database: str, root: Any
) -> None:
    """``never`` begins with the first file there is; ``when_needed`` snapshots when the stored position is gone."""
    with pool.lent() as server, server.connect() as conn:
        pipeline.properties |= server.properties()
        execute(
            conn,
            f"CREATE DATABASE `{database}`",
            f"CREATE TABLE `{database}`.a (id INT PRIMARY KEY, v INT)",
            f"INSERT INTO `{database}`.a VALUES (1, 1)",
            "FLUSH BINARY LOGS",
            f"INSERT INTO `{database}`.a VALUES (2, 2)",
        )
        pipeline.properties["snapshot.mode"] = "never"
        pipeline.drain()
        ours = [payload(r.value) for r in pipeline.records("a")]
        assert [(v["op"], v["after"]["id"], v["source"]["snapshot"]) for v in ours] == [
            ("c", 1, "false"), ("c", 2, "false"),
        ]  # fmt: skip
        pipeline.properties["snapshot.mode"] = "when_needed"
        assert pipeline.snapshot_is_refused()
        execute(conn, f"INSERT INTO `{database}`.a VALUES (3, 3)", "FLUSH BINARY LOGS")
        purge(conn)
        with pytest.raises(BinlogPurgedError):
            pipeline.drain()
        pipeline.properties["snapshot.mode"] = "initial"
        assert pipeline.snapshot_is_refused()
        pipeline.properties["snapshot.mode"] = "when_needed"
        assert pipeline.snapshot().complete
        assert [v["after"]["id"] for r in pipeline.records("a") if (v := payload(r.value))["op"] == "r"] == [
            1,
            2,
            3,
        ]
        execute(conn, f"INSERT INTO `{database}`.a VALUES (4, 4)")
        pipeline.drain()
        assert payload(pipeline.records("a")[-1].value)["after"]["id"] == 4
