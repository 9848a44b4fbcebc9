"""When a watched stream asks for a drain, judged without a server."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_provider_mysql_cdc.cdc.binlog.purged_files import ServerGtids
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.operate.due_drain import DrainRequest, StreamState, next_request
from airflow_provider_mysql_cdc.cdc.operate.lag import BinlogState, DrainedOffset, Thresholds

SERVER = "aaaaaaaa-0000-0000-0000-000000000001"
RETRY_S = 600.0


def at(pos: int, server: str = SERVER) -> BinlogOffset:
    return BinlogOffset("binlog.000004", pos, f"{server}:1-{pos}", server)


def stream(drained: int | None, end: int, seen_s: int = 1000, **more: object) -> StreamState:
    offset = None if drained is None else at(drained)
    binlog = BinlogState(at(end), (("binlog.000004", end),), ServerGtids("ON"), seen_s * 1000)
    return replace(StreamState(DrainedOffset(offset, 0), binlog), **more)  # type: ignore[arg-type]


def asked(state: StreamState, last: DrainRequest | None = None, **thresholds: int) -> DrainRequest | None:
    found = next_request(state, Thresholds(**thresholds), last, retry_after_s=RETRY_S)
    return None if found is None else found[0]


def test_what_is_new_is_asked_for_once_until_it_is_drained() -> None:
    assert asked(stream(100, 100)) is None
    first = asked(stream(100, 200))
    assert first is not None and first.end == at(200)
    assert asked(stream(100, 200), first) is None
    assert asked(stream(100, 300), first) is None, "more of it, while the drain that was asked for is on its way"
    assert asked(stream(200, 200), first) is None, "done"
    second = asked(stream(200, 300), first)
    assert second is not None and second.end == at(300)


def test_thresholds_hold_from_one_request_to_the_next() -> None:
    first = asked(stream(100, 200), bytes=100)
    assert first is not None
    assert asked(stream(200, 299), first, bytes=100) is None
    assert asked(stream(200, 300), first, bytes=100) is not None


@pytest.mark.parametrize(("seconds", "again"), [(599, False), (600, True), (-1, True)])
def test_what_is_not_done_after_a_time_is_asked_for_again(seconds: int, again: bool) -> None:
    first = asked(stream(100, 200))
    assert first is not None
    assert (asked(stream(100, 200, 1000 + seconds), first) is not None) is again


def test_a_run_that_is_active_is_not_disturbed() -> None:
    assert asked(stream(100, 200, running=True)) is None
    assert asked(stream(100, 200, running=True, signals=frozenset("a"))) is None


def test_a_batch_that_nobody_works_on_is_due_also_when_nothing_is_new() -> None:
    state = stream(200, 200)
    left = replace(state, drained=replace(state.drained, pending=7))
    first = asked(left)
    assert first is not None
    assert asked(left, first) is None
    assert asked(replace(left, binlog=replace(left.binlog, read_ms=1_600_000)), first) is not None


def test_a_signal_that_waits_is_asked_for_once_whatever_the_lag() -> None:
    waiting = frozenset({"one"})
    first = asked(stream(100, 100, signals=waiting), bytes=1000)
    assert first is not None and first.signals == waiting
    assert asked(stream(100, 100, signals=waiting), first, bytes=1000) is None
    both = asked(stream(100, 100, signals=waiting | {"two"}), first, bytes=1000)
    assert both is not None and both.signals == {"one", "two"}, "the first one is on its way still"
    assert asked(stream(100, 100), first, bytes=1000) is None


def test_a_stream_without_an_offset_is_asked_for_once() -> None:
    first = asked(stream(None, 200))
    assert first is not None
    assert asked(stream(None, 300), first) is None


def test_another_server_does_not_keep_a_request_open_for_ever() -> None:
    """Its binlog cannot be compared with the request; a stream that stands on it is drained behind the request."""
    other = "bbbbbbbb-0000-0000-0000-000000000002"
    first = asked(stream(100, 200))
    assert first is not None
    moved = StreamState(DrainedOffset(BinlogOffset("b.000001", 50, None, other), 0), stream(100, 60).binlog)
    end = BinlogOffset("b.000001", 60, None, other)
    moved = replace(moved, binlog=replace(moved.binlog, end_offset=end, files=(("b.000001", 60),)))
    again = asked(moved, replace(first, end=replace(first.end, gtids=None)))
    assert again is not None and again.end == end
