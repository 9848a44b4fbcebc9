"""The writers of a run's batches: tasks that live from batch to batch, and a batch that ends before a refused
schema.

The writers of a run's batches, from the driver's side: tasks that live from batch to batch while they can.

Plan, markers and outcome belong to one batch. Connections, transactional ids, decoders and table structures need not:
the tasks of one stage write one batch after the other (``job.task_barrier``), as long as

* the batches follow one another, planned by this driver, on the same server;
* they have as many writers, which all run at once;
* they begin with the same table structures, and the server's variables are the same;
* the job has fenced no writers since.

Otherwise the tasks end, and those of another stage begin, as for a batch alone. So they do when a task fails, and
before the job runs other tasks, which may need the same slots and use the same transactional ids.

End a batch before the first record of a table version whose schema is refused, or that a transform cannot take.

Either stops the stream. What other tables changed before it is committed first: the driver shortens the
batch to the last transaction boundary before that record, lets the writers complete it, and then fails with the error.
So the stored offset is right before what is refused, and nothing is committed of the batch that begins there:
properties that are fixed within a batch can be changed.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cmp_to_key

from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.drain.batch_planner import with_end
from airflow_provider_mysql_cdc.cdc.drain.batch_run import StartedBatch, WriterInputs, write_next_batch
from airflow_provider_mysql_cdc.cdc.drain.drain_operations import (
    NEXT_BATCH,
    NO_BATCH,
    PROGRESS,
    SCHEMA_REFUSED,
    BatchRequest,
    DrainProgress,
    NextBatch,
    RefusedSchema,
    WriterReport,
)
from airflow_provider_mysql_cdc.cdc.drain.writer_context import KeptWriter
from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.cdc.job.coordinator import MAX_LINE_BYTES, Endpoint
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.job.schema_ids import SchemaIds
from airflow_provider_mysql_cdc.cdc.job.stage_runner import StageArguments, StageRunner, named_errors, open_task
from airflow_provider_mysql_cdc.cdc.job.task_barrier import LivingStage
from airflow_provider_mysql_cdc.cdc.job.task_operation import EMPTY, EmptyMessage
from airflow_provider_mysql_cdc.cdc.job.task_runner import (
    ArgumentsT,
    Block,
    BucketResultT,
    Shuffle,
    TaskResultT,
    TaskRunner,
)
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, ResumePosition, compare_offsets


@dataclass(frozen=True, slots=True)
class DrainInputs:
    """Hold what the writers of a drain's stage are started with.

    Args:
        plan: The first batch.
        writer: The rest; later batches have the same table structures and server variables.
    """

    plan: BatchPlan
    writer: WriterInputs


def writer_task(index: int, arguments: StageArguments[DrainInputs]) -> None:
    """Run one writer; called in a Spark task.

    Args:
        index: The writer's index.
        arguments: What the task was started with.
    """
    inputs, done = arguments.inputs, 0
    with (
        open_task(index, arguments) as (cfg, channel),
        contextlib.closing(KeptWriter(cfg, index, channel)) as writer,
        named_errors(cfg),
    ):
        while (batch := channel.call(NEXT_BATCH, BatchRequest(done))).epoch:
            plan = inputs.plan if batch.plan is None else batch.plan
            write_next_batch(
                writer, plan, replace(inputs.writer, run_id=batch.run_id, heartbeat_due_s=batch.heartbeat_due_s)
            )
            done = batch.epoch


class RefusedSchemas:
    """Collect the refusals that the writers of one stage report."""

    def __init__(self) -> None:
        self._refusals: list[RefusedSchema] = []
        self._lock = threading.Lock()

    def add(self, _task: int, refusal: RefusedSchema) -> EmptyMessage:
        """Take one writer's report; the reply is empty.

        Args:
            refusal: The report.
        """
        with self._lock:
            self._refusals.append(refusal)
        return EMPTY

    def first(self, error: CdcError) -> RefusedSchema | None:
        """Return the refusal at the lowest position; None where the stage ended for another reason.

        Args:
            error: The error with which the stage ended.
        """
        with self._lock:
            if not any((type(error), error.what) == (type(r.error), r.error.what) for r in self._refusals):
                return None
            return min(self._refusals, key=cmp_to_key(_compare_places))


def _compare_places(one: RefusedSchema, other: RefusedSchema) -> int:
    return compare_offsets(one.before, other.before)


def shorten_batch(
    cfg: ConnectorConfig, conn: MySqlConnection, job: JobLedger, batch: StartedBatch, before: BinlogOffset
) -> tuple[StartedBatch, bool]:
    """Put the batch in force with an earlier end, where no writer has committed anything after it.

    A new attempt begins first: from then on no writer of the failed stage can commit, so the markers are final.

    Args:
        cfg: The connector's configuration.
        conn: An open connection to the source.
        job: The ledger.
        batch: The batch in force.
        before: The transaction boundary to end at, inside of the batch.

    Returns:
        The batch as it is in force now, and whether it was shortened.

    Raises:
        FencedError: Another run is in force.
    """
    ledger = job.begin(batch.plan)
    plan = ledger.plan_in_force()
    if not can_end_at(ledger, plan, before):
        return replace(batch, plan=plan, ledger=ledger), False
    plan = with_end(cfg, conn, plan, before)
    job.replace_plan(plan)
    return replace(batch, plan=plan, ledger=replace(ledger, plan=plan)), True


def can_end_at(ledger: LedgerState, plan: BatchPlan, before: BinlogOffset) -> bool:
    """Return whether no marker of a plan is after a transaction boundary.

    Args:
        ledger: The ledger.
        plan: The plan.
        before: The boundary.
    """
    return all(_is_reached_by(m.reached, before) for m in ledger.markers.values() if m.epoch == plan.epoch)


def _is_reached_by(reached: ResumePosition, boundary: BinlogOffset) -> bool:
    comparison = compare_offsets(reached.offset, boundary)
    return comparison < 0 or (comparison == 0 and not reached.events and not reached.statements)


_MAX_BATCH_BYTES = MAX_LINE_BYTES // 2
"""Longest message with a batch; a longer plan, of very many topics, goes to new tasks with their arguments."""


class _Reports:
    """Pass the reports of the writers on to what takes them for the batch that is written now.

    Args:
        progress: Takes how far they are.
        refusals: Takes the schemas that are refused.
    """

    def __init__(self, progress: DrainProgress, refusals: RefusedSchemas) -> None:
        self.progress, self.refusals = progress, refusals

    def on_progress(self, task: int, report: WriterReport) -> EmptyMessage:
        return self.progress.update(task, report)

    def on_refusal(self, task: int, refusal: RefusedSchema) -> EmptyMessage:
        return self.refusals.add(task, refusal)


class BatchWriters:
    """Run the writers of one batch after the other.

    Args:
        cfg: The connector's configuration.
        runner: Runs the tasks.
        schema_ids: Ids of schemas for the tasks.
        fences: Returns how often the job has fenced writers, those of its own among them.
        single: Whether the run has one batch.
    """

    def __init__(
        self,
        cfg: ConnectorConfig,
        runner: TaskRunner,
        schema_ids: SchemaIds,
        fences: Callable[[], int],
        *,
        single: bool,
    ) -> None:
        self._fences, self._fences_before = fences, 0
        self._stages, self._runner, self._single = StageRunner(cfg, runner, schema_ids), runner, single
        self._stage: LivingStage[NextBatch] | None = None
        self._inputs: DrainInputs | None = None
        self._written: BatchPlan | None = None
        self._reports: _Reports | None = None

    def batch_before(self, plan: BatchPlan) -> BatchPlan | None:
        """Return the batch before, as it was in force, if its writers live and can write this one; end them otherwise.

        Args:
            plan: The next batch.
        """
        written, stage = self._written, self._stage
        unfenced = self._fences() == self._fences_before
        if written is not None and stage is not None and stage.alive and unfenced and _follows(plan, written):
            return written
        self.close()
        return None

    def write(self, plan: BatchPlan, inputs: WriterInputs, progress: DrainProgress, refusals: RefusedSchemas) -> None:
        """Have a batch written, by the writers of the batch before if they can.

        Args:
            plan: The batch, in force.
            inputs: What its writers need.
            progress: Takes how far they are.
            refusals: Takes the schemas that are refused.

        Raises:
            CdcError: A writer ended with it, or the tasks cannot be run; then no writer lives on.
        """
        if self.batch_before(plan) is None or not self._may_live_on(plan, inputs):
            self.close()
            self._start(plan, inputs, _Reports(progress, refusals))
        stage, first = self._stage, self._inputs
        assert stage is not None and first is not None and self._reports is not None
        self._stage = self._written = None
        self._fences_before = self._fences()
        self._reports.progress, self._reports.refusals = progress, refusals
        batch = NextBatch(plan.epoch, None if plan is first.plan else plan, inputs.run_id, inputs.heartbeat_due_s)
        stage.carry_out(plan.epoch, batch)
        self._stage, self._written = stage, plan

    def _may_live_on(self, plan: BatchPlan, inputs: WriterInputs) -> bool:
        """Return whether the batch begins with what the tasks were started with."""
        assert self._inputs is not None
        started = self._inputs.writer
        same_tables = inputs.state is started.state and inputs.server == started.server
        return (
            same_tables
            and not (inputs.commit_before_refusal or started.commit_before_refusal)
            and len(json.dumps(plan.to_json())) <= _MAX_BATCH_BYTES
        )

    def _start(self, plan: BatchPlan, inputs: WriterInputs, reports: _Reports) -> None:
        single = self._single or (plan.writers > 1 and self._runner.slots(plan.writers) < plan.writers)
        self._reports, arguments = reports, DrainInputs(plan, inputs)
        self._inputs = arguments
        handlers = [
            PROGRESS.handled_by(reports.on_progress),
            SCHEMA_REFUSED.handled_by(reports.on_refusal),
            NEXT_BATCH.handled_by(lambda task, request: stage.next_work(task, request.done)),
        ]
        stage = self._stage = LivingStage(
            plan.writers,
            lambda: self._stages.run(writer_task, plan.writers, arguments, handlers, stage.on_lost),
            NO_BATCH,
            single=single,
        )

    def close(self) -> None:
        """End the writers, if any live."""
        stage, self._stage, self._written = self._stage, None, None
        if stage is not None:
            stage.close()


def _follows(plan: BatchPlan, written: BatchPlan) -> bool:
    """Return whether a batch begins where another one ended, on the same server and with as many writers."""
    return (
        plan.epoch == written.epoch + 1
        and plan.kind == written.kind
        and plan.writers == written.writers
        and plan.owner == written.owner
        and plan.continued_from is None
        and plan.start.server_uuid == written.end.server_uuid
    )


class SucceedingRunner:
    """Run other tasks of a job, after its writers have ended.

    Args:
        runner: Runs the tasks.
        end_writers: Ends the writers that live.
    """

    def __init__(self, runner: TaskRunner, end_writers: Callable[[], None]) -> None:
        self._runner, self._end_writers = runner, end_writers

    @property
    def endpoint(self) -> Endpoint:
        """Return where the driver listens for its tasks."""
        return self._runner.endpoint

    def slots(self, required: int = 0) -> int:
        """Return how many tasks can run at once; see ``TaskRunner``."""
        self._end_writers()
        return self._runner.slots(required)

    def run(
        self, task: Callable[[int, ArgumentsT], TaskResultT], count: int, arguments: ArgumentsT, *, barrier: bool
    ) -> list[TaskResultT]:
        """Run the tasks; see ``TaskRunner``."""
        self._end_writers()
        return self._runner.run(task, count, arguments, barrier=barrier)

    def run_shuffled(
        self,
        task: Callable[[int, ArgumentsT], Iterator[Block]],
        count: int,
        arguments: ArgumentsT,
        shuffle: Shuffle[BucketResultT],
    ) -> list[BucketResultT]:
        """Run the tasks and those of the buckets; see ``TaskRunner``."""
        self._end_writers()
        return self._runner.run_shuffled(task, count, arguments, shuffle)
