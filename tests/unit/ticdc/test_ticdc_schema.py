"""TiCDC's Avro schemas: the seed's samples to the byte, and its whole type table."""

from __future__ import annotations

import json
from typing import Any

import fastavro
import pytest
from kit.cases import for_each
from kit.decode_builder import column, table

from airflow_provider_mysql_cdc.cdc.convert.json_text import dumps
from airflow_provider_mysql_cdc.cdc.errors import SchemaError
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId
from airflow_provider_mysql_cdc.cdc.ticdc.ticdc_schema import TicdcModes, column_field, key_schema, value_schema

DEFAULT = TicdcModes()
# The rows of the seed's type table.
TYPE_TABLE = pytest.mark.req(
    "AVRO-20",
    "AVRO-21",
    "AVRO-22",
    "AVRO-23",
    "AVRO-24",
    "AVRO-25",
    "AVRO-26",
    "AVRO-27",
    "AVRO-28",
    "AVRO-29",
    "AVRO-30",
    "AVRO-31",
    "AVRO-32",
    "AVRO-33",
    "AVRO-34",
    "AVRO-35",
    "AVRO-36",
    "AVRO-37",
    "AVRO-38",
    "AVRO-39",
    "AVRO-40",
    "AVRO-41",
    "AVRO-42",
    "AVRO-43",
    "AVRO-44",
    "AVRO-45",
    "AVRO-46",
    "AVRO-47",
    "AVRO-48",
    "AVRO-49",
)
TEXT = TicdcModes(decimal="string", bigint_unsigned="string")
ORDERS = Table(
    TableId("shop", "orders"),
    (
        column("id", "BIGINT", 1, nullable=False),
        column("note", "TEXT", 2, charset="utf8mb4"),
        column("code", "INT", 3, nullable=False),
    ),
    ("code", "id"),
)


def block(name: str, **parameters: str) -> dict[str, str]:
    return {"tidb_type": name, **parameters}


@pytest.mark.req("AVRO-05", "AVRO-06", "AVRO-07", "AVRO-08", "EX-24", "EX-25", "EX-27", "EX-28")
def test_key_and_value_are_the_seeds_records() -> None:
    big = '{"connect.parameters":{"tidb_type":"BIGINT"},"type":"long"}'
    note = '{"default":null,"name":"note","type":["null",{"connect.parameters":{"tidb_type":"TEXT"},"type":"string"}]}'
    code = '{"name":"code","type":{"connect.parameters":{"tidb_type":"INT"},"type":"int"}}'
    head = '{"name":"orders","namespace":"default.shop","type":"record","fields":['
    # The key's columns stand in the table's order, as TiCDC has them.
    key = key_schema(ORDERS, [ORDERS.columns[2], ORDERS.columns[0]], DEFAULT)
    assert key == f'{head}{{"name":"id","type":{big}}},{code}]}}'
    value = value_schema(ORDERS, ORDERS.columns, DEFAULT)
    assert value == f'{head}{{"name":"id","type":{big}}},{note},{code}]}}'
    assert key_schema(ORDERS, [], DEFAULT) is None


@pytest.mark.req("AVRO-09", "AVRO-10", "AVRO-11", "AVRO-12", "AVRO-13", "EX-26", "CFG-124", "DIS-40")
def test_the_extension_is_after_the_columns_of_values_only() -> None:
    modes = TicdcModes(extension=True)
    plain, extended = value_schema(ORDERS, ORDERS.columns, DEFAULT), value_schema(ORDERS, ORDERS.columns, modes)
    more = (
        '{"name":"_tidb_op","type":"string"},{"name":"_tidb_commit_ts","type":"long"},'
        '{"name":"_tidb_commit_physical_time","type":"long"}'
    )
    assert extended == f"{plain.removesuffix(']}')},{more}]}}"
    assert key_schema(ORDERS, ORDERS.columns[:1], modes) == key_schema(ORDERS, ORDERS.columns[:1], DEFAULT)


