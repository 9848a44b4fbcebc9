"""When and how a writer of a drain commits: records and marker in one Kafka transaction."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.faults import fault_point
from airflow_provider_mysql_cdc.cdc.model.gtid import GtidTracker
from airflow_provider_mysql_cdc.cdc.model.offset import Reached
from airflow_provider_mysql_cdc.cdc.pipeline.position import Position
from airflow_provider_mysql_cdc.cdc.pipeline.side_records import heartbeat
from airflow_provider_mysql_cdc.cdc.pipeline.xa import XaTransactions
from airflow_provider_mysql_cdc.cdc.sink.writer import TransactionalWriter
from airflow_provider_mysql_cdc.cdc.state.plan import BatchPlan, Marker

Progress = Callable[[dict[str, Any]], None]
CHECK_EVENTS = 64
PROGRESS_SECONDS = 2.0


@dataclass(slots=True)
class Committer:
    """Commit what a writer produced when enough has come together, and say how far it is.

    Args:
        cfg: The connector's configuration.
        plan: The batch.
        index: The writer's index.
        sink: The transactional producer.
        counts: The writer's records per topic, which goes on changing.
        at: Where the writer stands, which goes on changing.
        xa: The writer's XA transactions.
        tracker: The GTIDs that the writer has passed.
        progress: Called every two seconds with counters.
    """

    cfg: ConnectorConfig
    plan: BatchPlan
    index: int
    sink: TransactionalWriter
    counts: dict[str, int]
    at: Position
    xa: XaTransactions
    tracker: GtidTracker
    progress: Progress
    _since_check: int = 0
    _commits: int = 0
    _beat_at: float = float("-inf")
    _committed_at: float = field(default_factory=time.monotonic)
    _reported_at: float = field(default_factory=time.monotonic)
    _commit_bytes: int = 0

    def __post_init__(self) -> None:
        self._commit_bytes = self.cfg[F.COMMIT_BYTES]

    def passed_event(self) -> None:
        """Commit if it is time; called after each event that produced something and each transaction."""
        self._since_check += 1
        if self._since_check >= CHECK_EVENTS or self.sink.bytes_pending >= self._commit_bytes:
            self._check()

    def finish(self) -> None:
        """Commit the rest, with the marker that says that the batch is done."""
        self._heartbeat(time.monotonic())
        self._commit(done=True)

    def note(self, line: str) -> None:
        """Send one line of text to the job's log."""
        self._report(note=line)

    def _check(self) -> None:
        self._since_check = 0
        now = time.monotonic()
        if self.sink.bytes_pending and self._commits == 0:
            fault_point("writer.mid_batch", self.index)
        due = now - self._committed_at >= self.cfg[F.COMMIT_INTERVAL_MS] / 1000
        self._heartbeat(now)
        if self.sink.bytes_pending >= self._commit_bytes or (due and self.sink.bytes_pending):
            self._commit(done=False)
        if now - self._reported_at >= PROGRESS_SECONDS:
            self._reported_at = now
            self._report()

    def _report(self, **more: Any) -> None:
        self.progress({"at": str(self.at.boundary), "records": sum(self.counts.values()), **more})

    def _heartbeat(self, now: float) -> None:
        """Let writer 0 produce a heartbeat when one is due (STRM-27)."""
        interval = self.cfg[F.HEARTBEAT_INTERVAL_MS] / 1000
        if self.index == 0 and interval and now - self._beat_at >= interval:
            self._beat_at = now
            topic, key, value = heartbeat(self.cfg)
            self.sink.produce(topic, key, value, 0)

    def _commit(self, *, done: bool) -> None:
        at = self.at
        boundary = at.boundary.at(at.boundary.file, at.boundary.pos, self.tracker.text())
        marker = Marker(
            epoch=self.plan.epoch,
            writer=self.index,
            start=self.plan.start,
            end=self.plan.end,
            reached=Reached(boundary, at.events),
            done=done,
            counts=dict(self.counts),
            prepared=self.xa.prepared,
        )
        if done:
            fault_point("writer.mid_batch", self.index)
        topic, key, value = marker.record(self.cfg.ledger_topic)
        self.sink.produce(topic, key, value, 0)
        fault_point("writer.before_commit", self.index)
        self.sink.commit()
        self._commits += 1
        self._committed_at = time.monotonic()
        fault_point("writer.after_commit", self.index)
