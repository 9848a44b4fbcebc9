"""How far a stored offset lies behind the binlog, judged without a server."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.binlog.purged_files import ServerGtids, ServerState
from airflow_provider_mysql_cdc.cdc.commit.offset_store import PastOffset, StoredState
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, SourceSettingError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.operate.lag import BinlogState, DrainedOffset, Thresholds, measure_lag

A, B = "aaaaaaaa-0000-0000-0000-000000000001", "bbbbbbbb-0000-0000-0000-000000000002"
FILES = (("binlog.000002", 1000), ("binlog.000003", 5000), ("binlog.000004", 700))


def at(file: int, pos: int, gtids: str | None = f"{A}:1-10", server: str = A) -> BinlogOffset:
    return BinlogOffset(f"binlog.{file:06}", pos, gtids, server)


def server(end: BinlogOffset, mode: str = "ON", seen_ms: int = 100_000) -> BinlogState:
    return BinlogState(end, FILES, ServerGtids(mode), seen_ms)


def decide(stored: BinlogOffset | None, end: BinlogOffset, mode: str = "ON", **wanted: Any) -> bool:
    return measure_lag(DrainedOffset(stored, 40_000), server(end, mode), Thresholds(**wanted)).reached


def test_anything_new_is_what_the_drain_would_plan() -> None:
    assert not decide(at(4, 700), at(4, 700))
    assert decide(at(4, 699), at(4, 700))
    assert decide(at(3, 5000), at(4, 157)), "a file begun anew moves the offset too"


@pytest.mark.parametrize(("purged", "found"), [(f"{A}:1-10", True), (f"{A}:1-11", False), (f"{A}:1-9", False)])
def test_an_offset_whose_file_alone_was_purged_lags_by_the_files_that_are_left(purged: str, found: bool) -> None:
    """A sensor with a threshold would otherwise start a drain each time, and call the offset lost."""
    state = BinlogState(at(4, 700), FILES, ServerGtids("ON", purged, ServerState(50, 0)), 100_000)
    stored = replace(at(1, 900), origin="60.aa.bb/50-0")
    lag = measure_lag(DrainedOffset(stored, 40_000), state, Thresholds(bytes=7000))
    assert (lag.reached, lag.bytes) == ((False, 1000 + 5000 + 700) if found else (True, None))
    assert ("its file was purged" in lag.reason) is not found
    if found:
        doubtful = DrainedOffset(replace(stored, origin="49.aa.bb/50-0"), 40_000)
        unnamed = measure_lag(doubtful, state, Thresholds(bytes=7000))
        assert unnamed.reached and "may have had no GTID" in unnamed.reason


def test_bytes_are_counted_over_whole_files() -> None:
    behind = measure_lag(DrainedOffset(at(2, 900)), server(at(4, 700)), Thresholds())
    assert behind.bytes == 100 + 5000 + 700
    assert decide(at(2, 900), at(4, 700), bytes=5800)
    assert not decide(at(2, 900), at(4, 700), bytes=5801)


def test_transactions_are_counted_by_their_gtids_whoever_made_them() -> None:
    behind = measure_lag(DrainedOffset(at(4, 200)), server(at(4, 700, f"{A}:1-12,{B}:1-3:t:7")), Thresholds())
    assert behind.transactions == 2 + 3 + 1
    assert decide(at(4, 200), at(4, 700, f"{A}:1-12"), transactions=2)
    assert not decide(at(4, 200), at(4, 700, f"{A}:1-12"), transactions=3)


@pytest.mark.parametrize("mode", ["OFF", "OFF_PERMISSIVE"])
def test_transactions_without_gtids_are_refused_instead_of_waited_for(mode: str) -> None:
    with pytest.raises(SourceSettingError, match="gtid_mode"):
        decide(at(4, 200), at(4, 700), mode, transactions=3)


def test_a_count_that_is_not_known_wakes_the_drain() -> None:
    """Right after GTIDs were switched on, the stored offset has none."""
    assert decide(at(4, 200, None), at(4, 700), transactions=1000)


def test_seconds_count_from_the_last_batch_and_only_when_something_is_new() -> None:
    assert decide(at(4, 200), at(4, 700), seconds=60)
    assert not decide(at(4, 200), at(4, 700), seconds=61)
    assert not decide(at(4, 700), at(4, 700), seconds=1)


def test_a_batch_settled_in_the_future_by_another_machines_clock_is_of_no_known_age() -> None:
    """A triggerer whose clock is hours behind the workers' would wait for as long."""
    found = measure_lag(DrainedOffset(at(4, 200), 10**15), server(at(4, 700)), Thresholds(seconds=60))
    assert found.reached and found.seconds is None


def test_the_first_threshold_reached_decides() -> None:
    assert decide(at(4, 200), at(4, 700), bytes=10**9, seconds=60)
    assert not decide(at(4, 200), at(4, 700), bytes=10**9, transactions=10**6, seconds=61)


@for_each(
    ("stored", "why"),
    [
        (None, "no offset is stored"),
        (at(4, 200, server=B), "of server"),
        (at(1, 200), "its file was purged"),
        (at(3, 5001), "the file ends at 5000"),
        (at(4, 701), "the file ends at 700"),
    ],
)
def test_what_only_a_run_can_settle_ends_the_wait(stored: BinlogOffset | None, why: str) -> None:
    behind = measure_lag(DrainedOffset(stored), server(at(4, 700)), Thresholds(bytes=10**9))
    assert behind.reached
    assert why in behind.reason


def test_an_unfinished_batch_ends_the_wait() -> None:
    assert measure_lag(DrainedOffset(at(4, 700), pending=7), server(at(4, 700)), Thresholds()).reached


def test_the_store_s_state_says_where_and_when() -> None:
    state = StoredState(epoch=3, committed=at(4, 200), history=(PastOffset(3, at(4, 200), 55),))
    drained = DrainedOffset.from_state(state)
    assert (drained.offset, drained.settled_ms, drained.pending) == (at(4, 200), 55, None)
    assert DrainedOffset.from_state(None) == DrainedOffset()


@pytest.mark.parametrize("name", ["bytes", "transactions", "seconds"])
def test_a_threshold_below_one_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}_behind=0"):
        Thresholds(**{name: 0})
