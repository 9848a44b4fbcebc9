"""What a verification refuses before Spark starts, and what it plans, over the in-memory twins.

Arguments of a verification, as values or as a template renders them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from kit.cases import for_each
from kit.memory_job import config, memory_job
from kit.memory_kafka import MemoryKafka
from kit.store_contract import END, plan
from pipelinelib.stand_ins import MemoryOffsetStore

from airflow_provider_mysql_cdc.cdc.commit.offset_store import StoredState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan, Marker
from airflow_provider_mysql_cdc.cdc.commit.topic_records import RecordedTopic, topic_record
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import (
    ConfigError,
    NoOffsetError,
    RunInProgressError,
    SourceSettingError,
    TopicChangedError,
)
from airflow_provider_mysql_cdc.cdc.job import run_lock
from airflow_provider_mysql_cdc.cdc.model.offset import ResumePosition
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.operate import prepare_drain as before_drain
from airflow_provider_mysql_cdc.cdc.operate import prepare_verify as before_verify
from airflow_provider_mysql_cdc.cdc.operate.prepare_drain import IdleReason
from airflow_provider_mysql_cdc.cdc.operate.prepare_job import PreparedJob
from airflow_provider_mysql_cdc.cdc.operate.prepare_verify import parse_request, prepare_verify
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicInfo
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import RepairMode, VerifyRequest

pytestmark = pytest.mark.quick

CFG = config()
OWNER = "dag/run/task/-1"
TABLES = [TableId("shop", "orders"), TableId("shop", "customers")]


class Rig:
    """A stream at ``END`` with a topic for each table."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, fresh: bool = False) -> None:
        self.kafka, self.store = MemoryKafka(), MemoryOffsetStore()
        self.job = memory_job(monkeypatch, CFG, self.kafka)
        self.topics = {f"p.{table}": TopicInfo(1, f"id of {table}") for table in TABLES}
        self.busy: RunInProgressError | None = None
        self.lines: list[str] = []
        self.idle: list[IdleReason] = []
        self.planned: list[bool] = []
        nothing: Callable[..., Any] = lambda *_, **__: None  # noqa: E731
        for name in (
            "require_durable_topics",
            "log_warnings",
            "check_source",
            "check_signal_table",
            "require_own_history",
            "topic_warnings",
            "require_history",
            "require_plan_binlog",
        ):
            monkeypatch.setattr(before_drain, name, nothing)
        for module in (before_drain, before_verify):
            monkeypatch.setattr(module, "connect", lambda _: contextlib.nullcontext())
        monkeypatch.setattr(before_drain, "plan_drain", self._plan)
        monkeypatch.setattr(before_drain, "place_on_server", lambda cfg, conn, offset, *_: offset)
        monkeypatch.setattr(before_drain, "belongs_elsewhere", lambda cfg, plan: False)
        monkeypatch.setattr(before_verify, "captured_tables", lambda *_: TABLES)
        monkeypatch.setattr(before_verify, "make_admin", nothing)
        monkeypatch.setattr(before_verify, "describe_topics", self._describe)
        monkeypatch.setattr(run_lock, "require_sole_run", self._require_sole_run)
        if not fresh:
            self._begin(plan(writers=1), done=True)
            for topic, info in self.topics.items():
                self.job.commit([topic_record(CFG.ledger_topic, topic, RecordedTopic(1, info.id, 1))])
            before_drain.reconcile_store(CFG, self.store, self.lines.append)

    def _plan(self, cfg: Any, conn: Any, start: Any, epoch: int, *_: Any, even_empty: bool, **__: Any) -> BatchPlan:
        self.planned.append(even_empty)
        return plan(epoch, start, start, writers=1)

    def _describe(self, admin: Any, topics: Any, addresses: str) -> dict[str, TopicInfo]:
        return {topic: info for topic, info in self.topics.items() if topic in topics}

    def _require_sole_run(self, *_: Any) -> None:
        if self.busy:
            raise self.busy

    def _begin(self, batch: BatchPlan, *, done: bool) -> None:
        before = self.store.load()
        self.store.save((before or StoredState()).with_plan(batch), before)
        self.job.begin(batch)
        if done:
            marker = Marker(batch.epoch, 0, batch.start, batch.end, ResumePosition(batch.end, 0), done=True)
            self.job.commit([marker.record(CFG.ledger_topic)])

    def prepare(self, request: VerifyRequest | None = None, cfg: ConnectorConfig = CFG) -> PreparedJob | None:
        request = request or VerifyRequest()
        return prepare_verify(
            cfg.of_server("u"), self.store, OWNER, self.lines.append, request, on_idle=self.idle.append
        )

    def written(self) -> Any:
        """Return all that a refusal must leave as it was."""
        state = self.store.load()
        return None if state is None else state.to_json(), self.kafka.committed(CFG.ledger_topic)


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    return Rig(monkeypatch)


def test_it_plans_a_drain_also_when_nothing_is_new_and_ships_the_request(rig: Rig) -> None:
    request = VerifyRequest(("shop.orders",), 10.0, RepairMode.YES, 3, show_values=False)
    job = rig.prepare(request, config(**{"verify.rows.per.second": "500", "repair.max.rows": "70"}))
    assert job is not None
    assert (job.spec.mode, job.plan.kind, job.plan.start, job.plan.end) == ("verify", "drain", END, END)
    assert VerifyRequest.from_json(job.spec.options) == request
    assert job.spec.owner == job.plan.owner and job.spec.id
    assert rig.planned == [True] and rig.idle == []
    state = rig.store.load()
    assert state is not None and state.pending == job.plan
    line = "verifying 1 table(s): 10 % of the keys at 500 rows per second; up to 70 rows are repaired"
    assert line in rig.lines


