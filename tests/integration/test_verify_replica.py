"""A verification that reads the tables from a replica, on two servers with a writer on the source."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pymysql
import pytest
from kit.private_mysql import PrivateServer, running_server
from kit.repairs import REPAIR, verdict
from kit.replication import start_replica, wait_for_gtids
from kit.sql import execute, rows
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.errors import CdcError, SourceAuthError, SourceError, SourceSettingError
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import DifferenceKind
from airflow_provider_mysql_cdc.cdc.verify.views import replica_views
from airflow_provider_mysql_cdc.cdc.verify.views.replica_views import check_replica

DB = "shop"
NO_LOG, LOG = "SET sql_log_bin = 0", "SET sql_log_bin = 1"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateServer]:
    with running_server(tmp_path_factory, "9.7", {"server_id": "101"}) as made:
        yield made


@pytest.fixture(scope="module")
def replica(source: PrivateServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateServer]:
    options = {"server_id": "102", "replica_parallel_workers": "4"}
    with running_server(tmp_path_factory, "9.7", options) as made, made.connect() as conn:
        start_replica(conn, source)
        yield made


@pytest.fixture
def on_source(source: PrivateServer) -> Iterator[Any]:
    with source.connect() as conn:
        execute(conn, f"DROP DATABASE IF EXISTS {DB}", f"CREATE DATABASE {DB}", f"USE {DB}")
        execute(conn, "CREATE TABLE t (id INT PRIMARY KEY, v INT)", "CREATE TABLE log (line VARCHAR(9))")
        execute(conn, "INSERT INTO t VALUES " + ", ".join(f"({i}, 0)" for i in range(200)))
        execute(conn, "INSERT INTO log VALUES ('a'), ('a'), (NULL)")
        yield conn


@pytest.fixture
def on_replica(replica: PrivateServer, on_source: Any) -> Iterator[Any]:
    with replica.connect() as conn:
        yield conn
        execute(conn, LOG, "START REPLICA")
        catch_up(on_source, conn)


@pytest.fixture
def pipeline(properties: dict[str, str], source: PrivateServer, replica: PrivateServer, on_replica: Any) -> Pipeline:
    more = {
        "verify.replica.database.hostname": "127.0.0.1",
        "verify.replica.database.port": str(replica.port),
        "verify.replica.database.user": "cdc",
        "verify.replica.database.password": replica.password,
        "verify.replica.database.ssl.mode": "disabled",
        "verify.replica.timeout.ms": "30000",
        "snapshot.chunk.rows": "50",
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
    }
    made = Pipeline(properties | source.properties() | {"database.include.list": DB} | more)
    made.snapshot()
    return made


def catch_up(source: Any, replica: Any) -> None:
    (wanted,) = rows(source, "SELECT @@gtid_executed")[0]
    wait_for_gtids(replica, wanted)
    # A channel that has begun names its source only when it is connected.
    deadline = time.monotonic() + 60
    while not rows(replica, "SELECT SOURCE_UUID FROM performance_schema.replication_connection_status")[0][0]:
        assert time.monotonic() < deadline, "the replica does not connect"
        time.sleep(0.05)


def write(server: PrivateServer, stop: threading.Event) -> None:
    """Change rows until the event is set."""
    number = 1000
    with server.connect() as conn:
        execute(conn, f"USE {DB}")
        while not stop.is_set():
            number += 1
            execute(
                conn,
                f"INSERT INTO t VALUES ({number}, 1)",
                f"UPDATE t SET v = v + 1 WHERE id % 40 = {number % 40}",
                f"DELETE FROM t WHERE id = {number - 7}",
                f"INSERT INTO log VALUES ('{number % 9}')",
            )


def test_it_is_exact_while_the_source_is_written_to(
    pipeline: Pipeline, source: PrivateServer, on_source: Any, on_replica: Any
) -> None:
    """Also with an account that may lock tables alone."""
    catch_up(on_source, on_replica)
    execute(
        on_replica,
        NO_LOG,
        "CREATE USER IF NOT EXISTS reader@'%' IDENTIFIED BY 'reader-word'",
        f"GRANT SELECT, LOCK TABLES ON {DB}.* TO reader@'%'",
        "GRANT REPLICATION CLIENT ON *.* TO reader@'%'",
        LOG,
    )
    stop = threading.Event()
    thread = threading.Thread(target=write, args=(source, stop))
    thread.start()
    try:
        for user, password in (
            ("cdc", pipeline.properties["verify.replica.database.password"]),
            ("reader", "reader-word"),
        ):
            pipeline.properties |= {"verify.replica.database.user": user, "verify.replica.database.password": password}
            result = pipeline.verify()
            assert result.verdict == "equal", result
            assert verdict(result, "t").rows >= 200
    finally:
        stop.set()
        thread.join()
    assert sum("the views are open on the replica" in line for line in pipeline.lines) == 2
    assert not any("reader-word" in line for line in pipeline.lines)


def test_the_rows_are_those_of_the_replica_and_a_repair_writes_those_of_the_source(
    pipeline: Pipeline, on_source: Any, on_replica: Any
) -> None:
    catch_up(on_source, on_replica)
    execute(on_replica, NO_LOG, f"UPDATE {DB}.t SET v = 5 WHERE id = 3", LOG)
    result = pipeline.verify(REPAIR)
    assert verdict(result, "t").findings == {DifferenceKind.DIFFERING: 1} and verdict(result, "t").repaired == {}
    assert any("the table in the source is as the topic says" in text for text in verdict(result, "t").unknown)


def _gtids_off_on_source(pipeline: Pipeline, source: Any, replica: Any) -> None:
    execute(source, "SET GLOBAL gtid_mode = ON_PERMISSIVE")


def _gtids_off_on_replica(pipeline: Pipeline, source: Any, replica: Any) -> None:
    execute(replica, "STOP REPLICA", "CHANGE REPLICATION SOURCE TO SOURCE_AUTO_POSITION=0")
    execute(replica, "SET GLOBAL gtid_mode = ON_PERMISSIVE")


def _source_itself(pipeline: Pipeline, source: Any, replica: Any) -> None:
    pipeline.properties["verify.replica.database.port"] = pipeline.properties["database.port"]


def _no_replica(pipeline: Pipeline, source: Any, replica: Any) -> None:
    execute(replica, "STOP REPLICA", "RESET REPLICA ALL")


def _filtered(pipeline: Pipeline, source: Any, replica: Any) -> None:
    execute(replica, "STOP REPLICA SQL_THREAD")
    execute(replica, f"CHANGE REPLICATION FILTER REPLICATE_WILD_IGNORE_TABLE = ('{DB}.lo%')", "START REPLICA")


def _table_missing(pipeline: Pipeline, source: Any, replica: Any) -> None:
    execute(replica, NO_LOG, f"RENAME TABLE {DB}.log TO {DB}.elsewhere", LOG)


def _errant(pipeline: Pipeline, source: Any, replica: Any) -> None:
    execute(replica, "CREATE DATABASE errant")


def _behind(pipeline: Pipeline, source: Any, replica: Any) -> None:
    pipeline.properties["verify.replica.timeout.ms"] = "500"
    execute(replica, "STOP REPLICA SQL_THREAD")
    execute(source, f"INSERT INTO {DB}.t VALUES (900, 1)")


def _wrong_password(pipeline: Pipeline, source: Any, replica: Any) -> None:
    pipeline.properties["verify.replica.database.password"] = "not-this-one"


REFUSALS: list[tuple[Callable[..., None], type[CdcError], str]] = [
    (_gtids_off_on_source, SourceSettingError, "GTIDs are off on the source"),
    (_gtids_off_on_replica, SourceSettingError, "GTIDs are off on the replica"),
    (_source_itself, SourceSettingError, "is the source itself"),
    (_no_replica, SourceSettingError, "is no replica of the source"),
    (_filtered, SourceSettingError, r"does not replicate tables to verify: shop\.log"),
    (_table_missing, SourceSettingError, r"lacks tables to verify: shop\.log"),
    (_errant, SourceSettingError, "transactions that the source lacks"),
    (_behind, SourceError, "has not applied in time what the stream has read"),
    (_wrong_password, SourceAuthError, "the replica of the verification: MySQL refuses the account"),
]


def undo(on_source: Any, on_replica: Any, source: PrivateServer) -> None:
    """Undo what keeps the replica from being used."""
    execute(on_source, "SET GLOBAL gtid_mode = ON")
    execute(on_replica, LOG, "STOP REPLICA", "SET GLOBAL gtid_mode = ON")
    execute(on_replica, "CHANGE REPLICATION FILTER REPLICATE_WILD_IGNORE_TABLE = ()")
    if rows(on_replica, "SHOW DATABASES LIKE 'errant'"):
        (executed,) = rows(on_replica, "SELECT @@gtid_executed")[0]
        (own,) = rows(on_replica, "SELECT @@server_uuid")[0]
        left = rows(on_replica, f"SELECT GTID_SUBTRACT('{executed}', '{own}:1-1000')")[0][0]
        execute(on_replica, NO_LOG, "DROP DATABASE errant", LOG, "RESET BINARY LOGS AND GTIDS")
        execute(on_replica, f"SET GLOBAL gtid_purged = '{left}'")
    if rows(on_replica, f"SHOW TABLES IN {DB} LIKE 'elsewhere'"):
        execute(on_replica, NO_LOG, f"RENAME TABLE {DB}.elsewhere TO {DB}.log", LOG)
    start_replica(on_replica, source)


@pytest.mark.exhaustive
def test_a_replica_that_cannot_be_read_is_refused_by_name(
    pipeline: Pipeline, on_source: Any, on_replica: Any, source: PrivateServer
) -> None:
    whole = dict(pipeline.properties)
    for prepare, kind, text in REFUSALS:
        case = prepare.__name__
        catch_up(on_source, on_replica)
        prepare(pipeline, on_source, on_replica)
        try:
            if kind is not SourceError:
                with pytest.raises(kind, match=text):
                    check_replica(pipeline.cfg, on_source, [TableId(DB, "log"), TableId(DB, "t")])
            with pytest.raises(kind, match=text) as raised:
                pipeline.verify()
        except BaseException as error:
            error.add_note(f"refusal: {case}")
            raise
        finally:
            undo(on_source, on_replica, source)
        assert f"127.0.0.1:{pipeline.properties['verify.replica.database.port']}" in raised.value.where, case
        assert "not-this-one" not in str(raised.value), case
        assert raised.value.can_retry is (kind is SourceError), case
        pipeline.properties = dict(whole)
    catch_up(on_source, on_replica)
    assert pipeline.verify().verdict == "equal"


def leave_gap(pipeline: Pipeline, source: Any, replica: Any) -> None:
    """Let the replica execute a transaction before the one that is before it in the source's binlog."""
    catch_up(source, replica)
    execute(replica, "STOP REPLICA SQL_THREAD")
    execute(source, f"INSERT INTO {DB}.t VALUES (901, 1)", "CREATE DATABASE IF NOT EXISTS other")
    (uuid,) = rows(source, "SELECT @@server_uuid")[0]
    (executed,) = rows(source, "SELECT @@gtid_executed")[0]
    last = int(executed.replace("\n", "").split(f"{uuid}:")[1].split(",")[0].rpartition("-")[2])
    execute(replica, f"SET gtid_next = '{uuid}:{last}'", "BEGIN", "COMMIT", "SET gtid_next = AUTOMATIC")


