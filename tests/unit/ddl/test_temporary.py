"""Statements about temporary tables, as a session with binlog_format=STATEMENT logs them."""

from __future__ import annotations

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.ddl.apply import apply_ddl
from airflow_provider_mysql_cdc.cdc.ddl.classify import changes_rows, classify_ddl
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext, SchemaState
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.snapshot.table_lineage import statement_effects

TEMPORARY = DdlContext("d", temporary=True)
NUMBERED = DdlContext("d", temporary=True, atomic=True)
OF_TEMPORARY = [
    "TRUNCATE TABLE t",
    "TRUNCATE d.t",
    "ALTER TABLE t ADD x INT",
    "ALTER TABLE t RENAME TO u",
    "ALTER TABLE t DROP PRIMARY KEY",
    "CREATE UNIQUE INDEX i ON t (b)",
    "DROP INDEX i ON t",
]


def state(default: str = "7") -> SchemaState:
    create = f"CREATE TABLE t (a INT PRIMARY KEY, b INT NOT NULL DEFAULT {default}, UNIQUE i (b))"
    return apply_ddl(SchemaState(), create, DdlContext("d")).state


@for_each("sql", OF_TEMPORARY)
def test_the_table_that_is_hidden_stays_as_it_is(sql: str) -> None:
    before = state()
    applied = apply_ddl(before, sql, TEMPORARY)
    assert (applied.state, applied.changes, applied.kind) == (before, (), "ignored")
    assert statement_effects(sql, TEMPORARY) == ()
    assert not classify_ddl(sql, TEMPORARY, lambda t: True).relevant
    assert apply_ddl(before, sql, DdlContext("d")).changes


@for_each("sql", [s for s in OF_TEMPORARY if not s.startswith("TRUNCATE")])
def test_atomic_ddl_has_a_number_and_is_about_the_table(sql: str) -> None:
    """CONNECTION_ID() in a default marks all statements about the table as well."""
    assert apply_ddl(state(), sql, NUMBERED).changes


def test_connection_id_marks_statements_about_the_table() -> None:
    assert apply_ddl(state(), "ALTER TABLE t ADD c INT DEFAULT (CONNECTION_ID())", TEMPORARY).changes
    for sql in OF_TEMPORARY:
        assert apply_ddl(state("(1 + connection_id())"), sql, TEMPORARY).changes


def test_the_structure_of_a_table_like_a_temporary_one_is_not_known() -> None:
    found = apply_ddl(state(), "CREATE TABLE u LIKE t", TEMPORARY)
    assert TableId("d", "u") not in found.state.tables and found.changes
    assert TableId("d", "u") in apply_ddl(state(), "CREATE TABLE u LIKE t", DdlContext("d")).state.tables


@pytest.mark.req("SETUP-16")
@for_each(
    "sql",
    ["SELECT `d`.`f`(1)", "/*!50000 INSERT */ INTO t VALUES (1)", "DO f()", "with x as (select 1) update t set a=1"],
)
def test_what_changes_rows_as_text(sql: str) -> None:
    assert changes_rows(sql, 0, ["d"], lambda db: db == "d")
    assert changes_rows(sql, 0, [], lambda db: db == "d")
    assert not changes_rows(sql, 0, ["other"], lambda db: db == "d")
    assert not changes_rows("CREATE TABLE t (a INT)", 0, ["d"], lambda db: True)
