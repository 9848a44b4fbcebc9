"""Columns, keys and snapshot statements on real servers: snapshot and stream show rows alike."""

from __future__ import annotations

from typing import Any

import pytest
from kit import Pipeline, duplicates, execute, payload

from airflow_provider_mysql_cdc.cdc.errors import ConfigError

CONVERTER = "io.debezium.connector.mysql.converters.TinyIntOneToBooleanConverter"
OVERRIDES = "snapshot.select.statement.overrides"


@pytest.fixture
def pipeline(properties: dict[str, str]) -> Pipeline:
    plain = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
    return Pipeline(properties | plain | {"cdc.id.header": "true"})


def images(pipeline: Pipeline, table: str) -> list[tuple[Any, Any, Any]]:
    """Return key, operation and row of a table's records, tombstones left out."""
    found = [(payload(r.key), payload(r.value)) for r in pipeline.records(table)]
    return [(k, v["op"], v["after"] or v["before"]) for k, v in found if v is not None]


@pytest.mark.req("COL-02", "COL-03", "COL-04", "COL-05", "COL-18", "TYPE-61", "TYPE-62")
def test_snapshot_and_stream_treat_columns_alike(pipeline: Pipeline, root: Any, database: str) -> None:
    pipeline.properties |= {
        "column.exclude.list": f"{database}.people.(id|gone)",
        "column.truncate.to.3.chars": f"{database}.people.name,{database}.people.raw,{database}.people.doc",
        "column.mask.with.4.chars": f"{database}.people.(secret|kind)",
        "column.mask.hash.SHA-256.with.salt.pepper": f"{database}.people.mail",
        "column.mask.hash.v2.SHA-512.with.salt.pepper": f"{database}.people.phone",
        "converters": "flags",
        "flags.type": CONVERTER,
        "flags.selector": f"{database}.people.flag.*",
        "flags.length.checker": "false",
        "field.name.adjustment.mode": "avro",
    }
    row = "'Ünïcode', x'00ff80aa', '[1, 2]', {secret}, 'b', 'a@b', '😀', 'x', 1, -1, 7"
    execute(
        root,
        f"CREATE TABLE `{database}`.people (id INT PRIMARY KEY, name VARCHAR(40) CHARACTER SET latin1, "
        "raw VARBINARY(20), doc JSON, secret TEXT, kind ENUM('a','b'), mail VARCHAR(12) CHARACTER SET utf16, "
        "phone VARCHAR(200), gone VARCHAR(9), `flag 1` TINYINT(1), `flag-2` TINYINT, `no flag` TINYINT)",
        f"INSERT INTO `{database}`.people VALUES (1, {row.format(secret='NULL')})",
        f"INSERT INTO `{database}`.people VALUES (2, {row.format(secret=repr('s'))})",
    )
    pipeline.snapshot()
    execute(
        root,
        f"INSERT INTO `{database}`.people VALUES (3, {row.format(secret='NULL')})",
        f"INSERT INTO `{database}`.people VALUES (4, {row.format(secret=repr('s'))})",
        f"DELETE FROM `{database}`.people WHERE id = 4",
    )
    pipeline.drain()
    found = images(pipeline, "people")
    assert [(k, op) for k, op, _ in found] == [({"id": i}, op) for i, op in zip((1, 2, 3, 4, 4), "rrccd", strict=True)]
    shown = found[0][2]
    assert all(image == shown for _, _, image in found)
    assert {k: v for k, v in shown.items() if k not in ("mail", "phone")} == {
        "name": "Ünï", "raw": "AP+A", "doc": "[1,", "secret": "****", "kind": "****", "flag_1": True, "flag_2": False,
        "no_flag": 7,
    }  # fmt: skip
    assert len(shown["mail"]) == 12 and len(shown["phone"]) == 128


@pytest.mark.req("COL-13", "COL-14", "EVT-28")
def test_message_keys_need_not_be_unique(pipeline: Pipeline, root: Any, database: str) -> None:
    pipeline.properties |= {"message.key.columns": f"{database}.t:grp", "snapshot.chunk.rows": "2"}
    execute(
        root,
        f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, grp INT)",
        f"CREATE TABLE `{database}`.u (id INT PRIMARY KEY, grp INT)",
        f"INSERT INTO `{database}`.t VALUES " + ",".join(f"({i}, {i % 3})" for i in range(1, 13)),
        f"INSERT INTO `{database}`.u VALUES " + ",".join(f"({i}, {i % 3})" for i in range(1, 13)),
        f"ANALYZE TABLE `{database}`.t, `{database}`.u",
    )
    pipeline.snapshot()
    execute(
        root,
        f"UPDATE `{database}`.t SET grp = 5 WHERE id = 1",
        f"UPDATE `{database}`.t SET id = 100 WHERE id = 2",
    )
    pipeline.drain()
    found = images(pipeline, "t")
    assert [(k, op) for k, op, _ in found[12:]] == [({"grp": 1}, "d"), ({"grp": 5}, "c"), ({"grp": 2}, "u")]
    assert sorted(row["id"] for _, op, row in found if op == "r") == list(range(1, 13))
    assert duplicates(pipeline.records("t")) == []


