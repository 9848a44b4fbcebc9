"""What a replica leaves out, and the gaps of what it has executed."""

from __future__ import annotations

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.model.gtid import GtidSet
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.verify.replica_checks import leaves_out
from airflow_provider_mysql_cdc.cdc.verify.replica_views import gaps_of

pytestmark = pytest.mark.quick

ORDERS = TableId("shop", "orders")
A, B = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4e11fa47-71ca-11e1-9e33-c80aa9429562"


@for_each(
    ("filters", "left_out"),
    [
        ((), False),
        (("Replicate_Do_DB=shop",), False),
        (("Replicate_Do_DB=crm, shop",), False),
        (("Replicate_Do_DB=crm",), True),
        (("Replicate_Do_DB=SHOP",), True),
        (("Replicate_Ignore_DB=crm",), False),
        (("Replicate_Ignore_DB=crm,Shop",), True),
        (("Replicate_Do_Table=shop.orders",), False),
        (("Replicate_Do_Table=shop.items",), True),
        (("Replicate_Ignore_Table=shop.items",), False),
        (("Replicate_Ignore_Table=shop.items,shop.orders",), True),
        (("Replicate_Do_Table=shop.orders", "Replicate_Ignore_Table=shop.orders"), False),
        (("Replicate_Wild_Do_Table=shop.%",), False),
        (("Replicate_Wild_Do_Table=shop.o_ders",), False),
        (("Replicate_Wild_Do_Table=crm.%",), True),
        (("Replicate_Wild_Ignore_Table=shop.it%",), False),
        (("Replicate_Wild_Ignore_Table=%.ord%",), True),
        ((r"Replicate_Wild_Ignore_Table=shop.o\_ders",), False),
        (("Replicate_Wild_Do_Table=shop.%", "Replicate_Wild_Ignore_Table=shop.orders"), False),
        (("Replicate_Ignore_Table=shop.orders", "Replicate_Wild_Do_Table=shop.%"), True),
        (("Replicate_Rewrite_DB=(shop,shop2)",), True),
    ],
    ids=str,
)
def test_filters_leave_out_what_the_server_s_rules_say(filters: tuple[str, ...], left_out: bool) -> None:
    assert leaves_out(filters, ORDERS) is left_out


@for_each(
    ("executed", "source", "gaps"),
    [
        (f"{A}:1-10", f"{A}:1-10", ""),
        (f"{A}:1-8", f"{A}:1-10", ""),
        (f"{A}:1-5:7-8", f"{A}:1-10", f"{A}:6"),
        (f"{A}:1-5:9", f"{A}:1-10", f"{A}:6-8"),
        (f"{A}:1-5,{B}:2", f"{A}:1-10,{B}:1-3", f"{B}:1"),
        (f"{A}:1-5", f"{A}:1-5,{B}:1-3", ""),
        (f"{A}:1-5:tag:2", f"{A}:1-5:tag:1-2", f"{A}:tag:1"),
        ("", f"{A}:1-5", ""),
    ],
)
def test_a_gap_is_before_a_later_transaction_of_the_same_server(executed: str, source: str, gaps: str) -> None:
    assert str(gaps_of(GtidSet.parse(executed), GtidSet.parse(source))) == gaps
