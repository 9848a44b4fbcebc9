"""Which rows a snapshot reads: whole tables, chunks, statements of one's own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pymysql
import pytest
from kit.decode_builder import body, column, image, table, table_map

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.drain.chunk_lookup import ChunkLookup
from airflow_provider_mysql_cdc.cdc.drain.chunk_visibility import ChunkVisibility
from airflow_provider_mysql_cdc.cdc.drain.snapshot_filter import EventRows, SnapshotFilter
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, SourceConnectionError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk
from airflow_provider_mysql_cdc.cdc.snapshot.select import check_override, chunk_sql, single_chunk_required

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
    assert single_chunk_required(config(properties), T) is whole


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
    with pytest.raises(ConfigError, match="does not select NOT NULL columns: n"):
        check_override(cfg, Server("id", "x"), T)
    with pytest.raises(ConfigError, match="cannot be used"):
        check_override(cfg, Server(error=pymysql.err.ProgrammingError(1064, "syntax")), T)
    with pytest.raises(SourceConnectionError):
        check_override(cfg, Server(error=pymysql.err.OperationalError(2013, "lost")), T)
    check_override(config(), Server(error=AssertionError()), T)


@pytest.mark.req("COL-15")
def test_filters_of_a_resumed_snapshot_do_not_depend_on_adjusted_names() -> None:
    made = table(column("a b", "INT", nullable=False), key=("a b",))
    chunk = SnapshotChunk(made.id, 0, ("a b",), None, (5,), kinds=("SIGNED",))
    held = ChunkLookup([chunk], ChunkVisibility(BinlogOffset("binlog.000001", 100)))
    filters = SnapshotFilter(config({"field.name.adjustment.mode": "avro"}), {made.id: [held]})
    filters.prepare_table(made, table_map((3, 0)))
    buf, pos, end = body(*(image(1, value.to_bytes(4, "little")) for value in (5, 6)), columns=1)
    event: Any = SimpleNamespace(file="binlog.000001", end_pos=50, buf=buf, end=end)
    records: list[Any] = [(b'{"a_b":5}', b"", 0, 0, None, None), (b'{"a_b":6}', b"", 1, 0, None, None)]
    assert filters.outside_chunks(made.id, records, event, EventRows(event, pos, 0)) == records[1:]


def kept(chunk: SnapshotChunk, *keys: int) -> list[int]:
    held = ChunkLookup([chunk], ChunkVisibility(BinlogOffset("binlog.000001", 100)))
    inside = held.matching_keys({key: (key,) for key in keys}, pytest.fail)
    return [key for key in keys if key not in inside]


def test_a_key_lies_in_one_chunk_of_two_neighbours() -> None:
    keys = range(3, 9)
    assert kept(SnapshotChunk(T.id, 0, ("id",), None, (5,)), *keys) == [6, 7, 8]
    assert kept(SnapshotChunk(T.id, 1, ("id",), (5,), (7,)), *keys) == [3, 4, 5, 8]
    assert kept(SnapshotChunk(T.id, 2, ("id",), (7,), None), *keys) == [3, 4, 5, 6, 7]


def test_a_whole_table_holds_every_key_and_rows_without_one() -> None:
    event: Any = SimpleNamespace(file="binlog.000001", end_pos=50)
    records: list[Any] = [(b'{"id":1}', b"", 0, 0, None, None), (None, b"", 1, 0, None, None)]
    for chunk in (SnapshotChunk(T.id, 0), SnapshotChunk(T.id, 0, ("id",))):
        held = ChunkLookup([chunk], ChunkVisibility(BinlogOffset("binlog.000001", 100)))
        assert (
            SnapshotFilter(config(), {T.id: [held]}).outside_chunks(T.id, records, event, EventRows(event, 0, 0)) == []
        )


@pytest.mark.parametrize("unsigned", [True, False])
def test_unsigned_keys_are_compared_as_the_column_does(unsigned: bool) -> None:
    made = table(column("id", "BIGINT", unsigned=unsigned, nullable=False), key=("id",))
    low = 2**63 - 1 if unsigned else 2**63 - 2
    chunk = SnapshotChunk(made.id, 1, ("id",), (low,), None, kinds=("UNSIGNED" if unsigned else "SIGNED",))
    filters = SnapshotFilter(
        config(), {made.id: [ChunkLookup([chunk], ChunkVisibility(BinlogOffset("binlog.000001", 100)))]}
    )
    filters.prepare_table(made, table_map((8, 0)))
    keys = [2**63, 2**64 - 1, 7]
    buf, pos, end = body(*(image(1, key.to_bytes(8, "little")) for key in keys), columns=1)
    event: Any = SimpleNamespace(file="binlog.000001", end_pos=50, buf=buf, end=end)
    records: list[Any] = [(b"", b"", row, 0, None, None) for row in range(3)]
    left = filters.outside_chunks(made.id, records, event, EventRows(event, pos, 0))
    assert left == (records[2:] if unsigned else records)
