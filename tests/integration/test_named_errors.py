"""What can be wrong outside: each case ends in a named error that says what to do, and nothing is written past it."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pymysql
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from kit.private_mysql import Pool, PrivateServer
from kit.records import compacted, duplicates, payload
from kit.sql import execute, purge, rows
from kit.tiers import many
from pipelinelib.pipeline import Pipeline
from pipelinelib.stand_ins import ThreadRunner
from test_sink_authorization import MOST_MS, allow, kafka, wait_for_acls
from test_sink_authorization import account as kafka_account

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.binlog import dump
from airflow_provider_mysql_cdc.cdc.binlog.stream import open_stream
from airflow_provider_mysql_cdc.cdc.errors import (
    READ_AGAIN,
    BinlogPurgedError,
    CdcError,
    ServerIdInUseError,
    SinkAuthorizationError,
    SourceAuthError,
    SourceConnectionError,
    SourcePrivilegeError,
    SourceSettingError,
)
from airflow_provider_mysql_cdc.cdc.incremental.drain_job import run_drain
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, file_number
from airflow_provider_mysql_cdc.cdc.operate.lag import DrainedOffset, Thresholds, measure_lag, read_binlog_state
from airflow_provider_mysql_cdc.cdc.operate.reset_offset import reset_offset
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.snapshot.snapshot_driver import run_snapshot
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import RepairMode, VerifyRequest

__all__ = ["kafka"]

NO_SECRET = "hunter2-secret"
PLAIN = {
    "cdc.id.header": "true",
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
}


@pytest.fixture
def pipeline(properties: dict[str, str], root: Any, database: str) -> Pipeline:
    """Return a stream that has one row in Kafka and one that waits in the binlog."""
    return begun(Pipeline(properties | PLAIN), root, database)


@pytest.fixture(scope="module")
def still(stack: Any) -> Iterator[Pipeline]:
    """Return a stream as ``pipeline`` does, one for all tests that leave it where it is; afterwards it goes on."""
    name = f"still_{os.getpid()}"
    conn = pymysql.connect(
        host=stack.mysql_host,
        port=stack.mysql_port,
        user=stack.root_user,
        password=stack.root_password,
        ssl_disabled=True,
    )
    conn.autocommit(True)
    execute(conn, f"CREATE DATABASE `{name}`")
    properties = {
        "topic.prefix": f"{name}_{time.monotonic_ns()}",
        "database.hostname": stack.mysql_host,
        "database.port": str(stack.mysql_port),
        "database.user": stack.cdc_user,
        "database.password": stack.cdc_password,
        "database.ssl.mode": "disabled",
        "database.include.list": name,
        "kafka.bootstrap.servers": stack.kafka,
        "topic.creation.default.replication.factor": "1",
    }
    made = begun(Pipeline(properties | PLAIN), conn, name)
    yield made
    finishes(made)
    execute(conn, f"DROP DATABASE `{name}`")
    conn.close()


def begun(pipeline: Pipeline, root: Any, database: str) -> Pipeline:
    execute(root, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, v LONGTEXT)")
    execute(root, f"INSERT INTO `{database}`.t VALUES (1, 'before')")
    assert pipeline.snapshot().complete
    execute(root, f"INSERT INTO `{database}`.t VALUES (2, 'after')")
    return pipeline


def with_properties(pipeline: Pipeline, **changed: str) -> Pipeline:
    """Return the same stream, store included, with other properties (dots written as two underscores)."""
    return replace(
        pipeline, properties=pipeline.properties | {k.replace("__", "."): v for k, v in changed.items()}, lines=[]
    )


@contextmanager
def nothing_moves(pipeline: Pipeline, error: type[CdcError], *, retry: bool, says: str, where: str) -> Iterator[None]:
    """Expect a named error that leaves topics and stored offset alone and shows no secret."""

    def look() -> dict[str, int]:
        return {t: len(pipeline.read(t)) for t in (*pipeline.topics(), pipeline.properties["topic.prefix"])}

    before, stored = look(), pipeline.store.load()
    with pytest.raises(CdcError) as caught:
        yield
    found = caught.value
    assert type(found) is error, found
    assert found.what and where in found.where and says in found.remedy, found
    assert found.can_retry is retry, found
    shown = f"{found} {found!r} {json.dumps(found.to_json())} {pipeline.lines}"
    for name, value in pipeline.properties.items():
        assert "password" not in name or value not in shown
    assert NO_SECRET not in shown
    assert look() == before
    left = pipeline.store.load()
    assert (left and left.committed) == (stored and stored.committed)


def finishes(pipeline: Pipeline) -> None:
    """Show that the stream goes on once the cause is gone: the waiting row comes, once."""
    outcome = pipeline.drain()
    assert outcome is not None and outcome.complete
    records = pipeline.records("t")
    assert duplicates(records) == []
    assert [payload(r.value)["after"]["id"] for r in records][:2] == [1, 2]


def address(pipeline: Pipeline) -> str:
    return f"{pipeline.properties['database.hostname']}:{pipeline.properties['database.port']}"


# -- the account ------------------------------------------------------------------------------------------------------


@pytest.fixture
def account(root: Any, unique: str) -> Iterator[Callable[[str], dict[str, str]]]:
    """Return a function that makes an account with some global privileges and returns its properties."""

    def make(grants: str) -> dict[str, str]:
        execute(root, f"CREATE USER '{unique}'@'%' IDENTIFIED BY '{NO_SECRET}'")
        execute(root, f"GRANT {grants} ON *.* TO '{unique}'@'%'")
        return {"database__user": unique, "database__password": NO_SECRET}

    yield make
    execute(root, f"DROP USER IF EXISTS '{unique}'@'%'")


@pytest.mark.req("FAULT-02")
def test_wrong_password(still: Pipeline) -> None:
    wrong = with_properties(still, database__password=NO_SECRET)
    for run in (wrong.drain, lambda: wrong.snapshot(again=True)):
        with nothing_moves(still, SourceAuthError, retry=False, says="database.password", where=address(still)):
            run()


@pytest.mark.req("SETUP-02", "SETUP-06", "SETUP-07")
@pytest.mark.parametrize(
    ("missing", "grants"),
    [
        ("REPLICATION SLAVE", "SELECT, RELOAD, SHOW DATABASES, REPLICATION CLIENT"),
        ("REPLICATION CLIENT", "SELECT, RELOAD, SHOW DATABASES, REPLICATION SLAVE"),
    ],
)
def test_missing_replication_privilege(missing: str, grants: str, still: Pipeline, account: Any) -> None:
    poor = with_properties(still, **account(grants))
    for run in (poor.drain, lambda: poor.snapshot(again=True)):
        with nothing_moves(still, SourcePrivilegeError, retry=False, says=f"GRANT {missing}", where=address(still)):
            run()


def test_privilege_lost_between_plan_and_job(pipeline: Pipeline, account: Any, root: Any, unique: str) -> None:
    """The job itself names it, and its outcome record carries it to Airflow."""
    grants = "SELECT, RELOAD, SHOW DATABASES, REPLICATION SLAVE, REPLICATION CLIENT"
    poor = with_properties(pipeline, **account(grants))
    job = poor.prepare("drain")
    execute(root, f"REVOKE REPLICATION SLAVE ON *.* FROM '{unique}'@'%'")
    with nothing_moves(pipeline, SourcePrivilegeError, retry=False, says="GRANT REPLICATION SLAVE", where=""):
        run_drain(job.spec, ThreadRunner(), poor.log)
    outcome = poor.settle()
    assert not outcome.complete and type(outcome.error) is SourcePrivilegeError and not outcome.error.can_retry
    finishes(pipeline)


def test_table_that_may_not_be_read(
    properties: dict[str, str], root: Any, database: str, unique: str, account: Any
) -> None:
    """A table that the account sees but may not read is named instead of being left out."""
    made = account("RELOAD, SHOW DATABASES, REPLICATION SLAVE, REPLICATION CLIENT")
    execute(
        root,
        f"CREATE TABLE `{database}`.closed (id INT PRIMARY KEY)",
        f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY)",
        f"GRANT SELECT ON `{database}`.t TO '{unique}'@'%'",
        f"GRANT INSERT ON `{database}`.closed TO '{unique}'@'%'",
    )
    poor = with_properties(Pipeline(properties | PLAIN), **made)
    with pytest.raises(SourcePrivilegeError, match="closed") as caught:
        poor.snapshot()
    assert not caught.value.can_retry and NO_SECRET not in str(caught.value)
    assert poor.topics() == {} and poor.store.load() is None


# -- the server -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(pool: Pool) -> Iterator[PrivateServer]:
    with pool.lent() as made:
        yield made


@pytest.fixture
def private(server: PrivateServer, properties: dict[str, str], database: str) -> Pipeline:
    """Return a begun stream from the private server."""
    with server.connect() as conn:
        execute(conn, f"CREATE DATABASE `{database}`")
        return begun(Pipeline(properties | PLAIN | server.properties()), conn, database)


@pytest.mark.req("SETUP-16")
def test_statement_format(private: Pipeline, server: PrivateServer) -> None:
    with server.connect() as conn:
        execute(conn, "SET GLOBAL binlog_format = 'STATEMENT'")
        try:
            for run in (private.drain, lambda: private.snapshot(again=True)):
                with nothing_moves(
                    private, SourceSettingError, retry=False, says="binlog_format = 'ROW'", where=address(private)
                ):
                    run()
        finally:
            execute(conn, "SET GLOBAL binlog_format = 'ROW'")
    finishes(private)


def as_statement(root: Any, *statements: str) -> None:
    execute(root, "SET SESSION binlog_format = 'STATEMENT'", *statements, "SET SESSION binlog_format = 'ROW'")


@pytest.mark.req("SETUP-16")
@pytest.mark.parametrize("text", many(["/* by hand */ INSERT"], ["INSERT", "/* by hand */ INSERT"]))
def test_statement_format_of_one_session(text: str, pipeline: Pipeline, root: Any, database: str) -> None:
    """Its rows are nowhere in the binlog, so the drain stops there; the session's own database does not matter."""
    execute(root, f"CREATE DATABASE `{database}_x`", f"USE `{database}_x`")
    as_statement(root, f"{text} INTO `{database}`.t VALUES (3, 'unseen')", f"DELETE FROM `{database}`.t WHERE id = 1")
    execute(root, f"INSERT INTO `{database}`.t VALUES (4, 'later')", f"DROP DATABASE `{database}_x`")
    for _ in range(2):
        with nothing_moves(pipeline, SourceSettingError, retry=False, says=READ_AGAIN, where="unseen"):
            pipeline.drain()
    outcome = pipeline.settle()
    assert not outcome.complete and type(outcome.error) is SourceSettingError
    reset_offset(pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log, to="current")
    assert pipeline.snapshot(again=True).complete
    assert not pipeline.verify(VerifyRequest(repair=RepairMode.YES)).equal, "a deleted row is still in the topic"
    assert pipeline.verify().equal


