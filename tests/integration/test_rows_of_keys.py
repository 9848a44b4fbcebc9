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
from airflow_provider_mysql_cdc.cdc.snapshot.key_kinds import stored_dates_allowed
from airflow_provider_mysql_cdc.cdc.verify.suspect_rows import SuspectRows

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
    replace(KEY, time_adjuster=False),
    *(replace(KEY, time_mode=mode) for mode in ("connect", "isostring", "microseconds", "nanoseconds")),
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
NOT_SEARCHABLE = ("GEOMETRY", "POINT", "POLYGON", "GEOMETRYCOLLECTION", "VECTOR")
TEMPORAL = ("DATE", "TIME")
RANGES = ("FLOAT", "DOUBLE", "DECIMAL", "REAL")
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
        execute(conn, f"CREATE TABLE t{index} (id INT AUTO_INCREMENT PRIMARY KEY, c {sql_type}, z INT)")
        for value in (*values, "NULL"):
            execute(conn, f"INSERT INTO t{index} (c, z) VALUES ({value}, 1)")
    execute(conn, SESSION)
    return conn, name, start


def found_ids(conn: Any, rows: SuspectRows, keys: list[dict[str, Any]]) -> set[int]:
    """Return the ids of the rows that the statements for some keys read."""
    found: set[int] = set()
    for select in rows.selects(keys):
        with stored_dates_allowed(conn, select.key_kinds):
            found |= {row[0] for row in execute(conn, select.sql)}
    return found


def one_value(records: list[Any]) -> dict[str, set[int]]:
    """Return the ids of the records with one key, by the key."""
    ids: dict[str, set[int]] = {}
    for record in records:
        ids.setdefault(json.dumps(record.key), set()).add(record.after["id"])
    return ids


@pytest.mark.parametrize("options", MODES, ids=lambda o: mode_name(o).removeprefix("False,").removesuffix(",('c',)"))
def test_each_key_of_the_stream_finds_its_rows(stack: Any, loaded: Any, options: DecoderOptions) -> None:
    conn, name, start = loaded
    streamed: dict[str, list[Any]] = {}
    for record in decode(stack, conn, name, start, options):
        streamed.setdefault(record.table, []).append(record)
    for index, sql_type in enumerate(ALL_TYPES):
        table = table_of(conn, name, f"t{index}")
        rows = SuspectRows(table, options, table.columns[:1])
        for key, ids in one_value(streamed[f"t{index}"]).items():
            found = found_ids(conn, rows, [json.loads(key)])
            assert found >= ids, (sql_type, key, rows.condition(json.loads(key)))
            if "c" not in rows.unsearchable and not sql_type.startswith(RANGES):
                assert found == ids or sql_type in ("BOOL",), (sql_type, key, rows.condition(json.loads(key)))
        # Zero dates are null where NULL is allowed.
        known = not sql_type.startswith((*NOT_SEARCHABLE, *TEMPORAL))
        assert ("c" not in rows.unsearchable) == known, (sql_type, rows.unsearchable)


@pytest.mark.parametrize("charset", sorted(CHARSETS))
@pytest.mark.exhaustive(but="^(armscii8|big5|gbk|latin1|sjis|ucs2|utf16|utf8mb4|hp8|gb18030)$")
def test_texts_find_their_rows_in_every_character_set(stack: Any, db: tuple[Any, str], charset: str) -> None:
    conn, name = db
    text = CHARSETS[charset]
    texts = [text, text[:1], text[::-1], text + " ", "a", "A", "a ", "", "?", "a?b", "ab"]
    execute(conn, f"DROP TABLE IF EXISTS cs_{charset}")
    execute(
        conn, f"CREATE TABLE cs_{charset} (id INT AUTO_INCREMENT PRIMARY KEY, c VARCHAR(40) CHARACTER SET {charset})"
    )
    start = binlog_end(conn)
    for each in texts:
        execute(conn, f"INSERT INTO cs_{charset} (c) VALUES (%s)", (each,))
    # Codes that become the same text as others, or none.
    for code in ("AAA1", "FF", "F040", "ED40", "FA5C", "8160", "5C", "7E", "A1"):
        execute(conn, f"INSERT IGNORE INTO cs_{charset} (c) VALUES (_binary x'{code}')")
    streamed = decode(stack, conn, name, start, KEY)
    table = table_of(conn, name, f"cs_{charset}")
    rows = SuspectRows(table, KEY, table.columns[:1])
    for key, ids in one_value(streamed).items():
        found = found_ids(conn, rows, [json.loads(key)])
        assert found >= ids, (key, rows.condition(json.loads(key)))
        assert found == ids or rows.condition(json.loads(key)) == "TRUE", key
    # A text that the character set does not have, as before an ALTER TABLE, is in no row.
    assert found_ids(conn, rows, [{"c": "\u16a0\u16a1"}]) == set()


def test_what_the_view_shows_finds_the_row_too(db: tuple[Any, str]) -> None:
    conn, name = db
    execute(conn, "CREATE TABLE shown (id INT PRIMARY KEY, c CHAR(9) CHARACTER SET gbk, UNIQUE (c))")
    execute(conn, "INSERT INTO shown VALUES (1, _binary x'AAA1'), (2, '?'), (3, '漢'), (4, 'a')")
    table = table_of(conn, name, "shown")
    for record in snapshot(conn, name, "shown", KEY):
        found = found_ids(conn, SuspectRows(table, KEY, table.columns[:1]), [record.key])
        assert record.after["id"] in found and len(found) <= 2


