"""What the driver of a drain makes sure of before it begins, over parts that a test makes up."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from kit.cases import for_each
from kit.memory_job import config
from kit.store_contract import END, START, plan

from airflow_provider_mysql_cdc.cdc.binlog.position import BinlogEnd
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import Marker
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.drain import batch_run as one_batch
from airflow_provider_mysql_cdc.cdc.drain import drain_driver, reconnects
from airflow_provider_mysql_cdc.cdc.drain.drain_driver import NO_OTHER_WORK, PlannedBatch
from airflow_provider_mysql_cdc.cdc.drain.reconnects import DriverConnection
from airflow_provider_mysql_cdc.cdc.drain.side_records import HeartbeatTimer
from airflow_provider_mysql_cdc.cdc.errors import (
    BinlogCorruptError,
    BinlogPurgedError,
    CdcError,
    RecordsLostError,
    RunInProgressError,
    SchemaError,
    SourceConnectionError,
    StateError,
)
from airflow_provider_mysql_cdc.cdc.job.job_metrics import JobLog, JobMetrics
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, ResumePosition
from airflow_provider_mysql_cdc.cdc.model.records import NativeCounts
from airflow_provider_mysql_cdc.cdc.schema.history_replay import HistoryCache, TopicEnd

CFG = config()


def run_batch(planned: PlannedBatch, job: Any) -> Any:
    """Run a batch whose writers write nothing."""
    log, timer = JobLog(lambda line: None), HeartbeatTimer(0)
    writers: Any = SimpleNamespace(batch_before=lambda batch: None, write=lambda *_: None)
    return drain_driver._run_batch(CFG, None, job, planned, writers, log, NO_OTHER_WORK, timer)


@pytest.mark.parametrize("gone", [START, END], ids=["its start", "its end"])
def test_a_batch_is_read_from_the_binlog_that_it_was_planned_on(
    monkeypatch: pytest.MonkeyPatch, gone: BinlogOffset
) -> None:
    """A server that lost its tail in a crash has the start; whoever reads there waits for an end that never comes."""

    def check_available(conn: Any, settings: Any, offset: BinlogOffset) -> None:
        if offset == gone:
            raise BinlogPurgedError("the server lost its tail")

    monkeypatch.setattr(one_batch, "begin_pinned_plan", lambda cfg, job, batch, *_: (LedgerState(plan=batch), batch))
    monkeypatch.setattr(one_batch, "check_available", check_available)
    monkeypatch.setattr(one_batch, "connect", lambda _: nullcontext())
    monkeypatch.setattr(one_batch, "load_schema_state", lambda *_, **__: pytest.fail("the batch begins"))
    job: Any = SimpleNamespace(create_topics=lambda specs: None, history_cache=HistoryCache(), metrics=JobMetrics(CFG))
    with pytest.raises(BinlogPurgedError, match="lost its tail"):
        run_batch(PlannedBatch(plan(), offsets_checked=False), job)


class Source:
    """A connection that does not break."""

    conn = None

    def __init__(self, *_: Any) -> None:
        pass

    def renew_if_broken(self, reached: Any) -> bool:
        return False

    def begin_file_check(self) -> bool:
        return True

    def close(self) -> None:
        pass


def test_a_driver_that_lost_its_lock_begins_no_further_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []

    class Lock:
        def require(self) -> None:
            if begun:
                raise RunInProgressError("this run has lost its lock")

    def batch(cfg: Any, conn: Any, job: Any, made: Any, *_: Any) -> dict[str, int]:
        begun.append(made.plan.epoch)
        assert len(begun) == 1, "a second run may be at work"
        return {}

    monkeypatch.setattr(drain_driver.run_lock, "hold_run_lock", lambda *_: contextlib.nullcontext(Lock()))
    monkeypatch.setattr(drain_driver, "DriverConnection", Source)
    job = SimpleNamespace(metrics=SimpleNamespace(), schema_ids=None)
    monkeypatch.setattr(drain_driver, "JobLedger", lambda *_: contextlib.nullcontext(job))
    monkeypatch.setattr(drain_driver, "_complete_batch", batch)
    monkeypatch.setattr(drain_driver, "_next_plan", lambda *_: plan(2, END, END.with_position(END.file, 900)))
    spec = JobSpec("drain", CFG.properties(), plan().to_json(), "dag/run/task/-1", 60)
    runner: Any = None
    with pytest.raises(RunInProgressError):
        drain_driver.run_drain(spec, runner, lambda line: None)
    assert begun == [1]


class Clock:
    """Tell a time that only sleeping and working move."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds


