"""The points of a day: one a batch, bounded, and never worth a failed task."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from kit.store_contract import END, START, plan
from pipelinelib.stand_ins import MemoryOffsetStore

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import RUN_KEY
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import Marker
from airflow_provider_mysql_cdc.cdc.commit.run_tally import RunTally
from airflow_provider_mysql_cdc.cdc.metrics.stream_metrics import StreamMetrics
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, ResumePosition
from airflow_provider_mysql_cdc.cdc.operate import lag
from airflow_provider_mysql_cdc.cdc.operate.lag import (
    KEPT_MS,
    SPACING_MS,
    LagPoint,
    batch_point,
    read_points,
    record_batch,
    record_idle,
    with_point,
)

pytestmark = pytest.mark.quick

BEGAN_MS, HANDLED_MS, ENDED_MS = 1_000_000, 1_004_000, 1_005_000


class Points:
    """A store of points."""

    def __init__(self) -> None:
        self.saved: list[Any] = []
        self.error: Exception | None = None

    def load_points(self) -> list[Any]:
        return self.saved

    def save_points(self, points: list[Any]) -> None:
        if self.error is not None:
            raise self.error
        self.saved = points


def ledger(epoch: int = 5, end: BinlogOffset = END, **streaming: Any) -> LedgerState:
    """Return the ledger after a batch."""
    batch = plan(epoch, START, end, writers=1, created_ms=BEGAN_MS)
    tally = RunTally("r", epoch, 1, START, metrics=StreamMetrics(streaming=streaming, at_ms=ENDED_MS))
    marker = Marker(epoch, 0, START, end, ResumePosition(end), done=True)
    return LedgerState(
        batch,
        {0: marker},
        outcome={"epoch": epoch, "ok": True, "ts_ms": ENDED_MS},
        other_records={RUN_KEY: tally.to_json()},
    )


EVENT = {"last_event_ms": HANDLED_MS, "MilliSecondsBehindSource": 3_000}


def test_a_batch_says_that_all_from_before_it_began_is_in_kafka() -> None:
    assert batch_point(ledger(**EVENT)) == LagPoint(ENDED_MS, BEGAN_MS, 5, 0, 3_000)


def test_an_event_of_an_earlier_batch_says_nothing_about_this_one() -> None:
    earlier = EVENT | {"last_event_ms": BEGAN_MS - 1}
    assert batch_point(ledger(**earlier)) == LagPoint(ENDED_MS, BEGAN_MS, 5, 0, None)


def test_a_batch_that_ends_with_an_earlier_file_says_what_its_last_event_says() -> None:
    file_end = replace(END, pos=4, gtids=None)
    point = batch_point(ledger(end=file_end, **EVENT))
    assert point is not None and point.until_ms == HANDLED_MS - 3_000
    assert batch_point(ledger(end=file_end)) is None


def test_a_batch_that_is_not_complete_has_no_point() -> None:
    assert batch_point(replace(ledger(**EVENT), markers={})) is None
    assert batch_point(LedgerState()) is None


def test_points_are_bounded_in_age_and_number() -> None:
    points: list[LagPoint] = []
    every_ms = 10_000
    for number in range(2 * KEPT_MS // every_ms):
        points = with_point(points, LagPoint(number * every_ms, 0, number))
    assert len(points) <= KEPT_MS // SPACING_MS + 3
    assert points[-1].at_ms - points[0].at_ms <= KEPT_MS
    assert points[-1].epoch == 2 * KEPT_MS // every_ms - 1
    gaps = [b.at_ms - a.at_ms for a, b in pairwise(points[:-1])]
    assert min(gaps) >= SPACING_MS


def test_points_that_are_dropped_do_not_make_the_lag_look_longer() -> None:
    """A stream that drains every ten seconds is never five minutes behind, although its points are."""
    points: list[LagPoint] = []
    for number in range(1000):
        points = with_point(points, LagPoint(number * 10_000, number * 10_000 - 2_000, number))
    assert points[1].at_ms - points[0].at_ms >= SPACING_MS
    assert {point.most_ms for point in points[1:]} == {12_000}
    later = LagPoint(points[-1].at_ms + 3_600_000, points[-1].at_ms + 3_600_000, 1000)
    assert with_point(points, later)[-1].most_ms == 3_602_000


def test_each_batch_is_recorded_once_and_idle_runs_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    store, lines = Points(), list[str]()
    record_batch(store, ledger(), lines.append)
    record_batch(store, ledger(), lines.append)
    assert [p.epoch for p in read_points(store)] == [5]
    for minute in (10, 20):
        monkeypatch.setattr(lag, "now_ms", lambda minute=minute: ENDED_MS + minute * 60_000)
        record_idle(store, lines.append)
    assert [(p.epoch, p.at_ms - p.until_ms) for p in read_points(store)] == [(5, 5_000), (5, 0), (5, 0)]
    assert lines == []


def test_a_store_that_fails_or_keeps_no_points_does_not_fail_the_task() -> None:
    store, lines = Points(), list[str]()
    store.error = RuntimeError("locked")
    record_batch(store, ledger(), lines.append)
    assert lines == ["the history of the lag could not be written: RuntimeError: locked"]
    record_batch(MemoryOffsetStore(), ledger(), lines.append)
    record_batch(store, None, lines.append)
    assert len(lines) == 1


def test_what_another_program_has_written_is_left_out() -> None:
    store = Points()
    store.saved = [LagPoint(1, 1).to_json(), "x", LagPoint(2, 2).to_json() | {"at_ms": "soon"}]
    assert read_points(store) == [LagPoint(1, 1)]


def test_a_clock_that_was_set_back_does_not_stop_the_plot() -> None:
    store, lines = Points(), list[str]()
    year_ms = 365 * 86_400_000
    store.saved = [LagPoint(1, 1, 3).to_json(), LagPoint(lag.now_ms() + year_ms, 1, 4).to_json()]
    record_batch(store, ledger(), lines.append)
    assert [p.epoch for p in read_points(store)] == [3, 5] and lines == []
