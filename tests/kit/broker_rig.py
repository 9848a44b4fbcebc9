"""A stream on a cluster of three brokers, a fault that fires at one of its commits, and what must hold afterwards."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.sink.writer import TransactionalWriter
from kit.kafka_cluster import KafkaCluster
from kit.private_mysql import PrivateServer
from kit.records import compacted, duplicates, payload
from kit.sql import execute, rows

ROWS = 120
PROPERTIES = {
    "topic.creation.default.partitions": "2",
    "cdc.id.header": "true",
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
    "drain.writers": "2",
    "drain.small.batch.bytes": "0",
    "commit.bytes": "4000",
    "snapshot.chunk.rows": "30",
    "snapshot.lock.timeout.ms": "120000",
    "incremental.snapshot.chunk.size": "2",
    "poll.interval.ms": "200",
}


@dataclass
class Stream:
    """One stream, its table and how often its rows were changed."""

    pipeline: Pipeline
    server: PrivateServer
    more_reads: int = 0
    unlogged: int = 0

    @property
    def database(self) -> str:
        """Return its database."""
        return self.pipeline.properties["database.include.list"]

    def change(self, first: int = 0, last: int = ROWS) -> None:
        """Change two rows in each transaction."""
        with self.server.connect() as conn:
            for n in range(first, last):
                execute(conn, f"UPDATE `{self.database}`.t SET v = v + 1 WHERE id IN ({n}, {n * 7 % ROWS})")

    def check(self) -> None:
        """Each event once, topics as tables, the offset where the ledger's last batch ends."""
        records = self.pipeline.records("t")
        assert duplicates(records) == []
        with self.server.connect() as conn:
            expected = dict(rows(conn, f"SELECT id, v FROM `{self.database}`.t"))
        assert {row["id"]: row["v"] for row in compacted(records).values()} == expected
        events = [payload(r.value) for r in records if "cdc-repair" not in dict(r.headers)]
        updates = [value for value in events if value["op"] == "u"]
        assert all(value["before"]["v"] + 1 == value["after"]["v"] for value in updates)
        assert len(updates) == sum(expected.values()) - self.unlogged, "each change once"
        assert sum(value["op"] == "r" for value in events) == ROWS + self.more_reads
        ledger, stored = kafka_clients.ledger(self.pipeline.cfg).read(), self.pipeline.store.load()
        assert ledger is not None and stored is not None and stored.pending is None
        assert stored.committed == ledger.end() and ledger.complete()


def new_stream(cluster: KafkaCluster, server: PrivateServer, name: str, **more: str) -> Stream:
    """Create a database with a table, and return its stream."""
    given = {"topic.prefix": name, "database.include.list": name, "kafka.bootstrap.servers": cluster.addresses}
    with server.connect() as conn:
        execute(
            conn,
            f"CREATE DATABASE `{name}`",
            f"CREATE TABLE `{name}`.t (id INT PRIMARY KEY, v INT, filler VARCHAR(200) DEFAULT (REPEAT('x', 150)))",
            f"INSERT INTO `{name}`.t (id, v) VALUES {','.join(f'({n}, 0)' for n in range(ROWS))}",
            f"ANALYZE TABLE `{name}`.t",
        )
    return Stream(Pipeline(server.properties() | PROPERTIES | given | more), server)


@dataclass
class Fault:
    """Do something once, before a commit of a writer, when Kafka has its records.

    Args:
        act: Does it, and waits until it shows.
        together: Whether the commit waits for ``act``; otherwise the cluster changes while it is under way.
        after: Ends the fault, in any case beside the job.
        nth: Number of the commit.
    """

    act: Callable[[str], object]
    together: bool = False
    after: Callable[[], object] = lambda: None
    nth: int = 2
    commits: int = 0
    shown: bool = False
    errors: list[BaseException] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _threads: list[threading.Thread] = field(default_factory=list)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Count the commits of all writers but the planner."""
        real = TransactionalWriter.commit

        def commit(writer: TransactionalWriter, records: Any = ()) -> None:
            if writer.records_pending and not writer.transactional_id.endswith(".plan"):
                self._pass(writer)
            real(writer, records)

        monkeypatch.setattr(TransactionalWriter, "commit", commit)

    def _pass(self, writer: TransactionalWriter) -> None:
        with self._lock:
            self.commits += 1
            if self.commits != self.nth:
                return
        writer.send(())
        if self.together:
            self._act(writer.transactional_id)
            self._start(self._run, self.after)
        else:
            self._start(self._run, lambda: (self._act(writer.transactional_id), self.after()))

    def _act(self, writer: str) -> None:
        self.act(writer)
        self.shown = True

    def _start(self, work: Callable[..., None], *arguments: Any) -> None:
        self._threads.append(threading.Thread(target=work, args=arguments))
        self._threads[-1].start()

    def _run(self, work: Callable[..., object], *arguments: Any) -> None:
        try:
            work(*arguments)
        except BaseException as error:
            self.errors.append(error)

    def join(self) -> None:
        """Wait for its end; it must have fired."""
        for thread in self._threads:
            thread.join()
        assert self.commits >= self.nth and self.shown, (self.commits, self.errors)
        assert not self.errors, self.errors
