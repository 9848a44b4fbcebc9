"""What preflight says of real servers: each warning once in a job's log, and each missing privilege as SQL to paste."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from kit.private_mysql import Pool, PrivateServer
from kit.sql import execute
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.errors import (
    CdcError,
    ConfigError,
    SourceAuthError,
    SourceConnectionError,
    SourcePrivilegeError,
    SourceSettingError,
)
from airflow_provider_mysql_cdc.cdc.model.finding import Finding
from airflow_provider_mysql_cdc.cdc.operate.findings import source_findings
from airflow_provider_mysql_cdc.cdc.operate.prepare_snapshot import prepare_snapshot

PASSWORD = "word-of-the-account"
NEEDED = ("REPLICATION SLAVE", "REPLICATION CLIENT", "RELOAD", "SELECT", "SHOW DATABASES")
UNWISE = {
    "gtid_mode": "OFF",
    "enforce_gtid_consistency": "OFF",
    "binlog_row_image": "MINIMAL",
    "binlog_row_metadata": "MINIMAL",
    "binlog_row_value_options": "PARTIAL_JSON",
    "binlog_expire_logs_seconds": "3600",
    "wait_timeout": "600",
    "max_allowed_packet": "4194304",
    "time_zone": "+02:00",
}
SAID = (
    "GTIDs are off",
    "binlog_row_image is MINIMAL",
    "binlog_row_metadata is MINIMAL",
    "contains PARTIAL_JSON while binlog_row_image is not FULL",
    "keeps its binlog for 3600 s only",
    "wait_timeout is 600 s",
    "max_allowed_packet is 4194304 bytes",
    "the server's time zone is +02:00",
)
DRAIN_SAYS = tuple(text for text in SAID if not text.startswith(("wait_timeout", "max_allowed_packet")))


@pytest.fixture(scope="module")
def unwise(pool: Pool) -> Iterator[PrivateServer]:
    """Return a server whose settings allow capture and are unwise."""
    with pool.lent(**UNWISE) as server:
        yield server


@pytest.mark.req("SETUP-17", "SETUP-18", "SETUP-20", "SETUP-24")
def test_each_job_logs_each_warning_once(unwise: PrivateServer, properties: dict[str, str], database: str) -> None:
    pipeline = Pipeline(properties | unwise.properties())
    with unwise.connect() as conn:
        execute(conn, f"CREATE DATABASE `{database}`", f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, d DATETIME)")
        for job, texts in ((pipeline.snapshot, SAID), (pipeline.drain, DRAIN_SAYS)):
            execute(conn, f"INSERT INTO `{database}`.t SELECT COUNT(*), NOW() FROM `{database}`.t")
            pipeline.lines.clear()
            assert job() is not None
            for text in texts:
                assert sum(text in line and line.startswith("WARNING: ") for line in pipeline.lines) == 1, text
        pipeline.lines.clear()
        assert pipeline.drain() is None and not any("WARNING" in line for line in pipeline.lines), "no job, no log"


def test_a_position_that_will_be_purged_soon_is_a_warning(
    unwise: PrivateServer, properties: dict[str, str], database: str
) -> None:
    pipeline = Pipeline(properties | unwise.properties())
    with unwise.connect() as conn:
        execute(conn, f"CREATE DATABASE `{database}`", f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY)")
        execute(conn, "SET GLOBAL binlog_expire_logs_seconds = 100000")
        pipeline.snapshot()
        state = pipeline.store.load()
        assert state is not None
        last = state.history[-1]
        found = []
        for hours in (10, 20):
            at_ms = last.at_ms - hours * 3_600_000
            older = replace(state, history=(*state.history[:-1], replace(last, at_ms=at_ms)))
            with connect(pipeline.cfg.connection_settings()) as ours:
                found.append(texts(source_findings(ours, pipeline.cfg, snapshot=False, state=older)))
        execute(conn, "SET GLOBAL binlog_expire_logs_seconds = 3600")
    assert "last batch" not in found[0]
    assert re.search(
        r"the last batch was committed 720\d\d s ago, and the server keeps its binlog for 100000 s", found[1]
    )


def texts(findings: list[Finding]) -> str:
    """Return what was found, as one text."""
    return "\n".join(map(str, findings))


@pytest.fixture
def account(root: Any, unique: str, database: str, properties: dict[str, str]) -> Iterator[dict[str, str]]:
    """Return the properties of an account with the documented privileges, on a table ``t`` and a signal table."""
    execute(
        root,
        f"CREATE USER `{unique}`@`%` IDENTIFIED BY '{PASSWORD}'",
        f"GRANT {', '.join(NEEDED)} ON *.* TO `{unique}`@`%`",
        f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY)",
        f"INSERT INTO `{database}`.t VALUES (1), (2)",
    )
    yield properties | {"database.user": unique, "database.password": PASSWORD}
    execute(root, f"DROP USER `{unique}`@`%`")


def statements(text: str) -> list[str]:
    """Return the SQL statements of a text, as one who pastes them sees them."""
    return re.findall(r"(?:GRANT|SET DEFAULT ROLE|DROP USER) [^;]+;", text)


@pytest.mark.req("SETUP-10")
@pytest.mark.parametrize("privilege", NEEDED)
@pytest.mark.exhaustive(but="RELOAD")
def test_the_statement_of_an_error_makes_the_job_run(
    root: Any, account: dict[str, str], unique: str, privilege: str
) -> None:
    """Each privilege alone is taken from the account; SHOW DATABASES is only advised."""
    pipeline = Pipeline(account)
    execute(root, f"REVOKE {privilege} ON *.* FROM `{unique}`@`%`")
    with connect(pipeline.cfg.connection_settings()) as conn:
        found = [f for f in source_findings(conn, pipeline.cfg, snapshot=True) if privilege in f.what]
    assert len(found) == 1 and (found[0].error is None) == (privilege == "SHOW DATABASES")
    said = found[0].fix
    if found[0].error is not None:
        with pytest.raises(SourcePrivilegeError) as caught:
            pipeline.snapshot()
        assert not caught.value.can_retry and caught.value.remedy == said
    pasted = statements(said)
    assert pasted == [f"GRANT {privilege} ON *.* TO '{unique}'@'%';"]
    execute(root, *pasted)
    assert pipeline.snapshot().complete and len(pipeline.records("t")) == 2
    assert not any("lacks" in line for line in pipeline.lines)


@pytest.mark.parametrize("privilege", ["REPLICATION SLAVE", "REPLICATION CLIENT"])
@pytest.mark.exhaustive(but="SLAVE")
def test_a_drain_asks_for_what_it_needs(root: Any, account: dict[str, str], unique: str, privilege: str) -> None:
    pipeline = Pipeline(account)
    pipeline.snapshot()
    execute(root, f"INSERT INTO `{account['database.include.list']}`.t VALUES (3)")
    execute(root, f"REVOKE {privilege} ON *.* FROM `{unique}`@`%`")
    with pytest.raises(SourcePrivilegeError) as caught:
        pipeline.drain()
    execute(root, *statements(caught.value.remedy))
    assert pipeline.drain() is not None and len(pipeline.records("t")) == 3


def test_select_on_one_table_only(root: Any, account: dict[str, str], unique: str, database: str) -> None:
    """Of a table that the account sees and one that it does not see; preparing finds it, without Spark."""
    execute(root, f"REVOKE SELECT ON *.* FROM `{unique}`@`%`", f"CREATE TABLE `{database}`.`u-2` (id INT PRIMARY KEY)")
    execute(
        root, f"GRANT SELECT ON `{database}`.t TO `{unique}`@`%`", f"GRANT INSERT ON `{database}`.`u-2` TO {unique}"
    )
    pipeline = Pipeline(account)
    with pytest.raises(SourcePrivilegeError, match="may not read 1 captured") as caught:
        prepare_snapshot(pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log)
    assert f"{database}.u-2" in caught.value.where
    execute(root, f"REVOKE INSERT ON `{database}`.`u-2` FROM `{unique}`@`%`")
    pipeline.properties["table.include.list"] = f"{database}.t,{database}.u-2"
    with pytest.raises(SourcePrivilegeError, match=r"1 table\(s\) that table.include.list names") as caught:
        prepare_snapshot(pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log)
    pasted = statements(caught.value.remedy)
    assert pasted == [f"GRANT SELECT ON `{database}`.`u-2` TO '{unique}'@'%';"]
    execute(root, *pasted)
    assert pipeline.snapshot().complete and len(pipeline.records("t")) == 2


@pytest.mark.parametrize("privilege", ["INSERT", "DELETE"])
@pytest.mark.exhaustive(but="DELETE")
def test_the_privileges_on_the_signal_table(
    root: Any, account: dict[str, str], unique: str, database: str, privilege: str
) -> None:
    signals = f"`{database}`.`signals`"
    execute(
        root,
        f"CREATE TABLE {signals} (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data TEXT)",
        f"GRANT INSERT, DELETE, SELECT ON {signals} TO `{unique}`@`%`",
        f"REVOKE {privilege} ON {signals} FROM `{unique}`@`%`",
    )
    account |= {
        "signal.data.collection": f"{database}.signals",
        "incremental.snapshot.watermarking.strategy": "insert_delete",
    }
    pipeline = Pipeline(account)
    assert pipeline.snapshot().complete
    said = next(line for line in pipeline.lines if "ad-hoc snapshots are refused" in line)
    execute(root, *statements(said))
    pipeline.lines.clear()
    execute(root, f"INSERT INTO `{database}`.t VALUES (3)")
    assert pipeline.drain() is not None
    assert not any("ad-hoc snapshots are refused" in line for line in pipeline.lines)


def test_a_table_that_somebody_has_locked_is_not_waited_for(
    root: Any, account: dict[str, str], unique: str, database: str
) -> None:
    """Its SELECT would wait for a year, and everybody's global read lock for that SELECT."""
    execute(root, f"CREATE TABLE `{database}`.a (id INT PRIMARY KEY)", f"REVOKE SELECT ON *.* FROM `{unique}`@`%`")
    for names, table in (("SELECT", "t"), ("INSERT", "a")):
        execute(root, f"GRANT {names} ON `{database}`.{table} TO `{unique}`@`%`")
    execute(root, f"LOCK TABLES `{database}`.t WRITE, `{database}`.a WRITE")
    try:
        cfg, started = Pipeline(account).cfg, time.monotonic()
        with connect(cfg.connection_settings()) as conn:
            found = texts(source_findings(conn, cfg, snapshot=True))
            with conn.cursor() as cursor:
                cursor.execute("SELECT @@SESSION.lock_wait_timeout = @@GLOBAL.lock_wait_timeout")
                assert cursor.fetchone() == (1,)
    finally:
        execute(root, "UNLOCK TABLES")
    assert "may not read 1 captured table" in found and time.monotonic() - started < 60


