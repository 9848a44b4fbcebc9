"""A writer whose executor freezes is replaced, and comes back: nothing that it goes on with is visible."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from kit.records import compacted, duplicates, require_chain
from kit.sql import execute, rows
from pipelinelib.pipeline import Pipeline
from pipelinelib.stand_ins import ThreadRunner

from airflow_provider_mysql_cdc.cdc.drain import drain_driver
from airflow_provider_mysql_cdc.cdc.errors import FencedError
from airflow_provider_mysql_cdc.cdc.incremental.drain_job import run_drain
from airflow_provider_mysql_cdc.cdc.sink.writer import TransactionalWriter

ROWS = 30
PROPERTIES = {
    "cdc.id.header": "true",
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
    "topic.creation.default.partitions": "2",
    "poll.interval.ms": "50",
    "drain.writers": "2",
    "drain.small.batch.bytes": "0",
}
Action = Callable[[], object]


class ReplacedTasks(ThreadRunner):
    """Run each task as a thread; another one with the same index can replace it, as Spark does for a lost executor."""

    def __init__(self) -> None:
        super().__init__(4)
        self.stages = 0
        self.ends: list[BaseException | None] = []
        self._start: Callable[[int], threading.Thread] | None = None
        self._threads: dict[int, threading.Thread] = {}

    def run(self, task: Any, count: int, arguments: Any, *, barrier: bool) -> Any:
        errors: dict[int, BaseException] = {}
        self.stages += 1

        def run_one(index: int) -> None:
            try:
                task(index, arguments)
                end: BaseException | None = None
            except BaseException as error:
                end = error
            if self._threads[index] is not threading.current_thread():
                self.ends.append(end)  # Spark takes no result of an attempt that it has given up
            elif end is not None:
                errors[index] = end

        def start(index: int) -> threading.Thread:
            self._threads[index] = threading.Thread(target=run_one, args=(index,))
            self._threads[index].start()
            return self._threads[index]

        self._start = start
        for index in range(count):
            start(index)
        while alive := [thread for thread in self._threads.values() if thread.is_alive()]:
            alive[0].join(0.1)
        for error in errors.values():
            raise error
        return [None] * count

    def replace(self, index: int) -> None:
        """Start the task once more."""
        assert self._start is not None
        self._start(index)


class Frozen:
    """Stop the first copy of a writer before or behind a commit, until it is to go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, transactional_id: str, *, behind: bool) -> None:
        self.reached, self.thaw = threading.Event(), threading.Event()
        self.armed = False
        commit = TransactionalWriter.commit

        def stop(sink: TransactionalWriter, *arguments: Any) -> None:
            is_meant = self.armed and sink.transactional_id == transactional_id and not self.reached.is_set()
            if behind:
                commit(sink, *arguments)
            if is_meant:
                self.reached.set()
                assert self.thaw.wait(120)
            if not behind:
                commit(sink, *arguments)

        monkeypatch.setattr(TransactionalWriter, "commit", stop)


@pytest.fixture
def pipeline(properties: dict[str, str], root: Any, database: str) -> Pipeline:
    made = Pipeline(properties | PROPERTIES)
    execute(
        root,
        f"USE `{database}`",
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
        f"INSERT INTO t VALUES {','.join(f'({n}, 0)' for n in range(ROWS))}",
    )
    made.snapshot()
    return made


@pytest.mark.req("FAULT-01")
@pytest.mark.parametrize(
    ("behind", "back_in"), [(False, "the same batch"), (True, "the next batch")], ids=["before a commit", "behind one"]
)
@pytest.mark.exhaustive(but="behind one")
def test_a_writer_that_comes_back_adds_nothing(
    pipeline: Pipeline, root: Any, monkeypatch: pytest.MonkeyPatch, behind: bool, back_in: str
) -> None:
    runner, prefix = ReplacedTasks(), pipeline.properties["topic.prefix"]
    frozen = Frozen(monkeypatch, f"{prefix}.0", behind=behind)

    def arm() -> None:
        frozen.armed = True

        def replace_it() -> None:
            assert frozen.reached.wait(60)
            runner.replace(0)
            if back_in == "the same batch":
                frozen.thaw.set()

        threading.Thread(target=replace_it).start()

    steps: list[Action] = [arm, frozen.thaw.set, lambda: None]
    plan_next = drain_driver._next_plan

    def plan_step(*arguments: Any) -> Any:
        if not steps:
            return None
        steps.pop(0)()
        execute(root, "UPDATE t SET v = v + 1")
        return plan_next(*arguments)

    monkeypatch.setattr(drain_driver, "_next_plan", plan_step)
    execute(root, "UPDATE t SET v = v + 1")
    run_drain(replace(pipeline.prepare("drain").spec, run_for_s=600), runner, pipeline.log)
    assert pipeline.settle().complete
    assert frozen.reached.is_set()
    assert [type(end) for end in runner.ends] == [FencedError], "the one that was given up"
    records = pipeline.records("t")
    assert duplicates(records) == []
    require_chain(records)
    assert len(records) == ROWS * 5
    assert {row["id"]: row["v"] for row in compacted(records).values()} == dict(rows(root, "SELECT id, v FROM t"))
