"""Positions are compared only within one binlog."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_mysql_cdc.cdc.errors import StateError
from airflow_provider_mysql_cdc.cdc.model.offset import (
    BinlogOffset,
    comparable,
    compare_offsets,
    moves_back,
    same_position,
)

PACKAGE = Path(__file__).resolve().parents[3] / "airflow_provider_mysql_cdc"
A, B = "aaaaaaaa-0000-0000-0000-000000000001", "bbbbbbbb-0000-0000-0000-000000000002"

offsets = st.builds(
    BinlogOffset,
    st.sampled_from(["binlog.000001", "binlog.000002", "binlog.1000000", "other.000001"]),
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
        return
    assert not moves_back(a, b) and not moves_back(b, a)
    with pytest.raises(StateError):
        compare_offsets(a, b)
    if same_position(a, b):
        assert a.server_uuid != b.server_uuid and a.gtids and a.gtids == b.gtids


def test_positions_of_another_server_or_of_a_file_behind_a_reset_have_no_order() -> None:
    here = BinlogOffset("binlog.000001", 5, None, A, "1.x")
    assert comparable(here, BinlogOffset("binlog.000001", 4, None, A.upper(), "1"))
    assert not comparable(here, BinlogOffset("binlog.000001", 4, None, B, "1.x"))
    assert not comparable(here, BinlogOffset("binlog.000001", 4, None, A, "1.y"))


def test_files_are_ordered_by_number_and_those_of_another_base_name_not_at_all() -> None:
    one, two = BinlogOffset("binlog.999999", 900), BinlogOffset("binlog.1000000", 4)
    assert compare_offsets(one, two) == -1 and two.covers("binlog.999999", 901)
    assert not comparable(one, BinlogOffset("other.000001", 4))
    with pytest.raises(StateError, match="log_bin was changed"):
        compare_offsets(one, BinlogOffset("other.000001", 4))


def test_raw_positions_are_compared_in_one_place_only() -> None:
    """Everywhere else the functions of ``model/offset.py`` and ``covers`` ask whose they are.

    These are ``compare_offsets``, ``same_position``, and ``moves_back``.
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
