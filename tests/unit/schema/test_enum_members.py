"""Members that the server shows as ?: which columns may have them, and how they are asked for."""

from __future__ import annotations

from typing import Any

import pymysql
import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, TableId
from airflow_provider_mysql_cdc.cdc.schema.printed_definitions import (
    has_hidden_members,
    unshown_members_warning,
    with_members,
)

TABLE = TableId("d", "t`t")
STATEMENT = (
    "CREATE TABLE `t` (\n  `id` int NOT NULL COMMENT '?',\n  `mo``od` enum('?','o''k\\\\','?') DEFAULT 0xF09F98A1,\n"
    "  `plain` enum('a','b') DEFAULT NULL,\n  tags set('?','x') DEFAULT NULL\n) COMMENT='?'"
)


class Server:
    """Answer the queries for members with those of one column after the other."""

    def __init__(self, *answers: tuple[str | bytes | None, ...] | Exception) -> None:
        self.answers, self.queries = list(answers), list[str]()

    def cursor(self) -> Server:
        return self

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *unused: object) -> None:
        pass

    def execute(self, sql: str) -> None:
        self.queries.append(sql)

    def fetchall(self) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return [
            ("binary", member.hex())
            if isinstance(member, bytes)
            else ("utf8mb4", None if member is None else member.encode().hex())
            for member in answer
        ]


def test_members_take_the_place_of_what_is_shown() -> None:
    server = Server(("😀", "o'k\\", "?"), ("🍕", "x"))
    expected = STATEMENT.replace("enum('?'", "enum('😀'").replace("set('?'", "set('🍕'")
    assert with_members(server, TABLE, STATEMENT) == expected
    assert "t.`mo``od`" in server.queries[0] and "`d`.`t``t`" in server.queries[0] and "number < 3" in server.queries[0]
    assert "t.`tags`" in server.queries[1] and "1 << number" in server.queries[1]


def test_members_that_are_no_text_stay_as_they_are_shown() -> None:
    """An error of the client library in the middle of an answer would cost the connection."""
    assert with_members(Server((None, "b", "?")), TABLE, STATEMENT) is None


def test_members_of_bytes_take_the_place_of_their_digits() -> None:
    """The server leaves out the zeros before a digit."""
    statement = "(\n  `e` enum(x'ff1','ä','x''1','?',x'ff1') CHARACTER SET binary\n)"
    server = Server((b"\xff\x01", "ä".encode(), b"x'1", b"?", b"\x0f\xf1"))
    assert has_hidden_members(statement)
    written = with_members(server, TABLE, statement)
    assert written == statement.replace("x'ff1'", "x'ff01'", 1).replace("x'ff1'", "x'0ff1'")
    assert with_members(Server((b"\xff\x01",)), TABLE, statement) is None
    assert has_hidden_members("(\n  `e` enum('a',x'ff1') DEFAULT NULL\n)")
    assert not has_hidden_members("(\n  `e` enum('a','x''1') DEFAULT NULL\n)")
    assert with_members(Server((b"1", b"2", b"3", b"4", b"5")), TABLE, statement) is None, "what MySQL 8.0.15 answers"


def test_many_members_need_a_deeper_query() -> None:
    server = Server(tuple(["😀"] * 1200))
    members = ",".join(["'?'"] * 1200)
    assert with_members(server, TABLE, f"(\n  `e` enum({members})\n)") is not None
    assert server.queries[0] == "SET SESSION cte_max_recursion_depth = 1201"


@for_each("code", [1146, 1049, 1054, 1265, 1064, 1193])
def test_a_table_that_has_changed_is_told(code: int) -> None:
    assert with_members(Server(pymysql.err.OperationalError(code, "x")), TABLE, STATEMENT) is None
    assert with_members(Server(("😀", "other", "?")), TABLE, STATEMENT) is None
    with pytest.raises(pymysql.MySQLError):
        with_members(Server(pymysql.err.OperationalError(2013, "x")), TABLE, STATEMENT)


def test_only_members_count() -> None:
    assert has_hidden_members(STATEMENT)
    assert not has_hidden_members("CREATE TABLE `t` (\n  `a` int COMMENT '?',\n  `b` enum('x') COMMENT '?'\n)")
    server = Server()
    assert with_members(server, TABLE, "CREATE TABLE `t` (\n  `b` enum('x')\n)") and not server.queries


@for_each(
    ("version", "members", "warns"),
    [
        ("8.0.15", ("?", "b"), True),
        ("8.0.15", ("a", "b"), False),
        ("9.7.4", ("?", "b"), False),
        ("", ("?",), False),
        ("5.7.22-log", ("?", "b"), True),
    ],
)
def test_members_that_an_old_server_may_not_have_shown(version: str, members: tuple[str, ...], warns: bool) -> None:
    columns = (Column("n", 1, "INT"), Column("e", 2, "ENUM", charset="utf8mb4", enum_values=members))
    warning = unshown_members_warning(Table(TABLE, columns), version)
    assert (warning is not None) is warns
    assert warning is None or "d.t`t has members of ENUM or SET with a question mark (column e)" in warning
