"""Results of verifications as a test makes them up."""

from __future__ import annotations

from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import (
    DifferenceKind,
    Example,
    RepairMode,
    TableVerdict,
    VerifyRequest,
    VerifyResult,
)

ORDERS = TableVerdict(
    "shop.orders",
    "s.shop.orders",
    rows=1_000_010,
    records=12,
    findings={DifferenceKind.DUPLICATE: 2, DifferenceKind.MISSING: 1, DifferenceKind.DIFFERING: 3},
    columns={"total": 1, "item": 3},
    repaired={DifferenceKind.MISSING: 1},
    unknown=("the topic was compacted",),
    examples=(
        Example(DifferenceKind.MISSING, {"id": 1}, (), {"id": 1, "total": "2"}, None, ""),
        Example(
            DifferenceKind.DIFFERING,
            {"id": 7},
            ("item",),
            {"id": 7, "item": "<b>new</b>", "secret": "s3cret-of-table"},
            {"id": 7, "item": "old", "secret": "s3cret-of-topic"},
            "s.shop.orders[0]@7",
        ),
    ),
)
CUSTOMERS = TableVerdict("shop.customers", "s.shop.customers", rows=3, records=4)


def verify_result(
    *tables: TableVerdict, run: str = "dag/run/verify/-1#0", request: VerifyRequest | None = None
) -> VerifyResult:
    """Return a result about these tables.

    Args:
        tables: The verdicts.
        run: Id of the run.
        request: What was asked for; None for a dry run of all tables.
    """
    offset = BinlogOffset("binlog.000003", 1234, "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-77")
    request = request or VerifyRequest(repair=RepairMode.DRY_RUN)
    return VerifyResult(run, "s", offset, 1_795_700_000_000, 1_795_700_050_000, request, tables)
