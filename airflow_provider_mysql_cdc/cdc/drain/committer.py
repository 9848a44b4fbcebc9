"""When and how a writer commits: records and marker in one Kafka transaction, topics compared before, clients
renewed after.

The topics to which a writer writes: compared with the ledger before its records become visible.

So a run need not describe all its topics for each batch. A topic that was deleted, created again or enlarged since the
last batch gets no visible record: the writer ends with the error, and its Kafka transaction with it.

A new Kafka client after each thousand tables that a writer meets, and where another linger time suits its records.

librdkafka (2.16) finds a topic by comparing its name with one topic after the other, for each record and for each
response of a broker, and goes through all partitions it knows whenever one has something to send. With 5,000 topics a
record takes 75 microseconds instead of 4, and each further topic slows all records down.

A writer that has met a thousand more tables therefore replaces its client after a commit, when no transaction is open,
and then proceeds as a restarted writer does (``commit.takeover.join_plan``): it checks that its plan is in force, takes
over its own transactional id, and checks the plan again. From then on no other process can commit under the id; and
none has since the writer's last marker if the ledger still holds that marker. Tables that come again and again count
once for a client, which may live through many batches. Batches too small for a commit before their end never ask; so
the client is replaced before the next one begins (``writer_context``). Linger times are those of ``sink.clients``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from itertools import islice

from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan, Marker
from airflow_provider_mysql_cdc.cdc.commit.topic_records import RecordedTopic
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.drain.drain_operations import WriterReport
from airflow_provider_mysql_cdc.cdc.drain.side_records import heartbeat
from airflow_provider_mysql_cdc.cdc.drain.writer_meter import WriterCounts
from airflow_provider_mysql_cdc.cdc.drain.writer_position import WriterPosition
from airflow_provider_mysql_cdc.cdc.drain.xa_transactions import XaTransactions
from airflow_provider_mysql_cdc.cdc.errors import FencedError
from airflow_provider_mysql_cdc.cdc.faults import fault_point
from airflow_provider_mysql_cdc.cdc.formats.record_formats import RecordFormats
from airflow_provider_mysql_cdc.cdc.job.topic_guard import require_same_topics
from airflow_provider_mysql_cdc.cdc.metrics.writer_metrics import WriterMetrics
from airflow_provider_mysql_cdc.cdc.model.offset import ResumePosition
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.sink.writer import TransactionalWriter
from airflow_provider_mysql_cdc.cdc.ticdc.commit_ts import CommitClock


class WrittenTopics:
    """Compare the topics of each commit of a writer.

    Args:
        cfg: The connector's configuration.
        plan: The batch.
        recorded: Topics as the ledger knew them when the writer joined.
        counts: Records by topic that an earlier attempt at the batch has committed.

    Attributes:
        recorded: The same, with the topics that the writer has created since.
    """

    def __init__(
        self,
        cfg: ConnectorConfig,
        plan: BatchPlan,
        recorded: Mapping[str, RecordedTopic],
        counts: Mapping[str, int],
    ) -> None:
        self._cfg, self._plan = cfg, plan
        self.recorded = dict(recorded)
        self._committed = dict(counts)

    def require_same(self, counts: Mapping[str, int]) -> None:
        """Compare the topics that have got records since the last call.

        Args:
            counts: Records by topic in this batch.

        Raises:
            TopicChangedError: A topic was deleted, created again or given more partitions.
            SinkError: Kafka refuses.
        """
        written = sorted(topic for topic, n in counts.items() if n != self._committed.get(topic, 0))
        recorded = {topic: self.recorded[topic] for topic in written if topic in self.recorded}
        require_same_topics(self._cfg, recorded, self._plan, has_commits=bool(self._committed))
        self._committed = dict(counts)


RENEWAL_TABLES = 1_000
"""Tables after which a new client is cheaper: it takes some 100 ms."""


@dataclass(slots=True)
class ProducerRenewal:
    """Decide when a writer's Kafka client is replaced, and replace it.

    Args:
        tables: The tables that the writer has met in this batch, in the order in which it did; it adds others.
        renew: Replaces the client; no transaction is open then, and the marker is the last that the writer committed.
        renewal_due: Returns whether another linger time would suit the records of the last transaction better.
        met: The tables that the client has met, also in earlier batches; shared by all batches of the client.
    """

    tables: Collection[str]
    renew: Callable[[Marker], None]
    renewal_due: Callable[[], bool] = lambda: False
    met: set[str] = field(default_factory=set)
    _seen: int = 0

    def __post_init__(self) -> None:
        self._seen = len(self.tables)

    def due(self) -> bool:
        """Return whether to replace the client: it knows many topics, or lingers too long or too briefly."""
        self.met.update(islice(self.tables, self._seen, None))
        self._seen = len(self.tables)
        return knows_many(self.met) or self.renewal_due()

    def perform(self, committed_marker: Marker) -> None:
        """Replace the client.

        Args:
            committed_marker: The marker that the writer has just committed.

        Raises:
            FencedError: Another plan or attempt is in force, or another copy of the writer is running.
            SinkError: Kafka refuses the new client.
        """
        self.met.clear()
        self.renew(committed_marker)


def knows_many(met: Collection[str]) -> bool:
    """Return whether a client has met so many tables that a new one is cheaper.

    Args:
        met: The tables.
    """
    return len(met) >= RENEWAL_TABLES


def require_unchanged_marker(stored_marker: Marker | None, committed_marker: Marker) -> None:
    """Check that no other process has committed under a writer's transactional id since its last marker.

    Spark may run a second copy of a task. It belongs to the same attempt, so the plan does not distinguish the two.

    Args:
        stored_marker: The writer's marker in the ledger, read after the takeover of the id.
        committed_marker: The marker that the writer committed.

    Raises:
        FencedError: Another process has.
    """
    if stored_marker is None or stored_marker.to_json() != committed_marker.to_json():
        raise FencedError(
            "another copy of this writer is running",
            where=f"epoch {committed_marker.epoch}, writer {committed_marker.writer}, after "
            f"{committed_marker.reached.offset}",
            why="it has committed since then: "
            + ("the marker is gone" if stored_marker is None else f"it reached {stored_marker.reached.offset}"),
            remedy="nothing: the other copy or the next attempt continues after what is committed",
            retriable=True,
        )


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
