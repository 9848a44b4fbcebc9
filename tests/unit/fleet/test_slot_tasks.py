"""The calls of a fleet: what happens to each when a task fails, is lost or is started again."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from pipelinelib.stand_ins import ThreadRunner

from airflow_provider_mysql_cdc.cdc.errors import ConfigError, SourceConnectionError, StateError
from airflow_provider_mysql_cdc.cdc.fleet import slot_tasks
from airflow_provider_mysql_cdc.cdc.fleet.shared_slots import SharedSlots
from airflow_provider_mysql_cdc.cdc.fleet.slot_tasks import (
    CallRequest,
    SlotTasks,
    open_signed,
    sign,
)
from airflow_provider_mysql_cdc.cdc.job import coordinator
from airflow_provider_mysql_cdc.cdc.job.coordinator import Endpoint

WAIT_S = 60
ALL_CALLED, UNPICKLED = threading.Event(), list[str]()


class Jobs(ThreadRunner):
    """Count the jobs; the first ones fail before their tasks begin, if that is wished."""

    def __init__(self, broken: int = 0) -> None:
        super().__init__()
        self.count, self._broken = 0, broken

    def run(self, *arguments: Any, **more: Any) -> Any:
        self.count += 1
        if self.count <= self._broken:
            raise ConfigError("no Python on the executors")
        return super().run(*arguments, **more)


@pytest.fixture(autouse=True)
def calls() -> Iterator[None]:
    ALL_CALLED.clear()
    UNPICKLED.clear()
    yield
    ALL_CALLED.set()


def work(index: int, argument: str) -> str:
    """Do what the argument says."""
    assert ALL_CALLED.wait(WAIT_S)
    if argument == "refused":
        raise SourceConnectionError("gone", remedy="start it")
    if argument == "lost":
        raise LookupError("the worker is gone")
    return "x" * 1000 if argument == "large" else f"{argument} {index}"


class Opened:
    def __reduce__(self) -> Any:
        return UNPICKLED.append, ("somebody else's",)


def carry_out(tasks: SlotTasks, arguments: list[str]) -> list[Any]:
    """Make all calls at the same time; return what each ends with."""
    ended: list[Any] = [None] * len(arguments)

    def call(number: int) -> None:
        try:
            ended[number] = tasks.run(work, 1, arguments[number])
        except Exception as error:
            ended[number] = error

    threads = [threading.Thread(target=call, args=(n,), daemon=True) for n in range(len(arguments))]
    for number, thread in enumerate(threads):
        thread.start()
        while tasks._numbers <= number:  # in order
            threading.Event().wait(0.001)
    ALL_CALLED.set()
    for thread in threads:
        thread.join(WAIT_S)
    tasks.close()
    assert not tasks._live, "the tasks of the slots have ended"
    return ended


def test_the_calls_of_forty_streams_need_a_job_for_each_slot() -> None:
    jobs = Jobs()
    ended = carry_out(SlotTasks(jobs, SharedSlots(2), Endpoint()), [f"stream {n}" for n in range(40)])
    assert ended == [[f"stream {n} 0"] for n in range(40)]
    assert jobs.count == 2


def test_a_named_error_ends_its_call_alone() -> None:
    jobs = Jobs()
    ended = carry_out(SlotTasks(jobs, SharedSlots(1), Endpoint()), ["one", "refused", "two", "refused", "three"])
    refused = [error for error in ended if isinstance(error, SourceConnectionError)]
    assert [error.remedy for error in refused] == ["start it", "start it"]
    assert [each for each in ended if isinstance(each, list)] == [["one 0"], ["two 0"], ["three 0"]]
    assert jobs.count == 1


def test_a_lost_task_ends_its_call_alone_and_others_carry_out_the_rest() -> None:
    jobs = Jobs()
    ended = carry_out(SlotTasks(jobs, SharedSlots(1), Endpoint()), ["one", "lost", "two", "lost", "three"])
    assert [type(each) for each in ended if not isinstance(each, list)] == [LookupError, LookupError]
    assert [each for each in ended if isinstance(each, list)] == [["one 0"], ["two 0"], ["three 0"]]
    assert jobs.count == 3


def test_a_result_that_no_message_holds_is_that_of_the_spark_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot_tasks, "MAX_CALL_BYTES", 400)
    monkeypatch.setattr(coordinator, "MAX_LINE_BYTES", 800)
    jobs = Jobs()
    ended = carry_out(SlotTasks(jobs, SharedSlots(1), Endpoint()), ["one", "large", "two"])
    assert ended == [["one 0"], ["x" * 1000], ["two 0"]]
    assert jobs.count == 2, "the slot's task ends with the large result, and another one goes on"


def test_where_spark_runs_no_task_each_call_ends_with_its_error() -> None:
    ended = carry_out(SlotTasks(Jobs(broken=1000), SharedSlots(2), Endpoint()), ["one", "two", "three"])
    assert [str(error) for error in ended] == ["no Python on the executors. A retry will not help."] * 3
    ended = carry_out(SlotTasks(Jobs(broken=1), SharedSlots(1), Endpoint()), ["one", "two"])
    assert [type(each) for each in sorted(ended, key=str)] == [list, ConfigError]


def test_a_task_that_is_started_again_has_the_call_of_its_first_copy_and_the_first_copy_ends() -> None:
    tasks = SlotTasks(ThreadRunner(), SharedSlots(1), Endpoint())
    ended: list[Any] = []
    tasks._start_slots = lambda: None  # type: ignore[method-assign]
    tasks._live = {7}
    caller = threading.Thread(target=lambda: ended.append(tasks.run(work, 2, "again")), daemon=True)
    caller.start()
    first = tasks._next(7, CallRequest())
    assert first.number == 1 and tasks._next(7, CallRequest()) == first
    done = CallRequest(1, sign("again 0", tasks._key))
    second = tasks._next(7, done)
    assert second.number == 2
    assert tasks._next(7, done).number == 0, "both copies would carry out the second call"
    assert tasks._next(8, CallRequest()).number == 0, "a task that the driver has given up"
    tasks._next(7, CallRequest(2, sign("again 1", tasks._key)))
    caller.join(WAIT_S)
    tasks._live.clear()
    tasks.close()
    assert ended == [["again 0", "again 1"]]


def test_only_what_has_the_right_signature_is_opened() -> None:
    key = os.urandom(32)
    assert open_signed(sign({"a": 1}, key), key) == {"a": 1}
    with pytest.raises(StateError, match="wrong signature"):
        open_signed(sign(Opened(), os.urandom(32)), key)
    assert UNPICKLED == []


def test_the_error_of_a_result_that_cannot_be_opened_is_that_of_its_call() -> None:
    tasks = SlotTasks(ThreadRunner(), SharedSlots(1), Endpoint())
    ended: list[Any] = []
    tasks._start_slots = lambda: None  # type: ignore[method-assign]
    tasks._live = {7}

    def call() -> None:
        try:
            tasks.run(work, 1, "one")
        except StateError as error:
            ended.append(error)

    caller = threading.Thread(target=call, daemon=True)
    caller.start()
    number = tasks._next(7, CallRequest()).number
    tasks._next(7, CallRequest(number, sign("one", os.urandom(32))))
    caller.join(WAIT_S)
    tasks._live.clear()
    tasks.close()
    assert len(ended) == 1 and UNPICKLED == []
