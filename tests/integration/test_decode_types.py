"""Every column type against a real server: binlog, text protocol and SELECT must tell the same."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest
from decode_rig import DEFAULT, binlog_end, connect, decode, execute, image_text, snapshot

from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.model.java import java_double, java_float

LAX = "SET SESSION sql_mode='ALLOW_INVALID_DATES', time_zone='+00:00'"
# Column definitions and the literals put into them, one row a literal; every column also gets a row of NULLs.
TYPES: dict[str, tuple[str, ...]] = {
    "TINYINT": ("-128", "127", "0"),
    "TINYINT UNSIGNED": ("0", "255"),
    "TINYINT(1)": ("1", "-1"),
    "SMALLINT": ("-32768", "32767"),
    "SMALLINT UNSIGNED": ("65535", "0"),
    "MEDIUMINT": ("-8388608", "8388607", "-1"),
    "MEDIUMINT UNSIGNED": ("16777215", "8388608"),
    "INT": ("-2147483648", "2147483647"),
    "INT UNSIGNED ZEROFILL": ("4294967295", "7"),
    "BIGINT": ("-9223372036854775808", "9223372036854775807"),
    "BIGINT UNSIGNED": ("18446744073709551615", "9223372036854775808", "9223372036854775807", "0"),
    "BIGINT(20) ZEROFILL": ("18446744073709551615", "7"),
    "DECIMAL(1)": ("9", "-9", "0"),
    "DECIMAL(10,2)": ("99999999.99", "-99999999.99", "0.01", "-0.01", "327.67", "327.68", "83886.07", "83886.08"),
    "DECIMAL(9,9)": ("0.999999999", "-0.000000001"),
    "DECIMAL(18,9)": ("999999999.999999999", "-999999999.999999999", "-1.5"),
    "DECIMAL(20,4) UNSIGNED": ("9999999999999999.9999", "1.5"),
    "DECIMAL(6,2) ZEROFILL": ("1.28", "0"),
    "DECIMAL(65,0)": ("9" * 65, "-" + "9" * 65, "1"),
    "DECIMAL(65,30)": ("9" * 35 + "." + "9" * 30, "-0.5", "0"),
    "DECIMAL(30,30)": ("0." + "9" * 30, "-0.000000000000000000000000000001"),
    "FLOAT": ("0", "3.402823466E38", "-1.17549435E-38", "1.4E-45", "0.1", "16777217", "3.14159274", "1e10", "-0e0"),
    "FLOAT(7,2)": ("99999.99", "0.01", "-1234.5"),
    "DOUBLE": ("0", "1.7976931348623157E308", "4.9E-324", "0.1", "1e7", "123456789.125", "1e-5", "0.001", "-0e0"),
    "DOUBLE(20,4)": ("9999999999999999.9999", "0.0001", "1e15"),
    "BIT": ("b'1'", "b'0'"),
    "BIT(9)": ("b'100000010'", "0"),
    "BIT(64)": ("18446744073709551615", "72623859790382856"),
    "DATE": (
        "'0000-00-00'", "'1000-01-01'", "'9999-12-31'", "'1969-12-31'", "'2024-02-29'", "'2024-00-00'", "'1582-10-10'",
    ),
    "YEAR": ("0", "1901", "2155", "1970"),
    **{
        f"TIME({n})": (
            "'838:59:59'", "'-838:59:58.999999'", "'-00:00:00.011111'", "'12:34:56.789123'", "'24:00:00'", "'0:0:0'",
        )
        for n in range(7)
    },
    **{
        f"DATETIME({n})": (
            "'0000-00-00'", "'1000-01-01 00:00:00.123456'", "'9999-12-31 23:59:59'", "'1969-12-31 23:59:59.4'",
            "'2024-02-29 12:34:56.789123'", "'2024-05-00 10:00:00'", "'1582-10-10 01:02:03'",
        )
        for n in range(7)
    },
    **{
        f"TIMESTAMP({n}) NULL": (
            "'0000-00-00'", "'1970-01-01 00:00:01'", "'2038-01-19 03:14:07.4'", "'2024-02-29 12:34:56.789123'",
            "'2024-03-31 02:30:00.12'",
        )
        for n in range(7)
    },
    "CHAR(10)": ("''", "'ab  '", "'  ü中😀'"),
    "CHAR(255)": ("'x'", "REPEAT('é', 255)"),
    "VARCHAR(20)": ("'trail  '", "'q\" \\\\ \\n \\t \\0 \\Z /'", "'😀'", "''"),
    "VARCHAR(2000)": ("REPEAT('a', 2000)", "REPEAT('中', 300)", "'x'"),
    "TINYTEXT": ("REPEAT('x', 255)", "''"),
    "TEXT": ("REPEAT('y', 60000)",),
    "MEDIUMTEXT": ("REPEAT('z', 70000)", "'m'"),
    "LONGTEXT": ("REPEAT('ü', 70000)",),
    "BINARY(4)": ("X'00010200'", "'a'", "''", "X'20202020'"),
    "VARBINARY(20)": ("X'FFFE00'", "''"),
    "VARBINARY(300)": ("REPEAT(X'00', 300)",),
    "TINYBLOB": ("X'FF'",),
    "BLOB": ("REPEAT(X'FBFFBF', 1000)", "''"),
    "MEDIUMBLOB": ("REPEAT('x', 70000)",),
    "LONGBLOB": ("X'7F80'",),
    "CHAR(4) CHARACTER SET binary": ("'A'", "'a  '"),
    "ENUM('x,y','it''s','','ünï','sp ace ')": ("'x,y'", "'it''s'", "'ünï'", "'sp ace'", "'bad'", "3"),
    "ENUM('l1','é') CHARACTER SET latin1": ("'é'",),
    "SET('a','b','ü')": ("''", "'a,ü'", "'a,b,ü'"),
    "SET(" + ",".join(f"'m{i}'" for i in range(64)) + ")": ("18446744073709551615", "1", "9223372036854775808"),
    "SET(" + ",".join(f"'m{i}'" for i in range(20)) + ")": ("1048575", "524288"),
    "ENUM(" + ",".join(f"'m{i}'" for i in range(300)) + ")": ("'m299'", "'m0'"),
    "GEOMETRY": ("ST_GeomFromText('LINESTRING(0 0,1 1)', 3857)", "ST_GeomFromText('POINT(1 1)')"),
    "POINT": ("ST_GeomFromText('POINT(1.5 -2.5)')", "ST_GeomFromText('POINT(10 20)', 4326)"),
    "POLYGON": ("ST_GeomFromText('POLYGON((0 0,10 0,10 10,0 10,0 0),(5 5,7 5,7 7,5 7,5 5))')",),
    "GEOMETRYCOLLECTION": ("ST_GeomFromText('GEOMETRYCOLLECTION EMPTY')",),
    "VECTOR(3)": ("TO_VECTOR('[0.1,-2.5,3e10]')", "TO_VECTOR('[0,0,0]')"),
}  # fmt: skip


def day(value: str) -> str:
    """Return SQL that is NULL for dates Debezium gives as null, else the day's distance from 1970-01-01."""
    return f"IF(YEAR({value}) = 0 OR MONTH({value}) = 0 OR DAY({value}) = 0, NULL, TO_DAYS({value}) - 719528)"


