"""The bounds of chunks: which types have them, in which written form they are stored, and as which SQL literal.

Which rows a snapshot reads: whole tables, chunks, statements of one's own.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pymysql
import pytest
from kit.cases import for_each
from kit.decode_builder import column, table

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, DamagedRecordError, SourceConnectionError
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import (
    Bound,
    SnapshotChunk,
    check_override,
    chunk_columns,
    chunk_condition,
    chunk_sql,
)
from airflow_provider_mysql_cdc.cdc.snapshot.key_kinds import key_kind_of, kind_name


def chunks_at(kind: str, *bounds: Any) -> list[SnapshotChunk]:
    edges: list[Bound | None] = [None, *((b,) for b in bounds), None]
    pairs = list(pairwise(edges))
    last = len(pairs) - 1
    return [
        SnapshotChunk(TableId("d", "t"), n, ("k",), low, high, n == last, 1, (kind,))
        for n, (low, high) in enumerate(pairs)
    ]


@for_each(
    ("kind", "value"),
    [
        ("DATE", "2020-01-01' OR '1"),
        ("DATE", "2020-01-01\n"),
        ("DATE", "20200101"),
        ("DATE", "\u0662020-01-01"),
        ("DATE", 20200101),
        ("DATETIME 0", "2020-01-01 00:00:00.0"),
        ("DATETIME 3", "2020-01-01 00:00:00"),
        ("DATETIME 7", "2020-01-01 00:00:00.0000000"),
        ("TIMESTAMP 0", "2020-01-01T00:00:00"),
        ("TIME 0", "--01:00:00"),
        ("TIME 0", "1000:00:00"),
        ("DECIMAL 10 2", "1.5"),
        ("DECIMAL 10 2", "1e5"),
        ("DECIMAL 10 2", "1.50 OR TRUE"),
        ("DECIMAL 10 2", 1.5),
        ("DECIMAL 5 0", "123456789"),
        ("DECIMAL 66 0", "1"),
        ("DECIMAL 10 2 ZEROFILL", "1.50"),
        ("BINARY 2", "61"),
        ("BINARY 2", "61FF"),
        ("BINARY 2", "x'61"),
        ("VARBINARY", "6"),
        ("VARBINARY", "zz"),
        ("VARBINARY 3", "61"),
        ("YEAR", "2000"),
        ("YEAR", True),
        ("date", "2020-01-01"),
    ],
)
def test_what_a_record_says_of_a_key_is_of_a_closed_form(kind: str, value: Any) -> None:
    (good,) = chunks_at("SIGNED")
    data = good.to_json() | {"columns": ["k"], "kinds": [kind], "low": [value]}
    with pytest.raises(DamagedRecordError, match=r"kinds|low"):
        SnapshotChunk.from_json(data)


def test_literals() -> None:
    chunk = chunks_at("TIME 1", "-01:00:00.5")[1]
    assert chunk_condition(chunk) == "(`k` > TIME'-01:00:00.5')"
    assert chunk_condition(chunks_at("VARBINARY", "")[0]) == "(`k` <= x'')"
    assert chunk_condition(chunks_at("TIMESTAMP 0", "0000-00-00 00:00:00")[0]) == "(`k` <= '0000-00-00 00:00:00')"
    assert chunk_condition(chunks_at("DECIMAL 4 1", "-0.5")[0]) == "(`k` <= -0.5)"


@for_each("name", ["FLOAT", "DOUBLE", "BIT", "ENUM", "SET", "TEXT", "BLOB", "JSON", "GEOMETRY"])
def test_other_types_bound_no_chunk(name: str) -> None:
    made = table(column("a", "DATE", nullable=False), column("b", name, nullable=False), key=("a", "b"))
    assert chunk_columns(made) == ("a",)
    assert kind_name(made.columns[1]) is None


def test_kinds_follow_the_definition() -> None:
    named = {
        "DATETIME 0": column("c", "DATETIME"),
        "TIMESTAMP 6": column("c", "TIMESTAMP", length=6),
        "DECIMAL 10 0": column("c", "DECIMAL"),
        "DECIMAL 65 30 UNSIGNED": column("c", "DECIMAL", length=65, scale=30, unsigned=True),
        "BINARY 1": column("c", "BINARY"),
        "BINARY 255": column("c", "BINARY", length=255),
        "BINARY 4": column("c", "CHAR", length=4, charset="binary", collation="binary"),
        "VARBINARY": column("c", "VARBINARY", length=9),
        "UNSIGNED": column("c", "BIGINT", unsigned=True),
        "SIGNED": column("c", "INT"),
        "YEAR": column("c", "YEAR"),
    }
    assert {name: kind_name(made) for name, made in named.items()} == {name: name for name in named}
    assert all(key_kind_of(name) is not None for name in named)


BASE = {"topic.prefix": "p", "database.hostname": "h", "database.user": "u", "kafka.bootstrap.servers": "k:1"}
OVERRIDES = "snapshot.select.statement.overrides"
T = table(
    column("id", "TINYINT", length=1, nullable=False),
    column("n", "VARCHAR", charset="utf8mb4", length=9, nullable=False),
    column("x", "FLOAT"),
    key=("id", "n"),
)


def config(properties: dict[str, str] | None = None) -> ConnectorConfig:
    return ConnectorConfig.from_properties({**BASE, **(properties or {})})


class Server:
    """Answer the look at a statement with column names, or with an error."""

    def __init__(self, *names: str, error: Exception | None = None) -> None:
        self._names, self._error = names, error
        self.description = [(n,) for n in names]
        self.asked: list[str] = []

    def cursor(self) -> Any:
        return self

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def execute(self, sql: str) -> None:
        self.asked.append(sql)
        if self._error:
            raise self._error


def test_a_chunk_is_read_in_key_order_with_the_columns_that_are_shown() -> None:
    cfg = config({"column.exclude.list": "db.t.x"})
    chunk = SnapshotChunk(T.id, 1, ("id",), (3,), None, kinds=("SIGNED",))
    assert chunk_sql(cfg, Server(), T, chunk) == "SELECT `id`, `n` FROM `db`.`t` WHERE (`id` > 3) ORDER BY `id`, `n`"
    assert chunk_sql(config(), Server(), T, SnapshotChunk(T.id, 0)).endswith(
        "`x` * 1e0 AS `x` FROM `db`.`t` WHERE TRUE"
    )


@pytest.mark.req("SNAP-50", "SNAP-51")
def test_a_statement_of_ones_own_is_asked_for_the_columns_it_gives() -> None:
    cfg = config({OVERRIDES: "db.t", f"{OVERRIDES}.db.t": "SELECT N, id FROM db.t -- all"})
    sql = chunk_sql(cfg, Server("N", "id"), T, SnapshotChunk(T.id, 0))
    assert sql == "SELECT `id`, `n`, NULL FROM (SELECT N, id FROM db.t -- all\n) AS snapshot_rows"
    with pytest.raises(ConfigError, match="does not select NOT NULL columns: n"):
        check_override(cfg, Server("id", "x"), T)
    with pytest.raises(ConfigError, match="cannot be used"):
        check_override(cfg, Server(error=pymysql.err.ProgrammingError(1064, "syntax")), T)
    with pytest.raises(SourceConnectionError):
        check_override(cfg, Server(error=pymysql.err.OperationalError(2013, "lost")), T)
    check_override(config(), Server(error=AssertionError()), T)
