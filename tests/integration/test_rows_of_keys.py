"""Keys of records find their rows on a real server: every type, mode and character set."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from decode_rig import binlog_end, connect, decode, execute, snapshot, table_of
from test_decode_types import CHARSETS, LAX, TYPES, mode_name

from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.model.table import Table
from airflow_provider_mysql_cdc.cdc.verify.read.event_record import row_bytes
from airflow_provider_mysql_cdc.cdc.verify.repair.listed_keys import rows_condition

# The session of a job, in which no SQL mode allows invalid dates by itself.
SESSION = "SET SESSION sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION,NO_ZERO_DATE', time_zone = '+00:00'"
KEY = DecoderOptions(key_columns=("c",), tombstones=False)
MODES = [
    KEY,
    replace(KEY, decimal_mode="string"),
    replace(KEY, decimal_mode="double"),
    replace(KEY, bigint_unsigned_mode="precise"),
    replace(KEY, binary_mode="hex"),
    replace(KEY, binary_mode="base64-url-safe"),
    replace(KEY, contract="1.9"),
    replace(KEY, flat=True, decimal_mode="string"),
]
MORE_TYPES: dict[str, tuple[str, ...]] = {
    "DATE": ("'1970-01-01'", "'0070-01-01'", "'0069-12-31'", "'1969-12-31'", "'2000-01-01'", "'0000-05-05'"),
    "DATETIME(6)": (
        "'1970-01-01 00:00:00'", "'0001-01-01 00:00:00.000001'", "'2001-01-01 00:00:00.000001'",
        "'2024-02-29 12:34:56.789000'", "'2024-02-29 12:34:56.789999'", "'2024-02-29 12:34:56.790000'",
    ),
    "TIME(6)": ("'12:34:56.789000'", "'12:34:56.789999'", "'12:34:56.790000'", "'-00:00:00.000001'"),
    "VARCHAR(20) COLLATE utf8mb4_0900_ai_ci": ("'a'", "'A'", "'á'", "'a '", "'?'", "'b'", "''", "' '", "'ß'", "'ss'"),
    "VARCHAR(20) COLLATE utf8mb4_general_ci": ("'a'", "'A'", "'á'", "'a '", "'ß'", "'s'", "''", "' '", "'\\0'"),
    "VARCHAR(20) COLLATE utf8mb4_bin": ("'a'", "'A'", "'a '"),
    "CHAR(20) COLLATE utf8mb4_0900_as_cs": ("'a'", "'A'", "'á'", "'a '", "' a'"),
    "ENUM('a','B','1','2','b c','')": ("1", "2", "'1'", "'2'", "'b c'", "6", "0"),
    "SET('a','B','1','x y')": ("'a,B'", "'B'", "'1,x y'", "''"),
    "BOOL": ("TRUE", "FALSE", "2", "-1"),
    "VARBINARY(9)": ("X'6100'", "X'61'", "X'6120'", "''"),
    "BINARY(3)": ("X'6100'", "X'610020'", "''"),
    "FLOAT(7,2)": ("0.1", "0.11", "99999.99"),
    "REAL": ("0.1", "16777217", "1.17549435E-38"),
}  # fmt: skip
BOUND = ("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT", "CHAR", "VARCHAR", "BINARY", "VARBINARY")
ALL_TYPES = {**TYPES, **{name: (*TYPES.get(name, ()), *values) for name, values in MORE_TYPES.items()}}


@pytest.fixture(scope="module")
def db(stack: Any) -> Iterator[tuple[Any, str]]:
    conn = connect(stack)
    name = "c_test_suspects"
    execute(conn, f"DROP DATABASE IF EXISTS {name}")
    execute(conn, f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
    execute(conn, f"USE {name}")
    execute(conn, LAX)
    yield conn, name
    execute(conn, f"DROP DATABASE {name}")
    conn.close()


@pytest.fixture(scope="module")
def loaded(db: tuple[Any, str]) -> tuple[Any, str, tuple[str, int]]:
    """Return the position before one table of each type."""
    conn, name = db
    start = binlog_end(conn)
    execute(conn, LAX)
    for index, (sql_type, values) in enumerate(ALL_TYPES.items()):
        execute(conn, f"CREATE TABLE t{index} (id INT AUTO_INCREMENT PRIMARY KEY, c {sql_type} NOT NULL, z INT)")
        for value in values:
            execute(conn, f"INSERT INTO t{index} (c, z) VALUES ({value}, 1)")
    execute(conn, SESSION)
    return conn, name, start


def found_ids(conn: Any, table: Table, options: DecoderOptions, *keys: dict[str, Any]) -> set[int]:
    """Return the ids of the rows that the conditions of some keys leave."""
    condition = " OR ".join(f"({rows_condition(table, options, row_bytes(key))})" for key in keys)
    return {row[0] for row in execute(conn, f"SELECT id FROM {table.id.quoted()} WHERE {condition}")}


def one_value(records: list[Any]) -> dict[str, set[int]]:
    """Return the ids of the records with one key, by the key."""
    ids: dict[str, set[int]] = {}
    for record in records:
        ids.setdefault(json.dumps(record.key), set()).add(record.after["id"])
    return ids


@pytest.mark.parametrize("options", MODES, ids=lambda o: mode_name(o).removeprefix("False,").removesuffix(",('c',)"))
@pytest.mark.exhaustive(but="^(precise|hex)")
def test_each_key_of_the_stream_finds_its_rows(stack: Any, loaded: Any, options: DecoderOptions) -> None:
    conn, name, start = loaded
    streamed: dict[str, list[Any]] = {}
    for record in decode(stack, conn, name, start, options):
        streamed.setdefault(record.table, []).append(record)
    bound = set[str]()
    for index, sql_type in enumerate(ALL_TYPES):
        table = table_of(conn, name, f"t{index}")
        for key, ids in one_value(streamed[f"t{index}"]).items():
            found = found_ids(conn, table, options, json.loads(key))
            assert found >= ids, (sql_type, key)
            if rows_condition(table, options, row_bytes(json.loads(key))) != "TRUE":
                bound.add(sql_type.partition("(")[0].partition(" ")[0])
    assert bound >= {*BOUND}, bound


@pytest.mark.parametrize("charset", sorted(CHARSETS))
@pytest.mark.exhaustive(but="^(gbk|latin1|ucs2|utf8mb4)$")
def test_texts_find_their_rows_in_every_character_set(stack: Any, db: tuple[Any, str], charset: str) -> None:
    conn, name = db
    text = CHARSETS[charset]
    texts = [text, text[:1], text[::-1], text + " ", "a", "A", "a ", "", "?", "a?b", "ab"]
    execute(conn, f"DROP TABLE IF EXISTS cs_{charset}")
    columns = f"id INT AUTO_INCREMENT PRIMARY KEY, c VARCHAR(40) CHARACTER SET {charset} NOT NULL"
    execute(conn, f"CREATE TABLE cs_{charset} ({columns})")
    start = binlog_end(conn)
    for each in texts:
        execute(conn, f"INSERT INTO cs_{charset} (c) VALUES (%s)", (each,))
    # Codes that become the same text as others, or none.
    for code in ("AAA1", "FF", "F040", "ED40", "FA5C", "8160", "5C", "7E", "A1"):
        execute(conn, f"INSERT IGNORE INTO cs_{charset} (c) VALUES (_binary x'{code}')")
    table = table_of(conn, name, f"cs_{charset}")
    for key, ids in one_value(decode(stack, conn, name, start, KEY)).items():
        assert found_ids(conn, table, KEY, json.loads(key)) >= ids, key
    # A text that the character set does not have, as before an ALTER TABLE, ends no search.
    found_ids(conn, table, KEY, {"c": "\u16a0\u16a1"})


def test_whole_numbers_texts_and_bytes_are_found_by_an_index(db: tuple[Any, str]) -> None:
    conn, name = db
    values = {"BIGINT UNSIGNED": "18446744073709551615", "VARCHAR(9)": "'Zoë'", "BINARY(4)": "x'00ff'"}
    for number, (sql_type, value) in enumerate(values.items()):
        execute(conn, f"CREATE TABLE indexed{number} (c {sql_type}, d INT, id INT, PRIMARY KEY (c, d))")
        execute(conn, f"INSERT INTO indexed{number} VALUES ({value}, 1, 0)")
        # Many other rows, so that the optimizer does not prefer a scan.
        execute(conn, "SET SESSION cte_max_recursion_depth = 5000")
        numbers = "WITH RECURSIVE s (n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM s WHERE n < 3000)"
        execute(conn, f"INSERT INTO indexed{number} {numbers} SELECT c, s.n, 0 FROM indexed{number}, s")
        execute(conn, f"ANALYZE TABLE indexed{number}")
        table, options = table_of(conn, name, f"indexed{number}"), DecoderOptions()
        key = snapshot(conn, name, f"indexed{number}", options)[0].key
        others = [rows_condition(table, options, row_bytes({**key, "d": d})) for d in (1, 5, 9_999)]
        sql = f"SELECT id FROM indexed{number} WHERE " + " OR ".join(f"({each})" for each in others)
        plan = execute(conn, f"EXPLAIN FORMAT=TRADITIONAL {sql}")[0]
        assert plan[4] == "range" and plan[9] <= 10, (sql_type, plan)
        assert len(execute(conn, sql)) == 2


FOREIGN: tuple[Any, ...] = (
    *(0, -1, 1 << 62, 1 << 63, -(1 << 63), 10**40, 1.5, -1e308, True, None, "", "x", "12", "1" * 70, "-" + "9" * 90),
    *(
        "0000-00-00",
        "9999-99-99Z",
        "2024-13-45 25:61:61",
        "838:59:59",
        "ff" * 200,
        "/" * 400,
        "AAAA" * 100,
        "é",
        "\ud800",
    ),
)
"""Values that records of other hands may have."""


def test_no_value_of_other_hands_ends_the_search_for_rows(loaded: Any) -> None:
    conn, name, _ = loaded
    for options in (KEY, *MODES[-4:]):
        for index in range(len(ALL_TYPES)):
            table = table_of(conn, name, f"t{index}")
            assert found_ids(conn, table, options, *({"c": value} for value in FOREIGN)) is not None