def test_lists_that_match_nothing(account: dict[str, str], database: str) -> None:
    """The whole list is an error before Spark starts; an entry of it is a warning."""
    pipeline = Pipeline(account | {"table.include.list": rf"{database}\.orders_.*"})
    with pytest.raises(ConfigError, match="no table is captured"):
        prepare_snapshot(pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log)
    databases = f"{database},nowhere_at_all"
    lists = {"table.include.list": rf"{database}\.t,{database}\.orders_.*", "database.include.list": databases}
    overrides = "snapshot.select.statement.overrides"
    lists |= {overrides: f"{database}.T", f"{overrides}.{database}.T": "SELECT 1"}
    pipeline = Pipeline(account | lists)
    prepare_snapshot(pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log)
    assert any(f"{overrides} names what is no table: {database}.T" in line for line in pipeline.lines), pipeline.lines
    warned = [line for line in pipeline.lines if "match no" in line]
    assert len(warned) == 2
    assert rf"{database}\.orders_.*" in warned[0] and "match no table" in warned[0]
    assert "nowhere_at_all" in warned[1] and "match no database" in warned[1]


def remedies(account: dict[str, str]) -> list[str]:
    """Return the statements of all findings about privileges before a snapshot."""
    cfg = Pipeline(account).cfg
    with connect(cfg.connection_settings()) as conn:
        found = source_findings(conn, cfg, snapshot=True)
    return list(dict.fromkeys(text for finding in found for text in statements(finding.fix)))


