"""Structures that statements of other projects' SQL files make are those of information_schema.

``MYSQL_CDC_DDL_FILES`` names a folder; each ``*.sql`` file below it runs in a database of its own. Without it nothing
runs. Statements that the server refuses, and those that name another database, are left out.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pymysql
import pytest
from kit.server_structures import check_table, context, known
from kit.sql_files import files_below, statements_about_tables

from airflow_provider_mysql_cdc.cdc.ddl.apply import apply_ddl
from airflow_provider_mysql_cdc.cdc.ddl.classify import classify_ddl
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.errors import DdlParseError, RowsAsTextError
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema.snapshot_records import captured_state
from airflow_provider_mysql_cdc.cdc.schema.table_discovery import read_create_statements

FOLDER = os.environ.get("MYSQL_CDC_DDL_FILES", "")
FILES = files_below(Path(FOLDER)) if FOLDER else []
__test__ = bool(FOLDER)  # pytest collects nothing of this module without it
SESSION = ("foreign_key_checks = 0", "sql_mode = ''", "information_schema_stats_expiry = 0")


@pytest.mark.req("SCH-01")
@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_structures_equal_the_servers(path: Path, root: Any, database: str) -> None:
    differing, taken = list[str](), 0
    with root.cursor() as cursor:
        cursor.execute(f"USE `{database}`")
        cursor.execute(f"SET {', '.join(SESSION)}")
        state = known(cursor, database)
        for sql in statements_about_tables(path):
            before = context(cursor, database)
            tables = classify_ddl(sql, before, lambda _: True).tables
            if not tables or any(table.db != database for table in tables):
                continue  # a shared server has other databases
            try:
                cursor.execute(sql)
            except pymysql.MySQLError:
                continue
            taken += 1
            try:
                state = apply_ddl(state, sql, before).state
                check_tables(cursor, state, tables)
            except RowsAsTextError:  # the binlog has a column list in place of CREATE TABLE ... SELECT
                state = with_servers_structures(root, state, tables)
            except (AssertionError, DdlParseError) as error:
                differing.append(f"{sql[:2000]}\n    {error}")
                state = with_servers_structures(root, state, tables)
    print(f"{taken} statements")
    assert not differing, "\n".join(differing)


def check_tables(cursor: Any, state: SchemaState, tables: tuple[TableId, ...]) -> None:
    """Compare tables with the server's; what one of both does not have, the other must not have."""
    for table in tables:
        cursor.execute(
            "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s "
            "AND TABLE_TYPE = 'BASE TABLE'",
            (table.db, table.table),
        )
        assert (table in state.tables) == bool(cursor.fetchone()[0]), table
        if table in state.tables:
            check_table(cursor, state, state.tables[table], str(table))


def with_servers_structures(conn: Any, state: SchemaState, tables: tuple[TableId, ...]) -> SchemaState:
    """Return the structures with some of the server, so that each difference is shown once."""
    definitions, _ = read_create_statements(conn, list(tables), lambda _: None)
    shown = captured_state(definitions)
    state = state.without_tables(*tables)
    for table in tables:
        if table in shown.tables:
            state = state.with_table(shown.tables[table], shown.non_unique_indexes.get(table, ()))
    return state
