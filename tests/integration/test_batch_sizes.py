"""Topics that take smaller batches than a writer makes."""

from __future__ import annotations

import random
import re
import time
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource
from kit.incremental_rig import ask_for, books, check_exact, reads
from kit.records import compacted, duplicates, payload
from kit.sql import execute, rows
from kit.window_rig import SIGNALS, Places, connection
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.drain import committer
from airflow_provider_mysql_cdc.cdc.errors import RecordTooLargeError
from airflow_provider_mysql_cdc.cdc.sink import request_limit
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicSpec, ensure_topics

SMALL = {"topic.creation.default.max.message.bytes": "50000", "cdc.id.header": "true"}


def fill(root: Any, table: str, first: int, count: int) -> None:
    """Insert rows of some hundred bytes, a thousand in a transaction, and change the table's structure on the way."""
    for begin in range(first, first + count, 1_000):
        values = ", ".join(f"({n}, REPEAT('x', {n % 400}))" for n in range(begin, min(begin + 1_000, first + count)))
        execute(root, f"INSERT INTO {table} (id, t) VALUES {values}")
        execute(root, f"ALTER TABLE {table} ADD COLUMN c{begin} INT")


def test_a_drain_goes_on_with_batches_that_a_topic_takes(properties: dict[str, str], root: Any, database: str) -> None:
    """Java's producers split what is refused; a topic may have been made for batches of 16 KB."""
    table = f"`{database}`.t"
    execute(root, f"CREATE TABLE {table} (id INT PRIMARY KEY, t VARCHAR(500))", f"INSERT INTO {table} VALUES (0, 'x')")
    pipeline = Pipeline(
        properties | SMALL | {"drain.writers": "2", "drain.small.batch.bytes": "0", "commit.bytes": "300000"}
    )
    pipeline.snapshot()
    fill(root, table, 1, 4_000)
    outcome = pipeline.drain()
    assert outcome is not None and outcome.complete, outcome
    records = pipeline.records("t")
    assert len(records) == 4_001 and not duplicates(records)
    found = {value["id"]: value["t"] for value in compacted(records).values()}
    assert found == dict(rows(root, f"SELECT id, t FROM {table}"))
    said = [line.partition(": ")[0] for line in pipeline.lines if " continues with batches of " in line]
    assert said == [f"writer 0 continues with batches of {size} bytes" for size in ("100,000", "10,000")]


def test_a_snapshot_writes_a_chunk_again_with_batches_that_a_topic_takes(
    properties: dict[str, str], root: Any, database: str
) -> None:
    table = f"`{database}`.t"
    execute(root, f"CREATE TABLE {table} (id INT PRIMARY KEY, t VARCHAR(500))")
    fill(root, table, 0, 4_000)
    pipeline = Pipeline(properties | SMALL | {"snapshot.chunk.rows": "1500", "snapshot.parallelism": "2"})
    outcome = pipeline.snapshot()
    assert outcome.complete and list(outcome.counts.values()) == [4_000]
    assert outcome.tally is not None and list(outcome.tally.tables.values()) == [4_000]
    assert outcome.tally.native.rows in (0, 4_000)
    records = pipeline.records("t")
    assert len(records) == 4_000 and not duplicates(records)
    found = {value["id"]: value["t"] for value in compacted(records).values()}
    assert found == dict(rows(root, f"SELECT id, t FROM {table}"))
    assert any(" continues with batches of 10,000 bytes: " in line for line in pipeline.lines)


def test_a_record_that_fits_no_batch_is_named(properties: dict[str, str], root: Any, database: str) -> None:
    execute(root, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, t MEDIUMTEXT)")
    pipeline = Pipeline(properties | SMALL)
    pipeline.snapshot()
    execute(root, f"INSERT INTO `{database}`.t VALUES (1, REPEAT('x', 60000))")
    with pytest.raises(RecordTooLargeError, match=r"max\.message\.bytes") as caught:
        pipeline.drain()
    assert re.search(r"the record has 6\d{4} bytes", caught.value.why), caught.value.message()
    assert pipeline.table_topic("t") in caught.value.where


