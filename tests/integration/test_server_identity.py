"""A position belongs to a server and to the run of binlog files it was read from."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from kit.private_mysql import Pool, PrivateServer, reset_binlog, running_server
from kit.records import compacted, payload
from kit.sql import execute, rows
from kit.tiers import many
from pipelinelib.pipeline import Pipeline
from pipelinelib.stand_ins import ThreadRunner

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.binlog.file_fingerprint import read_fingerprint
from airflow_provider_mysql_cdc.cdc.binlog.position import check_available, end_of_binlog
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.drain import drain_driver
from airflow_provider_mysql_cdc.cdc.errors import BinlogPurgedError
from airflow_provider_mysql_cdc.cdc.incremental.drain_job import run_drain
from airflow_provider_mysql_cdc.cdc.model.connection import ConnectionSettings
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, same_fingerprint

FLAT = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
GTIDS_OFF = {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}


@pytest.fixture(scope="module", params=many(["9.7 without GTIDs"], ["9.7", "9.7 without GTIDs", "8.0.15"]))
def server(request: pytest.FixtureRequest, pool: Pool) -> Iterator[PrivateServer]:
    version, _, plain = str(request.param).partition(" ")
    with pool.lent(version, **(GTIDS_OFF if plain else {})) as made:
        yield made


@pytest.fixture
def source(server: PrivateServer) -> Iterator[Any]:
    with server.connect() as conn:
        yield conn


@pytest.fixture
def settings(server: PrivateServer, properties: dict[str, str]) -> ConnectionSettings:
    return ConnectorConfig.from_properties(properties | server.properties()).connection_settings()


def load(conn: Any, db: str, first: int, count: int, value: str) -> None:
    """Insert rows, a transaction each, all of the same length."""
    execute(conn, *(f"INSERT INTO `{db}`.t VALUES ({i}, '{value}')" for i in range(first, first + count)))


@pytest.fixture
def pipeline(properties: dict[str, str], server: PrivateServer, source: Any, database: str) -> Pipeline:
    """Return a stream that has drained twenty transactions of a binlog that begins with its table."""
    reset_binlog(source)
    execute(
        source,
        f"CREATE DATABASE `{database}` CHARACTER SET utf8mb4",
        f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, v CHAR(8))",
    )
    made = Pipeline(properties | server.properties() | FLAT)
    made.snapshot()
    load(source, database, 1000, 20, "drained.")
    made.drain()
    return made


def load_again(conn: Any, db: str) -> None:
    """Reset the binlog and write one of the same shape, longer by ten transactions."""
    execute(conn, f"DROP DATABASE `{db}`")
    reset_binlog(conn)
    execute(
        conn,
        f"CREATE DATABASE `{db}` CHARACTER SET utf8mb4",
        f"CREATE TABLE `{db}`.t (id INT PRIMARY KEY, v CHAR(8))",
    )
    load(conn, db, 2000, 30, "new rows")


def committed(pipeline: Pipeline) -> BinlogOffset:
    stored = pipeline.store.load()
    assert stored is not None and stored.committed is not None
    return stored.committed


def fits(conn: Any, at: BinlogOffset) -> bool:
    """Return whether a transaction boundary of the server stands at an offset's file and position."""
    events = rows(conn, f"SHOW BINLOG EVENTS IN '{at.file}'")
    return at.pos in {e[1] for e in events if "gtid" in e[2].lower()}


@pytest.mark.req("FAULT-11")
def test_a_position_that_fits_again_after_a_reset_is_refused(pipeline: Pipeline, source: Any, database: str) -> None:
    load_again(source, database)
    assert fits(source, committed(pipeline))
    with pytest.raises(BinlogPurgedError, match="replaced by another") as caught:
        pipeline.drain()
    assert not caught.value.can_retry and "again=true" in caught.value.remedy
    pipeline.snapshot(again=True)
    load(source, database, 3000, 1, "last row")
    pipeline.drain()
    wanted = {i: v for i, v in rows(source, f"SELECT id, v FROM `{database}`.t")}
    found = {r["id"]: r["v"] for r in compacted(pipeline.records("t")).values()}
    assert {i: found[i] for i in wanted} == wanted


