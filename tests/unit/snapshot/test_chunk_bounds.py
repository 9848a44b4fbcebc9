"""The bounds of chunks: which types have them, in which written form they are stored, and as which SQL literal."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from kit.cases import for_each
from kit.decode_builder import column, table

from airflow_provider_mysql_cdc.cdc.errors import DamagedRecordError
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import Bound, SnapshotChunk, chunk_columns, chunk_condition
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