@pytest.mark.req("SETUP-16")
def test_statement_format_in_other_tables_is_allowed(pipeline: Pipeline, root: Any, database: str) -> None:
    execute(root, f"CREATE DATABASE `{database}_x`", f"CREATE TABLE `{database}_x`.t (id INT)", f"USE `{database}`")
    as_statement(root, f"INSERT INTO `{database}_x`.t VALUES (3)")
    execute(root, f"DROP DATABASE `{database}_x`")
    finishes(pipeline)


@pytest.mark.req("SETUP-16")
def test_load_data_in_statement_format_stops_only_where_tables_are_captured(
    pipeline: Pipeline, root: Any, database: str, tmp_path: Path
) -> None:
    file = tmp_path / "rows"
    file.write_text("3\tunseen\n")
    file.chmod(0o644)  # the server refuses a file that others cannot read
    execute(root, f"CREATE DATABASE `{database}_x`", f"CREATE TABLE `{database}_x`.t LIKE `{database}`.t")
    as_statement(root, f"LOAD DATA INFILE '{file}' INTO TABLE `{database}_x`.t")
    finishes(pipeline)
    as_statement(root, f"LOAD DATA INFILE '{file}' INTO TABLE `{database}`.t")
    execute(root, f"DROP DATABASE `{database}_x`")
    with nothing_moves(pipeline, SourceSettingError, retry=False, says=READ_AGAIN, where="LOAD DATA"):
        pipeline.drain()


