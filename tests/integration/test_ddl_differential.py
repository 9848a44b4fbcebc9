"""Every statement runs on a real server too; afterwards our structures and the server's must be the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kit.server_structures import check_all, context, fetch, known

from airflow_provider_mysql_cdc.cdc.ddl.apply import apply_ddl
from airflow_provider_mysql_cdc.cdc.ddl.collations import COLLATIONS, MAX_CHARACTER_BYTES
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.drain.structure_check import describe, same_structure
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema.snapshot_records import captured_state
from airflow_provider_mysql_cdc.cdc.schema.table_discovery import read_create_statements


def corpus() -> dict[str, str]:
    """Return the cases of ddl_corpus.sql by name."""
    text = (Path(__file__).parent / "ddl_corpus.sql").read_text(encoding="utf-8")
    cases = text.split("-- case: ")[1:]
    return {name: body for name, _, body in (case.partition("\n") for case in cases)}


CORPUS = corpus()


def statements(text: str) -> list[str]:
    """Split a corpus text at semicolons that end a line."""
    return [part.strip() for part in (text.strip() + "\n").split(";\n") if part.strip()]


@pytest.mark.req("SCH-01")
@pytest.mark.parametrize("name", CORPUS)
def test_structures_equal_the_servers_after_every_statement(name: str, root: Any, database: str) -> None:
    with root.cursor() as cursor:
        cursor.execute(f"USE `{database}`")
        cursor.execute("SET SESSION information_schema_stats_expiry=0")
        state = known(cursor, database)
        for sql in statements(CORPUS[name]):
            before = context(cursor, database)
            cursor.execute(sql)
            state = apply_ddl(state, sql, before).state
            check_all(cursor, state, database, sql)
        check_shown(root, state)


def check_shown(conn: Any, state: SchemaState) -> None:
    """Check that the comparison after a batch finds no difference."""
    definitions, missing = read_create_statements(conn, list(state.tables), lambda _: None)
    assert not missing
    shown = captured_state(definitions).tables
    for table in state.tables.values():
        server = shown.get(table.id)
        assert same_structure(table, server), (describe(table), describe(server))


def test_collation_table_equals_the_servers(root: Any) -> None:
    with root.cursor() as cursor:
        theirs = {
            r[0]: (r[1], r[2], r[3] == "Yes")
            for r in fetch(
                cursor, "SELECT ID, COLLATION_NAME, CHARACTER_SET_NAME, IS_DEFAULT FROM information_schema.COLLATIONS"
            )
        }
        widths = dict(fetch(cursor, "SELECT CHARACTER_SET_NAME, MAXLEN FROM information_schema.CHARACTER_SETS"))
    assert {c.id: (c.name, c.charset, c.is_default) for c in COLLATIONS.values()} == theirs
    assert widths == MAX_CHARACTER_BYTES


@pytest.mark.req("SCH-01")
def test_statements_as_the_binlog_holds_them(root: Any, database: str) -> None:
    """CREATE TABLE ... SELECT reaches the binlog as a column list, DROP TABLE with quoted names."""
    sent = [
        "CREATE TABLE base (id INT PRIMARY KEY, b3 VARCHAR(60) COLLATE utf8mb4_bin COMMENT 'c', d DECIMAL(8,2))",
        "ALTER TABLE base ADD e ENUM('a','b'), ADD t TIMESTAMP(3)",
        "CREATE TABLE ctas AS SELECT id, b3, d + 1 AS d1, e, t, NOW() IS NULL AS nn, 'x' AS x, POINT(1,1) p FROM base",
        "CREATE TABLE ctas2 (extra INT DEFAULT 3, id INT PRIMARY KEY) CHARSET latin1 SELECT id, b3 FROM base",
        "CREATE TABLE ctas3 (KEY (id)) PARTITION BY HASH (id) PARTITIONS 2 AS SELECT id FROM base",
        "SET SESSION sql_generate_invisible_primary_key=ON",
        "CREATE TABLE gipk (a INT, b INT)",
        "ALTER TABLE gipk ADD c INT",
        "SET SESSION sql_generate_invisible_primary_key=OFF",
        "CREATE TABLE gone (a INT)",
        "DROP TABLE gone, ctas3",
        "CREATE TABLE comments (a INT /*!50100 NOT NULL */, b INT /*!99999 NOT NULL */ /*!50100 DEFAULT /* in */ 5 */)",
    ]
    with root.cursor() as cursor:
        cursor.execute(f"USE `{database}`")
        state = known(cursor, database)
        file, start = fetch(cursor, "SHOW BINARY LOG STATUS")[0][:2]
        for sql in sent:
            cursor.execute(sql)
        for event in fetch(cursor, f"SHOW BINLOG EVENTS IN '{file}' FROM {start}"):
            head = f"use `{database}`; "
            if event[2] == "Query" and event[5].startswith(head):
                state = apply_ddl(state, event[5][len(head) :], context(cursor, database)).state
        assert TableId(database, "ctas") in state.tables
        check_all(cursor, state, database, "the binlog")
