"""The replication filters of a promoted server: which of them count, and how they are read."""

from __future__ import annotations

from typing import Any

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.binlog.binlog_coverage import ReplicaChannel
from airflow_provider_mysql_cdc.cdc.binlog.filter_lists import FilterLists
from airflow_provider_mysql_cdc.cdc.drain.failover import replication_filters
from airflow_provider_mysql_cdc.cdc.drain.failover.replication_filters import ReplicationFilters
from airflow_provider_mysql_cdc.cdc.errors import SourceError, SourcePrivilegeError
from airflow_provider_mysql_cdc.cdc.model.table import TableId

pytestmark = pytest.mark.quick

ORDERS = TableId("shop", "orders")
BY_STATEMENT, BY_OPTION = "CHANGE_REPLICATION_FILTER", "STARTUP_OPTIONS"
FORMER = "aaaaaaaa-0000-0000-0000-000000000001"


def read(
    patch: pytest.MonkeyPatch,
    shown: list[tuple[str | None, str, str, str]],
    channels: tuple[ReplicaChannel, ...] = (),
    *,
    names_with_commas: bool = False,
) -> ReplicationFilters:
    """Return the filters that a server shows, in its rows' order: channel (None for those to come), name, rule, by."""

    def fetch_all(_: Any, sql: str) -> list[tuple[Any, ...]]:
        if "information_schema" in sql:
            return [(1,)] if names_with_commas else []
        return [row for row in shown if (row[0] is None) == ("global" in sql)]

    patch.setattr(replication_filters, "fetch_all", fetch_all)
    patch.setattr(replication_filters, "ignores_case", lambda _: False)
    patch.setattr(replication_filters, "replica_channels", lambda _: iter(channels))
    return ReplicationFilters.read(None, FORMER)


@for_each(
    ("configured_by", "names_with_commas", "left_out"),
    [(BY_STATEMENT, False, False), (BY_STATEMENT, True, True), (BY_OPTION, False, True)],
)
def test_a_statement_separates_entries_and_an_option_does_not(
    monkeypatch: pytest.MonkeyPatch, configured_by: str, names_with_commas: bool, left_out: bool
) -> None:
    """``replicate_do_db=shop,crm`` lets the one database through whose name that is."""
    shown = [(None, "REPLICATE_DO_DB", "shop,crm", configured_by)]
    filters = read(monkeypatch, shown, names_with_commas=names_with_commas)
    assert filters.leave_out(ORDERS) is left_out
    assert filters.leave_out(TableId("shop,crm", "t")), "it may be one name, or two"


def test_a_filter_that_was_set_to_nothing_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server shows it with the rule of the row before it, also of another channel."""
    shown = [
        (None, "REPLICATE_DO_DB", "", BY_STATEMENT),
        (None, "REPLICATE_IGNORE_DB", "other", BY_STATEMENT),
        (None, "REPLICATE_DO_TABLE", "other", BY_STATEMENT),
        ("east", "REPLICATE_IGNORE_TABLE", "shop.items", BY_STATEMENT),
        ("east", "REPLICATE_WILD_DO_TABLE", "shop.items", BY_STATEMENT),
        ("east", "REPLICATE_REWRITE_DB", "shop.items", BY_STATEMENT),
        ("west", "REPLICATE_DO_DB", "shop.items", BY_STATEMENT),
    ]
    filters = read(monkeypatch, shown)
    assert [dict(lists.texts) for lists in filters.lists] == [{"ignore_db": "other"}, {"ignore_table": "shop.items"}]
    assert not filters.leave_out(ORDERS) and filters.leave_out(TableId("shop", "items"))


@for_each(
    ("east_from", "west_from", "left_out"),
    [(FORMER, "other", False), ("other", FORMER, True), ("other", "others", True), (FORMER.upper(), "other", False)],
)
def test_of_several_channels_that_of_the_former_server_counts(
    monkeypatch: pytest.MonkeyPatch, east_from: str, west_from: str, left_out: bool
) -> None:
    shown = [
        ("east", "REPLICATE_DO_DB", "shop", BY_STATEMENT),
        ("west", "REPLICATE_DO_DB", "crm", BY_STATEMENT),
    ]
    channels = tuple(
        ReplicaChannel(name, "db:3306", applies=True, source_uuid=uuid)
        for name, uuid in (("east", east_from), ("west", west_from))
    )
    assert read(monkeypatch, shown, channels).leave_out(ORDERS) is left_out


def test_where_there_are_no_such_tables_the_channels_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    channel = ReplicaChannel("", "db:3306", applies=True, lists=FilterLists({"ignore_db": "shop"}))
    read(monkeypatch, [], (channel,))

    def refuse(error: SourceError) -> ReplicationFilters:
        def fetch_all(*_: Any) -> list[Any]:
            raise error

        monkeypatch.setattr(replication_filters, "fetch_all", fetch_all)
        return ReplicationFilters.read(None, FORMER)

    assert refuse(SourceError("refused", why="MySQL error 1146: no such table")).leave_out(ORDERS)
    with pytest.raises(SourcePrivilegeError):
        refuse(SourcePrivilegeError("denied", why="MySQL error 1142: SELECT command denied"))