@pytest.mark.req("FAULT-11")
@pytest.mark.parametrize("more", [0, 60], ids=["the former file is read to its end", "it holds more"])
@pytest.mark.exhaustive(but="it holds more")
def test_a_reset_behind_living_writers_ends_their_run(
    pipeline: Pipeline, source: Any, database: str, monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    """For some seconds the file is not compared again; their dump reads on in the former one, never in the new one."""

    def reset() -> None:
        load(source, database, 1200, more, "not read")
        load_again(source, database)

    steps = [lambda: load(source, database, 1100, 1, "in batch"), reset]
    plan_next = drain_driver._next_plan

    def plan_step(*args: Any) -> Any:
        if steps:
            steps.pop(0)()
        return plan_next(*args)

    monkeypatch.setattr(drain_driver, "_next_plan", plan_step)
    monkeypatch.setattr(drain_driver, "CHECK_INTERVAL_S", 1.0)
    load(source, database, 1090, 1, "in batch")
    spec = replace(pipeline.prepare("drain").spec, run_for_s=120)
    with pytest.raises(BinlogPurgedError, match="replaced by another"):
        run_drain(spec, ThreadRunner(3), pipeline.log)
    outcome = pipeline.settle()
    assert more or isinstance(outcome.error, BinlogPurgedError)
    assert max(payload(r.value)["after"]["id"] for r in pipeline.records("t")) < 2000
    with pytest.raises(BinlogPurgedError, match="replaced by another"):
        pipeline.drain()


@pytest.mark.req("FAULT-11")
def test_a_planned_batch_is_not_read_from_another_binlog(pipeline: Pipeline, source: Any, database: str) -> None:
    load(source, database, 1500, 5, "in batch")
    job = pipeline.prepare("drain")
    load_again(source, database)
    assert fits(source, job.plan.start) and fits(source, job.plan.end)
    before = len(pipeline.records("t"))
    with pytest.raises(BinlogPurgedError, match="replaced by another"):
        pipeline.prepare("drain")
    with pytest.raises(BinlogPurgedError, match="replaced by another"):
        run_drain(job.spec, ThreadRunner(3), pipeline.log)
    outcome = pipeline.settle()
    assert not outcome.complete and isinstance(outcome.error, BinlogPurgedError)
    assert len(pipeline.records("t")) == before
    pipeline.snapshot(again=True)
    assert {payload(r.value)["after"]["id"] for r in pipeline.records("t")[before:]} == set(range(2000, 2030))


@pytest.mark.exhaustive
def test_a_file_keeps_its_fingerprint_and_no_other_has_it(
    source: Any, settings: ConnectionSettings, server: PrivateServer, unique: str
) -> None:
    """Each file is made within a second of the one before."""
    seen: list[str] = []
    for n in range(3):
        reset_binlog(source)
        with connect(settings) as conn:
            empty = end_of_binlog(conn, settings)
            execute(source, f"CREATE DATABASE `{unique}_{n}`")
            filled = end_of_binlog(conn, settings)
            assert empty.origin != filled.origin and same_fingerprint(empty.origin, filled.origin)
            execute(source, "FLUSH BINARY LOGS", f"DROP DATABASE `{unique}_{n}`")
            for offset in (empty, filled, replace(empty, origin=None)):
                assert check_available(conn, settings, offset).origin == filled.origin
            assert not same_fingerprint(filled.origin, end_of_binlog(conn, settings).origin)
        seen.append(str(filled.origin))
    assert not any(same_fingerprint(a, b) for i, a in enumerate(seen) for b in seen[:i])


def test_two_files_of_one_second_are_distinguished_by_their_first_transactions(
    source: Any, settings: ConnectionSettings, unique: str
) -> None:
    for _ in range(10):
        found = []
        for _ in range(2):
            reset_binlog(source)
            execute(source, f"CREATE DATABASE `{unique}`", f"DROP DATABASE `{unique}`")
            found.append(read_fingerprint(settings, rows(source, "SHOW BINARY LOGS")[0][0]))
        if found[0].split(".")[0] == found[1].split(".")[0]:
            break
    assert found[0].split(".")[:2] == found[1].split(".")[:2] and not same_fingerprint(*found)


@pytest.mark.exhaustive
def test_a_copied_server_does_not_have_the_files_of_the_original(
    properties: dict[str, str], tmp_path_factory: pytest.TempPathFactory, database: str
) -> None:
    """A copy of the data directory answers with the same uuid, and each of both begins the next file by itself."""
    from stacklib.ports import any_free

    with running_server(tmp_path_factory, "9.7") as original:
        copy = PrivateServer(tmp_path_factory.mktemp("copy") / "data", any_free())
        original.stop()
        shutil.copytree(original.folder, copy.folder, ignore=shutil.ignore_patterns("*.pid", "*.sock*", "*.lock"))
        original.start()
        copy.start()
        try:
            for server in (original, copy):
                with server.connect() as conn:
                    execute(conn, f"CREATE DATABASE `{database}`")
            here, there = (
                ConnectorConfig.from_properties(properties | s.properties()).connection_settings()
                for s in (original, copy)
            )
            with connect(here) as conn, connect(there) as other:
                offset = end_of_binlog(conn, here)
                assert end_of_binlog(other, there).server_uuid == offset.server_uuid
                check_available(conn, here, offset)
                with pytest.raises(BinlogPurgedError, match=r"replaced by another|lacks transactions"):
                    check_available(other, there, offset)
        finally:
            copy.discard()