def batches_of(
    monkeypatch: pytest.MonkeyPatch,
    takes_s: float,
    *,
    read: int = 0,
    writes: Sequence[int] = (),
    first_new: float = 0.0,
    looks: list[float] | None = None,
    compared: list[float] | None = None,
    **properties: str,
) -> tuple[list[float], float]:
    """Run batches for ten seconds; return when each begins and when the run ends.

    Args:
        monkeypatch: Replaces parts of the driver.
        takes_s: Seconds that a batch takes.
        read: Records read behind each by other work.
        writes: Records of each batch; further ones have as many as the last, and 0 if none is given.
        first_new: Seconds before which nothing new is found behind the first batch.
        looks: Gets the seconds at which a batch is planned, or found to be none.
        compared: Gets those at which the binlog file is compared for that.
        properties: Further properties.
    """
    clock = Clock()
    begun: list[float] = []

    def batch(cfg: Any, conn: Any, job: Any, planned: PlannedBatch, *_: Any) -> dict[str, int]:
        assert planned.offsets_checked is bool(begun), "the first plan is another process's"
        begun.append(clock.now - 100.0)
        clock.now += takes_s
        return {"t": writes[min(len(begun), len(writes)) - 1]} if writes else {}

    def plan_next(cfg: Any, conn: Any, start: Any, epoch: int, *_: Any, start_checked: bool = False, **__: Any) -> Any:
        for noted in (looks, None if start_checked else compared):
            if noted is not None:
                noted.append(clock.now - 100.0)
        return None if nothing_new() else plan(epoch)

    def nothing_new() -> bool:
        return clock.now - 100.0 < first_new

    lock = SimpleNamespace(require=lambda: None)
    there = SimpleNamespace(end=lambda: START, plan_in_force=plan, prepared=lambda: None)
    job = SimpleNamespace(latest=lambda: there, read=lambda: there, metrics=SimpleNamespace(), schema_ids=None)
    monkeypatch.setattr(drain_driver.run_lock, "hold_run_lock", lambda *_: contextlib.nullcontext(lock))
    monkeypatch.setattr(drain_driver, "DriverConnection", Source)
    monkeypatch.setattr(drain_driver, "JobLedger", lambda *_: contextlib.nullcontext(job))
    monkeypatch.setattr(drain_driver, "time", clock)
    monkeypatch.setattr(drain_driver, "_complete_batch", batch)
    monkeypatch.setattr(drain_driver, "plan_drain", plan_next)
    monkeypatch.setattr(drain_driver, "new_end", lambda *_: None if nothing_new() else BinlogEnd(END, ""))
    monkeypatch.setattr(drain_driver.ForeignTraffic, "may_wait", lambda *_: False)
    cfg = config(**{name.replace("_", "."): value for name, value in properties.items()})
    spec = JobSpec("drain", cfg.properties(), plan().to_json(), "dag/run/task/-1", 10)
    other = drain_driver.OtherWork(lambda behind: {"t": read} if read else {}, lambda *_: False)
    runner: Any = None
    drain_driver.run_drain(spec, runner, lambda line: None, other)
    return begun, clock.now - 100.0


@pytest.mark.req("CFG-33", "STRM-33")
def test_what_is_new_within_an_interval_is_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that took longer than the interval, or that other work was done behind, is followed at once."""
    each, end = batches_of(monkeypatch, 0.25)
    assert [round(at, 6) for at in each] == [round(n * 0.35, 6) for n in range(29)] and round(end, 6) == 10.05
    each, end = batches_of(monkeypatch, 0.25, poll_interval_ms="4000")
    assert each == [0.0, 4.0, 8.0] and end == 10.0
    each, _ = batches_of(monkeypatch, 2.0)
    assert each == [0.0, 2.0, 4.0, 6.0, 8.0]
    each, _ = batches_of(monkeypatch, 0.25, read=1)
    assert each == [n * 0.25 for n in range(40)]


@pytest.mark.req("CFG-33")
def test_few_changes_wait_as_long_as_the_lag_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the changes are visible within a quarter of a second: half an interval and a batch."""
    for interval_ms, takes_s, apart_s in (
        ("350", 0.01, 0.4375),
        ("350", 0.05, 0.4),
        ("350", 0.08, 0.35),
        ("40", 0.01, 0.05),
    ):
        each, _ = batches_of(monkeypatch, takes_s, poll_interval_ms=interval_ms)
        assert round(each[2] - each[1], 6) == apart_s, (interval_ms, takes_s)


