"""Which batches one stage of writers writes, and when other writers begin."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from kit.memory_job import config
from kit.store_contract import END, START, plan
from pipelinelib.stand_ins import ThreadRunner

from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.drain import batch_writers
from airflow_provider_mysql_cdc.cdc.drain.batch_run import WriterInputs
from airflow_provider_mysql_cdc.cdc.drain.batch_writers import BatchWriters, RefusedSchemas, SucceedingRunner
from airflow_provider_mysql_cdc.cdc.drain.drain_operations import (
    NEXT_BATCH,
    PROGRESS,
    SCHEMA_REFUSED,
    BatchRequest,
    RefusedSchema,
    WriterReport,
)
from airflow_provider_mysql_cdc.cdc.errors import SchemaError, SourceError
from airflow_provider_mysql_cdc.cdc.job.stage_runner import open_task
from airflow_provider_mysql_cdc.cdc.job.task_operation import EMPTY, EmptyMessage, TaskHandler
from airflow_provider_mysql_cdc.cdc.job.task_runner import Shuffle

CFG = config()
STATE = SchemaState()
INPUTS = WriterInputs(STATE, "run", {"lower_case_table_names": 0})


class Written:
    """What the writers have written: writer, epoch, run id, and the thread, which is one for a task."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int, str, threading.Thread]] = []
        self.fail_at = 0

    def task(self, index: int, arguments: Any) -> None:
        """Stand in for ``drain_task.writer_task``."""
        done = 0
        with open_task(index, arguments) as (_, channel):
            while (batch := channel.call(NEXT_BATCH, BatchRequest(done))).epoch:
                given = arguments.inputs.plan if batch.plan is None else batch.plan
                assert given.epoch == batch.epoch
                if batch.epoch == self.fail_at:
                    error = SchemaError("a schema is refused")
                    channel.call(SCHEMA_REFUSED, RefusedSchema(START, error))
                    raise error
                channel.call(PROGRESS, WriterReport(f"of batch {batch.epoch}", 1))
                self.batches.append((index, batch.epoch, batch.run_id, threading.current_thread()))
                done = batch.epoch

    def tasks_of(self, *epochs: int) -> int:
        """Return how many tasks have written some batches."""
        return len({thread for _, epoch, _, thread in self.batches if epoch in epochs})


class Progress:
    """Take the reports of one batch."""

    def __init__(self) -> None:
        self.reports: list[str] = []

    def update(self, task: int, report: WriterReport) -> EmptyMessage:
        self.reports.append(report.at)
        return EMPTY


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Written:
    made = Written()
    monkeypatch.setattr(batch_writers, "writer_task", made.task)
    return made


def writers(*, single: bool = False, runner: Any = None, fences: Callable[[], int] = lambda: 7) -> BatchWriters:
    ids: Any = SimpleNamespace(handler=lambda: TaskHandler("schema", lambda task, request: {}))
    return BatchWriters(CFG, runner or ThreadRunner(4), ids, fences, single=single)


def batch(epoch: int, writers: int = 2) -> BatchPlan:
    return replace(plan(epoch, START if epoch == 1 else END, END, writers=writers), attempt=f"attempt {epoch}")


def write(
    to: BatchWriters, batch: BatchPlan, inputs: WriterInputs = INPUTS, refusals: RefusedSchemas | None = None
) -> list[str]:
    progress: Any = Progress()
    to.write(batch, inputs, progress, refusals or RefusedSchemas())
    return list(progress.reports)


def test_the_same_writers_write_batch_after_batch(written: Written) -> None:
    living = writers()
    assert living.batch_before(batch(1)) is None
    for epoch in (1, 2, 3):
        assert write(living, batch(epoch), replace(INPUTS, run_id=f"run {epoch}")) == [f"of batch {epoch}"] * 2
        before = living.batch_before(batch(epoch + 1))
        assert before is not None and before.attempt == f"attempt {epoch}"
    living.close()
    assert written.tasks_of(1, 2, 3) == 2
    assert sorted(seen[:3] for seen in written.batches) == [
        (writer, epoch, f"run {epoch}") for writer in range(2) for epoch in (1, 2, 3)
    ]


@pytest.mark.parametrize(
    "following",
    [
        batch(3),
        batch(2, writers=1),
        replace(batch(2), owner="another run"),
        replace(batch(2), continued_from=END),
        replace(batch(2), start=replace(END, server_uuid="another")),
    ],
    ids=["another batch between", "another number", "another run", "a failover", "another server"],
)
def test_other_writers_write_a_batch_that_does_not_follow(written: Written, following: BatchPlan) -> None:
    living = writers()
    write(living, batch(1))
    assert living.batch_before(following) is None, "their transactional ids are fenced"
    write(living, following)
    living.close()
    assert written.tasks_of(1, following.epoch) == 2 + following.writers


