"""The ledger on a real Kafka."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

import pytest
from kit.store_contract import END, START, plan

from airflow_provider_mysql_cdc.cdc.commit.ledger import Ledger
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan, Marker, reset_plan
from airflow_provider_mysql_cdc.cdc.errors import (
    FencedError,
    OffsetConflictError,
    SinkConnectionError,
    SinkError,
)
from airflow_provider_mysql_cdc.cdc.model.offset import ResumePosition
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicSpec, ensure_topics, topic_config
from airflow_provider_mysql_cdc.cdc.sink.writer import TransactionalWriter


@pytest.fixture
def settings(stack: Any) -> dict[str, str]:
    return {"bootstrap.servers": stack.kafka}


@pytest.fixture
def ledger(settings: dict[str, str], unique: str) -> Ledger:
    made = Ledger(settings, f"ledger.{unique}", unique, replication=1)
    made.ensure()
    return made


def writer(settings: dict[str, str], name: str) -> TransactionalWriter:
    made = TransactionalWriter(settings | {"linger.ms": "0"}, name)
    made.init()
    return made


def marker(of: BatchPlan, index: int, events: int = 0, done: bool = True) -> Marker:
    return Marker(
        of.epoch, index, of.start, of.end, ResumePosition(of.end if done else of.start, events), done, {"t": events}
    )


def test_a_ledger_that_does_not_exist_reads_as_none_and_is_not_created(settings: dict[str, str], unique: str) -> None:
    ledger = Ledger(settings, f"ledger.{unique}", unique)
    assert ledger.read() is None
    assert not ledger.exists()


def test_ensure_creates_a_compacted_topic_of_one_partition_and_may_be_repeated(
    settings: dict[str, str], ledger: Ledger
) -> None:
    ledger.ensure()
    config = topic_config(make_admin(settings), ledger.topic)
    assert config is not None and config["cleanup.policy"] == "compact"
    state = ledger.read()
    assert state is not None and state.empty and state.topic_id


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (TopicSpec(3, 1, {"cleanup.policy": "compact"}), "one partition"),
        (TopicSpec(1, 1, {"cleanup.policy": "delete"}), "lose records"),
        (TopicSpec(1, 1, {"cleanup.policy": "compact,delete"}), "lose records"),
    ],
)
def test_a_topic_that_cannot_serve_as_a_ledger_is_refused(
    settings: dict[str, str], unique: str, spec: TopicSpec, why: str
) -> None:
    ensure_topics(make_admin(settings), {f"ledger.{unique}": spec})
    with pytest.raises(SinkError, match=why):
        Ledger(settings, f"ledger.{unique}", unique).ensure()


def test_of_two_runs_that_plan_at_once_exactly_one_wins(settings: dict[str, str], ledger: Ledger, unique: str) -> None:
    plans = [plan(owner="a"), plan(end=END.with_position("binlog.000011", 4), owner="b")]
    barrier, wins, losses = threading.Barrier(2), [], []

    def run(mine: BatchPlan) -> None:
        own = Ledger(settings, ledger.topic, unique)
        barrier.wait()
        try:
            wins.append(own.begin(mine).plan)
        except (OffsetConflictError, FencedError) as error:
            losses.append(error)

    threads = [threading.Thread(target=run, args=(p,)) for p in plans]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    state = ledger.read()
    assert state is not None and (len(wins), len(losses)) == (1, 1), losses
    assert state.plan == wins[0]
    assert losses[0].can_retry


def test_a_new_plan_fences_a_writer_of_a_larger_w_that_is_still_alive(
    settings: dict[str, str], ledger: Ledger, unique: str
) -> None:
    wide = plan(writers=4)
    ledger.begin(wide)
    zombie = writer(settings, f"{unique}.3")
    zombie.produce(*marker(wide, 3).record(ledger.topic)[:3], 0)
    state = ledger.begin(replace(reset_plan(2, START, "a person"), writers=0))
    with pytest.raises(FencedError):
        zombie.commit()
    zombie.close()
    assert state.marker(3, 1) is None
    # Had it started later, it would have found that its plan is out of force.
    with pytest.raises(FencedError):
        state.require_plan(wide)


def hang(settings: dict[str, str], ledger: Ledger, unique: str, of: BatchPlan) -> TransactionalWriter:
    """Leave a transaction open in the ledger, and commit a marker behind it."""
    dead = writer(settings, f"{unique}.1")
    dead.produce(*marker(of, 1).record(ledger.topic)[:3], 0)
    dead._kafka.producer.flush(10)
    with writer(settings, f"{unique}.0") as w:
        w.commit([marker(of, 0, 77).record(ledger.topic)])
    return dead


def test_an_open_transaction_of_a_dead_writer_is_named_and_never_read_past(
    settings: dict[str, str], ledger: Ledger, unique: str
) -> None:
    ledger.begin(plan())
    dead = hang(settings, ledger, unique, plan())
    with pytest.raises(SinkConnectionError) as caught:
        ledger.read(timeout_s=1.5)
    for suspect in (f"{unique}.0", f"{unique}.1", f"{unique}.plan"):
        assert suspect in caught.value.why
    assert caught.value.can_retry and "fence" in caught.value.remedy
    dead.close()


def test_reading_may_fence_the_dead_writer_and_then_sees_the_records_after_it(
    settings: dict[str, str], ledger: Ledger, unique: str
) -> None:
    ledger.begin(plan())
    dead = hang(settings, ledger, unique, plan())
    state = ledger.read(fence_after_s=1.0)
    assert state is not None
    assert state.marker(0, 1) == marker(plan(), 0, 77)
    assert state.marker(1, 1) is None
    with pytest.raises(FencedError):
        dead.commit()
    dead.close()


def test_reading_waits_for_a_live_writer_that_is_about_to_commit(
    settings: dict[str, str], ledger: Ledger, unique: str
) -> None:
    ledger.begin(plan())
    live = hang(settings, ledger, unique, plan())
    timer = threading.Timer(1.0, live.commit)
    timer.start()
    state = ledger.read(timeout_s=20)
    timer.join()
    live.close()
    assert state is not None and state.complete()


def test_reading_is_fast_after_thousands_of_commits(settings: dict[str, str], ledger: Ledger, unique: str) -> None:
    ledger.begin(plan())
    with writer(settings, f"{unique}.0") as w:
        for _ in range(20):
            for n in range(1000):
                w.produce(*marker(plan(), 0, n).record(ledger.topic)[:3], 0)
            w.commit()
    began = time.process_time()
    state = ledger.read()
    assert state is not None and state.marker(0, 1) == marker(plan(), 0, 999)
    assert time.process_time() - began < 5
