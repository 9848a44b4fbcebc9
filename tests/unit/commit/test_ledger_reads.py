"""A job that reads its ledger several times reads each record's meaning once, and never another one's."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from kit.store_contract import END, START

from airflow_provider_mysql_cdc.cdc.commit import plan_parts
from airflow_provider_mysql_cdc.cdc.commit import topic_records as known_topics
from airflow_provider_mysql_cdc.cdc.commit.ledger_records import ReadBefore, build_ledger_state
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan, Marker, encode
from airflow_provider_mysql_cdc.cdc.commit.plan_parts import plan_records
from airflow_provider_mysql_cdc.cdc.commit.topic_records import RecordedTopic, topic_record
from airflow_provider_mysql_cdc.cdc.errors import DamagedRecordError
from airflow_provider_mysql_cdc.cdc.model import stored_record as stored
from airflow_provider_mysql_cdc.cdc.model.offset import ResumePosition

NAMES = [f"shop.database.orders_of_customers_in_region_{n:06}" for n in range(3_000)]
PLAN = BatchPlan(1, "drain", START, END, 1, dict.fromkeys(NAMES, 1), dict.fromkeys(NAMES, (0,)))


def ledger(plan: BatchPlan = PLAN) -> dict[str, bytes | None]:
    topics = (topic_record("ledger", name, RecordedTopic(1, f"id {n}", 1)) for n, name in enumerate(NAMES))
    return {**plan_records(plan), **{key.decode(): value for _, key, value, _ in topics}}


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    seen: list[bytes] = []
    loads = stored.orjson.loads

    def counted(text: Any) -> Any:
        seen.append(text)
        return loads(text)

    known_topics.read_topic_record.cache_clear()
    plan_parts._LAST_PLAN.clear()
    monkeypatch.setattr(stored, "orjson", SimpleNamespace(loads=counted))
    return seen


def test_what_is_read_again_is_parsed_once(parsed: list[bytes]) -> None:
    records = ledger()
    first = build_ledger_state(records)
    assert len(parsed) >= len(records)
    parsed.clear()
    again = build_ledger_state({key: value and bytes(bytearray(value)) for key, value in records.items()})
    assert again == first and again.plan == PLAN and again.topics[NAMES[7]].id == "id 7"
    assert len(parsed) <= 2


def test_a_record_that_has_changed_is_read_again() -> None:
    def marker(pos: int) -> dict[str, bytes | None]:
        reached = ResumePosition(END.with_position(END.file, pos, END.gtids))
        return {"writer/0": Marker(1, 0, START, END, reached).record("ledger")[2]}

    read_before = ReadBefore()
    first = build_ledger_state({**marker(500), "note": encode({"id": "a"})}, read_before=read_before)
    again = build_ledger_state({**marker(600), "note": encode({"id": "a"})}, read_before=read_before)
    assert [found.markers[0].reached.offset.pos for found in (first, again)] == [500, 600]
    assert again.other_records["note"] is first.other_records["note"]


def test_another_record_has_another_meaning(parsed: list[bytes]) -> None:
    build_ledger_state(ledger())
    other = replace(PLAN, writers=2, assignment=dict.fromkeys(NAMES, (1,)))
    records = ledger(other)
    _, key, value, _ = topic_record("ledger", NAMES[7], RecordedTopic(4, "another", 2))
    found = build_ledger_state({**records, key.decode(): value})
    assert found.plan == other and found.topics[NAMES[7]] == RecordedTopic(4, "another", 2)
    assert build_ledger_state(ledger()).plan == PLAN


def test_a_part_that_is_damaged_missing_or_another_plans_is_found_after_a_good_one(parsed: list[bytes]) -> None:
    records = ledger()
    build_ledger_state(records)
    other = plan_records(replace(PLAN, writers=2, assignment=dict.fromkeys(NAMES, (1,))))
    for bad in (encode({}), b"no JSON", None, other["plan/1"]):
        with pytest.raises(DamagedRecordError):
            build_ledger_state({**records, "plan/1": bad})
    with pytest.raises(DamagedRecordError, match=r"plan/1, offset 5.*not JSON"):
        build_ledger_state({**records, "plan/1": b"no JSON"}, None, lambda key: f"{key}, offset 5")
