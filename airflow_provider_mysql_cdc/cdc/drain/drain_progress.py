"""Progress lines of a batch: one every few seconds, with rate, position and time left."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.drain.drain_operations import WriterReport
from airflow_provider_mysql_cdc.cdc.job.job_log import JobLog
from airflow_provider_mysql_cdc.cdc.job.job_metrics import JobMetrics
from airflow_provider_mysql_cdc.cdc.job.task_operation import EMPTY, EmptyMessage
from airflow_provider_mysql_cdc.cdc.model.offset import file_number

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