def test_a_gap_of_the_replica_is_named(
    pipeline: Pipeline, on_source: Any, on_replica: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with replica_preserve_commit_order=OFF, behind the transactions that are waited for."""
    monkeypatch.setattr(replica_views, "_wait_for_stream", lambda *_: None)
    leave_gap(pipeline, on_source, on_replica)
    with pytest.raises(SourceError, match="has no position in the binlog of the source") as raised:
        pipeline.verify()
    assert raised.value.can_retry and "replica_preserve_commit_order" in raised.value.remedy
    execute(on_replica, "START REPLICA SQL_THREAD")
    monkeypatch.undo()
    assert pipeline.verify().verdict == "equal"


@pytest.mark.exhaustive
def test_its_queries_have_the_bound_of_time_too(
    pipeline: Pipeline, on_source: Any, on_replica: Any, monkeypatch: Any
) -> None:
    pipeline.properties["verify.max.execution.time.ms"] = "777000"
    seen: list[Any] = []
    execute_command = pymysql.connections.Connection._execute_command

    def look(self: Any, command: int, sql: Any) -> Any:
        text = sql.decode() if isinstance(sql, bytes) else str(sql)
        if "max_execution_time = 777000" in text:
            seen.append(self.port)
        return execute_command(self, command, sql)

    monkeypatch.setattr(pymysql.connections.Connection, "_execute_command", look)
    assert pipeline.verify().verdict == "equal"
    assert seen and set(seen) == {int(pipeline.properties["verify.replica.database.port"])}