@pytest.mark.req("SNAP-49", "SNAP-50", "SNAP-51")
def test_a_statement_of_ones_own_says_which_rows_come(pipeline: Pipeline, root: Any, database: str) -> None:
    pipeline.properties |= {
        OVERRIDES: f"{database}.customers",
        f"{OVERRIDES}.{database}.customers": f"SELECT name, id, price FROM `{database}`.customers "
        "WHERE delete_flag = 0 ORDER BY id DESC -- newest first",
        "snapshot.include.collection.list": rf"{database}\.customers",
    }
    execute(
        root,
        f"CREATE TABLE `{database}`.customers (id INT PRIMARY KEY, delete_flag BIT(1), price FLOAT, name VARCHAR(20))",
        f"CREATE TABLE `{database}`.orders (id INT PRIMARY KEY)",
        f"INSERT INTO `{database}`.customers VALUES (1,0,16777216,'a'),(2,1,1,'b'),(3,0,0.1,'c')",
        f"INSERT INTO `{database}`.orders VALUES (1)",
    )
    pipeline.snapshot()
    execute(
        root,
        f"INSERT INTO `{database}`.customers VALUES (4,1,2,'d')",
        f"INSERT INTO `{database}`.orders VALUES (2)",
    )
    pipeline.drain()
    rows = images(pipeline, "customers")
    assert [op for _, op, _ in rows] == ["r", "r", "c"]
    assert rows[0][2] == {"id": 3, "delete_flag": None, "price": 0.1, "name": "c"}
    assert rows[1][2] == {"id": 1, "delete_flag": None, "price": 16777216.0, "name": "a"}
    assert rows[2][2]["delete_flag"] is True
    assert [(k, op) for k, op, _ in images(pipeline, "orders")] == [({"id": 2}, "c")]


@pytest.mark.req("SNAP-50")
@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("SELECT id FROM {db}.t", "cannot be NULL: name"),
        ("SELECT id, name FROM {db}.nosuch", "cannot be used"),
        ("SELEC id", "cannot be used"),
        ("SELECT t.id, u.id, t.name FROM {db}.t JOIN {db}.t AS u", "cannot be used"),
    ],
)
def test_a_statement_that_cannot_be_used_stops_before_the_snapshot(
    pipeline: Pipeline, root: Any, database: str, statement: str, why: str
) -> None:
    pipeline.properties |= {
        OVERRIDES: f"{database}.t",
        f"{OVERRIDES}.{database}.t": statement.format(db=f"`{database}`"),
    }
    execute(root, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, name INT NOT NULL)")
    with pytest.raises(ConfigError, match=why) as caught:
        pipeline.snapshot()
    assert f"{OVERRIDES}.{database}.t" in caught.value.where


@pytest.mark.req("EX-43", "SNAP-50")
def test_the_manuals_statement_is_refused_for_its_brackets_and_its_table_is_looked_for(
    pipeline: Pipeline, root: Any, database: str
) -> None:
    """It quotes as SQL Server does, and its property names another table than its FROM."""
    statement = "SELECT * FROM [customers].[orders] WHERE delete_flag = 0 ORDER BY id DESC"
    execute(
        root,
        f"CREATE TABLE `{database}`.orders (id INT PRIMARY KEY, delete_flag INT)",
        f"INSERT INTO `{database}`.orders VALUES (1, 0), (2, 1), (3, 0)",
    )
    name = f"{database}.orders"
    pipeline.properties |= {OVERRIDES: name, f"{OVERRIDES}.{name}": statement}
    with pytest.raises(ConfigError, match="cannot be used") as caught:
        pipeline.snapshot()
    assert caught.value.where == f"{OVERRIDES}.{name}" and "MySQL quotes names as `name`" in caught.value.remedy
    assert pipeline.records("orders") == []
    meant = statement.replace("[customers].[orders]", f"`{database}`.`orders`")
    pipeline.properties |= {OVERRIDES: f"{name},customer.orders", f"{OVERRIDES}.{name}": meant}
    pipeline.properties[f"{OVERRIDES}.customer.orders"] = statement
    pipeline.snapshot()
    assert [row["id"] for _, _, row in images(pipeline, "orders")] == [3, 1]
    assert any(f"{OVERRIDES}.customer.orders has no effect" in line for line in pipeline.lines), pipeline.lines
