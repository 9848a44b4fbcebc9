"""What a run has moved, column by column: names, types, and what the configuration does to values."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_mysql_cdc.cdc.commit.plan import OTHERS_LABEL
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.apply import apply_ddl
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext, SchemaState
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId
from airflow_provider_mysql_cdc.cdc.operate import data_flow
from airflow_provider_mysql_cdc.cdc.operate.data_flow import MAX_STRUCTURES, TableFlow, moved_flows, named_flows

pytestmark = pytest.mark.quick
BASE = {
    "topic.prefix": "p",
    "database.hostname": "mysql.invalid",
    "database.user": "u",
    "database.password": "pa55-of-mysql",
    "kafka.bootstrap.servers": "k:9092",
}
ORDERS = TableId("shop", "orders")
DDL = """CREATE TABLE orders (
    id INT UNSIGNED PRIMARY KEY COMMENT 'the key', item VARCHAR(40), card VARCHAR(20), note TEXT, paid TINYINT(1),
    hidden INT, price DECIMAL(9,2))"""


def config(**more: str) -> ConnectorConfig:
    return ConnectorConfig.from_properties(BASE | {name.replace("__", "."): text for name, text in more.items()})


def structure(ddl: str = DDL) -> Table:
    (made,) = apply_ddl(SchemaState(), ddl, DdlContext(default_db="shop")).state.tables.values()
    return made


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[TableId]:
    """Let the source have the table; return which tables it was asked about."""
    names: list[TableId] = []

    def read(cfg: ConnectorConfig, tables: Any, log: Any) -> dict[TableId, Table]:
        names.extend(tables)
        return {ORDERS: structure()} if ORDERS in tables else {}

    monkeypatch.setattr(data_flow, "read_structures", read)
    return names


def flow(cfg: ConnectorConfig) -> TableFlow:
    (found,) = moved_flows(cfg, {"shop.orders": 4}, print)
    return found


def test_columns_go_into_both_images_of_the_envelope(asked: list[TableId]) -> None:
    found = flow(config())
    assert (found.table, found.topic, found.rows) == (ORDERS, "p.shop.orders", 4)
    assert [(column.name, column.type) for column in found.columns][:3] == [
        ("id", "INT UNSIGNED"),
        ("item", "VARCHAR(40)"),
        ("card", "VARCHAR(20)"),
    ]
    assert found.columns[-1].type == "DECIMAL(9,2)"
    assert found.columns[0].doc == "the key"
    members = {field.name: field for field in found.fields}
    assert [name for name in members][:3] == ["before", "after", "source"]
    assert {field.name: field.type for field in members["after"].fields} == {
        "id": "int64",
        "item": "string",
        "card": "string",
        "note": "string",
        "paid": "int16",
        "hidden": "int32",
        "price": "org.apache.kafka.connect.data.Decimal",
    }
    assert members["op"].type == "string"
    assert {(m.column, m.fields) for m in found.mapping} >= {("id", ("before.id", "after.id"))}
    assert not any(m.change or m.hidden for m in found.mapping)


def test_what_hides_or_changes_values_is_said_and_excluded_columns_go_nowhere(asked: list[TableId]) -> None:
    rules = {
        "column.exclude.list": r"shop\.orders\.hidden",
        "column.mask.with.4.chars": r"shop\.orders\.card",
        "column.truncate.to.3.chars": r"shop\.orders\.note",
        "converters": "b",
        "b.type": "io.debezium.connector.mysql.converters.TinyIntOneToBooleanConverter",
    }
    found = flow(ConnectorConfig.from_properties(BASE | rules))
    assert {m.column: (m.change, m.hidden) for m in found.mapping} == {
        "id": ("", False),
        "item": ("", False),
        "card": ("masked", True),
        "note": ("truncated", False),
        "paid": ("converted to boolean", False),
        "price": ("", False),
    }
    assert "hidden" in {column.name for column in found.columns}
    assert "hidden" not in {field.name for field in found.fields[1].fields}


def test_fields_are_named_as_in_the_records(asked: list[TableId], monkeypatch: pytest.MonkeyPatch) -> None:
    made = structure("CREATE TABLE orders (`a-b` INT PRIMARY KEY)")
    monkeypatch.setattr(data_flow, "read_structures", lambda *_: {ORDERS: made})
    found = flow(config(field__name__adjustment__mode="avro"))
    assert found.mapping[0].fields == ("before.a_b", "after.a_b")
    assert found.fields[1].fields[0].name == "a_b"


def test_ticdc_writes_columns_without_an_envelope(asked: list[TableId]) -> None:
    avro = {"value.format": "ticdc-avro", "value.converter.schema.registry.url": "http://registry:8081"}
    found = flow(ConnectorConfig.from_properties(BASE | avro))
    assert found.mapping[0].fields == ("id",)
    assert {field.name: field.type for field in found.fields}["id"] == "long"


def test_tables_without_structure_still_have_their_topic(asked: list[TableId]) -> None:
    rows = {"shop.quiet": 0, "shop.b%2Ec": 2, "shop.a": 9, OTHERS_LABEL: 100}
    found = moved_flows(config(), rows, print)
    assert [(f.table, f.topic, f.rows, f.fields) for f in found] == [
        (TableId("shop", "a"), "p.shop.a", 9, ()),
        (TableId("shop", "b.c"), "p.shop.b.c", 2, ()),
    ]


def test_the_source_is_asked_about_the_tables_with_the_most_rows_only(asked: list[TableId]) -> None:
    rows = {f"shop.t{n}": n + 1 for n in range(MAX_STRUCTURES + 5)}
    assert len(moved_flows(config(), rows, print)) == MAX_STRUCTURES + 5
    assert asked == [TableId("shop", f"t{n}") for n in range(MAX_STRUCTURES + 4, 4, -1)]


def test_a_source_that_does_not_answer_takes_nothing_but_the_structures() -> None:
    lines: list[str] = []
    (found,) = moved_flows(config(), {"shop.orders": 4}, lines.append)
    assert (found.topic, found.columns) == ("p.shop.orders", ())
    assert len(lines) == 1 and "could not be read" in lines[0]
    assert "pa55" not in lines[0]


def test_only_names_are_known_before_a_run() -> None:
    cfg = config(table__include__list=r"shop\.orders,shop.items,shop.x.*,other.t", database__include__list="shop")
    entries = ["shop.orders", r"shop\.items", "shop.x.*", "other.t", "shop.orders"]
    assert [(f.table, f.rows) for f in named_flows(cfg, entries)] == [
        (ORDERS, None),
        (TableId("shop", "items"), None),
    ]
