"""Which session variables are set, and what is said when one cannot be."""

from __future__ import annotations

from typing import Any

import pymysql
import pytest

from airflow_provider_mysql_cdc.cdc.binlog.session import FIRST_STATEMENT, SESSION_VARIABLES, prepare_session
from airflow_provider_mysql_cdc.cdc.errors import SourceConnectionError, SourceSettingError


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