@pytest.mark.req("FAULT-04", "FAULT-11")
def test_purged_start_position(private: Pipeline, server: PrivateServer, database: str) -> None:
    stored = private.store.load()
    assert stored is not None and stored.committed is not None
    with server.connect() as conn:
        purge(conn)
        with nothing_moves(private, BinlogPurgedError, retry=False, says="new snapshot", where=stored.committed.file):
            private.drain()
        # The way out that the error names.
        assert private.snapshot(again=True).complete
        execute(conn, f"INSERT INTO `{database}`.t VALUES (3, 'new')")
    assert private.drain() is not None
    reads = [payload(r.value) for r in private.records("t")]
    assert [(v["op"], v["after"]["id"]) for v in reads] == [("r", 1), ("r", 1), ("r", 2), ("c", 3)]


@pytest.mark.req("FAULT-04")
@pytest.mark.parametrize("rotations", many([3], [1, 3]))
def test_a_purged_file_of_which_everything_was_read(
    private: Pipeline, server: PrivateServer, database: str, rotations: int
) -> None:
    """An idle server's files expire: with GTIDs the stream continues with the first file that is left."""
    finishes(private)
    stored = private.store.load()
    assert stored is not None and stored.committed is not None
    with server.connect() as conn:
        for _ in range(rotations):
            purge(conn)
        drained = DrainedOffset.from_state(stored)
        lag = measure_lag(drained, read_binlog_state(private.cfg, drained), Thresholds(bytes=900))
        assert not lag.reached and lag.transactions == 0, lag.reason
        execute(conn, f"INSERT INTO `{database}`.t VALUES (3, 'new')")
        with conn.cursor() as cursor:
            cursor.execute("SET gtid_next = 'AUTOMATIC:a_tag'")
        execute(conn, f"INSERT INTO `{database}`.t VALUES (4, 'new')", "SET gtid_next = 'AUTOMATIC'")
        private.properties["drain.writers"] = "2"
        private.properties["drain.small.batch.bytes"] = "0"
        for _ in range(2):
            outcome = private.drain()
            if outcome is None:
                break
            assert outcome.complete
            purge(conn)
        records = private.records("t")
        assert duplicates(records) == []
        assert [payload(r.value)["after"]["id"] for r in records] == [1, 2, 3, 4]
        # The same without a transaction in between, then a transaction that is purged unread.
        purge(conn)
        assert private.drain() is not None
        execute(conn, f"INSERT INTO `{database}`.t VALUES (5, 'lost')")
        purge(conn)
        stored = private.store.load()
        assert stored is not None and stored.committed is not None
        with nothing_moves(private, BinlogPurgedError, retry=False, says="new snapshot", where=stored.committed.file):
            private.drain()
        # A reset begins another history.
        execute(conn, "RESET BINARY LOGS AND GTIDS")
        with nothing_moves(private, BinlogPurgedError, retry=False, says="new snapshot", where=stored.committed.file):
            private.drain()


