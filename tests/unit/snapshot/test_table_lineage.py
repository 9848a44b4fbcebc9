"""What statements do to tables as a whole, and which names exist after them."""

from __future__ import annotations

import pytest
from kit.cases import for_each
from kit.memory_job import config

from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext
from airflow_provider_mysql_cdc.cdc.errors import DdlParseError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.snapshot import table_lineage
from airflow_provider_mysql_cdc.cdc.snapshot.table_lineage import LoggedStatement, names_after, statement_effects


def test_what_is_about_a_table_and_not_understood_is_not_taken_for_nothing() -> None:
    assert statement_effects("GRANT SELECT ON d.a TO x", DdlContext("d")) == ()
    with pytest.raises(DdlParseError):
        statement_effects("RENAME TABLE a AS", DdlContext("d"))


def kinds(sql: str, db: str = "d", lower_case_table_names: int = 0) -> list[tuple[str, str]]:
    context = DdlContext(db, lower_case_table_names=lower_case_table_names)
    return [(e.kind, f"{e.table.db}.{e.table.table}") for e in statement_effects(sql, context)]


@for_each(
    ("sql", "expected"),
    [
        ("CREATE INDEX i ON a (x)", []),
        ("CREATE DATABASE e", []),
        ("ALTER DATABASE CHARACTER SET latin1", []),
        ("ALTER TABLE a TABLESPACE ts", []),
        ("ALTER TABLE a ADD `discard` INT", []),
        ("DROP DATABASE E", [("drop database", "E.")]),
        ("USE e; DROP TABLE a", [("drop", "e.a")]),
        ("DROP TABLE x.a, a", [("drop", "x.a"), ("drop", "d.a")]),
    ],
)
def test_what_statements_do_to_tables_as_wholes(sql: str, expected: list[tuple[str, str]]) -> None:
    assert kinds(sql) == expected


def test_a_server_that_lowers_names_drops_the_lower_one() -> None:
    assert kinds("DROP DATABASE E", lower_case_table_names=1) == [("drop database", "e.")]
    assert kinds("DROP DATABASE E", lower_case_table_names=2) == [("drop database", "E.")]


@for_each(
    ("sql", "expected"),
    [
        ("ALTER TABLE a EXCHANGE PARTITION p WITH TABLE z", [("rows", "d.z"), ("rows", "d.a")]),
        ("ALTER TABLE z EXCHANGE PARTITION p WITH TABLE a", [("rows", "d.a"), ("rows", "d.z")]),
        ("ALTER TABLE a DISCARD TABLESPACE", [("rows", "d.a")]),
        ("ALTER TABLE a IMPORT PARTITION p TABLESPACE", [("rows", "d.a")]),
    ],
)
def test_statements_that_move_rows_without_row_events(sql: str, expected: list[tuple[str, str]]) -> None:
    assert [kind for kind in kinds(sql) if kind[0] == "rows"] == expected


# Parts of ALTER TABLE after which a scan of the table may continue at its cursor, and others.
KEEPS_VALUES = """
ADD x INT
ADD COLUMN x INT NOT NULL DEFAULT 5
ADD (x INT, y INT)
ADD x VARCHAR(9) NOT NULL DEFAULT ''
ADD x TIMESTAMP NULL
ADD x DATETIME DEFAULT '2020-01-01'
ADD x ENUM('a', 'b') DEFAULT 'a' UNIQUE
ADD x JSON
ADD `discard` INT
ADD INDEX i (n)
ADD UNIQUE (n)
ADD FULLTEXT (n)
ADD CONSTRAINT c FOREIGN KEY (n) REFERENCES b (n)
ADD CONSTRAINT c CHECK (n > 0)
DROP INDEX i
DROP KEY i
DROP FOREIGN KEY c
DROP CHECK c
DROP CONSTRAINT c
RENAME INDEX i TO j
RENAME KEY i TO j
ALTER n SET DEFAULT 5
ALTER COLUMN n DROP DEFAULT
ALTER COLUMN n SET INVISIBLE
ALTER INDEX i INVISIBLE
COMMENT = 'c'
AUTO_INCREMENT = 100
ENGINE = InnoDB
DEFAULT CHARACTER SET latin1
ROW_FORMAT = COMPRESSED
DISABLE KEYS
FORCE
ADD x INT, ALGORITHM = INSTANT, LOCK = NONE
DROP PARTITION p
TRUNCATE PARTITION p
REORGANIZE PARTITION p INTO (PARTITION q VALUES LESS THAN (5))
"""
CHANGES_VALUES = """
ADD x BIGINT AUTO_INCREMENT UNIQUE
ADD x SERIAL
ADD (y INT, x INT UNSIGNED NOT NULL SERIAL DEFAULT VALUE)
ADD x DATETIME DEFAULT CURRENT_TIMESTAMP
ADD x TIMESTAMP(3) NULL DEFAULT NOW(3) ON UPDATE NOW(3)
ADD x VARCHAR(36) DEFAULT (UUID())
ADD x INT DEFAULT (1)
ADD x INT AS (n + 1) STORED
ADD x INT GENERATED ALWAYS AS (n + 1) VIRTUAL
ADD x INT NOT NULL
ADD x DATE NOT NULL COMMENT 'c'
ADD x INT PRIMARY KEY
ADD x INT FIRST
ADD x INT AFTER n
ADD COLUMN x INT, ADD COLUMN y INT AFTER n
DROP n
DROP COLUMN n
DROP `import`
MODIFY n BIGINT
MODIFY COLUMN n INT FIRST
CHANGE n m INT
CHANGE COLUMN n n DATETIME
RENAME COLUMN n TO m
CONVERT TO CHARACTER SET utf8mb4
CONVERT TO CHARACTER SET latin1 COLLATE latin1_bin
ADD PRIMARY KEY (n)
ADD CONSTRAINT c PRIMARY KEY (n)
DROP PRIMARY KEY
DROP PRIMARY KEY, ADD PRIMARY KEY (n)
ADD x INT, DROP n
RENAME TO c, DROP n
"""


