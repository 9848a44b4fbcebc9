"""What stands for values that many tables have in common.

Names without case, as the server compares and stores them.
"""

from __future__ import annotations

from typing import Any

import pytest
from kit.cases import for_each
from kit.decode_builder import column, table, table_map

from airflow_provider_mysql_cdc.cdc.binlog.table_map import TableMap
from airflow_provider_mysql_cdc.cdc.decode import table_check
from airflow_provider_mysql_cdc.cdc.decode.table_check import check_table_map
from airflow_provider_mysql_cdc.cdc.errors import SchemaMismatchError
from airflow_provider_mysql_cdc.cdc.model import table as alike_of
from airflow_provider_mysql_cdc.cdc.model import wire_codes as wt
from airflow_provider_mysql_cdc.cdc.model.table import TableId, folded_name, interned, matching_name


def columns(name: str = "n") -> Any:
    return (column("id", "INT", nullable=False), column(name, "INT"))


def test_equal_values_have_one_stand_in_and_others_another() -> None:
    first, second, other = columns(), columns(), columns("m")
    assert first is not second
    assert interned(first) is interned(second) is interned(first)
    assert interned(other) is not interned(first)
    assert interned(first).value == first


def test_an_id_that_is_used_again_does_not_make_another_value_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects that are gone leave their id to others."""
    mine, theirs = columns(), columns("m")
    monkeypatch.setitem(alike_of._interned_by_id, id(mine), (theirs, interned(theirs)))
    assert interned(mine).value == mine


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alike_of, "_MAX_OBJECTS", 3)
    kept = [columns(f"c{n}") for n in range(10)]
    for one in kept:
        interned(one)
        assert len(alike_of._interned_by_id) <= 3


def announced(layout: bytes, *wires: tuple[int, int]) -> TableMap:
    of = table_map(*wires)
    return TableMap(1, 1, "db", "t", of.column_types, of.column_meta, b"\xfe", b"", layout)


def test_a_table_map_is_compared_once_for_all_tables_with_equal_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    as_known, other = announced(b"int int", (wt.LONG, 0), (wt.LONG, 0)), announced(b"x", (wt.LONG, 0), (wt.SHORT, 0))
    check_table_map(table(*columns("a")), as_known)
    with pytest.raises(SchemaMismatchError):
        check_table_map(table(*columns("a")), other)
    with pytest.raises(SchemaMismatchError):  # what failed is not remembered as what fits
        check_table_map(table(*columns("a")), other)
    with pytest.raises(SchemaMismatchError):  # other columns under the same announcement
        check_table_map(table(columns()[0], column("a", "BIGINT")), as_known)
    monkeypatch.setattr(table_check, "_check", lambda *_: pytest.fail("it is compared again"))
    check_table_map(table(*columns("a")), as_known)


def test_the_comparisons_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_check, "_MAX_MATCHED", 3)
    monkeypatch.setattr(table_check, "_MATCHED", set())
    for n in range(10):
        check_table_map(table(*columns(f"k{n}")), announced(b"int int", (wt.LONG, 0), (wt.LONG, 0)))
        assert len(table_check._MATCHED) <= 3


@for_each(
    ("name", "folded"),
    [
        ("Orders", "orders"),
        ("ÄÖÜ", "äöü"),
        ("ΠΕΛΑΤΗΣ", "πελατησ"),
        ("İstanbul", "istanbul"),
        ("ıI", "ıi"),
        ("ẞß", "ẞß"),
        ("\u212a\u2126", "kω"),
        ("ƠǄǅ", "ơǆǆ"),
        ("ȺԱ", "Ⱥա"),
        ("Ⅷ\uff21", "ⅷ\uff41"),
        ("A😀", "a😀"),
    ],
)
def test_each_letter_is_folded_by_itself(name: str, folded: str) -> None:
    assert folded_name(name) == folded
    assert TableId("D", name).folded() == TableId("d", folded)


def test_names_match_without_case() -> None:
    assert matching_name(["a", "Σ", "ẞ"], "σ") == "Σ"
    assert matching_name(["ẞ", "ß"], "ß") == "ß"
    assert matching_name(["a"], "b") is None


@pytest.mark.req("SCH-39")
@for_each(
    ("name", "quoted"),
    [("t", '"t"'), ('a"b', '"a""b"'), ('"a', '"a'), ('a"', 'a"'), ('"', '"'), ("a`b", '"a`b"'), ("a.b", '"a.b"')],
)
def test_the_id_of_a_table_is_quoted_as_debezium_quotes_it(name: str, quoted: str) -> None:
    assert TableId("d", name).debezium_id() == f'"d".{quoted}'
    assert TableId(name, "t").debezium_id() == f'{quoted}."t"'
