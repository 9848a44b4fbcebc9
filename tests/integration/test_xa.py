"""XA transactions: their rows come when they commit, whatever lies between."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pymysql
import pytest
from kit.private_mysql import Pool, reset_binlog
from kit.records import duplicates, payload
from kit.sql import execute
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.drain import xa_transactions as xa_module
from airflow_provider_mysql_cdc.cdc.errors import BinlogPurgedError
from airflow_provider_mysql_cdc.cdc.faults import FaultRaised
from airflow_provider_mysql_cdc.cdc.operate.reset_offset import reset_offset

BULK = 400


@pytest.fixture
def pipeline(properties: dict[str, str], root: Any, database: str) -> Pipeline:
    made = Pipeline(
        properties
        | {
            "cdc.id.header": "true",
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
            "drain.small.batch.bytes": "0",
            "commit.bytes": "10000",
        }
    )
    execute(root, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, v VARCHAR(200))")
    return made


class Xa:
    """Run XA transactions, each in a session of its own that ends after the prepare.

    Args:
        stack: The servers.
        database: The test's database.
    """

    def __init__(self, stack: Any, database: str) -> None:
        self._stack, self._database = stack, database

    def _session(self, *statements: str) -> None:
        conn = pymysql.connect(
            host=self._stack.mysql_host,
            port=self._stack.mysql_port,
            user=self._stack.root_user,
            password=self._stack.root_password,
            database=self._database,
            autocommit=True,
            ssl_disabled=True,
        )
        execute(conn, *statements)
        conn.close()

    def name(self, xid: str) -> str:
        return f"'{self._database}-{xid}','b',7"

    def prepare(self, xid: str, *statements: str, compressed: bool = False) -> None:
        name = self.name(xid)
        self._session(
            f"SET SESSION binlog_transaction_compression = {compressed}",
            f"XA START {name}",
            *statements,
            f"XA END {name}",
            f"XA PREPARE {name}",
        )

    def one_phase(self, xid: str, *statements: str) -> None:
        name = self.name(xid)
        self._session(f"XA START {name}", *statements, f"XA END {name}", f"XA COMMIT {name} ONE PHASE")

    def commit(self, xid: str) -> None:
        self._session(f"XA COMMIT {self.name(xid)}")

    def rollback(self, xid: str) -> None:
        self._session(f"XA ROLLBACK {self.name(xid)}")


@pytest.fixture
def xa(stack: Any, database: str) -> Xa:
    return Xa(stack, database)


def ids(pipeline: Pipeline) -> list[tuple[str, int]]:
    """Return op and id of all events, without tombstones."""
    values = [payload(r.value) for r in pipeline.records("t")]
    return [(v["op"], (v["after"] or v["before"])["id"]) for v in values if v]


def test_rows_come_at_the_commit_and_never_after_a_rollback(
    pipeline: Pipeline, xa: Xa, root: Any, database: str
) -> None:
    pipeline.snapshot()
    xa.prepare("kept", "INSERT INTO t VALUES (1, 'a'), (2, 'b')", "UPDATE t SET v = 'c' WHERE id = 1")
    xa.prepare("gone", "INSERT INTO t VALUES (3, 'x')")
    xa.one_phase("quick", "INSERT INTO t VALUES (4, 'd')")
    execute(root, f"INSERT INTO `{database}`.t VALUES (5, 'e')")
    xa.rollback("gone")
    xa.commit("kept")
    execute(root, f"UPDATE `{database}`.t SET v = 'f' WHERE id = 1")
    pipeline.drain()
    assert ids(pipeline) == [("c", 4), ("c", 5), ("c", 1), ("c", 2), ("u", 1), ("u", 1)]
    assert duplicates(pipeline.records("t")) == []


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("writers", [1, 3])
@pytest.mark.exhaustive(but="3-True")
def test_prepare_and_commit_in_different_batches(
    pipeline: Pipeline, xa: Xa, root: Any, database: str, writers: int, compressed: bool
) -> None:
    pipeline.properties |= {"drain.writers": str(writers), "topic.creation.default.partitions": str(writers)}
    pipeline.snapshot()
    xa.prepare("late", "INSERT INTO t VALUES (1, 'a')", compressed=compressed)
    xa.prepare("gone", "INSERT INTO t VALUES (2, 'b')", compressed=compressed)
    pipeline.drain()
    assert ids(pipeline) == []
    execute(root, f"INSERT INTO `{database}`.t VALUES (3, 'c')", "FLUSH BINARY LOGS")
    pipeline.drain()
    assert ids(pipeline) == [("c", 3)]
    xa.rollback("gone")
    xa.commit("late")
    pipeline.drain()
    assert sorted(ids(pipeline)) == [("c", 1), ("c", 3)]
    # What is decided is forgotten.
    execute(root, f"DELETE FROM `{database}`.t")
    pipeline.drain()
    stored = pipeline.store.load()
    assert stored is not None and stored.pending is None
    assert sorted(ids(pipeline)) == [("c", 1), ("c", 3), ("d", 1), ("d", 3)]


def test_prepared_before_the_snapshot_and_committed_after_it(
    pipeline: Pipeline, xa: Xa, root: Any, database: str
) -> None:
    """The snapshot's view does not hold the rows, and the drain begins behind them."""
    execute(root, f"INSERT INTO `{database}`.t VALUES (1, 'a')")
    xa.prepare("before", "INSERT INTO t VALUES (2, 'b')")
    xa.prepare("gone", "INSERT INTO t VALUES (3, 'c')")
    pipeline.snapshot()
    assert ids(pipeline) == [("r", 1)]
    xa.commit("before")
    xa.rollback("gone")
    pipeline.drain()
    assert ids(pipeline) == [("r", 1), ("c", 2)]
    assert any("searching the binlog" in line for line in pipeline.lines)