@for_each(
    ("action", "changes"),
    [(action, changes) for text, changes in ((KEEPS_VALUES, False), (CHANGES_VALUES, True))
     for action in text.strip().splitlines()],
)  # fmt: skip
def test_what_changes_values_without_row_events(action: str, changes: bool) -> None:
    """A statement that is missing in the list of harmless ones lets a scan begin anew, never the other way round."""
    found = [kind for kind, _ in kinds(f"ALTER TABLE a {action}")]
    assert ("structure" in found) is changes


def test_a_timestamp_that_is_filled_by_itself_is_told_by_no_event() -> None:
    """explicit_defaults_for_timestamp=OFF makes it NOT NULL."""
    for explicit in (True, False):
        context = DdlContext(default_db="d", explicit_defaults_for_timestamp=explicit)
        found = statement_effects("ALTER TABLE a ADD x TIMESTAMP", context)
        assert [effect.kind for effect in found] == ([] if explicit else ["filled", "structure"]), explicit


@pytest.mark.parametrize("sql", ["CREATE INDEX i ON a (n)", "DROP INDEX i ON a", "CREATE UNIQUE INDEX i ON a (n)"])
def test_statements_of_an_index_change_no_values(sql: str) -> None:
    assert kinds(sql) == []


def test_dropping_the_primary_key_as_an_index_changes_the_key() -> None:
    assert kinds("DROP INDEX `PRIMARY` ON a") == [("structure", "d.a")]


# Statements, and the names of database d that exist after them; "a b" exist before.
NAMES = [
    ([], "a b"),
    (["ALTER TABLE a ADD x INT", "ALTER TABLE a DROP x", "ALTER TABLE a DISCARD TABLESPACE"], "a b"),
    (["CREATE TABLE IF NOT EXISTS a (i INT)", "CREATE TABLE c (i INT)"], "a b c"),
    (["TRUNCATE a"], "a b"),
    (["DROP TABLE a"], "b"),
    (["DROP TABLE a", "CREATE TABLE a (i INT)"], "a b"),
    (["DROP DATABASE d"], ""),
    (["DROP DATABASE other"], "a b"),
    (["RENAME TABLE a TO c"], "b c"),
    (["ALTER TABLE a RENAME TO c"], "b c"),
    (["RENAME TABLE a TO _x, b TO a, _x TO b"], "a b"),
    (["RENAME TABLE a TO old, unknown TO a"], "a b old"),
    (["RENAME TABLE a TO other.a"], "b"),
]


@for_each(("statements", "names"), NAMES)
def test_the_names_that_exist_after_statements(statements: list[str], names: str) -> None:
    found = frozenset({TableId("d", "a"), TableId("d", "b")})
    for sql in statements:
        found = names_after(found, statement_effects(sql, DdlContext("d")))
    assert sorted(table.table for table in found if table.db == "d") == names.split()


def test_tables_that_came_after_the_list_was_read_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their rows stand in no chunk, and before the position where the drain begins."""
    statements = [
        "CREATE TABLE born (i INT)",
        "CREATE TABLE other.stranger (i INT)",
        "RENAME TABLE other.x TO moved",
        "CREATE TABLE short (i INT)",
        "DROP TABLE short",
        "ALTER TABLE t FROBNICATE x",
        "ALTER TABLE other.t FROBNICATE x",
    ]
    found = (LoggedStatement(sql, DdlContext("d"), "binlog.000001:80") for sql in statements)
    monkeypatch.setattr(table_lineage, "statements_between", lambda *_: found)
    cfg = config(database__include__list="d")
    start, listed = BinlogOffset("binlog.000001", 4), [TableId("d", "t")]
    assert table_lineage.tables_created_since(cfg, listed, start, start.with_position(start.file, 900), 0) == [
        "d.born",
        "d.moved",
        "binlog.000001:80: ALTER TABLE t FROBNICATE x",
    ]
