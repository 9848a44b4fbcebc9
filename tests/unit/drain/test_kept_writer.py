"""What a writer keeps from batch to batch, and when it does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from kit.cases import for_each
from kit.drain_rig import PASSED_OVER, Rig
from kit.memory_job import config
from kit.memory_kafka import MemoryKafka, MemoryWriter
from kit.memory_ledger import MemoryLedger
from kit.store_contract import END, START, plan

from airflow_provider_mysql_cdc.cdc.binlog.position import LocalGtids
from airflow_provider_mysql_cdc.cdc.binlog.table_map import TableMap
from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan, Marker
from airflow_provider_mysql_cdc.cdc.drain import drain_writer
from airflow_provider_mysql_cdc.cdc.drain.table_route import KeptRoutes
from airflow_provider_mysql_cdc.cdc.drain.writer_context import KeptDump, KeptParts, KeptWriter
from airflow_provider_mysql_cdc.cdc.errors import FencedError, SourceConnectionError
from airflow_provider_mysql_cdc.cdc.formats.record_topics import TopicShare
from airflow_provider_mysql_cdc.cdc.model.offset import ResumePosition
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId

TOPIC = "mysql-cdc-ledger.p"
BROKEN = SourceConnectionError("the connection to the server broke", retriable=True)


class Cluster:
    """A ledger, and a writer whose initialisations are counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kafka = MemoryKafka()
        self.ledger = MemoryLedger(self.kafka, TOPIC, "p")
        self.ledger.ensure()
        self.inits = 0
        monkeypatch.setattr(kafka_clients, "ledger", lambda _: self.ledger)
        monkeypatch.setattr(kafka_clients, "record_writer", lambda cfg, index: self._writer(index))
        channel: Any = SimpleNamespace()
        self.writer = KeptWriter(config(), 0, channel)

    def _writer(self, index: int) -> MemoryWriter:
        made = MemoryWriter(self.kafka, f"p.{index}")
        init = made.init

        def counted(*timeout: float) -> None:
            self.inits += 1
            init(*timeout)

        made.init = counted  # type: ignore[method-assign]
        made.close = lambda: None  # type: ignore[method-assign]
        return made

    def begin(self, batch: BatchPlan, after: BatchPlan | None = None) -> BatchPlan:
        return self.ledger.begin(batch, after=after).plan_in_force()

    def finish(self, batch: BatchPlan) -> None:
        """Let the writer commit its last marker of a batch."""
        marker = Marker(batch.epoch, 0, batch.start, batch.end, ResumePosition(batch.end), done=True)
        self.writer.sink.commit([marker.record(TOPIC)])
        self.writer.complete(batch)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


def later(epoch: int) -> BatchPlan:
    return plan(epoch, END if epoch == 2 else START, END.with_position(END.file, 900 + epoch, END.gtids), writers=1)


def test_the_next_batch_is_joined_under_the_id_that_the_writer_holds(cluster: Cluster) -> None:
    first = cluster.begin(plan(writers=1))
    cluster.writer.join(first)
    cluster.finish(first)
    second = cluster.begin(later(2), after=first)
    state = cluster.writer.join(second)
    assert cluster.inits == 1 and state.marker(0, 2) is None
    cluster.finish(second)
    assert cluster.ledger.begin(later(2)).complete()


