"""What can be said of a stream at any moment, whether a run of it is active or not: state, lag and metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cmp_to_key
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect, fetch_all
from airflow_provider_mysql_cdc.cdc.binlog.position import (
    binary_logs,
    bytes_between,
    check_available,
    current_offset,
)
from airflow_provider_mysql_cdc.cdc.binlog.scan import BinlogScan
from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import PROGRESS_KEY
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.run_tally import current_tally
from airflow_provider_mysql_cdc.cdc.commit.unread_tables import unread_tables
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.cdc.job import run_lock
from airflow_provider_mysql_cdc.cdc.metrics.prometheus_text import Sample, family_samples, render_text
from airflow_provider_mysql_cdc.cdc.metrics.stream_lag import StreamLag, lag_samples, own_sample
from airflow_provider_mysql_cdc.cdc.metrics.stream_metrics import StreamMetrics
from airflow_provider_mysql_cdc.cdc.model.clock import now_ms
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, compare_offsets
from airflow_provider_mysql_cdc.cdc.model.stored_record import Members
from airflow_provider_mysql_cdc.cdc.operate.first_change import find_first_change
from airflow_provider_mysql_cdc.cdc.operate.source_server import at_server_of, offset_of_ledger

FRESH_MS = 60_000
"""Age of a progress record in milliseconds from which its lag is not that of now: a run that hangs writes none."""


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """Describe a stream.

    Args:
        stream: ``topic.prefix``.
        at_ms: When it was read, milliseconds since 1970.
        active: Whether a run holds the stream's lock; None when the source cannot be asked.
        lag: How far it is behind.
        metrics: Its metrics, of the active run or as the last one has left them.
        batch: Number, kind, state and error of the last batch; empty before the first.
        progress_ms: When the active run last reported, milliseconds since 1970; None where none has.
        tables: How far a snapshot is with the tables that it has not read completely, as of then
            (``snapshot.table_progress``).
        unread_tables: Captured tables that were never read.
    """

    stream: str
    at_ms: int
    active: bool | None
    lag: StreamLag
    metrics: StreamMetrics
    batch: Mapping[str, Any] = field(default_factory=dict)
    progress_ms: int | None = None
    tables: Sequence[Mapping[str, Any]] = ()
    unread_tables: Sequence[str] = ()

    def families(self) -> dict[str, dict[str, Any]]:
        """Return the metrics by Debezium's name, by family; between runs the lag is the one of now."""
        metrics = self.metrics if self.active else self.metrics.stopped()
        families = metrics.families(self.at_ms)
        if (streaming := families.get("streaming")) is not None and (self.progress_age_ms is None or self.hangs):
            streaming.pop("MilliSecondsBehindSource", None)
            if self.lag.milliseconds is not None:
                streaming["MilliSecondsBehindSource"] = self.lag.milliseconds
        if (snapshot := families.get("snapshot")) is not None:
            # A source that cannot be asked does not say that the run has ended.
            snapshot["SnapshotAborted"] = self.active is False and not snapshot["SnapshotCompleted"]
        return families

    @property
    def progress_age_ms(self) -> int | None:
        """Age of the last report of a run that is at work on a batch; None where none is, or none has reported.

        A run whose batch is complete waits for changes, or compares tables, and has nothing to report.
        """
        works = self.active and self.progress_ms is not None and not self.batch.get("complete")
        return self.at_ms - self.progress_ms if works and self.progress_ms is not None else None

    @property
    def hangs(self) -> bool:
        """Whether a run is at work on a batch that has not reported for a minute, and has reported before."""
        return self.progress_age_ms is not None and self.progress_age_ms >= FRESH_MS

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {
            "topic.prefix": self.stream,
            "at_ms": self.at_ms,
            "active": self.active,
            "batch": dict(self.batch),
            "progress_ms": self.progress_ms,
            "lag": self.lag.to_json(),
            "metrics": self.families(),
            **({"snapshot_tables": list(self.tables)} if self.tables else {}),
            **({"unread_tables": list(self.unread_tables)} if self.unread_tables else {}),
        }

    def samples(self) -> Iterator[Sample]:
        """Yield the samples for Prometheus."""
        yield from lag_samples(self.stream, self.lag)
        if self.active is not None:
            yield own_sample(self.stream, "run_active", self.active)
        if self.progress_age_ms is not None:
            yield own_sample(self.stream, "progress_age_seconds", self.progress_age_ms / 1000)
        if "ok" in self.batch:
            yield own_sample(self.stream, "last_batch_timestamp_seconds", self.batch["ended_ms"] / 1000)
            yield own_sample(self.stream, "last_batch_ok", self.batch["ok"])
        yield own_sample(self.stream, "unread_tables", len(self.unread_tables))
        yield own_sample(self.stream, "measured_timestamp_seconds", self.at_ms / 1000)
        yield from family_samples(self.stream, self.families())

    def prometheus(self) -> str:
        """Return the metrics as text for Prometheus."""
        return render_text(self.samples())


