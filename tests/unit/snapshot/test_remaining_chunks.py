"""Whether what is left of an interrupted snapshot still means the same rows."""

from __future__ import annotations

import pytest
from kit.decode_builder import column, table
from kit.memory_job import config

from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext
from airflow_provider_mysql_cdc.cdc.errors import SchemaError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import Column, TableId
from airflow_provider_mysql_cdc.cdc.snapshot import ddl_between
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk
from airflow_provider_mysql_cdc.cdc.snapshot.ddl_between import LoggedStatement, follow_tables
from airflow_provider_mysql_cdc.cdc.snapshot.remaining_chunks import ResolvedChunk, require_same_keys
from airflow_provider_mysql_cdc.cdc.snapshot.table_lineage import TableLineages

T = TableId("db", "t")
CHUNK = SnapshotChunk(T, 1, ("id", "n"), (5, "x"), None, kinds=("SIGNED", "utf8mb4 utf8mb4_bin"))
ID = column("id", "INT", nullable=False)
NAME = column("n", "VARCHAR", charset="utf8mb4", collation="utf8mb4_bin", length=9, nullable=False)


def require(*columns: Column) -> None:
    require_same_keys([ResolvedChunk.unmoved(CHUNK)], {T: table(*columns, key=("id", "n"))})


def test_columns_outside_the_key_may_change() -> None:
    require(ID, NAME, column("more", "JSON"))
    require(column("id", "BIGINT", nullable=False), NAME)


@pytest.mark.parametrize(
    "columns",
    [
        (column("id", "BIGINT", unsigned=True, nullable=False), NAME),
        (ID, column("n", "VARCHAR", charset="utf8mb4", collation="utf8mb4_0900_ai_ci", length=9, nullable=False)),
        (ID, column("n", "VARCHAR", charset="latin1", collation="latin1_bin", length=9, nullable=False)),
        (ID, column("renamed", "VARCHAR", charset="utf8mb4", collation="utf8mb4_bin", length=9, nullable=False)),
    ],
    ids=["unsigned", "collation", "character set", "name"],
)
def test_bounds_of_a_key_that_was_changed_mean_other_rows(columns: tuple[Column, ...]) -> None:
    with pytest.raises(SchemaError, match="key of a partly read table was changed") as caught:
        require(*columns)
    name = "n" if columns[0] == ID else "id"
    assert caught.value.where == f"table db.t, column {name}" and "again=true" in caught.value.remedy
    assert f"bounded by {name} as" in caught.value.why
    assert ("now" in caught.value.why) == all(c.name in ("id", "n") for c in columns)


def test_a_statement_that_is_not_understood_counts_where_it_can_be_about_a_captured_table() -> None:
    def between(sql: str) -> LoggedStatement:
        return LoggedStatement(sql, DdlContext("db"), (1, 100), "binlog.000001:80")

    told: list[str] = []
    given = ["RENAME TABLE t NACH z", "ALTER TABLE other.t FROBNICATE x", "RENAME TABLE t TO z"]
    lives = follow_tables(
        TableLineages.of([T]), map(between, given), lambda t: t.db == "db", lambda s: told.append(s.sql)
    )
    assert told == given[:1]
    assert lives.lineages[0].name == TableId("db", "z")


def test_tables_that_came_after_the_list_was_read_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their rows stand in no chunk, and before the position where the drain begins."""
    given = [
        "CREATE TABLE born (i INT)",
        "CREATE TABLE other.stranger (i INT)",
        "RENAME TABLE other.x TO moved",
        "CREATE TABLE short (i INT)",
        "DROP TABLE short",
        "ALTER TABLE t FROBNICATE x",
    ]
    found = (LoggedStatement(sql, DdlContext("d"), (1, 100), "binlog.000001:80") for sql in given)
    monkeypatch.setattr(ddl_between, "statements_between", lambda *_: found)
    cfg = config(database__include__list="d")
    start, listed = BinlogOffset("binlog.000001", 4), [TableId("d", "t")]
    assert ddl_between.tables_created_since(cfg, listed, start, start.with_position(start.file, 900), 0) == [
        "d.born",
        "d.moved",
        "binlog.000001:80: ALTER TABLE t FROBNICATE x",
    ]
