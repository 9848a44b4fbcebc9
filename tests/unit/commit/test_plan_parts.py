"""Plans of very many topics: bounded records, whole or refused, compared as a whole."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from kit.cases import for_each
from kit.memory_kafka import MemoryKafka
from kit.memory_ledger import MemoryLedger
from kit.store_contract import END, START
from pipelinelib.stand_ins import MemoryOffsetStore

from airflow_provider_mysql_cdc.cdc.commit import plan_parts
from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import PLAN_KEY
from airflow_provider_mysql_cdc.cdc.commit.ledger_records import build_ledger_state
from airflow_provider_mysql_cdc.cdc.commit.offset_store import StoredState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan, encode, topics_digest
from airflow_provider_mysql_cdc.cdc.commit.plan_parts import plan_records, stored_plan
from airflow_provider_mysql_cdc.cdc.commit.reconcile import reconcile
from airflow_provider_mysql_cdc.cdc.errors import DamagedRecordError, FencedError, StateError

LIMIT = 200_000


def plan_of(topics: int, writers: int = 8, **more: Any) -> BatchPlan:
    names = [f"shop.database_{n % 97}.orders_of_customers_in_region_{n:06}" for n in range(topics)]
    split = {name: tuple(p % writers for p in range(12)) for name in names[::50]}
    return BatchPlan(
        1,
        "drain",
        START,
        END,
        writers,
        {name: 12 for name in names},
        {name: split.get(name, (n % writers,) * 12) for n, name in enumerate(names)},
        **more,
    )


def read(records: dict[str, bytes | None]) -> BatchPlan:
    return build_ledger_state(records).plan_in_force()


@pytest.mark.parametrize("topics", [10_000, 100_000])
def test_no_record_of_a_plan_grows_with_the_number_of_topics(topics: int) -> None:
    plan = plan_of(topics)
    records = plan_records(plan)
    assert max(len(value or b"") for value in records.values()) < LIMIT
    assert len(records) < topics / 500
    again = read(records)
    assert again == plan and again.same_work(plan)
    state = StoredState(epoch=1, pending=plan)
    assert len(json.dumps(state.to_json())) < 5_000
    stored = StoredState.from_json(json.loads(json.dumps(state.to_json()))).pending
    assert stored is not None and stored.same_work(plan) and plan.same_work(stored)
    if topics > 10_000:
        return
    name = f"shop.database_{77 % 97}.orders_of_customers_in_region_000077"
    moved = replace(plan, assignment={**plan.assignment, name: (0,) * 12})
    grown = replace(plan, partitions={**plan.partitions, name: 13})
    for other in (moved, grown):
        assert not stored.same_work(other) and not again.same_work(other)


def test_the_digest_of_topics_does_not_depend_on_their_order() -> None:
    counts, owners = {"z": 2, "größe": 1}, {"z": (0, 1), "größe": (0,)}
    backwards = dict(reversed(counts.items())), dict(reversed(owners.items()))
    assert topics_digest(counts, owners) == topics_digest(*backwards) != topics_digest(counts, owners | {"z": (1, 0)})


def calls(work: Callable[[], object]) -> int:
    """Return how many functions are called."""
    count = 0

    def on_event(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(on_event)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def test_writing_reading_and_comparing_take_as_many_steps_as_there_are_topics() -> None:
    plans = [plan_of(n) for n in (2_000, 20_000)]
    read_back = [plan_records(plan) for plan in plans]
    for small, large in (
        [calls(lambda p=plan: plan_records(p)) for plan in plans],
        [calls(lambda r=records: read(r)) for records in read_back],
        [calls(lambda p=plan: p.same_work(replace(p))) for plan in plans],
    ):
        assert large < 12 * small + 200


def test_few_topics_stand_in_the_plan_itself() -> None:
    plan = plan_of(200)
    assert plan_records(plan) == {PLAN_KEY: encode(plan.to_json())} and stored_plan(plan) == plan
    # Parts of the plan before may be left behind (``JobLedger.plan_records``).
    assert read(plan_records(plan_of(10_000)) | plan_records(plan)) == plan


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every plan of more than a few topics one of parts."""
    monkeypatch.setattr(plan_parts, "PART_BYTES", 500)


def changed(value: bytes | None, **members: Any) -> bytes:
    return encode(json.loads(value or b"") | members)


