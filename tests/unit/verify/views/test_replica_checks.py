"""What a replica leaves out."""

from __future__ import annotations

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.binlog.filter_lists import FilterLists
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.verify.views.replica_views import may_leave_out

pytestmark = pytest.mark.quick


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
