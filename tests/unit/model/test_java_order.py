"""Lists of table names stand in the order in which Java walks a set of their ids."""

from __future__ import annotations

from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.model.java import hash_set_order, java_hash


@for_each(("text", "value"), [("", 0), ("a", 97), ("hello", 99162322), ("😀", 1772899)])
def test_hash_is_that_of_java_strings(text: str, value: int) -> None:
    assert java_hash(text) == value


def test_order_is_the_one_recorded_for_a_rename_of_three_tables() -> None:
    assert hash_set_order(["ddldb.sw_t", "ddldb.sw1", "ddldb.sw2"]) == ["ddldb.sw2", "ddldb.sw1", "ddldb.sw_t"]


def test_equal_texts_stand_once_and_many_texts_all_stand() -> None:
    many = [f"db.t{i}" for i in range(40)]
    assert sorted(hash_set_order(many + many)) == sorted(many)


def test_texts_of_one_bucket_keep_their_order() -> None:
    # "Aa" and "BB" have the same hash code in Java.
    assert hash_set_order(["BB", "Aa"]) == ["BB", "Aa"]
    assert hash_set_order(["Aa", "BB"]) == ["Aa", "BB"]
