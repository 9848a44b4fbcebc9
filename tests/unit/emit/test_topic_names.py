"""Topic names, and the refusal of names that cannot be told apart."""

from __future__ import annotations

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.emit import topic_names
from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.model.table import TableId


@pytest.mark.req("TOPIC-01", "TOPIC-02", "EVT-04")
@for_each(
    ("table", "topic"),
    [
        *((TableId("inventory", t), f"fulfillment.inventory.{t}") for t in ("orders", "customers", "products")),
        (TableId("tdb", "Weird Name-$x"), "fulfillment.tdb.Weird_Name-_x"),
        (TableId("d", "ünï"), "fulfillment.d._n_"),
        (TableId("d", "😀x"), "fulfillment.d.__x"),
    ],
)
def test_table_topics(table: TableId, topic: str) -> None:
    assert topic_names.topic_name("fulfillment", table) == topic


@pytest.mark.req("TOPIC-06", "TOPIC-09", "TXN-06")
def test_other_topics() -> None:
    assert topic_names.schema_change_topic("p.1") == "p.1"
    assert topic_names.transaction_topic("p") == "p.transaction"
    assert topic_names.heartbeat_topic("p") == "__debezium-heartbeat.p"
    assert topic_names.heartbeat_topic("p", "hb") == "hb.p"


@pytest.mark.req("FAULT-32", "EVT-05")
def test_every_collision_is_named() -> None:
    tables = [TableId("d", "a b"), TableId("d", "a_b"), TableId("d", "c"), TableId("d e", "f"), TableId("d_e", "f")]
    with pytest.raises(ConfigError) as caught:
        topic_names.table_topics("p", tables)
    assert "p.d.a_b: d.a b, d.a_b" in caught.value.where
    assert "p.d_e.f: d e.f, d_e.f" in caught.value.where
    assert "p.d.c" not in caught.value.where


@pytest.mark.req("FAULT-32")
def test_a_table_cannot_take_a_reserved_topic() -> None:
    with pytest.raises(ConfigError, match=r"the topic p\.d\.t itself, d\.t"):
        topic_names.table_topics("p", [TableId("d", "t")], reserved=["p", "p.d.t"])


def test_a_name_longer_than_kafka_allows_is_refused() -> None:
    with pytest.raises(ConfigError, match="longer than 249"):
        topic_names.table_topics("p" * 130, [TableId("d" * 60, "t" * 60)])


def test_names_that_stay_apart_pass() -> None:
    found = topic_names.table_topics("p", [TableId("d", "a"), TableId("d", "A")], reserved=["p"])
    assert found == {TableId("d", "a"): "p.d.a", TableId("d", "A"): "p.d.A"}


def owners(*tables: TableId, reserved: tuple[str, ...] = ()) -> topic_names.TopicOwners:
    return topic_names.TopicOwners(
        lambda t: topic_names.topic_name("p", t), str, lambda t: t.db != "no", reserved, tables
    )


@pytest.mark.req("FAULT-32")
def test_a_table_that_comes_into_the_topic_of_another_is_refused() -> None:
    spaced, scored, other = TableId("d", "a b"), TableId("d", "a_b"), TableId("d", "c")
    found = owners(spaced, other)
    found.update_tables({spaced, other, TableId("no", "a b")}, "b.1:4")
    with pytest.raises(ConfigError) as caught:
        found.update_tables({spaced, other, scored}, "b.1:9")
    text = str(caught.value)
    assert "b.1:9" in text and "p.d.a_b: d.a b, d.a_b" in text and "table.exclude.list" in text
    with pytest.raises(ConfigError, match="itself"):
        owners(reserved=("p.d.c",)).update_tables({other}, "b.1:9")
    with pytest.raises(ConfigError, match="longer than 249"):
        owners().update_tables({TableId("d" * 64, "表" * 10), TableId("d" * 190, "t" * 60)}, "b.1:9")
    owners().update_tables({TableId("no", "a b"), TableId("no", "a_b")}, "b.1:9")


DOTTED, PLAIN = TableId("x.y", "z"), TableId("x", "y.z")


def test_tables_whose_dots_are_at_different_places_of_one_text_are_refused() -> None:
    apart: dict[TableId, str] = {DOTTED: "x_y.z", PLAIN: "x.y_z"}
    with pytest.raises(ConfigError, match="cannot be told apart") as caught:
        topic_names.table_topics("p", [DOTTED, PLAIN, TableId("a", "b")])
    assert caught.value.where == '"x"."y.z" and "x.y"."z"' and "database.exclude.list" in caught.value.remedy
    with pytest.raises(ConfigError, match="cannot be told apart"):  # with a dispatcher's names
        topic_names.table_topics("p", [DOTTED, PLAIN], name=lambda t: apart[t])
    for name in (lambda t: topic_names.topic_name("p", t), lambda t: apart[t]):
        found = topic_names.TopicOwners(name, str, lambda t: True, (), [DOTTED])
        with pytest.raises(ConfigError, match=r"cannot be told apart.*b\.1:9; .*one text \(x\.y\.z\)"):
            found.update_tables({DOTTED, PLAIN}, "b.1:9")
        found.update_tables(set(), "dropped")
        found.update_tables({PLAIN}, "the text is free")
        found.update_tables({DOTTED}, "renamed in one statement")
    assert topic_names.table_topics("p", [DOTTED, TableId("x", "z")])
    owners(DOTTED).update_tables({DOTTED, TableId("no", "y.z")}, "b.1:9")


def test_tables_that_follow_one_another_or_change_places_pass() -> None:
    spaced, scored, other = TableId("d", "a b"), TableId("d", "a_b"), TableId("d", "c")
    found = owners(spaced)
    found.update_tables({other}, "dropped, another created")
    found.update_tables({other, scored}, "the topic is free")
    found.update_tables({other, spaced}, "renamed in one statement")
    with pytest.raises(ConfigError):
        found.update_tables({other, spaced, scored}, "and taken again")
