"""Statements that change the rows of captured tables without row events."""

from __future__ import annotations

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.ddl.apply import apply_ddl
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext, SchemaState
from airflow_provider_mysql_cdc.cdc.drain.statement_reports import unlogged_warnings
from airflow_provider_mysql_cdc.cdc.errors import DdlParseError
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.snapshot.unlogged_changes import UnloggedChange, removed_tables, unlogged_changes

MOVED, REMOVED, RENAMED = "EXCHANGE PARTITION", "of partitions were removed", "before, and its rows are in no event"


def included(table: TableId, column: str) -> bool:
    return column != "hidden"


def changes(sql: str) -> list[tuple[str, str]]:
    """Return table and what happened: a, b and c of database d are captured; v is a view of its name."""
    captured = {TableId("d", name) for name in ("a", "b", "c", "v")}
    found = unlogged_changes(sql, DdlContext("d"), captured.__contains__, lambda table: table.table != "v", included)
    return [(str(table), what) for table, what, _ in found]


@for_each(
    ("sql", "expected"),
    [
        ("ALTER TABLE a EXCHANGE PARTITION p WITH TABLE b", [("d.b", MOVED), ("d.a", MOVED)]),
        ("ALTER TABLE a EXCHANGE PARTITION p WITH TABLE stage WITHOUT VALIDATION", [("d.a", MOVED)]),
        ("ALTER TABLE other.parts EXCHANGE PARTITION p WITH TABLE a", [("d.a", MOVED)]),
        ("ALTER TABLE stage EXCHANGE PARTITION p WITH TABLE other.a", []),
        ("ALTER TABLE a DISCARD TABLESPACE", [("d.a", MOVED)]),
        ("alter table a import tablespace", [("d.a", MOVED)]),
        ("ALTER TABLE a DISCARD PARTITION p TABLESPACE", [("d.a", MOVED)]),
        ("ALTER TABLE a IMPORT PARTITION ALL TABLESPACE", [("d.a", MOVED)]),
        ("ALTER TABLE a TABLESPACE ts", []),
        ("ALTER TABLE a DROP PARTITION p, q", [("d.a", REMOVED)]),
        ("alter table d.a truncate partition all", [("d.a", REMOVED)]),
        ("ALTER TABLE a /*!50100 DROP PARTITION p */", [("d.a", REMOVED)]),
        ("ALTER TABLE stage DROP PARTITION p", []),
        ("ALTER TABLE a DROP `partition`", []),
        ("ALTER TABLE a ADD x INT COMMENT 'DROP PARTITION p'", []),
        ("ALTER TABLE a ADD PARTITION (PARTITION q VALUES LESS THAN (5))", []),
        ("ALTER TABLE a REORGANIZE PARTITION p INTO (PARTITION q VALUES LESS THAN (5))", []),
        ("ALTER TABLE a COALESCE PARTITION 2", []),
        ("ALTER TABLE a ADD x BIGINT AUTO_INCREMENT UNIQUE", [("d.a", "x was added, and its")]),
        ("ALTER TABLE a ADD (x DATETIME DEFAULT NOW(), y INT DEFAULT 5, z INT)", [("d.a", "x was added, and its")]),
        ("ALTER TABLE a ADD x INT NOT NULL FIRST, DROP x, ADD s SERIAL", [("d.a", "x, s was added")]),
        (
            "ALTER TABLE a ADD g INT AS (id + 1), RENAME TO b",
            [("d.b", "g was added"), ("d.b", f"it was d.a {RENAMED}")],
        ),
        ("ALTER TABLE a ADD g INT AS (id + 1), RENAME TO stage", []),
        ("ALTER TABLE a ADD hidden CHAR(36) DEFAULT (UUID())", []),
        ("ALTER TABLE a ADD x INT, ADD y VARCHAR(9) NOT NULL DEFAULT 'NOW()', ADD KEY (x)", []),
        ("ALTER TABLE stage ADD x BIGINT AUTO_INCREMENT UNIQUE", []),
        ("ALTER TABLE a REMOVE PARTITIONING", []),
        ("RENAME TABLE stage TO a", [("d.a", f"it was d.stage {RENAMED}")]),
        ("ALTER TABLE other.stage RENAME TO d.a", [("d.a", f"it was other.stage {RENAMED}")]),
        ("ALTER TABLE a RENAME b", [("d.b", f"it was d.a {RENAMED}")]),
        ("RENAME TABLE a TO stage", []),
        ("RENAME TABLE stage TO other.a", []),
        ("RENAME TABLE v TO c", []),
        ("RENAME TABLE a TO _a_old, _a_new TO a", [("d.a", f"it was d._a_new {RENAMED}")]),
        (
            "RENAME TABLE a TO t, b TO a, t TO b",
            [("d.a", f"it was d.b {RENAMED}"), ("d.b", f"it was d.a {RENAMED}")],
        ),
        ("RENAME TABLE a TO t, t TO a", []),
        ("RENAME TABLE stage TO b, b TO stage", []),
        ("ALTER TABLE a RENAME COLUMN x TO y", []),
        ("ALTER TABLE a RENAME INDEX i TO j", []),
        ("RENAME USER a TO b", []),
        ("CREATE TABLE a (i INT) PARTITION BY HASH (i) PARTITIONS 2", []),
    ],
)
def test_which_statements_change_rows_without_row_events(sql: str, expected: list[tuple[str, str]]) -> None:
    found = changes(sql)
    assert [table for table, _ in found] == [table for table, _ in expected]
    assert all(part in what for (_, what), (_, part) in zip(found, expected, strict=True)), found


