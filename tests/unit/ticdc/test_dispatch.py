"""TiCDC's dispatchers: which topic and which partition a row goes to."""

from __future__ import annotations

import json
from dataclasses import replace
from zlib import crc32

import pytest
from kit.cases import for_each
from kit.decode_builder import column

from airflow_provider_mysql_cdc.cdc.config.ticdc_fields import (
    TableFilter,
    dispatch_rules,
    rule_for,
    topic_of_table,
    validate_expression,
)
from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId, UniqueIndex
from airflow_provider_mysql_cdc.cdc.model.topic_transforms import PartitionRule
from airflow_provider_mysql_cdc.cdc.ticdc.commit_ts import CommitTs, commit_ts
from airflow_provider_mysql_cdc.cdc.ticdc.partition_dispatcher import dispatcher, value_text

ORDERS = Table(
    TableId("shop", "orders"),
    (
        column("id", "BIGINT", 1, nullable=False),
        column("customer", "INT", 2),
        column("code", "INT", 3, nullable=False),
    ),
    ("code", "id"),
    (UniqueIndex("by_code", ("code",)),),
)
AT = commit_ts(1_700_000_000_000_000)


def rules(*items: object) -> str:
    return json.dumps(items)


ALL = {"matcher": ["*.*"], "topic": "tidb_{schema}_{table}"}


@for_each(
    ("patterns", "fits", "does_not"),
    [
        (["*.*"], ["a.b", "shop.orders"], []),
        (["shop.*"], ["shop.orders", "SHOP.Orders"], ["shop2.orders", "myshop.orders"]),
        (["shop?.o*"], ["shop1.orders"], ["shop.orders", "shop1.items"]),
        (["shop[0-3].*", "x[!ab].*"], ["shop2.a", "xc.b"], ["shop4.a", "xa.b"]),
        (["*.*", "!shop.tmp_*"], ["shop.orders", "other.tmp_1"], ["shop.tmp_1"]),
        (["*.*", "!shop.*", "shop.orders"], ["shop.orders", "x.y"], ["shop.items"]),
        (["/^shop[0-9]+$/.orders"], ["shop12.orders"], ["shop.orders", "myshop12.orders"]),
        (["`sh*p`.`a.b`", '"x""'], [], ["shop.a"]),
        (["`sh*p`.`a.b`"], ["sh*p.a.b"], ["shop.a.b"]),
    ],
)
@pytest.mark.req("AVRO-60", "CFG-132")
def test_matchers_are_tidbs_table_filters(patterns: list[str], fits: list[str], does_not: list[str]) -> None:
    if '"x""' in patterns:
        with pytest.raises(ConfigError, match="cannot be read"):
            TableFilter(patterns, "dispatchers")
        return
    found = TableFilter(patterns, "dispatchers")
    assert [name for name in fits if not found.matches(TableId(*name.split(".", 1)))] == []
    assert [name for name in does_not if found.matches(TableId(*name.split(".", 1)))] == []


@for_each("rule", ["orders", "shop.", ".orders", "shop.[a", "/(/.x", "`a.b", "a.b.c", ""])
def test_a_matcher_that_cannot_be_read_is_named(rule: str) -> None:
    with pytest.raises(ConfigError, match=r"cannot be read.*rule 1.*database\.table"):
        dispatch_rules(rules({**ALL, "matcher": [rule]}))


@pytest.mark.req("AVRO-59", "AVRO-60", "AVRO-61", "EX-35", "FAULT-29", "CFG-132")
def test_each_table_has_a_topic_of_its_own() -> None:
    assert topic_of_table(validate_expression("tidb_{schema}_{table}", ""), ORDERS.id) == "tidb_shop_orders"
    assert topic_of_table("{schema}.{table}", TableId("my shop", "ö/1")) == "my_shop.__1"
    for wrong, why in (
        ("orders", r"\{schema\} and \{table\} is missing"),
        ("x_{schema}", r"\{table\} is missing, so that several tables"),
        ("{table}_{schema}", "before"),
        ("ti db{schema}{table}", "letters"),
    ):
        with pytest.raises(ConfigError, match=why):
            dispatch_rules(rules({**ALL, "topic": wrong}))
    with pytest.raises(ConfigError, match="Kafka allows 249"):
        topic_of_table("{schema}_{table}", TableId("d" * 60, "t" * 190))


