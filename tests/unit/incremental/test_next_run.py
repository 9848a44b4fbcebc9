"""With which batch a job goes on: one that was not begun, its own unfinished one, or the next."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import pytest
from kit.memory_job import config, memory_job
from kit.memory_kafka import MemoryKafka
from kit.store_contract import END, plan

from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.errors import RunInProgressError
from airflow_provider_mysql_cdc.cdc.incremental import drain_job
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec

OWNER = "dag/run/task/-1"
CFG = config()
FIRST = replace(plan(writers=1), owner=OWNER)


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(drain_job, "connect", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(drain_job, "plan_drain", lambda cfg, conn, start, epoch, *_, **__: replace(FIRST, epoch=epoch))
    return memory_job(monkeypatch, CFG, MemoryKafka())


def following(planned: BatchPlan, owner: str = OWNER) -> BatchPlan:
    return drain_job._next_plan(CFG, JobSpec("drain", {}, planned.to_json(), owner))


def test_a_batch_that_was_not_begun_is_the_one_to_begin(job: Any) -> None:
    assert following(FIRST).same_work(FIRST)


def test_a_batch_that_was_planned_behind_another_is_not_planned_twice(job: Any) -> None:
    """The offset store has it, with its end."""
    done = replace(FIRST, writers=0, kind="reset")
    job.begin(done)
    planned = replace(FIRST, epoch=2, end=replace(END, pos=END.pos + 7))
    assert following(planned).same_work(planned)


def test_an_unfinished_batch_is_finished_by_its_own_run_alone(job: Any) -> None:
    begun = job.begin(FIRST).plan_in_force()
    assert following(FIRST) == begun
    with pytest.raises(RunInProgressError):
        following(FIRST, "dag/other/task/-1")


def test_behind_a_complete_batch_comes_the_next(job: Any) -> None:
    done = replace(FIRST, writers=0, kind="reset", end=END)
    job.begin(done)
    assert following(done).epoch == done.epoch + 1
