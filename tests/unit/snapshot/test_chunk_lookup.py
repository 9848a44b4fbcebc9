"""Finding the chunk of a key: by bisection, in the order of each kind, and only among chunks that follow each other."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest
from kit.decode_builder import column, table

from airflow_provider_mysql_cdc.cdc.drain.chunk_lookup import KEYS_PER_QUERY, ChunkLookup
from airflow_provider_mysql_cdc.cdc.drain.chunk_visibility import ChunkVisibility
from airflow_provider_mysql_cdc.cdc.errors import DamagedRecordError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import Bound, SnapshotChunk, chunk_columns, chunk_condition, kinds_of
from airflow_provider_mysql_cdc.cdc.snapshot.key_kinds import key_kind_of, kind_name

READ = ChunkVisibility(BinlogOffset("binlog.000001", 100))


class Counted(int):
    """A number that counts how often it is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return int(self) == other

    def __lt__(self, other: int) -> bool:
        Counted.compared += 1
        return int(self) < other

    def __gt__(self, other: int) -> bool:
        Counted.compared += 1
        return int(self) > other

    __hash__ = int.__hash__


def chunks_at(kind: str, *bounds: Any) -> list[SnapshotChunk]:
    edges: list[Bound | None] = [None, *((b,) for b in bounds), None]
    pairs = list(pairwise(edges))
    last = len(pairs) - 1
    return [
        SnapshotChunk(TableId("d", "t"), n, ("k",), low, high, n == last, 1, (kind,))
        for n, (low, high) in enumerate(pairs)
    ]


def nobody(sql: str) -> list[tuple[Any, ...]]:
    raise AssertionError(sql)


def test_a_key_is_found_among_a_hundred_thousand_chunks_with_some_twenty_comparisons() -> None:
    chunks = chunks_at("SIGNED", *range(0, 1_000_000, 10))
    held, gaps = ChunkLookup(chunks, READ), ChunkLookup(chunks[::2], READ)
    Counted.compared = 0
    keys: dict[int, Bound] = {n: (Counted(n),) for n in range(-5, 1_000_005, 999)}
    assert held.matching_keys(keys, nobody) == set(keys)
    assert gaps.matching_keys(keys, nobody) == {n for n in keys if (max(n, -9) + 9) // 10 % 2 == 0}
    assert Counted.compared < len(keys) * 2 * 60


class Server:
    """Compare as utf8mb4_bin does, and count the questions."""

    def __init__(self) -> None:
        self.questions = 0

    def __call__(self, sql: str) -> list[tuple[Any, ...]]:
        self.questions += 1
        assert sql.count("UNION ALL") < KEYS_PER_QUERY
        out = []
        for part in sql.split("UNION ALL"):
            key, bound = (bytes.fromhex(h) for h in re.findall(r"_utf8mb4 (?:0x|'')([0-9a-f]*)", part))
            if key > bound:
                out.append((re.search(r"(\d+) AS n", part)[1],))  # type: ignore[index]
        return out


def test_the_server_is_asked_as_often_as_bisection_needs() -> None:
    chunks = chunks_at("utf8mb4 utf8mb4_bin", *(f"k{n:05}" for n in range(0, 5000)))
    keys: dict[str, Bound] = {k: (k,) for k in ("", "k", "k00000", "k000001", "k02500", "k04999", "k05000", "z")}
    server = Server()
    assert ChunkLookup(chunks, READ).matching_keys(keys, server) == set(keys)
    assert server.questions <= 14
    # Without the chunks of 2500 to 2503, and without the last one.
    less = [c for c in chunks if c.high is not None and not "k02500" <= str(c.high[0]) <= "k02503"]
    assert ChunkLookup(less, READ).matching_keys(keys, server) == set(keys) - {"k02500", "k05000", "z"}
    assert ChunkLookup(chunks[2500:2501], READ).matching_keys(keys, server) == {"k02500"}


ORDERED = {
    "SIGNED": [-(2**63), -1, 0, 2**63 - 1],
    "UNSIGNED": [0, 2**63, 2**64 - 1],
    "YEAR": [0, 1901, 2155],
    "DATE": ["0000-00-00", "0001-00-00", "2020-02-00", "2020-02-31", "2020-03-01", "9999-12-31"],
    "DATETIME 2": ["0000-00-00 00:00:00.00", "2020-01-01 00:00:00.09", "2020-01-01 00:00:00.10"],
    "TIMESTAMP 0": ["0000-00-00 00:00:00", "1970-01-01 00:00:01", "2038-01-19 03:14:07"],
    "TIME 3": ["-838:59:59.000", "-100:00:00.000", "-10:00:00.000", "-00:00:00.001", "00:00:00.000", "100:00:00.000"],
    "DECIMAL 65 30": ["-10." + "0" * 30, "-9." + "9" * 30, "-0." + "0" * 29 + "1", "0." + "0" * 30, "9." + "9" * 30],
    "DECIMAL 5 0 UNSIGNED": ["0", "9", "10", "99999"],
    "BINARY 2": ["0000", "0020", "2000", "6100", "ff00"],
    "VARBINARY": ["", "00", "0000", "0020", "61", "6100", "ff"],
}


@pytest.mark.parametrize("kind", ORDERED)
def test_written_forms_come_in_the_order_of_the_values(kind: str) -> None:
    values = ORDERED[kind]
    held = [ChunkLookup([c], READ) for c in chunks_at(kind, *values)]
    keys: dict[int, Bound] = {n: (value,) for n, value in enumerate(values)}
    assert [h.matching_keys(keys, nobody) for h in held] == [*({n} for n in keys), set()]


@pytest.mark.parametrize(
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
    (kind,) = kinds_of(chunk)
    assert kind.standalone_literal("-01:00:00.5") == "-3600500000"
    assert chunk_condition(chunks_at("VARBINARY", "")[0]) == "(`k` <= x'')"
    assert chunk_condition(chunks_at("TIMESTAMP 0", "0000-00-00 00:00:00")[0]) == "(`k` <= '0000-00-00 00:00:00')"
    assert chunk_condition(chunks_at("DECIMAL 4 1", "-0.5")[0]) == "(`k` <= -0.5)"


@pytest.mark.parametrize("case", ["overlap", "columns", "backwards", "open"])
def test_chunks_that_do_not_follow_each_other_are_refused(case: str) -> None:
    first, _, third = chunks_at("SIGNED", 10, 20)
    damaged = {
        "overlap": [first, SnapshotChunk(first.table, 1, ("k",), (5,), (20,), kinds=("SIGNED",))],
        "columns": [first, SnapshotChunk(first.table, 1, ("j",), (10,), (20,), kinds=("SIGNED",))],
        "backwards": [first, SnapshotChunk(first.table, 1, ("k",), (20,), (10,), kinds=("SIGNED",))],
        "open": [first, third, SnapshotChunk(first.table, 3, ("k",), (30,), (40,), kinds=("SIGNED",))],
    }
    assert ChunkLookup([third, first], READ).chunks == [first, third]
    with pytest.raises(DamagedRecordError):
        ChunkLookup(damaged[case], READ)


@pytest.mark.parametrize("name", ["FLOAT", "DOUBLE", "BIT", "ENUM", "SET", "TEXT", "BLOB", "JSON", "GEOMETRY"])
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
    }
    assert {name: kind_name(made) for name, made in named.items()} == {name: name for name in named}
    assert all(key_kind_of(name) is not None for name in named)
