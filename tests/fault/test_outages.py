"""MySQL or Kafka die in the middle of a batch and come back: what the run does meanwhile, and that nothing is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit.private_mysql import PrivateServer
from kit.records import compacted, duplicates, require_chain
from kit.sql import execute, rows
from pipelinelib.pipeline import Pipeline
from stacklib import java, kafka, processes
from stacklib.ports import any_free

from airflow_provider_mysql_cdc.cdc.drain import committer
from airflow_provider_mysql_cdc.cdc.errors import SourceConnectionError

DATABASE, ROWS, AWAY_S = "shop", 400, 16.0


class Broker:
    """A Kafka of the module's own, whose topics outlive it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, any_free()
        self._controller = any_free(frozenset({self.port}))

    def start(self) -> None:
        kafka.start(java.find_java(), self.folder, self.port, self._controller)

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


def check(pipeline: Pipeline, server: PrivateServer) -> None:
    records = pipeline.records("t")
    assert duplicates(records) == []
    require_chain(records)
    with server.connect() as conn:
        expected = dict(rows(conn, f"SELECT id, v FROM {DATABASE}.t"))
    assert {row["id"]: row["v"] for row in compacted(records).values()} == expected
    assert len(records) == ROWS + sum(expected.values())


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