def time_micros(text: str) -> int:
    sign = -1 if text.startswith("-") else 1
    hours, minutes, seconds = text.lstrip("-").split(":")
    return sign * int((Decimal(hours) * 3600 + Decimal(minutes) * 60 + Decimal(seconds)) * 1_000_000)


BYTES = ("BINARY", "VARBINARY", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB", "VECTOR")
SPATIAL = ("GEOMETRY", "POINT", "POLYGON", "GEOMETRYCOLLECTION")
Answer = tuple[str, Callable[[Any], Any]]
# SQL that asks for a value independently of the decoders, and how to make of its answer what ``told`` returns.
EXPECTATIONS: dict[str, Answer] = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "YEAR"), ("{c} + 0", int)),
    **dict.fromkeys(BYTES, ("HEX({c})", str)),
    **dict.fromkeys(
        SPATIAL,
        ("IF({c} IS NULL, NULL, JSON_ARRAY(HEX(ST_AsWKB({c}, 'axis-order=long-lat')), ST_SRID({c})))", json.loads),
    ),
    "BIGINT": ("CAST({c} AS SIGNED)", int),
    "DECIMAL": ("{c} + 0", str),
    "DOUBLE": ("{c} * 1e0", lambda v: float(java_double(v))),
    "BIT": ("CAST({c} AS UNSIGNED)", int),
    "DATE": (day("{c}"), int),
    "TIME": ("CAST({c} AS CHAR)", time_micros),
    "TIMESTAMP": ("IF({c} = 0, NULL, CONCAT(REPLACE({c}, ' ', 'T'), 'Z'))", str),
}


