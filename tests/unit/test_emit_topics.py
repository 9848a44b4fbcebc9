"""Topic names, and the refusal of names that cannot be told apart."""

from __future__ import annotations

import pytest

from airflow_provider_mysql_cdc.cdc.emit import topics
from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.model.table import TableId


@pytest.mark.req("TOPIC-01", "TOPIC-02", "EVT-04")
@pytest.mark.parametrize(
    ("table", "topic"),
    [
        (TableId("inventory", "orders"), "fulfillment.inventory.orders"),
        (TableId("tdb", "Weird Name-$x"), "fulfillment.tdb.Weird_Name-_x"),
        (TableId("d", "ünï"), "fulfillment.d._n_"),
        (TableId("d", "😀x"), "fulfillment.d.__x"),
    ],
)
def test_table_topics(table: TableId, topic: str) -> None:
    assert topics.topic_name("fulfillment", table) == topic


@pytest.mark.req("TOPIC-06", "TOPIC-09", "TXN-06")
def test_other_topics() -> None:
    assert topics.schema_change_topic("p.1") == "p.1"
    assert topics.transaction_topic("p") == "p.transaction"
    assert topics.heartbeat_topic("p") == "__debezium-heartbeat.p"
    assert topics.heartbeat_topic("p", "hb") == "hb.p"


@pytest.mark.req("FAULT-32", "EVT-05")
def test_every_collision_is_named() -> None:
    tables = [TableId("d", "a b"), TableId("d", "a_b"), TableId("d", "c"), TableId("d.e", "f"), TableId("d", "e.f")]
    with pytest.raises(ConfigError) as caught:
        topics.table_topics("p", tables)
    assert "p.d.a_b: d.a b, d.a_b" in caught.value.where
    assert "p.d.e.f: d.e.f, d.e.f" in caught.value.where
    assert "p.d.c" not in caught.value.where


@pytest.mark.req("FAULT-32")
def test_a_table_cannot_take_a_reserved_topic() -> None:
    with pytest.raises(ConfigError, match=r"the topic p\.d\.t itself, d\.t"):
        topics.table_topics("p", [TableId("d", "t")], reserved=["p", "p.d.t"])


def test_a_name_longer_than_kafka_allows_is_refused() -> None:
    with pytest.raises(ConfigError, match="longer than 249"):
        topics.table_topics("p" * 130, [TableId("d" * 60, "t" * 60)])


def test_names_that_stay_apart_pass() -> None:
    found = topics.table_topics("p", [TableId("d", "a"), TableId("d", "A")], reserved=["p"])
    assert found == {TableId("d", "a"): "p.d.a", TableId("d", "A"): "p.d.A"}
