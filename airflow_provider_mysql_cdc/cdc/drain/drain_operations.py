"""Operations that a writer of a drain calls on its driver, and the progress lines made of their reports."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.cdc.job.job_metrics import JobLog, JobMetrics
from airflow_provider_mysql_cdc.cdc.job.task_operation import EMPTY, EmptyMessage, TaskOperation
from airflow_provider_mysql_cdc.cdc.metrics.writer_metrics import WriterMetrics
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, file_number
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


LOG_INTERVAL_S = 5.0


class DrainProgress:
    """Collect the writers' reports of one batch.

    Args:
        plan: The batch.
        log: The job's log.
        on_heartbeat: Called when a writer has produced a heartbeat.
        metrics: Gathers what the writers report for the metrics; None where nobody publishes it.
    """

    def __init__(
        self,
        plan: BatchPlan,
        log: JobLog,
        on_heartbeat: Callable[[], None] = lambda: None,
        metrics: JobMetrics | None = None,
    ) -> None:
        self._plan, self._log, self._on_heartbeat, self._metrics = plan, log, on_heartbeat, metrics
        self._reports: dict[int, WriterReport] = {}
        self._started = self._last_logged = time.monotonic()
        self._lock = threading.Lock()

    def update(self, task: int, report: WriterReport) -> EmptyMessage:
        """Take one writer's report; the reply is empty.

        Args:
            task: The writer.
            report: The report.
        """
        if report.heartbeat:
            self._on_heartbeat()
        with self._lock:
            if report.note:
                self._log(report.note)
            if report.once:
                self._log.once(report.once)
            self._reports[task] = report
            if self._metrics is not None and report.metrics is not None:
                self._metrics.on_report(task, report.metrics)
            if time.monotonic() - self._last_logged >= LOG_INTERVAL_S:
                self._last_logged = time.monotonic()
                self._log(self._progress_line())
        return EMPTY

    def _progress_line(self) -> str:
        records = sum(report.records for report in self._reports.values())
        slowest = min((report.at for report in self._reports.values()), key=_position_key)
        seconds = time.monotonic() - self._started
        return (
            f"batch {self._plan.epoch}: {records:,} records, {records / seconds:,.0f}/s, "
            f"at {slowest} of {self._plan.end}{self._time_left(slowest, seconds)}"
        )

    def _time_left(self, position: str, seconds: float) -> str:
        start, end = self._plan.start, self._plan.end
        file, pos = _position_key(position)
        if not file_number(start.file) == file == file_number(end.file) or pos <= start.pos:
            return ""
        share = (pos - start.pos) / max(1, end.pos - start.pos)
        return f", {share:.0%}, about {seconds * (1 - share) / share:.0f} s left"

    def summary(self, totals: dict[str, int], native: str = "") -> str:
        """Return the batch's closing line.

        Args:
            totals: Records by topic.
            native: What the native kernel has decoded, as text.
        """
        seconds = time.monotonic() - self._started
        records = sum(totals.values())
        return (
            f"batch {self._plan.epoch} done: {records:,} records in {seconds:.1f} s "
            f"({records / max(seconds, 0.001):,.0f}/s), offset {self._plan.end}{native and f'; {native}'}"
        )


def _position_key(position: str) -> tuple[int, int]:
    file, _, pos = position.rpartition(":")
    return file_number(file), int(pos)
