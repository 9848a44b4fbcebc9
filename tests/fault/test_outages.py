"""MySQL or Kafka die in the middle of a batch and come back: what the run does meanwhile, and that nothing is lost."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from kit.private_mysql import PrivateServer
from kit.records import compacted, duplicates, require_chain
from kit.sql import execute, rows
from kit.tcp_proxy import TcpProxy, tcp_proxy
from kit.tiers import many
from pipelinelib.pipeline import Pipeline
from pipelinelib.stand_ins import ThreadRunner
from stacklib import java, kafka, processes
from stacklib.ports import any_free

from airflow_provider_mysql_cdc.cdc.drain import committer, drain_driver
from airflow_provider_mysql_cdc.cdc.errors import SourceConnectionError
from airflow_provider_mysql_cdc.cdc.incremental.drain_job import run_drain
from airflow_provider_mysql_cdc.cdc.job import run_lock
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord

DATABASE, ROWS, AWAY_S = "shop", 400, many(4.0, 16.0)
IDLE_S = 3
"""Seconds after which MySQL and Kafka close connections on which nothing happens."""


class Broker:
    """A Kafka of the module's own, whose topics outlive it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, any_free()
        self._controller = any_free(frozenset({self.port}))

    def start(self) -> None:
        more = {"connections.max.idle.ms": str(IDLE_S * 1000)}
        kafka.start(java.find_java(), self.folder, self.port, self._controller, more=more)

    def kill(self) -> None:
        processes.stop("kafka", kafka.record(self.folder), seconds=0)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    made = Broker(tmp_path_factory.mktemp("kafka"))
    made.start()
    yield made
    made.kill()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateServer]:
    made = PrivateServer(tmp_path_factory.mktemp("mysql"), any_free())
    made.start()
    yield made
    made.discard()


@pytest.fixture
def pipeline(server: PrivateServer, broker: Broker, unique: str) -> Pipeline:
    """Return a stream behind a snapshot, with a batch of many transactions before it."""
    made = Pipeline(
        server.properties()
        | {
            "topic.prefix": unique,
            "database.include.list": DATABASE,
            "kafka.bootstrap.servers": f"127.0.0.1:{broker.port}",
            "topic.creation.default.replication.factor": "1",
            "topic.creation.default.partitions": "2",
            "cdc.id.header": "true",
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
            "drain.writers": "2",
            "drain.small.batch.bytes": "0",
            "commit.bytes": "4000",
        }
    )
    with server.connect() as conn:
        execute(
            conn,
            f"DROP DATABASE IF EXISTS {DATABASE}",
            f"CREATE DATABASE {DATABASE}",
            f"CREATE TABLE {DATABASE}.t (id INT PRIMARY KEY, v INT, filler TEXT)",
            f"INSERT INTO {DATABASE}.t (id, v) VALUES {','.join(f'({n}, 0)' for n in range(ROWS))}",
        )
        made.snapshot()
        for n in range(ROWS):
            execute(conn, f"UPDATE {DATABASE}.t SET v = v + 1 WHERE id IN ({n}, {(n * 7) % ROWS})")
    return made


class Outage:
    """Do something once, at the second commit of the batch.

    Args:
        act: What is done, in a thread of its own.
    """

    def __init__(self, act: Callable[[], None]) -> None:
        self._act, self._lock = act, threading.Lock()
        self.commits, self.thread = 0, threading.Thread(target=self._run)
        self.ended = False

    def _run(self) -> None:
        self._act()
        self.ended = True

    def point(self, name: str, writer: int | None = None) -> None:
        """Stand for ``fault_point``."""
        with self._lock:
            self.commits += name == "writer.after_commit"
            if self.commits == 2 and self.thread.ident is None:
                self.thread.start()
                time.sleep(0.3)  # the rest of the batch meets the outage


def check(pipeline: Pipeline, server: PrivateServer, before: list[TopicRecord] | None = None) -> None:
    records = [*(before or ()), *pipeline.records("t")]
    assert duplicates(records) == []
    require_chain(records)
    with server.connect() as conn:
        expected = dict(rows(conn, f"SELECT id, v FROM {DATABASE}.t"))
    assert {row["id"]: row["v"] for row in compacted(records).values()} == expected
    assert len(records) == ROWS + sum(expected.values())


