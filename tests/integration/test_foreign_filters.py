"""A resumed snapshot holds events back only where its positions mean something: after a reset, after a failover."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.private_mysql import PrivateServer
from kit.records import payload
from kit.sql import execute, rows
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.errors import BinlogPurgedError
from airflow_provider_mysql_cdc.cdc.job.task_runner import ThreadRunner
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.operate.reset_offset import reset_offset
from airflow_provider_mysql_cdc.cdc.snapshot.snapshot_driver import run_snapshot

ROWS = 60
EARLY = 20
RESET = "RESET BINARY LOGS AND GTIDS"


def started(tmp_path_factory: pytest.TempPathFactory, **options: str) -> Iterator[PrivateServer]:
    from stacklib.ports import any_free

    made = PrivateServer(tmp_path_factory.mktemp("mysql"), any_free())
    made.start(**options)
    yield made
    made.discard()


@pytest.fixture(scope="module")
def primary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateServer]:
    yield from started(tmp_path_factory)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateServer]:
    """Return a server that can replicate the primary and take its place."""
    yield from started(tmp_path_factory, server_id="4711")


@pytest.fixture
def source(primary: PrivateServer) -> Iterator[Any]:
    with primary.connect() as conn:
        execute(conn, RESET)
        yield conn


@pytest.fixture
def pipeline(properties: dict[str, str], primary: PrivateServer) -> Pipeline:
    return Pipeline(
        properties
        | primary.properties()
        | {
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
            "snapshot.chunk.rows": "10",
        }
    )


def fill(conn: Any, db: str) -> None:
    execute(
        conn,
        f"CREATE DATABASE `{db}` CHARACTER SET utf8mb4",
        f"CREATE TABLE `{db}`.t (id INT PRIMARY KEY, v INT)",
        f"INSERT INTO `{db}`.t VALUES " + ",".join(f"({i}, 0)" for i in range(ROWS)),
        f"ANALYZE TABLE `{db}`.t",
    )


def change(conn: Any, db: str, value: int) -> None:
    execute(conn, f"UPDATE `{db}`.t SET v = {value}")


def interrupt(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, fired: Path) -> None:
    """Run a snapshot that fails once two chunks, twenty rows, are committed."""
    monkeypatch.setattr(faults, "_passed", {})
    fault = {"point": "snapshot.after_chunk", "action": "raise", "nth": 2, "fired": str(fired)}
    monkeypatch.setenv("MYSQL_CDC_FAULT", json.dumps(fault))
    job = pipeline.prepare("snapshot")
    with pytest.raises(faults.FaultRaised):
        run_snapshot(job.spec, ThreadRunner(1), pipeline.log)
    assert fired.exists()
    monkeypatch.delenv("MYSQL_CDC_FAULT")


def resumed(pipeline: Pipeline, conn: Any, db: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Take a snapshot in two views; all rows change between them."""
    fill(conn, db)
    interrupt(pipeline, monkeypatch, tmp_path / "fired")
    change(conn, db, 1)
    assert pipeline.snapshot().complete


def reset(pipeline: Pipeline, to: str) -> BinlogOffset:
    return reset_offset(pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log, to=to)


def histories(pipeline: Pipeline) -> dict[int, list[tuple[str, int]]]:
    """Return what a consumer sees of each row."""
    seen: dict[int, list[tuple[str, int]]] = {}
    for record in pipeline.records("t"):
        value = payload(record.value)
        seen.setdefault(value["after"]["id"], []).append((value["op"], value["after"]["v"]))
    return seen


def expected(early: list[tuple[str, int]], late: list[tuple[str, int]]) -> dict[int, list[tuple[str, int]]]:
    return {i: early if i < EARLY else late for i in range(ROWS)}


