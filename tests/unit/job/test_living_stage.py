"""Tasks that take one piece of work after another: who gets what, and what ends them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from pipelinelib.stand_ins import ThreadRunner

from airflow_provider_mysql_cdc.cdc.errors import SourceError, StateError
from airflow_provider_mysql_cdc.cdc.job.task_barrier import LivingStage

pytestmark = pytest.mark.quick
NOTHING = (0, "")


class Tasks:
    """Tasks that note what they are given, each with the thread that carries it out."""

    def __init__(self, count: int, *, single: bool = False, at_once: bool = True) -> None:
        self.seen: list[tuple[int, str, threading.Thread]] = []
        self.fail: Callable[[int, str], None] = lambda task, work: None
        self._count, self._at_once = count, at_once
        self.stage = LivingStage(count, self._run, NOTHING, single=single)

    def _run(self) -> None:
        if self._at_once:
            ThreadRunner().run(lambda task, _: self._task(task), self._count, None, barrier=False)
            return
        for task in range(self._count):
            self._task(task)

    def _task(self, task: int) -> None:
        done = 0
        try:
            while (given := self.stage.next_work(task, done)) != NOTHING:
                done, work = given
                self.seen.append((task, work, threading.current_thread()))
                self.fail(task, work)
        except SourceError as error:
            self.stage.on_lost(task, error)  # as the coordinator does
            raise


def test_the_same_tasks_carry_out_one_piece_of_work_after_another() -> None:
    tasks = Tasks(2)
    for number, work in enumerate(("a", "b", "c"), 1):
        assert number == 1 or tasks.stage.alive
        tasks.stage.carry_out(number, (number, work))
        assert sorted((task, seen) for task, seen, _ in tasks.seen[-2:]) == [(0, work), (1, work)]
    tasks.stage.close()
    assert not tasks.stage.alive
    for task in range(2):
        assert len({thread for seen, _, thread in tasks.seen if seen == task}) == 1


def test_tasks_that_do_not_run_at_once_end_after_their_only_piece_of_work() -> None:
    tasks = Tasks(3, single=True, at_once=False)
    tasks.stage.carry_out(7, (7, "a"))
    assert [(task, work) for task, work, _ in tasks.seen] == [(0, "a"), (1, "a"), (2, "a")]
    assert not tasks.stage.alive


def test_an_error_of_a_task_ends_the_work_and_the_tasks() -> None:
    tasks = Tasks(2)
    tasks.stage.carry_out(1, (1, "a"))

    def fail(task: int, work: str) -> None:
        if task:
            raise SourceError("a table is gone")

    def carry_out() -> None:
        try:
            tasks.stage.carry_out(2, (2, "b"))
        except SourceError as error:
            errors.append(error)

    tasks.fail, errors = fail, list[SourceError]()
    carrying = threading.Thread(target=carry_out, daemon=True)
    carrying.start()
    carrying.join(20)
    tasks.stage.close()
    assert [error.what for error in errors] == ["a table is gone"], "nobody waits for the task that is lost"
    assert not tasks.stage.alive


def test_tasks_that_end_without_their_work_are_lost() -> None:
    stage: LivingStage[Any] = LivingStage(1, lambda: None, NOTHING, single=False)
    with pytest.raises(StateError, match="the stage of the job's tasks failed"):
        stage.carry_out(1, (1, "a"))
    assert stage.next_work(0, 0) == NOTHING, "a copy that lives on gets no work of a stage that has ended"


def test_an_error_while_nothing_is_to_be_done_costs_nothing() -> None:
    tasks = Tasks(1)
    tasks.stage.carry_out(1, (1, "a"))

    def run() -> None:
        raise SourceError("the executor is gone")

    failing = LivingStage(1, run, NOTHING, single=False)
    failing._thread.start()
    failing._thread.join(30)
    assert not failing.alive
    failing.close()
    tasks.stage.close()


def test_a_second_copy_of_a_task_gets_what_the_first_one_has_not_done() -> None:
    ending = threading.Event()
    stage: LivingStage[Any] = LivingStage(1, lambda: ending.wait(60), NOTHING, single=False)
    answers: list[Any] = []
    carrying = threading.Thread(target=stage.carry_out, args=(1, (1, "a")), daemon=True)
    carrying.start()
    answers.append(stage.next_work(0, 0))
    answers.append(stage.next_work(0, 0))
    assert answers == [(1, "a"), (1, "a")]
    waiting = threading.Thread(target=lambda: answers.append(stage.next_work(0, 1)), daemon=True)
    waiting.start()
    carrying.join(30)
    assert not carrying.is_alive(), "one of them has done it"
    late = threading.Thread(target=lambda: answers.append(stage.next_work(0, 0)), daemon=True)
    late.start()
    late.join(0.2)
    assert late.is_alive() and len(answers) == 2, "the copy waits for the next piece, too"
    carrying = threading.Thread(target=stage.carry_out, args=(2, (2, "b")), daemon=True)
    carrying.start()
    for thread in (waiting, late):
        thread.join(30)
    assert answers[2:] == [(2, "b"), (2, "b")]
    threading.Thread(target=stage.next_work, args=(0, 2), daemon=True).start()
    carrying.join(30)
    ending.set()
    stage.close()
