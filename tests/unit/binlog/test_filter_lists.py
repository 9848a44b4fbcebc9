"""What lists of filters leave out, by the rules of the server."""

from __future__ import annotations

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.binlog.filter_lists import EITHER, NO, YES, Answers, FilterLists
from airflow_provider_mysql_cdc.cdc.model.table import TableId

pytestmark = pytest.mark.quick

ORDERS = TableId("shop", "orders")


@for_each(
    ("texts", "answers"),
    [
        ({}, NO),
        ({"do_db": "shop"}, NO),
        ({"do_db": "crm,shop"}, NO),
        ({"do_db": "crm"}, YES),
        ({"do_db": "SHOP"}, YES),
        ({"ignore_db": "crm"}, NO),
        ({"ignore_db": "Shop"}, NO),
        ({"ignore_db": "crm,shop"}, YES),
        ({"do_db": "shop", "ignore_db": "shop"}, NO),
        ({"do_table": "shop.orders"}, NO),
        ({"do_table": "shop.items"}, YES),
        ({"do_db": "shop", "do_table": "shop.items"}, YES),
        ({"ignore_table": "shop.items"}, NO),
        ({"ignore_table": "shop.order"}, NO),
        ({"ignore_table": "shop.Orders"}, NO),
        ({"ignore_table": "shop.items,shop.orders"}, YES),
        ({"ignore_db": "shop", "do_table": "shop.orders"}, YES),
        ({"do_table": "shop.orders", "ignore_table": "shop.orders"}, NO),
        ({"wild_do_table": "shop.%"}, NO),
        ({"wild_do_table": "shop.o_ders"}, NO),
        ({"wild_do_table": "crm.%"}, YES),
        ({"wild_ignore_table": "shop.it%"}, NO),
        ({"wild_ignore_table": "%.ord%"}, YES),
        ({"wild_ignore_table": "%.ORD%"}, NO),
        ({"wild_ignore_table": r"shop.o\_ders"}, NO),
        ({"wild_ignore_table": "mysql.rds%,crm.%"}, NO),
        ({"wild_do_table": "shop.%", "wild_ignore_table": "shop.orders"}, NO),
        ({"ignore_table": "shop.orders", "wild_do_table": "shop.%"}, YES),
        ({"do_table": "shop.items", "wild_do_table": "shop.%"}, NO),
        ({"rewrite_db": "(a,b)"}, NO),
        ({"rewrite_db": "(a,b),(shop,store)"}, YES),
        ({"rewrite_db": "(a,b),(store,shop)"}, YES),
        ({"of_later_versions": "x"}, YES),
    ],
)
def test_the_rules_of_the_server_decide(texts: dict[str, str], answers: Answers) -> None:
    assert FilterLists(texts).leaves_out(ORDERS, commas=False) == answers


@for_each(
    ("texts", "table", "answers"),
    [
        ({"do_db": "Shop"}, "shop.orders", NO),
        ({"ignore_db": "SHOP"}, "shop.orders", YES),
        ({"ignore_db": "shops"}, "shop.orders", NO),
        ({"ignore_db": "ÄRGER"}, "ärger.orders", YES),
        ({"do_db": "ΣΑΣ"}, "σασ.orders", NO),
        ({"ignore_table": "Shop.ORDERS"}, "shop.orders", YES),
        ({"wild_do_table": "SHOP.%"}, "shop.orders", NO),
        ({"wild_ignore_table": "shop.ORD\\_%"}, "shop.ord_1", YES),
        ({"rewrite_db": "(SHOP,Store)"}, "shop.orders", YES),
        ({"ignore_table": "shop.arger"}, "shop.ärger", EITHER),  # versions differ in what an accent is
        ({"wild_do_table": "shop.ärg%"}, "shop.arger", EITHER),
    ],
)
def test_letter_case_counts_only_where_the_server_has_it(texts: dict[str, str], table: str, answers: Answers) -> None:
    name = TableId(*table.split("."))
    assert FilterLists(texts, ignores_case=True).leaves_out(name) == answers


@for_each(
    ("pattern", "table", "matches"),
    [
        ("shop.__rger", "ärger", True),  # two bytes
        ("shop._rger", "ärger", False),
        ("shop.%rger", "ärger", True),
        ("shop.a\\%", "a%", True),
        ("shop.a\\%", "ab", False),
        ("shop.a\\\\b", "a\\b", True),
        ("shop.a\\", "a\\", True),
        ("shop.a\n_", "a\nb", True),
        ("shop.[a-z]", "[a-z]", True),
        ("sh%.%", "orders", True),
    ],
)
def test_a_pattern_is_compared_byte_by_byte(pattern: str, table: str, matches: bool) -> None:
    lists = FilterLists({"wild_ignore_table": pattern})
    assert lists.leaves_out(TableId("shop", table)) == frozenset({matches})