def test_the_first_rule_that_fits_counts() -> None:
    found = dispatch_rules(
        rules(
            {"matcher": ["shop.orders"], "topic": "o_{schema}_{table}", "partition": "columns", "columns": ["code"]},
            {"matcher": ["shop.*"], "topic": "s_{schema}_{table}", "dispatcher": "ts"},
        )
    )
    assert rule_for(found, ORDERS.id).topic_of(ORDERS.id) == "o_shop_orders"
    assert rule_for(found, ORDERS.id).partition == PartitionRule("columns", columns=("code",))
    assert rule_for(found, TableId("shop", "items")).partition.name == "ts"
    with pytest.raises(ConfigError, match=r"no dispatcher fits table x\.y.*last rule"):
        rule_for(found, TableId("x", "y"))


@for_each(
    ("text", "why"),
    [
        ("[", "is not JSON"),
        ('{"matcher": []}', "not a list of objects"),
        (rules({"topic": "{schema}{table}"}), "no matcher"),
        (rules({"matcher": ["*.*"]}), "no topic"),
        (rules({**ALL, "matcher": "*.*"}), "not a list of texts"),
        (rules({**ALL, "partition": "rowid"}), "default, table, index-value, columns, ts"),
        (rules({**ALL, "collumns": []}), "member collumns"),
    ],
)
def test_a_property_of_another_form_is_named(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        dispatch_rules(text)
    assert "dispatchers" in caught.value.where and "matcher" in caught.value.remedy


def test_partitions_follow_ticdcs_hash() -> None:
    base = crc32(b"shoporders")
    row = {"id": 7, "customer": None, "code": 3}

    def of(rule: PartitionRule, count: int = 1 << 31) -> int:
        return dispatcher(ORDERS, ("code", "id"), rule, "dispatchers")(row, AT, count)

    def hashed(**values: str) -> int:
        found = base
        for name, text in values.items():
            found ^= crc32(f"{name}{text}".encode())
        return found % (1 << 31)

    assert of(PartitionRule()) == of(PartitionRule("table")) == hashed()
    assert of(PartitionRule("index-value")) == hashed(id="7", code="3")
    assert of(PartitionRule("index-value", index="BY_CODE")) == hashed(code="3")
    assert of(PartitionRule("index-value", index="primary")) == hashed(code="3", id="7")
    assert of(PartitionRule("columns", columns=("Customer",))) == hashed(customer="null")
    assert of(PartitionRule("ts"), 3) == AT.value % 3
    assert dispatcher(ORDERS, (), PartitionRule("ts"), "")(row, CommitTs(10), 4) == 2


def test_a_rule_for_what_a_table_does_not_have_is_named() -> None:
    with pytest.raises(ConfigError, match=r"cannot be used: nope.*shop\.orders.*no unique index.*by_code, primary"):
        dispatcher(ORDERS, (), PartitionRule("index-value", index="nope"), "dispatchers")
    cut = replace(ORDERS, columns=ORDERS.columns[:2])
    with pytest.raises(ConfigError, match=r"cannot be used: by_code.*shop\.orders.*missing or excluded: code"):
        dispatcher(cut, (), PartitionRule("index-value", index="by_code"), "dispatchers")
    with pytest.raises(ConfigError, match=r"does not have: nope.*shop\.orders.*id, customer, code"):
        dispatcher(ORDERS, (), PartitionRule("columns", columns=("nope",)), "dispatchers")
    with pytest.raises(ConfigError, match="names no column"):
        dispatcher(ORDERS, (), PartitionRule("columns"), "dispatchers")


@for_each(
    ("value", "text"),
    [
        (None, "null"),
        (True, "1"),
        (False, "0"),
        (-5, "-5"),
        ("x", "x"),
        (1.5, "1.5"),
        (2.0, "2"),
        (1e21, "1" + "0" * 21),
        (1.5e-7, "0.00000015"),
        (-2.5e16, "-25000000000000000"),
        (1.25e20, "125000000000000000000"),
    ],
)
def test_values_are_hashed_in_their_plainest_text(value: object, text: str) -> None:
    assert value_text(value) == text
