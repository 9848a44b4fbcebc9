"""Statements are found in SQL files as the mysql client finds them."""

from __future__ import annotations

from pathlib import Path

from kit.sql_files import files_below, statements_about_tables

TEXT = """\
-- a comment; with a semicolon
/* another; one */ CREATE TABLE `a;b` (c VARCHAR(9) DEFAULT 'it''s; \\'x', /* in; it */ d INT);
# one more;
/*!40101 SET NAMES utf8 */;
/*!40000 ALTER TABLE t ADD e INT */; INSERT INTO t VALUES (';');
DELIMITER $$
CREATE PROCEDURE p() BEGIN DROP TABLE t; END$$
alter  table t drop e$$
DELIMITER ;
CREATE UNIQUE INDEX i ON t (d); CREATE TABLE s (a INT) START TRANSACTION;
DROP TABLE "t"
"""


def test_statements_about_tables_are_found(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "dump.sql"
    path.parent.mkdir()
    path.write_text(TEXT, encoding="utf-8")
    assert files_below(tmp_path) == [path]
    assert statements_about_tables(path) == [
        "CREATE TABLE `a;b` (c VARCHAR(9) DEFAULT 'it''s; \\'x', /* in; it */ d INT)",
        "/*!40000 ALTER TABLE t ADD e INT */",
        "alter  table t drop e",
        "CREATE UNIQUE INDEX i ON t (d)",
        'DROP TABLE "t"',
    ]
