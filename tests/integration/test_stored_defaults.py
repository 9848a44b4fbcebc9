"""What an INSERT leaves out has in its event the value that the server stored: types, odd literals, modes."""

from __future__ import annotations

from typing import Any

import pytest
from decode_rig import binlog_end, connect, decode, execute, snapshot
from kit.create_statement import parse_create
from kit.stream_structures import StructureStream

from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext, SchemaState
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import (
    BIGINT_UNSIGNED_MODES,
    BINARY_MODES,
    DECIMAL_MODES,
    TIME_MODES,
    DecoderOptions,
)
from airflow_provider_mysql_cdc.cdc.model.connection import ConnectionSettings, Secret
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema.table_discovery import create_statement

# Each type with its literals; MySQL 9.7.4 accepts all of them in its default sql_mode.
LITERALS = {
    "TINYINT(1)": "TRUE|FALSE|-1|0x7F",
    "TINYINT UNSIGNED": "255|2.5e0",
    "SMALLINT": "-0|'-0.4'|'25e-1'|b'101'",
    "MEDIUMINT UNSIGNED": "16777215",
    "INT": "2.5|2.5e0|3.5e0|'2.5'|'2.5e0'|' 7 '|-2.5|'-2.5'|0x10|TRUE|+3|007|_utf16 0x0037|_latin1 x'3132'",
    "INT(5) ZEROFILL": "7",
    "BIGINT": "-9223372036854775808|9007199254740993e0",
    "BIGINT UNSIGNED": "18446744073709551615|'18446744073709551615'|1e19|0xFFFFFFFFFFFFFFFF|9223372036854775808|5",
    "DECIMAL": "1.5",
    "DECIMAL(10,2)": "1.005|1.005e0|'1.005e0'|-0.001|_utf8mb4 b'110111'|0x10|'  3 '|-1.005|FALSE|-1e2",
    "DECIMAL(20,10)": "0.1e0",
    "DECIMAL(5,2) UNSIGNED ZEROFILL": "1.5",
    "DECIMAL(65,30)": "12345678901234567890123456789012345.123456789012345678901234567891|-0.1",
    "FLOAT": (
        "0.1|-0|-0.0|-0e0|'-0'|1e-46|0x10|1.5|1e30|3.4e38|1.23456789|1.5000001|16777217|123456|-1.17549435e-38|'1.2345678'"
    ),
    "FLOAT UNSIGNED NOT NULL": "1.23456789|0.00012345678",
    "FLOAT(5,2)": "1.006|1.005|'1.015'|-1.015",
    "FLOAT(20,10)": "0.1",
    "FLOAT UNSIGNED": "2",
    "DOUBLE": "0.1|0x10|'1e3'|-0.0|-0e0|1e308|123456789012345678901234567890|5e-324|0.1000000000000000055511151231",
    "DOUBLE(7,2)": "1.005|1.006|-1.005|2.675|99999.994",
    "DOUBLE(7,1)": "0.25|0.35",
    "BIT": "TRUE|b'0'|0",
    "BIT(8)": "'1'|1|1.5|1.5e0|b'1010'|_utf8mb4 x'37'",
    "BIT(12)": "0xABC|5",
    "BIT(64)": "18446744073709551615|0x8000000000000001",
    "YEAR": (
        "70|'70'|0|00|'0'|'00'|'000'|'0000'|'5'|"
        "69|'69'|70.6|2e3|'2e3'|0x46|'99 '|FALSE|0.4|2155|1901|_binary 0x37|59e-1"
    ),
    "CHAR(5)": "'ab   '|007|1e2|' a'|TRUE|''",
    "CHAR": "'a'|5",
    "CHAR(0)": "''",
    "VARCHAR(32)": (
        "00|1e2|0x41|b'1'|1.50|-0|-0.0|-0e0|1e100|1.5e3|.5|1.|+5|1e15|1e14|1e-15|1e-16|1.234e-15|-1.5E-3|1e22|001.50|"
        "1.7976931348623157e308|18446744073709551616|123456789012345678e0|TRUE|'ab   '|'it''s \\\\\\\\ x'|'a' 'b'|N'é'|"
        "_latin1 0xE9|_latin1'é'|x'C3A9'|'😀'|_utf8mb4 0xF09F9880|\"dq\"\"x\""
    ),
    "VARCHAR(3)": "'abc   '|12",
    "VARCHAR(9) CHARACTER SET latin1": "'é'|_utf8mb4'é'|0xE9|1e2",
    "VARCHAR(9) CHARACTER SET ucs2": "0x0041|'語'|5",
    "CHAR(4) CHARACTER SET utf32": "'ab  '",
    "VARCHAR(9) CHARACTER SET gbk": "'語'",
    "VARCHAR(9) CHARACTER SET binary": "'ab'|0x00FF",
    "BINARY": "'a'",
    "BINARY(4)": "'ab'|1.50|0x00|X'FF'|00|'é'",
    "VARBINARY(9)": "007|1e2|'é'|X'00FF'|b'1'|'a '|_latin1'é'",
    "ENUM('a','b','c d','É')": "'B '|0x62|'C D'|'É'|'a'",
    "ENUM('3','2','1','100')": "2|'2'|1e2",
    "ENUM('','b')": "''",
    "ENUM('é','a ') CHARACTER SET binary": "0xC3A9|'a '",
    "SET('a','b','c')": "'C,a,a'|'b '|''|'c,b,a'",
    "SET('1','2','3')": "2|'3,1'",
    "DATE": (
        "'2020-02-29 23:59:59.9'|'2020-02-29 23:59:59.4'|20200229|20200229235959.9|"
        "'20200229'|'200229'|200229|101|'1-2-3'|"
        "'70-2-3'|'123-2-3'|'2020/2/3'|'2020.2.3'|'2020-02-03T10:11:12'|'10:11:12'|'9999-12-31'"
    ),
    "DATETIME": (
        "'10:11:12'|'2020-02-29'|'2020-02-29 10'|'2020-02-29 10:11'|'2020-12-31 23:59:59.5'|"
        "'2020-02-29 23:59:59.4999999'|"
        "'20200229T101112'|'200229101112'|200229101112|' 2020-02-29 10:11:12 '|'2020-02-29  10:11:12'|20200229|"
        "'2020-02-29 10.11.12'|'2020-02-29 10:11:12.'|0x323032302D30322D3239|'1970-01-01'|'2262-04-11 23:47:16'|"
        "'1.2.3'|'20.2.3 10:11:12'"
    ),
    "DATETIME(3)": "'2020-02-29T12:00:00.1239'|'2020-12-31 23:59:59.9995'|20200229120000.1239|'2020-02-29 1:2:3.04'",
    "DATETIME(6)": "'2020-12-31 23:59:59.9999995'|'2020-12-31 23:59:59.99999949'",
    "DATETIME(1)": "'20200229101112.55'|'200229101112.55'",
    "TIME": (
        "'10:11:12.5'|'10:11:12.4999999'|'1 02:03:04.5'|'10'|10|'1011'|1011|101112.5|'10:11'|-101112|'123:45:56.123'|"
        "'2020-02-29 10:11:12.9'|'-0:0:1'|'0:0:0'|0|'-100:00:00'|'596:31:22.9'|"
        "'2021-01-28 10:11:12.49999919'"
    ),
    "TIME(2)": "101112.555",
    "TIME(3)": "'23:59:58.9995'|'-23:59:59.9995'|'-00:00:00.0004'|'-00:00:00.0005'",
    "TIME(6)": "'10:11:12.123456'|'09:59:59.99999949'|'09:59:59.99999991'|'-10:05:00.99999949'|101112.99999949",
}
DEFINITIONS = [f"{type_name} DEFAULT {each}" for type_name, texts in LITERALS.items() for each in texts.split("|")]
TRUNCATED = [
    "DATETIME(3) DEFAULT '2020-12-31 23:59:59.9995'",
    "TIME DEFAULT '-10:11:12.9'",
    "DATE DEFAULT 20201231235959.9",
]
MODES = [
    DecoderOptions(
        decimal_mode=DECIMAL_MODES[i % len(DECIMAL_MODES)],
        bigint_unsigned_mode=BIGINT_UNSIGNED_MODES[i % len(BIGINT_UNSIGNED_MODES)],
        binary_mode=BINARY_MODES[i % len(BINARY_MODES)],
        time_mode=mode,
        time_adjuster=bool(i % 2),
        contract=("3.x", "1.9")[i % 2],
    )
    for i, mode in enumerate(TIME_MODES)
]


