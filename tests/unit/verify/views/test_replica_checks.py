"""What a replica leaves out, and the gaps of what it has executed."""

from __future__ import annotations

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.binlog.filter_lists import FilterLists
from airflow_provider_mysql_cdc.cdc.model.gtid import GtidSet
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.verify.views.replica_checks import may_leave_out
from airflow_provider_mysql_cdc.cdc.verify.views.replica_views import gaps_of

pytestmark = pytest.mark.quick

A, B = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4e11fa47-71ca-11e1-9e33-c80aa9429562"


@for_each(
    ("texts", "table", "left_out"),
    [
        ({}, TableId("shop", "orders"), False),
        ({"do_db": "crm"}, TableId("shop", "orders"), True),
        ({"do_db": "crm,shop"}, TableId("shop", "orders"), False),
        ({"do_db": "crm,shop"}, TableId("crm,shop", "orders"), True),
        ({"wild_ignore_table": "shop.o%"}, TableId("shop", "orders"), True),
    ],
)
def test_a_replica_may_not_lack_rows_by_its_filters(texts: dict[str, str], table: TableId, left_out: bool) -> None:
    assert may_leave_out(FilterLists(texts), table) is left_out


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