DAMAGES: dict[str, Callable[[dict[str, bytes | None], dict[str, bytes | None]], dict[str, bytes | None]]] = {
    "missing": lambda mine, _: {k: v for k, v in mine.items() if k != "plan/1"},
    "deleted": lambda mine, _: mine | {"plan/2": None},
    "last missing": lambda mine, _: dict(list(mine.items())[:-1]),
    "of another plan": lambda mine, other: mine | {"plan/1": other["plan/1"]},
    "another head": lambda mine, other: mine | {PLAN_KEY: other[PLAN_KEY]},
    "swapped": lambda mine, _: mine | {"plan/1": mine["plan/2"], "plan/2": mine["plan/1"]},
    "one more": lambda mine, _: mine | {f"plan/{len(mine) - 1}": mine["plan/1"]},
    "no head": lambda mine, _: {k: v for k, v in mine.items() if k != PLAN_KEY},
    "changed": lambda mine, _: mine | {"plan/0": changed(mine["plan/0"], partitions={}, assignment={})},
    "of no form": lambda mine, _: mine | {"plan/0": changed(mine["plan/0"], assignment={"t": 1})},
    "a writer too many": lambda mine, _: mine | {"plan/0": changed(mine["plan/0"], assignment={"t": [8]})},
    "no number": lambda mine, _: mine | {"plan/x": encode({})},
    "a huge number": lambda mine, _: mine | {f"plan/{'9' * 30}": encode({})},
    "another digest": lambda mine, _: mine | {PLAN_KEY: changed(mine[PLAN_KEY], omitted_topics="0")},
    "fewer": lambda mine, _: mine | {PLAN_KEY: changed(mine[PLAN_KEY], parts=1)},
    "no count": lambda mine, _: mine | {PLAN_KEY: changed(mine[PLAN_KEY], parts=None)},
}


@for_each("damage", DAMAGES)
def test_parts_that_are_missing_or_foreign_are_refused(damage: str, narrow: None) -> None:
    mine, other = plan_records(plan_of(60)), plan_records(plan_of(70))
    assert len(mine) > 4
    with pytest.raises(DamagedRecordError):
        read(DAMAGES[damage](mine, other))


@pytest.fixture
def ledger() -> MemoryLedger:
    made = MemoryLedger(MemoryKafka(), "ledger", "shop")
    made.ensure()
    return made


def test_a_plan_takes_the_parts_of_the_one_before_away(narrow: None, ledger: MemoryLedger) -> None:
    assert ledger.begin(plan_of(60)).plan_in_force().same_work(plan_of(60))
    assert ledger.begin(plan_of(60)).plan_parts > 5, "another attempt at the same plan"
    reset = BatchPlan(2, "reset", END, END, 0, owner="somebody")
    state = ledger.begin(reset)
    assert state.plan_parts == 0 and state.plan_in_force().same_work(reset)
    larger = replace(plan_of(20), epoch=3, start=END)
    assert ledger.begin(larger).plan_in_force().assignment == larger.assignment


def test_a_planner_that_died_between_two_parts_is_fenced(narrow: None, ledger: MemoryLedger) -> None:
    ledger.begin(plan_of(60))
    dead = ledger.planner()
    for key, value in list(plan_records(replace(plan_of(40), epoch=2), 9).items())[:3]:
        dead.produce(ledger.topic, key.encode(), value, 0)
    state = ledger.read(fence_after_s=0)
    assert state is not None and state.plan_in_force().same_work(plan_of(60))


def test_a_plan_without_its_topics_is_never_put_in_force(narrow: None, ledger: MemoryLedger) -> None:
    with pytest.raises(StateError, match="without its topics"):
        ledger.begin(plan_of(60).without_topics())
    state = ledger.begin(plan_of(60))
    with pytest.raises(FencedError):
        state.require_plan(replace(state.plan_in_force(), assignment={}))


def stored(plan: BatchPlan, **more: Any) -> StoredState:
    store = MemoryOffsetStore()
    store.save(StoredState(**more).with_plan(plan), None)
    found = store.load()
    assert found is not None
    return found


def test_the_ledgers_plan_is_carried_on_whole(narrow: None, ledger: MemoryLedger) -> None:
    pending = stored(plan_of(60))
    assert pending.pending is not None and pending.pending.omitted_topics is not None and not pending.pending.partitions
    result = reconcile(pending, ledger.begin(plan_of(60)))
    assert result.action == "resume" and "another run" not in result.reason
    assert result.state.pending is not None and result.state.pending.partitions == plan_of(60).partitions
    again = MemoryOffsetStore()
    again.save(result.state, None)
    reloaded = again.load()
    assert reloaded is not None and not reconcile(reloaded, ledger.read()).changed
    other = replace(plan_of(60), assignment={t: (0,) * 12 for t in plan_of(60).assignment})
    assert "another run" in reconcile(stored(other), ledger.read()).reason


def test_a_plan_that_never_reached_the_ledger_is_assigned_again(narrow: None) -> None:
    state = stored(plan_of(60))
    assert reconcile(state, None).action == "resume"
    assert state.pending is not None
    dealt = state.pending.with_topics(plan_of(70).partitions, plan_of(70).assignment)
    assert dealt.omitted_topics is None and state.with_plan(dealt).pending == dealt
    with pytest.raises(StateError, match="cannot be started"):
        state.with_plan(replace(dealt, writers=3))
    whole = StoredState().with_plan(plan_of(60))
    with pytest.raises(StateError, match="cannot be started"):
        whole.with_plan(dealt)
