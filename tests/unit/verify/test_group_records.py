"""The verdicts about groups of a verification that is not over, in the ledger."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kit.memory_job import config
from kit.verify_results import CUSTOMERS, ORDERS, verify_result

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import VERIFY_DONE_PREFIX
from airflow_provider_mysql_cdc.cdc.commit.ledger_records import build_ledger_state
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import encode
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.verify import group_records
from airflow_provider_mysql_cdc.cdc.verify.group_records import (
    ComparingRun,
    DoneTable,
    read_done,
    verdict_basis,
    write_done,
)
from airflow_provider_mysql_cdc.cdc.verify.repair.repair_records import RepairRecord, with_earlier_repairs
from airflow_provider_mysql_cdc.cdc.verify.report.verdict_records import read_verify_result, verdict_values
from airflow_provider_mysql_cdc.cdc.verify.report.verify_request import RepairMode, VerifyRequest
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import DifferenceKind, NotCompared, TableVerdict

pytestmark = pytest.mark.quick

RUN = ComparingRun("r1", "b1", 5)
AT = BinlogOffset("binlog.000002", 99)
GHOSTS = TableVerdict("shop.ghosts", "s.shop.ghosts", findings={DifferenceKind.GHOST: 3}, offset=AT)
UNREAD = TableVerdict("shop.unread", "s.shop.unread", not_compared=NotCompared.UNREAD, offset=AT)


def ledger(monkeypatch: pytest.MonkeyPatch, *verdicts: TableVerdict, run: ComparingRun = RUN) -> LedgerState:
    records: dict[str, bytes | None] = {}

    def write(settings: Any, written: Any) -> None:
        records.update({record.key.decode(): record.value for record in written})

    monkeypatch.setattr(group_records, "write_plain", write)
    write_done(config(), run, 7, verdicts)
    return build_ledger_state(records)


def test_verdicts_of_the_run_are_read_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    placed = [replace(CUSTOMERS, offset=AT), replace(ORDERS, offset=AT)]
    state = ledger(monkeypatch, *placed)
    assert read_done(state, "r1", "b1", RepairMode.NO) == [DoneTable(RUN, 7, verdict) for verdict in placed]
    assert read_verify_result(state) is None, "they are no result"


@pytest.mark.parametrize(("run", "basis"), [("r2", "b1"), ("r1", "b2")])
def test_those_of_another_run_or_of_another_request_do_not_count(
    monkeypatch: pytest.MonkeyPatch, run: str, basis: str
) -> None:
    assert read_done(ledger(monkeypatch, CUSTOMERS), run, basis, RepairMode.NO) == []


@pytest.mark.parametrize(
    ("repair", "tables"),
    [
        (RepairMode.NO, {"shop.customers", "shop.ghosts"}),
        (RepairMode.DRY_RUN, {"shop.customers"}),
        (RepairMode.YES, {"shop.customers"}),
    ],
)
def test_a_table_that_was_not_read_is_compared_again_and_one_to_be_repaired_too(
    monkeypatch: pytest.MonkeyPatch, repair: RepairMode, tables: set[str]
) -> None:
    done = read_done(ledger(monkeypatch, CUSTOMERS, GHOSTS, UNREAD), "r1", "b1", repair)
    assert {each.verdict.table for each in done} == tables


def test_the_basis_is_what_was_asked_for_and_what_decides_how_records_look() -> None:
    request, cfg = VerifyRequest(), config()
    basis = verdict_basis(cfg, request)
    assert basis == verdict_basis(config(**{"verify.rows.per.second": "5"}), request)
    assert basis != verdict_basis(cfg, replace(request, sample_percent=50))
    assert basis != verdict_basis(config(**{"column.exclude.list": "shop.orders.total"}), request)


@pytest.mark.parametrize(("over", "left"), [(True, set()), (False, {"shop.ghosts"})])
def test_a_result_deletes_them_once_no_retry_needs_them(
    monkeypatch: pytest.MonkeyPatch, over: bool, left: set[str]
) -> None:
    mine = ledger(monkeypatch, GHOSTS, run=replace(RUN, run="mine")).other_records
    foreign = ledger(monkeypatch, CUSTOMERS, run=replace(RUN, run="another")).other_records
    records: dict[str, bytes | None] = {key: encode(value) for key, value in {**mine, **foreign}.items()}
    for key, value in verdict_values(build_ledger_state(records), verify_result(GHOSTS, run="mine"), over=over):
        records[key] = None if value is None else encode(value)
    state = build_ledger_state(records)
    assert {key.removeprefix(VERIFY_DONE_PREFIX) for key in state.other_records if "done" in key} == left
    assert read_verify_result(state) is not None


def test_what_an_earlier_try_has_repaired_was_found_by_the_run() -> None:
    repair = RepairRecord("r1", "shop.ghosts", "s.shop.ghosts", "o", AT, 1, {DifferenceKind.GHOST: 2})
    left = replace(GHOSTS, findings={DifferenceKind.GHOST: 1, DifferenceKind.DUPLICATE: 4})
    counted, other = with_earlier_repairs([left, CUSTOMERS], [repair])
    assert counted.findings == {DifferenceKind.GHOST: 3, DifferenceKind.DUPLICATE: 4}
    assert counted.repaired == {DifferenceKind.GHOST: 2} and other == CUSTOMERS