@pytest.mark.exhaustive
@pytest.mark.req("FAULT-12")
def test_kafka_that_comes_back_is_waited_for(
    pipeline: Pipeline, server: PrivateServer, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> None:
        broker.kill()
        time.sleep(AWAY_S)
        broker.start()

    outage = Outage(away)
    monkeypatch.setattr(committer, "fault_point", outage.point)
    result = pipeline.drain()
    outage.thread.join()
    assert outage.ended and outage.commits > 2
    assert result is not None and result.complete
    check(pipeline, server)


@pytest.mark.exhaustive
@pytest.mark.req("FAULT-06")
def test_mysql_that_dies_ends_the_run_and_the_next_one_goes_on(
    pipeline: Pipeline, server: PrivateServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.properties["commit.bytes"] = "1000000"
    with server.connect() as conn:
        # More than the buffers between server and reader hold.
        for size in range(12):
            execute(conn, f"UPDATE {DATABASE}.t SET v = v + 1, filler = REPEAT('x', {3000 + size})")
    outage = Outage(server.crash)
    monkeypatch.setattr(committer, "fault_point", outage.point)
    before = pipeline.store.load()
    with pytest.raises(SourceConnectionError) as caught:
        pipeline.drain()
    outage.thread.join()
    assert outage.ended and caught.value.can_retry
    outcome = pipeline.settle()
    after = pipeline.store.load()
    assert not outcome.complete and before is not None and after is not None
    assert after.committed == before.committed and after.pending is not None
    server.start()
    assert (again := pipeline.drain()) is not None and again.complete
    check(pipeline, server)


class LiveRun:
    """A drain with ``run_for`` in a thread, which follows the source until it is ended."""

    def __init__(self, pipeline: Pipeline, server: PrivateServer, monkeypatch: pytest.MonkeyPatch) -> None:
        self._pipeline, self._server = pipeline, server
        self._end, self._look = threading.Event(), drain_driver.new_end
        self._work = threading.Thread(target=self._run)
        self.errors: list[BaseException] = []
        self.stages: list[str] = []
        monkeypatch.setattr(drain_driver, "new_end", self._new_end)

    def _new_end(self, *arguments: Any) -> Any:
        end = self._look(*arguments)
        if end is None and self._end.is_set():
            raise StopIteration
        return end

    def _run(self) -> None:
        outer = self

        class Stages(ThreadRunner):
            def run(self, task: Any, *arguments: Any, **more: Any) -> Any:
                outer.stages.append(task.__name__)
                return super().run(task, *arguments, **more)

        try:
            with suppress(StopIteration):
                spec = replace(self._pipeline.prepare("drain").spec, run_for_s=3600.0)
                run_drain(spec, Stages(4), self._pipeline.log)
        except BaseException as error:
            self.errors.append(error)

    def next_batch(self) -> None:
        """Change a few rows, and wait until they are in Kafka."""
        count = self._batches()
        with self._server.connect() as conn:
            execute(conn, f"UPDATE {DATABASE}.t SET v = v + 1 WHERE id < 20")
        if self._work.ident is None:
            self._work.start()
        deadline = time.monotonic() + 120
        while self._batches() <= count:
            assert not self.errors and time.monotonic() < deadline, (self.errors, self._pipeline.lines)
            time.sleep(0.05)

    def _batches(self) -> int:
        return sum(line.startswith("batch ") and " done: " in line for line in self._pipeline.lines)

    def end(self) -> None:
        self._end.set()
        self._work.join(120)
        assert not self._work.is_alive()


@pytest.fixture
def proxy(server: PrivateServer) -> Iterator[TcpProxy]:
    with tcp_proxy("127.0.0.1", server.port) as made:
        yield made


def cut_idle_connections(proxy: TcpProxy, server: PrivateServer, prefix: str) -> Iterator[int]:
    """Cut one connection after the other, but that of the run's lock, which a person may have killed."""
    with server.connect() as conn:
        (lock,) = rows(
            conn,
            f"SELECT HOST FROM performance_schema.processlist WHERE ID = IS_USED_LOCK('{run_lock.lock_name(prefix)}')",
        )
        (hosts,) = zip(*rows(conn, "SELECT HOST FROM performance_schema.processlist"), strict=True)
    ours = {int(host.rpartition(":")[2]) for host in hosts if host.rpartition(":")[2].isdigit() and host != lock[0]}
    for far in [sock for sock in proxy._open if sock.fileno() >= 0 and sock.getsockname()[1] in ours]:
        port = far.getsockname()[1]
        with suppress(OSError):
            far.shutdown(socket.SHUT_RDWR)
        yield port


@pytest.mark.exhaustive
@pytest.mark.req("FAULT-12")
def test_living_writers_go_on_behind_outages_and_idle_times(
    pipeline: Pipeline, server: PrivateServer, broker: Broker, proxy: TcpProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka restarts; both sides close idle connections; each is cut; retention removes what was written."""
    pipeline.properties |= {"database.port": str(proxy.port), "poll.interval.ms": "50"}
    with server.connect() as conn:
        execute(conn, f"SET GLOBAL wait_timeout = {IDLE_S}")
    run = LiveRun(pipeline, server, monkeypatch)
    try:
        run.next_batch()
        broker.kill()
        time.sleep(5)
        broker.start()
        run.next_batch()
        time.sleep(2 * IDLE_S)
        run.next_batch()
        ports = set()
        for port in cut_idle_connections(proxy, server, pipeline.properties["topic.prefix"]):
            ports.add(port)
            run.next_batch()
        assert len(ports) >= 3, "the driver's connection and the dumps of two writers"
        written, admin = pipeline.records("t"), make_admin(pipeline.cfg.kafka_settings())
        everything = [TopicPartition(pipeline.table_topic("t"), n, -1) for n in range(2)]
        for future in admin.delete_records(everything).values():
            future.result(30)
        run.next_batch()
    finally:
        run.end()
        with server.connect() as conn:
            execute(conn, "SET GLOBAL wait_timeout = DEFAULT")
    assert run.errors == [] and run.stages == ["writer_task"], pipeline.lines
    assert pipeline.settle().complete
    assert 0 < len(pipeline.records("t")) < len(written)
    check(pipeline, server, written)
