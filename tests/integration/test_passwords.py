"""Passwords outside ASCII, by plugin, with and without TLS, for statements and for the binlog."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kit.private_mysql import Pool, PrivateServer
from kit.sql import execute

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect, fetch_all
from airflow_provider_mysql_cdc.cdc.binlog.position import current_offset
from airflow_provider_mysql_cdc.cdc.binlog.stream import open_stream
from airflow_provider_mysql_cdc.cdc.errors import SourceAuthError
from airflow_provider_mysql_cdc.cdc.model.connection import ConnectionSettings, Secret

PASSWORDS = ["gräßlich", "łódź-пароль-密码-🔑"]
Account = Callable[[str, str], ConnectionSettings]


@pytest.fixture(scope="module")
def server(pool: Pool) -> Iterator[PrivateServer]:
    """Return a server that still has mysql_native_password; 9.0 removed it."""
    with pool.lent("8.0.15") as made:
        yield made


def account(conn: Any, host: str, port: int, unique: str) -> Account:
    def make(plugin: str, password: str) -> ConnectionSettings:
        execute(
            conn,
            f"CREATE USER `{unique}` IDENTIFIED WITH {plugin} BY '{password}'",
            f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO `{unique}`",
        )
        return ConnectionSettings(host, port, unique, Secret(password))

    return make


@pytest.fixture
def new(stack: Any, root: Any, unique: str) -> Iterator[Account]:
    yield account(root, stack.mysql_host, stack.mysql_port, unique)
    execute(root, f"DROP USER IF EXISTS `{unique}`")


@pytest.fixture
def old(server: PrivateServer, unique: str) -> Iterator[Account]:
    with server.connect() as conn:
        yield account(conn, "127.0.0.1", server.port, unique)


def works(given: ConnectionSettings, mode: str) -> None:
    """Log in twice (the second time out of the server's cache of passwords), and once for the binlog."""
    chosen = ConnectionSettings(given.host, given.port, given.user, given.password, ssl_mode=mode)
    for _ in range(2):
        with connect(chosen) as conn:
            assert fetch_all(conn, "SELECT 1") == [(1,)]
            start = current_offset(conn)
    with open_stream(chosen, start, server_id=5207, silence_timeout_s=10) as stream:
        assert list(stream.events(start)) == []


@pytest.mark.parametrize("mode", ["disabled", "required"])
@pytest.mark.parametrize("password", PASSWORDS)
@pytest.mark.exhaustive(but="disabled")
def test_a_password_outside_ascii(password: str, mode: str, new: Account) -> None:
    works(new("caching_sha2_password", password), mode)


@pytest.mark.parametrize("mode", ["disabled", "required"])
@pytest.mark.parametrize("plugin", ["mysql_native_password", "caching_sha2_password", "sha256_password"])
@pytest.mark.exhaustive(but="native_password-disabled|sha256_password-disabled")
def test_a_password_outside_ascii_on_an_old_server(plugin: str, mode: str, old: Account) -> None:
    works(old(plugin, PASSWORDS[1]), mode)


@pytest.mark.parametrize("mode", ["disabled", "required"])
def test_a_wrong_password_is_refused_by_name(mode: str, new: Account) -> None:
    given = new("caching_sha2_password", PASSWORDS[1])
    wrong = ConnectionSettings(given.host, given.port, given.user, Secret("łódź"), ssl_mode=mode)
    with pytest.raises(SourceAuthError):
        connect(wrong)
