"""GTIDs switched through all modes under load, another server_id, and another server_uuid for the same data."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pymysql
import pytest
from kit.private_mysql import Pool, PrivateServer, running_server
from kit.records import payload
from kit.sql import execute, rows
from kit.table_rig import FLAT, check_chain, filled
from kit.tiers import many
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.errors import ServerChangedError
from airflow_provider_mysql_cdc.cdc.model.gtid import GtidSet
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset

STEPS = ("OFF", "OFF_PERMISSIVE", "ON_PERMISSIVE", "ON")
_SET_WAIT_S = 30


@pytest.fixture(params=many(["9.7"], ["9.7", "8.0.15"]))
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def committed(pipeline: Pipeline) -> BinlogOffset:
    stored = pipeline.store.load()
    assert stored is not None and stored.committed is not None
    return stored.committed


def stream(server: PrivateServer, conn: Any, properties: dict[str, str], database: str) -> Pipeline:
    execute(conn, f"CREATE DATABASE `{database}`", f"USE `{database}`", *filled(database, "aa"))
    made = Pipeline(properties | FLAT | server.properties() | {"drain.writers": "2", "drain.small.batch.bytes": "0"})
    made.snapshot()
    return made


@contextmanager
def load(server: PrivateServer, database: str) -> Iterator[list[int]]:
    """Change rows in short transactions until the block ends; yield a list whose length is their number."""
    done, stop = list[int](), threading.Event()

    def write() -> None:
        with server.connect() as conn:
            execute(conn, f"USE `{database}`")
            while not stop.is_set():
                done.append(len(done))
                key = len(done) % 30
                execute(conn, f"UPDATE aa SET v = v + 1 WHERE id = {key}")
                if not len(done) % 20:
                    execute(
                        conn, f"INSERT INTO aa VALUES ({1000 + len(done)}, 0)", "BEGIN", "DELETE FROM aa WHERE id = 3"
                    )
                    execute(conn, "INSERT INTO aa VALUES (3, 0)", "COMMIT")
                time.sleep(0.005)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield done
    finally:
        stop.set()
        thread.join()


def set_mode(conn: Any, mode: str) -> None:
    """Change gtid_mode; the server refuses while transactions of the former kind are going on."""
    deadline = time.monotonic() + _SET_WAIT_S
    while True:
        try:
            execute(conn, f"SET GLOBAL gtid_mode = {mode}")
            return
        except pymysql.MySQLError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.mark.exhaustive
@pytest.mark.req("SETUP-20")
def test_all_modes_under_load(pool: Pool, properties: dict[str, str], database: str, version: str) -> None:
    """Up and down again, with a drain after each step, while transactions come with and without GTIDs."""
    options = {"gtid_mode": "OFF", "enforce_gtid_consistency": "ON"}
    with pool.lent(version, **options) as server, server.connect() as conn:
        pipeline = stream(server, conn, properties, database)
        with load(server, database) as done:
            for mode in (*STEPS[1:], *reversed(STEPS[:-1])):
                set_mode(conn, mode)
                before = len(done)
                while len(done) < before + 25:
                    time.sleep(0.01)
                assert pipeline.drain() is not None
                offset = committed(pipeline)
                executed = GtidSet.parse(rows(conn, "SELECT @@GLOBAL.gtid_executed")[0][0])
                found = GtidSet.parse(offset.gtids or "")
                assert executed.contains(found), (mode, offset)
                if not mode.startswith("OFF"):
                    assert found, "the set has what was executed with GTIDs"
        while pipeline.drain() is not None:
            pass
        check_chain(pipeline, conn, database, "aa")


def test_another_server_id(pool: Pool, properties: dict[str, str], database: str, version: str) -> None:
    """Inside one batch and between two: events tell which id they have, and the stream goes on."""
    with pool.lent(version, server_id="21") as server, server.connect() as conn:
        pipeline = stream(server, conn, properties, database)
        execute(conn, "UPDATE aa SET v = v + 1", "SET GLOBAL server_id = 22", "UPDATE aa SET v = v + 1 WHERE id < 9")
        pipeline.drain()
        execute(conn, "SET GLOBAL server_id = 23", "UPDATE aa SET v = v + 1 WHERE id < 5")
        pipeline.drain()
        check_chain(pipeline, conn, database, "aa")
        ids = [payload(record.value)["source"]["server_id"] for record in pipeline.records("aa")][30:]
        assert ids == [21] * 30 + [22] * 9 + [23] * 5


@pytest.mark.exhaustive
@pytest.mark.req("STRM-06")
@pytest.mark.parametrize("gtids", [True, False])
def test_another_server_uuid_of_the_same_data(
    tmp_path_factory: pytest.TempPathFactory, properties: dict[str, str], database: str, version: str, gtids: bool
) -> None:
    """Its file was removed. With GTIDs the stream goes on; without them nothing tells whose files the server has."""
    options = {} if gtids else {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}
    with running_server(tmp_path_factory, version, options) as server:
        with server.connect() as conn:
            pipeline = stream(server, conn, properties, database)
            execute(conn, "UPDATE aa SET v = v + 1")
            pipeline.drain()
            execute(conn, "UPDATE aa SET v = v + 1 WHERE id < 9")
        uuid = committed(pipeline).server_uuid
        server.stop()
        (server.folder / "data" / "auto.cnf").unlink()
        server.start(**options)
        with server.connect() as conn:
            execute(conn, f"USE `{database}`", "UPDATE aa SET v = v + 1 WHERE id < 5")
            if not gtids:
                with pytest.raises(ServerChangedError, match="no GTID set") as caught:
                    pipeline.drain()
                assert not caught.value.can_retry and str(uuid) in str(caught.value)
                pipeline.snapshot(again=True)
                execute(conn, "UPDATE aa SET v = v + 1 WHERE id < 3")
                pipeline.drain()
                assert pipeline.verify().verdict == "equal"
                return
            pipeline.drain()
            assert committed(pipeline).server_uuid != uuid
            assert any(line.startswith("the stream goes on at server") for line in pipeline.lines)
            check_chain(pipeline, conn, database, "aa")
