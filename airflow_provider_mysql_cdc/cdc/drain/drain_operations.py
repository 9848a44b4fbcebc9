"""Operations that a writer of a drain calls on its driver; those of incremental snapshots' windows do so as well."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.cdc.errors import from_json as error_from_json
from airflow_provider_mysql_cdc.cdc.job.task_operation import EmptyMessage, TaskOperation
from airflow_provider_mysql_cdc.cdc.metrics.writer_metrics import WriterMetrics
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset


@dataclass(frozen=True, slots=True)
class WriterReport:
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

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        metrics = None if self.metrics is None else self.metrics.to_json()
        optional = {"note": self.note, "once": self.once, "heartbeat": self.heartbeat, "metrics": metrics}
        return {"at": self.at, "records": self.records, **{name: value for name, value in optional.items() if value}}

    @classmethod
    def from_json(cls, members: Mapping[str, Any]) -> WriterReport:
        """Read what ``to_json`` wrote."""
        return cls(
            str(members["at"]),
            int(members["records"]),
            str(members.get("note", "")),
            str(members.get("once", "")),
            bool(members.get("heartbeat", False)),
            WriterMetrics.from_json(members["metrics"]) if "metrics" in members else None,
        )


@dataclass(frozen=True, slots=True)
class RefusedSchema:
    """Report that a table version or record cannot be written, because its schema or a transform refuses it.

    Args:
        before: The last transaction boundary before it.
        error: The error with which the writer ends.
    """

    before: BinlogOffset
    error: CdcError = field(compare=False)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {"before": self.before.to_json(), "error": self.error.to_json()}

    @classmethod
    def from_json(cls, members: Mapping[str, Any]) -> RefusedSchema:
        """Read what ``to_json`` wrote."""
        return cls(BinlogOffset.from_json(members["before"]), error_from_json(members["error"]))


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """Ask for the next batch.

    Args:
        done: Epoch of the batch that the writer has written; 0 for none.
    """

    done: int

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {"done": self.done}

    @classmethod
    def from_json(cls, members: Mapping[str, Any]) -> BatchRequest:
        """Read what ``to_json`` wrote."""
        return cls(int(members["done"]))


@dataclass(frozen=True, slots=True)
class NextBatch:
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

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        plan = None if self.plan is None else self.plan.to_json()
        return {"epoch": self.epoch, "plan": plan, "run_id": self.run_id, "heartbeat_due_s": self.heartbeat_due_s}

    @classmethod
    def from_json(cls, members: Mapping[str, Any]) -> NextBatch:
        """Read what ``to_json`` wrote."""
        plan = members["plan"]
        return cls(
            int(members["epoch"]),
            None if plan is None else BatchPlan.from_json(plan),
            str(members["run_id"]),
            float(members["heartbeat_due_s"]),
        )


NO_BATCH = NextBatch(0)
PROGRESS = TaskOperation("progress", WriterReport, EmptyMessage)
"""A writer reports how far it is, every few seconds."""
SCHEMA_REFUSED = TaskOperation("schema_refused", RefusedSchema, EmptyMessage)
"""A writer reports that it ends before a table version whose schema is refused."""
NEXT_BATCH = TaskOperation("next-batch", BatchRequest, NextBatch)
"""A writer asks for the next batch; the reply waits until there is one."""
