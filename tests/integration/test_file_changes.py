"""Whatever comes first in a binlog file, however the file began: read once, from every place a retry begins at."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from kit.memory_kafka import MemoryKafka, MemoryWriter
from kit.private_mysql import PrivateServer
from kit.sql import execute, rows

from airflow_provider_mysql_cdc.cdc.binlog.position import current_offset
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan, Marker
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.drain.ddl_events import server_variables
from airflow_provider_mysql_cdc.cdc.drain.drain_writer_factory import create_writer
from airflow_provider_mysql_cdc.cdc.drain.writer_context import WriterContext
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, PreparedXa

TOPIC = "p.d.t"


class Crash(Exception):
    """The writer dies."""


class MortalWriter(MemoryWriter):
    """Die behind a commit."""

    left = -1

    def commit(self, records: Any = ()) -> None:
        super().commit(records)
        self.left -= 1
        if self.left == 0:
            raise Crash


@dataclass
class Source:
    """A server with its binlog, and where each of its transactions ends."""

    server: PrivateServer
    start: BinlogOffset
    state: SchemaState
    ends: list[BinlogOffset]


def history(server: PrivateServer) -> Source:
    """Let files begin in every way, each with another kind of transaction first."""
    ends: list[BinlogOffset] = []
    insert = "INSERT INTO d.t (v) VALUES (REPEAT('x', 200)), (REPEAT('y', 200))"
    compressed = "SET SESSION binlog_transaction_compression = 1"

    def at() -> BinlogOffset:
        with server.connect() as conn:
            return current_offset(conn)

    def run(*statements: str) -> None:
        with server.connect() as conn:
            execute(conn, *statements)
        ends.append(at())

    def prepare(xid: str, *before: str) -> tuple[str, ...]:
        return *before, f"XA START '{xid}'", insert, insert, f"XA END '{xid}'", f"XA PREPARE '{xid}'"

    firsts: dict[str, tuple[str, ...]] = {
        "xa": (*prepare("a"), "XA COMMIT 'a'"),
        "one phase": ("XA START 'b'", insert, insert, "XA END 'b'", "XA COMMIT 'b' ONE PHASE"),
        "compressed xa": prepare("c", compressed),
        "rows": ("BEGIN", insert, "UPDATE d.t SET v = REPEAT('z', 250) WHERE id < 3", "COMMIT"),
        "compressed rows": (compressed, insert),
        "commit of what was prepared": ("XA COMMIT 'c'",),
        # What is prepared holds its metadata locks, so this comes behind the commit.
        "structure": ("ALTER TABLE d.t ADD COLUMN c1 INT",),
        "create select": ("CREATE TABLE d.s1 (PRIMARY KEY (id)) SELECT id, v FROM d.t LIMIT 9",),
    }
    server.start(gtid_mode="ON", enforce_gtid_consistency="ON")
    start = at()
    run("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(300))")
    for first in firsts.values():
        run("FLUSH BINARY LOGS", *first)
        run(insert)
    # A file that a stop or a crash ended has no ROTATE event that names the next one.
    server.stop()
    server.start(gtid_mode="ON", enforce_gtid_consistency="ON")
    run(*prepare("d"))
    run(insert)
    server.crash()
    server.start(gtid_mode="OFF_PERMISSIVE", enforce_gtid_consistency="ON")
    run("XA COMMIT 'd'")
    run("FLUSH BINARY LOGS", *prepare("e", compressed))
    run(insert, "FLUSH BINARY LOGS", "XA COMMIT 'e'")
    run("FLUSH BINARY LOGS", "CREATE TABLE d.s2 (PRIMARY KEY (id)) SELECT id, v FROM d.t LIMIT 9")
    run(insert)
    return Source(server, start, SchemaState(), ends)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Source]:
    from stacklib.ports import any_free

    server = PrivateServer(tmp_path_factory.mktemp("mysql"), any_free())
    try:
        yield history(server)
    finally:
        server.discard()


class Rig:
    """Drain a range of the source into memory, with a commit behind every row event of more than 1024 bytes."""

    def __init__(self, source: Source) -> None:
        self.source = source
        given = {
            "topic.prefix": "p",
            "database.include.list": "d",
            "kafka.bootstrap.servers": "localhost:9092",
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
            "cdc.id.header": "true",
            "commit.bytes": "1024",
        }
        self.cfg = ConnectorConfig.from_properties(given | source.server.properties())
        with source.server.connect() as conn:
            self.variables = server_variables(conn)
        self.kafka = MemoryKafka()
        topics = [TOPIC, "p.d.s1", "p.d.s2"]
        self.partitions = dict.fromkeys(topics, 1)

    def plan(
        self, start: BinlogOffset, end: BinlogOffset, epoch: int = 1, prepared: tuple[PreparedXa, ...] = ()
    ) -> BatchPlan:
        assignment = {t: (0,) for t in self.partitions}
        return BatchPlan(epoch, "drain", start, end, 1, self.partitions, assignment, prepared=prepared)

    def marker(self, plan: BatchPlan) -> Marker | None:
        records = self.kafka.committed("ledger.p")
        found = Marker.from_json(json.loads(records[-1].value or b"")) if records else None
        return found if found is not None and found.epoch == plan.epoch else None

    def attempt(self, plan: BatchPlan, state: SchemaState, commits: int = -1) -> tuple[Marker, SchemaState]:
        """Run one attempt, which dies behind this many commits."""
        sink = MortalWriter(self.kafka, "p.0")
        sink.left = commits
        sink.init()
        context = WriterContext(
            self.cfg,
            plan,
            0,
            state,
            sink,
            self.variables,
            resume_marker=self.marker(plan),  # type: ignore[arg-type]
        )
        result = create_writer(context).run()
        marker = self.marker(plan)
        assert marker is not None and marker.done and result.state is not None
        return marker, result.state

    def events(self) -> list[tuple[str, str]]:
        """Return identity and value of all events, in order for each topic."""
        found = []
        for topic in self.partitions:
            for record in self.kafka.committed(topic):
                value = json.loads(record.value or b"{}")
                value.pop("ts_ms", None), value.pop("ts_us", None), value.pop("ts_ns", None)
                found.append((dict(record.headers)["cdc-id"].decode(), json.dumps(value)))  # type: ignore[union-attr]
        return found


def whole(source: Source) -> list[tuple[str, str]]:
    rig = Rig(source)
    rig.attempt(rig.plan(source.start, source.ends[-1]), source.state)
    return rig.events()


def test_each_row_comes_once(source: Source) -> None:
    found = whole(source)
    assert len({identity for identity, _ in found}) == len(found)
    created = [json.loads(v)["after"]["id"] for _, v in found if '"table": "t"' in v and '"op": "c"' in v]
    with source.server.connect() as conn:
        assert sorted(created) == [r[0] for r in rows(conn, "SELECT id FROM d.t ORDER BY id")]


def test_a_retry_from_every_commit(source: Source) -> None:
    expected = whole(source)
    rig = Rig(source)
    plan = rig.plan(source.start, source.ends[-1])
    crashes = 0
    while (marker := rig.marker(plan)) is None or not marker.done:
        with contextlib.suppress(Crash):
            rig.attempt(plan, source.state, commits=1)
        crashes += 1
    assert crashes > len(source.ends)
    assert rig.events() == expected


def test_batches_that_end_at_every_transaction(source: Source) -> None:
    expected = whole(source)
    rig = Rig(source)
    start, state, prepared = source.start, source.state, ()
    for epoch, end in enumerate(source.ends, 1):
        marker, state = rig.attempt(rig.plan(start, end, epoch, prepared), state)
        start, prepared = end, marker.prepared
    assert rig.events() == expected
