"""CREATE TABLE statements that were read before under another name make what reading them anew would make."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_provider_mysql_cdc.cdc.ddl import apply as applying
from airflow_provider_mysql_cdc.cdc.ddl.lexer import ANSI_QUOTES, NO_BACKSLASH_ESCAPES, REAL_AS_FLOAT
from airflow_provider_mysql_cdc.cdc.ddl.repeated import Structures, behind_name
from airflow_provider_mysql_cdc.cdc.ddl.state import DbDefaults, DdlContext, SchemaState
from airflow_provider_mysql_cdc.cdc.model.table import TableId

CONTEXT = DdlContext(default_db="db")
BODY = "(id INT PRIMARY KEY, n VARCHAR(9) DEFAULT 'a\\'b', r REAL, KEY (n), UNIQUE `u;` (r)) COMMENT ';'"


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> Structures:
    structures = Structures()
    monkeypatch.setattr(applying, "_MADE", structures)
    return structures


def run(sql: str, context: DdlContext = CONTEXT, state: SchemaState | None = None) -> Any:
    return applying.apply(SchemaState() if state is None else state, sql, context)


def anew(monkeypatch: pytest.MonkeyPatch, *args: Any) -> Any:
    with monkeypatch.context() as patch:
        patch.setattr(applying, "_MADE", Structures())
        return run(*args)


@pytest.mark.parametrize(
    "head",
    ["CREATE TABLE b ", "create  table\n`b`", "CREATE TABLE other.b", "CREATE TABLE `o``t`.`b;'`", "CREATE TABLE Bö "],
)
def test_a_repeated_statement_makes_what_reading_it_would(
    monkeypatch: pytest.MonkeyPatch, made: Structures, head: str
) -> None:
    run(f"CREATE TABLE `first` {BODY}")
    read = anew(monkeypatch, head + BODY)
    monkeypatch.setattr(applying, "parse", lambda *_: pytest.fail("it is read") if head.isascii() else None)
    if head.isascii():
        assert run(head + BODY) == read
    assert len(read.changes) == 1 and read.changes[0].ddl == head + BODY


@pytest.mark.parametrize(
    "change",
    [
        {"sql_mode": ANSI_QUOTES | REAL_AS_FLOAT},
        {"server_collation": 8},
        {"default_collation_for_utf8mb4": 46},
        {"explicit_defaults_for_timestamp": False},
    ],
    ids=str,
)
def test_what_else_decides_about_a_structure_is_compared(
    monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    body = "(id INT, r REAL, t TIMESTAMP, c CHAR(3), u CHAR(3) CHARSET utf8mb4)"
    before, after = CONTEXT, replace(CONTEXT, **change)
    first = run(f"CREATE TABLE a {body}", before)
    assert run(f"CREATE TABLE a {body}", after) == anew(monkeypatch, f"CREATE TABLE a {body}", after) != first


def test_the_databases_character_set_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    state = SchemaState(databases={"old": DbDefaults("latin1", "latin1_swedish_ci")})
    run("CREATE TABLE new.a (c CHAR(3))", CONTEXT, state)
    found = run("CREATE TABLE old.a (c CHAR(3))", CONTEXT, state).state.tables[TableId("old", "a")]
    assert found.columns[0].charset == "latin1"


def test_a_table_that_was_there_is_replaced_and_one_of_the_same_name_is_another_version() -> None:
    first = run("CREATE TABLE a (id INT)").state
    second = run("CREATE TABLE a (id INT)", CONTEXT, first).state
    (before,), (after,) = first.tables.values(), second.tables.values()
    assert before == after and before is not after


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE IF NOT EXISTS a (id INT)",
        "CREATE TEMPORARY TABLE a (id INT)",
        "CREATE TABLE a LIKE b",
        "CREATE TABLE `a` /* text */ (id INT)",
        'CREATE TABLE "a" (id INT)',
        "CREATE TABLE a.b.c (id INT)",
        "ALTER TABLE a ADD (b INT)",
        "CREATE TABLE 1a (id INT)",
    ],
)
def test_other_statements_are_read(sql: str) -> None:
    assert behind_name(sql) is None


def test_statements_of_sessions_with_temporary_tables_are_read(made: Structures) -> None:
    run("CREATE TABLE a (id INT)", replace(CONTEXT, temporary=True))
    assert not made._made


def test_a_string_that_ends_elsewhere_in_another_mode_is_another_statement() -> None:
    body = r"(id INT, s CHAR(9) DEFAULT '\', t CHAR(9) DEFAULT '\')"
    run(f"CREATE TABLE a {body}", replace(CONTEXT, sql_mode=NO_BACKSLASH_ESCAPES))
    with pytest.raises(Exception, match="not"):
        run(f"CREATE TABLE b {body}")


def test_shapes_and_their_size_are_bounded(monkeypatch: pytest.MonkeyPatch, made: Structures) -> None:
    for n in range(600):
        run(f"CREATE TABLE a (c{n} INT)")
    assert 0 < len(made._made) <= 256
    before = len(made._made)
    run(f"CREATE TABLE a (id INT) COMMENT '{'x' * 70_000}'")
    assert len(made._made) == before
