"""What an operator plans beside what is under way, over the in-memory twins."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from kit.cases import case
from kit.memory_job import config, memory_job
from kit.memory_kafka import MemoryKafka
from kit.store_contract import END, START, plan
from pipelinelib.stand_ins import MemoryOffsetStore

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import VIEW_KEY
from airflow_provider_mysql_cdc.cdc.commit.offset_store import StoredState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan, Marker, reset_plan
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import BinlogPurgedError, NoOffsetError, RunInProgressError, StateError
from airflow_provider_mysql_cdc.cdc.job import run_lock
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, ResumePosition
from airflow_provider_mysql_cdc.cdc.operate import prepare_drain as before_drain
from airflow_provider_mysql_cdc.cdc.operate import prepare_snapshot as before_snapshot
from airflow_provider_mysql_cdc.cdc.operate import snapshot_again
from airflow_provider_mysql_cdc.cdc.operate.prepare_drain import prepare_drain
from airflow_provider_mysql_cdc.cdc.operate.prepare_snapshot import prepare_snapshot

CFG = config().of_server("u")
OWNER = "dag/run/task/-1"
HERE = END.with_position(END.file, 9000)


class Rig:
    """A stream whose state, ledger and binlog a test makes up.

    Args:
        job: The ledger.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, job: JobLedger) -> None:
        self.job, self.store = job, MemoryOffsetStore()
        self.gone: set[BinlogOffset] = set()
        self.resets: list[str] = []
        self.looked: list[tuple[BinlogOffset, BinlogOffset]] = []
        self.undrained = False
        self.lines: list[str] = []
        nothing: Callable[..., Any] = lambda *_, **__: None  # noqa: E731
        monkeypatch.setattr(before_drain, "require_history", nothing)
        for module in (before_drain, before_snapshot):
            for name in (
                "require_durable_topics",
                "log_warnings",
                "check_source",
                "require_own_history",
                "require_new_history",
                "topic_warnings",
            ):
                monkeypatch.setattr(module, name, nothing)
            monkeypatch.setattr(module, "connect", lambda _: contextlib.nullcontext())
            monkeypatch.setattr(module, "reset_offset", self._reset)
            monkeypatch.setattr(module, "place_on_server", lambda cfg, conn, offset, *_: offset)
        for name in ("require_no_other_run", "require_sole_run"):
            monkeypatch.setattr(run_lock, name, nothing)
        monkeypatch.setattr(before_snapshot, "captured_tables", lambda *_: [])
        monkeypatch.setattr(before_snapshot, "end_of_binlog", lambda *_: HERE)
        monkeypatch.setattr(before_snapshot, "check_available", self._available)
        monkeypatch.setattr(before_snapshot, "require_drained", self._drained)
        monkeypatch.setattr(before_drain, "plan_drain", nothing)

    def _available(self, conn: Any, settings: Any, offset: BinlogOffset) -> BinlogOffset:
        if offset in self.gone:
            raise BinlogPurgedError("gone", where=str(offset))
        return offset

    def _drained(self, cfg: Any, start: BinlogOffset, end: BinlogOffset) -> None:
        self.looked.append((start, end))
        if self.undrained:
            raise StateError("not drained")

    def _reset(self, cfg: Any, store: Any, owner: str, log: Any) -> None:
        self.resets.append(owner)
        state = self.state()
        self.job.begin(reset_plan(state.epoch + 1, state.committed or START, owner))

    def state(self) -> StoredState:
        found = self.store.load()
        assert found is not None
        return found

    def begin(self, batch: BatchPlan, *, done: bool) -> None:
        """Store a plan and put it in force; with ``done`` its only writer reaches its end."""
        before = self.store.load()
        self.store.save((before or StoredState()).with_plan(batch), before)
        self.job.begin(batch)
        if done:
            marker = Marker(batch.epoch, 0, batch.start, batch.end, ResumePosition(batch.end, 0), done=True)
            self.job.commit([marker.record(CFG.ledger_topic)])

    def snapshot(self, *, again: bool = True, cfg: ConnectorConfig = CFG) -> BatchPlan | None:
        made = prepare_snapshot(cfg, self.store, OWNER, self.lines.append, again=again)
        return made and made.plan

    def drain(self) -> Any:
        return prepare_drain(CFG, self.store, OWNER, self.lines.append)


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    return Rig(monkeypatch, memory_job(monkeypatch, CFG, MemoryKafka()))


@pytest.fixture
def stream(rig: Rig) -> Rig:
    """Return a stream that stands at ``END``."""
    rig.begin(plan(writers=1), done=True)
    return rig


FOLLOWING = plan(2, END, HERE, writers=1)
OF_BOTH = ("require_durable_topics", "check_source", "check_signal_table", "require_own_history", "topic_warnings")
CHECKS: dict[Any, tuple[str, ...]] = {
    before_drain: (*OF_BOTH, "require_history", "require_recorded_history", "require_only_own_records", "log_warnings"),
    before_snapshot: (*OF_BOTH, "log_warnings", "require_drained"),
}


@pytest.mark.parametrize("module", CHECKS, ids=["drain", "snapshot"])
def test_each_check_refuses_before_a_plan_is_stored(stream: Rig, monkeypatch: pytest.MonkeyPatch, module: Any) -> None:
    """A driver makes some of them again, behind the start of Spark."""
    stream.drain()
    before = stream.state()
    monkeypatch.setattr(before_drain, "plan_drain", lambda *_, **__: FOLLOWING)

    def refuse(*_: Any, **__: Any) -> None:
        raise StateError("refused")

    for name in CHECKS[module]:
        with monkeypatch.context() as patch, case(name), pytest.raises(StateError, match="refused"):
            for each in CHECKS[module]:
                patch.setattr(module, each, refuse if each == name else lambda *_, **__: None)
            stream.drain() if module is before_drain else stream.snapshot()
        assert stream.state() == before


