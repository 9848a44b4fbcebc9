"""Positions are compared only within one binlog."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_mysql_cdc.cdc.drain.chunk_lookup import ChunkLookup
from airflow_provider_mysql_cdc.cdc.drain.chunk_visibility import (
    UNKNOWN_TRANSACTION,
    ChunkVisibility,
    CommittingTransaction,
    is_passed,
)
from airflow_provider_mysql_cdc.cdc.errors import StateError
from airflow_provider_mysql_cdc.cdc.model.gtid import GtidSet
from airflow_provider_mysql_cdc.cdc.model.offset import (
    BinlogOffset,
    comparable,
    compare_offsets,
    earliest_offset,
    moves_back,
    same_position,
)
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk

PACKAGE = Path(__file__).resolve().parents[3] / "airflow_provider_mysql_cdc"
A, B = "aaaaaaaa-0000-0000-0000-000000000001", "bbbbbbbb-0000-0000-0000-000000000002"

offsets = st.builds(
    BinlogOffset,
    st.sampled_from(["binlog.000001", "binlog.000002", "binlog.1000000"]),
    st.integers(4, 6),
    st.sampled_from([None, "", f"{A}:1-5", f"{A}:1-6"]),
    st.sampled_from([None, A, B]),
    st.sampled_from([None, "1.x", "1.x.y", "1.x.z", "2.v"]),
)


@given(offsets, offsets)
def test_an_order_has_two_sides_and_foreign_offsets_have_none(a: BinlogOffset, b: BinlogOffset) -> None:
    assert comparable(a, b) == comparable(b, a)
    if comparable(a, b):
        assert compare_offsets(a, b) == -compare_offsets(b, a)
        assert same_position(a, b) == (compare_offsets(a, b) == 0)
        assert moves_back(a, b) == (compare_offsets(b, a) < 0)
        assert earliest_offset([a, b]) == (a if compare_offsets(a, b) <= 0 else b)
        return
    assert not moves_back(a, b) and not moves_back(b, a)
    with pytest.raises(StateError):
        compare_offsets(a, b)
    with pytest.raises(StateError):
        earliest_offset([a, b])
    if same_position(a, b):
        assert a.server_uuid != b.server_uuid and a.gtids and a.gtids == b.gtids


def place(pos: int, gtids: str | None, server: str = A, origin: str | None = "1.x", number: int = 1) -> BinlogOffset:
    return BinlogOffset(f"binlog.{number:06}", pos, gtids, server, origin)


READ = place(500, f"{A}:1-20")


@pytest.mark.parametrize(
    ("start", "contained", "not_contained"),
    [
        (place(400, f"{A}:1-10"), (500, f"{A}:20", 0), (501, f"{A}:20", 0)),
        (place(100, f"{A}:1-10", B), (9000, f"{A}:20", 5_999_999), (100, f"{A}:21", 1)),
        (place(100, None, B), (9000, f"{A}:1", 1), (100, f"{B}:1", 1)),
        (place(100, None, B), (9000, f"{A}:1", 1), (100, None, 1)),
        (place(100, "", B), (9000, f"{A}:1", 5_999_999), (100, f"{A}:1", 6_000_000)),
        (place(100, "", B), (9000, f"{A}:1", 1), (100, f"{A}:1", 0)),
    ],
    ids=[
        "by place",
        "by GTID",
        "another server's set is not known",
        "without a GTID",
        "the GTID came again after a reset",
        "when it was committed is not known",
    ],
)
def test_what_a_chunk_contains_is_decided_by_position_or_gtid(
    start: BinlogOffset, contained: Any, not_contained: Any
) -> None:
    read = ChunkVisibility.for_stream(start, READ, 5000)
    assert read is not None
    assert [
        read.contains(SimpleNamespace(file="binlog.000001", end_pos=pos), CommittingTransaction(gtid, us))  # type: ignore[arg-type]
        for pos, gtid, us in (contained, not_contained)
    ] == [True, False]


@pytest.mark.parametrize(
    "start",
    [
        place(500, f"{A}:1-20"),
        place(4, "", origin="2.y"),
        place(4, f"{A}:1-10", origin="2.y"),
        place(4, f"{A}:1-20,{B}:1-3", B),
    ],
    ids=["read before", "reset", "reset and loaded again", "failed over to a server that has it all"],
)
def test_a_chunk_that_contains_nothing_of_the_stream_holds_nothing_back(start: BinlogOffset) -> None:
    assert ChunkVisibility.for_stream(start, READ, 5000) is None


def test_without_gtids_nothing_is_held_back_on_another_server() -> None:
    assert ChunkVisibility.for_stream(place(4, None, B), place(500, None), 5000) is None


def test_without_the_time_of_its_view_a_chunk_holds_nothing_back_on_another_server() -> None:
    assert ChunkVisibility.for_stream(place(100, f"{A}:1-10", B), READ) is None


def at(pos: int, number: int = 1) -> Any:
    return SimpleNamespace(file=f"binlog.{number:06}", end_pos=pos, where=lambda: f"binlog:{pos}")


def test_a_name_counts_from_where_to_where_it_was_the_tables() -> None:
    chunk = SnapshotChunk(TableId("d", "t"), 0)
    read = ChunkVisibility(READ)
    since_then = ChunkLookup([chunk], read, (1, 100), (1, 300))
    assert [since_then.contains(at(pos), UNKNOWN_TRANSACTION) for pos in (100, 101, 300, 301)] == [
        False,
        True,
        True,
        False,
    ]
    to_the_view = ChunkLookup([chunk], read, (1, 100))
    assert [to_the_view.contains(at(pos), UNKNOWN_TRANSACTION) for pos in (100, 101, 500, 501)] == [
        False,
        True,
        True,
        False,
    ]
    always = ChunkLookup([chunk], read)
    assert [always.contains(at(pos), UNKNOWN_TRANSACTION) for pos in (4, 500, 501)] == [True, True, False]


def test_where_a_table_was_renamed_means_nothing_on_another_server() -> None:
    read = ChunkVisibility(READ, GtidSet.parse(READ.gtids), 2)
    chunk = SnapshotChunk(TableId("d", "t"), 0)
    assert ChunkLookup([chunk], read).contains(at(9000), CommittingTransaction(f"{A}:20", 1))
    renamed = ChunkLookup([chunk], read, (1, 100))
    with pytest.raises(StateError, match="is not known on this server"):
        renamed.contains(at(9000), CommittingTransaction(f"{A}:20", 1))
    assert not renamed.contains(at(9000), CommittingTransaction(f"{A}:21", 1))


@pytest.mark.parametrize(
    ("end", "done"),
    [
        (place(499, None), False),
        (place(500, None), True),
        (place(4, None, number=2), True),
        (place(4, f"{A}:1-20,{B}:1", B), True),
        (place(9000, f"{A}:1-19", B), False),
        (place(9000, None, B), False),
    ],
)
def test_a_filter_is_kept_until_the_stream_has_passed_it(end: BinlogOffset, done: bool) -> None:
    assert is_passed({"offset": READ.to_json()}, end) == done


def test_raw_positions_are_compared_in_one_place_only() -> None:
    """Everywhere else the functions of ``model/offset.py`` and ``covers`` ask whose they are.

    These are ``compare_offsets``, ``same_position``, ``moves_back`` and ``earliest_offset``.
    """
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.relative_to(PACKAGE) != Path("cdc/model/offset.py"):
            found += [f"{path.name}:{node.lineno}" for node in ast.walk(ast.parse(path.read_text())) if takes_key(node)]
    assert found == []


def takes_key(node: ast.AST) -> bool:
    """Return whether a node is ``x.key()``, except of a message of Kafka's client, or ``BinlogOffset.key``."""
    if isinstance(node, ast.Call) and not node.args and isinstance(node.func, ast.Attribute):
        return node.func.attr == "key" and ast.unparse(node.func.value) != "message"
    return isinstance(node, ast.Attribute) and ast.unparse(node) == "BinlogOffset.key"


def test_a_raw_comparison_would_be_found() -> None:
    assert takes_key(ast.parse("plan.start.key()", mode="eval").body)
    assert takes_key(ast.parse("BinlogOffset.key", mode="eval").body)
    assert not takes_key(ast.parse("message.key()", mode="eval").body)
