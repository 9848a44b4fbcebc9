"""When and how a writer of a drain commits: records and marker in one Kafka transaction."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan, Marker
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.drain.producer_renewal import ClientTurn
from airflow_provider_mysql_cdc.cdc.drain.side_records import heartbeat
from airflow_provider_mysql_cdc.cdc.drain.writer_position import Position
from airflow_provider_mysql_cdc.cdc.drain.xa_transactions import XaTransactions
from airflow_provider_mysql_cdc.cdc.faults import fault_point
from airflow_provider_mysql_cdc.cdc.formats.avro_format import Forms
from airflow_provider_mysql_cdc.cdc.model.gtid import GtidTracker
from airflow_provider_mysql_cdc.cdc.model.native_counts import NativeCounts
from airflow_provider_mysql_cdc.cdc.sink.record_writer import Headers, SideRecord
from airflow_provider_mysql_cdc.cdc.sink.writer import TransactionalWriter

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
        side: Ledger records to be committed with the next marker; emptied then. Nothing is written to the ledger before
            that: an open transaction hides there what others have committed.
        tables: Of the counts those of row events, per table; goes on changing.
        forms: The forms of records; None when all is JSON.
        turn: Replaces the Kafka client behind a commit, when it has met very many tables; None keeps it.
        native: Gives what the native kernel has decoded in this batch.
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
    side: list[SideRecord]
    tables: dict[str, int] = field(default_factory=dict)
    forms: Forms | None = None
    turn: ClientTurn | None = None
    native: Callable[[], NativeCounts] = NativeCounts
    _commits: int = 0
    _since_check: int = 0
    _beat_at: float = float("-inf")
    _committed_at: float = 0
    _reported_at: float = 0
    _commit_bytes: int = 0
    _commit_s: float = 0
    _life_s: float = 0

    def __post_init__(self) -> None:
        self._committed_at = self._reported_at = time.monotonic()
        self._commit_bytes = self.cfg[F.COMMIT_BYTES]
        # The other half is for what is under way when the time is up, and for the commit itself.
        self._life_s = self.cfg[F.TRANSACTION_TIMEOUT_MS] / 1000 / 2
        self._commit_s = min(self.cfg[F.COMMIT_INTERVAL_MS] / 1000, self._life_s)

    def passed_rows(self) -> None:
        """Commit if enough has come together; called behind each row event that produced something."""
        if self.sink.bytes_pending >= self._commit_bytes:
            self.check()

    def passed_event(self) -> None:
        """Look at the clock every so many events; for a loop of events that is not the main one."""
        self._since_check += 1
        if self._since_check >= CHECK_EVENTS:
            self._since_check = 0
            self.check()

    def check(self) -> None:
        """Commit if it is time; called between two events, whether they produced anything or not, and while waiting.

        So a Kafka transaction ends by this process's clock, whatever the source sends or does not send.
        """
        now = time.monotonic()
        if not self.at.behind():
            self._heartbeat(now)
            pending = self.sink.bytes_pending
            if pending and self._commits == 0:
                fault_point("writer.mid_batch", self.index)
            due = self.turn is not None and self.turn.due()
            if pending >= self._commit_bytes or (pending and (due or now - self._committed_at >= self._commit_s)):
                self._commit(done=False)
        if now - self._reported_at >= PROGRESS_SECONDS:
            self._reported_at = now
            self._report()

    def make_room(self, seconds: float) -> None:
        """Commit now if the open Kafka transaction could not bear something that takes this long.

        Args:
            seconds: How long nothing can be committed.
        """
        if self.sink.bytes_pending and time.monotonic() - self._committed_at + seconds > self._life_s:
            self._commit(done=False)

    def finish(self) -> None:
        """Commit the rest, with the marker that says that the batch is done."""
        self._heartbeat(time.monotonic())
        self._commit(done=True)

    def note(self, line: str, *, once: bool = False) -> None:
        """Send one line of text to the job's log.

        Args:
            line: The text.
            once: Whether a job says it once, however many writers and batches send it.
        """
        self._report(**{"once" if once else "note": line})

    def _report(self, **more: Any) -> None:
        self.progress({"at": str(self.at.boundary), "records": sum(self.counts.values()), **more})

    def _heartbeat(self, now: float) -> None:
        """Let writer 0 produce a heartbeat when one is due (STRM-27)."""
        interval = self.cfg[F.HEARTBEAT_INTERVAL_MS] / 1000
        if self.index == 0 and interval and now - self._beat_at >= interval:
            self._beat_at = now
            topic, key, value = heartbeat(self.cfg)
            headers: Headers | None = None
            if self.forms is not None:
                key, value, headers = self.forms.side(topic, key, value, None)
            self.sink.produce(topic, key, value, 0, headers)

    def _commit(self, *, done: bool) -> None:
        marker = Marker(
            epoch=self.plan.epoch,
            writer=self.index,
            start=self.plan.start,
            end=self.plan.end,
            reached=self.at.reached(self.tracker.text()),
            done=done,
            counts=dict(self.counts),
            prepared=self.xa.prepared,
            tables=dict(self.tables),
            native=self.native(),
        )
        if done:
            fault_point("writer.mid_batch", self.index)
        records = [*self.side, marker.record(self.cfg.ledger_topic)]
        self.side.clear()
        for topic, key, value in records:
            self.sink.produce(topic, key, value, 0)
        fault_point("writer.before_commit", self.index)
        self.sink.commit()
        self._commits += 1
        self._committed_at = time.monotonic()
        fault_point("writer.after_commit", self.index)
        if not done and self.turn is not None and self.turn.due():
            self.turn.take(marker)
