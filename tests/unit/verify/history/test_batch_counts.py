"""What the ledger counts of batches, against what topics have."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from kit.store_contract import plan

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import PLAN_KEY, writer_key
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan, Marker, encode
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, ResumePosition
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord
from airflow_provider_mysql_cdc.cdc.verify.history.batch_counts import (
    CLOCK_SKEW_MS,
    CountedPart,
    KeptBatch,
    KeptBatches,
    PartCounter,
    PartCounts,
    kept_batches,
    lost_records,
)
from airflow_provider_mysql_cdc.cdc.verify.read.event_record import EventRecord, position_order
from airflow_provider_mysql_cdc.cdc.verify.read.row_records import REPAIR_HEADER

pytestmark = pytest.mark.quick

NOW = 1_700_000_000_000
TOPIC = "p.shop.t"


def offset(pos: int, file: str = "binlog.000007") -> BinlogOffset:
    return BinlogOffset(file, pos)


def batch_plan(epoch: int, start: int, end: int, **more: Any) -> BatchPlan:
    return replace(
        plan(writers=2), epoch=epoch, start=offset(start), end=offset(end), created_ms=NOW, **more
    )  # fmt: skip


def marker(of: BatchPlan, writer: int, count: int, *, done: bool = True, **more: Any) -> Marker:
    reached = ResumePosition(of.end)
    return Marker(of.epoch, writer, of.start, of.end, reached, done, {TOPIC: count}, **more)


class Ledger:
    """Hold all versions of the ledger's records."""

    def __init__(self) -> None:
        self.records: list[TopicRecord] = []

    def add(self, *values: BatchPlan | Marker) -> Ledger:
        for value in values:
            key = PLAN_KEY if isinstance(value, BatchPlan) else writer_key(value.writer)
            number = len(self.records)
            self.records.append(TopicRecord(0, number, key.encode(), encode(value.to_json()), NOW + number))
        return self

    def batches(self) -> list[tuple[int, int]]:
        """Return epoch and count of each batch."""
        return [(batch.epoch, batch.counts[TOPIC]) for batch in kept_batches(self.records)]


def test_batches_of_which_all_markers_are_left_are_kept() -> None:
    first, second, third = batch_plan(1, 100, 200), batch_plan(2, 200, 300), batch_plan(3, 300, 400)
    ledger = Ledger().add(first, marker(first, 0, 1, done=False), marker(first, 0, 3), marker(first, 1, 4))
    ledger.add(second, marker(second, 0, 5)).add(third, marker(third, 1, 7), marker(third, 0, 1))
    ledger.records.append(TopicRecord(0, 99, b"plan", None))
    ledger.records.append(TopicRecord(0, 99, b"writer/7", b"damaged"))
    assert ledger.batches() == [(1, 7), (3, 8)]
    (batch, _) = kept_batches(ledger.records)
    places = position_order(7, 100), position_order(7, 200)
    assert batch == KeptBatch(1, *places, NOW, NOW + 3, {TOPIC: 7})


def test_batches_whose_events_may_have_other_places_are_left_out() -> None:
    first = batch_plan(1, 100, 200)
    whole = Ledger().add(first, marker(first, 0, 1), marker(first, 1, 1))
    assert whole.batches() == [(1, 2)]
    prepared = [json.loads(r.value or b"") | {"prepared": [{}]} for r in whole.records]
    for number, value in enumerate(prepared):
        records = [*whole.records]
        records[number] = replace(records[number], value=encode(value))
        assert kept_batches(records) == ()
    snapshot = batch_plan(1, 100, 200, kind="snapshot")
    assert Ledger().add(snapshot, marker(snapshot, 0, 1), marker(snapshot, 1, 1)).batches() == []
    searched = Ledger().add(first, marker(first, 0, 1), marker(first, 1, 1, xa_searched=True))
    assert searched.batches() == []
    moved = replace(first, continued_from=offset(900))
    assert Ledger().add(moved, marker(moved, 0, 1), marker(moved, 1, 1)).batches() == []
    # The stream was moved back, or positions began anew on another server.
    again = batch_plan(2, 150, 300)
    assert whole.add(again, marker(again, 0, 1), marker(again, 1, 1)).batches() == []
    later = batch_plan(3, 300, 400)
    assert whole.add(later, marker(later, 0, 1), marker(later, 1, 1)).batches() == [(3, 2)]


