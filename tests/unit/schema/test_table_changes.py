"""Structures that a signal tells: read in Debezium's form, put in force, and replayed from the history."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.ddl.apply import apply_ddl
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext, SchemaState
from airflow_provider_mysql_cdc.cdc.emit.schema_change import table_dict
from airflow_provider_mysql_cdc.cdc.errors import DamagedRecordError, SchemaError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.stored_record import Members
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema import table_changes as told_changes
from airflow_provider_mysql_cdc.cdc.schema.history import replay
from airflow_provider_mysql_cdc.cdc.schema.history_record import HistoryRecord
from airflow_provider_mysql_cdc.cdc.schema.table_changes import read_table_change

T = TableId("d", "t")
CONTEXT = DdlContext(default_db="d")
EVERYTHING = """CREATE TABLE t (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT, b BOOL, i INT(5) UNSIGNED ZEROFILL, d DECIMAL(12,3) DEFAULT 1.5,
  n NUMERIC, f FLOAT, g FLOAT(30), r DOUBLE PRECISION,
  c CHAR(3) CHARACTER SET latin1 NOT NULL DEFAULT 'a''b', v VARCHAR(20),
  nv NATIONAL VARCHAR(7), nc NATIONAL CHAR, cb CHAR(3) BINARY, cu CHAR(3) CHARSET utf8,
  x VARBINARY(9), t TEXT, e ENUM('a','b''c') NOT NULL, s SET('x','y') DEFAULT 'x,y',
  ts TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3), dt DATETIME(6), y YEAR, j JSON,
  bt BIT(9) DEFAULT b'101', p POINT SRID 4326, u VARCHAR(5) COLLATE utf8mb4_bin DEFAULT (uuid()),
  w INT GENERATED ALWAYS AS (id + 1) STORED, PRIMARY KEY (id), UNIQUE KEY uk (c)) DEFAULT CHARSET utf8mb4"""


def made(*statements: str) -> SchemaState:
    state = SchemaState()
    for sql in statements:
        state = apply_ddl(state, sql, CONTEXT).state
    return state


def change(table: Any = None, kind: str = "ALTER", name: str = '"d"."t"', **more: Any) -> dict[str, Any]:
    found = made(EVERYTHING).tables[T] if table is None else table
    return {"type": kind, "id": name, "table": table_dict(found, comments=True), **more}


def told(given: dict[str, Any], state: SchemaState | None = None) -> SchemaState:
    return read_table_change(Members(json.loads(json.dumps(given))), "d").apply(state or SchemaState())[0]


def test_what_schema_changes_tell_of_a_table_is_read_back() -> None:
    before = made(EVERYTHING)
    assert told(change(), before) == before, "nothing changes in a table that is told as it is"
    alone = told(change())
    assert table_dict(alone.tables[T], comments=True) == table_dict(before.tables[T], comments=True)


def test_the_key_of_the_signal_counts() -> None:
    unique = "CREATE TABLE t (a INT NOT NULL, b INT NOT NULL, UNIQUE KEY uk (b))"
    assert told(change(made(unique).tables[T]), made(unique)) == made(unique)
    other = change(made("CREATE TABLE t (a INT NOT NULL PRIMARY KEY, b INT NOT NULL)").tables[T])
    found = told(other, made(unique)).tables[T]
    assert found.key_columns() == ("a",) and [i.name for i in found.unique_keys] == ["uk"]
    gone = change(made("CREATE TABLE t (a INT NOT NULL)").tables[T])
    assert told(gone, made(unique)).tables[T].key_columns() == ()


def test_tables_are_dropped_created_and_renamed() -> None:
    state = made("CREATE TABLE t (a INT)", "CREATE TABLE u (a INT)")
    assert [*told({"type": "DROP", "id": '"d"."t"'}, state).tables] == [TableId("d", "u")]
    new = change(state.tables[T], "CREATE", "d.n")
    assert [*told(new, state).tables] == [T, TableId("d", "u"), TableId("d", "n")]
    moved = change(state.tables[T], name='"d"."n"', previousId='"d"."t"')
    _, what = read_table_change(Members(moved), "d").apply(state)
    assert (what.kind, what.previous_id) == ("RENAME", T) and what.listed
    assert [*told(moved, state).tables] == [TableId("d", "u"), TableId("d", "n")]
    assert read_table_change(Members({"type": "DROP", "id": '"a""b"."c.d"'})).id == TableId('a"b', "c.d")


ONE = {"name": "a", "typeName": "INT", "optional": True}


@for_each(
    ("given", "why"),
    [
        ({"type": "MERGE", "id": "d.t"}, "type"),
        ({"type": "DROP"}, "id"),
        ({"type": "DROP", "id": "t"}, '"database"."table"'),
        ({"type": "DROP", "id": "d.t.u"}, '"database"."table"'),
        ({"type": "DROP", "id": "d." + "x" * 65}, "64 characters"),
        ({"type": "DROP", "id": "other.t"}, "a table of database d"),
        ({"type": "ALTER", "id": "d.t"}, "table"),
        ({"type": "ALTER", "id": "d.t", "table": None}, "table"),
        ({"columns": []}, "1 to 4096 columns"),
        ({"columns": [{"name": "a"}]}, "typeName"),
        ({"columns": [ONE | {"typeName": "VARCHAR(20)"}]}, "without its length"),
        ({"columns": [ONE | {"typeName": "VARCHAR"}]}, "length"),
        ({"columns": [ONE | {"typeName": "TEXT"}]}, "charsetName"),
        ({"columns": [ONE | {"typeName": "TEXT", "charsetName": "klingon"}]}, "a character set of MySQL"),
        ({"columns": [ONE], "defaultCharsetName": "klingon"}, "a character set of MySQL"),
        ({"columns": [ONE | {"typeName": "ENUM", "charsetName": "latin1"}]}, "enumValues"),
        ({"columns": [ONE | {"optional": "yes"}]}, "optional"),
        ({"columns": [ONE | {"name": ""}]}, "name"),
        ({"columns": [ONE | {"position": 2}]}, "numbered from 1"),
        ({"columns": [ONE, ONE | {"name": "A"}]}, "names that differ"),
        ({"columns": [ONE], "primaryKeyColumnNames": ["b"]}, "primaryKeyColumnNames"),
        ({"columns": [ONE], "primaryKeyColumnNames": ["a", "a"]}, "primaryKeyColumnNames"),
        ({"columns": ["a"]}, "columns"),
    ],
)
def test_what_is_no_table_change_is_refused_by_its_member(given: dict[str, Any], why: str) -> None:
    full = given if "type" in given else {"type": "CREATE", "id": "d.t", "table": given}
    with pytest.raises(DamagedRecordError, match=why):
        read_table_change(Members(full), "d")


def test_a_change_that_makes_too_large_a_record_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(told_changes, "MAX_CHANGE_BYTES", 5000)
    read_table_change(Members(change(made("CREATE TABLE t (a INT)").tables[T])))
    with pytest.raises(DamagedRecordError, match="described in at most 5000 bytes"):
        read_table_change(Members(change()))


# -- in the history --------------------------------------------------------------------------------------------------


def place(pos: int) -> BinlogOffset:
    return BinlogOffset("binlog.000001", pos, None, "s1")


def statement(pos: int, ddl: str, epoch: int = 1) -> HistoryRecord:
    return HistoryRecord("p", place(pos), epoch, 0, "d", ddl, CONTEXT)


def signal(pos: int, ddl: str, epoch: int = 2, *, between: bool = False) -> HistoryRecord:
    given = change(made(ddl).tables[T])
    made_of = HistoryRecord("p", place(pos), epoch, 0, "d", "", table_changes=(given,), between=between)
    return HistoryRecord.from_bytes(made_of.to_bytes())


def names(records: list[HistoryRecord], until: int, epoch: int = 9) -> list[str]:
    return [c.name for c in replay(records, until=place(until), epoch=epoch).tables[T].columns]


def test_reported_structures_are_replayed_at_their_position() -> None:
    log = [statement(100, "CREATE TABLE t (id INT PRIMARY KEY)"), signal(200, "CREATE TABLE t (id INT, a INT)")]
    log += [statement(300, "ALTER TABLE t ADD b INT")]
    assert [names(log, until) for until in (199, 200, 300)] == [["id"], ["id", "a"], ["id", "a", "b"]]


def test_two_signals_at_one_place_count_both_and_a_repeated_one_once() -> None:
    log = [statement(100, "CREATE TABLE t (id INT)"), signal(200, "CREATE TABLE t (a INT)")]
    log += [signal(200, "CREATE TABLE t (b INT)"), signal(200, "CREATE TABLE t (a INT)", epoch=3)]
    assert names(log, 200) == ["b"]


def test_structures_at_the_position_of_a_description_are_applied_after_it() -> None:
    """A snapshot's view and the batch behind it may end at the same place."""
    described = [
        HistoryRecord("p", place(200), 1, 0, db, ddl, CONTEXT, snapshot=True)
        for db, ddl in (("", "SET character_set_server=utf8mb4"), ("d", "CREATE TABLE t (id INT)"))
    ]
    told_there = signal(200, "CREATE TABLE t (a INT)", between=True)
    assert told_there.between
    assert names([*described, told_there], 200) == ["a"]
    later = [replace(r, epoch=3) for r in described]
    assert names([*described, told_there, *later], 200) == ["id"], "a later description counts"