@pytest.mark.req("CFG-33")
def test_many_changes_come_in_fewer_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody may wait for few changes; what a batch costs besides its records is saved where there are many."""
    calm, _ = batches_of(monkeypatch, 0.1, writes=[100_000, 349])
    assert [round(at, 6) for at in calm[:4]] == [0.0, 0.35, 0.7, 1.05], "the first one has no rate"
    busy, _ = batches_of(monkeypatch, 0.1, writes=[1, 1_000, 1_000, 699, 0])
    assert [round(at, 6) for at in busy[:7]] == [0.0, 0.35, 1.05, 1.75, 2.1, 2.45, 2.8]
    for interval_ms, apart_s in (("100", 0.2), ("500", 0.7), ("2000", 2.0)):
        each, _ = batches_of(monkeypatch, 0.05, writes=[10_000], poll_interval_ms=interval_ms)
        assert round(each[3] - each[2], 6) == apart_s, interval_ms
    slow, _ = batches_of(monkeypatch, 0.9, writes=[10_000])
    assert [round(at, 6) for at in slow[:4]] == [0.0, 0.9, 1.8, 2.7]
    quiet, _ = batches_of(monkeypatch, 0.1, writes=[0], first_new=6.0)
    assert round(quiet[2] - quiet[1], 6) == 0.35


@pytest.mark.req("STRM-33")
def test_a_burst_after_a_quiet_time_delays_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    each, _ = batches_of(monkeypatch, 0.1, writes=[1, 6_000, 1], first_new=7.0)
    assert 7.0 <= each[1] <= 7.25 and round(each[2] - each[1], 6) == 0.35


@pytest.mark.req("STRM-33")
def test_a_change_of_a_quiet_source_is_drained_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the interval is: that only keeps batches apart."""
    for interval_ms in ("500", "5000"):
        each, _ = batches_of(monkeypatch, 0.25, first_new=6.14, poll_interval_ms=interval_ms)
        assert each[0] == 0.0 and 6.14 <= each[1] <= 6.39, interval_ms
    each, _ = batches_of(monkeypatch, 0.25, first_new=0.3, poll_interval_ms="5000")
    assert each[:2] == [0.0, 5.0]


@pytest.mark.req("STRM-33", "FAULT-11")
def test_a_quiet_stream_looks_at_its_binlog_file_each_few_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """That takes a connection of its own; whether anything is new one look over the connection there is can tell."""
    looks: list[float] = []
    each, end = batches_of(monkeypatch, 0.0, first_new=60.0, looks=looks)
    assert (each, round(end, 6), [round(at) for at in looks]) == ([0.0], 10.0, [5])
    looks.clear()
    each, _ = batches_of(monkeypatch, 0.0, first_new=7.25, looks=looks)
    assert 5.0 <= looks[0] <= 5.26 and 7.25 <= each[1] == looks[1] <= 7.51


@pytest.mark.req("FAULT-11")
@pytest.mark.parametrize("first_new", [0.0, 8.0], ids=["busy", "quiet"])
def test_a_binlog_file_is_compared_each_few_seconds(monkeypatch: pytest.MonkeyPatch, first_new: float) -> None:
    """That takes a connection of its own; a quiet stream, which plans nothing meanwhile, compares it as often."""
    compared: list[float] = []
    looks: list[float] = []
    due = iter([first_new == 0.0, *[False] * 100])
    monkeypatch.setattr(Source, "begin_file_check", lambda _: next(due))
    each, _ = batches_of(monkeypatch, 0.1, first_new=first_new, looks=looks, compared=compared)
    assert len(each) > 3 and compared == ([looks[0]] if first_new == 0.0 else looks[:1])
    assert (5.0 <= compared[0] <= 5.3) if first_new else compared[0] == each[1]


@pytest.mark.req("FAULT-11")
def test_a_new_connection_compares_the_binlog_file_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, opened = Clock(), SimpleNamespace(open=True, close=lambda: None)
    monkeypatch.setattr(reconnects, "time", clock)
    monkeypatch.setattr(reconnects, "connect", lambda _: opened)
    monkeypatch.setattr(reconnects.run_lock, "disable_idle_timeout", lambda _: None)
    source = DriverConnection(CFG, lambda: None, lambda line: None)
    assert [source.begin_file_check() for _ in range(2)] == [True, False]
    clock.sleep(4.9)
    assert not source.begin_file_check()
    clock.sleep(0.2)
    assert [source.begin_file_check() for _ in range(2)] == [True, False]

    def broken(*_: Any) -> Any:
        raise SourceConnectionError("the connection is broken")

    monkeypatch.setattr(reconnects, "fetch_all", broken)
    monkeypatch.setattr(reconnects, "Reconnects", lambda *_: SimpleNamespace(wait=lambda *_: None))
    assert source.renew_if_broken(lambda: None) and source.begin_file_check()


