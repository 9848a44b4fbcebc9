"""Sessions with binlog_format=STATEMENT or MIXED: functions that change rows, temporary tables that hide others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest
from kit.records import payload
from kit.sql import execute
from kit.table_rig import FLAT, check_chain, filled, interrupt
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.errors import SchemaError, SourceSettingError

TABLES = ("swapped", "renamed", "keyed", "emptied")
HIDDEN = [
    "ALTER TABLE swapped RENAME COLUMN id TO v, RENAME COLUMN v TO id",
    "ALTER TABLE renamed RENAME TO elsewhere",
    "ALTER TABLE keyed DROP PRIMARY KEY, ADD PRIMARY KEY (v)",
    "CREATE UNIQUE INDEX i ON keyed (v)",
    "TRUNCATE TABLE emptied",
]
FUNCTION = (
    "CREATE FUNCTION f(a INT) RETURNS INT DETERMINISTIC MODIFIES SQL DATA "
    "BEGIN INSERT INTO keyed VALUES (a, a); RETURN a; END"
)
PROPERTIES = FLAT | {"skipped.operations": "none"}


@pytest.fixture
def session(stack: Any, database: str) -> Iterator[Any]:
    """Return a session of the test's database that logs statements as text."""
    conn = pymysql.connect(
        host=stack.mysql_host,
        port=stack.mysql_port,
        user=stack.root_user,
        password=stack.root_password,
        database=database,
        autocommit=True,
        ssl_disabled=True,
    )
    execute(conn, "SET SESSION binlog_format = STATEMENT")
    yield conn
    conn.close()


@pytest.mark.req("SCH-01", "SNAP-14")
def test_what_happens_to_temporary_tables_does_not_happen_to_those_that_they_hide(
    pipeline: Pipeline, session: Any, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Between two views of a snapshot, so that it is the table that is followed as well."""
    execute(session, *filled(database, *TABLES))
    interrupt(pipeline, monkeypatch, tmp_path / "fired")
    execute(session, *(f"CREATE TEMPORARY TABLE {t} (v INT, id INT, PRIMARY KEY (id))" for t in TABLES), *HIDDEN)
    updates = [f"UPDATE `{database}`.{t} SET v = v + id WHERE id % 2 = 0" for t in TABLES]
    execute(root, *updates)
    assert pipeline.snapshot().complete
    execute(root, *updates)
    assert pipeline.drain() is not None
    for table in TABLES:
        assert "t" not in [v["op"] for v in map(payload, (r.value for r in pipeline.records(table)))]
        check_chain(pipeline, root, database, table)
    changes = [payload(r.value) for r in pipeline.read(pipeline.properties["topic.prefix"])]
    assert not any(change["ddl"] in HIDDEN for change in changes)


def test_a_table_like_a_temporary_one_is_never_taken_for_one_like_the_hidden(
    pipeline: Pipeline, session: Any, root: Any, database: str
) -> None:
    execute(session, *filled(database, "keyed"))
    pipeline.snapshot()
    execute(session, "CREATE TEMPORARY TABLE keyed (v INT, id INT, PRIMARY KEY (id))", "CREATE TABLE made LIKE keyed")
    execute(root, f"INSERT INTO `{database}`.made VALUES (1, 2)")
    with pytest.raises(SchemaError, match="does not know"):
        pipeline.drain()


@pytest.mark.req("SETUP-16")
@pytest.mark.parametrize(
    ("statement", "logged"),
    [
        ("DO f(777)", "SELECT `{db}`.`f`(777)"),
        ("CREATE TABLE made (id INT PRIMARY KEY) SELECT id FROM keyed", "CREATE TABLE made"),
    ],
)
def test_rows_that_are_logged_as_text_are_refused_by_name(
    pipeline: Pipeline, session: Any, database: str, statement: str, logged: str
) -> None:
    pipeline.properties["schema.history.internal.skip.unparseable.ddl"] = "true"
    execute(session, *filled(database, "keyed"), FUNCTION, "SET SESSION binlog_format = MIXED")
    pipeline.snapshot()
    execute(session, statement)
    with pytest.raises(SourceSettingError, match="binlog_format=ROW") as caught:
        pipeline.drain()
    assert logged.format(db=database) in caught.value.where
