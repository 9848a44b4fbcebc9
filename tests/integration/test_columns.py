"""Columns, keys and snapshot statements on real servers: snapshot and stream show rows alike."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pymysql
import pytest
from kit.records import duplicates, payload
from kit.sql import execute
from pipelinelib.pipeline import Pipeline
from pipelinelib.submit import ROOT, submit_command, submit_env

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.model.table import folded_name

CONVERTER = "io.debezium.connector.mysql.converters.TinyIntOneToBooleanConverter"
OVERRIDES = "snapshot.select.statement.overrides"
PROPERTIES = {
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
    "cdc.id.header": "true",
}


def images(pipeline: Pipeline, table: str) -> list[tuple[Any, Any, Any]]:
    """Return key, operation and row of a table's records, tombstones left out."""
    found = [(payload(r.key), payload(r.value)) for r in pipeline.records(table)]
    return [(k, v["op"], v["after"] or v["before"]) for k, v in found if v is not None]


def test_a_generated_invisible_key_is_found_where_the_server_hides_it(
    pipeline: Pipeline, root: Any, database: str
) -> None:
    shown = "show_gipk_in_create_table_and_information_schema"
    execute(
        root, f"USE `{database}`", "SET SESSION sql_generate_invisible_primary_key = ON", f"SET GLOBAL {shown} = OFF"
    )
    try:
        execute(root, "CREATE TABLE log (a INT)", "INSERT INTO log VALUES (7), (7)")
        pipeline.snapshot()
        execute(root, "INSERT INTO log VALUES (8)", "CREATE TABLE later (a INT)", "INSERT INTO later VALUES (9)")
        pipeline.drain()
    finally:
        execute(root, f"SET GLOBAL {shown} = ON")
    found = [(op, row["my_row_id"], row["a"]) for t in ("log", "later") for _, op, row in images(pipeline, t)]
    assert found == [("r", 1, 7), ("r", 2, 7), ("c", 3, 8), ("c", 1, 9)]


@pytest.mark.parametrize("width", [250, 251, 255, 256, 1017])
@pytest.mark.exhaustive(but="255|1017")
def test_tables_of_very_many_columns(pipeline: Pipeline, root: Any, database: str, width: int) -> None:
    """The number of columns takes one byte in a row event, or three from 251 on; InnoDB takes 1,017."""
    names = ["id", *(f"c{n}" for n in range(1, width))]
    columns = ", ".join(f"{name} INT" for name in names[1:])
    execute(root, f"USE `{database}`", f"CREATE TABLE t (id INT PRIMARY KEY, {columns})")
    execute(root, *(f"INSERT INTO t (id, c1, c249) VALUES ({n}, {n}, -1)" for n in (1, 2)))
    pipeline.snapshot()
    execute(
        root,
        "INSERT INTO t SELECT 3, t.* FROM (SELECT " + ", ".join(names[1:]) + " FROM t WHERE id = 1) t",
        f"UPDATE t SET {names[-1]} = id * 7",
        "DELETE FROM t WHERE id = 2",
    )
    pipeline.drain()
    last = {key["id"]: (op, row) for key, op, row in images(pipeline, "t")}
    assert {n: op for n, (op, _) in last.items()} == {1: "u", 2: "d", 3: "u"}
    with root.cursor() as cursor:
        cursor.execute("SELECT * FROM t")
        assert {row[0]: list(row) for row in cursor.fetchall()} == {n: list(last[n][1].values()) for n in (1, 3)}


@pytest.mark.req("COL-02", "COL-03", "COL-04", "COL-05", "COL-18", "TYPE-62")
def test_snapshot_and_stream_treat_columns_in_the_same_way(pipeline: Pipeline, root: Any, database: str) -> None:
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