@for_each(
    ("error", "found", "named"),
    [
        (BinlogCorruptError("unreadable"), BinlogPurgedError("replaced"), "replaced"),
        (BinlogCorruptError("unreadable"), SourceConnectionError("not there"), "unreadable"),
        (BinlogCorruptError("unreadable"), None, "unreadable"),
        (StateError("something else"), BinlogPurgedError("replaced"), "something else"),
    ],
)
def test_a_file_that_cannot_be_read_on_may_have_been_replaced(
    monkeypatch: pytest.MonkeyPatch, error: CdcError, found: CdcError | None, named: str
) -> None:
    """Where a server resets its binlog, a dump that reads the former file gets an error that names no reset."""
    outcomes: list[CdcError | None] = []

    def fail(*_: Any) -> None:
        raise error

    def check_available(*_: Any) -> None:
        if found is not None:
            raise found

    monkeypatch.setattr(drain_driver, "_run_batch", fail)
    monkeypatch.setattr(one_batch, "check_available", check_available)
    monkeypatch.setattr(one_batch, "connect", lambda _: nullcontext())
    job: Any = SimpleNamespace(write_outcome=lambda batch, *, error: outcomes.append(error))
    planned, unused = PlannedBatch(plan(), offsets_checked=True), SimpleNamespace()
    with pytest.raises(CdcError, match=named) as caught:
        drain_driver._complete_batch(CFG, None, job, planned, *[unused] * 5)  # type: ignore[arg-type]
    assert outcomes == [caught.value]


@pytest.mark.parametrize("epoch, done", [(1, False), (7, True)], ids=["not done", "of another batch"])
def test_a_batch_is_complete_when_each_writers_marker_says_so(
    monkeypatch: pytest.MonkeyPatch, epoch: int, done: bool
) -> None:
    """A writer that ended without an error and without its marker had its commit confirmed, and Kafka lost that."""
    batch = plan()
    planned = PlannedBatch(batch, offsets_checked=True)
    markers = {n: Marker(1, n, START, END, ResumePosition(END, 0), done=True, counts={"t": 3}) for n in range(2)}
    monkeypatch.setattr(one_batch, "begin_pinned_plan", lambda *_: (LedgerState(plan=batch), batch))
    for name in (
        "prepare_topics",
        "record_history_id",
        "delete_chunk_records",
    ):
        monkeypatch.setattr(one_batch, name, lambda *_, **__: None)
    monkeypatch.setattr(one_batch, "load_schema_state", lambda *_, **__: SchemaState())
    monkeypatch.setattr(one_batch, "history_end", lambda *_: TopicEnd("history", 7))
    monkeypatch.setattr(one_batch, "check_available", lambda *_: pytest.fail("it was just looked at"))
    monkeypatch.setattr(drain_driver, "server_variables", lambda *_: None)
    job: Any = SimpleNamespace(
        create_topics=lambda specs: None,
        history_cache=HistoryCache(),
        add_table_counts=lambda tables: None,
        ends_due=lambda counts: {},
        add_native_counts=lambda counts: None,
        native_counts=NativeCounts(),
        put=lambda key, value: None,
        read=lambda **_: LedgerState(plan=batch, markers=markers),
        latest=lambda: LedgerState(plan=batch, markers=markers),
        metrics=JobMetrics(CFG),
    )
    result = run_batch(planned, job)
    assert (result.plan, result.counts, result.refusal) == (batch, {"t": 6}, None)
    markers[1] = replace(markers[1], epoch=epoch, done=done)
    with pytest.raises(RecordsLostError, match="lacks markers of batch 1: it has those of 1 of 2 writers"):
        run_batch(planned, job)


def test_a_batch_behind_another_is_not_begun_where_the_history_was_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its structures are those of the batch before, and are not read from the topic."""

    def lost(*_: Any) -> None:
        raise SchemaError("the schema history is lost")

    monkeypatch.setattr(one_batch, "begin_pinned_plan", lambda cfg, job, plan, *_: (LedgerState(), plan))
    monkeypatch.setattr(one_batch, "unread_purged_line", lambda *_: "")
    monkeypatch.setattr(one_batch, "require_recorded_history", lost)
    job: Any = SimpleNamespace()
    with pytest.raises(SchemaError, match="lost"):
        one_batch.begin_batch(config(), job, plan(2, START, END), print, SchemaState(), offsets_checked=True)