def expectation(sql_type: str, digits: int) -> Answer:
    """Return the SQL and the conversion of one column definition."""
    if sql_type == "FLOAT":
        return "{c} * 1e0", lambda v: float(java_float(v))
    if "CHARACTER SET binary" in sql_type:
        return EXPECTATIONS["BINARY"]
    word = sql_type.partition("(")[0].split()[0]
    if word == "DATETIME":
        unit = 1000 if digits <= 3 else 1
        clock = "TIME_TO_SEC({c}) * 1000000 + MICROSECOND({c})"
        return f"({day('{c}')}) * 86400000000 + {clock}", lambda v: int(v) // unit
    word = "DOUBLE" if word == "FLOAT" else word
    return EXPECTATIONS.get(word, ("CONVERT({c} USING utf8mb4)", str))


def told(sql_type: str, value: Any) -> Any:
    """Return an event's value in the form of ``EXPECTATIONS``."""
    word = sql_type.partition("(")[0].split()[0]
    if value is None:
        return None
    if word == "DECIMAL":
        number = int.from_bytes(base64.b64decode(value), "big", signed=True)
        return str(exact(number, int(sql_type.partition(",")[2].partition(")")[0] or 0)))
    if word == "BIT":
        return int(value) if isinstance(value, bool) else int.from_bytes(base64.b64decode(value), "little")
    if word == "VECTOR":
        return struct.pack("<3f", *value).hex().upper()
    if word in SPATIAL:
        return [base64.b64decode(value["wkb"]).hex().upper(), value["srid"] or 0]
    if word in BYTES or "CHARACTER SET binary" in sql_type:
        return base64.b64decode(value).hex().upper()
    return value


def exact(number: int, scale: int) -> Decimal:
    digits = tuple(map(int, str(abs(number)).rjust(scale + 1, "0")))
    return Decimal((int(number < 0), digits, -scale))


