"""MySQL 8.0.15 announces the hidden columns of functional indexes in the binlog; rows are read without them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kit.private_mysql import Pool, PrivateServer
from kit.records import compacted, duplicates, payload
from kit.sql import execute, rows
from kit.tiers import many
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.errors import CdcError, SchemaMismatchError

IMAGE = "SET GLOBAL binlog_row_image = {}"


@pytest.fixture(scope="module")
def server(pool: Pool) -> Iterator[PrivateServer]:
    with pool.lent("8.0.15") as made:
        yield made


@pytest.fixture(params=many(["MINIMAL"], ["MINIMAL", "FULL"]))
def old(request: pytest.FixtureRequest, server: PrivateServer) -> Iterator[Any]:
    """Return a root connection, under both kinds of metadata."""
    with server.connect() as conn:
        execute(conn, f"SET GLOBAL binlog_row_metadata = {request.param}", IMAGE.format("FULL"))
        yield conn


@pytest.fixture
def pipeline(properties: dict[str, str], server: PrivateServer, old: Any, database: str) -> Pipeline:
    execute(old, f"CREATE DATABASE `{database}` CHARACTER SET utf8mb4", f"USE `{database}`")
    plain = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
    writers = {"drain.writers": "2", "drain.small.batch.bytes": "0", "cdc.id.header": "true"}
    return Pipeline(properties | server.properties() | plain | writers)


def require_rows(pipeline: Pipeline, old: Any, database: str, table: str) -> None:
    """Fail unless the newest records of a table have the columns and values that the server has."""
    columns = [name for name, *_ in rows(old, f"SHOW COLUMNS FROM `{database}`.`{table}`")]
    records = pipeline.records(table)
    assert duplicates(records) == []
    newest = [value for value in compacted(records).values() if value is not None]
    found = {tuple(row.get(name) for name in columns) for row in newest}
    assert found == set(rows(old, f"SELECT {', '.join(columns)} FROM `{database}`.`{table}`"))
    assert {name for row in newest[-1:] for name in row} == set(columns)


@pytest.mark.req("STRM-24")
def test_rows_of_tables_with_functional_indexes(pipeline: Pipeline, old: Any, database: str) -> None:
    """Hidden columns stand between the others after later statements, and beside columns of their own type."""
    execute(
        old,
        "CREATE TABLE t (id INT PRIMARY KEY, n BIGINT, KEY k ((n + 1)))",
        "CREATE TABLE wide (id INT PRIMARY KEY, a VARCHAR(20), b INT, KEY q ((b + 1), (b * 2)), c DATETIME, "
        "KEY ((CONCAT(a, 'x'))), UNIQUE KEY u ((id * 2)))",
        "INSERT INTO t VALUES (1, 5)",
        "INSERT INTO wide VALUES (1, 'ä', 1, '2024-01-02 03:04:05')",
    )
    assert pipeline.snapshot().complete
    statements = (
        "INSERT INTO t VALUES (2, 6), (3, NULL)",
        "INSERT INTO wide VALUES (2, NULL, NULL, NULL), (3, 'b', 7, NULL)",
        "ALTER TABLE t ADD m BIGINT",
        "INSERT INTO t (id, n) VALUES (4, 7)",
        "UPDATE t SET m = 1, n = 9 WHERE id = 2",
        "ALTER TABLE t ADD KEY k2 ((UPPER(m))), ADD first INT FIRST, ADD after_n INT AFTER n, ALGORITHM = COPY",
        "INSERT INTO t (id, n, first, after_n) VALUES (5, 7, 8, 9)",
        "UPDATE t SET id = 6 WHERE id = 5",
        "DELETE FROM t WHERE id = 3",
        "ALTER TABLE wide MODIFY c DATETIME FIRST",
        "UPDATE wide SET c = '2024-02-03 00:00:00', a = 'new'",
        "CREATE TABLE like_t LIKE t",
        "INSERT INTO like_t SELECT * FROM t",
        "ALTER TABLE t DROP KEY k",
        "INSERT INTO t (id, n) VALUES (7, 1)",
        "ALTER TABLE t ADD KEY again ((n - 1)), DROP KEY k2",
        "INSERT INTO t (id, n) VALUES (8, 1)",
    )
    execute(old, *statements)
    outcome = pipeline.drain()
    assert outcome is not None and outcome.complete
    for table in ("t", "like_t"):
        require_rows(pipeline, old, database, table)
    wide = {row["id"]: (row["a"], row["b"]) for row in compacted(pipeline.records("wide")).values()}
    assert wide == {1: ("new", 1), 2: ("new", None), 3: ("new", 7)}
    assert not any("is 'b'" in line or "differ" in line for line in pipeline.lines), pipeline.lines


@pytest.mark.req("STRM-24")
def test_a_column_that_the_history_lacks_still_stops(pipeline: Pipeline, old: Any, database: str) -> None:
    """A change outside the binlog adds a column: its rows are not read as those of a table with a functional index."""
    execute(old, "CREATE TABLE t (id INT PRIMARY KEY, n BIGINT, KEY k ((n + 1)))", "INSERT INTO t VALUES (1, 5)")
    pipeline.snapshot()
    execute(
        old, "SET SESSION sql_log_bin = 0", "ALTER TABLE t ADD m BIGINT", "SET SESSION sql_log_bin = 1",
        "INSERT INTO t VALUES (2, 6, 7)",
    )  # fmt: skip
    if rows(old, "SELECT @@global.binlog_row_metadata") == [("FULL",)]:
        assert pipeline.drain() is not None
        require_rows(pipeline, old, database, "t")
        return
    with pytest.raises(SchemaMismatchError, match="TABLE_MAP event 4, and a row event leaves out 1 of them"):
        pipeline.drain()


def test_rows_that_leave_out_other_columns(pipeline: Pipeline, old: Any, database: str) -> None:
    """With names they are read. Without them the drain stops; the remedy in the error is carried out."""
    execute(old, "CREATE TABLE t (id INT PRIMARY KEY, n BIGINT, KEY k ((n + 1)))", "INSERT INTO t VALUES (1, 5)")
    pipeline.snapshot()
    execute(old, IMAGE.format("MINIMAL"), "SET SESSION binlog_row_image = MINIMAL", "UPDATE t SET n = 6")
    execute(old, "SET SESSION binlog_row_image = FULL", IMAGE.format("FULL"))
    if rows(old, "SELECT @@global.binlog_row_metadata") == [("FULL",)]:
        assert pipeline.drain() is not None
        assert payload(pipeline.records("t")[-1].value)["after"]["n"] == 6
        return
    with pytest.raises(CdcError, match="set binlog_row_image=FULL on the server, exclude the table"):
        pipeline.drain()
    pipeline.settle()
    pipeline.properties["table.exclude.list"] = rf"{database}\.t"
    assert pipeline.drain() is not None
    del pipeline.properties["table.exclude.list"]
    execute(old, "INSERT INTO t VALUES (2, 7)")
    assert pipeline.drain() is not None
    assert payload(pipeline.records("t")[-1].value)["after"] == {"id": 2, "n": 7}
