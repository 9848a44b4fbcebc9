"""Statements that change the rows of captured tables without row events."""

from __future__ import annotations

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext
from airflow_provider_mysql_cdc.cdc.errors import DdlParseError
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.snapshot.unlogged_changes import unlogged_changes

MOVED, REMOVED, RENAMED = "EXCHANGE PARTITION", "of partitions were removed", "before, and its rows are in no event"


def changes(sql: str) -> list[tuple[str, str]]:
    """Return table and what happened: a, b and c of database d are captured; v is a view of its name."""
    captured = {TableId("d", name) for name in ("a", "b", "c", "v")}
    found = unlogged_changes(sql, DdlContext("d"), captured.__contains__, lambda table: table.table != "v")
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
        ("TRUNCATE TABLE a", []),
        ("DROP TABLE a", []),
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
    (change,) = unlogged_changes(sql, DdlContext("d"), lambda table: table.table == "a", lambda _: True)
    assert change.adds_rows is adds


def test_a_statement_that_is_not_understood_is_not_taken_for_harmless() -> None:
    with pytest.raises(DdlParseError):
        changes("RENAME TABLE a AS")