@for_each(
    ("texts", "table", "answers"),
    [
        ({"do_db": "a,b"}, TableId("a", "t"), EITHER),  # two databases, or the one that is called "a,b"
        ({"do_db": "a,b"}, TableId("b", "t"), EITHER),
        ({"do_db": "a,b"}, TableId("a,b", "t"), EITHER),
        ({"do_db": "a,b"}, TableId("c", "t"), YES),
        ({"ignore_db": "a,b"}, TableId("a", "t"), EITHER),
        ({"ignore_db": "x,a,b,y"}, TableId("a,b", "t"), EITHER),
        ({"ignore_db": "a,x,b"}, TableId("a,b", "t"), NO),
        ({"ignore_db": "a,b"}, TableId("c", "t"), NO),
        ({"ignore_db": ",a"}, TableId("a", "t"), EITHER),
        ({"ignore_table": "a,b.t"}, TableId("a,b", "t"), YES),  # "a" alone is no table
        ({"ignore_table": "a,b.t"}, TableId("b", "t"), NO),
        ({"ignore_table": "a.t,b.t"}, TableId("b", "t"), EITHER),
        ({"ignore_table": "a.t,b.t"}, TableId("a", "t,b.t"), EITHER),
        ({"do_table": "a,b.t,c.t"}, TableId("b", "t"), YES),
        ({"do_table": "a,b.t,c.t"}, TableId("a,b", "t"), EITHER),
        ({"wild_ignore_table": "a.%,b.%"}, TableId("a", "x,b.y"), EITHER),
        ({"wild_ignore_table": "mysql.rds%,b.%"}, TableId("a", "t"), NO),
        ({"wild_do_table": "a.%,b.%", "ignore_table": "a.t"}, TableId("a", "t"), YES),
        ({"wild_do_table": "a.%,b.%"}, TableId("c", "t"), YES),
        ({"rewrite_db": "(a,b),(c,d)"}, TableId("c", "t"), YES),
    ],
)
def test_a_comma_may_belong_to_a_name(texts: dict[str, str], table: TableId, answers: Answers) -> None:
    assert FilterLists(texts).leaves_out(table) == answers


def test_lists_come_under_the_names_that_the_server_has_for_them() -> None:
    lists = FilterLists.of([("Binlog_Do_DB", "a"), ("Binlog_Ignore_DB", "")], ignores_case=False)
    assert lists == FilterLists({"do_db": "a"}) and lists.shown("binlog") == "binlog_do_db=a"
    assert FilterLists.of([("REPLICATE_WILD_DO_TABLE", "a.%")], ignores_case=True).texts == {"wild_do_table": "a.%"}


@for_each(
    ("texts", "passed", "table", "answers"),
    [
        ({"do_db": "a,b"}, ["a.t"], "b.t", NO),
        ({"do_db": "a,b"}, ["a.t"], "c.t", YES),
        ({"do_db": "a,x,b"}, ["x.t"], "b.t", NO),
        ({"do_db": "x,a,b"}, ["x.t"], "b.t", EITHER),
        ({"do_db": "a,a,b"}, ["a.t"], "b.t", EITHER),  # any of the two
        ({"ignore_db": "a,b"}, ["a.t"], "a.u", NO),
        ({"ignore_db": "a,b"}, ["a.t"], "b.t", EITHER),
        ({"do_table": "a.t,a.u"}, ["a.t"], "a.u", NO),
        ({"wild_do_table": "a.%,b.%"}, ["a.t"], "b.t", NO),
        ({"wild_do_table": "a.%,b.%,c.%"}, ["b.t"], "c.t", NO),
        ({"wild_do_table": "a.%,b.%"}, [], "b.t", EITHER),
        ({"wild_do_table": "a.%,b.%", "do_table": "a.t"}, ["a.t"], "b.t", EITHER),
        ({"wild_do_table": "a.%,b.%", "ignore_table": "b.t"}, ["a.t"], "b.t", YES),
    ],
)
def test_rows_that_came_through_tell_what_an_entry_is(
    texts: dict[str, str], passed: list[str], table: str, answers: Answers
) -> None:
    lists = FilterLists(texts)
    for name in passed:
        lists = lists.told_by(TableId(*name.split(".")))
    assert lists.leaves_out(TableId(*table.split("."))) == answers
    assert lists.shown("x") == FilterLists(texts).shown("x")
