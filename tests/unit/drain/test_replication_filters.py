"""Replication filters: whether one leaves changes of a table out."""

from __future__ import annotations

from typing import Any

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.drain import promoted_server
from airflow_provider_mysql_cdc.cdc.drain.promoted_server import ReplicationFilters
from airflow_provider_mysql_cdc.cdc.errors import SourceError
from airflow_provider_mysql_cdc.cdc.model.table import TableId

TABLE = TableId("shop", "orders")


@for_each(
    ("rules", "left_out"),
    [
        ([], False),
        ([("REPLICATE_DO_DB", "shop")], False),
        ([("REPLICATE_DO_DB", "other,shop")], False),
        ([("REPLICATE_DO_DB", "other")], True),
        ([("REPLICATE_IGNORE_DB", "other")], False),
        ([("REPLICATE_IGNORE_DB", "other,shop")], True),
        ([("REPLICATE_DO_TABLE", "shop.orders")], False),
        ([("REPLICATE_DO_TABLE", "shop.others")], True),
        ([("REPLICATE_DO_TABLE", "shop.others"), ("REPLICATE_WILD_DO_TABLE", "shop.%")], False),
        ([("REPLICATE_IGNORE_TABLE", "shop.orders")], True),
        ([("REPLICATE_IGNORE_TABLE", "shop.order")], False),
        ([("REPLICATE_WILD_IGNORE_TABLE", "sh_p.ord%")], True),
        ([("REPLICATE_WILD_IGNORE_TABLE", r"sh\_p.%")], False),
        ([("REPLICATE_WILD_IGNORE_TABLE", "mysql.rds%")], False),
        ([("REPLICATE_REWRITE_DB", "(shop,store)")], True),
        ([("REPLICATE_REWRITE_DB", "(a,b)")], False),
        ([("REPLICATE_OF_LATER_VERSIONS", "x")], True),
    ],
)
def test_what_a_filter_leaves_out(rules: list[tuple[str, str]], left_out: bool) -> None:
    assert ReplicationFilters(tuple(rules)).leaves_out(TABLE) is left_out


def test_a_filter_that_was_set_to_nothing_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server shows it with the rule of the row before it; a server without the tables has no filters to show."""
    shown = [("REPLICATE_DO_DB", ""), ("REPLICATE_IGNORE_DB", "other"), ("REPLICATE_DO_TABLE", "other")]

    def fetch_all(_: Any, sql: str) -> list[tuple[str, str]]:
        if "global" in sql:
            return shown
        raise SourceError("MySQL refused a statement", where="db:3306")

    monkeypatch.setattr(promoted_server, "fetch_all", fetch_all)
    assert ReplicationFilters.read(None).rules == (("REPLICATE_IGNORE_DB", "other"),)
