from typing import Any

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.verify.compare.judged_kinds import TopicFacts, deletes_old_records, unjudged_kinds
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import DifferenceKind as Kind

pytestmark = pytest.mark.quick

TABLE, WHOLE = TableId("shop", "orders"), TopicFacts(0, deletes=True)
PROPERTIES = {
    "topic.prefix": "s",
    "database.hostname": "h",
    "database.user": "u",
    "database.password": "p",
    "kafka.bootstrap.servers": "k:9092",
}


def unjudged(topic: TopicFacts = WHOLE, **more: str) -> set[Kind]:
    cfg = ConnectorConfig.from_properties(PROPERTIES | {name.replace("_", "."): value for name, value in more.items()})
    return set(unjudged_kinds(cfg, TABLE, topic))


def test_a_whole_stream_is_judged_in_full() -> None:
    assert unjudged() == set()


@for_each(
    ("more", "kinds"),
    [
        ({"snapshot_mode": "no_data"}, {Kind.MISSING}),
        ({"snapshot_include_collection_list": "shop.other"}, {Kind.MISSING}),
        ({"snapshot_select_statement_overrides": "shop.orders",
          "snapshot_select_statement_overrides_shop_orders": "SELECT * FROM shop.orders WHERE id > 5"}, {Kind.MISSING}),
        ({"skipped_operations": "u,d,t"}, {Kind.DIFFERING, Kind.GHOST}),
        ({"skipped_operations": "c"}, {Kind.MISSING}),
    ],
)  # fmt: skip
def test_what_the_configuration_leaves_out_is_not_judged(more: dict[str, str], kinds: set[Kind]) -> None:
    assert unjudged(**more) == kinds


def test_rows_whose_events_retention_may_have_deleted_are_not_missing() -> None:
    assert unjudged(TopicFacts(7, deletes=True)) == {Kind.MISSING}
    assert unjudged(TopicFacts(7, deletes=False)) == set()


@for_each(
    ("config", "deletes"),
    [
        ({}, True),
        ({"cleanup.policy": "delete", "retention.ms": "604800000", "retention.bytes": "-1"}, True),
        ({"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "1000"}, True),
        ({"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}, False),
        ({"cleanup.policy": "compact,delete", "retention.ms": "1", "retention.bytes": "-1"}, True),
        ({"cleanup.policy": "compact", "retention.ms": "604800000", "retention.bytes": "-1"}, False),
    ],
)
def test_settings_say_whether_the_brokers_delete(config: dict[str, Any], deletes: bool) -> None:
    assert deletes_old_records(config) is deletes


def test_missing_rows_are_not_judged_where_compaction_keeps_one_of_several() -> None:
    assert unjudged(TopicFacts(0, deletes=False, shares_keys=True)) == {Kind.MISSING}
