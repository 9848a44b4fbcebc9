"""The offset database is opened as its Airflow connection says: by the hook of its type, with its TLS."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from airflow.sdk import Connection
from kit.store_contract import END, plan

from airflow_provider_mysql_cdc.cdc.commit.offset_store import StoredState
from airflow_provider_mysql_cdc.cdc.commit.sql_store import SqlOffsetStore
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, StateError
from airflow_provider_mysql_cdc.hooks.mysql_cdc import MySqlCdcHook
from airflow_provider_mysql_cdc.state.offset_database import open_engine

Define = Callable[..., Any]


@pytest.fixture
def define(monkeypatch: pytest.MonkeyPatch) -> Define:
    def define(conn_type: str, **fields: Any) -> Any:
        monkeypatch.setenv("AIRFLOW_CONN_OFFSETS", json.dumps({"conn_type": conn_type, **fields}))
        return MySqlCdcHook.get_connection("offsets")

    return define


class Database:
    """A hook of a database, as Airflow's providers have them: ``get_conn`` is what knows the extra."""

    def __init__(self, open_one: Callable[[], Any]) -> None:
        self.opened = 0
        self._open = open_one

    def get_conn(self) -> Any:
        self.opened += 1
        return self._open()

    def get_sqlalchemy_engine(self) -> Any:
        raise AssertionError("its address carries no TLS")


def hook_is(monkeypatch: pytest.MonkeyPatch, hook: Any) -> None:
    monkeypatch.setattr(Connection, "get_hook", lambda self, **more: hook)


def test_every_connection_of_the_pool_is_opened_by_the_hook(
    define: Define, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hook = Database(lambda: sqlite3.connect(tmp_path / "offsets.db", check_same_thread=False))
    hook_is(monkeypatch, hook)
    engine = open_engine(define("postgres", extra={"sslmode": "verify-full"}))
    stored = SqlOffsetStore(engine, "p").save(StoredState().with_plan(plan()), None)
    assert hook.opened == 1, "the one that was tried is used"
    engine.dispose()
    assert SqlOffsetStore(engine, "p").load() == stored
    assert hook.opened > 1


@pytest.mark.parametrize(
    ("error", "kind", "retry"),
    [
        (RuntimeError("You do not have `mysqlclient` package installed."), ConfigError, False),
        (ImportError("no pq wrapper available"), ConfigError, False),
        (sqlite3.OperationalError("SSL error: certificate verify failed"), StateError, True),
    ],
    ids=["driver", "library", "server"],
)
def test_what_the_driver_says_is_named(
    define: Define, monkeypatch: pytest.MonkeyPatch, error: Exception, kind: type[Exception], retry: bool
) -> None:
    def fails() -> Any:
        raise error

    hook_is(monkeypatch, Database(fails))
    with pytest.raises(kind, match=str(error)) as caught:
        open_engine(define("postgres", password="hunter2-hunter2"))
    assert caught.value.can_retry is retry
    assert "connection offsets (type postgres)" in str(caught.value) and "hunter2" not in str(caught.value)


@pytest.mark.parametrize("conn_type", ["postgres", "postgresql"])
def test_a_missing_provider_is_named_by_its_extra(define: Define, conn_type: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_engine(define(conn_type, host="db"))
    assert "pip install 'airflow-provider-mysql-cdc[postgres]'" in caught.value.remedy


@pytest.mark.parametrize("extra", [{"ssl": {"ca": "/ca.pem"}}, {"ssl_mode": "REQUIRED"}, {"ssl_ca": "/ca.pem"}])
def test_tls_that_only_the_provider_knows_is_never_left_out(define: Define, extra: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"airflow-provider-mysql-cdc\[mysql\]"):
        open_engine(define("mysql", host="db", extra=extra))


def test_a_connection_of_something_else_is_refused(define: Define) -> None:
    with pytest.raises(ConfigError, match="this connection type is not a database"):
        open_engine(define("spark", host="local[2]"))


def test_several_servers_are_refused(define: Define) -> None:
    """Offsets that two servers store apart from each other would contradict each other."""
    with pytest.raises(ConfigError, match="one of several servers has to be chosen first") as caught:
        open_engine(define("mysql_cdc", host="db1,db2", port=3306, login="cdc", password="p"))
    assert "database.hostname" in caught.value.remedy and not caught.value.can_retry


@pytest.fixture
def own(define: Define, stack: Any, database: str) -> Callable[..., Any]:
    """Define a connection of the provider's own type to the test's database, with a mode of TLS."""
    return lambda tls, schema=database: define(
        "mysql_cdc",
        host=stack.mysql_host,
        port=stack.mysql_port,
        login=stack.root_user,
        password=stack.root_password,
        schema=schema,
        extra={"database.ssl.mode": tls},
    )


@pytest.mark.stack
def test_a_connection_that_was_idle_for_too_long_is_opened_again(
    own: Callable[[str], Any], root: Any, database: str
) -> None:
    store = SqlOffsetStore(open_engine(own("disabled")), "p")
    stored = store.save(StoredState().with_plan(plan()), None)
    with root.cursor() as cursor:
        cursor.execute("SELECT id FROM information_schema.processlist WHERE db = %s AND command = 'Sleep'", (database,))
        idle = [number for (number,) in cursor.fetchall()]
        assert idle
        for number in idle:
            cursor.execute(f"KILL {number}")
    assert store.save(stored.commit(END, 1), stored).revision == 2


@pytest.mark.stack
def test_a_connection_without_a_database_is_named(own: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match="names no database") as caught:
        open_engine(own("disabled", schema=""))
    assert caught.value.where == "connection offsets (type mysql_cdc)"


@pytest.mark.stack
@pytest.mark.parametrize("tls", ["required", "disabled"])
def test_the_provider_s_own_type_opens_with_its_tls_and_one_transaction(own: Callable[[str], Any], tls: str) -> None:
    engine = open_engine(own(tls))
    store = SqlOffsetStore(engine, "p")
    assert store.load() is None
    with engine.begin() as opened:
        cipher = opened.execute(sa.text("SHOW STATUS LIKE 'Ssl_cipher'")).one()[1]
        opened.execute(sa.text("INSERT INTO mysql_cdc_store_version VALUES ('x', 1)"))
        opened.rollback()
    assert bool(cipher) == (tls == "required")
    with engine.begin() as opened:
        assert opened.execute(sa.text("SELECT name FROM mysql_cdc_store_version")).scalars().all() == [
            "mysql_cdc_offsets"
        ]
    engine.dispose()
