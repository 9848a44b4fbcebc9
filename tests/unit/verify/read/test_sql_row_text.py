"""Which rows can be written in SQL, and what in their expressions keeps two values apart."""

from __future__ import annotations

import json

import pytest
from kit.avro_rig import avro
from kit.cases import for_each
from kit.create_statement import parse_create
from kit.table_records import TICDC, config

from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext
from airflow_provider_mysql_cdc.cdc.decode.values.json_bytes import quote
from airflow_provider_mysql_cdc.cdc.verify.read.sql_literals import escapes_as_in_sql, sql_literal
from airflow_provider_mysql_cdc.cdc.verify.read.sql_row_text import SqlTexts, sql_texts

pytestmark = pytest.mark.quick
PLAIN = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}


def texts(column: str, properties: dict[str, str] | None = None) -> SqlTexts | None:
    create = f"CREATE TABLE t (id INT PRIMARY KEY, {column})"
    return sql_texts(config(PLAIN | (properties or {})), parse_create(create, DdlContext(default_db="shop")))


def after(column: str, properties: dict[str, str] | None = None) -> str:
    found = texts(column, properties)
    assert found is not None
    return found.after


def test_a_row_is_one_text_of_literals_and_columns() -> None:
    assert texts("n INT, name VARCHAR(9) NOT NULL") == SqlTexts(
        "CONCAT('{\"id\":', `id`, '}')",
        "CONCAT('{\"id\":', `id`, ',\"n\":', IF(`n` IS NULL, 'null', `n`), ',\"name\":', JSON_QUOTE(`name`), '}')",
    )


@for_each(
    ("column", "properties"),
    [
        ("v FLOAT", {}),
        ("v DOUBLE", {}),
        ("v BIT(9)", {}),
        ("v BIGINT UNSIGNED", {"bigint.unsigned.handling.mode": "precise"}),
        ("v DATE", {"time.precision.mode": "isostring"}),
        ("v DATETIME(6)", {"time.precision.mode": "nanoseconds"}),
        ("v TIME", {"time.precision.mode": "connect"}),
        ("v JSON", {}),
        ("v POINT", {}),
        ("v GEOMETRY", {}),
        ("v VECTOR(3)", {}),
        ("v DECIMAL(19,2)", {}),
        ("v DECIMAL(9,2)", {"decimal.handling.mode": "double"}),
        ("v ENUM('a') CHARACTER SET binary", {}),
        ("v VARCHAR(9)", {"column.mask.hash.SHA-256.with.salt.x": "shop.t.v"}),
        ("v VARCHAR(9)", {"column.mask.hash.v2.SHA-256.with.salt.x": "shop.t.v"}),
        ("v VARCHAR(9)", {"column.truncate.to.4.chars": "shop.t.v"}),
        ("v INT", TICDC),
        ("v INT", avro("http://registry:1")),
    ],
)
def test_a_table_that_sql_cannot_write_has_no_texts(column: str, properties: dict[str, str]) -> None:
    assert texts(column, properties) is None


@pytest.mark.parametrize("columns", ["id INT", "id INT UNIQUE"])
def test_a_table_without_a_key_has_no_texts(columns: str) -> None:
    assert sql_texts(config(), parse_create(f"CREATE TABLE t ({columns})", DdlContext(default_db="shop"))) is None


def test_a_column_that_the_events_do_not_have_is_not_read() -> None:
    assert after("v FLOAT, n INT NOT NULL", {"column.exclude.list": "shop.t.v"}) == after("n INT NOT NULL")


def test_a_masked_column_is_not_read() -> None:
    assert after("v VARCHAR(9)", {"column.mask.with.3.chars": "shop.t.v"}) == (
        'CONCAT(\'{"id":\', `id`, \',"v":"***"}\')'
    )


def test_a_key_shows_columns_as_they_are() -> None:
    create = "CREATE TABLE t (v VARCHAR(9) PRIMARY KEY)"
    table = parse_create(create, DdlContext(default_db="shop"))
    found = sql_texts(config(PLAIN | {"column.mask.with.3.chars": "shop.t.v"}), table)
    assert found is not None
    assert found == SqlTexts("CONCAT('{\"v\":', JSON_QUOTE(`v`), '}')", '\'{"v":"***"}\'')


def test_a_value_that_has_no_text_is_not_taken_for_null() -> None:
    for column in ("v TEXT", "v BLOB", "v VARCHAR(9) CHARACTER SET latin1", "v DATE"):
        assert ", IF(`v` IS NULL, 'null', " in after(column)


def test_null_is_the_default_where_converters_say_so() -> None:
    replaces_null = {"value.converter.replace.null.with.default": "true"}
    assert ", IF(`v` IS NULL, '7', `v`), " in after("v INT DEFAULT 7", replaces_null)
    assert ", IF(`v` IS NULL, 'null', `v`), " in after("v INT DEFAULT 7")


def test_a_day_that_is_none_is_not_taken_for_another() -> None:
    for column in ("v DATE", "v DATETIME(3)"):
        assert "AND FROM_DAYS(TO_DAYS(`v`)) = " in after(column)


@for_each(
    ("text", "literal"),
    [
        ('{"a b":%s', "'{\"a b\":%s'"),
        ("", "''"),
        ("it's", "_utf8mb4 X'69742773'"),
        ("a\\n", "_utf8mb4 X'615C6E'"),
        ("é", "_utf8mb4 X'C3A9'"),
    ],
)
def test_a_literal_means_the_same_in_every_sql_mode(text: str, literal: str) -> None:
    assert sql_literal(text) == literal


@for_each(
    ("text", "in_sql"),
    [
        ('plain \\ " \n', '"plain \\\\ \\" \\n"'),
        ("\x01\x0b\x1f\x7f", '"\\u0001\\u000b\\u001f\x7f"'),
        ("\\u000B \\ud83d\\ude00", '"\\\\u000B \\\\ud83d\\\\ude00"'),
        ("\\\x0b\\\\\U0001f600\U0010ffff", '"\\\\\\u000b\\\\\\\\\U0001f600\U0010ffff"'),
        ("\U00010000", '"\U00010000"'),
    ],
)
def test_escapes_are_those_of_json_quote(text: str, in_sql: str) -> None:
    assert escapes_as_in_sql(quote(text).encode()) == in_sql.encode()
    assert json.loads(in_sql) == text