def read_status(cfg: ConnectorConfig) -> StreamStatus:
    """Read the status of a stream; a source that cannot be asked is said in the lag.

    Args:
        cfg: The connector's configuration.

    Raises:
        CdcError: Kafka cannot be reached.
    """
    return measured_status(cfg, kafka_clients.ledger(cfg).peek())


def measured_status(cfg: ConnectorConfig, ledger: LedgerState) -> StreamStatus:
    """Return the status of a stream of which the ledger is read; a source that cannot be asked is said in the lag.

    Args:
        cfg: The connector's configuration.
        ledger: The ledger.
    """
    try:
        cfg = at_server_of(cfg, offset_of_ledger(ledger))
        with connect(cfg.connection_settings()) as conn:
            active = run_lock.is_held(conn, cfg.topic_prefix)
            lag = _measure_lag(cfg, conn, ledger)
    except CdcError as error:
        active, lag = None, StreamLag(why=error.message())
    return status_of(cfg.topic_prefix, ledger, lag, active=active, at_ms=now_ms())


def status_of(stream: str, ledger: LedgerState, lag: StreamLag, *, active: bool | None, at_ms: int) -> StreamStatus:
    """Return the status from what was read.

    Args:
        stream: ``topic.prefix``.
        ledger: The ledger.
        lag: The lag.
        active: Whether a run holds the lock.
        at_ms: The time, milliseconds since 1970.
    """
    tally, progress = current_tally(ledger), ledger.other_records.get(PROGRESS_KEY)
    metrics, progress_ms = StreamMetrics() if tally is None else tally.metrics, None
    tables: Sequence[Mapping[str, Any]] = ()
    if progress is not None and ledger.plan is not None and progress["epoch"] == ledger.plan.epoch:
        record = Members(progress)
        progress_ms = record.integer("at_ms")
        if not ledger.complete():
            metrics, tables = StreamMetrics.from_json(record.object("metrics")), progress["tables"]
    unread = [str(table) for table in unread_tables(ledger)]
    return StreamStatus(stream, at_ms, active, lag, metrics, _batch(ledger), progress_ms, tables, unread)


def _batch(ledger: LedgerState) -> dict[str, Any]:
    plan, outcome = ledger.plan, ledger.outcome
    if plan is None:
        return {}
    batch: dict[str, Any] = {"epoch": plan.epoch, "kind": plan.kind, "complete": ledger.complete(), "owner": plan.owner}
    if outcome is not None:
        error = outcome["error"]
        batch |= {"ok": bool(outcome["ok"]), "ended_ms": int(outcome["ts_ms"]), "outcome_of": outcome["epoch"]}
        batch |= {} if error is None else {"error": error}
    return batch


def committed_start(ledger: LedgerState) -> BinlogOffset | None:
    """Return up to where all changes are in Kafka: what the slowest writer has committed, a transaction boundary.

    Args:
        ledger: The ledger.
    """
    if (end := ledger.end()) is not None:
        return end
    plan = ledger.plan
    if plan is None or plan.kind == "snapshot":
        return None
    reached = []
    for writer in range(plan.writers):
        marker = ledger.marker(writer, plan.epoch)
        reached.append(plan.start if marker is None else plan.start.with_position(*_place(marker.reached.offset)))
    return min(reached, key=cmp_to_key(compare_offsets), default=plan.start)


def _place(offset: BinlogOffset) -> tuple[str, int, str | None]:
    return offset.file, offset.pos, offset.gtids


def _measure_lag(cfg: ConnectorConfig, conn: Any, ledger: LedgerState) -> StreamLag:
    start = committed_start(ledger)
    if start is None:
        return StreamLag(why="the stream has not begun: its first snapshot is not complete")
    position = f"{start.file}:{start.pos}"
    try:
        settings = cfg.connection_settings()
        start = check_available(conn, settings, start)
        end = current_offset(conn)
        if compare_offsets(end, start) <= 0:
            return StreamLag(0, 0, position=position)
        change = find_first_change(BinlogScan(settings, start, end), cfg.captures, cfg.writes_rows_of)
        files = binary_logs(conn)
        server_ms = int(fetch_all(conn, "SELECT CAST(UNIX_TIMESTAMP(SYSDATE(3)) * 1000 AS UNSIGNED)")[0][0])
    except CdcError as error:
        return StreamLag(position=position, why=error.message())
    size = bytes_between(files, start, end)
    if change is None:
        return StreamLag(0, size, position=position)
    # A clock that was set back does not make a change that waits one that is in Kafka: only 0 says that nothing waits.
    age_ms = max(1, server_ms - change.committed_ms)
    return StreamLag(age_ms, size, change.committed_ms, position, upper_bound=not change.certain)