@pytest.fixture(scope="module")
def db(stack: Any) -> Iterator[tuple[Any, str]]:
    conn = connect(stack)
    name = "c_test_types"
    execute(conn, f"DROP DATABASE IF EXISTS {name}")
    execute(conn, f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
    execute(conn, f"USE {name}")
    execute(conn, LAX)
    yield conn, name
    execute(conn, f"DROP DATABASE {name}")
    conn.close()


@pytest.fixture(scope="module", params=["MINIMAL", "FULL"])
def loaded(request: Any, stack: Any, db: tuple[Any, str]) -> tuple[Any, str, dict[str, list[Any]], tuple[str, int]]:
    """Return what streaming gives for one table a type, written under the metadata setting."""
    conn, name = db
    start = binlog_end(conn)
    before = execute(conn, "SELECT @@GLOBAL.binlog_row_metadata")[0][0]
    execute(conn, f"SET GLOBAL binlog_row_metadata = '{request.param}'")
    try:
        for index, (sql_type, values) in enumerate(TYPES.items()):
            execute(conn, f"DROP TABLE IF EXISTS t{index}")
            execute(conn, f"CREATE TABLE t{index} (id INT AUTO_INCREMENT PRIMARY KEY, c {sql_type}, z INT)")
            for value in (*values, "NULL"):
                execute(conn, f"INSERT INTO t{index} (c, z) VALUES ({value}, 1)")
    finally:
        execute(conn, f"SET GLOBAL binlog_row_metadata = '{before}'")
    found: dict[str, list[Any]] = {}
    for record in decode(stack, conn, name, start):
        found.setdefault(record.table, []).append(record)
    return conn, name, found, start


@pytest.mark.req("TYPE-02", "TYPE-41", "TYPE-49", "TYPE-50", "TYPE-53")
@pytest.mark.req("TYPE-18", "TYPE-19", "TYPE-20", "TYPE-21", "TYPE-22", "TYPE-23", "TYPE-24", "TYPE-25")
def test_binlog_select_and_snapshot_agree_value_by_value(loaded: Any) -> None:
    conn, name, found, _ = loaded
    for index, (sql_type, values) in enumerate(TYPES.items()):
        streamed = found[f"t{index}"]
        assert len(streamed) == len(values) + 1, sql_type
        digits = int(sql_type.partition("(")[2].partition(")")[0]) if sql_type.startswith("DATETIME") else 0
        sql, make = expectation(sql_type, digits)
        wanted = execute(conn, f"SELECT id, {sql.format(c='c')} FROM t{index} ORDER BY id")
        expected = {number: None if value is None else make(value) for number, value in wanted}
        got = {r.after["id"]: told(sql_type, r.after["c"]) for r in streamed}
        assert got == expected, sql_type
        assert [repr(v) for v in got.values()] == [repr(v) for v in expected.values()], sql_type
        read = snapshot(conn, name, f"t{index}", order="ORDER BY id")
        assert [image_text(r.value_bytes) for r in read] == [image_text(r.value_bytes) for r in streamed], sql_type
        assert [r.key_bytes for r in read] == [r.key_bytes for r in streamed], sql_type


def mode_name(options: DecoderOptions) -> str:
    changed = (getattr(options, n) for n in DecoderOptions.__slots__ if getattr(options, n) != getattr(DEFAULT, n))
    return ",".join(map(str, changed))


MODES = [
    DecoderOptions(decimal_mode="string"),
    DecoderOptions(decimal_mode="double"),
    DecoderOptions(bigint_unsigned_mode="precise"),
    DecoderOptions(binary_mode="hex"),
    DecoderOptions(binary_mode="base64-url-safe"),
    # Not adaptive: it cannot represent a TIME(3) of 838:59:59 (tests/unit/decode/test_values.py).
    *(DecoderOptions(time_mode=m) for m in ("connect", "isostring", "microseconds", "nanoseconds")),
]


@pytest.mark.halves
def test_binlog_and_snapshot_agree_in_every_mode(stack: Any, loaded: Any) -> None:
    conn, name, _, start = loaded
    for options in MODES:
        streamed: dict[str, list[str]] = {}
        for record in decode(stack, conn, name, start, options):
            streamed.setdefault(record.table, []).append(image_text(record.value_bytes))
        assert len(streamed) == len(TYPES), mode_name(options)
        for table, images in streamed.items():
            read = snapshot(conn, name, table, options, order="ORDER BY id")
            assert [image_text(r.value_bytes) for r in read] == images, (mode_name(options), table)


CHARSETS = {
    "armscii8": "Աբգ", "ascii": "ascii", "big5": "繁體", "cp1250": "Łódź", "cp1251": "Привет", "cp1256": "مرحبا",
    "cp1257": "ąčę", "cp850": "ø£", "cp852": "Łß", "cp866": "Жук", "cp932": "日本①", "dec8": "åäö", "eucjpms": "日本～",
    "euckr": "한국어갂", "gb18030": "汉😀ḿ", "gb2312": "汉字", "gbk": "汉繁體", "geostd8": "აბგ", "greek": "αβγ",
    "hebrew": "אבג", "hp8": "Àé", "keybcs2": "Čž", "koi8r": "Жук", "koi8u": "Їжак", "latin1": "é€ÿ", "latin2": "Łódź",
    "latin5": "ğış", "latin7": "ąė", "macce": "Āž", "macroman": "é√", "sjis": "日本ｶﾅ", "swe7": "ÅÄÖ", "tis620": "ไทย",
    "ucs2": "ucs中愠", "ujis": "日本語", "utf16": "u16😀", "utf16le": "le😀", "utf32": "u32😀", "utf8mb3": "ü中",
    "utf8mb4": "z😀\"\\",
}  # fmt: skip


@pytest.mark.req("TYPE-02", "STRM-10")
def test_text_of_every_character_set(stack: Any, db: tuple[Any, str]) -> None:
    conn, name = db
    names = {row[0] for row in execute(conn, "SELECT character_set_name FROM information_schema.character_sets")}
    assert names - {"binary"} <= set(CHARSETS)
    start = binlog_end(conn)
    for charset in sorted(names - {"binary"}):
        text = CHARSETS[charset]
        execute(conn, f"DROP TABLE IF EXISTS cs_{charset}")
        execute(
            conn,
            f"CREATE TABLE cs_{charset} (id INT AUTO_INCREMENT PRIMARY KEY, c CHAR(9), v VARCHAR(40), x TEXT,"
            f" e ENUM('{text[0]}', 'b')) CHARACTER SET {charset}",
        )
        columns = f"cs_{charset} (c, v, x, e)"
        execute(conn, f"INSERT INTO {columns} VALUES (%s, %s, %s, 1)", (text, text, text))
        execute(conn, f"INSERT INTO {columns} VALUES ('', 'ab  ', 'ab', 'b'), (NULL, NULL, NULL, NULL)")
    streamed: dict[str, list[Any]] = {}
    for record in decode(stack, conn, name, start):
        streamed.setdefault(record.table, []).append(record)
    for table, records in streamed.items():
        text = CHARSETS[table.removeprefix("cs_")]
        first = {"id": 1, "c": text, "v": text, "x": text, "e": text[0]}
        assert records[0].after == first, table
        assert records[1].after == {"id": 2, "c": "", "v": "ab  ", "x": "ab", "e": "b"}, table
        read = snapshot(conn, name, table, order="ORDER BY id")
        assert [image_text(r.value_bytes) for r in read] == [image_text(r.value_bytes) for r in records], table
    assert len(streamed) == len(names) - 1


DOCUMENTS = [
    "'{}'", "'[]'", "'null'", "'true'", "'\"ü😀 \\\\\" \\\\\\\\ / \\\\b\\\\f\\\\n\\\\r\\\\t \\\\u0001\\\\u001f\"'",
    "'-1'",
    "'9223372036854775807'", "'18446744073709551615'", "'18446744073709551616'", "'1e100'", "'0.1'", "'-0.0'", "'1.0'",
    "'123456789.123456789'", "'[1e21, 1e15, 1e14, 1e-7, 1e-15, 1e-16, 4.9e-324, 123456789012, 100000.0]'",
    "'{\"b\": 1, \"a\": [1, 2.5, \"x, y: z\", null, true, {\"n\": {}}], \"long key\": \"v\", \"\": 0}'",
    "CAST(1.50 AS JSON)", "CAST(CAST('-12345678901234567890.123456789' AS DECIMAL(40,10)) AS JSON)",
    "CAST(DATE '2024-02-29' AS JSON)", "CAST(TIMESTAMP '2024-02-29 12:34:56.789012' AS JSON)",
    "CAST(TIME '-12:34:56.000001' AS JSON)", "CAST(CAST('2024-01-01' AS DATETIME) AS JSON)", "CAST(X'00FF' AS JSON)",
    "JSON_OBJECT('bin', X'DEADBEEF', 'bit', b'101', 'y', CAST(2024 AS YEAR), 't', TIME '838:59:59')",
    "JSON_OBJECT('big', REPEAT('x', 70000), 'n', JSON_ARRAY(-32769, 32768, 65536, -2147483649, 4294967296))",
    *(f"JSON_ARRAY({'9' * 35}.{'9' * 30}{times})" for times in ("", " * 9", " * 9999999999999999")),
    f"CAST({'9' * 65} * -9999999999 AS JSON)", *(f"JSON_ARRAY(REPEAT(X'FF', {n}))" for n in (0, 57, 58, 115, 3000)),
    "JSON_OBJECT('p', ST_GeomFromText('POINT(1 2)'))", "CAST(CAST(X'DEADBEEF' AS BINARY(6)) AS JSON)",
    "JSON_ARRAY(REPEAT('ü', 100), REPEAT('a', 127), REPEAT('b', 128), REPEAT('c', 20000))",
]  # fmt: skip


@pytest.mark.req("TYPE-26")
def test_json_equals_the_servers_own_text_without_blanks(stack: Any, db: tuple[Any, str]) -> None:
    conn, name = db
    execute(conn, "DROP TABLE IF EXISTS docs")
    execute(conn, "CREATE TABLE docs (id INT AUTO_INCREMENT PRIMARY KEY, j JSON)")
    start = binlog_end(conn)
    for document in [*DOCUMENTS, "NULL"]:
        execute(conn, f"INSERT INTO docs (j) VALUES ({document})")
    streamed = decode(stack, conn, name, start)
    shown = dict(execute(conn, "SELECT id, CAST(j AS CHAR) FROM docs"))
    for record in streamed:
        text = shown[record.after["id"]]
        if text is None:
            assert record.after["j"] is None
            continue
        parsed = json.loads(text, parse_float=Decimal, parse_int=Decimal)
        assert json.loads(record.after["j"], parse_float=Decimal, parse_int=Decimal) == parsed
        assert len(record.after["j"]) <= len(text)
    read = snapshot(conn, name, "docs", DEFAULT, order="ORDER BY id")
    assert [image_text(r.value_bytes) for r in read] == [image_text(r.value_bytes) for r in streamed]
