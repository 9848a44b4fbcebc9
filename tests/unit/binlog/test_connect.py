"""What is asked of the MySQL driver: TLS by mode, time limits, and the commands that start a dump.

Which session variables are set, and what is said when one cannot be.
"""

from __future__ import annotations

import socket
import ssl
import struct
from types import SimpleNamespace
from typing import Any

import pymysql
import pytest
from kit.binlog_bytes import UUID_TEXT
from pymysqlreplication.gtid import GtidSet as OtherGtidSet

from airflow_provider_mysql_cdc.cdc.binlog import connect as module
from airflow_provider_mysql_cdc.cdc.binlog.connect import FIRST_STATEMENT, SESSION_VARIABLES, connect, prepare_session
from airflow_provider_mysql_cdc.cdc.binlog.dump import gtid_dump_command, position_dump_command
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, SourceConnectionError, SourceSettingError, StateError
from airflow_provider_mysql_cdc.cdc.model.connection import ConnectionSettings, Secret
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset


class Driver:
    """Stand in for the driver; fail the first calls."""

    def __init__(self, *failures: Exception) -> None:
        self.failures, self.calls = list(failures), list[dict[str, Any]]()

    def __call__(self, **kwargs: Any) -> SimpleNamespace:
        self.calls.append(kwargs)
        if self.failures:
            raise self.failures.pop(0)
        return SimpleNamespace(_sock=socket.socket())


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    fake = Driver()
    monkeypatch.setattr(module, "SecureConnection", fake)
    monkeypatch.setattr(module, "prepare_session", lambda conn, where: "")
    return fake


def settings(**kwargs: Any) -> ConnectionSettings:
    return ConnectionSettings("db", 3307, "cdc", Secret("pw"), **kwargs)


@pytest.mark.req("STRM-36")
@pytest.mark.parametrize(
    ("mode", "verify", "host"),
    [
        ("preferred", ssl.CERT_NONE, False),
        ("required", ssl.CERT_NONE, False),
        ("verify_ca", ssl.CERT_REQUIRED, False),
        ("verify_identity", ssl.CERT_REQUIRED, True),
    ],
)
def test_tls_by_mode(driver: Driver, mode: str, verify: ssl.VerifyMode, host: bool) -> None:
    connect(settings(ssl_mode=mode))
    context = driver.calls[0]["ssl"]
    assert (context.verify_mode, context.check_hostname) == (verify, host)


@pytest.mark.req("STRM-36")
def test_disabled_means_no_tls(driver: Driver) -> None:
    connect(settings(ssl_mode="disabled"))
    assert driver.calls[0]["ssl_disabled"] is True and "ssl" not in driver.calls[0]


NO_TLS = pymysql.OperationalError(2026, "SSL connection error: SSL is required but the server doesn't support it")


@pytest.mark.req("STRM-36")
def test_preferred_falls_back_to_plain(driver: Driver) -> None:
    driver.failures = [NO_TLS]
    connect(settings(ssl_mode="preferred"))
    assert [call.get("ssl_disabled") for call in driver.calls] == [None, True]


@pytest.mark.req("FAULT-21")
@pytest.mark.parametrize("mode", ["required", "verify_ca", "verify_identity"])
def test_the_stricter_modes_never_fall_back(driver: Driver, mode: str) -> None:
    driver.failures = [NO_TLS]
    with pytest.raises(SourceConnectionError, match="encrypted") as caught:
        connect(settings(ssl_mode=mode))
    assert len(driver.calls) == 1 and not caught.value.can_retry


def test_a_missing_certificate_is_a_configuration_error(driver: Driver) -> None:
    with pytest.raises(ConfigError, match="certificate"):
        connect(settings(ssl_mode="verify_ca", ssl_ca="/nowhere/ca.pem"))
    assert driver.calls == []


def test_time_limits_and_options(driver: Driver) -> None:
    options = (("max_allowed_packet", 1 << 24),)
    conn = connect(settings(connect_timeout_s=3, silence_timeout_s=9, driver_options=options))
    assert (conn._read_timeout, conn._write_timeout) == (9, 9)
    assert conn._sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    first = driver.calls[0]
    assert (first["connect_timeout"], first["read_timeout"], first["max_allowed_packet"]) == (3, 3, 1 << 24)
    assert (first["host"], first["port"], first["user"], first["password"]) == ("db", 3307, "cdc", b"pw")


