"""Parsers of property values, and the matching of names as Debezium does it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.config import parse_value as parse
from airflow_provider_mysql_cdc.cdc.config.enums import Operation, SnapshotMode
from airflow_provider_mysql_cdc.cdc.model.table import TableId


@pytest.mark.req("STRM-12", "STRM-13")
@for_each(
    ("expressions", "name", "matches"),
    [
        ("shop", "shop", True),
        ("shop", "shop2", False),  # an expression is for the whole name
        ("shop", "myshop", False),
        ("shop.*", "shop2", True),
        ("SHOP", "shop", True),  # ASCII letters match without case
        ("shop", "SHOP", True),
        ("straße", "STRASSE", False),
        ("ä", "Ä", False),  # Java's CASE_INSENSITIVE is for ASCII alone
        ("a, b", "b", True),  # entries are trimmed
        ("a,,b", "", False),
        (r"t\d+", "t12", True),
        (r"t\d+", "t\u0661", False),  # \d means ASCII digits in Java
        (r"db.t{1\,2}", "db.tt", True),  # an escaped comma belongs to the expression
        (r"db.t{1\,2}", "db.ttt", False),
        (r"\Qa.b\E.*", "a.bc", True),
        (r"\Qa.b\E.*", "axbc", False),
        (r"(?<x>ab)c", "abc", True),
        (r"db[.](orders|items)", "db.items", True),
        ("db.t", "db.t\n", False),
    ],
)
def test_patterns_match_as_debeziums_do(expressions: str, name: str, matches: bool) -> None:
    assert parse.patterns(expressions).matches(name) is matches


def test_an_empty_list_is_false_and_matches_nothing() -> None:
    assert not parse.patterns("")
    assert not parse.patterns(" , ").matches("")


@for_each("wrong", ["(", "[a-z&&[^b]]", "[[a]]", r"\p{Alpha}+", "a\\", "*a"])
def test_an_expression_that_python_reads_otherwise_than_java_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"cannot be used|escapes nothing"):
        parse.patterns(wrong)


@given(st.lists(st.text(alphabet="ab.*, ", min_size=1).map(str.strip).filter(bool), max_size=5))
def test_entries_with_escaped_commas_come_back_from_a_list(entries: list[str]) -> None:
    assert parse.split_list(",".join(e.replace(",", "\\,") for e in entries)) == entries


@pytest.mark.req("STRM-15")
def test_skipped_operations_are_letters_or_none() -> None:
    assert parse.operations("c, d") == {Operation.CREATE, Operation.DELETE}
    assert parse.operations("none") == frozenset()
    for wrong in ("x", "none,c", "cd"):
        with pytest.raises(ValueError, match="none"):
            parse.operations(wrong)


@pytest.mark.req("COL-13", "COL-14")
def test_message_key_columns_select_columns_by_table_in_the_order_of_the_text() -> None:
    keys = parse.key_columns("inventory.customers:pk2,pk1;(.*).purchaseorders:pk3,pk4")
    columns = ("pk1", "pk2", "pk3", "pk4", "x")
    assert keys.select(TableId("inventory", "customers"), columns) == ("pk2", "pk1")
    assert keys.select(TableId("any", "purchaseorders"), columns) == ("pk3", "pk4")
    assert keys.select(TableId("inventory", "other"), columns) == ()
    assert parse.key_columns("a.t:id.*").select(TableId("a", "t"), ("x", "id1", "id2")) == ("id1", "id2")


@for_each("wrong", ["a.t", "a.t:", ":x", "a.t:x,,y", ";", "a.t:x:y"])
def test_message_key_columns_of_another_form_are_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"form table:column|must not be empty"):
        parse.key_columns(wrong)


def test_numbers_booleans_and_choices_say_what_they_expect() -> None:
    assert parse.integer(1, 10)(" 7 ") == 7
    assert parse.boolean("TRUE") is True
    assert parse.choice(SnapshotMode)("No_Data") is SnapshotMode.NO_DATA
    for call, what in (
        (lambda: parse.integer(1, 10)("11"), "at most 10"),
        (lambda: parse.integer(1, 10)("0"), "at least 1"),
        (lambda: parse.integer(1, 10)("1.5"), "whole number"),
        (lambda: parse.boolean("yes"), "true or false"),
        (lambda: parse.choice(SnapshotMode)("inital"), "one of initial, always"),
        (lambda: parse.topic_part("a b"), "letters, digits"),
        (lambda: parse.topic_part("a" * 250), "249"),
    ):
        with pytest.raises(ValueError, match=what):
            call()


def test_a_snapshot_mode_says_whether_rows_are_read() -> None:
    assert {m.value for m in SnapshotMode if m.reads_rows} == {"initial", "always", "initial_only", "when_needed"}
