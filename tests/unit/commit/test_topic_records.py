"""Topics as the last batch left them, compared with what Kafka has now."""

from __future__ import annotations

from dataclasses import replace

from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.commit.ledger_records import build_ledger_state
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.commit.topic_records import (
    RecordedTopic,
    topic_differences,
    topic_record,
    topics_changed_error,
)
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicInfo

PLACE = BinlogOffset("b.1", 4)
PLAN = BatchPlan(7, "drain", PLACE, PLACE, 2, partitions={"p.d.t": 3})
KNOWN = {"p.d.t": RecordedTopic(3, "one", 5)}


@for_each(
    ("found", "text"),
    [
        ({"p.d.t": TopicInfo(3, "one")}, ""),
        ({"p.d.t": TopicInfo(3, None)}, ""),
        ({}, "it was deleted"),
        ({"p.d.t": TopicInfo(3, "two")}, "it was deleted and created again"),
        ({"p.d.t": TopicInfo(4, "one")}, "it has 4 partitions instead of 3"),
    ],
)
def test_what_is_different_is_said_of_topics_that_are_needed(found: dict[str, TopicInfo], text: str) -> None:
    assert topic_differences(KNOWN, found, ["p.d.t"], PLAN) == ({"p.d.t": text} if text else {})
    assert topic_differences(KNOWN, found, [], PLAN) == {}
    born = {"p.d.t": replace(KNOWN["p.d.t"], epoch=7)}
    assert topic_differences(born, found, [], PLAN) == ({"p.d.t": text} if text else {})


def test_partitions_that_came_after_the_plan_are_found_without_a_record() -> None:
    assert topic_differences({}, {"p.d.t": TopicInfo(3, "one")}, ["p.d.t"], PLAN) == {}
    found = topic_differences({}, {"p.d.t": TopicInfo(4, "one")}, ["p.d.t"], PLAN)
    assert found == {"p.d.t": "it has 4 partitions instead of 3 since the batch was planned"}
    assert topic_differences({}, {"other": TopicInfo(4, "one")}, ["other"], PLAN) == {}


def test_records_are_read_back_and_forgotten() -> None:
    topic, key, value, _ = topic_record("ledger", "p.d.t", KNOWN["p.d.t"])
    assert (topic, key) == ("ledger", b"topic/p.d.t") and value is not None
    state = build_ledger_state({key.decode(): value})
    assert state.topics == KNOWN and not state.other_records and state.empty
    assert build_ledger_state({key.decode(): topic_record("ledger", "p.d.t", None)[2]}).topics == {}


def test_the_error_lists_topics_and_names_the_way_out() -> None:
    error = topics_changed_error({f"t{n}": "it was deleted" for n in range(12)}, PLAN, has_commits=True)
    assert "t9: it was deleted; and 2 more" in error.where and "a second time" in error.remedy and not error.can_retry
    assert "a second time" not in topics_changed_error({"t": "it was deleted"}, PLAN, has_commits=False).remedy
    snapshot = topics_changed_error({"t": "it was deleted"}, replace(PLAN, kind="snapshot"), has_commits=True)
    assert "offset=current" in snapshot.remedy and "again=true" in snapshot.remedy