def changed_state() -> SchemaState:
    return SchemaState()


@pytest.mark.parametrize(
    "inputs",
    [
        replace(INPUTS, state=changed_state()),
        replace(INPUTS, server={"lower_case_table_names": 1}),
        replace(INPUTS, commit_before_refusal=True),
    ],
    ids=["other structures", "other variables", "a refused schema"],
)
def test_other_writers_write_a_batch_that_begins_with_something_else(written: Written, inputs: WriterInputs) -> None:
    living = writers()
    write(living, batch(1))
    write(living, batch(2), inputs)
    write(living, batch(3), replace(inputs, commit_before_refusal=False))
    living.close()
    assert written.tasks_of(1, 2) == 4
    assert written.tasks_of(2, 3) == (4 if inputs.commit_before_refusal else 2)


@pytest.mark.parametrize("again_in_begin", [False, True], ids=["before the plan", "with the plan"])
def test_other_writers_write_a_batch_where_the_job_has_fenced_writers(written: Written, again_in_begin: bool) -> None:
    """A driver does so where an open transaction hides the end of the ledger; those that live could not commit."""
    fences = 1
    living = writers(fences=lambda: fences)
    write(living, batch(1))
    if again_in_begin:
        assert living.batch_before(batch(2)) is not None
    fences += 1
    assert again_in_begin or living.batch_before(batch(2)) is None
    write(living, batch(2))
    write(living, batch(3))
    living.close()
    assert written.tasks_of(1, 2) == 4 and written.tasks_of(2, 3) == 2


def test_a_plan_of_very_many_topics_is_not_sent_as_one_line(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_writers, "_MAX_BATCH_BYTES", 2000)
    living = writers()
    write(living, batch(1))
    write(living, batch(2))
    assert written.tasks_of(1, 2) == 2
    write(living, batch(3).with_topics({f"p.topic{n}": 1 for n in range(200)}, {}))
    living.close()
    assert written.tasks_of(1, 2, 3) == 4


def test_other_writers_follow_those_that_failed(written: Written) -> None:
    living, refusals = writers(), RefusedSchemas()
    write(living, batch(1))
    written.fail_at = 2
    with pytest.raises(SchemaError, match="a schema is refused") as caught:
        write(living, batch(2), refusals=refusals)
    refusal = refusals.first(caught.value)
    assert refusal is not None and refusal.before == START, "reports reach the batch that is written"
    written.fail_at = 0
    assert living.batch_before(batch(2)) is None
    write(living, batch(2))
    living.close()
    assert written.tasks_of(1, 2) == 4


@pytest.mark.parametrize(("single", "slots", "count", "lives"), [
    (False, 2, 2, True), (False, 1, 2, False), (False, 1, 1, True), (True, 4, 2, False),
], ids=["as many slots", "too few slots", "one writer", "one batch"])  # fmt: skip
def test_writers_live_on_where_all_run_at_once(
    written: Written, single: bool, slots: int, count: int, lives: bool
) -> None:
    """Otherwise those that have written their part make room for those that have not begun."""
    living = writers(single=single, runner=ThreadRunner(slots))
    write(living, batch(1, count))
    assert (living.batch_before(batch(2, count)) is not None) == lives
    living.close()


@pytest.mark.parametrize("call", [
    lambda runner: runner.slots(1),
    lambda runner: runner.run(lambda index, _: index, 1, None, barrier=True),
    lambda runner: runner.run_shuffled(lambda index, _: iter(()), 1, None, Shuffle(1, list)),
], ids=["slots", "run", "run_shuffled"])  # fmt: skip
def test_other_tasks_of_the_job_begin_when_the_writers_have_ended(
    written: Written, call: Callable[[Any], object]
) -> None:
    earlier, living = threading.enumerate(), writers()
    write(living, batch(1))
    call(SucceedingRunner(ThreadRunner(), living.close))
    assert living.batch_before(batch(2)) is None
    assert not [
        thread for thread in threading.enumerate() if thread.name == "cdc-living-stage" and thread not in earlier
    ]


def test_writers_that_cannot_be_run_end_the_batch(written: Written) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise SourceError("no executor")

    runner: Any = SimpleNamespace(endpoint=ThreadRunner.endpoint, run=refuse)
    living = writers(runner=runner)
    with pytest.raises(SourceError, match="no executor"):
        write(living, batch(1, 1))
    assert living.batch_before(batch(2, 1)) is None