def test_a_role_that_is_not_active(root: Any, account: dict[str, str], unique: str) -> None:
    role, user = f"`{unique}_role`@`%`", f"`{unique}`@`%`"
    everything = f"{', '.join(NEEDED)} ON *.*"
    execute(root, f"CREATE ROLE {role}", f"GRANT {everything} TO {role}", f"REVOKE {everything} FROM {user}")
    execute(root, f"GRANT {role} TO {user}")
    try:
        with pytest.raises(SourcePrivilegeError, match="not active"):
            Pipeline(account).snapshot()
        pasted = remedies(account)
        assert pasted[0] == f"SET DEFAULT ROLE ALL TO '{unique}'@'%';"
        execute(root, pasted[0])
        assert remedies(account) == []
        pipeline = Pipeline(account)
        assert pipeline.snapshot().complete and len(pipeline.records("t")) == 2
    finally:
        execute(root, f"DROP ROLE {role}")


def test_privileges_on_single_columns(root: Any, account: dict[str, str], unique: str, database: str) -> None:
    """Such a table can be read, and SHOW CREATE TABLE is refused."""
    execute(root, f"REVOKE SELECT ON *.* FROM `{unique}`@`%`", f"GRANT SELECT (id) ON `{database}`.t TO `{unique}`@`%`")
    pipeline = Pipeline(account)
    with pytest.raises(SourcePrivilegeError, match="may not read 1 captured") as caught:
        prepare_snapshot(pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log)
    execute(root, *statements(caught.value.remedy))
    assert pipeline.snapshot().complete and len(pipeline.records("t")) == 2


