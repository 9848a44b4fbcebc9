"""When a drain writer commits: by its own clock, whatever passes, and never behind what is committed.

A writer that has met a thousand tables goes on with a new Kafka client, behind a commit and as nobody else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from kit.drain_rig import PASSED_OVER, Rig

from airflow_provider_mysql_cdc.cdc.commit.plan import Marker
from airflow_provider_mysql_cdc.cdc.commit.topic_records import RecordedTopic
from airflow_provider_mysql_cdc.cdc.drain import committer as client_turn
from airflow_provider_mysql_cdc.cdc.drain import committer as written_topics
from airflow_provider_mysql_cdc.cdc.drain.committer import ProducerRenewal, require_unchanged_marker
from airflow_provider_mysql_cdc.cdc.drain.drain_writer_factory import create_writer
from airflow_provider_mysql_cdc.cdc.errors import FencedError, StateError, TopicChangedError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, ResumePosition
from airflow_provider_mysql_cdc.cdc.sink import producer_client
from airflow_provider_mysql_cdc.cdc.sink.writer import TransactionalWriter


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


HERE = BinlogOffset("b.000001", 500)
LAST = Marker(
    3, 1, BinlogOffset("b.000001", 4), BinlogOffset("b.000001", 999), ResumePosition(HERE, 2, 1), counts={"t": 7}
)


def run(monkeypatch: pytest.MonkeyPatch, met: int, loops: int) -> tuple[Rig, list[Marker]]:
    """Let a writer meet tables, one each 64 events, which is when it looks whether a commit is due."""
    monkeypatch.setattr(client_turn, "RENEWAL_TABLES", 3)
    rig, taken = Rig(monkeypatch, **{"heartbeat.interval.ms": "0"}), list[Marker]()
    tables: dict[str, int] = dict.fromkeys(map(str, range(met)), 1)

    def renew(last: Marker) -> None:
        assert not rig.sink.bytes_pending
        taken.append(last)

    rig.writer.committer.renewal = ProducerRenewal(tables, renew)

    def events(_: Any) -> Iterator[Any]:
        for n in range(loops):
            tables[f"new {n}"] = 1
            rig.sink.produce("p.d.t", b"k", b"v", 0)
            for _ in range(64):
                yield PASSED_OVER

    rig.run(events)
    return rig, taken


def test_each_few_tables_there_is_a_commit_and_a_new_client(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, taken = run(monkeypatch, 0, 10)
    assert len(taken) == 3
    assert len(rig.markers()) == 4
    assert not any(marker.done for marker in taken)


def test_tables_of_an_earlier_attempt_are_not_new(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(run(monkeypatch, 50, 2)[1]) == 0


def test_no_new_client_is_made_after_the_last_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch)
    tables, met = dict[str, int](), set[str]()
    renewal = ProducerRenewal(tables, lambda last: pytest.fail("nothing follows"), met=met)
    rig.writer.committer.renewal = renewal
    tables.update(dict.fromkeys(map(str, range(5000)), 1))
    rig.run(lambda _: iter(()))
    assert (len(rig.markers()), len(met)) == (1, 5000), "the next batch begins with a new client"


def test_a_client_counts_the_tables_of_all_its_batches_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_turn, "RENEWAL_TABLES", 4)
    met, taken = set[str](), list[Marker]()
    for names, due in (("abc", False), ("bca", False), ("ad", True)):
        tables = dict[str, int]()
        renewal = ProducerRenewal(tables, taken.append, met=met)
        tables.update(dict.fromkeys(names, 1))
        assert renewal.due() is due, names
    renewal.perform(LAST)
    assert (taken, met, renewal.due()) == ([LAST], set(), False)


def test_batches_of_one_writer_share_what_its_client_has_met(monkeypatch: pytest.MonkeyPatch) -> None:
    context = replace(Rig(monkeypatch).writer.context, renew_producer=lambda _: None)
    renewals = [create_writer(context).committer.renewal for _ in range(2)]
    assert all(renewal is not None and renewal.met is context.kept.met_tables for renewal in renewals)


def test_a_writer_goes_on_from_its_own_last_marker_alone() -> None:
    require_unchanged_marker(Marker.from_json(LAST.to_json()), LAST)
    further = replace(LAST, reached=ResumePosition(HERE, 3, 1))
    counted = replace(LAST, counts={"t": 8})
    for found in (None, further, counted, replace(LAST, done=True)):
        with pytest.raises(FencedError, match="another copy of this writer"):
            require_unchanged_marker(found, LAST)


def test_a_client_is_replaced_between_two_transactions_only(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[list[str]] = []

    def make(*_: Any) -> Any:
        calls: list[str] = []
        made.append(calls)
        names = ("begin_transaction", "commit_transaction", "abort_transaction", "produce", "purge", "flush", "poll")
        return SimpleNamespace(**{name: lambda *_, _name=name: calls.append(_name) for name in names})

    monkeypatch.setattr(producer_client, "make_producer", make)
    writer = TransactionalWriter({"bootstrap.servers": "k:1"}, "p.0")
    writer.produce("t", None, b"1", 0)
    with pytest.raises(StateError, match="inside a transaction"):
        writer.renew()
    writer.commit()
    writer.renew()
    writer.produce("t", None, b"2", 0)
    assert made == [
        ["begin_transaction", "produce", "commit_transaction", "purge", "flush"],
        ["begin_transaction", "produce"],
    ]
    assert (writer.records_pending, writer.bytes_pending) == (1, 1)
    writer.close()
    with pytest.raises(StateError, match="closed"):
        writer.renew()