def test_prepared_in_a_binlog_that_is_gone_stops_by_name(
    pipeline: Pipeline, xa: Xa, monkeypatch: pytest.MonkeyPatch
) -> None:
    xa.prepare("before", "INSERT INTO t VALUES (2, 'b')")
    pipeline.snapshot()
    xa.commit("before")
    stored = pipeline.store.load()
    assert stored is not None and stored.committed is not None
    # The server's binlog is shared by all tests; only its list of files can be made to look purged.
    monkeypatch.setattr(xa_module, "binary_logs", lambda conn: [(stored.committed.file, 4)])
    monkeypatch.setattr(xa_module, "BinlogScan", lambda *_, **__: iter(()))
    with pytest.raises(BinlogPurgedError, match="mysql_cdc_reset_offset") as caught:
        pipeline.drain()
    assert not caught.value.can_retry and "XA COMMIT" in caught.value.where
    monkeypatch.undo()
    pipeline.drain()
    assert ids(pipeline) == [("c", 2)]


def test_prepared_before_a_reset_of_the_binlog_stops_by_name(pipeline: Pipeline, pool: Pool, database: str) -> None:
    """The first file has number 1 again, and no transaction before it; the remedy is carried out."""
    with pool.lent() as server, server.connect() as conn:
        pipeline.properties.update(server.properties())
        execute(conn, f"CREATE DATABASE `{database}`", f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY)")
        with server.connect() as session:
            execute(session, "XA START 'x'", f"INSERT INTO `{database}`.t VALUES (2)", "XA END 'x'", "XA PREPARE 'x'")
        reset_binlog(conn)
        pipeline.snapshot()
        execute(conn, "XA COMMIT 'x'")
        with pytest.raises(BinlogPurgedError, match="no longer in the binlog"):
            pipeline.drain()
        reset_offset(pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log, to="current")
        assert pipeline.snapshot(again=True).complete
        assert ids(pipeline) == [("r", 2)]


@pytest.mark.parametrize("nth", [1, 3])
@pytest.mark.exhaustive(but="3")
def test_a_crash_inside_the_commit_repeats_nothing(
    pipeline: Pipeline, xa: Xa, root: Any, database: str, nth: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.snapshot()
    xa.prepare("big", *(f"INSERT INTO t VALUES ({i}, '{'x' * 200}')" for i in range(BULK)))
    execute(root, f"INSERT INTO `{database}`.t VALUES (1000, 'between')")
    pipeline.drain()
    xa.commit("big")
    execute(root, f"INSERT INTO `{database}`.t VALUES (1001, 'after')")
    fault = {"point": "writer.after_commit", "nth": nth, "fired": str(tmp_path / "fired")}
    monkeypatch.setattr("airflow_provider_mysql_cdc.cdc.faults._passed", {})
    monkeypatch.setenv("MYSQL_CDC_FAULT", json.dumps(fault))
    with pytest.raises(FaultRaised):
        pipeline.drain()
    assert (tmp_path / "fired").exists()
    pipeline.drain()
    assert ids(pipeline) == [("c", 1000), *(("c", i) for i in range(BULK)), ("c", 1001)]
    assert duplicates(pipeline.records("t")) == []