@pytest.fixture
def user(unwise: PrivateServer, properties: dict[str, str], database: str) -> Iterator[tuple[Any, dict[str, str]]]:
    """Return a root connection to a server of our own, and the properties of an account with the privileges."""
    with unwise.connect() as conn:
        execute(
            conn,
            "CREATE USER u@'%' IDENTIFIED BY 'pw'",
            f"GRANT {', '.join(NEEDED)} ON *.* TO u@'%'",
            f"CREATE DATABASE `{database}`",
            f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY)",
            f"INSERT INTO `{database}`.t VALUES (1), (2)",
        )
        yield conn, properties | unwise.properties() | {"database.user": "u", "database.password": "pw"}
        execute(conn, "DROP USER u@'%'")


def test_a_partial_revoke(user: tuple[Any, dict[str, str]], database: str) -> None:
    conn, account = user
    execute(conn, f"CREATE DATABASE `{database}_2`", f"CREATE TABLE `{database}_2`.t (id INT PRIMARY KEY)")
    account["database.include.list"] = f"{database},{database}_2"
    execute(conn, "SET GLOBAL partial_revokes = ON", f"REVOKE SELECT ON `{database}_2`.* FROM u@'%'")
    try:
        assert remedies(account) == [f"GRANT SELECT ON `{database}_2`.* TO 'u'@'%';"]
        pipeline = Pipeline(account)
        assert pipeline.snapshot().complete
        said = [line for line in pipeline.lines if f"{database}_2" in line and line.startswith("WARNING: ")]
        assert ["SELECT is revoked" in line or "match no database" in line for line in said] == [True, True]
        execute(conn, *remedies(account))
        assert remedies(account) == []
    finally:
        execute(conn, "GRANT SELECT ON *.* TO u@'%'", "SET GLOBAL partial_revokes = OFF")


def test_an_anonymous_account_in_the_way(user: tuple[Any, dict[str, str]]) -> None:
    conn, account = user
    execute(conn, "CREATE USER ''@'127.0.0.1' IDENTIFIED BY 'pw'")
    with pytest.raises(SourceAuthError, match="for the anonymous account"):
        Pipeline(account).snapshot()
    pasted = remedies(account)
    assert pasted == ["DROP USER ''@'127.0.0.1';"]
    execute(conn, *pasted)
    assert Pipeline(account).snapshot().complete


@pytest.mark.parametrize(
    ("broken", "mended", "error", "text", "can_retry"),
    [
        ("SET GLOBAL offline_mode = ON", "SET GLOBAL offline_mode = OFF", SourceConnectionError, "offline", True),
        (
            "SET GLOBAL init_connect = 'SELECT 1 FROM nowhere.nothing'",
            "SET GLOBAL init_connect = ''",
            SourceSettingError,
            "init_connect fails",
            False,
        ),
        (
            "SET GLOBAL require_secure_transport = ON",
            "SET GLOBAL require_secure_transport = OFF",
            SourceAuthError,
            "takes encrypted connections only",
            False,
        ),
        (
            "ALTER USER u@'%' PASSWORD EXPIRE",
            "ALTER USER u@'%' IDENTIFIED BY 'pw'",
            SourceAuthError,
            "has expired",
            False,
        ),
        ("ALTER USER u@'%' ACCOUNT LOCK", "ALTER USER u@'%' ACCOUNT UNLOCK", SourceAuthError, "is locked", False),
        (
            "ALTER USER u@'%' WITH MAX_QUERIES_PER_HOUR 1",
            "ALTER USER u@'%' WITH MAX_QUERIES_PER_HOUR 0",
            SourceConnectionError,
            "a limit of the MySQL account",
            True,
        ),
        ("ALTER USER u@'%' REQUIRE X509", "ALTER USER u@'%' REQUIRE NONE", SourceAuthError, "refuses", False),
    ],
)
def test_a_server_that_takes_no_connection(
    user: tuple[Any, dict[str, str]], broken: str, mended: str, error: type[CdcError], text: str, can_retry: bool
) -> None:
    conn, account = user
    settings = Pipeline(account | {"database.ssl.mode": "disabled"}).cfg.connection_settings()
    execute(conn, broken)
    try:
        with pytest.raises(CdcError) as caught, connect(settings):
            pass
    finally:
        execute(conn, mended)
    assert type(caught.value) is error and text in caught.value.what and caught.value.can_retry is can_retry
    with connect(settings):
        pass
