"""The verdicts about groups of a verification that is not over, in the ledger.

Groups of tables that a verification compares at one position each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from kit.cases import for_each
from kit.memory_job import config
from kit.verify_results import CUSTOMERS, ORDERS, verify_result

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import VERIFY_DONE_PREFIX
from airflow_provider_mysql_cdc.cdc.commit.ledger_records import build_ledger_state
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import encode
from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.verify import group_queue
from airflow_provider_mysql_cdc.cdc.verify.group_queue import (
    ComparingRun,
    DoneTable,
    SizedTable,
    choose_tables,
    plan_groups,
    read_done,
    sized_tables,
    verdict_basis,
    write_done,
)
from airflow_provider_mysql_cdc.cdc.verify.repair.repair_task import RepairRecord, with_earlier_repairs
from airflow_provider_mysql_cdc.cdc.verify.report.verdict_records import read_verify_result, verdict_values
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import (
    DifferenceKind,
    NotCompared,
    RepairMode,
    TableVerdict,
    VerifyRequest,
)

pytestmark = pytest.mark.quick

CAPTURED = [TableId("shop", name) for name in ("orders", "Orders", "order_items", "a.b")]


@for_each(
    ("entries", "chosen"),
    [
        ([], ["Orders", "a.b", "order_items", "orders"]),
        (["shop.orders"], ["orders"]),
        (["shop.order.*"], ["order_items", "orders"]),
        (['"shop"."a.b"', "shop.Orders"], ["Orders", "a.b"]),
    ],
)
def test_names_and_expressions_choose_tables(entries: list[str], chosen: list[str]) -> None:
    assert [table.table for table in choose_tables(entries, CAPTURED)] == chosen


@pytest.mark.parametrize(
    ("entries", "what"),
    [
        (["shop.orders", "shop.ordrs"], r"a table to verify is not captured \[tables: 'shop.ordrs'\]"),
        (["shop.(orders"], "a table entry is invalid"),
        (['"shop.orders'], "a table entry is invalid"),
    ],
)
def test_what_names_no_table_is_refused_by_name(entries: list[str], what: str) -> None:
    with pytest.raises(ConfigError, match=what) as caught:
        choose_tables(entries, CAPTURED)
    assert not caught.value.can_retry and caught.value.remedy


def test_a_stream_without_tables_is_refused() -> None:
    with pytest.raises(ConfigError, match="no table is captured, so there is nothing to verify"):
        choose_tables([], [])


RUN = ComparingRun("r1", "b1", 5)
AT = BinlogOffset("binlog.000002", 99)
GHOSTS = TableVerdict("shop.ghosts", "s.shop.ghosts", findings={DifferenceKind.GHOST: 3}, offset=AT)
UNREAD = TableVerdict("shop.unread", "s.shop.unread", not_compared=NotCompared.UNREAD, offset=AT)


def ledger(monkeypatch: pytest.MonkeyPatch, *verdicts: TableVerdict, run: ComparingRun = RUN) -> LedgerState:
    records: dict[str, bytes | None] = {}

    def write(settings: Any, written: Any) -> None:
        records.update({record.key.decode(): record.value for record in written})

    monkeypatch.setattr(group_queue, "write_plain", write)
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


def sized(*rows: int, topics: Sequence[str] = ()) -> list[SizedTable]:
    return [SizedTable(TableId("d", f"t{i}"), topics[i] if topics else f"p.d.t{i}", n) for i, n in enumerate(rows)]


def names(groups: list[tuple[TableId, ...]]) -> list[list[str]]:
    return [[table.table for table in group] for group in groups]


@for_each(
    ("rows", "most", "groups"),
    [
        ((3, 1, 4), 0, [["t0", "t1", "t2"]]),
        ((3, 1, 4), 100, [["t0", "t1", "t2"]]),
        ((3, 1, 4), 4, [["t0", "t1"], ["t2"]]),
        ((50, 1, 1, 60), 10, [["t1", "t2"], ["t0"], ["t3"]]),
        ((0, 0), 1, [["t0", "t1"]]),
        ((), 5, []),
    ],
)
def test_small_tables_are_together_and_a_large_one_is_alone(
    rows: tuple[int, ...], most: int, groups: list[list[str]]
) -> None:
    assert names(plan_groups(sized(*rows), most)) == groups


def test_tables_of_one_topic_are_in_one_group() -> None:
    tables = sized(5, 5, 5, topics=["all", "own", "all"])
    assert names(plan_groups(tables, 5)) == [["t1"], ["t0", "t2"]]


class Connection:
    """Answers a query of sizes with those of tables that it has."""

    def __init__(self, rows: dict[tuple[str, str], int | None]) -> None:
        self.rows, self.queries, self.answer = rows, 0, list[tuple[Any, ...]]()

    def cursor(self) -> Connection:
        return self

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def execute(self, sql: str, args: tuple[str, ...]) -> None:
        self.queries += 1
        pairs = zip(args[::2], args[1::2], strict=True)
        self.answer = [(db, table, self.rows[db, table]) for db, table in pairs if (db, table) in self.rows]

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self.answer


def test_sizes_are_the_server_s_estimates_and_a_table_that_is_gone_is_empty() -> None:
    conn = Connection({("d", "a"): 7, ("d", "v"): None})
    topics = {TableId("d", name): f"p.{name}" for name in ("a", "v", "gone")}
    assert [(each.table.table, each.topic, each.rows) for each in sized_tables(conn, topics)] == [
        ("a", "p.a", 7), ("v", "p.v", 0), ("gone", "p.gone", 0),
    ]  # fmt: skip
    many = {TableId("d", f"t{i}"): "p" for i in range(1200)}
    conn = Connection({("d", f"t{i}"): i for i in range(1200)})
    assert [each.rows for each in sized_tables(conn, many)] == list(range(1200)) and conn.queries == 3
