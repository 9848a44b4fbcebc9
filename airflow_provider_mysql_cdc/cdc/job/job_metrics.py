"""The metrics of a running job, published in the ledger every few seconds, and its log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import PROGRESS_KEY
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan, encode
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.cdc.metrics.stream_metrics import Attributes, StreamMetrics, bounded_text
from airflow_provider_mysql_cdc.cdc.metrics.writer_metrics import QueueLimits, WriterMetrics, streaming_metrics
from airflow_provider_mysql_cdc.cdc.model.clock import now_ms
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema.history_record import HistoryRecord
from airflow_provider_mysql_cdc.cdc.sink.clients import queue_records
from airflow_provider_mysql_cdc.cdc.sink.record_writer import write_plain

PUBLISH_INTERVAL_S = 10.0
"""Seconds between two progress records of a job in the ledger."""
_PUBLISH_TIMEOUT_S = 10.0


@dataclass(slots=True)
class HistoryMeter:
    """Measure how the driver rebuilds the table structures from the schema history (MET-49 to MET-56).

    Later batches of a job read only what the job itself has written since; that is no recovery.
    """

    status: str = "STOPPED"
    started_ms: int = 0
    recovered: int = 0
    last_change: str = ""
    recovered_ms: int = 0

    @contextmanager
    def recovering(self) -> Iterator[None]:
        """Measure the first reading of the history inside."""
        if not self.started_ms:
            self.status, self.started_ms = "RECOVERING", now_ms()
        try:
            yield
        finally:
            self.status = "RUNNING"

    def on_record(self, record: HistoryRecord) -> None:
        """Count a record that is read.

        Args:
            record: The record.
        """
        if self.status == "RECOVERING":
            self.recovered += 1
            self.last_change, self.recovered_ms = record.ddl, now_ms()

    def attributes(self) -> dict[str, Any]:
        """Return the attributes of the family; none before the history is read."""
        if not self.started_ms:
            return {}
        recovered = {"LastRecoveredChange": bounded_text(self.last_change), "recovered_ms": self.recovered_ms}
        return {
            "Status": self.status,
            "RecoveryStartTime": self.started_ms // 1000,
            "ChangesRecovered": self.recovered,
            **(recovered if self.recovered else {}),
        }


@dataclass(slots=True)
class JobMetrics:
    """Gather what writers and driver measure.

    Args:
        cfg: The connector's configuration.
        base: The stream's metrics before the current batch.
        history: Measures the recovery of the schema history.
        snapshot: Returns the attributes of the family ``snapshot``; none outside of a snapshot.
        snapshot_tables: Returns how far its tables are; none outside of a snapshot.
        key_range: Attributes of the key range of an ad-hoc snapshot that was assigned last (MET-17 to MET-21).
    """

    cfg: ConnectorConfig
    base: StreamMetrics = field(default_factory=StreamMetrics)
    history: HistoryMeter = field(default_factory=HistoryMeter)
    snapshot: Callable[[], Attributes] = dict
    snapshot_tables: Callable[[], Sequence[Mapping[str, Any]]] = list
    key_range: Attributes = field(default_factory=dict)
    _plan: BatchPlan | None = None
    _tables: Collection[TableId] = ()
    _names: list[str] = field(default_factory=list)
    _writers: dict[int, WriterMetrics] = field(default_factory=dict)
    _finished: StreamMetrics | None = None
    _changes_applied: int = 0
    _published_at: float = field(default_factory=time.monotonic)
    _publishing: threading.Thread | None = None

    def begin(self, plan: BatchPlan, tables: Collection[TableId]) -> None:
        """Begin a batch or a snapshot.

        Args:
            plan: Its plan.
            tables: The tables whose structures are known.
        """
        if tables is not self._tables:
            self._tables, self._names = tables, sorted(str(table) for table in tables if self.cfg.captures(table))
        self._plan, self._finished = plan, None
        self._writers.clear()

    def on_report(self, writer: int, metrics: WriterMetrics) -> None:
        """Take what a writer reports while it works; publish it if it is time.

        Args:
            writer: The writer's index.
            metrics: What it says of the batch.
        """
        self._writers[writer] = metrics
        self.publish_if_due()

    def add_writers(self, writers: Sequence[WriterMetrics]) -> None:
        """Take what the writers have committed at the end of their batch.

        Args:
            writers: What each writer says.
        """
        self._finished = self._streaming(writers)

    def take(self) -> StreamMetrics:
        """Return what the batch or snapshot that ends adds to the stream's metrics; it is taken once."""
        finished, self._finished = self._finished or StreamMetrics(at_ms=now_ms()), None
        self._writers.clear()
        self._changes_applied += finished.counts.schema_changes
        return self._with_own(finished, 0)

    def current(self) -> StreamMetrics:
        """Return the stream's metrics now, while the job works."""
        if not self._writers:
            return self.base.followed_by(self._with_own(StreamMetrics(at_ms=now_ms()), 0))
        live = self._streaming(list(self._writers.values()))
        return self.base.followed_by(self._with_own(live, live.counts.schema_changes))

    def publish_if_due(self) -> None:
        """Write the progress record in a thread of its own, unless the last one is recent or still being written."""
        due = time.monotonic() - self._published_at >= PUBLISH_INTERVAL_S
        if due and (self._publishing is None or not self._publishing.is_alive()):
            self._published_at = time.monotonic()
            self._publishing = threading.Thread(
                target=_publish, args=(self.cfg, self.progress_records()), name="cdc-metrics", daemon=True
            )
            self._publishing.start()

    def progress_records(self) -> list[SideRecord]:
        """Return the progress record; none before a batch or snapshot has begun."""
        if self._plan is None:
            return []
        metrics = self.current()
        progress = {
            "epoch": self._plan.epoch,
            "kind": self._plan.kind,
            "at_ms": metrics.at_ms,
            "metrics": metrics.to_json(),
            "tables": list(self.snapshot_tables()),
        }
        return [SideRecord(self.cfg.ledger_topic, PROGRESS_KEY.encode(), encode(progress))]

    def _streaming(self, writers: Sequence[WriterMetrics]) -> StreamMetrics:
        limits = QueueLimits(queue_records(self.cfg.kafka_settings()), self.cfg[F.COMMIT_BYTES])
        return streaming_metrics(writers, self._names, limits, now_ms())

    def _with_own(self, metrics: StreamMetrics, changes: int) -> StreamMetrics:
        """Return metrics with what the driver itself measures.

        Args:
            metrics: What the writers say.
            changes: Changes of structures that they have applied in the current batch.
        """
        own = self.history.attributes()
        applied = {"ChangesApplied": self.history.recovered + self._changes_applied + changes} if own else {}
        streaming = {**metrics.streaming, **self.key_range} if metrics.streaming else metrics.streaming
        return replace(
            metrics, snapshot=self.snapshot(), streaming=streaming, history={**metrics.history, **own, **applied}
        )


def _publish(cfg: ConnectorConfig, records: list[SideRecord]) -> None:
    """Write a progress record; it is not missed where Kafka does not take it."""
    with suppress(CdcError):
        write_plain(cfg.kafka_settings(), records, timeout_s=_PUBLISH_TIMEOUT_S)


class JobLog:
    """Write the log of a job.

    Args:
        log: Takes one line of text.
    """

    def __init__(self, log: Log) -> None:
        self._log, self._logged = log, set[str]()

    def __call__(self, line: str) -> None:
        """Write a line."""
        self._log(line)

    def once(self, line: str) -> None:
        """Write a line unless the job has written it before."""
        if self.is_new(line):
            self._log(line)

    def is_new(self, subject: str) -> bool:
        """Return whether the job asks this for the first time.

        Args:
            subject: A line, or the key of what is logged.
        """
        new = subject not in self._logged
        self._logged.add(subject)
        return new
