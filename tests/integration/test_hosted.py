"""Hosted MySQL, imitated by an account without the privileges that providers keep: what works, and what is said."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from kit.private_mysql import Pool, PrivateServer
from kit.signals import send as send_signal
from kit.sql import execute, purge
from kit.table_rig import FLAT, check_chain, filled
from kit.tiers import many
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.errors import BinlogPurgedError, SourcePrivilegeError
from airflow_provider_mysql_cdc.cdc.operate.findings import source_findings

RETENTION = "CREATE TABLE mysql.rds_configuration (name VARCHAR(100), value VARCHAR(100), description VARCHAR(300))"


@pytest.fixture(scope="module", params=many(["9.7"], ["9.7", "8.0.15"]))
def server(request: pytest.FixtureRequest, pool: Pool) -> Iterator[PrivateServer]:
    with pool.lent(request.param) as made:
        yield made


@pytest.fixture
def source(server: PrivateServer, database: str) -> Iterator[Any]:
    """Make two tables and an account that may do what a provider's users may give; return a root connection."""
    with server.connect() as conn:
        execute(
            conn,
            f"CREATE DATABASE `{database}`",
            f"USE `{database}`",
            *filled(database, "aa", "bb"),
            "CREATE USER hosted@'%' IDENTIFIED BY 'pw'",
            "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO hosted@'%'",
            f"GRANT SELECT, LOCK TABLES ON `{database}`.* TO hosted@'%'",
        )
        yield conn
        execute(conn, "SET GLOBAL super_read_only = OFF", "SET GLOBAL read_only = OFF", "DROP USER hosted@'%'")
        execute(conn, f"DROP DATABASE `{database}`", "DROP TABLE IF EXISTS mysql.rds_configuration")


@pytest.fixture
def pipeline(properties: dict[str, str], server: PrivateServer, source: Any) -> Pipeline:
    account = {"database.user": "hosted", "database.password": "pw", "database.ssl.mode": "required"}
    return Pipeline(properties | FLAT | server.properties() | account)


def said(pipeline: Pipeline) -> list[str]:
    with connect(pipeline.cfg.connection_settings()) as conn:
        return [finding.what for finding in source_findings(conn, pipeline.cfg, snapshot=True)]


@pytest.mark.req("SETUP-08", "SNAP-19")
def test_without_reload_the_view_of_all_tables_is_one(
    pipeline: Pipeline, source: Any, server: PrivateServer, database: str
) -> None:
    """A writer moves one unit from table to table in each transaction: at any moment the sum is the same."""
    assert "the account may not take a global read lock" in said(pipeline)
    stop = threading.Event()

    def write() -> None:
        with server.connect() as conn:
            execute(conn, f"USE `{database}`")
            number = 0
            while not stop.is_set():
                number += 1
                key = number % 30
                execute(
                    conn,
                    "BEGIN",
                    f"UPDATE aa SET v = v - 1 WHERE id = {key}",
                    f"UPDATE bb SET v = v + 1 WHERE id = {key}",
                    "COMMIT",
                )

    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert pipeline.snapshot().complete
    finally:
        stop.set()
        thread.join()
    line = next(line for line in pipeline.lines if line.startswith("consistent view"))
    assert "lock=tables" in line
    read = [json.loads(record.value or b"")["after"]["v"] for t in ("aa", "bb") for record in pipeline.records(t)]
    assert len(read) == 60 and sum(read) == 0
    pipeline.drain()
    for table in ("aa", "bb"):
        check_chain(pipeline, source, database, table)
    execute(source, "UPDATE aa SET v = v + 1")
    send_signal(pipeline.cfg, "execute-snapshot", {"data-collections": [f"{database}.aa"]})
    while pipeline.drain() is not None:
        pass
    check_chain(pipeline, source, database, "aa")
    result = pipeline.verify()
    assert result.verdict == "equal", result


@pytest.mark.req("SETUP-06", "SETUP-07")
@pytest.mark.parametrize(
    ("without", "text"),
    [
        ("LOCK TABLES", "RELOAD or LOCK TABLES"),
        ("REPLICATION CLIENT", "REPLICATION CLIENT"),
        ("REPLICATION SLAVE", "REPLICATION SLAVE"),
        ("SELECT", "SELECT"),
    ],
)
@pytest.mark.exhaustive(but="LOCK|REPLICATION SLAVE")
def test_each_missing_privilege_has_one_line_with_its_grant(
    pipeline: Pipeline, source: Any, database: str, without: str, text: str
) -> None:
    scope = f"`{database}`.*" if without in ("LOCK TABLES", "SELECT") else "*.*"
    execute(source, f"REVOKE {without} ON {scope} FROM hosted@'%'")
    with connect(pipeline.cfg.connection_settings()) as conn:
        errors = [f for f in source_findings(conn, pipeline.cfg, snapshot=True) if f.error is not None]
    mine = [f for f in errors if text in f.what]
    assert len(mine) == 1 and "GRANT " in mine[0].fix, errors
    with pytest.raises(SourcePrivilegeError):
        pipeline.snapshot()
    if without == "LOCK TABLES":
        pipeline.properties["snapshot.locking.mode"] = "none"
        assert pipeline.snapshot().complete


def test_a_read_only_endpoint(pipeline: Pipeline, source: Any, database: str) -> None:
    execute(source, "SET GLOBAL super_read_only = ON")
    assert pipeline.snapshot().complete
    execute(source, "SET GLOBAL super_read_only = OFF", "SET GLOBAL read_only = OFF", "UPDATE aa SET v = v + 1")
    execute(source, "SET GLOBAL super_read_only = ON")
    pipeline.drain()
    check_chain(pipeline, source, database, "aa")
    assert pipeline.verify().verdict == "equal"


@pytest.mark.req("SETUP-18")
@pytest.mark.parametrize(("hours", "text"), [(None, "as soon as it can"), (1, "for 3600 s"), (168, "")])
def test_the_retention_of_amazon_rds(
    pipeline: Pipeline, source: Any, server: PrivateServer, hours: int | None, text: str
) -> None:
    value = "NULL" if hours is None else str(hours)
    execute(source, RETENTION, f"INSERT INTO mysql.rds_configuration VALUES ('binlog retention hours', {value}, '')")
    assert not [line for line in said(pipeline) if "RDS" in line], "the account does not see the table"
    execute(source, "GRANT SELECT ON mysql.rds_configuration TO hosted@'%'")
    lines = [line for line in said(pipeline) if "binlog files as soon" in line or "keeps its binlog" in line]
    assert len(lines) == bool(text) and all(text in line for line in lines), lines


def test_a_binlog_that_is_deleted_at_once(pipeline: Pipeline, source: Any, database: str) -> None:
    """Everything drained: the stream goes on. A change that was deleted: the error, whose remedy is carried out."""
    assert pipeline.snapshot().complete
    execute(source, "UPDATE aa SET v = v + 1")
    pipeline.drain()

    purge(source)
    execute(source, "UPDATE aa SET v = v + 1")
    pipeline.drain()
    check_chain(pipeline, source, database, "aa")
    execute(source, "UPDATE aa SET v = v + 1")
    purge(source)
    with pytest.raises(BinlogPurgedError) as caught:
        pipeline.drain()
    assert not caught.value.can_retry and "again=true" in caught.value.remedy
    pipeline.snapshot(again=True)
    assert pipeline.verify().verdict == "equal"