@pytest.mark.req("FAULT-11")
@pytest.mark.parametrize("reset", ["RESET BINARY LOGS AND GTIDS", "RESET BINARY LOGS AND GTIDS TO 700"])
@pytest.mark.exhaustive(but="700")
def test_a_reset_after_which_gtid_purged_is_the_stored_set_is_not_taken_for_a_purge(
    private: Pipeline, server: PrivateServer, database: str, reset: str
) -> None:
    """The server runs on, and its first file has a higher number than the stored one; the remedy is carried out."""
    finishes(private)
    stored = private.store.load()
    assert stored is not None and stored.committed is not None
    with server.connect() as conn:
        execute(conn, f"INSERT INTO `{database}`.t VALUES (3, 'unread')", f"DELETE FROM `{database}`.t WHERE id = 1")
        execute(conn, "DO SLEEP(1)", reset, f"SET GLOBAL gtid_purged = '{stored.committed.gtids}'")
        for _ in range(3):
            purge(conn)
        execute(conn, f"INSERT INTO `{database}`.t VALUES (4, 'new')")
        first = rows(conn, "SHOW BINARY LOGS")[0][0]
        assert file_number(first) > file_number(stored.committed.file)
        drained = DrainedOffset.from_state(stored)
        assert "RESET" in measure_lag(drained, read_binlog_state(private.cfg, drained), Thresholds(bytes=10**9)).reason
        with nothing_moves(private, BinlogPurgedError, retry=False, says="again=true", where=stored.committed.file):
            private.drain()
        assert private.snapshot(again=True).complete
        private.drain()
        private.verify(VerifyRequest(repair=RepairMode.YES))
        assert private.verify().equal
        latest = compacted(private.records("t")).values()
        assert {row["id"] for row in latest if row} == {i for (i,) in rows(conn, f"SELECT id FROM `{database}`.t")}


