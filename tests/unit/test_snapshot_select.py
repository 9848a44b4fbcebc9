"""Which rows a snapshot reads: whole tables, chunks, statements of one's own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pymysql
import pytest
from decode_builder import column, table

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.drain.key_filters import HeldChunk, KeyFilters
from airflow_provider_mysql_cdc.cdc.drain.read_at import ReadAt
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, SourceConnectionError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk
from airflow_provider_mysql_cdc.cdc.snapshot.select import check_override, chunk_sql, read_whole

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


@pytest.mark.parametrize(
    ("properties", "whole"),
    [
        ({}, False),
        ({"column.exclude.list": "db.t.id"}, False),
        ({"field.name.adjustment.mode": "avro"}, False),
        ({"message.key.columns": "db.t:n,id"}, False),
        ({"message.key.columns": "db.t:n"}, True),
        ({OVERRIDES: "db.t", f"{OVERRIDES}.db.t": "SELECT 1"}, True),
        (
            {
                "converters": "c",
                "c.type": "io.debezium.connector.mysql.converters.TinyIntOneToBooleanConverter",
            },
            True,
        ),
    ],
)
def test_a_table_is_one_chunk_when_keys_do_not_tell_the_chunk(properties: dict[str, str], whole: bool) -> None:
    assert read_whole(config(properties), T) is whole


def test_a_chunk_is_read_in_key_order_with_the_columns_that_are_shown() -> None:
    cfg = config({"column.exclude.list": "db.t.x"})
    chunk = SnapshotChunk(T.id, 1, ("id",), (3,), None)
    assert chunk_sql(cfg, Server(), T, chunk) == "SELECT `id`, `n` FROM `db`.`t` WHERE (`id` > 3) ORDER BY `id`, `n`"
    assert chunk_sql(config(), Server(), T, SnapshotChunk(T.id, 0)).endswith(
        "`x` * 1e0 AS `x` FROM `db`.`t` WHERE TRUE"
    )


@pytest.mark.req("SNAP-50", "SNAP-51")
def test_a_statement_of_ones_own_is_asked_for_the_columns_it_gives() -> None:
    cfg = config({OVERRIDES: "db.t", f"{OVERRIDES}.db.t": "SELECT N, id FROM db.t -- all"})
    sql = chunk_sql(cfg, Server("N", "id"), T, SnapshotChunk(T.id, 0))
    assert sql == "SELECT `id`, `n`, NULL FROM (SELECT N, id FROM db.t -- all\n) AS snapshot_rows"
    with pytest.raises(ConfigError, match="cannot be NULL: n"):
        check_override(cfg, Server("id", "x"), T)
    with pytest.raises(ConfigError, match="cannot be used"):
        check_override(cfg, Server(error=pymysql.err.ProgrammingError(1064, "syntax")), T)
    with pytest.raises(SourceConnectionError):
        check_override(cfg, Server(error=pymysql.err.OperationalError(2013, "lost")), T)
    check_override(config(), Server(error=AssertionError()), T)


@pytest.mark.req("COL-15")
def test_filters_of_a_resumed_snapshot_read_adjusted_names() -> None:
    made = table(column("a b", "INT", nullable=False), key=("a b",))
    chunk = SnapshotChunk(made.id, 0, ("a b",), None, (5,))
    held = HeldChunk(chunk, ReadAt(BinlogOffset("binlog.000001", 100)))
    filters = KeyFilters(config({"field.name.adjustment.mode": "avro"}), {made.id: [held]})
    event: Any = SimpleNamespace(file="binlog.000001", end_pos=50)
    records: list[Any] = [(b'{"a_b":5}', b"", 0, 0, None), (b'{"a_b":6}', b"", 1, 0, None)]
    assert filters.keep(made.id, records, event) == records[1:]


def kept(chunk: SnapshotChunk, *keys: bytes | None) -> list[bytes | None]:
    filters = KeyFilters(config(), {chunk.table: [HeldChunk(chunk, ReadAt(BinlogOffset("binlog.000001", 100)))]})
    event: Any = SimpleNamespace(file="binlog.000001", end_pos=50)
    records: list[Any] = [(key, b"", row, 0, None) for row, key in enumerate(keys)]
    return [r[0] for r in filters.keep(chunk.table, records, event)]


@pytest.mark.parametrize("schema", [False, True])
def test_a_key_lies_in_one_chunk_of_two_neighbours(schema: bool) -> None:
    keys = [b'{"id":%d}' % n for n in range(3, 9)]
    if schema:
        keys = [b'{"schema":{},"payload":%b}' % key for key in keys]
    assert kept(SnapshotChunk(T.id, 0, ("id",), None, (5,)), *keys) == keys[3:]
    assert kept(SnapshotChunk(T.id, 1, ("id",), (5,), (7,)), *keys) == [*keys[:3], keys[5]]
    assert kept(SnapshotChunk(T.id, 2, ("id",), (7,), None), *keys) == keys[:5]


def test_a_whole_table_holds_every_key_and_rows_without_one() -> None:
    assert kept(SnapshotChunk(T.id, 0), b'{"id":1}', None) == []
    assert kept(SnapshotChunk(T.id, 0, ("id",)), b'{"id":1}') == []


def test_unsigned_keys_are_compared_as_the_column_does() -> None:
    """Shown as Java's long, whose upper half is negative, or as the bytes of a decimal."""
    chunk = SnapshotChunk(T.id, 1, ("id",), (2**63 - 1,), None, kinds=("UNSIGNED",))
    signed = SnapshotChunk(T.id, 1, ("id",), (2**63 - 2,), None, kinds=("SIGNED",))
    decimal = b'{"id":"AIAAAAAAAAAA"}'  # 0x00 80 00 00 00 00 00 00 00
    assert kept(chunk, b'{"id":-9223372036854775808}', b'{"id":-1}', decimal, b'{"id":7}') == [b'{"id":7}']
    assert kept(signed, b'{"id":-1}') == [b'{"id":-1}']
