"""Partial JSON updates and row images that leave columns out, as a real server logs them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from decode_rig import (
    Decoded,
    binlog_end,
    connect,
    decode,
    events,
    execute,
    image_text,
    run_script,
    snapshot,
    statements,
)
from kit.tiers import many

from airflow_provider_mysql_cdc.cdc.binlog.rows_header import PARTIAL_UPDATE_ROWS
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.errors import ValueDecodeError

PLACEHOLDER = "__debezium_unavailable_value"
PARTIAL = "SET SESSION binlog_row_value_options = 'PARTIAL_JSON'"

DOCUMENTS = """
CREATE TABLE doc (id INT PRIMARY KEY, j JSON, k JSON, v VARCHAR(20));
INSERT INTO doc VALUES (1, '{"a": "aaaaaaaaaa", "b": [1,2,3], "c": {"d": 1}}', '[1,2,3]', 'x'),
 (2, '{"a": 1}', NULL, 'y'), (3, '[]', '{}', 'z')
"""
# Each statement changes the row that its WHERE names.
UPDATES = """
UPDATE doc SET j = JSON_SET(j, '$.a', 'bbb') WHERE id = 1;
UPDATE doc SET j = JSON_SET(j, '$.c.d', 22, '$.new', 'added') WHERE id = 1;
UPDATE doc SET j = JSON_REMOVE(j, '$.b[1]') WHERE id = 1;
UPDATE doc SET j = JSON_REPLACE(j, '$.b[0]', 'r'), k = JSON_SET(k, '$[2]', 9) WHERE id = 1;
UPDATE doc SET j = JSON_ARRAY_APPEND(j, '$', 5) WHERE id = 3;
UPDATE doc SET j = '{"whole": "replaced"}', v = 'w' WHERE id = 2;
UPDATE doc SET v = 'only v' WHERE id = 1;
UPDATE doc SET j = JSON_SET(j, '$.a', 'moved'), id = 11 WHERE id = 1;
UPDATE doc SET j = JSON_SET(j, '$."odd \\\\"name\\\\" ü"', JSON_OBJECT('q', 1)) WHERE id = 11;
UPDATE doc SET j = JSON_REPLACE(j, '$."odd \\\\"name\\\\" ü".q', 'b\\\\n"') WHERE id = 11;
UPDATE doc SET j = JSON_SET(j, '$.b[last]', 'end', '$.b[99]', 'more') WHERE id = 11;
UPDATE doc SET k = JSON_SET(k, '$[0]', CAST(1.50 AS DECIMAL(5,2))) WHERE id = 11;
UPDATE doc SET k = JSON_SET(k, '$[1]', TIMESTAMP '2024-02-29 01:02:03.5', '$[0]', DATE '0001-01-01') WHERE id = 11;
UPDATE doc SET k = JSON_SET(k, '$[2]', CAST(18446744073709551615 AS UNSIGNED), '$[3]', 1e-7) WHERE id = 11;
UPDATE doc SET j = NULL WHERE id = 3;
UPDATE doc SET j = '{"back": true}' WHERE id = 3;
DELETE FROM doc WHERE id = 2
"""


@pytest.fixture
def db(stack: Any, unique: str) -> Iterator[tuple[Any, str]]:
    conn = connect(stack)
    execute(conn, f"CREATE DATABASE `{unique}` CHARACTER SET utf8mb4")
    execute(conn, f"USE `{unique}`")
    yield conn, unique
    execute(conn, f"DROP DATABASE `{unique}`")
    conn.close()


def rows(conn: Any, name: str, table: str) -> dict[bytes | None, str]:
    """Return the rows of a table by key as the snapshot shows them."""
    return {r.key_bytes: image_text(r.value_bytes) for r in snapshot(conn, name, table)}


def fold(records: list[Decoded], state: dict[bytes | None, str]) -> dict[bytes | None, str]:
    for record in records:
        if record.value_bytes is None:
            continue
        if record.after is None:
            before = image_text(record.value_bytes, "before")
            assert state.pop(record.key_bytes) == before
            continue
        if record.before is not None:
            assert state[record.key_bytes] == image_text(record.value_bytes, "before")
        state[record.key_bytes] = image_text(record.value_bytes)
    return state


def partial_updates(stack: Any, start: tuple[str, int]) -> int:
    return sum(event.type == PARTIAL_UPDATE_ROWS for event in events(stack, start))


@pytest.mark.req("TYPE-26", "EVT-28")
def test_every_partial_update_has_the_document_that_select_shows(stack: Any, db: tuple[Any, str]) -> None:
    conn, name = db
    run_script(conn, DOCUMENTS)
    state = rows(conn, name, "doc")
    execute(conn, PARTIAL)
    first = binlog_end(conn)
    for statement in statements(UPDATES):
        start = binlog_end(conn)
        assert conn.cursor().execute(statement) == 1, statement
        fold(decode(stack, conn, name, start), state)
        assert state == rows(conn, name, "doc"), statement
    assert partial_updates(stack, first) >= 12


VALUES = (
    "1", "-2.5e300", "'tëxt'", "NULL", "JSON_ARRAY(1, 'x', NULL)", "JSON_OBJECT('k1', 1, 'a', '[]')", "x'00ff'",
    "CAST(9.90 AS DECIMAL(4,2))", "TIME '-01:02:03.25'", "TRUE", "REPEAT('y', 300)",
)  # fmt: skip


def random_update(r: random.Random) -> str:
    legs = (f'."k{r.randint(0, 6)}"', ".a", f"[{r.randint(0, 4)}]", "[last]", "[last-1]")
    path = "$" + "".join(r.choice(legs) for _ in range(r.randint(1, 3)))
    function = r.choice(("JSON_SET", "JSON_SET", "JSON_REPLACE", "JSON_REMOVE"))
    return f"{function}(j, '{path}')" if function == "JSON_REMOVE" else f"{function}(j, '{path}', {r.choice(VALUES)})"


@pytest.mark.parametrize("seed", many([1], [1, 2]))
def test_random_updates_add_up_to_the_table(stack: Any, db: tuple[Any, str], seed: int) -> None:
    conn, name = db
    r = random.Random(seed)
    execute(conn, "CREATE TABLE doc (id INT PRIMARY KEY, j JSON)")
    document = '{"a": {"k1": [1, 2, {"k2": 5}]}, "k1": [[1], [2, 3]], "k2": 1.5, "k3": {"a": []}}'
    execute(conn, "INSERT INTO doc VALUES (1, %s), (2, '[1, [2, 3], {}]'), (3, '[]')", (document,))
    state = rows(conn, name, "doc")
    execute(conn, PARTIAL)
    start = binlog_end(conn)
    for _ in range(250):
        execute(conn, f"UPDATE IGNORE doc SET j = {random_update(r)} WHERE id >= {r.randint(1, 3)}")
    assert partial_updates(stack, start) > 50
    fold(decode(stack, conn, name, start), state)
    assert state == rows(conn, name, "doc")


def test_a_change_whose_document_is_not_in_the_before_image_stops(stack: Any, db: tuple[Any, str]) -> None:
    conn, name = db
    run_script(conn, DOCUMENTS)
    execute(conn, PARTIAL)
    execute(conn, "SET SESSION binlog_row_image = 'MINIMAL'")
    start = binlog_end(conn)
    execute(conn, "UPDATE doc SET j = JSON_SET(j, '$.a', 'bbb') WHERE id = 1")
    with pytest.raises(ValueDecodeError, match=r"column j of table .*\.doc") as caught:
        decode(stack, conn, name, start)
    assert "before image does not contain" in caught.value.why and caught.value.where.endswith("row 0, key id=1")


IMAGES = """
CREATE TABLE t (id INT PRIMARY KEY, a INT, b VARCHAR(20));
INSERT INTO t VALUES (1,1,'x'),(2,2,'y');
CREATE TABLE bl (id INT PRIMARY KEY, a INT, tx TEXT);
INSERT INTO bl VALUES (1,1,'text'),(2,2,'y')
"""


@pytest.mark.req("SETUP-17")
def test_images_change_from_full_to_noblob_to_minimal(stack: Any, db: tuple[Any, str]) -> None:
    conn, name = db
    run_script(conn, IMAGES)
    start = binlog_end(conn)
    run_script(
        conn,
        "UPDATE t SET a = 5 WHERE id = 1; SET SESSION binlog_row_image = 'NOBLOB'; UPDATE t SET a = 6 WHERE id = 1;"
        "UPDATE bl SET tx = 'changed' WHERE id = 1; UPDATE bl SET a = 3 WHERE id = 1;"
        "SET SESSION binlog_row_image = 'MINIMAL'; INSERT INTO t (id) VALUES (3); UPDATE t SET a = 2; DELETE FROM t",
    )
    found = [(r.table, r.op, r.key, r.before, r.after) for r in decode(stack, conn, name, start) if r.op]

    def keyed(number: int) -> dict[str, Any]:
        return {"id": number, "a": None, "b": PLACEHOLDER}

    assert found[:5] == [
        ("t", "u", {"id": 1}, {"id": 1, "a": 1, "b": "x"}, {"id": 1, "a": 5, "b": "x"}),
        ("t", "u", {"id": 1}, {"id": 1, "a": 5, "b": "x"}, {"id": 1, "a": 6, "b": "x"}),
        ("bl", "u", {"id": 1}, {"id": 1, "a": 1, "tx": PLACEHOLDER}, {"id": 1, "a": 1, "tx": "changed"}),
        ("bl", "u", {"id": 1}, {"id": 1, "a": 1, "tx": PLACEHOLDER}, {"id": 1, "a": 3, "tx": PLACEHOLDER}),
        ("t", "c", {"id": 3}, None, {"id": 3, "a": None, "b": None}),
    ]
    assert found[5:] == [
        *(("t", "u", {"id": i}, keyed(i), {"id": i, "a": 2, "b": PLACEHOLDER}) for i in (1, 2, 3) if i != 2),
        *(("t", "d", {"id": i}, keyed(i), None) for i in (1, 2, 3)),
    ]


WIDE = (
    "CREATE TABLE w (id INT AUTO_INCREMENT PRIMARY KEY, a INT DEFAULT 7, b VARCHAR(9) NOT NULL DEFAULT 'ü',"
    " c DECIMAL(8,3) DEFAULT '1.5', d DATETIME(3) DEFAULT '2020-01-02 03:04:05.678', e ENUM('x','y') DEFAULT 'y',"
    " f VARCHAR(40) DEFAULT (UUID()), g INT AS (a + 1), h INT AS (a + 2) STORED, i BIT(9) DEFAULT b'101',"
    " k TIMESTAMP DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, n INT NOT NULL, tx TEXT, js JSON,"
    " bi BINARY(3) DEFAULT 'ab', fl FLOAT DEFAULT 0.1, y YEAR DEFAULT 1999, s SET('p','q') DEFAULT 'q,p')"
)


@pytest.mark.parametrize("image", ["MINIMAL", "NOBLOB"])
def test_inserts_hold_every_default_that_the_server_stored(stack: Any, db: tuple[Any, str], image: str) -> None:
    conn, name = db
    execute(conn, "SET SESSION time_zone = '+00:00'")
    execute(conn, WIDE)
    execute(conn, f"SET SESSION binlog_row_image = '{image}'")
    start = binlog_end(conn)
    execute(conn, "INSERT INTO w (n) VALUES (1), (2)")
    execute(conn, "INSERT INTO w (n, a, tx) VALUES (3, NULL, 'text')")
    execute(conn, "INSERT INTO w (n, a, b) VALUES (4, DEFAULT, 'b')")
    found = {r.key_bytes: image_text(r.value_bytes) for r in decode(stack, conn, name, start)}
    assert found == rows(conn, name, "w") and len(found) == 4


@pytest.mark.parametrize("image", ["MINIMAL", "NOBLOB"])
def test_after_images_never_differ_from_the_table_but_by_the_placeholder(
    stack: Any, db: tuple[Any, str], image: str
) -> None:
    conn, name = db
    execute(
        conn,
        "CREATE TABLE p (id INT, part VARCHAR(8), u VARCHAR(20), v TEXT, w BLOB, x JSON, y VARBINARY(9),"
        " z ENUM('x','y'), PRIMARY KEY (part, id))",
    )
    execute(conn, f"SET SESSION binlog_row_image = '{image}'")
    start = binlog_end(conn)
    r = random.Random(7)
    values = {"u": "'ü%d'", "v": "REPEAT('v', %d)", "w": "REPEAT('w', %d)", "x": "JSON_ARRAY(%d)", "y": "'%d'"}
    for i in range(12):
        execute(conn, f"INSERT INTO p (id, part, z) VALUES ({i}, 'p{i % 2}', 'x')")
    for i in range(60):
        chosen = r.sample(sorted(values), r.randint(1, 3))
        change = ", ".join(f"{c} = {values[c] % i}" if r.random() > 0.2 else f"{c} = NULL" for c in chosen)
        more = ", id = id + 100" if r.random() < 0.1 else ""
        execute(conn, f"UPDATE p SET {change}{more} WHERE id % 100 % 5 = {i % 5} AND id < 900")
    table = {key: json.loads(text) for key, text in rows(conn, name, "p").items()}
    state: dict[bytes | None, Any] = {}
    seen = 0
    for record in decode(stack, conn, name, start):
        if record.after is None:
            state.pop(record.key_bytes, None)
            continue
        old = state.get(record.key_bytes, {})
        row = {c: old.get(c, v) if v in HELD else v for c, v in record.after.items()}
        seen += sum(v in HELD for v in record.after.values())
        assert {"id": row["id"], "part": row["part"]} == {"id": record.key["id"], "part": record.key["part"]}  # type: ignore[index]
        state[record.key_bytes] = row
    assert seen > 10
    for key, row in table.items():
        for column, value in row.items():
            assert state[key][column] in (value, *HELD), (key, column)


@pytest.mark.parametrize("image", ["MINIMAL", "NOBLOB"])
def test_generated_columns_follow_their_sources(stack: Any, db: tuple[Any, str], image: str) -> None:
    conn, name = db
    execute(
        conn,
        "CREATE TABLE g (a INT, b INT, v INT AS (a + 1), s INT AS (a + 2) STORED, t TEXT AS (CONCAT('v', a)),"
        " u TEXT AS (CONCAT('w', a)) STORED, x TEXT)",
    )
    execute(conn, f"SET SESSION binlog_row_image = '{image}'")
    for statement in (
        "INSERT INTO g (a, b, x) VALUES (1, 2, 'x')",
        "UPDATE g SET a = 7",
        "UPDATE g SET b = 9",
        "UPDATE g SET x = NULL",
    ):
        start = binlog_end(conn)
        execute(conn, statement)
        (record,) = decode(stack, conn, name, start)
        assert {None: image_text(record.value_bytes)} == rows(conn, name, "g"), statement  # type: ignore[arg-type]


HELD = (PLACEHOLDER, "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==")


def test_a_number_that_the_image_leaves_out_stops_and_is_not_written_as_null(stack: Any, db: tuple[Any, str]) -> None:
    conn, name = db
    run_script(conn, IMAGES)
    execute(conn, "SET SESSION binlog_row_image = 'MINIMAL'")
    start = binlog_end(conn)
    execute(conn, "UPDATE t SET b = 'new' WHERE id = 1")
    with pytest.raises(ValueDecodeError, match=r"column a of table .*\.t ") as caught:
        decode(stack, conn, name, start)
    assert caught.value.where.endswith("row 0, key id=1")
    (record,) = decode(stack, conn, name, start, DecoderOptions(unavailable_as_null=True))
    assert record.after == {"id": 1, "a": None, "b": "new"}