@pytest.mark.req("FAULT-04")
def test_the_files_of_a_planned_batch_are_purged_and_no_transaction_with_them(
    private: Pipeline, server: PrivateServer, database: str
) -> None:
    finishes(private)
    with server.connect() as conn:
        execute(conn, "FLUSH BINARY LOGS")
        job = private.prepare("drain")
        purge(conn)
        purge(conn)
        execute(conn, f"INSERT INTO `{database}`.t VALUES (3, 'new')")
        run_drain(job.spec, ThreadRunner(), private.log)
        outcome = private.settle()
        assert outcome.complete and BinlogOffset.from_json(outcome.offset) == job.plan.end
        finishes(private)
    assert [payload(r.value)["after"]["id"] for r in private.records("t")] == [1, 2, 3]


@pytest.mark.req("FAULT-04")
def test_position_purged_between_plan_and_job(private: Pipeline, server: PrivateServer) -> None:
    job = private.prepare("drain")
    with server.connect() as conn:
        purge(conn)
    with nothing_moves(private, BinlogPurgedError, retry=False, says="snapshot", where=job.plan.start.file):
        run_drain(job.spec, ThreadRunner(), private.log)
    outcome = private.settle()
    assert not outcome.complete and type(outcome.error) is BinlogPurgedError
    # The way out that the error names: the batch can never be finished, so a new snapshot gives it up.
    assert private.snapshot(again=True).complete
    assert any("is discarded" in line for line in private.lines)
    assert private.drain() is None
    assert [payload(r.value)["after"]["id"] for r in private.records("t")] == [1, 1, 2]


@pytest.mark.req("STRM-02")
@pytest.mark.parametrize("whose", many(["another stream"], ["another stream", "a replica"]))
def test_server_id_of_another_replica(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, whose: str) -> None:
    """Found before anything is read."""
    if whose == "a replica":
        monkeypatch.setattr(dump, "report_host", lambda name: "replica-7")
    stored = pipeline.store.load()
    assert stored is not None and stored.committed is not None
    other = open_stream(
        replace(pipeline.cfg.connection_settings(), client_name="orders"),
        stored.committed,
        server_id=pipeline.cfg.server_id(0),
        silence_timeout_s=2,
    )
    try:
        with nothing_moves(
            pipeline, ServerIdInUseError, retry=False, says="database.server.id", where=address(pipeline)
        ):
            pipeline.drain()
    finally:
        other.close()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            finishes(pipeline)
            return
        except ServerIdInUseError:  # until the server has noticed that the other one is gone
            time.sleep(0.2)
    raise AssertionError("the server keeps the replica registered")


