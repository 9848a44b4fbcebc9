"""A server is restored from a backup under its own server_uuid, and lacks what the stream has drained."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from kit.private_mysql import PrivateServer, running_server
from kit.records import compacted
from kit.sql import execute, purge, rows
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.errors import BinlogPurgedError
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import RepairMode, VerifyRequest

FLAT = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateServer]:
    with running_server(tmp_path_factory, "9.7") as made:
        yield made


def insert(server: PrivateServer, db: str, *ids: int, value: str) -> None:
    with server.connect() as conn:
        execute(conn, *(f"INSERT INTO `{db}`.t VALUES ({i}, '{value}')" for i in ids))


@pytest.mark.req("FAULT-11")
@pytest.mark.parametrize("since", ["nothing", "other transactions", "as many, and its files were purged"])
@pytest.mark.exhaustive(but="purged")
@pytest.mark.days("odd")
def test_a_restored_backup_is_refused_and_the_error_says_how_to_go_on(
    server: PrivateServer, properties: dict[str, str], database: str, since: str
) -> None:
    """Also when it has executed other transactions under the GTIDs that the stream has read."""
    with server.connect() as conn:
        execute(
            conn, f"CREATE DATABASE `{database}`", f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, v VARCHAR(9))"
        )
        before = rows(conn, "SELECT @@server_uuid")
    pipeline = Pipeline(properties | server.properties() | FLAT)
    pipeline.snapshot()
    insert(server, database, 1, 2, value="kept")
    pipeline.drain()
    server.stop()
    backup = server.folder.parent / f"{server.folder.name}-backup"
    shutil.copytree(server.folder, backup)
    server.start()
    insert(server, database, 3, 4, 5, value="lost")
    pipeline.drain()
    server.discard()
    shutil.rmtree(server.folder)
    shutil.move(backup, server.folder)
    server.start()
    with server.connect() as conn:
        assert rows(conn, "SELECT @@server_uuid") == before
    state = pipeline.store.load()
    assert state is not None and state.committed is not None
    if since == "other transactions":
        insert(server, database, 4, 6, 7, 8, value="new")
    elif since != "nothing":
        insert(server, database, 4, 6, 7, value="new")
        with server.connect() as conn:
            execute(conn, "FLUSH BINARY LOGS")
            purge(conn)
            assert rows(conn, "SELECT @@gtid_purged") == [(state.committed.gtids,)]
    with pytest.raises(BinlogPurgedError) as caught:
        pipeline.drain()
    error = caught.value
    assert not error.can_retry and pipeline.store.load() == state
    wanted_why = {"nothing": "gtid_executed", "other transactions": "the server has a file made at"}
    assert wanted_why.get(since, "maybe from a restored backup") in error.why, error.why
    assert "mysql_cdc_snapshot with again=true" in error.remedy and "mysql_cdc_verify with repair=yes" in error.remedy
    assert "nothing is lost" not in error.remedy
    pipeline.snapshot(again=True)
    insert(server, database, 9, value="last")
    pipeline.drain()
    pipeline.verify(VerifyRequest(repair=RepairMode.YES))
    assert pipeline.verify().equal
    with server.connect() as conn:
        wanted = dict(rows(conn, f"SELECT id, v FROM `{database}`.t"))
    assert {r["id"]: r["v"] for r in compacted(pipeline.records("t")).values() if r} == wanted
