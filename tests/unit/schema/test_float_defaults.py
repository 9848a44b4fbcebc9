"""FLOAT defaults that the server is asked for, on a server that a test makes up."""

from __future__ import annotations

import contextlib
from typing import Any

import pymysql
import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema.float_defaults import with_floats

STATEMENT = "CREATE TABLE `t` (\n  `id` int NOT NULL,\n  `f` float DEFAULT '1.5'\n)"


class Server:
    """A connection whose only statement has an answer, or an error."""

    def __init__(self, answer: tuple[float, ...] | Exception) -> None:
        self.answer = answer

    def cursor(self) -> Any:
        return contextlib.nullcontext(self)

    def execute(self, _: str, __: Any = None) -> None:
        if isinstance(self.answer, Exception):
            raise self.answer

    def fetchone(self) -> Any:
        return self.answer

    def fetchall(self) -> Any:
        return [self.answer]


def test_the_stored_number_takes_the_place_of_six_digits() -> None:
    asked = with_floats(Server((1.5000001192092896,)), TableId("d", "t"), STATEMENT)
    assert asked == STATEMENT.replace("1.5", "1.50000012")


@for_each("code", [1054, 1142, 1143])
def test_a_statement_stays_where_the_server_does_not_tell(code: int) -> None:
    refused = pymysql.err.OperationalError(code, "refused")
    assert with_floats(Server(refused), TableId("d", "t"), STATEMENT) == STATEMENT


@for_each("code", [1146, 2013])
def test_other_errors_are_those_of_the_statement_before(code: int) -> None:
    """So that whoever passes over a table that was dropped passes over it here, too."""
    with pytest.raises(pymysql.MySQLError, match=str(code)):
        with_floats(Server(pymysql.err.OperationalError(code, "gone")), TableId("d", "t"), STATEMENT)
