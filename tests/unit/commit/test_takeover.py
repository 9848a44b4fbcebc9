"""Putting plans in force and joining them, over the in-memory twins."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from kit.memory_kafka import MemoryKafka, MemoryWriter
from kit.memory_ledger import MemoryLedger
from kit.store_contract import END, START, plan

from airflow_provider_mysql_cdc.cdc.commit import ledger_state as known_ledger
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import Marker, encode, reset_plan
from airflow_provider_mysql_cdc.cdc.commit.takeover import begin_epoch, join_plan
from airflow_provider_mysql_cdc.cdc.errors import FencedError, LedgerMissingError, OffsetConflictError
from airflow_provider_mysql_cdc.cdc.faults import FaultRaised
from airflow_provider_mysql_cdc.cdc.model.offset import ResumePosition

TOPIC = "ledger.p"


@pytest.fixture
def kafka() -> MemoryKafka:
    return MemoryKafka()


@pytest.fixture
def ledger(kafka: MemoryKafka) -> MemoryLedger:
    made = MemoryLedger(kafka, TOPIC, "p")
    made.ensure()
    return made


def writer(kafka: MemoryKafka, index: int) -> MemoryWriter:
    return MemoryWriter(kafka, f"p.{index}")


def test_each_attempt_gets_an_id_although_the_plan_is_the_same(ledger: MemoryLedger) -> None:
    first, second = (ledger.begin(plan()).plan_in_force() for _ in range(2))
    assert first == second and first.attempt and second.attempt and first.attempt != second.attempt


def test_a_late_driver_does_not_bring_its_own_pins(ledger: MemoryLedger) -> None:
    ledger.begin(plan(pins={"a": "=1"}))
    assert ledger.begin(plan(pins={"a": "=2"})).plan_in_force().pins == {"a": "=1"}


def test_a_plan_has_the_highest_timestamp_of_the_batches_before_it_and_keeps_it(
    ledger: MemoryLedger, kafka: MemoryKafka
) -> None:
    first = ledger.begin(plan(writers=2)).plan_in_force()
    assert first.commit_ts == 0
    for index, commit_ts in ((0, 70), (1, 90)):
        sink = writer(kafka, index)
        join_plan(ledger, first, sink, index)
        marker = Marker(1, index, START, END, ResumePosition(END), done=index == 0, commit_ts=commit_ts)
        sink.commit([marker.record(TOPIC)])
    # Another attempt begins with the same timestamp, because it reads the same transactions again.
    assert ledger.begin(plan(writers=2)).plan_in_force().commit_ts == 0
    sink = writer(kafka, 1)
    join_plan(ledger, ledger.begin(plan(writers=2)).plan_in_force(), sink, 1)
    sink.commit([Marker(1, 1, START, END, ResumePosition(END), done=True, commit_ts=90).record(TOPIC)])
    second = plan(2, END, END.with_position(END.file, 900, END.gtids), writers=1)
    assert ledger.begin(second).plan_in_force().commit_ts == 90
    assert ledger.begin(second).plan_in_force().commit_ts == 90
    assert ledger.begin(reset_plan(3, START, "a person")).plan_in_force().commit_ts == 90


def test_a_writer_of_an_older_attempt_does_not_fence_the_one_at_work(ledger: MemoryLedger, kafka: MemoryKafka) -> None:
    older = ledger.begin(plan()).plan_in_force()
    newer = ledger.begin(plan()).plan_in_force()
    live, late = writer(kafka, 0), writer(kafka, 0)
    join_plan(ledger, newer, live, 0)
    # Its marker is open: whatever stands behind it is hidden, and the plan in front of it is not.
    live.produce(*Marker(1, 0, START, START, ResumePosition(START, 0)).record(TOPIC)[:3], 0)
    with pytest.raises(FencedError):
        join_plan(ledger, older, late, 0)
    live.commit()
    assert 0 in (ledger.read() or LedgerState()).markers


def test_a_reset_that_dies_before_it_fences_leaves_the_number_of_writers_behind(
    ledger: MemoryLedger, kafka: MemoryKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = ledger.begin(plan(writers=4)).plan_in_force()
    zombie = writer(kafka, 3)
    join_plan(ledger, wide, zombie, 3)
    zombie.produce("t", None, b"a row", 0)
    fired = tmp_path / "fired"
    monkeypatch.setenv("MYSQL_CDC_FAULT", json.dumps({"point": "takeover.after_plan", "fired": str(fired)}))
    with pytest.raises(FaultRaised):
        ledger.begin(reset_plan(2, START, "a person"))
    assert fired.exists()
    ledger.begin(plan(3, START, writers=1))
    with pytest.raises(FencedError):
        zombie.commit()
    assert kafka.committed("t") == []


def test_writers_that_live_on_are_not_fenced(ledger: MemoryLedger, kafka: MemoryKafka) -> None:
    first = ledger.begin(plan(writers=1)).plan_in_force()
    live = writer(kafka, 0)
    join_plan(ledger, first, live, 0)
    live.commit([Marker(1, 0, START, END, ResumePosition(END), done=True).record(TOPIC)])
    end = END.with_position(END.file, 900, END.gtids)
    second = ledger.begin(plan(2, END, end, writers=1), after=first).plan_in_force()
    live.commit([Marker(2, 0, END, end, ResumePosition(end), done=True).record(TOPIC)])
    assert second.attempt != first.attempt and (ledger.read() or LedgerState()).complete()


def test_writers_are_fenced_where_another_attempt_has_begun_meanwhile(ledger: MemoryLedger, kafka: MemoryKafka) -> None:
    """Its writers may be at work; and so may those of an attempt whose plan nobody put in force."""
    first = ledger.begin(plan(writers=1)).plan_in_force()
    ledger.begin(plan(writers=1))
    live = writer(kafka, 0)
    live.init()
    live.commit([Marker(1, 0, START, END, ResumePosition(END), done=True).record(TOPIC)])
    ledger.begin(plan(2, END, END.with_position(END.file, 900, END.gtids), writers=1), after=first)
    with pytest.raises(FencedError):
        live.commit([Marker(2, 0, START, END, ResumePosition(END)).record(TOPIC)])


def test_writers_are_fenced_where_the_driver_has_fenced_them_to_read_the_ledger(
    ledger: MemoryLedger, kafka: MemoryKafka
) -> None:
    """Between that fence and the plan another copy of a writer may have taken the id over for the batch before."""
    first = ledger.begin(plan(writers=2)).plan_in_force()
    live = [writer(kafka, index) for index in range(2)]
    for index, one in enumerate(live):
        join_plan(ledger, first, one, index)
        one.commit([Marker(1, index, START, END, ResumePosition(END), done=True).record(TOPIC)])
    live[1].produce(TOPIC, b"hides what comes after", encode({}), 0)
    fenced: list[int] = []
    following = plan(2, END, END.with_position(END.file, 900, END.gtids), writers=2)
    begin_epoch(ledger, ledger.planner(), following, fenced.extend, after=first)
    assert ledger.fences == 2, "when the plan was put in force, and when the ledger was read"
    assert fenced == [0, 1]


@pytest.mark.parametrize("made_anew", [False, True])
def test_a_driver_that_goes_on_compares_its_plan_with_the_ledger_as_it_left_it(
    ledger: MemoryLedger, kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch, made_anew: bool
) -> None:
    """It reads the ledger once a batch less, unless the topic is another one meanwhile."""
    first = ledger.begin(plan(writers=1)).plan_in_force()
    live = writer(kafka, 0)
    join_plan(ledger, first, live, 0)
    live.commit([Marker(1, 0, START, END, ResumePosition(END), done=True).record(TOPIC)])
    latest, planner, reads = ledger.read(), ledger.planner(), list[bool]()
    read = ledger.read
    monkeypatch.setattr(ledger, "read", lambda *a, **k: reads.append(True) or read(*a, **k))
    monkeypatch.setattr("airflow_provider_mysql_cdc.cdc.commit.ledger_state.MISSING_TIMEOUT_S", 0.0)
    end = END.with_position(END.file, 900, END.gtids)
    if made_anew:
        kafka.delete(TOPIC)
        kafka.create(TOPIC)
        with pytest.raises(LedgerMissingError):
            begin_epoch(ledger, planner, plan(2, END, end, writers=1), list, after=first, latest=latest)
        return
    state = begin_epoch(ledger, planner, plan(2, END, end, writers=1), list, after=first, latest=latest)
    assert (state.plan_in_force().epoch, reads) == (2, [True])


def test_a_ledger_of_before_another_attempt_is_not_believed(ledger: MemoryLedger) -> None:
    first = ledger.begin(plan(writers=1)).plan_in_force()
    end = END.with_position(END.file, 900, END.gtids)
    done = {0: Marker(7, 0, END, end, ResumePosition(end), done=True)}
    latest = replace(ledger.read() or LedgerState(), plan=plan(7, END, end, writers=1), markers=done)
    assert latest.complete()
    with pytest.raises(OffsetConflictError):
        begin_epoch(ledger, ledger.planner(), plan(8, end, writers=1), list, after=first, latest=latest)


def test_a_driver_that_was_taken_over_between_its_plan_and_its_fences_finds_out(ledger: MemoryLedger) -> None:
    with pytest.raises(FencedError):
        begin_epoch(ledger, ledger.planner(), plan(), lambda _: ledger.begin(plan()))


@pytest.mark.parametrize("hidden", [False, True])
def test_a_writer_that_was_taken_over_between_its_look_and_its_fence_finds_out(
    ledger: MemoryLedger, kafka: MemoryKafka, hidden: bool
) -> None:
    """Also while a transaction of the newer attempt hides the end of the ledger."""
    older = ledger.begin(plan()).plan_in_force()

    class Late(MemoryWriter):
        def init(self, timeout_s: float = 60.0) -> None:
            newer = ledger.begin(plan()).plan_in_force()
            if hidden:
                other = writer(kafka, 1)
                join_plan(ledger, newer, other, 1)
                other.produce(*Marker(1, 1, START, END, ResumePosition(START, 0)).record(TOPIC)[:3], 0)
            super().init()

    with pytest.raises(FencedError):
        join_plan(ledger, older, Late(kafka, "p.0"), 0)


def test_a_plan_begins_where_the_one_before_it_ended_and_when_it_did(
    ledger: MemoryLedger, kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_ledger, "MISSING_TIMEOUT_S", 0)
    with pytest.raises(LedgerMissingError):
        ledger.begin(plan(2))
    first = ledger.begin(plan(writers=1)).plan_in_force()
    following = plan(2, END, END.with_position(END.file, 900))
    with pytest.raises(OffsetConflictError, match="epoch 2 cannot be started"):
        ledger.begin(following)
    with pytest.raises(OffsetConflictError, match="epoch 2 cannot be started"):
        ledger.begin(replace(following, kind="snapshot"))
    only = writer(kafka, 0)
    join_plan(ledger, first, only, 0)
    only.commit([Marker(1, 0, START, END, ResumePosition(END, 0), done=True).record(TOPIC)])
    late = END.with_position(END.file, 900)
    for other in (
        plan(2, START, late),
        plan(2, END.with_position(END.file, 156), late),
        plan(3, END, late),
        plan(1, END, late),
    ):
        with pytest.raises(OffsetConflictError, match="cannot be started"):
            ledger.begin(other)
    assert ledger.begin(following).plan_in_force().epoch == 2


def test_a_new_plan_has_pins_of_its_own(ledger: MemoryLedger, kafka: MemoryKafka) -> None:
    first = ledger.begin(plan(writers=1, pins={"a": "=1"})).plan_in_force()
    only = writer(kafka, 0)
    join_plan(ledger, first, only, 0)
    only.commit([Marker(1, 0, START, END, ResumePosition(END, 0), done=True).record(TOPIC)])
    following = plan(2, END, END.with_position(END.file, 900), pins={"a": "=2"})
    assert ledger.begin(following).plan_in_force().pins == {"a": "=2"}


def test_a_person_may_go_on_from_anywhere_but_not_under_an_epoch_that_was_used(ledger: MemoryLedger) -> None:
    assert ledger.begin(reset_plan(7, START, "after a lost ledger")).complete()
    ledger.begin(plan(8, START))
    with pytest.raises(OffsetConflictError, match="epoch 8 cannot be started"):
        ledger.begin(reset_plan(8, END, "a person"))
    assert ledger.begin(reset_plan(9, END, "a person")).end() == END