def test_a_damaged_one_is_named() -> None:
    wrong = HistoryRecord("p", place(1), 1, 0, "d", "", table_changes=({"type": "ALTER", "id": "d.t"},))
    with pytest.raises(SchemaError, match="history record is damaged"):
        replay([wrong], until=place(9), epoch=2)


def test_a_corrected_structure_is_replayed_as_it_is() -> None:
    """Also what the format of table changes does not have, and columns of another order."""
    sql = "CREATE TABLE t (id INT, n VARCHAR(9) COLLATE utf8mb4_bin UNIQUE INVISIBLE, KEY k (id), UNIQUE u (n(4)))"
    base = [statement(100, sql)]
    state = replay(base, until=place(100), epoch=2)
    table = state.tables[T]
    corrected = replace(table, columns=tuple(replace(c, position=3 - c.position) for c in reversed(table.columns)))
    correction = HistoryRecord("p", place(200), 1, 0, "d", "", table_changes=({"id": "x"},), structure=corrected)
    read = HistoryRecord.from_bytes(correction.to_bytes())
    assert read == correction and read.identity() != replace(read, structure=table).identity()
    later = replay([*base, read, statement(300, "ALTER TABLE t ADD x INT")], until=place(300), epoch=2)
    assert [c.name for c in later.tables[T].columns] == ["n", "id", "x"]
    replayed = replay([*base, read], until=place(200), epoch=2)
    assert replayed.tables[T] == corrected and corrected.unique_keys[1].prefixes == (4,)
    assert replayed.non_unique_indexes == state.non_unique_indexes
    wide = replace(read, table_changes=({"id": "x" * 600_000},))
    assert HistoryRecord.from_bytes(wide.to_bytes()).structure == corrected and len(wide.to_bytes()) < 10_000


@for_each("damage", [{"columns": [{"name": 1}]}, {"id": None}, {"columns": [{}]}, {"comment": 7}])
def test_a_damaged_structure_is_named(damage: dict[str, Any]) -> None:
    correction = HistoryRecord("p", place(1), 1, 0, "d", "", structure=made("CREATE TABLE t (id INT)").tables[T])
    data = json.loads(correction.to_bytes())
    data["structure"] |= damage
    with pytest.raises(SchemaError, match="history record is damaged"):
        HistoryRecord.from_bytes(json.dumps(data).encode())
