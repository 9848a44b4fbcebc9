"""Connections, positions and preflight on a real server."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from airflow_provider_mysql_cdc.cdc.binlog import position
from airflow_provider_mysql_cdc.cdc.binlog.connect import connect, fetch_all
from airflow_provider_mysql_cdc.cdc.binlog.position import binary_logs, check_available, current_offset
from airflow_provider_mysql_cdc.cdc.binlog.preflight import preflight
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import (
    BinlogPurgedError,
    SourceAuthError,
    SourceConnectionError,
    SourceError,
    SourcePrivilegeError,
)
from airflow_provider_mysql_cdc.cdc.model.connection import ConnectionSettings
from airflow_provider_mysql_cdc.cdc.model.finding import raise_first_error
from airflow_provider_mysql_cdc.cdc.model.gtid import GtidSet
from airflow_provider_mysql_cdc.cdc.model.secret import Secret


@pytest.fixture
def settings(stack: Any) -> ConnectionSettings:
    return ConnectionSettings(stack.mysql_host, stack.mysql_port, stack.cdc_user, Secret(stack.cdc_password))


@pytest.fixture
def account(root: Any, unique: str, settings: ConnectionSettings) -> Iterator[ConnectionSettings]:
    """Return an account without any privilege."""
    fetch_all(root, f"CREATE USER `{unique}`@'%' IDENTIFIED BY 'pw'")
    yield replace(settings, user=unique, password=Secret("pw"))
    fetch_all(root, f"DROP USER `{unique}`@'%'")


def grant(root: Any, account: ConnectionSettings, names: str, scope: str = "*.*") -> None:
    with root.cursor() as cursor:
        cursor.execute(f"GRANT {names} ON {scope} TO `{account.user}`@'%'")


@pytest.mark.req("FAULT-03")
def test_a_wrong_password_is_named_and_not_retried(settings: ConnectionSettings) -> None:
    with pytest.raises(SourceAuthError) as caught:
        connect(replace(settings, password=Secret("wrong-password")))
    assert "1045" in caught.value.why and "wrong-password" not in str(caught.value)


@pytest.mark.req("FAULT-03")
def test_an_unreachable_server_is_named_and_retried(settings: ConnectionSettings) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(SourceConnectionError) as caught:
        connect(replace(settings, port=port, connect_timeout_s=2))
    assert caught.value.can_retry and str(port) in caught.value.where


@pytest.mark.req("STRM-34")
def test_a_server_that_never_answers_is_given_up_in_time(settings: ConnectionSettings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute, pytest.raises(SourceConnectionError) as caught:
        connect(replace(settings, port=mute.getsockname()[1], connect_timeout_s=1))
    assert caught.value.can_retry


def test_a_statement_that_takes_too_long_is_given_up(settings: ConnectionSettings) -> None:
    with connect(replace(settings, query_timeout_s=1)) as conn, pytest.raises(SourceConnectionError):
        fetch_all(conn, "SELECT SLEEP(5)")


def test_a_statement_with_an_error_says_what_the_server_says(root: Any) -> None:
    with pytest.raises(SourceError, match="1146"):
        fetch_all(root, "SELECT * FROM mysql.no_such_table")


def test_the_position_is_the_end_of_the_last_file(root: Any, database: str) -> None:
    before = current_offset(root)
    fetch_all(root, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY)")
    after = current_offset(root)
    assert after.key() > before.key() and after.server_uuid == fetch_all(root, "SELECT @@server_uuid")[0][0]
    assert GtidSet.parse(after.gtids).contains(before.gtids or "") and after.gtids != before.gtids
    files = dict(binary_logs(root))
    assert after.file in files and files[after.file] >= after.pos


@pytest.mark.req("SETUP-07")
def test_the_position_needs_replication_client(root: Any, account: ConnectionSettings) -> None:
    with connect(account) as conn:
        with pytest.raises(SourcePrivilegeError, match="REPLICATION CLIENT"):
            current_offset(conn)
        with pytest.raises(SourcePrivilegeError):
            binary_logs(conn)


@pytest.mark.req("FAULT-11")
def test_availability(root: Any, settings: ConnectionSettings) -> None:
    here = current_offset(root)
    check_available(root, settings, here)
    check_available(root, settings, here.with_position(binary_logs(root)[0][0], 4))
    check_available(root, settings, replace(here, server_uuid=None))
    for gone, why in (
        (here.with_position("binlog.000000", 4), "the server holds"),
        (here.with_position(here.file, 1 << 40), "bytes"),
        (here.with_position(here.file, 0), "bytes"),
        (replace(here, server_uuid="another"), "another"),
    ):
        with pytest.raises(BinlogPurgedError) as caught:
            check_available(root, settings, gone)
        assert why in caught.value.why


def test_a_set_with_transactions_that_never_were_is_refused(
    root: Any, settings: ConnectionSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After RESET BINARY LOGS AND GTIDS files of the same names grow again; the GTID set tells."""
    monkeypatch.setattr(position, "_EXECUTED_WAIT_S", 0.2)
    here = current_offset(root)
    ahead = replace(here, gtids=str(GtidSet.parse(here.gtids).add(f"{here.server_uuid}:9999999999")))
    with pytest.raises(BinlogPurgedError, match="lacks transactions"):
        check_available(root, settings, ahead)


def test_the_stack_account_passes_preflight(properties: dict[str, str]) -> None:
    cfg = ConnectorConfig.from_properties(properties)
    with connect(cfg.connection_settings()) as conn:
        findings = preflight(conn, cfg, snapshot=True)
    assert [f for f in findings if f.error] == []
    raise_first_error(findings)


@pytest.mark.req("SETUP-10")
def test_preflight_names_missing_privileges_one_by_one(
    root: Any, account: ConnectionSettings, properties: dict[str, str]
) -> None:
    properties |= {"database.user": account.user, "database.password": "pw"}
    cfg = ConnectorConfig.from_properties(properties)
    expected = ["REPLICATION SLAVE", "REPLICATION CLIENT", "SELECT", "RELOAD or LOCK TABLES"]
    while True:
        with connect(account) as conn:
            findings = [f for f in preflight(conn, cfg, snapshot=True) if f.error]
        assert [f.what for f in findings] == [f"the account lacks {name}" for name in expected]
        if not expected:
            break
        grant(root, account, expected.pop(0).split(" or ")[0])


def test_preflight_counts_the_privileges_of_roles(
    root: Any, account: ConnectionSettings, properties: dict[str, str]
) -> None:
    properties |= {"database.user": account.user, "database.password": "pw"}
    cfg = ConnectorConfig.from_properties(properties)
    role = f"{account.user}_r"
    with root.cursor() as cursor:
        cursor.execute(f"CREATE ROLE `{role}`")
        try:
            cursor.execute(
                f"GRANT SELECT, RELOAD, SHOW DATABASES, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO `{role}`"
            )
            cursor.execute(f"GRANT `{role}` TO `{account.user}`@'%'")
            cursor.execute(f"SET DEFAULT ROLE ALL TO `{account.user}`@'%'")
            with connect(account) as conn:
                assert [f for f in preflight(conn, cfg, snapshot=True) if f.error] == []
        finally:
            cursor.execute(f"DROP ROLE `{role}`")
