"""A verification behind a failover: files and positions begin anew, and GTIDs go on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kit.private_mysql import PrivateServer
from kit.sql import execute, rows
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.operate.reset_offset import reset_offset
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import DifferenceKind, VerifyRequest

PLAIN = {
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
    "topic.creation.default.partitions": "3",
    "skipped.operations": "none",
    "snapshot.locking.mode": "none",
}


@pytest.fixture
def copies(tmp_path: Path) -> Iterator[list[PrivateServer]]:
    """Return servers that end before their folders go, with the records of their processes."""
    from stacklib.ports import any_free

    first = PrivateServer(tmp_path / "first", any_free())
    first.start(gtid_mode="ON", enforce_gtid_consistency="ON")
    made = [first]
    yield made
    for server in made:
        server.discard()


def promote(copies: list[PrivateServer], folder: Any) -> Any:
    """Return a connection to a copy of the server with another uuid and a binlog of its own."""
    from stacklib.ports import any_free

    old = copies[-1]
    with old.connect() as conn:
        ((gtids,),) = rows(conn, "SELECT @@gtid_executed")
    old.stop()
    shutil.copytree(old.folder, folder, symlinks=True)
    for name in ("auto.cnf", "*.pid", "*.lock", "*.sock"):
        for path in folder.rglob(name):
            path.unlink()
    new = PrivateServer(folder, any_free(), old.version, old.password)
    copies.append(new)
    new.start(gtid_mode="ON", enforce_gtid_consistency="ON")
    conn = new.connect()
    execute(conn, "RESET BINARY LOGS AND GTIDS", f"SET GLOBAL gtid_purged = '{gtids}'")
    return conn


def found(pipeline: Pipeline, request: VerifyRequest | None = None) -> list[dict[DifferenceKind, int]]:
    result = pipeline.verify(request)
    assert not any(v.not_compared for v in result.tables), result
    return [dict(v.findings) for v in result.tables]


@pytest.mark.exhaustive
def test_truncates_on_both_sides_of_a_failover_are_no_differences(
    copies: list[PrivateServer], properties: dict[str, str], database: str, tmp_path: Any
) -> None:
    pipeline = Pipeline(properties | PLAIN | copies[0].properties())
    values = ",".join(f"({i}, {i}, 1.5)" for i in range(30))
    with copies[0].connect() as conn:
        execute(conn, f"CREATE DATABASE `{database}`", f"USE `{database}`")
        for table in ("t", "u"):
            execute(conn, f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT, d DECIMAL(10,2))")
            execute(conn, f"INSERT INTO {table} VALUES {values}")
        pipeline.snapshot()
        execute(conn, *["FLUSH BINARY LOGS"] * 20)
        execute(conn, "TRUNCATE TABLE u", f"INSERT INTO u VALUES {values}", "UPDATE t SET v = 1")
        pipeline.drain()
    conn = promote(copies, tmp_path / "promoted")
    with conn:
        execute(conn, f"USE `{database}`")
        moved = replace(pipeline, properties=pipeline.properties | copies[1].properties())
        reset_offset(moved.cfg, moved.store, moved.owner, moved.log, to="current")
        execute(conn, "UPDATE u SET v = 2 WHERE id < 15", "DO SLEEP(1.1)")
        execute(conn, "TRUNCATE TABLE t", "INSERT INTO t VALUES (1, 5, 1.5), (2, 5, 1.5), (3, 5, 1.5)")
        assert found(moved) == [{}, {}]
        assert found(moved, VerifyRequest(history=True)) == [{}, {}]
        execute(conn, "SET sql_log_bin = 0", "DELETE FROM u WHERE id = 20", "INSERT INTO t VALUES (9, 9, 9)")
        assert found(moved) == [{DifferenceKind.MISSING: 1}, {DifferenceKind.GHOST: 1}]


def test_structures_on_both_sides_of_a_failover(
    copies: list[PrivateServer], properties: dict[str, str], database: str, tmp_path: Any
) -> None:
    pipeline = Pipeline(properties | PLAIN | copies[0].properties())
    with copies[0].connect() as conn:
        execute(conn, f"CREATE DATABASE `{database}`", f"USE `{database}`")
        execute(conn, "CREATE TABLE t (id INT PRIMARY KEY, v INT, d DECIMAL(10,2))")
        execute(conn, "INSERT INTO t VALUES (1, 1, 1.5), (2, 2, 2.5), (3, 3, 3.5)")
        pipeline.snapshot()
        execute(conn, *["FLUSH BINARY LOGS"] * 20)
        execute(conn, "ALTER TABLE t MODIFY d DECIMAL(10,4)", "UPDATE t SET v = 9 WHERE id = 1")
        pipeline.drain()
    conn = promote(copies, tmp_path / "promoted")
    with conn:
        execute(conn, f"USE `{database}`")
        moved = replace(pipeline, properties=pipeline.properties | copies[1].properties())
        reset_offset(moved.cfg, moved.store, moved.owner, moved.log, to="current")
        execute(conn, "UPDATE t SET v = 10 WHERE id = 2")
        assert found(moved, VerifyRequest(history=True)) == [{}]
        execute(conn, "SET sql_log_bin = 0", "UPDATE t SET v = 77 WHERE id = 3")
        assert found(moved) == [{DifferenceKind.DIFFERING: 1}]
