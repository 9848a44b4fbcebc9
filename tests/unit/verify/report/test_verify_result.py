from dataclasses import replace
from typing import Any

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.commit.ledger_records import build_ledger_state
from airflow_provider_mysql_cdc.cdc.commit.plan import decode, encode
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.operate.settle import (
    NOT_JUDGED_EXIT,
    differences_error,
    exit_code,
    not_judged_error,
)
from airflow_provider_mysql_cdc.cdc.verify.compare.folding import BucketResult
from airflow_provider_mysql_cdc.cdc.verify.report.verdict_records import (
    read_last_verdicts,
    read_verify_result,
    verdict_values,
)
from airflow_provider_mysql_cdc.cdc.verify.report.verdict_totals import bounded_json, count_verdicts
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import (
    DifferenceKind,
    Example,
    NotCompared,
    RepairMode,
    TableVerdict,
    VerdictKind,
    VerifyRequest,
    VerifyResult,
)
from airflow_provider_mysql_cdc.cdc.verify.verdicts import TopicComparison, build_verdicts

pytestmark = pytest.mark.quick

ORDERS = TableVerdict(
    "shop.orders",
    "s.shop.orders",
    rows=10,
    records=12,
    findings={DifferenceKind.MISSING: 1, DifferenceKind.DUPLICATE: 2},
    columns={"total": 1},
    repaired={DifferenceKind.MISSING: 1},
    unknown=("the topic was compacted",),
    examples=(Example(DifferenceKind.MISSING, {"id": 1}, (), {"id": 1, "total": "2"}, None, "s.shop.orders[0]@7"),),
)
CUSTOMERS = TableVerdict("shop.customers", "s.shop.customers", rows=3, records=3)


def result(*tables: TableVerdict, run: str = "r1") -> VerifyResult:
    request = VerifyRequest(("shop\\..*",), 50.0, RepairMode.DRY_RUN, 5, show_values=False)
    return VerifyResult(run, "s", BinlogOffset("binlog.000001", 157), 1, 2, request, tables)


def ledger_with(*results: VerifyResult) -> object:
    records: dict[str, bytes | None] = {}
    for each in results:
        for key, value in verdict_values(build_ledger_state(records), each):
            records[key] = None if value is None else encode(value)
    return build_ledger_state(records)


def test_a_result_is_read_from_its_ledger_records_as_it_was() -> None:
    written = result(CUSTOMERS, ORDERS)
    assert read_verify_result(ledger_with(written)) == written
    assert VerifyResult.from_json(written.to_json()) == written


def test_verdicts_of_an_earlier_verification_do_not_appear_in_a_later_one() -> None:
    later = result(CUSTOMERS, run="r2")
    ledger = ledger_with(result(CUSTOMERS, ORDERS), later)
    assert read_verify_result(ledger) == later
    assert read_verify_result(ledger, "r1") is None
    assert read_verify_result(ledger, "r2") == later


def test_only_differences_of_the_state_make_a_topic_unequal() -> None:
    assert not ORDERS.equal and not result(ORDERS).equal
    doubled = TableVerdict("a.b", "s.a.b", findings={DifferenceKind.DUPLICATE: 1})
    assert doubled.equal and doubled.verdict != "equal" and result(doubled).verdict != "equal"
    assert result(CUSTOMERS).verdict == "equal" and result(CUSTOMERS).equal


def test_no_verification_reads_as_none() -> None:
    assert read_verify_result(build_ledger_state({})) is None


def test_a_table_that_is_gone_has_a_verdict_that_says_so() -> None:
    comparison = TopicComparison((), BucketResult(), gone={TableId("shop", "old"): "s.shop.old"})
    (verdict,) = build_verdicts(comparison, VerifyRequest())
    assert (verdict.table, verdict.topic, verdict.rows) == ("shop.old", "s.shop.old", 0)
    assert verdict.unknown == ("the table was not compared: it was dropped or renamed meanwhile",)


@pytest.mark.parametrize("why", list(NotCompared))
def test_a_table_that_was_not_compared_is_neither_equal_nor_different(why: NotCompared) -> None:
    verdict = TableVerdict("a.b", "s.a.b", unknown=("the table was not compared: x",), not_compared=why)
    assert not verdict.equal and verdict.verdict != "equal" and not verdict.different
    assert not result(verdict, CUSTOMERS).equal and result(verdict, CUSTOMERS).verdict != "equal"
    totals = count_verdicts(result(verdict, CUSTOMERS))
    assert (totals.tables, totals.different, totals.not_compared) == (2, 0, 1)
    summary = bounded_json(result(verdict, CUSTOMERS), 2)
    assert (summary["equal"], summary["tables_compared"], summary["tables_not_compared"]) == (False, 1, 1)


