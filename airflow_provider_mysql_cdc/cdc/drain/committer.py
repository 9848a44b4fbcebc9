"""When and how a writer of a drain commits: records and marker in one Kafka transaction."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan, Marker
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.drain.drain_operations import WriterReport
from airflow_provider_mysql_cdc.cdc.drain.producer_renewal import ProducerRenewal
from airflow_provider_mysql_cdc.cdc.drain.side_records import heartbeat
from airflow_provider_mysql_cdc.cdc.drain.writer_counts import WriterCounts
from airflow_provider_mysql_cdc.cdc.drain.writer_position import WriterPosition
from airflow_provider_mysql_cdc.cdc.drain.written_topics import WrittenTopics
from airflow_provider_mysql_cdc.cdc.drain.xa_transactions import XaTransactions
from airflow_provider_mysql_cdc.cdc.faults import fault_point
from airflow_provider_mysql_cdc.cdc.formats.record_formats import RecordFormats
from airflow_provider_mysql_cdc.cdc.metrics.writer_metrics import WriterMetrics
from airflow_provider_mysql_cdc.cdc.model.offset import ResumePosition
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.sink.writer import TransactionalWriter
from airflow_provider_mysql_cdc.cdc.ticdc.commit_ts import CommitClock

Progress = Callable[[WriterReport], None]
CHECK_EVENTS = 64
PROGRESS_SECONDS = 2.0


@dataclass(slots=True)
class Committer:
    """Commit a writer's records when enough are pending, and report its progress.

    Args:
        progress: Called every two seconds with counters.
        topics: Compares the topics that get records, before they become visible.
        side_records: Ledger records to commit with the next marker; emptied then. They are not produced before that:
            consumers that read committed records get nothing after the first record of an open transaction.
        formats: Serializes heartbeats; None when all records are JSON.
        commit_clock: Gives transactions TiCDC's commit timestamps; None in other formats.
        renewal: Replaces the Kafka client after a commit, once it has met very many tables; None keeps the client.
        heartbeat_due_s: Seconds until the first heartbeat is due.
    """

    cfg: ConnectorConfig
    plan: BatchPlan
    index: int
    sink: TransactionalWriter
    counts: WriterCounts
    position: WriterPosition
    xa: XaTransactions
    progress: Progress
    topics: WrittenTopics
    side_records: list[SideRecord]
    formats: RecordFormats | None = None
    commit_clock: CommitClock | None = None
    renewal: ProducerRenewal | None = None
    heartbeat_due_s: float = 0
    _commits: int = 0
    _events_since_check: int = 0
    _heartbeat_due: float = 0
    _committed_at: float = 0
    _reported_at: float = 0
    _commit_bytes: int = 0
    _commit_s: float = 0
    _transaction_limit_s: float = 0

    def __post_init__(self) -> None:
        self._committed_at = self._reported_at = time.monotonic()
        self._heartbeat_due = self._committed_at + self.heartbeat_due_s
        self._commit_bytes = self.cfg[F.COMMIT_BYTES]
        # The other half is left for work in progress when the time is up, and for the commit itself.
        self._transaction_limit_s = self.cfg[F.TRANSACTION_TIMEOUT_MS] / 1000 / 2
        self._commit_s = min(self.cfg[F.COMMIT_INTERVAL_MS] / 1000, self._transaction_limit_s)

    @property
    def commit_bytes(self) -> int:
        """Return the bytes of keys and values from which on a commit is due."""
        return self._commit_bytes

    def after_rows(self) -> None:
        """Commit if enough bytes are pending; called after each row event that produced records."""
        if self.sink.bytes_pending >= self._commit_bytes:
            self.check()

    def after_event(self) -> None:
        """Check for a due commit every ``CHECK_EVENTS`` events; for loops other than the writer's main loop."""
        self._events_since_check += 1
        if self._events_since_check >= CHECK_EVENTS:
            self._events_since_check = 0
            self.check()

    def check(self) -> None:
        """Commit if it is time; called between events, whether they produced records or not, and while waiting.

        A Kafka transaction therefore ends in time even when the source sends nothing.
        """
        now = time.monotonic()
        if not self.position.is_before_resume():
            self._heartbeat(now)
            pending = self.sink.bytes_pending
            if pending and self._commits == 0:
                fault_point("writer.mid_batch", self.index)
            renewal_due = self.renewal is not None and self.renewal.due()
            if pending >= self._commit_bytes or (
                pending and (renewal_due or now - self._committed_at >= self._commit_s)
            ):
                self._commit(done=False)
        if now - self._reported_at >= PROGRESS_SECONDS:
            self._reported_at = now
            self._report_metrics()

    def commit_before_delay(self, seconds: float) -> None:
        """Commit now if the open Kafka transaction might time out during a delay.

        Args:
            seconds: How long nothing can be committed.
        """
        if self.sink.bytes_pending and time.monotonic() - self._committed_at + seconds > self._transaction_limit_s:
            self._commit(done=False)

    def commit_pending(self) -> None:
        """Commit what was produced up to the last event, before the writer ends with an error."""
        if self.sink.bytes_pending and not self.position.is_before_resume():
            self._commit(done=False)

    def finish(self) -> None:
        """Commit the remaining records, with the marker that says that the batch is done."""
        self._heartbeat(time.monotonic())
        self._commit(done=True)

    def note(self, text: str, *, once: bool = False) -> None:
        """Send one line of text to the job's log.

        Args:
            text: The text.
            once: Whether the job logs it only once, however many writers and batches send it.
        """
        self._report(*("", text) if once else (text, ""))

    def _report(self, note: str = "", once: str = "") -> None:
        self.progress(WriterReport(str(self.position.boundary), self.counts.records(), note, once))

    def _report_metrics(self) -> None:
        """Report how far the writer is, with its metrics."""
        metrics = self._metrics(self.position.tracker.text())
        self.progress(WriterReport(str(self.position.boundary), self.counts.records(), metrics=metrics))

    def _metrics(self, gtids: str | None) -> WriterMetrics:
        pending = self.sink.bytes_pending, self.sink.queued
        return self.counts.meter.metrics(self.position, gtids, self.counts.by_topic, pending)

    def _heartbeat(self, now: float) -> None:
        """Let writer 0 produce a heartbeat when one is due (STRM-27)."""
        interval = self.cfg[F.HEARTBEAT_INTERVAL_MS] / 1000
        if self.index == 0 and interval and now >= self._heartbeat_due:
            self._heartbeat_due = now + interval
            record = heartbeat(self.cfg)
            if self.formats is not None:
                record = self.formats.format_side_record(record)
            self.sink.produce(record.topic, record.key, record.value, 0, record.headers)
            self.progress(WriterReport(str(self.position.boundary), self.counts.records(), heartbeat=True))

    def _commit_ts(self, reached: ResumePosition) -> int:
        """Return TiCDC's timestamp of the last transaction of which something is before a position."""
        clock = self.commit_clock
        if clock is None:
            return 0
        return clock.last_before((reached.offset.file, reached.offset.pos)) if reached.is_boundary else clock.last

    def _commit(self, *, done: bool) -> None:
        self.counts.add_outputs()
        reached = self.position.reached()
        marker = Marker(
            epoch=self.plan.epoch,
            writer=self.index,
            start=self.plan.start,
            end=self.plan.end,
            reached=reached,
            done=done,
            counts=dict(self.counts.by_topic),
            prepared=self.xa.prepared,
            tables=dict(self.counts.by_table),
            native=self.counts.native(),
            commit_ts=self._commit_ts(reached),
            metrics=self._metrics(reached.offset.gtids),
            xa_searched=self.xa.searched,
        )
        if done:
            fault_point("writer.mid_batch", self.index)
        records = [*self.side_records, marker.record(self.cfg.ledger_topic)]
        self.side_records.clear()
        for topic, key, value, headers in records:
            self.sink.produce(topic, key, value, 0, headers)
        self.topics.require_same(self.counts.by_topic)
        fault_point("writer.before_commit", self.index)
        self.sink.commit()
        self._commits += 1
        self._committed_at = time.monotonic()
        fault_point("writer.after_commit", self.index)
        # At the end the tables are only counted: the next batch, if there is one, begins with a new client.
        if self.renewal is not None and self.renewal.due() and not done:
            self.renewal.perform(marker)
