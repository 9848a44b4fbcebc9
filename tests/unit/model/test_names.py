"""Names without case, as the server compares and stores them."""

from __future__ import annotations

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.model.table import TableId, folded_name, matching_name


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
