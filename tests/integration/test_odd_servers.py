"""Servers whose binlog lacks changes, replicas, and MariaDB: read exactly, or refused before anything is read."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pymysql
import pytest
from kit.private_mysql import Pool, PrivateServer, running_server
from kit.records import compacted, payload
from kit.replication import start_replica, wait_for_gtids
from kit.sql import execute, rows
from pipelinelib.pipeline import Pipeline
from stacklib import debian, ports
from stacklib.locks import build_once
from stacklib.settings import DEBIAN_SUITE, cache_dir

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.binlog.stream import open_stream
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import SourceSettingError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset

FLAT = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
DIFFERENT = "different"


@pytest.fixture(scope="module")
def primary(pool: Pool) -> Iterator[PrivateServer]:
    with pool.lent(server_id="101") as made:
        yield made


def wait_for(replica: PrivateServer, primary: PrivateServer) -> None:
    """Wait until a replica has applied everything."""
    with primary.connect() as source, replica.connect() as conn:
        (wanted,) = rows(source, "SELECT @@gtid_executed")[0]
        wait_for_gtids(conn, wanted)


@pytest.fixture
def table(primary: PrivateServer, database: str) -> Iterator[Any]:
    """Make a table with two rows on the primary; return a root connection to it."""
    with primary.connect() as conn:
        execute(
            conn,
            f"CREATE DATABASE {database}",
            f"USE {database}",
            "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
            "INSERT INTO t VALUES (1, 1), (2, 2)",
        )
        yield conn
        execute(conn, f"DROP DATABASE {database}")


def stream_of(server: PrivateServer, properties: dict[str, str], **more: str) -> Pipeline:
    return Pipeline(properties | server.properties() | FLAT | {k.replace("_", "."): v for k, v in more.items()})


@pytest.mark.req("SETUP-27")
def test_a_replica_that_logs_what_it_applies_is_a_source(
    primary: PrivateServer, table: Any, pool: Pool, properties: dict[str, str]
) -> None:
    with pool.lent(server_id="102") as replica:
        with replica.connect() as conn:
            start_replica(conn, primary)
        wait_for(replica, primary)
        pipeline = stream_of(replica, properties)
        assert pipeline.snapshot().complete
        execute(table, "UPDATE t SET v = 20 WHERE id = 2", "DELETE FROM t WHERE id = 1", "ALTER TABLE t ADD w INT")
        execute(table, "INSERT INTO t VALUES (3, 3, 3)")
        wait_for(replica, primary)
        pipeline.drain()
        with replica.connect() as conn:
            execute(conn, "STOP REPLICA SQL_THREAD", f"CREATE DATABASE {DIFFERENT}")
        pipeline.drain()
        assert any("does not apply changes at present" in line for line in pipeline.lines), pipeline.lines
    events = [payload(record.value) for record in pipeline.records("t") if record.value is not None]
    assert [(e["op"], (e["after"] or e["before"])["id"]) for e in events][-3:] == [("u", 2), ("d", 1), ("c", 3)]


@pytest.mark.exhaustive
@pytest.mark.req("SETUP-30")
def test_a_replica_of_several_primaries_is_a_source(
    primary: PrivateServer, table: Any, pool: Pool, properties: dict[str, str]
) -> None:
    with (
        pool.lent(server_id="103") as second,
        pool.lent(server_id="104") as replica,
        second.connect() as other,
        replica.connect() as conn,
    ):
        db = properties["database.include.list"]
        execute(other, f"CREATE DATABASE {db}_b", f"USE {db}_b", "CREATE TABLE t (id INT PRIMARY KEY, v INT)")
        execute(other, "INSERT INTO t VALUES (1, 1)")
        for name, source in (("first", primary), ("second", second)):
            start_replica(conn, source, name)
        for source in (primary, second):
            wait_for(replica, source)
        pipeline = stream_of(replica, properties | {"database.include.list": f"{db},{db}_b"})
        assert pipeline.snapshot().complete
        for number in range(10, 20):
            execute(table, f"INSERT INTO t VALUES ({number}, 0)", f"UPDATE t SET v = {number} WHERE id = 2")
            execute(other, f"INSERT INTO t VALUES ({number}, 0)", f"UPDATE t SET v = {number} WHERE id = 1")
        for source in (primary, second):
            wait_for(replica, source)
        pipeline.drain()
        for name in (db, f"{db}_b"):
            records = pipeline.read(f"{pipeline.properties['topic.prefix']}.{name}.t")
            stored = {row[0]: row[1] for row in rows(conn, f"SELECT id, v FROM `{name}`.t")}
            assert {row["id"]: row["v"] for row in compacted(records).values()} == stored and len(stored) > 10


@pytest.mark.exhaustive
@pytest.mark.req("SETUP-27", "SETUP-11")
def test_a_replica_that_does_not_log_is_refused_before_anything_is_read(
    primary: PrivateServer, table: Any, tmp_path_factory: pytest.TempPathFactory, properties: dict[str, str]
) -> None:
    options = {"server_id": "102", "log_replica_updates": "OFF"}
    with running_server(tmp_path_factory, "9.7", options) as replica:
        with replica.connect() as conn:
            start_replica(conn, primary)
        wait_for(replica, primary)
        pipeline = stream_of(replica, properties)
        with pytest.raises(SourceSettingError, match="does not log what it replicates"):
            pipeline.snapshot()
        with replica.connect() as conn:  # promoted: it logs what happens from now on
            execute(conn, "STOP REPLICA", "RESET REPLICA ALL")
        assert pipeline.snapshot().complete


LISTS = {
    "the other case": ({"binlog_ignore_db": "LOST", "lower_case_table_names": "1"}, "not written", "binlog_ignore_db"),
    "let through in the other case": (
        {"binlog_do_db": "Kept", "lower_case_table_names": "1"},
        "not written",
        "binlog_do_db",
    ),
    "two": ({"binlog_ignore_db": "lost\nbinlog_ignore_db=elsewhere"}, "cannot be told", "binlog_ignore_db"),
    "two let through": ({"binlog_do_db": "kept\nbinlog_do_db=elsewhere"}, "not written", "binlog_do_db"),
}


@pytest.mark.parametrize("lists", LISTS)
@pytest.mark.exhaustive(but="the other case|two let through")
def test_databases_that_are_not_logged_are_refused(
    lists: str, tmp_path_factory: pytest.TempPathFactory, properties: dict[str, str]
) -> None:
    """An option that is given twice is shown like one name with a comma; rows in the binlog tell which it is."""
    options, what, option = LISTS[lists]
    with running_server(tmp_path_factory, "9.7", options) as server, server.connect() as conn:
        for name in ("kept", "lost"):
            execute(conn, f"CREATE DATABASE {name}", f"USE {name}", "CREATE TABLE t (id INT PRIMARY KEY)")
        both = properties | {"database.include.list": "kept,lost", "table.include.list": ".*"}
        with pytest.raises(SourceSettingError, match=rf"{what}.*lost\.t") as caught:
            stream_of(server, both).snapshot()
        assert f"{option}={options[option].partition(chr(10))[0]}" in caught.value.why
        pipeline = stream_of(server, both | {"database.include.list": "kept"})
        if lists == "two let through":
            with pytest.raises(SourceSettingError, match=r"cannot be told.*kept\.t") as doubtful:
                pipeline.snapshot()
            assert "change a row" in doubtful.value.remedy
            execute(conn, "CREATE DATABASE elsewhere", "CREATE TABLE elsewhere.t (id INT PRIMARY KEY)")
            execute(conn, "INSERT INTO elsewhere.t VALUES (0)", "FLUSH BINARY LOGS")  # so both are entries
        assert pipeline.snapshot().complete
        execute(conn, "INSERT INTO kept.t VALUES (1)", "INSERT INTO lost.t VALUES (1)")
        assert sum(pipeline.drain().counts.values()) >= 1
        assert any(f"WARNING: the server was started with {option}" in line for line in pipeline.lines)


@pytest.mark.exhaustive
def test_one_option_with_two_names_lets_none_of_them_through(
    tmp_path_factory: pytest.TempPathFactory, properties: dict[str, str]
) -> None:
    """Rows that were logged before the server was started with it prove nothing."""
    with running_server(tmp_path_factory, "9.7") as server:
        with server.connect() as conn:
            execute(conn, "CREATE DATABASE kept", "CREATE TABLE kept.t (id INT PRIMARY KEY)")
            execute(conn, "INSERT INTO kept.t VALUES (1)")
        server.stop()
        server.start(binlog_do_db="kept,lost")
        pipeline = stream_of(server, properties | {"database.include.list": "kept", "table.include.list": ".*"})
        for row in (2, 3):
            with pytest.raises(SourceSettingError, match=r"cannot be told.*kept\.t"):
                pipeline.snapshot()
            with server.connect() as conn:
                execute(conn, f"INSERT INTO kept.t VALUES ({row})", "FLUSH BINARY LOGS")
        server.stop()
        server.start(binlog_do_db="kept\nbinlog_do_db=lost")
        with server.connect() as conn:
            execute(conn, "INSERT INTO kept.t VALUES (4)")
        assert pipeline.snapshot().complete


@contextmanager
def running_mariadb(folder: Path) -> Iterator[int]:
    """Yield the port of a running MariaDB, from Debian's packages."""
    root = build_once(
        cache_dir() / "mariadb",
        lambda target: debian.fetch(("mariadb-server-core",), target, "mariadb", DEBIAN_SUITE),
        "mariadb",
        "MariaDB from Debian",
    )
    port, share = ports.any_free(), root / "usr/share/mysql"
    (folder / "data").mkdir()
    command = [
        *debian.loader(root), str(root / "usr/sbin/mariadbd"), "--no-defaults", f"--basedir={root / 'usr'}",
        f"--datadir={folder / 'data'}", f"--lc-messages-dir={share}", f"--socket={folder / 's'}",
        "--bind-address=127.0.0.1", f"--port={port}", "--log-bin", "--binlog-format=ROW", "--server-id=7",
        "--skip-grant-tables", *(["--user=root"] if os.geteuid() == 0 else []),
    ]  # fmt: skip
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 120
        while not _answers(port):
            assert server.poll() is None and time.monotonic() < deadline, (folder / "log").read_text()[-2000:]
            time.sleep(0.2)
        yield port
    finally:
        server.kill()
        server.wait()


def _answers(port: int) -> bool:
    try:
        pymysql.connect(host="127.0.0.1", port=port, user="root", ssl_disabled=True).close()
    except pymysql.MySQLError:
        return False
    return True


@pytest.mark.req("SETUP-34")
def test_mariadb_is_refused_by_name(tmp_path: Path, properties: dict[str, str]) -> None:
    with running_mariadb(tmp_path) as port:
        there = properties | {"database.port": str(port), "database.user": "root", "database.password": ""}
        pipeline = Pipeline(there | FLAT)
        for job in (pipeline.snapshot, pipeline.drain):
            with pytest.raises(SourceSettingError, match="the server is MariaDB") as caught:
                job()
            assert not caught.value.retriable and "-MariaDB" in caught.value.why
        settings = ConnectorConfig.from_properties(there).connection_settings()
        with pytest.raises(SourceSettingError, match="the server is MariaDB"):
            connect(settings, replication=True)
        with (
            pytest.raises(SourceSettingError, match="the server is MariaDB"),
            open_stream(settings, BinlogOffset("binlog.000001", 4), server_id=6000),
        ):
            pass
