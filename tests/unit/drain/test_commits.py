"""When a drain writer commits: by its own clock, whatever passes, and never behind what is committed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from kit.drain_rig import PASSED_OVER, Rig

from airflow_provider_mysql_cdc.cdc.commit.topic_records import RecordedTopic
from airflow_provider_mysql_cdc.cdc.drain import written_topics
from airflow_provider_mysql_cdc.cdc.errors import TopicChangedError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, ResumePosition


def test_events_that_nobody_wants_do_not_stop_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch, **{"heartbeat.interval.ms": "0"})
    open_for: list[float] = []

    def events(_: Any) -> Iterator[Any]:
        rig.sink.produce("p.d.t", b"k", b"v", 0)
        for _ in range(1000):
            rig.clock.now += 0.1
            yield PASSED_OVER
            if rig.sink.bytes_pending:
                open_for.append(rig.clock.now)

    rig.run(events)
    assert max(open_for) < 10 + 64 * 0.1 + 0.2
    assert len(rig.markers()) == 2


@pytest.mark.parametrize("interval_ms, limit_s", [("10000", 10), ("29999", 15)])
def test_a_silent_source_does_not_stop_the_clock(
    monkeypatch: pytest.MonkeyPatch, interval_ms: str, limit_s: float
) -> None:
    """Half of transaction.timeout.ms is the limit where commit.interval.ms allows more."""
    rig = Rig(monkeypatch, **{"commit.interval.ms": interval_ms, "heartbeat.interval.ms": "0"})
    open_for: list[float] = []

    def events(on_wait: Callable[[], None]) -> Iterator[Any]:
        rig.sink.produce("p.d.t", b"k", b"v", 0)
        for _ in range(60):
            rig.clock.now += 1
            on_wait()
            if rig.sink.bytes_pending:
                open_for.append(rig.clock.now)
        yield PASSED_OVER

    rig.run(events)
    assert max(open_for) == limit_s - 1


def test_a_marker_never_moves_back_while_a_retry_passes_over_what_is_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A heartbeat is due and the time is up, but what is read lies before the last marker."""
    there = BinlogOffset("b.000001", 5000)
    rig = Rig(monkeypatch, ResumePosition(there, 3, 1))

    def events(on_wait: Callable[[], None]) -> Iterator[Any]:
        for _ in range(200):
            rig.clock.now += 1
            yield PASSED_OVER
            on_wait()
        assert rig.sink.bytes_pending == 0 and rig.markers() == []
        rig.writer.position.move_to(there.file, 5001)
        for _ in range(30):
            rig.clock.now += 1
            on_wait()

    rig.run(events)
    assert [m["offset"]["pos"] for m in rig.markers()] == [5001, 5001, 5001, 9999]


def test_what_takes_longer_than_the_transaction_may_is_not_begun_inside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch)
    committer = rig.writer.committer
    committer.commit_before_delay(1000)
    assert rig.markers() == []
    rig.sink.produce("p.d.t", b"k", b"v", 0)
    rig.clock.now += 3
    committer.commit_before_delay(11)
    assert rig.sink.bytes_pending
    committer.commit_before_delay(13)
    assert not rig.sink.bytes_pending and len(rig.markers()) == 1


def test_a_commit_comes_by_size_whatever_the_clock_says(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch, **{"commit.bytes": "1048576", "heartbeat.interval.ms": "0"})
    committer = rig.writer.committer
    rig.sink.produce("p.d.t", b"", b"x" * (1048576 - 1), 0)
    committer.after_rows()
    committer.check()
    assert rig.sink.bytes_pending and rig.markers() == []
    for passed in (committer.after_rows, committer.check):
        rig.sink.produce("p.d.t", b"", b"x" * 1048576, 0)
        before = len(rig.markers())
        passed()
        assert not rig.sink.bytes_pending and len(rig.markers()) == before + 1


def test_topics_that_get_records_are_compared_before_these_become_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch, **{"heartbeat.interval.ms": "0"})
    committer, asked = rig.writer.committer, list[list[str]]()

    def require_same_topics(_: Any, recorded: Mapping[str, RecordedTopic], plan: Any, *, has_commits: bool) -> None:
        asked.append(list(recorded))
        if gone:
            raise TopicChangedError("a topic was changed", where=str(has_commits))

    gone: list[str] = []
    monkeypatch.setattr(written_topics, "require_same_topics", require_same_topics)
    committer.topics.recorded.update({f"p.d.{t}": RecordedTopic(1, t, 1) for t in "abc"})

    def write(*topics: str) -> None:
        for topic in topics:
            rig.sink.produce(topic, b"k", b"v", 0)
            committer.counts.add_side_record(topic)
        committer.commit_pending()

    write("p.d.b", "p.d.a", "p.d.not-recorded")
    write("p.d.c")
    assert asked == [["p.d.a", "p.d.b"], ["p.d.c"]]
    gone.append("p.d.a")
    with pytest.raises(TopicChangedError, match="True"):
        write("p.d.a")
    assert len(rig.markers()) == 2 and rig.sink.bytes_pending
