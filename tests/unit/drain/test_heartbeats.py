"""Heartbeats of a job: at their interval, whoever writes them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kit.memory_job import config

from airflow_provider_mysql_cdc.cdc.drain.heartbeats import Heartbeats, HeartbeatTimer
from airflow_provider_mysql_cdc.cdc.errors import RunInProgressError


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_first_heartbeat_is_due_at_once_and_the_others_after_the_interval() -> None:
    clock = Clock()
    timer = HeartbeatTimer(10, clock)
    taken = []
    for _ in range(25):
        taken.append(timer.take())
        clock.now += 1
    assert [i for i, due in enumerate(taken) if due] == [0, 10, 20]


def test_the_heartbeats_of_a_batch_count() -> None:
    clock = Clock()
    timer = HeartbeatTimer(10, clock)
    assert timer.seconds_left() == 0
    timer.restart()
    clock.now += 4
    assert timer.seconds_left() == 6 and not timer.take()


def test_there_are_none_without_an_interval() -> None:
    timer = HeartbeatTimer(0)
    assert not timer.take() and timer.seconds_left() == 0


@pytest.mark.req("STRM-27", "STRM-30")
def test_a_job_that_waits_writes_heartbeats_and_runs_the_statement() -> None:
    written: list[Any] = []
    statements: list[str] = []
    job: Any = SimpleNamespace(commit=written.extend)
    conn: Any = SimpleNamespace(cursor=lambda: Cursor(statements))
    cfg = config(**{"heartbeat.interval.ms": "600000", "heartbeat.action.query": "INSERT INTO d.beat VALUES (1)"})
    heartbeats = Heartbeats(cfg, lambda: conn, job, lambda: None)
    heartbeats.run_action()
    heartbeats.while_waiting()
    heartbeats.while_waiting()
    assert len(written) == 1 and written[0].topic.startswith("__debezium-heartbeat.")
    assert statements == ["INSERT INTO d.beat VALUES (1)"], "once in an interval"


def test_a_run_without_its_lock_writes_no_heartbeat() -> None:
    def require_lock() -> None:
        raise RunInProgressError("this run has lost its lock")

    job: Any = SimpleNamespace(commit=lambda records: pytest.fail("another run may be at work"))
    with pytest.raises(RunInProgressError):
        Heartbeats(config(**{"heartbeat.interval.ms": "1"}), lambda: None, job, require_lock).while_waiting()


class Cursor:
    def __init__(self, statements: list[str]) -> None:
        self.execute = statements.append

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *_: object) -> None:
        pass
