"""Where the tasks of a stage wait for each other and for the driver."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from airflow_provider_mysql_cdc.cdc.errors import StateError
from airflow_provider_mysql_cdc.cdc.job.task_barrier import BarrierPoint, TaskBarrier

ANY_REPLY: Any = dict
READY: BarrierPoint[Any] = BarrierPoint.declare("ready", ANY_REPLY)
OPENED: BarrierPoint[Any] = BarrierPoint.declare("opened", ANY_REPLY)


class Task(threading.Thread):
    """A task that arrives at a point; ``got`` is what it was told, or the error."""

    def __init__(self, meeting: TaskBarrier, point: BarrierPoint[Any], number: int) -> None:
        super().__init__(daemon=True)
        self.meeting, self.point, self.number = meeting, point, number
        self.got: Any = None
        self.start()

    def run(self) -> None:
        try:
            self.got = self.meeting.arrive(self.point, self.number)
        except Exception as error:
            self.got = error

    def told(self) -> Any:
        self.join(10)
        assert not self.is_alive(), "nobody woke it"
        return self.got


def test_all_wait_for_all() -> None:
    meeting = TaskBarrier(2, 60)
    first = Task(meeting, READY, 0)
    waiter = threading.Thread(target=meeting.wait, args=(READY,), daemon=True)
    waiter.start()
    waiter.join(0.2)
    assert waiter.is_alive() and first.is_alive(), "the other one has not come"
    second = Task(meeting, READY, 1)
    waiter.join(10)
    assert not waiter.is_alive()
    meeting.release(OPENED, {"no": "matter"})
    first.join(0.1)
    assert first.is_alive(), "another stage was released"
    meeting.release(READY, {"go": 1})
    assert [task.told() for task in (first, second)] == [{"go": 1}] * 2


@pytest.mark.parametrize("released", [False, True])
def test_a_second_attempt_of_a_task_is_not_given_the_view_of_the_first(released: bool) -> None:
    """Spark begins a task again when it holds its executor for lost, which may go on behind a broken network."""
    meeting = TaskBarrier(2, 60)
    tasks = [Task(meeting, READY, 0), Task(meeting, READY, 1)]
    meeting.wait(READY)
    if released:
        meeting.release(READY, {"go": 1})
        assert [task.told() for task in tasks] == [{"go": 1}] * 2
    with pytest.raises(StateError, match="started a task a second time") as caught:
        meeting.arrive(READY, 1)
    assert caught.value.can_retry
    with pytest.raises(StateError, match="started a task a second time"):
        meeting.wait(OPENED)
    assert released or [task.told() for task in tasks] == [caught.value] * 2


def test_who_comes_late_finds_the_stage_released() -> None:
    meeting = TaskBarrier(2, 60)
    meeting.release(READY, {"go": 1})
    assert meeting.arrive(READY, 1) == {"go": 1}


def test_tasks_that_do_not_come_in_time_are_counted() -> None:
    meeting = TaskBarrier(3, 0.01)
    with pytest.raises(StateError, match="only 0 of 3 tasks reached the barrier 'opened' within 0 s") as caught:
        meeting.wait(OPENED)
    assert caught.value.why == "no report yet from task 0, 1, 2" and "snapshot.parallelism" in caught.value.remedy
    task = Task(meeting, OPENED, 2)
    while not meeting._arrived:
        task.join(0.01)
    with pytest.raises(StateError, match="only 1 of 3 tasks reached the barrier 'opened'") as caught:
        meeting.wait(OPENED)
    assert caught.value.can_retry and caught.value.why == "no report yet from task 0, 1"
    for number in (0, 1):
        Task(meeting, READY, number)
    while len(meeting._arrived.get("ready", ())) < 2:
        task.join(0.01)
    with pytest.raises(StateError, match="only 1 of 3 tasks") as caught:
        meeting.wait(OPENED)
    assert caught.value.why == "on the way there: task 0, 1" and "snapshot.parallelism" not in caught.value.remedy
    meeting.release(OPENED, {})
    assert task.told() == {}


def test_a_failure_ends_all_waiting_and_the_first_one_counts() -> None:
    meeting = TaskBarrier(2, 60)
    task = Task(meeting, READY, 0)
    raised: list[Exception] = []

    def wait() -> None:
        try:
            meeting.wait(READY)
        except StateError as error:
            raised.append(error)

    waiter = threading.Thread(target=wait, daemon=True)
    waiter.start()
    first = StateError("the first")
    meeting.fail(first)
    meeting.fail(StateError("the second"))
    waiter.join(10)
    assert not waiter.is_alive() and raised == [first] and task.told() is first
    for late in (lambda: meeting.arrive(OPENED, 1), lambda: meeting.wait(OPENED)):
        with pytest.raises(StateError, match="the first"):
            late()


def test_the_last_round_is_the_one_with_the_highest_number() -> None:
    meeting = TaskBarrier(1, 1)
    for name in ("ready", "opened", "again1", "opened1", "again9", "opened9", "again10", "opened10", "again11"):
        point = (OPENED if name.startswith("opened") else READY).named(name)
        meeting.release(point, {})
        meeting.arrive(point, 0)
        if name == "opened":
            assert meeting.last_reached(OPENED) == OPENED
    assert meeting.last_reached(OPENED) == OPENED.named("opened10")
