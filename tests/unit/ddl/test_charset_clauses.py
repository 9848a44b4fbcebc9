"""CHARSET and COLLATE clauses of tables and databases: old servers take the last one, newer ones always COLLATE."""

from __future__ import annotations

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.ddl.apply import apply_ddl
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext, SchemaState
from airflow_provider_mysql_cdc.cdc.model.table import TableId

OLD = DdlContext("d", utf8mb4_after_collate=45, default_collation_for_utf8mb4=45)
NEW = DdlContext("d", default_collation_for_utf8mb4=45)
CONVERT = "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4"


@pytest.mark.req("SCH-01")
@for_each(
    ("statement", "old", "new"),
    [
        ("CREATE TABLE t (a INT) COLLATE utf8mb4_bin CHARSET utf8mb4", "general_ci", "bin"),
        ("CREATE TABLE t (a INT) CHARSET utf8mb4 COLLATE utf8mb4_bin", "bin", "bin"),
        ("CREATE TABLE t (a INT) COLLATE utf8mb4_bin CHARSET utf8mb4 COLLATE utf8mb4_bin", "bin", "bin"),
        ("ALTER TABLE t COLLATE utf8mb4_bin CHARSET utf8mb4", "general_ci", "bin"),
        ("ALTER TABLE t COLLATE utf8mb4_bin, ADD b INT, CHARSET utf8mb4", "general_ci", "bin"),
        ("ALTER TABLE t CHARSET utf8mb4, COLLATE utf8mb4_bin", "bin", "bin"),
        (f"{CONVERT} COLLATE utf8mb4_bin, CHARSET utf8mb4", "general_ci", "bin"),
        (f"{CONVERT} COLLATE utf8mb4_bin, COLLATE utf8mb4_unicode_ci, CHARSET utf8mb4", "general_ci", "unicode_ci"),
        (f"{CONVERT} COLLATE utf8mb4_bin, CHARSET utf8mb4 COLLATE utf8mb4_unicode_ci", "unicode_ci", "unicode_ci"),
        (f"{CONVERT}, COLLATE utf8mb4_bin", "bin", "bin"),
        (f"ALTER TABLE t CHARSET utf8mb4, {CONVERT[14:]} COLLATE utf8mb4_bin", "bin", "bin"),
    ],
)
def test_a_charset_clause_behind_collate(statement: str, old: str, new: str) -> None:
    """As MySQL 5.7.22 and 8.0.15, and as 9.7.4."""
    for context, collation in ((OLD, old), (NEW, new)):
        state = apply_ddl(SchemaState(), "CREATE DATABASE d CHARSET latin1", context).state
        if statement.startswith("ALTER"):
            state = apply_ddl(state, "CREATE TABLE t (a INT)", context).state
        assert apply_ddl(state, statement, context).state.tables[TableId("d", "t")].collation == f"utf8mb4_{collation}"
        database = apply_ddl(SchemaState(), "CREATE DATABASE x COLLATE utf8mb4_bin CHARSET utf8mb4", context).state
        assert database.database_defaults["x"].collation == ("utf8mb4_general_ci" if context is OLD else "utf8mb4_bin")


def test_default_in_the_last_clause_is_the_databases() -> None:
    """As MySQL 5.7.22; later versions do not take DEFAULT for a table."""
    state = apply_ddl(SchemaState(), "CREATE DATABASE d CHARSET latin1", OLD).state
    for clauses in ("CHARSET utf8mb4 COLLATE DEFAULT", "COLLATE utf8mb4_bin CHARSET DEFAULT"):
        table = apply_ddl(state, f"CREATE TABLE t (a INT) {clauses}", OLD).state.tables[TableId("d", "t")]
        assert table.collation == "latin1_swedish_ci", clauses