def test_what_was_not_judged_has_an_error_and_an_exit_code_of_its_own() -> None:
    unread, undecidable = (
        TableVerdict("a." + str(why), "s", unknown=(f"because it is {why}",), not_compared=why) for why in NotCompared
    )
    seen = TableVerdict("a.seen", "s", rows=9, unknown=("missing rows are not judged (9 seen): x",), unjudged=9)
    for each in (unread, undecidable, seen):
        assert (each.verdict, each.equal) == (VerdictKind.NOT_JUDGED, False), each
        found = result(CUSTOMERS, each)
        assert (found.verdict, found.equal) == (VerdictKind.NOT_JUDGED, False), each
        assert differences_error(found) is None and exit_code(found) == NOT_JUDGED_EXIT == 3, each
        error = not_judged_error(found)
        assert error is not None and error.what == "1 of 2 tables could not be judged in full", each
        assert error.where == f"{each.table}: {each.unknown[0]}" and not error.can_retry, each
        assert bounded_json(found, 2)["verdict"] == "not judged" and bounded_json(found, 2)["tables_not_judged"] == 1
    assert result().verdict is VerdictKind.NOT_JUDGED and not result().equal and exit_code(result()) == 3
    assert (exit_code(result(CUSTOMERS)), not_judged_error(result(CUSTOMERS))) == (0, None)
    both = differences_error(result(ORDERS, unread))
    assert both is not None and "shop.orders" in both.where and exit_code(result(ORDERS, unread)) == 1


RED, GREEN = {DifferenceKind.GHOST: 2}, dict[DifferenceKind, int]()
HISTORY = {DifferenceKind.DUPLICATE: 1}


@for_each(
    ("earlier", "request", "later", "counts"),
    [
        ({"findings": RED}, {}, {"findings": GREEN}, "later"),
        ({"findings": RED, "repaired": RED}, {"sample_percent": 1.0}, {"findings": GREEN}, "later"),
        ({"findings": GREEN}, {"sample_percent": 1.0}, {"not_compared": NotCompared.UNREAD}, "later"),
        ({"findings": RED}, {"sample_percent": 1.0}, {"findings": GREEN}, "earlier"),
        ({"findings": RED}, {}, {"not_compared": NotCompared.UNREAD}, "earlier"),
        ({"unjudged": 7}, {"sample_percent": 1.0}, {"findings": GREEN}, "earlier"),
        ({"findings": RED}, {"sample_percent": 1.0}, {"findings": HISTORY}, "later"),
        ({"findings": HISTORY}, {}, {"findings": GREEN}, "earlier"),
        ({"findings": HISTORY}, {"history": True}, {"findings": GREEN}, "later"),
        # What was repaired in a sample is not all that differs.
        ({"findings": RED}, {"sample_percent": 1.0}, {"findings": RED, "repaired": RED}, "earlier"),
        ({"unjudged": 7}, {"sample_percent": 1.0}, {"findings": RED, "repaired": RED}, "earlier"),
    ],
)
def test_a_verdict_counts_until_the_table_is_judged_again(
    earlier: dict[str, Any], request: dict[str, Any], later: dict[str, Any], counts: str
) -> None:
    whole = replace(
        result(replace(CUSTOMERS, **earlier), run="earlier"), request=VerifyRequest(history=True), ended_ms=7
    )
    asked = VerifyRequest(("shop.customers",), **request)
    again = replace(result(replace(CUSTOMERS, **later), run="later"), request=asked, ended_ms=9)
    # It also stays beside several that do not judge it.
    for results in ((whole, again), (whole, again, replace(again, run="last"))):
        ledger: Any = ledger_with(*results)
        found = read_last_verdicts(ledger)
        assert found is not None and read_verify_result(ledger) == results[-1]
        assert found.tables == (whole if counts == "earlier" else again).tables
        assert len(results) == 3 or dict(found.earlier) == ({"shop.customers": 7} if counts == "earlier" else {})
    full = replace(result(CUSTOMERS, run="full"), request=VerifyRequest(history=True))
    judged: Any = ledger_with(whole, again, full)
    assert read_last_verdicts(judged) == full


def test_each_open_verdict_counts_until_all_of_it_is_judged_again() -> None:
    def run(name: str, found: TableVerdict, percent: float = 100.0, *, history: bool = False) -> VerifyResult:
        return replace(result(found, run=name), request=VerifyRequest((), percent, history=history))

    doubled = replace(CUSTOMERS, findings=HISTORY)
    ghosts = replace(CUSTOMERS, findings=RED)
    unread = replace(CUSTOMERS, not_compared=NotCompared.UNREAD)
    runs = [
        run("a", doubled, 1.0, history=True),
        run("b", ghosts),
        run("c", CUSTOMERS, 1.0),
        run("d", CUSTOMERS, 1.0, history=True),
    ]
    for last, expected in enumerate((doubled, ghosts, ghosts, ghosts), 1):
        found = read_last_verdicts(ledger_with(*runs[:last]))  # type: ignore[arg-type]
        assert found is not None and found.tables == (expected,), last
    daily = [run(f"{day}", each) for day, each in enumerate([unread, ghosts, unread, unread, unread] * 9)]
    ledger: Any = ledger_with(*runs, *daily)
    (record,) = ledger.verdicts.values()
    assert len(decode(record)["verdicts"]) == 2, "what is not judged each day does not pile up"


def test_a_verification_of_all_tables_forgets_those_that_are_gone() -> None:
    everything = replace(result(CUSTOMERS, ORDERS), request=VerifyRequest())
    some: Any = ledger_with(everything, result(CUSTOMERS, run="r2"))
    found = read_last_verdicts(some)
    assert found is not None and found.tables == (CUSTOMERS, ORDERS) and dict(found.earlier) == {"shop.orders": 2}
    every: Any = ledger_with(everything, replace(result(CUSTOMERS, run="r2"), request=VerifyRequest()))
    found = read_last_verdicts(every)
    assert found is not None and found.tables == (CUSTOMERS,) and not found.earlier