@pytest.mark.req("TYPE-65")
def test_snapshot_and_stream_convert_columns_in_the_same_way(pipeline: Pipeline, root: Any, database: str) -> None:
    """Every kind of column as Python's text of the value that its converter is given; a key and a NULL among them."""
    pipeline.properties |= {
        "converters": "isbn,text",
        "isbn.type": "sample_converters.IsbnConverter",
        "isbn.selector": f"{database}.books.isbn",
        "text.type": "sample_converters.ReprConverter",
        "text.skip": "n",
    }
    columns = (
        "b BOOL, i INT(9) ZEROFILL, l BIGINT UNSIGNED, y YEAR, t BIT(11), c DECIMAL(40,20), f FLOAT, g FLOAT(9,3), "
        "d DOUBLE, s VARCHAR(20) CHARACTER SET cp1250, h CHAR(5), e ENUM('x','y'), z SET('p','q'), v BINARY(4), "
        "w BLOB, j JSON, da DATE, dt DATETIME(5), ts TIMESTAMP(3) NULL, ti TIME(1), p POINT, k GEOMETRY, nu TEXT"
    )
    row = (
        "2, 7, 18446744073709551615, 2024, b'10000000001', -12345678901234567890.12345678901234567891, 0.1, 1.1, "
        "1e-9, 'Łódź \"\\\\', 'a', 'y', 'p,q', x'00ff', x'80', '{\"b\": 1.50, \"a\": [\"ü\"]}', '1999-12-31', "
        "'0000-00-00 00:00:00', '2024-02-29 23:59:58.123', '-838:59:58.9', ST_PointFromText('POINT(1 2)'), "
        "ST_GeomFromText('LINESTRING(0 0, 1 1)', 4326), NULL"
    )
    insert = f"INSERT INTO `{database}`.books VALUES ('ISBN', 1, {row})"
    execute(
        root,
        "SET time_zone = '+00:00', sql_mode = ''",
        f"CREATE TABLE `{database}`.books (isbn VARCHAR(20) PRIMARY KEY, n INT, {columns})",
        insert.replace("ISBN", "978-3-16"),
    )
    pipeline.snapshot()
    execute(
        root,
        insert.replace("ISBN", "978-3-17"),
        f"UPDATE `{database}`.books SET isbn = '978-3-18' WHERE isbn = '978-3-17'",
        f"DELETE FROM `{database}`.books WHERE isbn = '978-3-18'",
    )
    pipeline.drain()
    found = images(pipeline, "books")
    keys = [978316, 978317, 978317, 978318, 978318]
    assert sorted((k["isbn"], op) for k, op, _ in found) == sorted(zip(keys, "rcdcd", strict=True))
    assert all(k["isbn"] == row["isbn"] for k, _, row in found)
    shown = [{name: value for name, value in row.items() if name != "isbn"} for _, _, row in found]
    assert all(other == shown[0] for other in shown)
    assert shown[0] | {"p": "", "k": ""} == {
        "n": 1, "b": "2", "i": "7", "l": "18446744073709551615", "y": "2024", "t": "1025",
        "c": "Decimal('-12345678901234567890.12345678901234567891')", "f": "0.1", "g": "1.1", "d": "1e-09",
        "s": repr('Łódź "\\'), "h": "'a'", "e": "'y'", "z": "'p,q'", "v": repr(b"\0\xff\0\0"), "w": repr(b"\x80"),
        "j": repr('{"a":["ü"],"b":1.5}'), "da": "'1999-12-31'", "dt": "'0000-00-00 00:00:00.00000'",
        "ts": "'2024-02-29 23:59:58.123'", "ti": "'-838:59:58.9'", "p": "", "k": "", "nu": "None",
    }  # fmt: skip
    assert "'x': 1.0, 'y': 2.0" in shown[0]["p"] and "'srid': 4326" in shown[0]["k"]


@pytest.mark.req("TYPE-65")
def test_a_row_that_a_converter_refuses_goes_to_the_dead_letters(
    pipeline: Pipeline, root: Any, database: str, unique: str
) -> None:
    pipeline.properties |= {
        "converters": "isbn",
        "isbn.type": "sample_converters.IsbnConverter",
        "isbn.selector": ".*[.]isbn",
        "event.processing.failure.handling.mode": "warn",
        "errors.deadletterqueue.topic.name": f"{unique}.dead",
    }
    execute(
        root,
        f"CREATE TABLE `{database}`.b (id INT PRIMARY KEY, isbn VARCHAR(20))",
        f"INSERT INTO `{database}`.b VALUES (1, '1-1'), (2, 'none')",
    )
    pipeline.snapshot()
    execute(root, f"INSERT INTO `{database}`.b VALUES (3, 'nil'), (4, '4-4')")
    pipeline.drain()
    assert [(k["id"], row["isbn"]) for k, _, row in images(pipeline, "b")] == [(1, 11), (4, 44)]
    letters = [payload(r.value) for r in pipeline.read(f"{unique}.dead")]
    assert ["key id=2" in letters[0]["error"]["where"], letters[1]["key"]] == [True, {"id": 3}]
    assert all("converter isbn (sample_converters.IsbnConverter)" in x["error"]["why"] for x in letters)


@pytest.mark.spark
@pytest.mark.req("TYPE-65")
@pytest.mark.exhaustive
def test_spark_is_given_a_converters_module_with_py_files(
    pipeline: Pipeline, root: Any, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "isbn_of_this_test.py"
    module.write_text((ROOT / "tests" / "sample_converters.py").read_text(encoding="utf-8"), encoding="utf-8")
    pipeline.properties |= {"converters": "isbn", "isbn.type": "isbn_of_this_test.IsbnConverter"}
    with pytest.raises(ConfigError, match=r"No module named 'isbn_of_this_test'.*--py-files"):
        pipeline.cfg  # noqa: B018
    monkeypatch.syspath_prepend(tmp_path)
    execute(
        root,
        f"CREATE TABLE `{database}`.b (id INT PRIMARY KEY, isbn VARCHAR(20))",
        f"INSERT INTO `{database}`.b VALUES (1, '1-1'), (2, '2-2')",
    )
    command = submit_command(pipeline.prepare("snapshot").spec, tmp_path)
    command[1:1] = ["--py-files", str(module)]
    done = subprocess.run(command, env=submit_env(), capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    pipeline.settle()
    assert sorted((k["id"], row["isbn"]) for k, _, row in images(pipeline, "b")) == [(1, 11), (2, 22)]


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
        ("SELECT id FROM {db}.t", "does not select NOT NULL columns: name"),
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


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("ID", "id", True),
        ("É", "é", True),
        ("é", "e", False),
        ("ΑΣ", "ας", False),
        ("ΑΣ", "ασ", True),
        ("İ", "i", True),
    ],
)
def test_which_names_of_columns_are_one_for_the_server(root: Any, one: str, other: str, same: bool) -> None:
    """A derived table has no two columns of one name (error 1060)."""
    found = None
    with root.cursor() as cursor:
        try:
            cursor.execute(f"SELECT * FROM (SELECT 1 AS `{one}`, 2 AS `{other}`) AS t")
        except pymysql.MySQLError as error:
            found = error.args[0]
    assert found == (1060 if same else None)
    assert (folded_name(one) == folded_name(other)) is same