LARGE = {"kafka.message.max.bytes": "200000000", "topic.creation.default.max.message.bytes": "200000000"}


def test_a_record_larger_than_any_request_is_named_at_once(
    properties: dict[str, str], root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker closes the connection without an answer, and the client would send the record again for ever."""
    execute(root, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, t MEDIUMTEXT)")
    pipeline = Pipeline(properties | LARGE)
    with closing(kafka_clients.record_writer(pipeline.cfg, 0)) as sink:
        sink.init()
        with pytest.raises(RecordTooLargeError, match=r"at most 104857600 bytes \(socket\.request\.max\.bytes\)"):
            sink.produce(pipeline.table_topic("t"), b"key", b"x" * 104_857_600, 0)
    monkeypatch.setattr(request_limit, "_LIMITS", {})
    monkeypatch.setattr(request_limit, "broker_settings", lambda admin: {"socket.request.max.bytes": "1100000"})
    pipeline.snapshot()
    execute(root, f"INSERT INTO `{database}`.t VALUES (1, REPEAT('x', 1100000))")
    with pytest.raises(RecordTooLargeError, match=r"socket\.request\.max\.bytes") as caught:
        pipeline.drain()
    assert pipeline.table_topic("t") in caught.value.where and not caught.value.can_retry


@pytest.mark.parametrize("codec", ["lz4"])  # the others take the same way, and minutes of CPU
def test_a_record_that_does_not_become_small_enough_by_compression_is_named(
    properties: dict[str, str], codec: str, unique: str
) -> None:
    """Whether it does is known when the client has compressed it."""
    more = {"kafka.compression.type": codec, "kafka.delivery.timeout.ms": "300000"}
    cfg, topic = Pipeline(properties | LARGE | more).cfg, f"{unique}.large"
    ensure_topics(make_admin(cfg.kafka_settings()), {topic: TopicSpec(1, 1, {"max.message.bytes": "200000000"})})
    with closing(kafka_clients.record_writer(cfg, 0)) as sink:
        sink.init()
        sink.produce(topic, b"compresses well", b"x" * 150_000_000, 0)
        sink.commit()
        with pytest.raises(
            RecordTooLargeError, match=r"at most 104857600 bytes \(socket\.request\.max\.bytes"
        ) as caught:
            sink.produce(topic, b"small", b"1", 0)
            sink.produce(topic, b"random", random.Random(1).randbytes(106_000_000), 0)
            sink.commit()
        assert sink.shrink_batches() is None
        assert f"topic {topic}, partition 0, key random" in caught.value.where and not caught.value.can_retry
        assert "it has 106000006 bytes" in caught.value.why and "after compression" in caught.value.why


FLAT = {
    "cdc.id.header": "true",
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
    "commit.bytes": "200000",
}


def take_less(pipeline: Pipeline, table: str, size: int) -> None:
    """Let the topic of a table take batches of at most so many bytes from now on."""
    entry = ConfigEntry("max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET)
    topic = ConfigResource("topic", pipeline.table_topic(table), incremental_configs=[entry])
    admin = make_admin(pipeline.cfg.kafka_settings())
    for done in admin.incremental_alter_configs([topic]).values():
        done.result()


@pytest.mark.parametrize("length", [100, 900])
@pytest.mark.exhaustive(but="100")
def test_a_topic_that_takes_few_records_at_once_is_written_in_batches_of_as_few(
    properties: dict[str, str], root: Any, database: str, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its settings are changed in the middle of a batch, to little more than a record."""
    table, commits = f"`{database}`.t", list[str]()
    execute(root, f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(1000))", f"INSERT INTO {table} VALUES (-1, '')")
    pipeline = Pipeline(properties | FLAT)
    pipeline.snapshot()
    for first in range(0, 6_000, 500):
        values = ", ".join(f"({n}, REPEAT('x', {length}))" for n in range(first, first + 500))
        execute(root, f"INSERT INTO {table} VALUES {values}")

    def point(name: str, writer: int | None = None) -> None:
        commits.extend([name] if name == "writer.after_commit" else [])
        if len(commits) == 2:
            take_less(pipeline, "t", 2_000)
            time.sleep(0.5)  # a broker learns of it a little later

    monkeypatch.setattr(committer, "fault_point", point)
    outcome = pipeline.drain()
    assert outcome is not None and outcome.complete
    assert any(" continues with batches of " in line for line in pipeline.lines)
    records = pipeline.records("t")
    assert len(records) == 6_001 and not duplicates(records)
    found = {value["id"]: value["v"] for value in compacted(records).values()}
    assert found == dict(rows(root, f"SELECT id, v FROM {table}"))


@pytest.mark.parametrize("size", [50_000, 2_000])
@pytest.mark.exhaustive(but="2000")
def test_an_ad_hoc_snapshot_writes_to_a_topic_that_takes_smaller_batches(
    properties: dict[str, str], root: Any, database: str, size: int
) -> None:
    values = ", ".join(f"({n}, REPEAT('x', 900))" for n in range(2_000))
    execute(root, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, v VARCHAR(1000))")
    execute(root, f"INSERT INTO `{database}`.t VALUES {values}")
    pipeline = Pipeline(properties | FLAT | {"incremental.snapshot.chunk.size": "2000"})
    pipeline.snapshot()
    take_less(pipeline, "t", size)
    ask_for(pipeline, ["t"])
    assert pipeline.drain() is not None
    assert [scan.state for scan in books(pipeline).scans.values()] == ["done"]
    check_exact(pipeline, root, "t")
    assert sorted(reads(pipeline, "t").values()) == [1] * 2_000
    assert any(" continues with batches of " in line for line in pipeline.lines)


@pytest.mark.parametrize("table_of_signals", [False, True], ids=["place", "row"])
@pytest.mark.exhaustive(but="row")
def test_a_window_continues_where_a_topic_takes_smaller_batches_of_the_stream(
    properties: dict[str, str],
    root: Any,
    database: str,
    stack: Any,
    monkeypatch: pytest.MonkeyPatch,
    table_of_signals: bool,
) -> None:
    """Its writer starts again; rows that were changed behind the low watermark are left out, and no others."""
    table, places = f"`{database}`.t", Places(monkeypatch)
    execute(root, f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(1000))", SIGNALS.format(database))
    execute(root, f"INSERT INTO {table} VALUES {', '.join(f'({n}, NULL)' for n in range(300))}")
    more = {"signal.data.collection": f"{database}.signals"} if table_of_signals else {}
    pipeline = Pipeline(properties | FLAT | more, slots=1)
    pipeline.snapshot()
    execute(root, f"GRANT INSERT ON `{database}`.signals TO {properties['database.user']}")
    take_less(pipeline, "t", 2_000)
    ask_for(pipeline, ["t"])
    session = connection(stack)
    places.at("before low", lambda: execute(session, f"UPDATE {table} SET v = REPEAT('a', 300) WHERE id < 100"))
    changed = f"UPDATE {table} SET v = REPEAT('b', 300) WHERE id BETWEEN 100 AND 199"
    places.at("low", lambda: execute(session, changed))
    assert pipeline.drain() is not None
    assert not places.left and [scan.state for scan in books(pipeline).scans.values()] == ["done"]
    assert any(" continues with batches of " in line for line in pipeline.lines)
    check_exact(pipeline, root, "t")
    values = [payload(r.value) for r in pipeline.records("t")]
    found = [v["after"]["id"] for v in values if v["source"]["snapshot"] == "incremental"]
    assert sorted(found) == [*range(100), *range(200, 300)]
