"""The demo's verifier on real topics: it passes what the pipeline wrote, and notices whatever is done to it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from demolib import shop, verify, writer
from kit.avro_rig import avro
from kit.tiers import many
from pipelinelib.pipeline import Pipeline
from topiclib.checks import TableVerdict, check_table
from topiclib.events import EventReader, Layout, Row, position_of
from topiclib.tables import StoredTable, read_rows, stored_tables
from topiclib.topics import KafkaRecord, TopicError, read_topic
from topiclib.wire import WireReader, from_registry

ROOT = Path(__file__).resolve().parents[2]
SCALE = 0.01
SAMPLES = many(4, 12)


@dataclass
class World:
    """What the pipeline made of a small shop.

    Args:
        stack: The servers.
        name: Database and topic.prefix.
        tables: The tables by name.
        records: Records of each table's topic.
        rows: Rows of each table.
    """

    stack: Any
    name: str
    tables: dict[str, StoredTable]
    records: dict[str, list[KafkaRecord]]
    rows: dict[str, list[Row]]

    def connect(self) -> Any:
        return connect(self.stack)

    def layout(self, table: str) -> Layout:
        return self.tables[table].layout

    def judge(self, table: str, records: list[KafkaRecord]) -> TableVerdict:
        layout = self.layout(table)
        return check_table(layout, EventReader(layout).events(records), self.rows[table])


def connect(stack: Any) -> Any:
    return shop.connect(stack.mysql_host, stack.mysql_port, stack.root_user, stack.root_password)


@pytest.fixture(scope="module")
def world(stack: Any) -> Iterator[World]:
    name = f"demo{os.getpid()}_{time.time_ns() % 10**9}"
    conn = connect(stack)
    size = shop.Size(SCALE)
    shop.load(conn, name, size, lambda _: None)
    properties = {
        "topic.prefix": name,
        "database.hostname": stack.mysql_host,
        "database.port": str(stack.mysql_port),
        "database.user": stack.cdc_user,
        "database.password": stack.cdc_password,
        "database.ssl.mode": "disabled",
        "database.include.list": name,
        "kafka.bootstrap.servers": stack.kafka,
        "topic.creation.default.replication.factor": "1",
        "topic.creation.default.partitions": "3",
        "cdc.id.header": "true",
        "drain.writers": "2",
        "drain.small.batch.bytes": "0",
    }
    try:
        pipeline, business = Pipeline(properties), writer.ShopWorkload(conn, size, random.Random(3))
        pipeline.snapshot()
        for part in range(2):
            for _ in range(250):
                business.step()
            if part == 0:
                business.alter()
        pipeline.drain()
        tables = {t.layout.name: t for t in stored_tables(conn, name)}
        records = {t: list(read_topic(stack.kafka, f"{name}.{name}.{t}")) for t in tables}
        rows = {t: list(read_rows(conn, name, table)) for t, table in tables.items()}
        yield World(stack, name, tables, records, rows)
    finally:
        with conn.cursor() as cursor:
            cursor.execute(f"DROP DATABASE `{name}`")
        conn.close()


@pytest.mark.exhaustive
def test_everything_the_pipeline_wrote_holds(world: World) -> None:
    said: list[str] = []
    altered = (writer.ALTER_TABLE, writer.ALTER_COLUMN)
    result = verify.verify(world.connect, world.name, world.stack.kafka, world.name, altered=altered, say=said.append)
    assert result.ok, result.lines()
    assert len(result.tables) == len(said) == len(shop.TABLES)
    assert all(v.rows_table for v in result.tables)
    ops = {op for v in result.tables for op, n in v.ops.items() if n}
    assert ops == {"r", "c", "u", "d", "t"}


@pytest.mark.days("odd")
def test_avro_is_verified_as_json_is(stack: Any, database: str, properties: dict[str, str], registry: str) -> None:
    conn, size = connect(stack), shop.Size(SCALE / 5)
    shop.load(conn, database, size, lambda _: None)
    try:
        more = {"cdc.id.header": "true", "topic.creation.default.partitions": "3"}
        pipeline = Pipeline(properties | avro(registry) | more | {"database.include.list": database})
        business = writer.ShopWorkload(conn, size, random.Random(3))
        pipeline.snapshot()
        for part in range(2):
            for _ in range(40):
                business.step()
            if part == 0:
                business.alter()
        pipeline.drain()
    finally:
        conn.close()
    prefix, wire = pipeline.cfg.topic_prefix, WireReader(from_registry(registry))
    altered = (writer.ALTER_TABLE, writer.ALTER_COLUMN)
    arguments = {"connect": lambda: connect(stack), "database": database, "bootstrap": stack.kafka, "prefix": prefix}
    result = verify.verify(**arguments, altered=altered, wire=wire, say=lambda _: None)
    assert result.ok, result.lines()
    assert len(result.tables) == len(shop.TABLES) and sum(v.events for v in result.tables) > 500
    assert len(wire.seen) > 2 * len(shop.TABLES)
    with closing(connect(stack)) as other, other.cursor() as cursor:
        cursor.execute(f"UPDATE `{database}`.customers SET city = 'elsewhere' ORDER BY id LIMIT 1")
    result = verify.verify(**arguments, altered=altered, wire=wire, say=lambda _: None)
    assert any("table 'elsewhere'" in line for line in result.lines())


@pytest.mark.days("even")
def test_a_missing_alter_is_noticed(world: World) -> None:
    result = verify.verify(
        world.connect,
        world.name,
        world.stack.kafka,
        world.name,
        altered=("orders", "no_such_column"),
        say=lambda _: None,
    )
    assert not result.ok and result.schema


def test_a_row_that_changes_without_an_event_is_noticed(world: World) -> None:
    kept = list(world.rows["customers"])
    city = world.layout("customers").columns.index("city")
    row = kept[0]
    world.rows["customers"] = [(*row[:city], "elsewhere", *row[city + 1 :]), *kept[1:]]
    try:
        found = world.judge("customers", world.records["customers"])
    finally:
        world.rows["customers"] = kept
    assert "city: 'elsewhere'" not in "\n".join(found.lines())
    assert "table 'elsewhere'" in "\n".join(found.lines())


def sampled(table: str, candidates: list[int]) -> list[int]:
    """Return some positions: the first, the last, and others at random."""
    rng = random.Random(table)
    return sorted({candidates[0], candidates[-1], *rng.sample(candidates, min(SAMPLES, len(candidates)))})


TABLES = [t.name for t in shop.TABLES]
CHANGED = [name for name in TABLES if name != "warehouses"]


def test_an_event_taken_away_is_noticed(world: World) -> None:
    for table in TABLES:
        records = world.records[table]
        for at in sampled(table, list(range(len(records)))):
            assert not world.judge(table, records[:at] + records[at + 1 :]).ok, (table, records[at])


def test_an_event_doubled_is_noticed(world: World) -> None:
    for table in TABLES:
        records = world.records[table]
        for at in sampled(table, list(range(len(records)))):
            found = world.judge(table, [*records, records[at]])
            assert not found.ok, (table, records[at])
            if world.layout(table).key:
                assert "twice" in found.problems, (table, records[at])


def test_two_changes_swapped_are_noticed(world: World) -> None:
    """Neighbours of one partition change places; the rows at the end may well be the same."""
    for table in CHANGED:
        records = world.records[table]
        by_partition: dict[int, list[int]] = {}
        for i, record in enumerate(records):
            if position_of(record.headers["cdc-id"] or b"") is not None:
                by_partition.setdefault(record.partition, []).append(i)
        pairs = [(a, b) for places in by_partition.values() for a, b in pairwise(places)]
        assert pairs, table
        for at in sampled(table, list(range(len(pairs)))):
            first, second = pairs[at]
            swapped = list(records)
            swapped[first], swapped[second] = swapped[second], swapped[first]
            assert "order" in world.judge(table, swapped).problems, (table, records[first], records[second])


def test_reading_stops_at_the_end_and_names_a_topic_that_is_not_there(world: World) -> None:
    topic = f"{world.name}.{world.name}.stock"
    offsets = [(r.partition, r.offset) for r in read_topic(world.stack.kafka, topic)]
    assert len(offsets) == len(set(offsets)) == len(world.records["stock"])
    with pytest.raises(TopicError, match="no_such_topic"):
        list(read_topic(world.stack.kafka, "no_such_topic"))


def test_the_writer_runs_alters_and_stops_on_a_signal(stack: Any, database: str, tmp_path: Path) -> None:
    conn = connect(stack)
    shop.load(conn, database, shop.Size(SCALE), lambda _: None)
    report = tmp_path / "report.json"
    options = {"--host": stack.mysql_host, "--port": stack.mysql_port, "--user": stack.root_user, "--scale": SCALE}
    options |= {"--database": database, "--report": report, "--rate": 150}
    env = {**os.environ, "PYTHONPATH": str(ROOT / "tools"), writer.PASSWORD_VARIABLE: stack.root_password}
    command = [sys.executable, "-m", "demolib.writer", *(str(t) for pair in options.items() for t in pair)]
    with subprocess.Popen(command, env=env) as process:
        try:
            deadline = time.monotonic() + 30
            while not report.exists() and time.monotonic() < deadline:
                time.sleep(0.1)
            process.send_signal(signal.SIGUSR1)
            while '"altered": true' not in report.read_text() and time.monotonic() < deadline:
                time.sleep(0.1)
            process.terminate()
            assert process.wait(10) == 0
        finally:
            process.kill()
    text = report.read_text()
    assert '"altered": true' in text and '"alter table": 1' in text
    with conn.cursor() as cursor:
        cursor.execute(f"SELECT COUNT(*) FROM `{database}`.orders WHERE channel = 'web'")
        assert cursor.fetchone()[0] > 0
    conn.close()
