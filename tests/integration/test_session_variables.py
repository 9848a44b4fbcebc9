"""What a job reads does not depend on session variables, whether the server or its init_connect sets them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pymysql
import pytest
from kit.private_mysql import Pool, PrivateServer
from kit.records import compacted, payload
from kit.session_alternatives import alternatives
from kit.sql import execute, rows
from kit.table_rig import FLAT
from kit.tiers import many
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.binlog.connect import SESSION_VARIABLES, answering_server, connect, fetch_all
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import SourceError
from airflow_provider_mysql_cdc.cdc.incremental import window_task
from airflow_provider_mysql_cdc.cdc.incremental.scan_bounds import find_bound
from airflow_provider_mysql_cdc.cdc.incremental.window_operations import ReadyReply, WindowStart
from airflow_provider_mysql_cdc.cdc.job.task_barrier import BarrierPoint
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema.snapshot_records import captured_state
from airflow_provider_mysql_cdc.cdc.schema.table_discovery import captured_tables, read_definitions
from airflow_provider_mysql_cdc.cdc.snapshot import snapshot_task
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import chunk_condition, split_table
from airflow_provider_mysql_cdc.cdc.snapshot.rows import stream_rows
from airflow_provider_mysql_cdc.cdc.snapshot.snapshot_operations import OpenedView, ViewReply

GRANTS = "SELECT, RELOAD, SHOW DATABASES, REPLICATION SLAVE, REPLICATION CLIENT, LOCK TABLES"
TABLES = {
    "aa": "(id INT PRIMARY KEY, v INT, at TIMESTAMP NULL, d DATETIME(3), c CHAR(5), f FLOAT, t TEXT)",
    "names": "(k VARCHAR(300) PRIMARY KEY, v INT)",
    "hidden": "(v INT)",  # gets a generated invisible primary key
}


@pytest.fixture(scope="module")
def server(pool: Pool) -> Iterator[PrivateServer]:
    with pool.lent() as made, made.connect() as conn:
        execute(conn, "CREATE USER plain@'%' IDENTIFIED BY 'plain-word'", f"GRANT {GRANTS} ON *.* TO plain@'%'")
        execute(conn, "CREATE DATABASE shop", "USE shop", "SET time_zone = '+00:00'")
        execute(conn, "SET SESSION sql_generate_invisible_primary_key = ON")
        execute(conn, *(f"CREATE TABLE {name} {columns}" for name, columns in TABLES.items()))
        values = ",".join(
            f"({i}, {i}, '2026-01-01 {i % 24:02}:00:00', '2026-01-01 00:00:00.{i:03}', 'c{i % 9}', {i}/7, "
            f"REPEAT('t', {i}))"
            for i in range(50)
        )
        execute(conn, f"INSERT INTO aa VALUES {values}", "INSERT INTO hidden VALUES (1), (2)")
        execute(
            conn, "INSERT INTO names VALUES " + ",".join(f"(CONCAT(REPEAT('n', 250), {i}), {i})" for i in range(40))
        )
        execute(conn, "ANALYZE TABLE aa, names, hidden")
        yield made


def account(server: PrivateServer) -> dict[str, str]:
    return server.properties() | {"database.user": "plain", "database.password": "plain-word"}


def read_everything(cfg: ConnectorConfig) -> list[Any]:
    """Return what the queries of a job return: tables, definitions, bounds, last keys and rows."""
    found: list[Any] = []
    with connect(cfg.connection_settings()) as conn:
        tables = captured_tables(conn, cfg)
        definitions = read_definitions(conn, cfg, tables)
        found += [tables, definitions.tables]
        for table in captured_state(definitions).tables.values():
            chunks = split_table(conn, table, 10)
            found.append([(chunk.low, chunk.high) for chunk in chunks])
            columns = ", ".join(f"`{c.name}`" for c in table.columns)
            for chunk in chunks:
                sql = f"SELECT {columns} FROM {table.id.quoted()} WHERE {chunk_condition(chunk)}"
                found.append(sorted(bytes(row) for row in stream_rows(conn, sql, "here")))
        condition = "at >= '2026-01-01 20:00:00'"
        found.append(find_bound(conn, TableId("shop", "aa"), ("id",), ("SIGNED",), condition=condition, last=True))
        found.append(fetch_all(conn, "SELECT @@autocommit, @@transaction_isolation"))
    return found


def globally(conn: Any, name: str, value: str, how: str) -> list[str] | None:
    """Set a variable for new sessions; return the statements that undo it, None where no session may have the value."""
    try:
        execute(conn, f"SET SESSION {name} = @@SESSION.{name}")
        with_init = "init_connect" in how
        earlier = "" if with_init else rows(conn, f"SELECT @@GLOBAL.{name}")[0][0]
        execute(conn, how)
    except pymysql.MySQLError:
        return None
    return (
        [] if with_init else [f"SET GLOBAL {name} = " + (f"'{earlier}'" if isinstance(earlier, str) else str(earlier))]
    )


def test_what_is_read_is_the_same_whatever_a_session_variable_is(
    server: PrivateServer, properties: dict[str, str]
) -> None:
    cfg = Pipeline(properties | account(server) | {"database.include.list": "shop"}).cfg
    expected, tried, differing, refused = read_everything(cfg), 0, list[str](), list[str]()
    with server.connect() as conn:
        known = alternatives(conn)[:: many(6, 1)]
        for name, value in known:
            for how in (f"SET GLOBAL {name} = {value}", f'SET GLOBAL init_connect = "SET SESSION {name} = {value}"'):
                earlier = globally(conn, name, value, how)
                if earlier is None:
                    continue
                tried += 1
                try:
                    if read_everything(cfg) != expected:
                        differing.append(how)
                except SourceError as error:
                    # A session that the server ends, or a value that the account may not change, is an error by name.
                    refused.append(f"{how}: {error.message()}")
                finally:
                    execute(conn, "SET GLOBAL init_connect = ''", *earlier)
    assert differing == []
    assert tried > many(25, 150), tried
    assert all(any(name in line for name in SESSION_VARIABLES) or "init_connect" in line for line in refused), refused


@pytest.mark.req("SNAP-51")
def test_a_limit_of_rows_cuts_no_snapshot_and_no_list_of_tables(
    server: PrivateServer, properties: dict[str, str]
) -> None:
    pipeline = Pipeline(properties | account(server) | FLAT | {"database.include.list": "shop"})
    with server.connect() as conn:
        execute(conn, "SET GLOBAL sql_select_limit = 7", "SET GLOBAL time_zone = '+09:00'")
        try:
            assert pipeline.snapshot().complete
        finally:
            execute(conn, "SET GLOBAL sql_select_limit = DEFAULT", "SET GLOBAL time_zone = DEFAULT")
    for table, count in (("aa", 50), ("names", 40), ("hidden", 2)):
        assert len(compacted(pipeline.records(table))) == count
    at = {payload(r.value)["after"]["at"] for r in pipeline.records("aa")}
    assert "2026-01-01T05:00:00Z" in at


@pytest.mark.req("FAULT-22", "SETUP-24")
def test_views_outlive_the_idle_time_of_the_server(server: PrivateServer) -> None:
    """Those of a snapshot, and those of a window or a verification: a task may wait long for its next key range."""
    cfg = ConnectorConfig.from_properties(account(server) | {"topic.prefix": "p", "kafka.bootstrap.servers": "k:1"})
    opened = ViewReply(OpenedView(BinlogOffset("binlog.000001", 4), 0))

    def channel(point: BarrierPoint[Any], reply: Any) -> Any:
        return SimpleNamespace(call=lambda operation, arrival: reply if arrival.point == point.name else None)

    with server.connect() as root:
        execute(root, "SET GLOBAL wait_timeout = 1")
        try:
            with connect(cfg.connection_settings()) as one, connect(cfg.connection_settings()) as other:
                window = ReadyReply(WindowStart((), BinlogOffset("binlog.000001", 4), None, answering_server(root)))
                assert (
                    snapshot_task._join_view(one, channel(snapshot_task.OPENED, opened), [TableId("shop", "aa")])
                    == opened.view
                )
                assert window_task.open_window_view(other, channel(window_task.READY, window), frozenset()) is not None
                time.sleep(2.5)
                assert [fetch_all(conn, "SELECT COUNT(*) FROM shop.aa") for conn in (one, other)] == [[(50,)]] * 2
        finally:
            execute(root, "SET GLOBAL wait_timeout = DEFAULT")