def test_a_client_that_has_met_very_many_tables_is_replaced_before_the_next_batch(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches that are too small for a commit before their end replace none themselves."""
    renewed: list[bool] = []
    monkeypatch.setattr(cluster.writer.sink, "renew", lambda: renewed.append(True), raising=False)
    before = cluster.begin(plan(writers=1))
    cluster.writer.join(before)
    cluster.finish(before)
    for epoch, tables, expected in ((2, 999, 0), (3, 1_000, 1), (4, 1, 1)):
        cluster.writer.parts.met_tables.update(map(str, range(tables)))
        following = replace(later(epoch), start=before.end)
        following = cluster.begin(following, after=before)
        cluster.writer.join(following)
        cluster.finish(following)
        assert (len(renewed), cluster.inits) == (expected, 1 + expected), epoch
        before = following


def test_an_id_that_others_took_over_is_lost(cluster: Cluster) -> None:
    """As all writers do: the one that lives on finds out at its next commit."""
    first = cluster.begin(plan(writers=1))
    cluster.writer.join(first)
    cluster.finish(first)
    second = cluster.begin(later(2), after=first)
    cluster.writer.join(second)
    cluster.ledger.begin(later(2))  # another attempt
    with pytest.raises(FencedError):
        cluster.finish(second)


def test_a_plan_that_is_not_in_force_is_not_written(cluster: Cluster) -> None:
    first = cluster.begin(plan(writers=1))
    cluster.writer.join(first)
    cluster.finish(first)
    second = cluster.begin(later(2), after=first)
    with pytest.raises(FencedError):
        cluster.writer.join(replace(second, attempt="another"))


@pytest.mark.parametrize("why", ["unfinished", "forgotten", "not the next"])
def test_otherwise_the_id_is_taken_over_again(cluster: Cluster, why: str) -> None:
    first = cluster.begin(plan(writers=1))
    cluster.writer.join(first)
    if why != "unfinished":
        cluster.finish(first)
    if why == "forgotten":
        cluster.writer.forget()
    cluster.writer.join(first if why != "forgotten" else cluster.begin(later(2)))
    assert cluster.inits == 2


class Stream:
    """A dump connection."""

    def __init__(self, events: Callable[[], Iterator[Any]] = lambda: iter(())) -> None:
        self.closed, self.reached, self._events = False, (END.file, END.pos), events
        self.created, self.server_version, self.local_gtids = ("", 0), "9.7.4", LocalGtids()

    def events(self, *_: Any) -> Iterator[Any]:
        return self._events()

    def close(self) -> None:
        self.closed = True


@for_each(("start", "kept"), [
    (END, True),
    (END.with_position(END.file, END.pos + 1), False),
    (END.with_position("binlog.000099", END.pos), False),
    (replace(END, server_uuid="another"), False),
    (replace(END, origin="77.other"), False),
], ids=["here", "another position", "another file", "another server", "a file of that name"])  # fmt: skip
def test_a_dump_goes_on_only_where_it_stands(start: Any, kept: bool) -> None:
    dump, stream = KeptDump(), Stream()
    dump.keep(stream, replace(END, origin="77.head"))  # type: ignore[arg-type]
    assert dump.take(start) is (stream if kept else None)
    assert stream.closed is not kept
    assert dump.take(start) is None, "it is taken once"


def test_a_dump_calls_the_check_of_the_batch_that_is_read() -> None:
    dump, calls = KeptDump(), list[str]()
    dump.check = lambda: calls.append("first")
    dump.on_wait()
    dump.keep(Stream(), END)  # type: ignore[arg-type]
    dump.on_wait()
    assert calls == ["first"], "between two batches nothing is checked"


def table_map(**changed: Any) -> TableMap:
    values: dict[str, Any] = {"table_id": 7, "flags": 1, "db": "d", "table": "t", "column_types": (3,)}
    return TableMap(**(dict.fromkeys(TableMap.__dataclass_fields__) | values | changed))


def test_a_route_is_used_again_where_it_would_be_built_from_the_same() -> None:
    routes, table, share = KeptRoutes(), Table(TableId("d", "t"), ()), TopicShare("p.d.t", 3, frozenset({1}), False)
    route: Any = object()
    assert routes.find(table_map(), table, share) is None
    routes.keep(table_map(), table, share, route)
    assert routes.find(table_map(), table, replace(share)) is route
    for other in (
        routes.find(table_map(column_types=(8,)), table, share),
        routes.find(table_map(), replace(table), share),
        routes.find(table_map(), table, replace(share, partitions=4)),
        routes.find(table_map(), table, replace(share, assigned=frozenset({1, 2}))),
        routes.find(table_map(), Table(TableId("d", "u"), ()), share),
    ):
        assert other is None


def living(rig: Rig, stream: Stream | None = None) -> KeptParts:
    """Let a rig's writer take over a dump connection, or only leave its own."""
    kept, start = KeptParts(), rig.writer.context.plan.start
    if stream is not None:
        stream.reached = start.file, start.pos
        kept.dump.keep(stream, start)  # type: ignore[arg-type]
    rig.writer.context = replace(rig.writer.context, kept=kept)
    return kept


def opened(monkeypatch: pytest.MonkeyPatch, *streams: Stream) -> list[Any]:
    waits, left = list[Any](), iter(streams)

    def open_stream(*_: Any, on_wait: Any, **__: Any) -> Any:
        waits.append(on_wait)
        return next(left)

    monkeypatch.setattr(drain_writer, "open_stream", open_stream)
    return waits


def test_a_batch_is_read_over_the_connection_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, stream, checks = Rig(monkeypatch), Stream(lambda: iter([PASSED_OVER])), list[int]()
    kept = living(rig, stream)
    monkeypatch.setattr(drain_writer.Committer, "check", lambda _: checks.append(1))
    stream._events = lambda: (kept.dump.on_wait(), iter([PASSED_OVER]))[1]
    waits = opened(monkeypatch)
    rig.writer.run()
    assert not waits and not stream.closed and checks, "the committer commits in time while the stream waits"
    end = rig.writer.context.plan.end
    stream.reached = end.file, end.pos
    assert kept.dump.take(end) is stream


def test_a_connection_that_broke_between_two_batches_is_opened_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts as no attempt to reconnect: connect.max.attempts may be 0."""
    rig = Rig(monkeypatch, **{"connect.max.attempts": "0"})

    def broken() -> Iterator[Any]:
        raise BROKEN
        yield

    stream, second = Stream(broken), Stream(lambda: iter([PASSED_OVER]))
    kept = living(rig, stream)
    waits = opened(monkeypatch, second)
    rig.writer.run()
    assert stream.closed and waits == [kept.dump.on_wait] and not second.closed


def test_a_connection_is_not_kept_behind_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch)

    def refused() -> Iterator[Any]:
        raise FencedError("a newer attempt is in force")
        yield

    stream = Stream(refused)
    kept = living(rig, stream)
    opened(monkeypatch)
    with pytest.raises(FencedError):
        rig.writer.run()
    assert stream.closed and kept.dump.take(END) is None
