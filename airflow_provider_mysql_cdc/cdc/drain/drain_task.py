"""One task of a drain's stage: a writer, which writes a batch, asks for the next one, and ends when there is none."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace

from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.drain.batch_run import WriterInputs, write_next_batch
from airflow_provider_mysql_cdc.cdc.drain.drain_operations import NEXT_BATCH, BatchRequest
from airflow_provider_mysql_cdc.cdc.drain.kept_writer import KeptWriter
from airflow_provider_mysql_cdc.cdc.job.named_errors import named_errors
from airflow_provider_mysql_cdc.cdc.job.stage_runner import StageArguments, open_task


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
