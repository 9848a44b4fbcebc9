"""Schema change records of the stream."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.ddl.apply import apply_ddl
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext, DefaultCharset, SchemaState
from airflow_provider_mysql_cdc.cdc.emit.schema_change import SchemaChangeFormat, snapshot_statements
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset

EVENT = SimpleNamespace(timestamp=12, server_id=7, file="binlog.000002", start_pos=99)
AT = SimpleNamespace(gtid=None, commit_us=0, thread=0, query=None)


def payloads(*statements: str) -> list[dict[str, Any]]:
    state = SchemaState()
    changes: Any = ()
    for sql in statements:
        applied = apply_ddl(state, sql, DdlContext("d"))
        state, changes = applied.state, applied.changes
    records = list(SchemaChangeFormat("p", value_schema=False).stream_records(changes, EVENT, AT))
    return [json.loads(r.value) for r in records]


def test_a_record_names_the_tables_of_its_statement_in_the_same_database() -> None:
    """A statement over several databases is several sets of tables, one after the other."""
    tables = [f"CREATE TABLE {name} (a INT)" for name in ("a", "b", "c")]
    found = payloads(*tables, "RENAME TABLE a TO a2, b TO e.b2, c TO c2")
    assert [(p["databaseName"], p["source"]["table"]) for p in found] == [("d", "a2"), ("e", "b2"), ("d", "c2")]
    found = payloads(*tables, "RENAME TABLE a TO a2, c TO c2, b TO e.b2")
    assert [(p["databaseName"], p["source"]["table"]) for p in found] == [("d", "a2,c2"), ("d", "a2,c2"), ("e", "b2")]


def test_a_table_without_a_record_is_named_with_the_others() -> None:
    state = SchemaState()
    for sql in ("CREATE TABLE a (x INT)", "CREATE TABLE b (x INT)", "DROP TABLE a, b"):
        applied = apply_ddl(state, sql, DdlContext("d"))
        state = applied.state
    form = SchemaChangeFormat("p", value_schema=False)
    records = list(form.stream_records(applied.changes, EVENT, AT, is_included=lambda c: c.id.table == "a"))
    assert [json.loads(r.value)["source"]["table"] for r in records] == ["a,b"]


@pytest.mark.req("SCH-36")
@for_each(
    ("statement", "database"),
    [
        ("CREATE INDEX i ON e.t (a)", "d"),
        ("DROP INDEX i ON e.t", "d"),
        ("ALTER DATABASE e CHARACTER SET latin1", "d"),
        ("CREATE UNIQUE INDEX i ON e.t (a)", "e"),
        ("ALTER TABLE e.t ADD INDEX (a)", "e"),
        ("CREATE DATABASE f", "f"),
        ("DROP DATABASE e", "e"),
    ],
)
def test_a_record_belongs_to_the_database_that_debezium_finds_in_the_statement(statement: str, database: str) -> None:
    state = apply_ddl(SchemaState(), "CREATE TABLE e.t (a INT)", DdlContext("d")).state
    changes: Any = apply_ddl(state, statement, DdlContext("d")).changes
    form = SchemaChangeFormat("p", key_schema=False, value_schema=False)
    (record,) = form.stream_records(changes, EVENT, AT, session_db="d")
    value = json.loads(record.value)
    assert {database} == {json.loads(record.key)["databaseName"], value["databaseName"], value["source"]["db"]}


def test_a_truncation_has_no_record() -> None:
    """Debezium's filter passes over TRUNCATE TABLE; row topics get a truncate event where that is asked for."""
    assert payloads("CREATE TABLE a (x INT)", "TRUNCATE TABLE a") == []


@pytest.mark.parametrize("final", [True, False])
def test_the_last_record_of_a_snapshot_without_rows_is_the_snapshots_last(final: bool) -> None:
    latin = DefaultCharset("latin1", "latin1_swedish_ci")
    statements = snapshot_statements(latin, {"d": latin}, {})
    form = SchemaChangeFormat("p", value_schema=False)
    records = form.snapshot_records(statements, {}, BinlogOffset("binlog.000002", 4), final=final)
    marks = [json.loads(r.value)["source"]["snapshot"] for r in records]
    assert marks == ["true"] * (len(statements) - 1) + ["last" if final else "true"]
