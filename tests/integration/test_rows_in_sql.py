"""Rows as the server writes them in SQL are, byte for byte, rows as the encoders of records write them."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any

import pymysql
import pytest
from decode_rig import table_of
from kit.create_statement import parse_create
from kit.private_mysql import Pool
from kit.sql import execute, rows
from kit.table_records import config
from kit.tiers import many
from test_decode_types import LAX, SPATIAL, TYPES

from airflow_provider_mysql_cdc.cdc.binlog.connect import prepare_session
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId, quote_name
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import rows_sql
from airflow_provider_mysql_cdc.cdc.snapshot.rows import RowBlock, stream_blocks
from airflow_provider_mysql_cdc.cdc.verify.read.row_records import RowRecords, WrittenRow
from airflow_provider_mysql_cdc.cdc.verify.read.sql_literals import escapes_as_in_sql
from airflow_provider_mysql_cdc.cdc.verify.read.sql_row_text import sql_texts, sums_sql

SCHEMAS_OFF = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
MODES: dict[str, tuple[dict[str, str], frozenset[str]]] = {
    "plain": (SCHEMAS_OFF, frozenset()),
    "schemas": ({}, frozenset()),
    "contract-1.9": ({"event.contract": "1.9"}, frozenset()),
    "strings": ({"decimal.handling.mode": "string", **SCHEMAS_OFF}, frozenset()),
    "precise": ({"bigint.unsigned.handling.mode": "precise", "binary.handling.mode": "hex"}, frozenset({"BIGINT"})),
    "adaptive": ({"binary.handling.mode": "base64", "time.precision.mode": "adaptive"}, frozenset()),
    "connect": (
        {"binary.handling.mode": "base64-url-safe", "time.precision.mode": "connect"},
        frozenset({"TIME"}),
    ),
    "microseconds": ({"time.precision.mode": "microseconds", "enable.time.adjuster": "false"}, frozenset()),
    "null-as-default": ({"value.converter.replace.null.with.default": "true"}, frozenset()),
    "masked": (
        {"column.mask.with.5.chars": r".*\.t\.t\d+", "column.exclude.list": r".*\.t\.n\d+"},
        frozenset(),
    ),
}
"""Properties, and types that SQL cannot write with them, beside those that it never writes."""
NEVER = frozenset({"BIT", "DECIMAL", "DOUBLE", "FLOAT"})
OTHER_CHARSETS = (
    "ascii", "latin1", "latin2", "latin5", "latin7", "cp1250", "cp1251", "cp1256", "cp1257", "cp850", "cp852", "cp866",
    "greek", "hebrew", "koi8r", "koi8u", "macce", "macroman", "armscii8", "geostd8", "dec8", "hp8", "keybcs2", "swe7",
    "tis620", "utf8mb3", "ucs2", "utf16", "utf16le", "utf32", "gbk", "gb2312", "gb18030", "big5", "sjis", "cp932",
    "ujis", "eucjpms", "euckr",
)  # fmt: skip
ROWS = int(os.environ.get("MYSQL_CDC_SQL_ROWS", str(many(100, 300))))
"""Rows with random values; more find more."""
Draw = Callable[[random.Random], str]


def _integer(low: int, high: int) -> Draw:
    def draw(chance: random.Random) -> str:
        bits = chance.randrange(high.bit_length() + 1)
        number = chance.getrandbits(bits) if bits else 0
        return str(max(low, min(high, chance.choice((number, -number, number - 1, -number - 1)))))

    return draw


def _decimal(digits: int, scale: int) -> Draw:
    number = _integer(-(10**digits) + 1, 10**digits - 1)
    return lambda chance: f"{number(chance)}e-{scale}"


def _string(alphabet: str, length: int) -> Draw:
    def draw(chance: random.Random) -> str:
        text = "".join(chance.choice(alphabet) for _ in range(chance.randrange(length + 1)))
        return f"_utf8mb4 X'{text.encode().hex()}'" if text else "''"

    return draw


def _binary(length: int) -> Draw:
    return lambda chance: f"X'{chance.randbytes(chance.randrange(length + 1)).hex()}'"


def _date(chance: random.Random) -> str:
    year = chance.choice((0, chance.randrange(1, 100), chance.randrange(10000), chance.randrange(1600, 2300)))
    return f"{year:04}-{chance.randrange(13):02}-{chance.randrange(29):02}"


def _clock(chance: random.Random) -> str:
    micros = chance.choice((0, 10, 1000, 999_999, chance.randrange(1_000_000)))
    return f"{chance.randrange(24):02}:{chance.randrange(60):02}:{chance.randrange(60):02}.{micros:06}"


def _moment(chance: random.Random) -> str:
    return f"FROM_UNIXTIME({chance.randrange(1, 2_147_483_647)}) + INTERVAL {chance.randrange(1_000_000)} MICROSECOND"


def _time(chance: random.Random) -> str:
    sign, hours = chance.choice(("", "-")), chance.choice((0, 23, 24, chance.randrange(596)))
    return f"'{sign}{hours:02}{_clock(chance)[2:]}'"


SPECIAL = "".join(map(chr, (*range(1, 128), 0x80, 0xE9, 0x2028, 0x2029, 0xFFFD, 0xFFFF, 0x10000, 0x1F600, 0x10FFFF)))
ANSI = "".join(map(chr, (*range(1, 128), *range(0xA0, 0x100), 0x20AC)))
DECIMALS = ((1, 0), (5, 5), (9, 2), (12, 4), (18, 0), (18, 6), (18, 18))
DRAWN: dict[str, Draw] = {
    **{
        f"{name}{unsigned}": _integer(0 if unsigned else -(1 << bits - 1), (1 << bits - (not unsigned)) - 1)
        for name, bits in (("TINYINT", 8), ("SMALLINT", 16), ("MEDIUMINT", 24), ("INT", 32), ("BIGINT", 64))
        for unsigned in ("", " UNSIGNED", " UNSIGNED ZEROFILL")
    },
    **{f"DECIMAL({p},{s})": _decimal(p, s) for p, s in DECIMALS},
    "BIT(1)": lambda chance: str(chance.getrandbits(1)),
    "VARCHAR(40)": _string(SPECIAL, 40),
    "CHAR(8)": _string(SPECIAL, 8),
    "TEXT": _string(SPECIAL, 90),
    "VARCHAR(20) CHARACTER SET latin1": _string(ANSI, 20),
    "CHAR(20) CHARACTER SET utf8mb3": _string(SPECIAL[:-3], 20),
    "BINARY(9)": _binary(9),
    "VARBINARY(57)": _binary(57),
    "VARBINARY(58)": _binary(58),
    "BLOB": _binary(200),
    "DATE": lambda chance: f"'{_date(chance)}'",
    **{f"DATETIME({n})": lambda chance: f"'{_date(chance)} {_clock(chance)}'" for n in range(7)},
    **{f"TIMESTAMP({n}) NULL": _moment for n in range(7)},
    **{f"TIME({n})": _time for n in range(7)},
    "YEAR": lambda chance: str(chance.choice((0, chance.randrange(1901, 2156)))),
}
LETTERS = {"BINARY": "b", "VARBINARY": "b", "BLOB": "b", "TINYBLOB": "b", "CHAR": "t", "VARCHAR": "t", "ENUM": "e"}


def letter(sql_type: str) -> str:
    word = sql_type.partition(" ")[0].partition("(")[0]
    return LETTERS.get(word, "t" if word.endswith("TEXT") else "n" if word in ("INT", "BIGINT") else "x")


def fill(root: Any, table: str, values: list[list[str]]) -> None:
    execute(root, "SET sql_log_bin = 0")
    for start in range(0, len(values), 100):
        execute(
            root,
            f"INSERT IGNORE INTO {table} VALUES " + ",".join(f"({','.join(v)})" for v in values[start : start + 100]),
        )


def many_types(root: Any, db: str) -> None:
    """Make table t of all types: edge values, NULLs and random values; each type once NOT NULL, too."""
    chance = random.Random(7)
    left_out = ("LONGTEXT", "MEDIUMTEXT", "TEXT", "MEDIUMBLOB", "VARCHAR(2000)", *SPATIAL, "VECTOR")
    known = [name for name in TYPES if not name.startswith(left_out)]
    types = [*((name, None) for name in known), *DRAWN.items()]
    columns = [(f"{letter(name)}{n}", name, draw) for n, (name, draw) in enumerate(types)]
    declared = ", ".join(f"{name} {sql_type}" for name, sql_type, _ in columns)
    required = [(name, t.removesuffix(" NULL"), draw) for name, t, draw in columns if draw is not None]
    declared += "".join(f", {name}0 {sql_type} NOT NULL" for name, sql_type, _ in required)
    execute(root, LAX, f"CREATE TABLE `{db}`.t (id INT PRIMARY KEY, {declared}) ROW_FORMAT=DYNAMIC")
    values = []
    for row in range(ROWS):
        line = [str(row)]
        for _, sql_type, draw in columns:
            literals = TYPES.get(sql_type, ())
            if row == 0 or chance.random() < 0.03:
                line.append("NULL")
            elif row <= len(literals):
                line.append(literals[row - 1])
            else:
                line.append(chance.choice(literals) if draw is None else draw(chance))
        line += [draw(chance) for *_, draw in required]
        values.append(line)
    fill(root, f"`{db}`.t", values)


def encoded(conn: Any, cfg: ConnectorConfig, table: Table) -> list[tuple[bytes, bytes] | None]:
    """Return keys and rows of a table as the encoders write them, in the order of the key; None for refused rows."""
    records, written = RowRecords(cfg, table, 1, None, BinlogOffset("binlog.000001", 4)), []
    for block in stream_blocks(conn, rows_sql(table.id, records.columns, "TRUE", table.primary_key), "test"):
        for packet in block:
            row = next(records.of_block(RowBlock(1, len(packet).to_bytes(3, "little") + b"\0" + packet)), None)
            written.append(None if row is None else key_and_after(row))
    return written


def key_and_after(row: WrittenRow) -> tuple[bytes, bytes]:
    key, value, *_ = row
    assert key is not None
    assert value is not None
    key = key[key.index(b',"payload":') + len(b',"payload":') : -1] if key.startswith(b'{"schema":') else key
    begin = value.index(b'{"before":null,"after":{') + len(b'{"before":null,"after":')
    return key, value[begin : value.index(b'},"source":{"version":', begin) + 1]


def supported(cfg: ConnectorConfig, table: Table) -> frozenset[str]:
    """Return the columns that SQL can write, tried one by one."""
    key = [column for column in table.columns if column.name in table.primary_key]
    return frozenset(
        column.name
        for column in table.columns
        if sql_texts(cfg, replace(table, columns=(*key, *(c for c in (column,) if c not in key)))) is not None
    )


def compare(root: Any, properties: dict[str, str], table: Table) -> tuple[frozenset[str], int]:
    """Compare each row of a table; return the columns that SQL cannot write, and the number of rows."""
    cfg = config(properties)
    columns = supported(cfg, table)
    part = replace(table, columns=tuple(column for column in table.columns if column.name in columns))
    texts = sql_texts(cfg, part)
    assert texts is not None
    order = ", ".join(map(quote_name, table.primary_key))
    texts_sql = f"CAST({texts.key_fields} AS BINARY), CAST({texts.after} AS BINARY)"
    written = rows(root, f"SELECT {texts_sql} FROM {table.id.quoted()} ORDER BY {order}")
    compared = 0
    for record, row in zip(encoded(root, cfg, part), written, strict=True):
        if record is not None:
            compared += 1
            assert row == tuple(map(escapes_as_in_sql, record))
    return frozenset(column.name for column in table.columns) - columns, compared


def test_rows_are_those_of_records_in_all_modes(root: Any, database: str) -> None:
    check_all_modes(root, database)


@pytest.mark.exhaustive
@pytest.mark.parametrize("version", ["5.7.22", "8.0.15"])
def test_rows_of_an_old_server(version: str, pool: Pool) -> None:
    with pool.lent(version) as server, closing(server.connect()) as conn:
        execute(conn, "CREATE DATABASE old CHARACTER SET utf8mb4")
        check_all_modes(conn, "old")
        check_character_sets(conn, "old")


def check_all_modes(root: Any, database: str) -> None:
    many_types(root, database)
    prepare_session(root, "test")
    table = table_of(root, database, "t")
    for name, (properties, lacking) in MODES.items():
        unwritten, compared = compare(root, properties, table)
        # Rows with a value that a mode refuses are not compared, so most of mode adaptive.
        assert compared > ROWS * 0.1, name
        assert {c.type_name for c in table.columns if c.name in unwritten} - NEVER == lacking, name
        digits = [c.length or 0 for c in table.columns if c.name in unwritten and c.type_name == "DECIMAL"]
        assert all(length > 18 for length in digits), name


def test_text_of_each_character_set(root: Any, database: str) -> None:
    check_character_sets(root, database)


def check_character_sets(root: Any, database: str) -> None:
    for charset in OTHER_CHARSETS:
        characters_table(root, f"`{database}`.{charset}", charset)
    prepare_session(root, "test")
    for charset in OTHER_CHARSETS:
        unwritten, compared = compare(root, SCHEMAS_OFF, table_of(root, database, charset))
        assert not unwritten, charset
        assert compared > 700, charset


def characters_table(root: Any, table: str, charset: str) -> None:
    """Make a table of all characters of the Basic Multilingual Plane, and of all single bytes, that a set has."""
    chance = random.Random(charset)
    execute(
        root,
        LAX,
        f"CREATE TABLE {table} (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(200), c CHAR(100), b TEXT, "
        f"e ENUM('a', 'é', '中'), `s'é` SET('x', 'ß')) CHARACTER SET {charset}",
        # One commit; other streams of the server need not read these rows.
        "SET sql_log_bin = 0",
        "BEGIN",
    )
    points = [*range(0xD800), *range(0xE000, 0x10000)]
    texts = ["".join(map(chr, points[start : start + 100])) for start in range(0, len(points), 100)]
    literals = [
        *(f"_utf8mb4 X'{text.encode().hex()}'" for text in texts),
        *(_string(SPECIAL, 60)(chance) for _ in range(50)),
    ]
    for start in range(0, len(literals), 50):
        values = ",".join(
            f"(NULL, {v}, {v}, {v}, {chance.randrange(4)}, {chance.randrange(4)})" for v in literals[start : start + 50]
        )
        execute(root, f"INSERT IGNORE INTO {table} VALUES {values}")
    for byte in range(256):
        # A byte that is no character of this character set cannot be stored.
        with suppress(pymysql.MySQLError):
            execute(root, f"INSERT IGNORE INTO {table} (v) VALUES (_{charset} X'{byte:02X}')")
    execute(root, "COMMIT")


@pytest.mark.parametrize(
    "mode", ["ANSI", "NO_BACKSLASH_ESCAPES", "HIGH_NOT_PRECEDENCE,IGNORE_SPACE,TIME_TRUNCATE_FRACTIONAL", "TRADITIONAL"]
)
@pytest.mark.exhaustive(but="^ANSI|TRAD")
def test_names_and_defaults_in_every_sql_mode(mode: str, root: Any, database: str) -> None:
    execute(
        root,
        LAX,
        f"CREATE TABLE `{database}`.`a``b'c\\\"` (`k``'\\\"%s` INT, `ключ` VARCHAR(30), `%d\\n'` VARCHAR(30) DEFAULT "
        "'it''s \\\\ 😀 \\n \\Z', b VARBINARY(80) NOT NULL, d DATE, `g` INT GENERATED ALWAYS AS (`k``'\\\"%s` * 2), "
        "inv INT INVISIBLE DEFAULT 4, PRIMARY KEY (`ключ`, `k``'\\\"%s`))",
        f"INSERT INTO `{database}`.`a``b'c\\\"` (`ключ`, `k``'\\\"%s`, b, d) "
        "VALUES ('a\\'\\\\\\Z', 1, REPEAT('x', 80), '2024-02-00'), ('😀\"', 2, '', NULL)",
    )
    prepare_session(root, "test")
    name = rows(root, f"SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = '{database}'")[0][0]
    statement = rows(root, f"SHOW CREATE TABLE {TableId(database, name).quoted()}")[0][1]
    table = parse_create(statement, DdlContext(default_db=database))
    execute(root, f"SET sql_mode = '{mode}'")
    for properties in (SCHEMAS_OFF, MODES["null-as-default"][0], {"field.name.adjustment.mode": "avro"}):
        assert compare(root, properties, table) == (frozenset(), 2)


def test_a_value_that_the_encoder_refuses_has_no_text(root: Any, database: str) -> None:
    execute(
        root,
        LAX,
        f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, d DATE, m DATETIME(3))",
        f"INSERT INTO `{database}`.t VALUES (1, '2023-02-29', NULL), (2, NULL, '2021-04-31 10:00:00'), "
        "(3, '0099-02-29', NULL), (4, '2024-02-29', '2024-02-29')",
    )
    prepare_session(root, "test")
    table = table_of(root, database, "t")
    for mode in ("adaptive", "microseconds"):
        texts = sql_texts(config({"time.precision.mode": mode}), table)
        assert texts is not None
        lacking = rows(root, f"SELECT id, {texts.after} IS NULL FROM {table.id.quoted()} ORDER BY id")
        assert lacking == [(1, 1), (2, 1), (3, 1), (4, 0)]
        assert compare(root, {"time.precision.mode": mode}, table) == (frozenset(), 1)


@pytest.mark.parametrize("sql_type", ["LONGTEXT", "LONGBLOB"])
def test_a_text_longer_than_a_packet_is_not_that_of_null(sql_type: str, root: Any, database: str) -> None:
    execute(
        root,
        f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, v {sql_type})",
        f"INSERT INTO `{database}`.t VALUES (1, NULL), (2, REPEAT('\\n', @@max_allowed_packet - 10000))",
    )
    texts = sql_texts(config(), table_of(root, database, "t"))
    assert texts is not None
    assert rows(root, f"SELECT {texts.after} FROM `{database}`.t ORDER BY id") == [('{"id":1,"v":null}',), (None,)]


def test_the_first_and_the_last_values_of_each_mode_and_those_beside_them(root: Any, database: str) -> None:
    """Beyond BIGINT the server ends a statement (error 1690), also where only a part of the expression is."""
    moments = (
        *("1677-09-21 00:12:43", "1677-09-21 00:12:43.145224", "1677-09-21 00:12:43.145225", "1677-09-21 00:12:43.2"),
        *("1677-09-21 00:12:43.999999", "1677-09-21 00:12:44", "2262-04-11 23:47:16", "2262-04-11 23:47:16.854775"),
        *("2262-04-11 23:47:16.854776", "2262-04-11 23:47:17", "0000-00-00", "0001-01-01", "0099-12-31 23:59:59.9"),
        *("0100-01-01", "1969-12-31 23:59:59.999999", "1970-01-01", "9999-12-31 23:59:59.999999"),
    )
    times = (
        "-838:59:59",
        "838:59:59",
        "-00:00:00.000001",
        "00:00:00",
        "23:59:59.999999",
        "24:00:00",
        "24:00:00.000001",
    )
    numbers = ("0", "1", "9223372036854775807", "9223372036854775808", "18446744073709551615")
    columns = ", ".join(f"d{n} DATETIME({n}), e{n} DATETIME({n}) NOT NULL" for n in (0, 3, 6))
    lines = []
    for row in range(len(moments)):
        moment, time, number = f"'{moments[row]}'", times[row % len(times)], numbers[row % len(numbers)]
        lines.append(f"({row}, {', '.join([moment] * 6)}, '{time}', '{time}', {number}, {number})")
    execute(
        root,
        LAX,
        f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, {columns}, t TIME(6), s TIME(6) NOT NULL, "
        "b BIGINT UNSIGNED, z BIGINT UNSIGNED ZEROFILL)",
        f"INSERT INTO `{database}`.t VALUES {', '.join(lines)}",
    )
    prepare_session(root, "test")
    table = table_of(root, database, "t")
    for mode in ("adaptive", "adaptive_time_microseconds", "microseconds"):
        for more in ({}, {"enable.time.adjuster": "false"}):
            properties = {"time.precision.mode": mode, **more}
            unwritten, compared = compare(root, properties, table)
            assert not unwritten and compared >= 3, (properties, compared)
            texts = sql_texts(config(properties), table)
            assert texts is not None
            assert sum(row[1] for row in rows(root, sums_sql(table.id, 0, texts, 2, "TRUE"))) == len(moments), (
                properties
            )