def test_silence_limits_connecting_too(driver: Driver) -> None:
    connect(settings(connect_timeout_s=30, silence_timeout_s=2))
    assert (driver.calls[0]["connect_timeout"], driver.calls[0]["read_timeout"]) == (2, 2)


def test_an_option_the_driver_does_not_know_is_a_configuration_error(driver: Driver) -> None:
    driver.failures = [TypeError("unexpected keyword argument 'foobar'")]
    with pytest.raises(ConfigError, match="foobar"):
        connect(settings(driver_options=(("foobar", 1),)))


def test_a_missing_package_is_a_configuration_error(driver: Driver) -> None:
    driver.failures = [RuntimeError("'cryptography' package is required")]
    with pytest.raises(ConfigError, match="cryptography"):
        connect(settings())


def test_the_password_is_in_no_message(driver: Driver) -> None:
    driver.failures = [pymysql.OperationalError(1045, "Access denied")]
    with pytest.raises(Exception, match="refuses the account") as caught:
        connect(settings())
    assert "pw" not in str(caught.value) and "pw" not in repr(settings())


def test_dump_by_position() -> None:
    command = position_dump_command(BinlogOffset("binlog.000007", 1234), 99)
    assert command == b"\x12" + struct.pack("<IHI", 1234, 0, 99) + b"binlog.000007"


def test_dump_of_a_position_beyond_32_bits_begins_at_the_start_of_the_file() -> None:
    assert position_dump_command(BinlogOffset("b.1", 1 << 32), 9)[1:5] == struct.pack("<I", 4)


def test_dump_by_gtid_names_no_file() -> None:
    text = f"{UUID_TEXT}:1-5:9"
    encoded = OtherGtidSet(text).encoded()
    expected = b"\x1e" + struct.pack("<HIIQI", 4, 99, 0, 4, len(encoded)) + encoded
    assert gtid_dump_command(text, 99) == expected


@pytest.mark.parametrize("gtids", [None, "nonsense"])
def test_dump_by_gtid_needs_a_set(gtids: str | None) -> None:
    with pytest.raises(StateError, match="by GTID"):
        gtid_dump_command(gtids, 99)


class Server:
    """Answer SHOW SESSION VARIABLES, and remember what is set.

    Args:
        values: Its variables.
        refused: Errors by variable.
    """

    def __init__(self, values: dict[str, str], refused: dict[str, Exception] | None = None) -> None:
        self.values, self.refused, self.statements = values, refused or {}, list[str]()

    def cursor(self) -> Any:
        return self

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def execute(self, sql: str) -> None:
        self.statements.append(sql)
        for name, error in self.refused.items():
            if f"SESSION {name} " in sql and sql != FIRST_STATEMENT:
                raise error

    def fetchall(self) -> list[tuple[str, str]]:
        return list(self.values.items())


def test_the_limit_of_rows_goes_before_anything_is_read() -> None:
    server = Server(dict(SESSION_VARIABLES))
    prepare_session(server, "db:3306")
    assert server.statements[0] == FIRST_STATEMENT
    assert server.statements[2:] == ["SET SESSION sql_big_selects = 'ON'"], "max_join_size resets it"


def test_only_variables_of_the_server_that_differ_are_set() -> None:
    server = Server({"time_zone": "SYSTEM", "max_execution_time": "9", "sql_auto_is_null": "OFF"})
    prepare_session(server, "db:3306")
    assert server.statements[2:] == ["SET SESSION max_execution_time = 0, SESSION time_zone = '+00:00'"]


def test_a_variable_that_the_account_may_not_set_is_named() -> None:
    denied = pymysql.OperationalError(1227, "Access denied; you need (at least one of) the SESSION_VARIABLES_ADMIN")
    with pytest.raises(SourceSettingError, match="sql_log_bin cannot be set to ON") as caught:
        prepare_session(Server({"time_zone": "SYSTEM", "sql_log_bin": "OFF"}, {"sql_log_bin": denied}), "db:3306")
    assert caught.value.where == "db:3306" and "init_connect" in caught.value.remedy


def test_a_connection_that_breaks_is_one_to_retry() -> None:
    gone = pymysql.OperationalError(2013, "Lost connection to MySQL server during query")
    with pytest.raises(SourceConnectionError):
        prepare_session(Server({"time_zone": "SYSTEM"}, {"time_zone": gone}), "db:3306")
