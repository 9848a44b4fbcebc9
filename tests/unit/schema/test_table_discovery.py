"""Which tables a snapshot reads, and what it asks the server about their structures."""

from __future__ import annotations

from typing import Any

import pymysql
import pytest
from kit.memory_job import config

from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema import table_discovery
from airflow_provider_mysql_cdc.cdc.schema.table_discovery import captured_tables, read_definitions

ORDERS, ITEMS, LOG = (TableId("shop", name) for name in ("orders", "items", "log"))
STATEMENTS = {t: f"CREATE TABLE `{t.table}` (`{t.table}_id` int)" for t in (ORDERS, ITEMS, LOG)}
CHARSETS = [("mysql", "utf8mb4", "utf8mb4_0900_ai_ci"), ("shop", "latin1", "latin1_swedish_ci")]


class Server:
    """Answers the statements that a snapshot sends."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error: object) -> None: ...

    def cursor(self) -> Server:
        return self

    def execute(self, sql: str, _: object = None) -> None:
        self.asked.append(sql)
        answers: dict[str, list[tuple[Any, ...]]] = {
            "SELECT table_schema": [("mysql", "user"), ("shop", "orders"), ("shop", "log"), ("shop", "items")],
            "SELECT @@character_set_server": [("utf8mb4", "utf8mb4_bin", "NO_ZERO_DATE", 1)],
            "SELECT schema_name": list(CHARSETS),
            "SELECT id FROM information_schema.collations": [(45,)],
            "SHOW CREATE DATABASE `shop`": [("shop", "CREATE DATABASE `shop` /*!40100 latin1 */")],
            **{f"SHOW CREATE TABLE {t.quoted()}": [(t.table, text)] for t, text in STATEMENTS.items()},
        }
        if sql.startswith("SET "):
            raise pymysql.OperationalError(1193, "a server before 8.0.30")
        (self.answer,) = [rows for start, rows in answers.items() if sql.startswith(start)]

    def fetchone(self) -> tuple[Any, ...]:
        return self.answer[0]

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self.answer


@pytest.mark.req("SNAP-24")
def test_the_structures_of_the_selected_tables_and_databases_are_read() -> None:
    cfg, server = config(table__include__list="shop.orders,shop.items"), Server()
    tables = captured_tables(server, cfg)
    assert tables == [ORDERS, ITEMS], "in the order of the list"
    found = read_definitions(server, cfg, tables)
    assert found.tables == {ORDERS: STATEMENTS[ORDERS], ITEMS: STATEMENTS[ITEMS]}
    assert found.databases == {"shop": "CREATE DATABASE `shop` /*!40100 latin1 */"}
    assert (found.server_charset, found.server_collation) == ("utf8mb4", "utf8mb4_bin")
    assert (found.sql_mode, found.lower_case_table_names) == ("NO_ZERO_DATE", 1)
    assert found.default_collation_for_utf8mb4 == 45
    # Statements of the stream may name a table that is not captured.
    assert found.uncaptured == {LOG: STATEMENTS[LOG]}


@pytest.mark.req("CFG-81")
def test_structures_of_other_tables_are_not_read_where_only_captured_ones_are_kept() -> None:
    given = {"table.include.list": "shop.orders", "schema.history.internal.store.only.captured.tables.ddl": "true"}
    server = Server()
    found = read_definitions(server, config(**given), [ORDERS])
    assert (found.tables, found.uncaptured) == ({ORDERS: STATEMENTS[ORDERS]}, {})
    assert [sql for sql in server.asked if sql.startswith("SHOW CREATE TABLE")] == ["SHOW CREATE TABLE `shop`.`orders`"]


@pytest.mark.parametrize(("limit", "lines"), [(1, 1), (2, 0)])
def test_many_tables_that_are_not_captured_are_worth_a_line(
    monkeypatch: pytest.MonkeyPatch, limit: int, lines: int
) -> None:
    """Before they are read: 27,840 of them took 48 s, and nothing said why."""
    monkeypatch.setattr(table_discovery, "MANY_TABLES", limit)
    server, said = Server(), list[str]()

    def log(line: str) -> None:
        assert "SHOW CREATE TABLE `shop`.`log`" not in server.asked
        said.append(line)

    read_definitions(server, config(table__include__list="shop.orders,shop.items"), [ORDERS, ITEMS], log)
    assert len(said) == lines
    if said:
        (line,) = said
        assert "1 tables that are not captured" in line and "the 0 in databases that are not captured" in line
        assert "schema.history.internal.store.only.captured.tables.ddl=true" in line
        assert "schema.history.internal.store.only.captured.databases.ddl=true" in line
