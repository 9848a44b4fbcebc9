from __future__ import annotations

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.verify.group_queue import choose_tables

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
