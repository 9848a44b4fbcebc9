"""Defaults that the server is asked for, on a server that a test makes up."""

from __future__ import annotations

import contextlib
from typing import Any

import pymysql
import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema.printed_definitions import with_stored_defaults

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
    asked = with_stored_defaults(Server((1.5000001192092896,)), TableId("d", "t"), STATEMENT)
    assert asked == STATEMENT.replace("1.5", "1.50000012")


@for_each("code", [1054, 1142, 1143])
def test_a_number_has_six_digits_where_the_server_does_not_tell(code: int) -> None:
    """Which ``stored_default`` takes for unknown; the text of other types stays."""
    refused = pymysql.err.OperationalError(code, "refused")
    statement = STATEMENT.replace("\n)", ",\n  `c` char(1) DEFAULT '?'\n)")
    asked = with_stored_defaults(Server(refused), TableId("d", "t"), statement)
    assert asked == statement.replace("1.5", "1.50000")


@for_each(
    ("column", "asked"),
    [
        ("`a` varchar(9) DEFAULT 'x?'", True),
        ("\"a\"\"b\" char(9) CHARACTER SET ucs2 COLLATE ucs2_bin NOT NULL DEFAULT 'a''?\\\\'", True),
        ("`e` enum('?,( DEFAULT ','b''') /*!80023 INVISIBLE */ DEFAULT 'b?'", True),
        ("`f` float unsigned NOT NULL DEFAULT '1'", True),
        ("`f` float(5,2) DEFAULT '1.50'", False),
        ("`f` float DEFAULT '0'", False),
        ("`d` double DEFAULT '1.5'", False),
        ("`a` varchar(9) DEFAULT 'x' COMMENT '?'", False),
        ("`a` varchar(9) DEFAULT NULL COMMENT ' DEFAULT ''?'''", False),
        ("`e` enum('?','a') DEFAULT 'a'", False),
        ("`i` int GENERATED ALWAYS AS (length(_utf8mb4' DEFAULT ''?'' ')) VIRTUAL", False),
    ],
)
def test_the_server_is_asked_for_what_it_may_print_otherwise(column: str, asked: bool) -> None:
    server = Server(pymysql.err.OperationalError(2013, "asked"))
    statement = f"CREATE TABLE `t` (\n  `id` int NOT NULL,\n  {column},\n  PRIMARY KEY (`id`)\n)"
    with pytest.raises(pymysql.MySQLError, match="asked") if asked else contextlib.nullcontext():
        assert with_stored_defaults(server, TableId("d", "t"), statement) == statement


@for_each("code", [1146, 2013])
def test_other_errors_are_those_of_the_statement_before(code: int) -> None:
    """So that whoever passes over a table that was dropped passes over it here, too."""
    with pytest.raises(pymysql.MySQLError, match=str(code)):
        with_stored_defaults(Server(pymysql.err.OperationalError(code, "gone")), TableId("d", "t"), STATEMENT)
