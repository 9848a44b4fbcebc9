"""Which tables are compared with the server, when, and what counts as a difference."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
from kit.cases import for_each
from kit.decode_builder import column, table
from kit.memory_job import config

from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan, Marker
from airflow_provider_mysql_cdc.cdc.commit.unread_tables import UncheckedTable, unchecked_tables
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext, SchemaState
from airflow_provider_mysql_cdc.cdc.drain import structure_check
from airflow_provider_mysql_cdc.cdc.drain.statement_reports import TouchedTables
from airflow_provider_mysql_cdc.cdc.drain.structure_check import check_structures, same_structure, same_text
from airflow_provider_mysql_cdc.cdc.errors import SchemaMismatchError, SourceConnectionError
from airflow_provider_mysql_cdc.cdc.job.job_metrics import JobLog
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, ResumePosition
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.model.table import Table
from airflow_provider_mysql_cdc.cdc.schema.table_discovery import TableDefinitions
from airflow_provider_mysql_cdc.cdc.snapshot.table_lineage import LoggedStatement

T = table(
    column("id", "INT", nullable=False),
    column("mood", "ENUM", charset="utf8mb4", enum_values=("😀", "ok"), has_default=True),
    key=("id",),
)
SHOWN = "CREATE TABLE `t` (`id` int NOT NULL, `mood` enum('?','ok') CHARACTER SET utf8mb4, PRIMARY KEY (`id`))"
START, END = BinlogOffset("b.000001", 4), BinlogOffset("b.000001", 900)
PLAN = BatchPlan(7, "drain", START, END, 1)


def test_members_that_the_server_cannot_show_are_no_difference() -> None:
    shown = replace(T, columns=(T.columns[0], replace(T.columns[1], enum_values=("?", "ok"))))
    assert same_structure(T, shown)
    for other in (("?",), ("?", "no")):
        assert not same_structure(T, replace(shown, columns=(T.columns[0], replace(T.columns[1], enum_values=other))))


@for_each(
    "changes",
    [{"name": "n"}, {"nullable": True}, {"unsigned": True}, {"type_name": "BIGINT"}],
    ids=lambda changes: str(*changes),
)
def test_what_decides_the_values_of_rows_is_a_difference(changes: dict[str, Any]) -> None:
    assert not same_structure(T, replace(T, columns=(replace(T.columns[0], **changes), T.columns[1])))


def test_the_character_set_of_members_is_corrected_and_no_row_is_wrong() -> None:
    shown = replace(T, columns=(T.columns[0], replace(T.columns[1], charset="latin1")))
    assert same_structure(T, shown) and not same_text(T, shown)
    assert same_text(T, T) and not same_text(T, None)
    text = replace(T, columns=(replace(T.columns[1], type_name="VARCHAR", length=9, enum_values=()),))
    assert not same_structure(text, replace(text, columns=(replace(text.columns[0], charset="utf8mb3"),)))


def test_the_key_is_a_difference_and_so_is_a_table_that_is_gone() -> None:
    assert not same_structure(T, replace(T, primary_key=()))
    assert not same_structure(T, None)
    reordered = tuple(reversed(T.columns))
    assert not same_structure(T, replace(T, columns=reordered))


def test_a_touched_table_is_noted_once_and_once_more_when_rows_come() -> None:
    records: list[SideRecord] = []
    touched = TouchedTables("ledger.p", {}, records)
    touched.on_rows(T.id)
    assert records == [], "no statement touched it"
    for where in ("b.000001:4", "b.000001:90"):
        touched.on_statement([T.id], where)
    for _ in range(2):
        touched.on_rows(T.id)
    assert [(r.topic, r.key) for r in records] == [("ledger.p", b"unchecked/db.t")] * 2
    values = [json.loads(r.value or b"") for r in records]
    assert [value["has_rows"] for value in values] == [False, True]
    ledger = LedgerState(other_records={"unchecked/db.t": values[1], "run": {}})
    assert unchecked_tables(ledger) == {T.id: UncheckedTable(T.id, "b.000001:4", True)}
    later = TouchedTables("ledger.p", unchecked_tables(ledger), records)
    later.on_statement([T.id], "b.000002:4")
    later.on_rows(T.id)
    assert len(records) == 2, "an earlier batch has noted it"


class Job:
    """Keep what the driver commits."""

    history_cache = None

    def __init__(self) -> None:
        self.records: list[SideRecord] = []
        self.deleted: list[str] = []
        self.error: Any = None

    def commit(self, records: list[SideRecord]) -> None:
        self.records += records

    def put_all(self, values: Any) -> None:
        self.deleted += [key for key, value in values if value is None]

    def write_outcome(self, plan: BatchPlan, *, error: Any, records: list[SideRecord]) -> None:
        self.error = error
        self.records += records


def check(
    monkeypatch: pytest.MonkeyPatch,
    history: Table,
    *,
    has_rows: bool = False,
    touched: bool = True,
    later: str = "",
    now: BinlogOffset = END,
    fails: bool = False,
) -> tuple[Job, list[str]]:
    """Compare a table after a batch, with a server that shows ``SHOWN``."""

    def connect(settings: Any) -> Any:
        if fails:
            raise SourceConnectionError("gone")
        assert touched, "the server is asked"
        return nullcontext(Server())

    definitions = TableDefinitions("utf8mb4", "utf8mb4_0900_ai_ci", {}, {T.id: SHOWN}, "", 0)
    statements = [LoggedStatement(later, DdlContext(default_db="db"), "b.000001:901")] if later else []
    module: Any = structure_check
    monkeypatch.setattr(module, "connect", connect)
    monkeypatch.setattr(module, "read_create_statements", lambda *_: (definitions, []))
    monkeypatch.setattr(module, "current_offset", lambda conn: now)
    monkeypatch.setattr(module, "range_bytes", lambda conn, start, end: end.pos - start.pos)
    monkeypatch.setattr(module, "statements_between", lambda *_: iter(statements))
    monkeypatch.setattr(module, "load_schema_state", lambda cfg, **_: SchemaState({T.id: history}))
    unchecked = UncheckedTable(T.id, "b.000001:50", has_rows)
    ledger = LedgerState(
        plan=PLAN,
        markers={0: Marker(7, 0, START, END, ResumePosition(END), done=True)},
        other_records={unchecked.ledger_key(): unchecked.to_json()} if touched else {},
    )
    job, lines = Job(), list[str]()
    made: Any = job
    try:
        check_structures(config(), made, PLAN, ledger, JobLog(lines.append))
    except SchemaMismatchError as error:
        assert job.error is error
    return job, lines


class Server:
    """A connection."""

    def cursor(self) -> Any:
        return nullcontext(self)

    def execute(self, sql: str, arguments: Any = ()) -> None:
        assert "lock_wait_timeout" in sql


WRONG = replace(T, columns=(replace(T.columns[0], name="no"), T.columns[1]), primary_key=("no",))


def test_without_a_statement_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    job, lines = check(monkeypatch, WRONG, touched=False)
    assert (job.records, job.deleted, lines) == ([], [], [])


def test_a_table_that_is_as_the_server_has_it_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    job, lines = check(monkeypatch, T)
    assert (job.records, job.deleted, lines) == ([], ["unchecked/db.t"], [])


@pytest.mark.parametrize("has_rows", [False, True])
def test_a_difference_is_corrected_and_an_error_if_rows_came(monkeypatch: pytest.MonkeyPatch, has_rows: bool) -> None:
    job, lines = check(monkeypatch, WRONG, has_rows=has_rows)
    assert "(no INT NOT NULL," in lines[0] and "(id INT NOT NULL," in lines[0]
    by_topic = {record.topic: record for record in job.records}
    structure = json.loads(by_topic[config().history_topic].value or b"")["structure"]
    assert [each["name"] for each in structure["columns"]] == ["id", "mood"]
    assert structure["columns"][1]["enum_values"] == ["😀", "ok"], "as the statement has them"
    assert by_topic[config().ledger_topic] == SideRecord(config().ledger_topic, b"unchecked/db.t", None)
    assert (job.error is not None) is has_rows


@for_each(
    "options",
    [
        {"later": "ALTER TABLE t ADD x INT"},
        {"later": "DROP DATABASE db"},
        {"now": replace(END, pos=END.pos + structure_check.MAX_SEARCHED_BYTES + 1)},
        {"now": replace(END, pos=5)},
        {"now": replace(END, server_uuid="u"), "fails": True},
    ],
    ids=["statement", "database", "far behind", "another binlog", "unreachable"],
)
def test_what_cannot_be_compared_now_is_compared_later(monkeypatch: pytest.MonkeyPatch, options: Any) -> None:
    job, lines = check(monkeypatch, WRONG, has_rows=True, **options)
    assert (job.records, job.deleted, job.error) == ([], [], None)
    assert ["later batch" in line for line in lines] == [True] * bool(options.get("fails"))


def test_statements_about_other_tables_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    job, _ = check(monkeypatch, T, later="ALTER TABLE other ADD x INT")
    assert job.deleted == ["unchecked/db.t"]
