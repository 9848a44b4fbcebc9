"""What the task of a repair writes of what its judge has confirmed."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from kit.table_records import TableRecords

from airflow_provider_mysql_cdc.cdc.drain.drain_writer import WriterResult
from airflow_provider_mysql_cdc.cdc.errors import StateError
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord
from airflow_provider_mysql_cdc.cdc.verify import repair_task
from airflow_provider_mysql_cdc.cdc.verify.repair_task import RepairInputs, RepairReport, TableOutcome
from airflow_provider_mysql_cdc.cdc.verify.repair_writer import DeleteRepair, RepairIdentity, RowRepair, TableRepair
from airflow_provider_mysql_cdc.cdc.verify.suspect_judge import JudgedTable
from airflow_provider_mysql_cdc.cdc.verify.suspects import Suspect, TableSuspects
from airflow_provider_mysql_cdc.cdc.verify.verify_result import DifferenceKind

pytestmark = pytest.mark.quick

MISSING, GHOST = DifferenceKind.MISSING, DifferenceKind.GHOST
PLAIN = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
RECORDS = TableRecords("CREATE TABLE t (id INT NOT NULL PRIMARY KEY)", PLAIN)
NAME = TableId("shop", "t")


class Writer:
    """Say that one difference less than asked for was repaired."""

    def __init__(self) -> None:
        self.written: list[TableRepair] = []
        self.counts = {"p.shop.t": 5}

    def write(self, repair: TableRepair) -> dict[DifferenceKind, int]:
        self.written.append(repair)
        return {GHOST: len(repair.deletes), MISSING: len(repair.rows) - 1}


def run(
    monkeypatch: pytest.MonkeyPatch, *, max_rows: int = 10, dry_run: bool = False, difference: str = "", **more: Any
) -> tuple[RepairReport, Writer]:
    writer = Writer()
    rows = tuple(RowRepair({MISSING: 1}, b"") for _ in range(3))
    deletes = (DeleteRepair({GHOST: 1}, TopicRecord(0, 1, b"", b"")),)
    judged = JudgedTable(TableRepair(RECORDS.table, None, deletes, rows), 2, ("a reason",))  # type: ignore[arg-type]
    monkeypatch.setattr(repair_task.SuspectJudge, "judge", lambda *_: judged)
    monkeypatch.setattr(repair_task.SuspectJudge, "hidden_reason", lambda *_: "")
    monkeypatch.setattr(repair_task._RepairTask, "_writer", lambda self: writer)
    monkeypatch.setattr(repair_task, "difference_in_view", lambda conn, table: difference)
    suspects = TableSuspects(RECORDS.table, RECORDS.topic, (Suspect({MISSING: 1}, b"{}"),), {})
    inputs = RepairInputs(SimpleNamespace(run_id="r"), (suspects,), RepairIdentity("run", "owner"), max_rows, dry_run)  # type: ignore[arg-type]
    state: Any = more.get("state", SimpleNamespace(tables={NAME: RECORDS.table}))
    plan: Any = SimpleNamespace(partitions=more.get("partitions", {RECORDS.topic: 1}))
    task = repair_task._RepairTask(
        RECORDS.cfg, plan, 0, None, None, None, inputs, WriterResult({}, state)  # type: ignore[arg-type]
    )  # fmt: skip
    return task.run(more.get("unreadable", {})), writer


def test_all_that_is_confirmed_is_written_and_what_is_left_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    report, writer = run(monkeypatch, max_rows=4)
    expected = TableOutcome({GHOST: 1, MISSING: 3}, {GHOST: 1, MISSING: 2}, 2, ("a reason", "1 could not be written"))
    assert report.tables == {NAME: expected} and report.counts == {"p.shop.t": 5}
    assert len(writer.written) == 1 and (report.confirmed, report.repaired) == (4, 3)


def test_nothing_is_written_in_a_dry_run_or_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    for options in ({"dry_run": True}, {"max_rows": 3}):
        report, writer = run(monkeypatch, **options)  # type: ignore[arg-type]
        assert writer.written == [] and report.counts == {}
        assert report.tables == {NAME: TableOutcome({GHOST: 1, MISSING: 3}, {}, 2, ("a reason",))}


def test_tables_that_cannot_be_repaired_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"state": SimpleNamespace(tables={})}, "the table was dropped or renamed meanwhile"),
        ({"unreadable": {NAME: "it is locked"}}, "it is locked"),
        (
            {"state": SimpleNamespace(tables={NAME: replace(RECORDS.table, primary_key=())})},
            "its structure has changed since it was compared; verify again",
        ),
        ({"difference": "column x"}, "its structure differs from the server's: column x"),
        ({"partitions": {}}, "its topic p.shop.t was created during this batch"),
    ]
    for options, reason in cases:
        report, writer = run(monkeypatch, **options)
        assert report.tables == {NAME: TableOutcome(reasons=(reason,))} and writer.written == []


def test_without_structures_nothing_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StateError, match="does not know the structures"):
        run(monkeypatch, state=None)
