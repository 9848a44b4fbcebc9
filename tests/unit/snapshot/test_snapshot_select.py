"""Which rows a snapshot reads: whole tables, chunks, statements of one's own."""

from __future__ import annotations

from typing import Any

import pymysql
import pytest
from kit.decode_builder import column, table

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, SourceConnectionError
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk
from airflow_provider_mysql_cdc.cdc.snapshot.select import check_override, chunk_sql

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
