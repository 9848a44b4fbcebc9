"""Defaults become what the row values of the same column would be."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from kit.cases import for_each
from kit.create_statement import parse_create

from airflow_provider_mysql_cdc.cdc.convert.connect_schema import default_value, field_schema
from airflow_provider_mysql_cdc.cdc.convert.connect_types import connect_type
from airflow_provider_mysql_cdc.cdc.convert.json_text import Float32
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import (
    BIGINT_UNSIGNED_MODES,
    BINARY_MODES,
    DECIMAL_MODES,
    TIME_MODES,
    DecoderOptions,
)
from airflow_provider_mysql_cdc.cdc.errors import SchemaError
from airflow_provider_mysql_cdc.cdc.model.table import Column


def column(definition: str) -> Column:
    return parse_create(f"CREATE TABLE d.t (c {definition})", DdlContext()).columns[0]


def default(definition: str, **modes: Any) -> Any:
    return default_value(column(definition), DecoderOptions(**modes))


@pytest.mark.req("TYPE-53", "TYPE-54", "TYPE-55", "TYPE-56", "TYPE-57", "TYPE-58", "TYPE-59")
@for_each(
    ("definition", "modes", "expected"),
    [
        ("INT DEFAULT '17'", {}, 17),
        ("INT DEFAULT 1e3", {}, 1000),
        ("INT DEFAULT 2.5", {}, 3),
        ("INT DEFAULT 0x1F", {}, 31),
        ("INT DEFAULT NULL", {}, None),
        ("INT", {}, None),
        ("INT NOT NULL", {}, None),
        ("INT DEFAULT (1 + 2)", {}, None),
        ("BOOL DEFAULT TRUE", {}, True),
        ("BIGINT UNSIGNED DEFAULT 18446744073709551615", {}, 2**63 - 1),
        ("BIGINT UNSIGNED DEFAULT 18446744073709551615", {"bigint_unsigned_mode": "precise"}, "AP//////////"),
        ("DECIMAL(10,2) DEFAULT -1.5", {}, "/2o="),
        ("DECIMAL(10,2) DEFAULT 1.005", {"decimal_mode": "string"}, "1.01"),
        ("DECIMAL(10,2) DEFAULT 0", {"decimal_mode": "double"}, 0.0),
        (f"DECIMAL(65,30) DEFAULT {'9' * 35}.{'9' * 30}", {"decimal_mode": "string"}, f"{'9' * 35}.{'9' * 30}"),
        ("DECIMAL(3,0) DEFAULT 127", {}, "fw=="),
        ("DECIMAL(3,0) DEFAULT 128", {}, "AIA="),
        ("DECIMAL(3,0) DEFAULT -128", {}, "gA=="),
        ("FLOAT DEFAULT 0.1", {}, Float32(0.10000000149011612)),
        ("FLOAT DEFAULT 1e39", {}, None),
        ("BIT(1) DEFAULT b'1'", {}, True),
        ("BIT DEFAULT 0", {}, False),
        ("BIT(10) DEFAULT b'1010101010'", {}, "qgI="),
        ("BIT(10) DEFAULT 682", {}, "qgI="),
        ("CHAR(5) DEFAULT ''", {}, ""),
        ("VARCHAR(5) DEFAULT 'it''s'", {}, "it's"),
        ("VARBINARY(5) DEFAULT X'00FF'", {"binary_mode": "hex"}, "00ff"),
        ("VARBINARY(5) DEFAULT X'FBFF'", {"binary_mode": "base64-url-safe"}, "-_8="),
        ("VARCHAR(5) CHARACTER SET binary DEFAULT 'ab'", {}, "YWI="),
        ("ENUM('a','b') DEFAULT 'b'", {}, "b"),
        ("DATE DEFAULT '2020-02-29'", {}, 18321),
        ("DATE DEFAULT '2020-02-29'", {"time_mode": "isostring"}, "2020-02-29Z"),
        ("DATE DEFAULT '20200229'", {}, 18321),
        ("DATE DEFAULT 700102", {}, 1),
        ("DATE NOT NULL DEFAULT '700102'", {}, 1),
        ("DATE DEFAULT 690102", {}, 36161),
        ("DATE DEFAULT 101", {}, 10957),
        ("DATE DEFAULT '20240102T101112'", {}, 19724),
        ("DATE DEFAULT 0", {}, None),
        ("DATETIME DEFAULT 240102101112", {}, 1704190272000),
        ("DATETIME DEFAULT 20240102", {}, 1704153600000),
        ("TIMESTAMP NULL DEFAULT 700102000000", {}, "1970-01-02T00:00:00Z"),
        ("TIME DEFAULT '2024-01-02 10:11:12'", {}, 36672000000),
        ("YEAR DEFAULT 70", {}, 1970),
        ("DATE DEFAULT '0000-00-00'", {}, None),
        ("DATE DEFAULT '0001-01-01'", {}, 11323),
        ("DATE DEFAULT '0001-01-01'", {"time_adjuster": False}, -719162),
        ("DATETIME DEFAULT '0070-01-01'", {}, 0),
        ("DATE NOT NULL DEFAULT '0000-00-00'", {}, 0),
        ("DATE NOT NULL DEFAULT '2020-00-10'", {}, 0),
        ("DATE DEFAULT (CURRENT_DATE)", {}, None),
        ("DATETIME DEFAULT '2020-02-29'", {}, 1582934400000),
        ("DATETIME(6) DEFAULT '1969-12-31 23:59:59.999999'", {}, -1),
        ("DATETIME DEFAULT CURRENT_TIMESTAMP", {}, 0),
        ("DATETIME DEFAULT NOW()", {"time_mode": "nanoseconds"}, 0),
        ("DATETIME DEFAULT '9999-12-31'", {"time_mode": "nanoseconds"}, None),
        ("DATETIME DEFAULT '0000-00-00 00:00:00'", {}, None),
        ("DATETIME(3) DEFAULT '2020-02-29 12:34:56.789'", {"time_mode": "isostring"}, "2020-02-29T12:34:56.789Z"),
        ("TIMESTAMP NULL DEFAULT CURRENT_TIMESTAMP", {}, None),
        ("TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP", {}, "1970-01-01T00:00:00Z"),
        ("TIMESTAMP(3) NULL DEFAULT '2020-02-29 12:34:56.780'", {}, "2020-02-29T12:34:56.780Z"),
        ("TIMESTAMP(6) NOT NULL DEFAULT '2020-02-29'", {}, "2020-02-29T00:00:00.000000Z"),
        ("TIMESTAMP(2) NOT NULL DEFAULT CURRENT_TIMESTAMP(2)", {}, "1970-01-01T00:00:00Z"),
        ("TIME DEFAULT '-01:02:03'", {}, -3723000000),
        ("TIME(3) DEFAULT '1 02:03:04.5'", {}, 93784500000),
        ("TIME DEFAULT '838:59:59'", {"time_mode": "connect"}, None),
        ("TIME NOT NULL DEFAULT '838:59:59'", {"time_mode": "connect"}, 0),
        ("TIME DEFAULT '838:59:59'", {"time_mode": "adaptive"}, None),
        ("TIME NOT NULL DEFAULT '-596:31:23'", {"time_mode": "adaptive"}, -2147483000),
        ("TIME(6) DEFAULT '-00:00:00.000001'", {"time_mode": "connect"}, None),
        ("TIME DEFAULT 123456", {"time_mode": "adaptive"}, 45296000),
        ("TIME DEFAULT '12:34:56'", {"time_mode": "isostring"}, "12:34:56Z"),
        ("TIME(3) DEFAULT '12:34:56.789'", {"time_mode": "connect"}, 45296789),
        ("TIME(4) DEFAULT '-00:00:00.0004'", {"time_mode": "connect"}, None),
        ("TIME DEFAULT '12:34:56'", {"time_mode": "nanoseconds"}, 45296 * 10**9),
        ("DATETIME(1) DEFAULT '1970-01-01 00:00:01.5'", {"time_mode": "connect"}, 1500),
        ("DATETIME(1) DEFAULT '1970-01-01 00:00:01.5'", {"time_mode": "nanoseconds"}, 1_500_000_000),
        ("YEAR DEFAULT 1999", {}, 1999),
        ("YEAR DEFAULT '70'", {}, 1970),
        ("YEAR DEFAULT '0000'", {}, 0),
        ("YEAR DEFAULT 0", {}, 0),
        ("YEAR DEFAULT 00", {}, 0),
        ("YEAR DEFAULT '0'", {}, 2000),
        ("YEAR DEFAULT '000'", {}, 2000),
        ("YEAR DEFAULT '0005'", {}, 2005),
        ("YEAR DEFAULT '1.6'", {}, 2002),
        ("DATETIME DEFAULT '2020-01-02 03:04:05+02:00'", {}, None),
        ("DATETIME NOT NULL DEFAULT '2020-01-02 03:04:05+02:00'", {}, 0),
        ("TIMESTAMP NOT NULL DEFAULT '2020-01-02 03:04:05+02:00'", {}, None),
        ("DATE NOT NULL DEFAULT '2020-01-02 23:59:59.9'", {}, 18263),
        ("DATETIME(2) DEFAULT '2020-01-02 03:04:05.678'", {}, 1577934245678),
        ("DATETIME(2) DEFAULT 20200102030405.678", {}, 1577934245680),
        ("TIMESTAMP(1) DEFAULT '2020-01-02 03:04:05.678'", {}, "2020-01-02T03:04:05.6Z"),
        ("TIME(3) DEFAULT '01:02:03.45678'", {}, 3723456780),
        ("TIME DEFAULT -10203.5", {}, -3724000000),
        ("BINARY(5) DEFAULT 'ab'", {"binary_mode": "hex"}, "6162"),
        ("CHAR(5) DEFAULT 'ab  '", {}, "ab  "),
        ("FLOAT(7,2) DEFAULT 1.006", {}, 1.006),
        ("ENUM('B','c') DEFAULT 'b'", {}, "b"),
        ("SET('a','b','C') DEFAULT 'c,A'", {}, "c,A"),
    ],
)
def test_default(definition: str, modes: dict[str, Any], expected: Any) -> None:
    value = default(definition, **modes)
    assert value == expected
    assert isinstance(value, type(expected))
    assert isinstance(value, bool) == isinstance(expected, bool)


def test_auto_increment_and_generated_columns_have_no_default() -> None:
    assert default("INT AUTO_INCREMENT PRIMARY KEY") is None
    assert default("INT GENERATED ALWAYS AS (1)") is None


# One literal for each type; the default of every mode must fit the literal type that the schema declares.
DEFINITIONS = {
    "TINYINT": "7", "SMALLINT": "7", "MEDIUMINT": "7", "INT": "7", "BIGINT": "7", "BIGINT UNSIGNED": "7",
    "DECIMAL(9,3)": "7.125", "FLOAT": "1.5", "FLOAT(7,2)": "1.5", "DOUBLE": "1.5", "BIT": "b'1'", "BIT(12)": "b'1'",
    "CHAR(3)": "'a'", "VARCHAR(3)": "'a'", "BINARY(3)": "'a'", "VARBINARY(3)": "'a'", "DATE": "'2020-01-01'",
    "TIME(3)": "'01:00:00'", "TIME(6)": "'01:00:00'", "DATETIME(3)": "'2020-01-01'", "DATETIME(6)": "'2020-01-01'",
    "TIMESTAMP NULL": "'2020-01-01'", "YEAR": "2020", "ENUM('a')": "'a'", "SET('a')": "'a'",
}  # fmt: skip
PYTHON = {"boolean": bool, "string": str, "bytes": str, "float": float, "double": float}


@for_each("definition", DEFINITIONS)
def test_the_default_fits_the_type_in_every_mode(definition: str) -> None:
    found = column(f"{definition} DEFAULT {DEFINITIONS[definition]}")
    combinations = [{"decimal_mode": m} for m in DECIMAL_MODES] + [{"time_mode": m} for m in TIME_MODES]
    combinations += [{"binary_mode": m} for m in BINARY_MODES]
    combinations += [{"bigint_unsigned_mode": m} for m in BIGINT_UNSIGNED_MODES]
    for modes in combinations:
        schema = field_schema(found, DecoderOptions(**modes))
        expected = PYTHON.get(schema["type"], int)
        assert isinstance(schema["default"], expected), modes
        assert expected is bool or not isinstance(schema["default"], bool)
        if schema["type"] == "bytes":
            base64.b64decode(schema["default"], validate=True)


@for_each("kind", ["TEXT", "BLOB", "JSON", "GEOMETRY", "POINT", "VECTOR(3)"])
def test_types_without_literal_defaults_have_none(kind: str) -> None:
    schema = field_schema(column(kind), DecoderOptions())
    assert "default" not in schema
    assert schema["optional"] is True


def test_a_geometry_is_optional_even_when_the_column_is_not_but_a_point_is_not() -> None:
    assert field_schema(column("GEOMETRY NOT NULL"), DecoderOptions())["optional"] is True
    assert field_schema(column("MULTIPOINT NOT NULL"), DecoderOptions())["optional"] is True
    assert field_schema(column("POINT NOT NULL"), DecoderOptions())["optional"] is False


def test_a_type_without_a_mapping_is_refused() -> None:
    with pytest.raises(SchemaError, match="INET6"):
        connect_type(Column("c", 1, "INET6"), DecoderOptions())
