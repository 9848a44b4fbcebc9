"""The structures that statements make are read as the server makes them, whatever the session's variables are."""

from __future__ import annotations

from collections.abc import Iterator

import pymysql
import pytest
from kit.private_mysql import Pool, PrivateServer
from kit.server_structures import check_all, known
from kit.session_alternatives import alternatives
from kit.sql import execute
from kit.stream_structures import StructureStream
from kit.tiers import many

from airflow_provider_mysql_cdc.cdc.model.connection import ConnectionSettings, Secret

# More values of variables that decide what a statement means.
MORE = [
    *(("sql_mode", f"'{mode}'") for mode in (
        "", "ANSI_QUOTES", "NO_BACKSLASH_ESCAPES", "REAL_AS_FLOAT", "IGNORE_SPACE", "PIPES_AS_CONCAT", "ANSI",
        "NO_ZERO_DATE,NO_ZERO_IN_DATE", "ALLOW_INVALID_DATES", "TRADITIONAL", "TIME_TRUNCATE_FRACTIONAL",
        "PAD_CHAR_TO_FULL_LENGTH", "HIGH_NOT_PRECEDENCE")),
    *(("collation_connection", name) for name in ("latin1_bin", "utf8mb4_bin", "utf8mb3_bin", "sjis_bin", "gbk_bin")),
    *(("character_set_client", name) for name in ("latin1", "gbk", "sjis", "utf8mb3", "cp1251")),
    *(("collation_server", name) for name in ("latin1_swedish_ci", "utf8mb3_bin", "binary", "utf16_general_ci")),
    *(("collation_database", name) for name in ("latin1_swedish_ci", "ascii_bin")),
    ("default_collation_for_utf8mb4", "utf8mb4_general_ci"),
    ("time_zone", "'-03:30'"),
]  # fmt: skip
# Defaults stay as they are written, as in Debezium. The server shows a TIMESTAMP's default in the time zone of who asks
# and stores a CHAR's with blanks up to its length under PAD_CHAR_TO_FULL_LENGTH.
STATEMENTS = (
    """
CREATE TABLE plain (id INT PRIMARY KEY, a VARCHAR(20) DEFAULT 'it''s', b CHAR(5), c TEXT, e ENUM('x','y z','ä'),
  s SET('p','q'));
CREATE TABLE keyless (a INT, b BIGINT UNSIGNED);
ALTER TABLE keyless ADD first_one INT FIRST;
ALTER TABLE keyless ADD after_a VARCHAR(9) AFTER a, ADD last_one BIT(3) DEFAULT b'101';
CREATE TABLE times (at TIMESTAMP, at2 TIMESTAMP(3) NULL, d DATETIME DEFAULT CURRENT_TIMESTAMP ON UPDATE
  CURRENT_TIMESTAMP, y YEAR, t TIME(2) DEFAULT '01:02:03.40');
CREATE TABLE times2 (k INT PRIMARY KEY, a TIMESTAMP, b DATETIME NOT NULL DEFAULT '2020-01-01 00:00:00');
ALTER TABLE times2 ADD c TIMESTAMP, MODIFY a TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP;
CREATE TABLE numbers (r REAL, f FLOAT(7,3), d DOUBLE PRECISION, x DEC(9), n NUMERIC(8,2) DEFAULT 1.5, i
  INTEGER(5) ZEROFILL, ok BOOL DEFAULT TRUE);
CREATE TABLE charsets (l VARCHAR(9) CHARACTER SET latin1, n NCHAR(4), b VARCHAR(9) BINARY, u CHAR(3) UNICODE, a
  CHAR(3) ASCII, y CHAR(3) BYTE, m LONG VARCHAR);
CREATE TABLE collated (v VARCHAR(9), w TEXT) COLLATE utf8mb4_bin;
CREATE TABLE folded (v VARCHAR(9), w TEXT) CHARSET utf8mb4;
CREATE TABLE copied LIKE plain;
CREATE TABLE chosen SELECT id, a, e FROM plain;
CREATE TABLE chosen2 (own INT PRIMARY KEY) SELECT b, c FROM plain;
CREATE TABLE counted (id SERIAL, v INT, g INT AS (v + 1) VIRTUAL, h VARCHAR(9) AS (CONCAT('a', v)) STORED, KEY
  (v));
ALTER TABLE counted ADD UNIQUE KEY u (v), DROP COLUMN g, RENAME COLUMN h TO hh, COMMENT 'a "quoted" one';
ALTER TABLE plain CONVERT TO CHARACTER SET utf8mb3;
ALTER TABLE plain CHANGE a renamed VARCHAR(30) NOT NULL DEFAULT 'x\\\\y', ALTER COLUMN b SET DEFAULT 'bbbbb';
CREATE INDEX i ON plain (renamed);
RENAME TABLE copied TO moved;
ALTER TABLE moved DROP PRIMARY KEY, ADD PRIMARY KEY (id, a), DEFAULT CHARACTER SET latin2;
CREATE TABLE "quoted" ("a" INT PRIMARY KEY, "b" VARCHAR(5) DEFAULT 'q');
CREATE TABLE parted (id INT PRIMARY KEY, v INT) PARTITION BY HASH (id) PARTITIONS 3;
ALTER TABLE parted ADD w VARCHAR(5), ALGORITHM=INPLACE;
CREATE TABLE blobs (a BLOB(70000), b TEXT(300), c VARBINARY(5) DEFAULT 'ab', d BINARY(3) DEFAULT 'z', j JSON, p
  POINT);
ALTER DATABASE d1 CHARACTER SET cp1250;
CREATE TABLE later (v VARCHAR(7), e ENUM('b','a'));
DROP TABLE folded;
""".strip()
    .removesuffix(";")
    .split(";\n")
)


@pytest.fixture
def server(pool: Pool) -> Iterator[PrivateServer]:
    with pool.lent() as made:
        yield made


def run_statements(server: PrivateServer, name: str, value: str) -> int | None:
    """Run the statements in a session with one variable set; return how many the server took, None if it has none."""
    with server.connect() as conn:
        execute(conn, "USE d1")
        try:
            execute(conn, f"SET SESSION {name} = {value}")
        except pymysql.MySQLError:
            return None
        taken = 0
        for statement in STATEMENTS:
            try:
                execute(conn, statement)
            except pymysql.MySQLError:
                continue
            taken += 1
        return taken


@pytest.mark.req("SCH-01")
@pytest.mark.days("even")
def test_structures_do_not_depend_on_the_session_that_made_them(server: PrivateServer) -> None:
    settings = ConnectionSettings("127.0.0.1", server.port, "cdc", Secret(server.password))
    differing, tried, taken = list[str](), 0, 0
    with server.connect() as root, root.cursor() as cursor:
        # What a session does not log is not in the stream (docs/runbook.md).
        tries = [(n, v) for n, v in alternatives(root) if n != "sql_log_bin"] + MORE
        for name, value in tries[:: many(8, 1)]:
            execute(root, "DROP DATABASE IF EXISTS d1", "CREATE DATABASE d1")
            stream = StructureStream(settings, root, ("d1",), known(cursor, "d1"))
            if (count := run_statements(server, name, value)) is None:
                continue
            tried, taken = tried + 1, taken + count
            try:
                check_all(cursor, stream.follow(), "d1", f"the statements of a session with {name} = {value}")
            except Exception as error:
                differing.append(f"{name} = {value}: {error}")
    assert not differing, "\n".join(differing)
    assert tried > many(15, 120), tried
    assert taken > tried * len(STATEMENTS) * 0.7, (taken, tried)
