"""Which tables join a running stream, and which statements make their earlier rows count or not."""

from __future__ import annotations

import json

from kit.cases import for_each
from kit.memory_job import config

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import CAPTURED_LISTS_KEY
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.unread_tables import NeverReadTable, earlier_lists, lists_record
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.enums import NewTablesMode
from airflow_provider_mysql_cdc.cdc.ddl.apply import apply_ddl
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext, SchemaState
from airflow_provider_mysql_cdc.cdc.drain.joined_tables import MAX_LINES, UnreadTables, joined_tables, unread_lines
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.snapshot.unlogged_changes import unlogged_changes

TABLES = [TableId("a", "x"), TableId("a", "y"), TableId("b", "x"), TableId("mysql", "user")]
A = {"database__include__list": "a"}


def joined(before: dict[str, str], now: dict[str, str]) -> list[str]:
    """Return the tables that join with a change of properties, as the ledger remembers the lists."""
    ledger = LedgerState(other_records={CAPTURED_LISTS_KEY: lists_record(config(**before))})
    cfg = config(**now)
    former = earlier_lists(cfg, ledger)
    return [] if former is None else [str(each.table) for each in joined_tables(cfg, former, TABLES, "f:4")]


@for_each(
    ("before", "now", "expected"),
    [
        (A, A, []),
        (A, {"database__include__list": "A,B"}, ["b.x"]),
        (A | {"table__include__list": "a.y"}, A | {"table__include__list": r"a\.[xy]"}, ["a.x"]),
        (A | {"table__exclude__list": "a.x"}, A, ["a.x"]),
        ({"database__exclude__list": "b"}, {"table__exclude__list": "a.*"}, ["b.x"]),
        ({}, {"table__ignore__builtin": "false"}, ["mysql.user"]),
        (A, {"snapshot__mode": "no_data"}, []),
        (A, {"snapshot__mode": "never"}, []),
        (A, {"snapshot__mode": "recovery"}, ["b.x"]),
        (A, {"snapshot__include__collection__list": "a.x"}, []),
        ({"table__include__list": ",".join(f"a.t{n}" for n in range(9999))}, A, ["a.x", "a.y"]),
    ],
)
def test_tables_that_the_lists_before_left_out_have_joined(
    before: dict[str, str], now: dict[str, str], expected: list[str]
) -> None:
    assert joined(before, now) == expected


def test_the_lists_of_ten_thousand_tables_fit_in_a_record() -> None:
    names = ",".join(f"warehouse.orders_of_region_{n}_and_year_{n % 40}" for n in range(10_000))
    assert len(json.dumps(lists_record(config(table__include__list=names)))) < 200_000
    assert earlier_lists(config(), LedgerState()) is None


def after(sql: str, cfg: ConnectorConfig, *, atomic: bool = False) -> dict[str, bytes | None]:
    """Return the ledger records of a statement where a.old and a.alien are unread, a.x was read, a.y does not exist.

    The history lacks a.alien.
    """
    context, state, records = DdlContext("a", atomic=atomic), SchemaState(), list[SideRecord]()
    for name in ("a.x", "a.old", "b.stage"):
        state = apply_ddl(state, f"CREATE TABLE {name} (i INT PRIMARY KEY)", context).state
    unread = {
        table: NeverReadTable(table, "f:4", "it joined") for table in (TableId("a", "old"), TableId("a", "alien"))
    }
    tables = UnreadTables(cfg, unread, records)
    changes = unlogged_changes(sql, context, cfg.captures, lambda table: True, cfg.includes_column)
    tables.on_statement(state, apply_ddl(state, sql, context), changes, "f:99", atomic=atomic)
    return {key.decode().removeprefix("unread/"): value for _, key, value, *_ in records if key is not None}


@for_each(
    ("sql", "gone", "found"),
    [
        ("TRUNCATE TABLE old", ["a.old"], []),
        ("DROP TABLE IF EXISTS old, x", ["a.old"], []),
        ("DROP DATABASE a", ["a.old"], []),
        ("CREATE TABLE old (i INT)", ["a.old"], []),
        ("RENAME TABLE old TO b.away", ["a.old"], []),
        ("RENAME TABLE old TO y", ["a.old"], ["a.y"]),
        ("RENAME TABLE x TO y", [], ["a.y"]),
        ("RENAME TABLE b.stage TO a.y", [], ["a.y"]),
        ("ALTER TABLE b.stage RENAME a.y", [], ["a.y"]),
        ("RENAME TABLE x TO b.x, b.stage TO x", [], []),  # read under this name; it has a warning of its own
        ("RENAME TABLE x TO b.x, old TO x", ["a.old"], ["a.x"]),
        ("RENAME TABLE x TO b.tmp, old TO x, b.tmp TO old", [], ["a.x"]),
        ("RENAME TABLE b.stage TO b.other", [], []),
        ("CREATE TABLE y (i INT)", [], []),
        ("CREATE TABLE alien (i INT)", ["a.alien"], []),
        ("create table if /* perhaps */ not exists alien (i INT)", [], []),
        ("CREATE TABLE IF NOT EXISTS alien LIKE x", [], []),
        ("DROP TABLE IF EXISTS alien", ["a.alien"], []),
        ("ALTER TABLE old ADD j INT", [], []),
        ("ALTER TABLE x EXCHANGE PARTITION p WITH TABLE b.stage", [], []),
    ],
)
def test_statements_settle_unread_tables_and_find_others(sql: str, gone: list[str], found: list[str]) -> None:
    records = after(sql, config(**A))
    assert [key.replace("/", ".") for key, value in records.items() if value is None] == gone
    assert [key.replace("/", ".") for key, value in records.items() if value is not None] == found
    assert all(value is None for value in after(sql, config(**A, snapshot__mode="no_data")).values())


def test_an_atomic_create_has_made_the_table() -> None:
    assert after("CREATE TABLE IF NOT EXISTS alien (i INT)", config(**A), atomic=True) == {"a.alien": None}


def test_each_table_has_a_line_with_its_remedy_up_to_a_limit() -> None:
    (line,) = unread_lines(config(), [NeverReadTable(TableId("d", "t"), "f:4", "it joined the lists")])
    assert line.startswith("WARNING: d.t is captured and was never read: read it with the DAG mysql_cdc_adhoc_snapshot")
    assert "It joined the lists, so its rows from before f:4 are in no record" in line
    assert "without a key: a blocking snapshot" in line and line.endswith("mysql-cdc unread --dismiss d.t")
    assert "snapshot.new.tables=incremental reads it" in NeverReadTable(TableId("d", "t"), "f:4", "x").line(
        NewTablesMode.INCREMENTAL
    )
    many = [NeverReadTable(TableId("d", f"t{n}"), "f:4", "x") for n in range(MAX_LINES + 7)]
    assert (
        unread_lines(config(), many)[-1] == "WARNING: 7 more tables are captured and were never read: mysql-cdc unread"
    )