@for_each(
    ("sql", "adds"),
    [
        ("ALTER TABLE a EXCHANGE PARTITION p WITH TABLE stage", True),
        ("ALTER TABLE a IMPORT TABLESPACE", True),
        ("ALTER TABLE a DISCARD TABLESPACE", False),
        ("alter table a discard partition p tablespace", False),
        ("ALTER TABLE a DROP PARTITION p", False),
        ("RENAME TABLE stage TO a", True),
    ],
)
def test_which_statements_may_add_rows(sql: str, adds: bool) -> None:
    (change,) = unlogged_changes(sql, DdlContext("d"), lambda table: table.table == "a", lambda _: True, included)
    assert change.adds_rows is adds


def test_a_statement_that_is_not_understood_is_not_taken_for_harmless() -> None:
    with pytest.raises(DdlParseError):
        changes("RENAME TABLE a AS")


TRUNCATED, DROPPED, AWAY = "TRUNCATE TABLE removed", "it was dropped", "it was renamed to"


def removed(sql: str, *, publishes_truncates: bool = False, fold: int = 0) -> dict[str, str]:
    """Return tables and what happened: a and b of database d and e of another are captured, d.stage is not."""
    context = DdlContext("d", lower_case_table_names=fold)
    state = SchemaState()
    for name in ("d.a", "d.b", "d.stage", "other.e"):
        state = apply_ddl(state, f"CREATE TABLE {name} (i INT PRIMARY KEY)", context).state
    captured = {TableId("d", "a"), TableId("d", "b"), TableId("d", "c"), TableId("other", "e")}
    applied = apply_ddl(state, sql, context)
    found = removed_tables(applied, state, captured.__contains__, publishes_truncates=publishes_truncates)
    assert not any(change.adds_rows for change in found)
    return {str(change.table): change.what for change in found}


@for_each(
    ("sql", "expected"),
    [
        ("TRUNCATE TABLE a", {"d.a": TRUNCATED}),
        ("truncate `other`.`e`", {"other.e": TRUNCATED}),
        ("TRUNCATE TABLE `d`.`a` /* generated by server, implicitly emptying in-memory table */", {"d.a": TRUNCATED}),
        ("TRUNCATE TABLE c", {"d.c": TRUNCATED}),  # a table exists that can be truncated, known or not
        ("TRUNCATE TABLE stage", {}),
        ("DROP TABLE a", {"d.a": DROPPED}),
        ("DROP TABLE IF EXISTS a, other.e, stage /* generated by server */", {"d.a": DROPPED, "other.e": DROPPED}),
        ("drop table c", {"d.c": DROPPED}),
        ("DROP TABLE IF EXISTS c", {}),
        ("DROP TEMPORARY TABLE IF EXISTS a", {}),
        ("DROP VIEW a", {}),
        ("DROP DATABASE d", {"d.a": "its database was dropped", "d.b": "its database was dropped"}),
        ("DROP SCHEMA IF EXISTS other", {"other.e": "its database was dropped"}),
        ("CREATE DATABASE IF NOT EXISTS d", {}),
        ("ALTER DATABASE d CHARACTER SET latin1", {}),
        ("RENAME TABLE a TO stage2", {"d.a": f"{AWAY} d.stage2"}),
        ("ALTER TABLE a RENAME TO other.x", {"d.a": f"{AWAY} other.x"}),
        ("ALTER TABLE a ADD j INT, RENAME AS c", {"d.a": f"{AWAY} d.c"}),
        ("RENAME TABLE a TO t, b TO a, t TO b", {}),
        ("RENAME TABLE a TO old, stage TO a", {}),
        ("RENAME TABLE c TO stage2", {}),  # a view
        ("CREATE TABLE a (i INT)", {"d.a": "the DROP TABLE of an earlier table of this name is not in the binlog"}),
        ("CREATE TABLE a LIKE b", {"d.a": "the DROP TABLE of an earlier table"}),
        ("CREATE TABLE IF NOT EXISTS a (i INT)", {}),
        ("CREATE TABLE c (i INT)", {}),
        ("ALTER TABLE a ENGINE=blackhole", {"d.a": "ENGINE=BLACKHOLE removed"}),
        ("ALTER TABLE a ENGINE=Merge UNION=(b)", {"d.a": "ENGINE=MERGE removed"}),
        ("ALTER TABLE a ENGINE InnoDB", {}),
        ("ALTER TABLE a DROP PRIMARY KEY", {}),
    ],
)
def test_which_statements_remove_all_rows_of_a_table(sql: str, expected: dict[str, str]) -> None:
    found = removed(sql)
    assert list(found) == list(expected), found
    assert all(what in found[table] for table, what in expected.items()), found


def test_names_in_other_letter_cases_are_found_where_the_server_folds_them() -> None:
    assert list(removed("TRUNCATE TABLE A", fold=1)) == list(removed("DROP DATABASE D", fold=1))[:1] == ["d.a"]
    assert removed("TRUNCATE TABLE A") == {}


def test_a_truncate_event_tells_consumers_what_no_warning_has_to() -> None:
    assert removed("TRUNCATE TABLE a", publishes_truncates=True) == {}
    # No event can be written for a table without a known structure, and there is none for other statements.
    assert list(removed("TRUNCATE TABLE c", publishes_truncates=True)) == ["d.c"]
    assert list(removed("DROP TABLE a", publishes_truncates=True)) == ["d.a"]


def test_a_statement_about_thousands_of_tables_has_some_lines() -> None:
    changes = [UnloggedChange(TableId("d", f"t{n}"), "it was dropped", adds_rows=False) for n in range(5_000)]
    lines = list(unlogged_warnings(changes, "DROP DATABASE d", "f:4"))
    assert len(lines) == 21 and "d.t19 were changed" in lines[19]
    assert lines[20].startswith(
        "WARNING: rows of 4980 more tables were changed without row events by a statement at f:4"
    )