def test_the_namespace_is_the_changefeeds_and_the_databases() -> None:
    odd = Table(TableId("my-shop", "1st"), ORDERS.columns, ("id",))
    found = json.loads(value_schema(odd, odd.columns, TicdcModes(namespace="")))
    assert (found["name"], found["namespace"]) == ("_1st", "my_shop")
    assert json.loads(value_schema(odd, odd.columns, DEFAULT))["namespace"] == "default.my_shop"


@for_each(
    ("name", "expected"),
    [("1a", "_1a"), ("1", "_1"), ("\u0663a", "_a"), ("\u0663", "_"), ("²a", "_a"), ("a\u0663", "a_"), ("é1", "_1")],
)
def test_names_are_those_of_avro_whatever_digit_or_letter_they_begin_with(name: str, expected: str) -> None:
    odd = Table(TableId(name, name), (column(name, "INT"),), (name,))
    text = value_schema(odd, odd.columns, TicdcModes(namespace=""))
    found = json.loads(text)
    assert (found["name"], found["namespace"], found["fields"][0]["name"]) == (expected,) * 3
    fastavro.parse_schema(found)


@for_each(
    ("more", "parameters", "avro"),
    [
        pytest.param({"type_name": "TINYINT", "declared_type": "BOOL"}, block("INT"), "int", id="AVRO-20"),
        pytest.param({"type_name": "TINYINT"}, block("INT"), "int", id="AVRO-21"),
        pytest.param({"type_name": "TINYINT", "unsigned": True}, block("INT UNSIGNED"), "int", id="AVRO-21u"),
        pytest.param({"type_name": "SMALLINT"}, block("INT"), "int", id="AVRO-22"),
        pytest.param({"type_name": "SMALLINT", "unsigned": True}, block("INT UNSIGNED"), "int", id="AVRO-22u"),
        pytest.param({"type_name": "MEDIUMINT"}, block("INT"), "int", id="AVRO-23"),
        pytest.param({"type_name": "MEDIUMINT", "unsigned": True}, block("INT UNSIGNED"), "int", id="AVRO-23u"),
        pytest.param({"type_name": "INT"}, block("INT"), "int", id="AVRO-24"),
        pytest.param({"type_name": "INT", "unsigned": True}, block("INT UNSIGNED"), "long", id="AVRO-24u"),
        pytest.param({"type_name": "BIGINT"}, block("BIGINT"), "long", id="AVRO-25"),
        pytest.param({"type_name": "BIGINT", "unsigned": True}, block("BIGINT UNSIGNED"), "long", id="AVRO-25u"),
        *(
            pytest.param({"type_name": name}, block("BLOB"), "bytes", id=name)
            for name in ("TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB", "BINARY", "VARBINARY")
        ),
        *(
            pytest.param({"type_name": name, "charset": "utf8mb4"}, block("TEXT"), "string", id=name)
            for name in ("TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT", "CHAR", "VARCHAR")
        ),
        pytest.param({"type_name": "VARCHAR", "charset": "binary"}, block("BLOB"), "bytes", id="binary charset"),
        pytest.param({"type_name": "FLOAT"}, block("FLOAT"), "double", id="AVRO-38"),
        pytest.param({"type_name": "DOUBLE"}, block("DOUBLE"), "double", id="AVRO-39"),
        pytest.param({"type_name": "DATE"}, block("DATE"), "string", id="AVRO-40"),
        pytest.param({"type_name": "DATETIME", "length": 3}, block("DATETIME"), "string", id="AVRO-41"),
        pytest.param({"type_name": "TIMESTAMP"}, block("TIMESTAMP"), "string", id="AVRO-42"),
        pytest.param({"type_name": "TIME"}, block("TIME"), "string", id="AVRO-43"),
        pytest.param({"type_name": "YEAR"}, block("YEAR"), "int", id="AVRO-44"),
        pytest.param({"type_name": "BIT", "length": 64}, block("BIT", length="64"), "bytes", id="AVRO-45"),
        pytest.param({"type_name": "BIT"}, block("BIT", length="1"), "bytes", id="BIT"),
        pytest.param({"type_name": "JSON"}, block("JSON"), "string", id="AVRO-46"),
        pytest.param(
            {"type_name": "ENUM", "enum_values": ("a", "b", "c")}, block("ENUM", allowed="a,b,c"), "string", id="ENUM"
        ),
        pytest.param(
            {"type_name": "SET", "enum_values": ("a,b", "c")}, block("SET", allowed="a\\,b,c"), "string", id="SET"
        ),
        pytest.param({"type_name": "VECTOR", "length": 3}, block("TiDBVECTORFloat32"), "string", id="VECTOR"),
    ],
)  # fmt: skip
@pytest.mark.req("AVRO-14", "AVRO-15", "AVRO-16", "AVRO-18")
@TYPE_TABLE
def test_the_type_table(more: dict[str, Any], parameters: dict[str, str], avro: str) -> None:
    inner = dumps({"connect.parameters": parameters, "type": avro})
    assert dumps(column_field(column("c", nullable=False, **more), DEFAULT)) == f'{{"name":"c","type":{inner}}}'
    found = dumps(column_field(column("c", **more), DEFAULT))
    assert found == f'{{"default":null,"name":"c","type":["null",{inner}]}}'