KEYS = {
    "INT": "7", "BIGINT UNSIGNED": "18446744073709551615", "DECIMAL(10,2)": "-1.50", "VARCHAR(9)": "'Zoë'",
    "VARCHAR(9) COLLATE utf8mb4_0900_ai_ci": "'Zoë'", "CHAR(9) CHARACTER SET latin1": "'Zoë'", "BINARY(4)": "x'00ff'",
    "VARBINARY(9)": "x'6100'", "DATE": "'2024-02-29'", "DATETIME(3)": "'2024-02-29 12:34:56.789'",
    "TIMESTAMP(6)": "'2024-02-29 12:34:56.789123'", "TIME(2)": "'-01:02:03.04'", "YEAR": "2024",
    "BIT(9)": "b'101010101'", "ENUM('small','large')": "'large'", "FLOAT": "0.1", "DOUBLE": "1e-300",
}  # fmt: skip


@pytest.mark.parametrize("sql_type", list(KEYS))
def test_a_key_is_found_by_its_index(db: tuple[Any, str], sql_type: str) -> None:
    conn, name = db
    execute(conn, "DROP TABLE IF EXISTS indexed")
    execute(conn, f"CREATE TABLE indexed (c {sql_type}, d INT, n INT, PRIMARY KEY (c, d))")
    execute(conn, f"INSERT INTO indexed VALUES ({KEYS[sql_type]}, 1, 0)")
    # Many other rows, so that the optimizer does not prefer a scan.
    execute(conn, "SET SESSION cte_max_recursion_depth = 5000")
    numbers = "WITH RECURSIVE s (n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM s WHERE n < 3000)"
    execute(conn, f"INSERT INTO indexed {numbers} SELECT c, s.n, 0 FROM indexed, s")
    execute(conn, "ANALYZE TABLE indexed")
    table = table_of(conn, name, "indexed")
    options = DecoderOptions()
    key = snapshot(conn, name, "indexed", options)[0].key
    others = [{**key, "d": number} for number in (1, 5, 9_999)]
    select = next(SuspectRows(table, options, table.columns).selects(others))
    with stored_dates_allowed(conn, select.key_kinds):
        plan = execute(conn, f"EXPLAIN FORMAT=TRADITIONAL {select.sql}")[0]
        assert plan[4] in ("range", "const", "eq_ref"), plan
        # A range of numbers is the end of what an index is used for.
        assert plan[9] <= 10 or sql_type in ("FLOAT", "DOUBLE"), plan
        assert len(execute(conn, select.sql)) == 2


def test_composite_keys_with_null_are_told_apart(stack: Any, db: tuple[Any, str]) -> None:
    conn, name = db
    execute(conn, "CREATE TABLE pairs (id INT PRIMARY KEY, a INT, b VARCHAR(9), UNIQUE (a, b))")
    execute(
        conn, "INSERT INTO pairs VALUES (1, 1, 'x'), (2, 1, NULL), (3, NULL, 'x'), (4, NULL, NULL), (5, NULL, NULL)"
    )
    table = table_of(conn, name, "pairs")
    rows = SuspectRows(table, replace(KEY, key_columns=("a", "b")), table.columns[:1])
    assert found_ids(conn, rows, [{"a": 1, "b": None}]) == {2}
    assert found_ids(conn, rows, [{"a": None, "b": None}]) == {4, 5}
    assert found_ids(conn, rows, [{"a": None, "b": "x"}, {"a": 1, "b": "x"}]) == {1, 3}


FOREIGN: tuple[Any, ...] = (
    *(0, -1, 1 << 62, 1 << 63, -(1 << 63), 10**40, 1.5, -1e308, True, None, "", "x", "12", "1" * 70, "-" + "9" * 90),
    *("0000-00-00", "9999-99-99Z", "2024-13-45", "2024-02-30T25:61:61Z", "9999-99-99T99:99:99.999999Z"),
    *("2024-13-45 25:61:61", "0000-00-00 00:00:00", "99:99:99Z", "999:99:99.999999", "-999:00:00"),
    *("838:59:59", "99:59:59Z", "2024-02-30T00:00:00Z", "2024-02-30", "9999-12-31T23:59:59Z", "2024-02-30 00:00:00"),
    *("ff" * 200, "/" * 400, "AAAA" * 100),
)
"""Values that records of other hands may have."""


def test_no_value_of_other_hands_ends_the_search_for_rows(loaded: Any) -> None:
    conn, name, _ = loaded
    for options in (KEY, MODES[2], *MODES[-5:]):
        for index, sql_type in enumerate(ALL_TYPES):
            table = table_of(conn, name, f"t{index}")
            rows = SuspectRows(table, options, table.columns[:1])
            searches = " OR ".join(f"({rows.condition({'c': value})})" for value in FOREIGN)
            with stored_dates_allowed(conn, ("DATE",)):
                assert execute(conn, f"SELECT id FROM t{index} WHERE {searches}") is not None, (options, sql_type)