@pytest.mark.req("STRM-02")
def test_server_id_taken_while_the_drain_reads(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # More than the sockets hold, so that the end of the dump is seen before the end of the batch.
    execute(root, *(f"INSERT INTO `{database}`.t VALUES ({i}, REPEAT('x', 200000))" for i in range(10, 160)))
    fired = tmp_path / "fired"
    monkeypatch.setattr(faults, "_passed", {})
    fault = {"point": "writer.mid_batch", "action": "sleep", "seconds": 1.5, "fired": str(fired)}
    monkeypatch.setenv("MYSQL_CDC_FAULT", json.dumps(fault))
    job = pipeline.prepare("drain")

    def rival() -> None:
        while not fired.exists():
            time.sleep(0.02)
        stream = open_stream(
            pipeline.cfg.connection_settings(), job.plan.end, server_id=job.plan.server_id, silence_timeout_s=30
        )
        time.sleep(0.5)
        stream.close()

    thread = threading.Thread(target=rival, daemon=True)
    thread.start()
    with nothing_moves(pipeline, ServerIdInUseError, retry=False, says="database.server.id", where=""):
        run_drain(job.spec, ThreadRunner(), pipeline.log)
    thread.join()
    assert type(pipeline.settle().error) is ServerIdInUseError
    finishes(pipeline)
    assert len(pipeline.records("t")) == 152


@pytest.mark.req("FAULT-03")
def test_mysql_unreachable(pipeline: Pipeline) -> None:
    from stacklib.ports import any_free

    port = str(any_free())
    away = with_properties(pipeline, database__port=port)
    with nothing_moves(
        pipeline, SourceConnectionError, retry=True, says="database.hostname", where=f"127.0.0.1:{port}"
    ):
        away.drain()
    job = pipeline.prepare("drain")
    lost = replace(job.spec, properties=away.properties)
    with nothing_moves(pipeline, SourceConnectionError, retry=True, says="database.port", where=port):
        run_drain(lost, ThreadRunner(), pipeline.log)
    finishes(pipeline)


# -- Kafka ------------------------------------------------------------------------------------------------------------


def deny(address: str, kind: ResourceType, name: str, *, lift: bool = False) -> None:
    """Forbid the account ``cdc`` to write to one topic or under one transactional id, or lift that again."""
    admin = make_admin(kafka_account(address, "admin", "root"))
    rule = (kind, name, ResourcePatternType.LITERAL, "User:cdc", "*", AclOperation.WRITE, AclPermissionType.DENY)
    made = admin.delete_acls([AclBindingFilter(*rule)]) if lift else admin.create_acls([AclBinding(*rule)])
    for future in made.values():
        future.result(20)
    wait_for_acls(admin, AclBindingFilter(*rule), frozenset() if lift else frozenset({AclOperation.WRITE}))


def secured(properties: dict[str, str], address: str, user: str, password: str) -> dict[str, str]:
    return properties | {f"kafka.{name}": value for name, value in kafka_account(address, user, password).items()}


@pytest.fixture
def guarded(properties: dict[str, str], kafka: str, unique: str) -> Pipeline:
    """Return a stream to a Kafka with ACLs, whose account may do everything under the prefix."""
    for prefix in (unique, f"ledger.{unique}", f"schemahistory.{unique}"):
        allow(kafka, ResourceType.TOPIC, prefix, AclOperation.ALL)
        allow(kafka, ResourceType.TRANSACTIONAL_ID, prefix, AclOperation.ALL)
    timeout = {"transaction.timeout.ms": str(MOST_MS)}
    return Pipeline(secured(properties | PLAIN | timeout, kafka, "cdc", "word"))


def test_snapshot_into_a_topic_not_authorised(
    guarded: Pipeline, root: Any, database: str, kafka: str, unique: str
) -> None:
    """Tasks that wait for the failed one end with its error too, and the job with that error."""
    guarded.properties["snapshot.chunk.rows"] = "10"
    execute(
        root,
        f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY)",
        f"INSERT INTO `{database}`.t VALUES " + ",".join(f"({i})" for i in range(40)),
        # Chunks, and so tasks, follow the server's estimate of rows, which it makes some time after the rows.
        f"ANALYZE TABLE `{database}`.t",
    )
    for kind, name in (
        (ResourceType.TRANSACTIONAL_ID, f"{unique}.1"),
        (ResourceType.TOPIC, guarded.table_topic("t")),
    ):
        deny(kafka, kind, name)
        job = guarded.prepare("snapshot")
        with nothing_moves_but_schemas(guarded, f"{unique}."):
            run_snapshot(job.spec, ThreadRunner(2), guarded.log)
        deny(kafka, kind, name, lift=True)
    assert guarded.snapshot().complete
    assert len(guarded.records("t")) == 40


@contextmanager
def nothing_moves_but_schemas(pipeline: Pipeline, where: str) -> Iterator[None]:
    with pytest.raises(SinkAuthorizationError) as caught:
        yield
    assert where in caught.value.where and "grant" in caught.value.remedy and not caught.value.can_retry
    outcome = pipeline.settle()
    assert type(outcome.error) is SinkAuthorizationError and outcome.offset is None
    assert pipeline.table_topic("t") not in pipeline.topics() or pipeline.records("t") == []


@pytest.mark.req("SNAP-35", "FAULT-17")
def test_a_table_that_somebody_has_locked(pipeline: Pipeline, root: Any, database: str) -> None:
    pipeline.drain()
    pipeline.properties["snapshot.lock.timeout.ms"] = "1000"
    execute(root, f"LOCK TABLES `{database}`.t WRITE")
    try:
        with nothing_moves(
            pipeline, SourceConnectionError, retry=True, says="snapshot.lock.timeout.ms", where=address(pipeline)
        ):
            pipeline.snapshot(again=True)
    finally:
        execute(root, "UNLOCK TABLES")
    assert pipeline.snapshot().complete
