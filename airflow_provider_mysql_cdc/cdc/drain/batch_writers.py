"""The writers of a run's batches, from the driver's side: tasks that live from batch to batch while they can.

Plan, markers and outcome belong to one batch. Connections, transactional ids, decoders and table structures need not:
the tasks of one stage write one batch after the other (``job.living_stage``), as long as

* the batches follow one another, planned by this driver, on the same server;
* they have as many writers, which all run at once;
* they begin with the same table structures, and the server's variables are the same;
* the job has fenced no writers since.

Otherwise the tasks end, and those of another stage begin, as for a batch alone. So they do when a task fails, and
before the job runs other tasks, which may need the same slots and use the same transactional ids.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.drain.batch_run import WriterInputs
from airflow_provider_mysql_cdc.cdc.drain.drain_operations import (
    NEXT_BATCH,
    NO_BATCH,
    PROGRESS,
    SCHEMA_REFUSED,
    NextBatch,
    RefusedSchema,
    WriterReport,
)
from airflow_provider_mysql_cdc.cdc.drain.drain_progress import DrainProgress
from airflow_provider_mysql_cdc.cdc.drain.drain_task import DrainInputs, writer_task
from airflow_provider_mysql_cdc.cdc.drain.refused_schemas import RefusedSchemas
from airflow_provider_mysql_cdc.cdc.job.coordinator import MAX_LINE_BYTES, Endpoint
from airflow_provider_mysql_cdc.cdc.job.living_stage import LivingStage
from airflow_provider_mysql_cdc.cdc.job.schema_ids import SchemaIds
from airflow_provider_mysql_cdc.cdc.job.stage_runner import StageRunner
from airflow_provider_mysql_cdc.cdc.job.task_operation import EmptyMessage
from airflow_provider_mysql_cdc.cdc.job.task_runner import (
    ArgumentsT,
    Block,
    BucketResultT,
    Shuffle,
    TaskResultT,
    TaskRunner,
)

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