@pytest.mark.req("SETUP-17", "TYPE-58")
def test_rows_of_defaults_are_what_the_server_stored(stack: Any, unique: str) -> None:
    conn = connect(stack)
    execute(conn, f"CREATE DATABASE `{unique}` CHARACTER SET utf8mb4")
    execute(conn, f"USE `{unique}`")
    settings = ConnectionSettings(stack.mysql_host, stack.mysql_port, stack.cdc_user, Secret(stack.cdc_password))
    stream = StructureStream(settings, conn, (unique,), SchemaState())
    for name, definitions in (("t", DEFINITIONS), ("cut", TRUNCATED)):
        execute(
            conn, "SET sql_mode = CONCAT(@@GLOBAL.sql_mode, %s)", "" if name == "t" else ",TIME_TRUNCATE_FRACTIONAL"
        )
        columns = ", ".join(f"c{i} {definition}" for i, definition in enumerate(definitions))
        execute(conn, f"CREATE TABLE {name} (id INT PRIMARY KEY, {columns}) ROW_FORMAT=DYNAMIC")
        born = stream.follow().tables[TableId(unique, name)]
        start = binlog_end(conn)
        for number, image in enumerate(("MINIMAL", "FULL")):
            execute(conn, f"SET SESSION binlog_row_image = '{image}'")
            execute(conn, f"INSERT INTO {name} (id) VALUES ({number})")
        shown = create_statement(conn, TableId(unique, name), print)
        # What six digits tell stays as the server prints it.
        assert name == "cut" or ("float DEFAULT '0.1'," in shown and "float DEFAULT '-1.17549435e-38'," in shown)
        for structure in (born, parse_create(shown, DdlContext(default_db=unique))):
            for options in MODES:
                minimal, full = decode(stack, conn, unique, start, options, {name: structure})
                _, read = snapshot(conn, unique, name, options)
                assert minimal.after is not None and full.after is not None and read.after is not None
                wrong = {
                    definitions[int(key[1:])]: (value, full.after[key], read.after[key])
                    for key, value in minimal.after.items()
                    if key != "id" and not repr(value) == repr(full.after[key]) == repr(read.after[key])
                }
                assert not wrong, ("the stream" if structure is born else "SHOW CREATE TABLE", options, wrong)
    execute(conn, f"DROP DATABASE `{unique}`")