def test_a_new_snapshot_is_refused_while_a_batch_is_not_finished(stream: Rig) -> None:
    """Its rest would be left out for good."""
    stream.drain()
    stream.begin(FOLLOWING, done=False)
    before = stream.state()
    with pytest.raises(StateError, match="a new snapshot cannot start while batch 2 is not finished") as caught:
        stream.snapshot()
    assert caught.value.can_retry and stream.state() == before and stream.resets == []
    assert stream.snapshot(again=False) is None


@pytest.mark.parametrize("gone", [END, HERE], ids=["its start", "its end"])
def test_a_batch_that_no_drain_can_finish_is_given_up_for_a_new_snapshot(stream: Rig, gone: BinlogOffset) -> None:
    stream.drain()
    stream.begin(FOLLOWING, done=False)
    stream.gone = {gone}
    made = stream.snapshot()
    assert made is not None and made.kind == "snapshot" and stream.resets == [OWNER]


def test_a_new_snapshot_of_a_stream_looks_for_what_is_not_drained(stream: Rig) -> None:
    stream.drain()
    stream.undrained = True
    before = stream.state()
    with pytest.raises(StateError, match="not drained"):
        stream.snapshot()
    assert stream.state() == before and stream.looked == [(END, HERE)]
    stream.undrained = False
    made = stream.snapshot()
    assert made is not None and made.gapless and (made.start, made.end) == (END, HERE)


NEEDED = config(snapshot__mode="when_needed").of_server("u")


@pytest.mark.req("SNAP-05")
def test_mode_when_needed_takes_a_snapshot_where_no_offset_is_stored(rig: Rig) -> None:
    first = rig.snapshot(again=False, cfg=NEEDED)
    assert first is not None and first.kind == "snapshot"


@pytest.mark.req("SNAP-05")
def test_mode_when_needed_takes_a_snapshot_where_the_stored_offset_is_gone(stream: Rig) -> None:
    stream.drain()
    assert stream.snapshot(again=False, cfg=NEEDED) is None
    stream.gone = {END}
    assert stream.snapshot(again=False) is None, "the mode initial leaves the gap to a person"
    later = stream.snapshot(again=False, cfg=NEEDED)
    assert later is not None and later.kind == "snapshot" and later.end == HERE and not later.gapless
    assert any(line.startswith("snapshot.mode=when_needed: ") for line in stream.lines)


def test_nothing_is_looked_for_before_the_first_snapshot_or_where_a_person_decided(rig: Rig) -> None:
    rig.undrained = True
    first = rig.snapshot(again=False)
    assert first is not None and not first.gapless and first.start == HERE
    rig.job.begin(reset_plan(2, END, "a person"))
    again = rig.snapshot()
    assert again is not None and not again.gapless and rig.looked == []
    assert any("set by hand" in line for line in rig.lines)


def test_a_snapshot_that_waits_for_the_drain_is_set_aside_and_one_that_has_begun_is_not(stream: Rig) -> None:
    stream.drain()
    waiting = replace(plan(2, END, HERE, writers=1), kind="snapshot", gapless=True)
    stream.begin(waiting, done=False)
    stream.drain()
    assert stream.resets == [OWNER] and any("is discarded" in line for line in stream.lines)
    stream.begin(replace(waiting, epoch=4), done=False)
    stream.job.put(VIEW_KEY, {"epoch": 4, "offset": HERE.to_json(), "ts_ms": 7})
    with pytest.raises(NoOffsetError, match="snapshot 4 is not finished"):
        stream.drain()
    assert stream.resets == [OWNER]


@pytest.mark.parametrize("begun", [True, False], ids=["one that has read nothing", "a first one"])
def test_a_snapshot_during_another_run_is_refused_before_a_plan_is_stored(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, begun: bool
) -> None:
    """Taking a plan over before the lock is asked for would fence the writers of the run that is at work."""
    if begun:
        rig.begin(replace(plan(1, END, HERE, writers=1), kind="snapshot", owner="another/run/task/-1"), done=False)
    before, asked = rig.store.load(), []

    def refuse(*arguments: Any) -> None:
        asked.append(arguments[-1])
        raise RunInProgressError("another run is at work")

    monkeypatch.setattr(before_snapshot, "require_plan_binlog", lambda *_: None)
    for name in ("require_no_other_run", "require_sole_run"):
        monkeypatch.setattr(run_lock, name, refuse)
    with pytest.raises(RunInProgressError) as caught:
        rig.snapshot(again=False)
    assert caught.value.can_retry and asked == [OWNER]
    after = rig.store.load()
    assert (after and after.pending) == (before and before.pending) and rig.resets == []


def test_a_replica_that_lags_behind_the_stream_is_no_loss_of_changes(
    stream: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever took it for one would skip changes, or read all tables anew."""

    def lagging(*_: Any) -> None:
        raise BinlogPurgedError("not executed yet", retriable=True)

    for module in (before_snapshot, snapshot_again):
        monkeypatch.setattr(module, "check_available", lagging)
    monkeypatch.setattr(snapshot_again, "place_on_server", lambda cfg, conn, offset: offset)
    needed = config(snapshot__mode="when_needed")
    for look in (
        lambda: before_snapshot._snapshot_required(needed, None, END, print),
        lambda: before_snapshot.undrained_start(CFG, None, END, None, print),
        lambda: before_snapshot._set_aside_purged(CFG, stream.store, OWNER, print, FOLLOWING),
        lambda: snapshot_again._purged_reason(CFG, None, stream.state()),
    ):
        with pytest.raises(BinlogPurgedError, match="not executed yet"):
            look()
