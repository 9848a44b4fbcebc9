"""A stage of tasks: what they are started with, and what the stage ends with when a task or the driver fails."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from kit.memory_job import config
from pipelinelib.stand_ins import ThreadRunner

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import SourceError, StateError
from airflow_provider_mysql_cdc.cdc.job.stage_runner import StageArguments, StageLeader, StageRunner, open_task
from airflow_provider_mysql_cdc.cdc.job.task_barrier import BarrierPoint, TaskBarrier
from airflow_provider_mysql_cdc.cdc.job.task_operation import EMPTY, EmptyMessage, TaskHandler, TaskOperation

CFG = config()
READY = BarrierPoint.declare("ready", EmptyMessage)
COUNT = TaskOperation("count", EmptyMessage, EmptyMessage)


def stage_runner(runner: Any = None) -> StageRunner:
    ids: Any = SimpleNamespace(handler=lambda: TaskHandler("schema", lambda task, request: {}))
    return StageRunner(CFG, ThreadRunner(3) if runner is None else runner, ids)


def leader(barrier: TaskBarrier, lead: Any = None) -> StageLeader:
    def release(stage_ended: threading.Event) -> None:
        barrier.wait(READY)
        barrier.release(READY, EMPTY)

    return StageLeader(CFG, barrier, lead or release, "leading the stage failed", 10)


def counting_task(index: int, arguments: StageArguments[str]) -> tuple[int, str, ConnectorConfig]:
    with open_task(index, arguments) as (cfg, channel):
        channel.call(COUNT, EMPTY)
        return index, arguments.inputs, cfg


def meeting_task(index: int, arguments: StageArguments[str]) -> int:
    with open_task(index, arguments) as (_, channel):
        if arguments.inputs == f"fail {index}":
            raise SourceError("a table is gone", where="d.t")
        if arguments.inputs == f"break {index}":
            raise KeyError("a bug")
        READY.arrive(channel)
        return index


def test_tasks_get_their_inputs_and_the_configuration_and_are_answered() -> None:
    counted: list[int] = []

    def count(task: int, request: EmptyMessage) -> EmptyMessage:
        counted.append(task)
        return EMPTY

    results = stage_runner().run(counting_task, 3, "inputs", [COUNT.handled_by(count)])
    assert [(index, inputs) for index, inputs, _ in results] == [(n, "inputs") for n in range(3)]
    assert all(cfg.properties() == CFG.properties() for *_, cfg in results) and sorted(counted) == [0, 1, 2]


def test_tasks_of_a_barrier_wait_for_the_driver_which_learns_of_their_end() -> None:
    barrier = TaskBarrier(3, 60)
    ended: list[bool] = []

    def lead(stage_ended: threading.Event) -> None:
        barrier.wait(READY)
        barrier.release(READY, EMPTY)
        ended.append(stage_ended.wait(60))

    handlers = [barrier.handler(READY)]
    assert stage_runner().run_barrier(meeting_task, leader(barrier, lead), "", handlers) == [0, 1, 2]
    assert ended == [True]


def test_a_task_that_fails_ends_the_others_with_its_error() -> None:
    barrier = TaskBarrier(3, 60)
    led = leader(barrier)
    with pytest.raises(SourceError, match="a table is gone"):
        stage_runner().run_barrier(meeting_task, led, "fail 1", [barrier.handler(READY)])
    assert isinstance(led.error, SourceError) and not led.is_alive()


def test_a_task_that_is_lost_ends_the_others() -> None:
    barrier = TaskBarrier(3, 60)
    led = leader(barrier)
    with pytest.raises((KeyError, StateError)):
        stage_runner().run_barrier(meeting_task, led, "break 1", [barrier.handler(READY)])
    assert isinstance(led.error, StateError) and "task 1 of the job was lost" in led.error.message()


@pytest.mark.parametrize(
    ("raised", "what"),
    [(SourceError("no lock", where="d.t"), "no lock"), (ValueError("a bug"), "leading the stage failed")],
)
def test_an_error_of_the_drivers_part_ends_the_tasks(raised: Exception, what: str) -> None:
    barrier = TaskBarrier(3, 60)

    def lead(stage_ended: threading.Event) -> None:
        barrier.wait(READY)
        raise raised

    with pytest.raises((SourceError, StateError), match=what):
        stage_runner().run_barrier(meeting_task, leader(barrier, lead), "", [barrier.handler(READY)])


def test_an_error_after_the_tasks_end_is_the_stages() -> None:
    barrier = TaskBarrier(3, 60)

    def lead(stage_ended: threading.Event) -> None:
        barrier.wait(READY)
        barrier.release(READY, EMPTY)
        stage_ended.wait(60)
        raise SourceError("the lock could not be freed", where="d.t")

    with pytest.raises(SourceError, match="could not be freed"):
        stage_runner().run_barrier(meeting_task, leader(barrier, lead), "", [barrier.handler(READY)])


def test_a_stage_that_does_not_begin_ends_the_drivers_part_and_says_why() -> None:
    """Why the executors run no task is what a person needs, not that the stage failed."""
    barrier = TaskBarrier(3, 60)
    led = leader(barrier)
    runner: Any = SimpleNamespace(endpoint=ThreadRunner.endpoint, run=no_executors)
    with pytest.raises(StateError, match="no executors"):
        stage_runner(runner).run_barrier(meeting_task, led, "", [barrier.handler(READY)])
    assert isinstance(led.error, StateError) and not led.is_alive()


def no_executors(*_: Any, **__: Any) -> list[Any]:
    raise StateError("no executors")