@pytest.mark.req("AVRO-17", "AVRO-18", "AVRO-19", "EX-29", "EX-30", "EX-31")
def test_the_seeds_special_columns() -> None:
    bit = column("c", "BIT", length=64, nullable=False)
    assert dumps(column_field(bit, DEFAULT)) == (
        '{"name":"c","type":{"connect.parameters":{"tidb_type":"BIT","length":"64"},"type":"bytes"}}'
    )
    for name in ("ENUM", "SET"):
        members = column("c", name, enum_values=("a", "b", "c"), nullable=False)
        assert dumps(column_field(members, DEFAULT)) == (
            f'{{"name":"c","type":{{"connect.parameters":{{"tidb_type":"{name}","allowed":"a,b,c"}},"type":"string"}}}}'
        )
    decimal = column("c", "DECIMAL", length=10, scale=4, nullable=False)
    assert dumps(column_field(decimal, DEFAULT)) == (
        '{"name":"c","type":{"connect.parameters":{"tidb_type":"DECIMAL"},'
        '"logicalType":"decimal","precision":10,"scale":4,"type":"bytes"}}'
    )


@pytest.mark.req("AVRO-25", "AVRO-49", "AVRO-50", "AVRO-51", "CFG-125", "CFG-126")
def test_the_string_modes() -> None:
    for made, name in ((column("c", "DECIMAL"), "DECIMAL"), (column("c", "BIGINT", unsigned=True), "BIGINT UNSIGNED")):
        assert column_field(made, TEXT)["type"][1] == {"connect.parameters": {"tidb_type": name}, "type": "string"}
    assert column_field(column("c", "BIGINT"), TEXT)["type"][1]["type"] == "long"
    # A DECIMAL that names neither is DECIMAL(10, 0).
    assert column_field(column("c", "DECIMAL"), DEFAULT)["type"][1].items() >= {"precision": 10, "scale": 0}.items()


def test_a_type_without_a_form_is_refused_by_table_and_column() -> None:
    place = table(column("id", "INT"), column("spot", "POINT"))
    with pytest.raises(SchemaError, match=r"column spot has type POINT.*table db\.t.*column\.exclude\.list"):
        value_schema(place, place.columns, DEFAULT)


@pytest.mark.parametrize(("names", "modes"), [(("a-b", "a b"), DEFAULT), (("_tidb_op",), TicdcModes(extension=True))])
def test_names_that_become_equal_are_refused(names: tuple[str, ...], modes: TicdcModes) -> None:
    same = table(*(column(name, "INT") for name in names))
    with pytest.raises(SchemaError, match="would have the same field name"):
        value_schema(same, same.columns, modes)
