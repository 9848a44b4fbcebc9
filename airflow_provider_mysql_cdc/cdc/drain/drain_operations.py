"""Operations that a writer of a drain calls on its driver; those of incremental snapshots' windows do so as well."""

from __future__ import annotations

from dataclasses import dataclass, field

from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.cdc.job.task_operation import EmptyMessage, TaskOperation
from airflow_provider_mysql_cdc.cdc.metrics.writer_metrics import WriterMetrics
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.stored_record import Record


@dataclass(frozen=True, slots=True)
class WriterReport(Record):
    """Report how far a writer is.

    Args:
        at: Its position in the binlog, as ``file:position``.
        records: Records that it has produced in this batch.
        note: A line for the log.
        once: A line for the log that the job writes once, however many writers and batches send it.
        heartbeat: Whether it has produced a heartbeat.
        metrics: What it says of the batch for the metrics; None in reports that only carry a line or a heartbeat.
    """

    at: str
    records: int
    note: str = ""
    once: str = ""
    heartbeat: bool = False
    metrics: WriterMetrics | None = None


@dataclass(frozen=True, slots=True)
class RefusedSchema(Record):
    """Report that a table version or record cannot be written, because its schema or a transform refuses it.

    Args:
        before: The last transaction boundary before it.
        error: The error with which the writer ends.
    """

    before: BinlogOffset
    error: CdcError = field(compare=False)


@dataclass(frozen=True, slots=True)
class BatchRequest(Record):
    """Ask for the next batch.

    Args:
        done: Epoch of the batch that the writer has written; 0 for none.
    """

    done: int


@dataclass(frozen=True, slots=True)
class NextBatch(Record):
    """Hand a batch to a writer.

    Args:
        epoch: The batch's epoch; 0 where there is none and the writer ends.
        plan: The batch; None for the one in the task's arguments.
        run_id: Id of the run, for the context headers.
        heartbeat_due_s: Seconds until the first heartbeat of the batch is due.
    """

    epoch: int
    plan: BatchPlan | None = None
    run_id: str = ""
    heartbeat_due_s: float = 0


NO_BATCH = NextBatch(0)
PROGRESS = TaskOperation("progress", WriterReport, EmptyMessage)
"""A writer reports how far it is, every few seconds."""
SCHEMA_REFUSED = TaskOperation("schema_refused", RefusedSchema, EmptyMessage)
"""A writer reports that it ends before a table version whose schema is refused."""
NEXT_BATCH = TaskOperation("next-batch", BatchRequest, NextBatch)
"""A writer asks for the next batch; the reply waits until there is one."""