def test_an_interrupted_batch_is_finished_by_the_verification(rig: Rig) -> None:
    rig._begin(plan(2, END, END.with_position(END.file, 9000), writers=1), done=False)
    job = rig.prepare()
    assert job is not None and (job.plan.epoch, job.plan.owner, job.spec.mode) == (2, OWNER, "verify")


def test_it_gives_way_while_another_run_is_active(rig: Rig) -> None:
    rig.busy = RunInProgressError("another run of this topic.prefix is active", where="p", why="it holds the lock")
    before = rig.written()
    assert rig.prepare() is None
    (reason,) = rig.idle
    assert reason.gave_way and "this verification gives way: another run" in reason.text
    assert rig.written() == before and rig.planned == []


@pytest.mark.parametrize(
    ("request_", "cfg", "error", "what"),
    [
        (VerifyRequest(("shop.ordrs",)), CFG, ConfigError, "a table to verify is not captured .tables: 'shop.ordrs'"),
        (VerifyRequest(("shop.(",)), CFG, ConfigError, "a table entry is invalid"),
        (VerifyRequest(), config(**{"snapshot.mode": "initial_only"}), ConfigError, "never drained cannot be verified"),
    ],
    ids=["not captured", "invalid", "initial_only"],
)
def test_what_cannot_be_verified_is_refused_by_name_and_nothing_is_written(
    rig: Rig, request_: VerifyRequest, cfg: ConnectorConfig, error: type[Exception], what: str
) -> None:
    before = rig.written()
    with pytest.raises(error, match=what):
        rig.prepare(request_, cfg)
    assert rig.written() == before and rig.planned == []


@pytest.mark.parametrize(
    ("now", "text"),
    [
        (None, "p.shop.orders: it was deleted"),
        (TopicInfo(1, "another"), "p.shop.orders: it was deleted and created again"),
        (TopicInfo(2, "id of shop.orders"), "p.shop.orders: it has 2 partitions instead of 1"),
    ],
)
def test_a_topic_that_is_not_the_stream_s_is_refused_and_not_created(
    rig: Rig, now: TopicInfo | None, text: str
) -> None:
    del rig.topics["p.shop.orders"]
    if now is not None:
        rig.topics["p.shop.orders"] = now
    before = rig.written()
    with pytest.raises(TopicChangedError, match="a topic to verify is not the one") as caught:
        rig.prepare()
    assert caught.value.where == text and not caught.value.can_retry
    assert rig.written() == before and rig.planned == []
    assert rig.prepare(VerifyRequest(("shop.customers",))) is not None, "of other tables it is possible"


def test_a_replica_that_cannot_be_read_is_refused_before_anything_is_planned(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def refuse(cfg: ConnectorConfig, conn: Any, tables: Any) -> None:
        asked.append(tables)
        raise SourceSettingError("the server is no replica of the source")

    monkeypatch.setattr(before_verify, "check_replica", refuse)
    before = rig.written()
    with pytest.raises(SourceSettingError, match="no replica"):
        rig.prepare(VerifyRequest(("shop.customers",)))
    assert asked == [(TableId("shop", "customers"),)]
    assert rig.written() == before and rig.planned == []


def test_a_topic_that_was_never_written_is_left_to_the_drain(rig: Rig) -> None:
    rig.job.commit([topic_record(CFG.ledger_topic, "p.shop.orders", None)])
    del rig.topics["p.shop.orders"]
    assert rig.prepare() is not None


def test_without_a_stream_there_is_nothing_to_verify(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch, fresh=True)
    for cfg in (CFG, config(**{"snapshot.mode": "never"})):
        with pytest.raises(NoOffsetError, match="there is no stream to verify"):
            rig.prepare(cfg=cfg)
    assert rig.store.load() is None and rig.planned == []


def test_a_lost_offset_is_restored_from_the_ledger_as_in_a_drain(rig: Rig) -> None:
    rig.store = MemoryOffsetStore()
    job = rig.prepare()
    assert job is not None and job.plan.start == END


@for_each(
    ("arguments", "request_"),
    [
        ({}, VerifyRequest()),
        (
            {"tables": '["a.b", " c.d "]', "sample_percent": "0.5", "repair": "dry-run", "examples": "0"},
            VerifyRequest(("a.b", "c.d"), 0.5, RepairMode.DRY_RUN, 0),
        ),
        (
            {"tables": "a.b", "repair": True, "show_values": False},
            VerifyRequest(("a.b",), 100.0, RepairMode.YES, 10, False),
        ),
        ({"repair": False}, VerifyRequest()),
        ({"repair": None}, VerifyRequest()),
        ({"repair": "YES"}, VerifyRequest(repair=RepairMode.YES)),
    ],
)
def test_arguments_come_as_values_or_as_a_template_renders_them(
    arguments: dict[str, Any], request_: VerifyRequest
) -> None:
    assert parse_request(**arguments) == request_


@for_each(
    ("arguments", "what"),
    [
        *(
            ({"sample_percent": value}, "the sample is out of range")
            for value in (0, -1, 100.1, "x", "", None, "nan", True)
        ),
        *(({"examples": value}, "the number of examples") for value in (-1, 101, 1.5, "many", "inf", None)),
        *(({"repair": value}, "is not a way to repair") for value in ("maybe", "dry run", 1)),
        ({"tables": ["a.(b"]}, "a table entry is invalid"),
    ],
)
def test_arguments_out_of_range_are_refused_by_name(arguments: dict[str, Any], what: str) -> None:
    with pytest.raises(ConfigError, match=what) as caught:
        parse_request(**arguments)
    assert caught.value.where and not caught.value.can_retry