def test_a_reset_of_the_server_holds_nothing_back(
    pipeline: Pipeline, source: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    resumed(pipeline, source, database, monkeypatch, tmp_path)
    execute(source, RESET)
    with pytest.raises(BinlogPurgedError, match=r"replaced by another|lacks transactions"):
        pipeline.drain()
    reset(pipeline, "current")
    change(source, database, 2)
    pipeline.drain()
    change(source, database, 3)
    pipeline.drain()
    # What lay between the first view and the reset is gone from the server, which the person accepted.
    assert histories(pipeline) == expected([("r", 0), ("u", 2), ("u", 3)], [("r", 1), ("u", 2), ("u", 3)])
    assert any("no event is dropped for them" in line for line in pipeline.lines)


@pytest.mark.parametrize("to", ["stored", "place"])
def test_a_reset_by_hand_in_the_same_binlog_keeps_what_the_rows_contain(
    to: str, pipeline: Pipeline, source: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    resumed(pipeline, source, database, monkeypatch, tmp_path)
    stored = pipeline.store.load()
    assert stored is not None and stored.committed is not None
    reset(pipeline, str(stored.committed) if to == "place" else to)
    change(source, database, 2)
    pipeline.drain()
    assert histories(pipeline) == expected([("r", 0), ("u", 1), ("u", 2)], [("r", 1), ("u", 2)])


def test_a_later_place_skips_what_lies_between_and_nothing_else(
    pipeline: Pipeline, source: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    resumed(pipeline, source, database, monkeypatch, tmp_path)
    reset(pipeline, "current")
    change(source, database, 2)
    pipeline.drain()
    assert histories(pipeline) == expected([("r", 0), ("u", 2)], [("r", 1), ("u", 2)])


def replicate(conn: Any, primary: PrivateServer) -> None:
    execute(
        conn,
        f"CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT={primary.port}, SOURCE_USER='cdc', "
        f"SOURCE_PASSWORD='{primary.password}', SOURCE_AUTO_POSITION=1, GET_SOURCE_PUBLIC_KEY=1",
        "START REPLICA",
    )


def catch_up(conn: Any, gtids: str) -> None:
    assert rows(conn, f"SELECT WAIT_FOR_EXECUTED_GTID_SET('{gtids}', 60)")[0][0] == 0


@pytest.mark.parametrize("lags", [False, True])
def test_after_a_failover_gtids_tell_what_the_rows_contain(
    lags: bool,
    pipeline: Pipeline,
    source: Any,
    primary: PrivateServer,
    other: PrivateServer,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """The new server's positions are far below those of the views, so by position all would be held back."""
    with other.connect() as conn:
        execute(conn, "STOP REPLICA", "RESET REPLICA ALL", RESET)
        replicate(conn, primary)
        execute(source, "CREATE DATABASE filler", "CREATE TABLE filler.f (v LONGTEXT)")
        execute(source, *["INSERT INTO filler.f VALUES (REPEAT('x', 100000))"] * 10, "DROP DATABASE filler")
        catch_up(conn, rows(source, "SELECT @@gtid_executed")[0][0])
        execute(conn, "FLUSH BINARY LOGS", "STOP REPLICA")
        fill(source, database)
        interrupt(pipeline, monkeypatch, tmp_path / "fired")
        first = rows(source, "SELECT @@gtid_executed")[0][0]
        execute(conn, "START REPLICA")
        catch_up(conn, first)
        if lags:
            execute(conn, "STOP REPLICA")
        change(source, database, 1)
        assert pipeline.snapshot().complete
        everything = rows(source, "SELECT @@gtid_executed")[0][0]
        if not lags:
            catch_up(conn, everything)
        pipeline.properties |= other.properties()
        with pytest.raises(BinlogPurgedError, match="another server"):
            pipeline.drain()
        reset(pipeline, "current")
        if lags:
            execute(conn, "START REPLICA")
            catch_up(conn, everything)
        execute(conn, "STOP REPLICA")
        change(conn, database, 2)
        pipeline.drain()
        execute(conn, f"DROP DATABASE `{database}`")
    between = [("u", 1)] if lags else []
    assert histories(pipeline) == expected([("r", 0), *between, ("u", 2)], [("r", 1), ("u", 2)])


def test_a_snapshot_is_not_finished_from_another_binlog(
    pipeline: Pipeline, source: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fill(source, database)
    interrupt(pipeline, monkeypatch, tmp_path / "fired")
    execute(source, RESET)
    change(source, database, 1)
    in_force = kafka_clients.ledger(pipeline.cfg).peek().plan_in_force().attempt
    with pytest.raises(BinlogPurgedError, match="cannot be finished"):
        pipeline.snapshot()
    assert kafka_clients.ledger(pipeline.cfg).peek().plan_in_force().attempt == in_force, (
        "the attempt at work elsewhere was fenced"
    )
    assert len(histories(pipeline)) == EARLY
    reset(pipeline, "current")
    assert pipeline.snapshot(again=True).complete
    change(source, database, 2)
    pipeline.drain()
    late = [("r", 1), ("u", 2)]
    assert histories(pipeline) == expected([("r", 0), *late], late)