BATCHES = (
    KeptBatch(1, position_order(7, 100), position_order(7, 200), NOW, NOW + 9, {TOPIC: 5}),
    KeptBatch(2, position_order(7, 300), position_order(8, 50), NOW, NOW + 9, {TOPIC: 2}),
)


def test_an_event_is_of_the_batch_that_has_read_its_place_at_that_time() -> None:
    known = KeptBatches(BATCHES)

    def epoch(file: int, pos: int, at: int = NOW) -> int | None:
        batch = known.batch_of(position_order(file, pos), at)
        return None if batch is None else batch.epoch

    assert [epoch(7, pos) for pos in (99, 100, 199, 200, 299, 300, 9999)] == [None, 1, 1, None, None, 2, 2]
    assert [epoch(8, 49), epoch(8, 50), epoch(6, 150)] == [2, None, None]
    assert [epoch(7, 150, NOW - CLOCK_SKEW_MS), epoch(7, 150, NOW - CLOCK_SKEW_MS - 1)] == [1, None]
    assert [epoch(7, 150, NOW + 9 + CLOCK_SKEW_MS), epoch(7, 150, NOW + 10 + CLOCK_SKEW_MS)] == [1, None]


@pytest.mark.parametrize(("tombstones", "counts"), [(True, {1: 5, 2: 1}), (False, {1: 4, 2: 1})])
def test_changes_are_counted_and_a_delete_stands_for_its_tombstone(tombstones: bool, counts: dict[int, int]) -> None:
    counter = PartCounter(KeptBatches(BATCHES), tombstones=tombstones)
    for op, pos, headers in (
        ("c", 100, ()), ("u", 150, ()), ("d", 160, ()), ("", 0, ()), ("t", 170, ()), ("c", 300, ()), ("c", 250, ()),
        ("r", 150, ()), ("r", 150, ((REPAIR_HEADER, b"run"),)), ("d", 150, ((REPAIR_HEADER, b"run"),)),
    ):  # fmt: skip
        source = {"file": "binlog.000007", "pos": pos}
        counter.add(EventRecord(op, None, None, None, source), TopicRecord(0, 0, None, None, NOW, headers))
    assert counter.counts == counts


def part(counts: dict[int, int], start: int = 0, first_ms: int = NOW - 5, partition: int = 0) -> CountedPart:
    return CountedPart(TOPIC, partition, start, first_ms, counts)


def lost(*parts: CountedPart) -> list[tuple[int, int, int]]:
    return [(each.batch.epoch, each.found, each.expected) for each in lost_records(TOPIC, BATCHES, parts)]


def test_a_topic_with_fewer_records_than_were_counted_has_lost_some() -> None:
    assert lost(part({1: 3, 2: 2}), part({1: 2}, 500)) == []
    assert lost(part({1: 3, 2: 2}), part({1: 1}, 500)) == [(1, 4, 5)]
    assert lost(part({1: 9})) == [(2, 0, 2)], "too many are told by what they are"
    assert lost() == []
    unread = part({1: 1}, 500)
    assert (
        lost(part({1: 3, 2: 2}), unread) == [(1, 4, 5)]
        and lost(part({1: 3, 2: 2}), replace(unread, unreadable=1)) == []
    )


def test_batches_from_before_a_topic_s_first_records_are_not_judged() -> None:
    assert lost(part({1: 3, 2: 2}, first_ms=NOW + 1)) == []
    assert lost(part({1: 3, 2: 2}, 7, NOW - 5)) == []
    assert lost(part({1: 3, 2: 2}, 7, NOW - CLOCK_SKEW_MS)) == [(1, 3, 5)]
    assert lost(part({1: 3, 2: 2}), part({}, 7, NOW - 5, partition=1)) == []


def test_a_part_that_is_read_again_counts_once_and_a_partition_without_records_says_nothing() -> None:
    compared: Any = type("Compared", (), {"topic": TOPIC, "number": 4})()
    collected = PartCounts(BATCHES, frozenset({TOPIC}))
    for _ in range(2):
        collected.add(part({1: 3, 2: 2}))
    bounds = {TOPIC: {0: (0, 9)}}
    ((_, (found,)),) = collected.lost([compared], bounds).items()
    assert (found.batch.epoch, found.found) == (1, 3)
    assert collected.lost([compared], {TOPIC: {0: (0, 9), 1: (9, 9)}}) == {}
    assert PartCounts(BATCHES).lost([compared], bounds) == {}
