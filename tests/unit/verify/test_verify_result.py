import pytest

from airflow_provider_mysql_cdc.cdc.commit.ledger_records import build_ledger_state
from airflow_provider_mysql_cdc.cdc.commit.plan import encode
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.operate.verify_outcome import differences_error, verify_summary
from airflow_provider_mysql_cdc.cdc.verify.folding import BucketResult
from airflow_provider_mysql_cdc.cdc.verify.verdict_records import read_verify_result, verdict_values
from airflow_provider_mysql_cdc.cdc.verify.verdict_totals import count_verdicts
from airflow_provider_mysql_cdc.cdc.verify.verdicts import TopicComparison, build_verdicts
from airflow_provider_mysql_cdc.cdc.verify.verify_request import RepairMode, VerifyRequest
from airflow_provider_mysql_cdc.cdc.verify.verify_result import (
    DifferenceKind,
    Example,
    NotCompared,
    TableVerdict,
    VerifyResult,
)

pytestmark = pytest.mark.quick

ORDERS = TableVerdict(
    "shop.orders",
    "s.shop.orders",
    rows=10,
    records=12,
    findings={DifferenceKind.MISSING: 1, DifferenceKind.DUPLICATE: 2},
    columns={"total": 1},
    repaired={DifferenceKind.MISSING: 1},
    partial_rows=3,
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
    assert doubled.equal and not doubled.clean and not result(doubled).clean
    assert result(CUSTOMERS).clean and result(CUSTOMERS).equal


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
    assert not verdict.equal and not verdict.clean and not verdict.different
    assert not result(verdict, CUSTOMERS).equal and not result(verdict, CUSTOMERS).clean
    assert TableVerdict.from_json(verdict.to_json()) == verdict
    totals = count_verdicts(result(verdict, CUSTOMERS))
    assert (totals.tables, totals.different, totals.not_compared) == (2, 0, 1)
    summary = verify_summary(result(verdict, CUSTOMERS))
    assert (summary["equal"], summary["tables_compared"], summary["tables_not_compared"]) == (False, 1, 1)


def test_only_a_table_that_could_not_be_read_fails_the_task() -> None:
    unread, undecidable = (
        TableVerdict("a." + str(why), "s", unknown=(f"because it is {why}",), not_compared=why) for why in NotCompared
    )
    assert differences_error(result(CUSTOMERS, undecidable)) is None
    error = differences_error(result(CUSTOMERS, unread, undecidable))
    assert error is not None and error.what == "1 of 3 tables could not be compared with their topics"
    assert error.where == "a.unread: because it is unread"
    both = differences_error(result(ORDERS, unread))
    assert both is not None and "shop.orders" in both.where
