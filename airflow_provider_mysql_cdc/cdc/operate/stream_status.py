"""What can be said of a stream at any moment, whether a run of it is active or not: state, lag, first change,
metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cmp_to_key
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog import event_parsers as ev
from airflow_provider_mysql_cdc.cdc.binlog.connect import connect, fetch_all
from airflow_provider_mysql_cdc.cdc.binlog.event import Event
from airflow_provider_mysql_cdc.cdc.binlog.position import binary_logs, bytes_between, check_available, current_offset
from airflow_provider_mysql_cdc.cdc.binlog.query import begin_thread_id
from airflow_provider_mysql_cdc.cdc.binlog.scan import BinlogScan
from airflow_provider_mysql_cdc.cdc.binlog.table_map import parse_table_map
from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import PROGRESS_KEY
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.run_tally import current_tally
from airflow_provider_mysql_cdc.cdc.commit.unread_tables import unread_tables
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.classify import CapturePredicate, classify_ddl, in_any_case
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext
from airflow_provider_mysql_cdc.cdc.drain.xa_transactions import is_one_phase, parse_xa
from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.cdc.job import run_lock
from airflow_provider_mysql_cdc.cdc.metrics.prometheus_text import (
    Sample,
    StreamLag,
    family_samples,
    lag_samples,
    own_sample,
    render_text,
)
from airflow_provider_mysql_cdc.cdc.metrics.stream_metrics import StreamMetrics
from airflow_provider_mysql_cdc.cdc.model.clock import now_ms
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.gtid import gtid_source
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, compare_offsets
from airflow_provider_mysql_cdc.cdc.model.stored_record import Members
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.operate.source_server import at_server_of, offset_of_ledger

MAX_EVENTS = 200_000
"""Events that a search reads; where none of them is a change, the transaction after them stands for the change."""


@dataclass(frozen=True, slots=True)
class FoundChange:
    """Say when the first change was committed.

    Args:
        committed_ms: When, milliseconds since 1970 by the server's clock.
        certain: Whether it is a change; otherwise the search ended before one, and the first is at most as old.
    """

    committed_ms: int
    certain: bool


def find_first_change(
    events: Iterable[Event], captures: CapturePredicate, counts_source: Callable[[str], bool] = lambda uuid: True
) -> FoundChange | None:
    """Return the first change of a captured table; None when there is none.

    Args:
        events: The events from a transaction boundary on.
        captures: Which tables matter.
        counts_source: Whether rows of a server's transactions become records, by its uuid.

    Raises:
        CdcError: The binlog cannot be read.
    """
    search = _ChangeSearch(captures, counts_source)
    for number, event in enumerate(events):
        if event.type in c.GTID_EVENTS:
            if number >= MAX_EVENTS:
                return FoundChange(search.committed_ms(event), certain=False)
            search.begin(event)
        elif (check := _CHECKS.get(event.type)) is not None and check(search, event):
            return FoundChange(search.committed_ms(event), certain=True)
    return None


@dataclass(slots=True)
class _ChangeSearch:
    """Remember the transaction that is being read."""

    captures: CapturePredicate
    counts_source: Callable[[str], bool]
    _counts: bool = True
    _commit_us: int = 0
    _in_xa: bool = False
    _xa_has_change: bool = False

    def begin(self, event: Event) -> None:
        parsed = ev.parse_gtid(event)
        self._counts = parsed.gtid is None or self.counts_source(gtid_source(parsed.gtid))
        self._commit_us = parsed.immediate_commit_us or parsed.commit_us

    def committed_ms(self, event: Event) -> int:
        """Return when the transaction of an event was committed; servers before 8.0 log no time of commits."""
        if event.type in c.GTID_EVENTS:
            self.begin(event)
        return self._commit_us // 1000 or event.timestamp * 1000

    def table_map(self, event: Event) -> bool:
        table_map = parse_table_map(event)
        captured = self._counts and self.captures(TableId(table_map.db, table_map.table))
        self._xa_has_change = self._xa_has_change or captured
        return captured and not self._in_xa

    def xa_prepare(self, event: Event) -> bool:
        """Rows of a transaction that is only prepared are no change yet."""
        changed = self._xa_has_change and is_one_phase(event)
        self._in_xa = self._xa_has_change = False
        return changed

    def query(self, event: Event) -> bool:
        if begin_thread_id(event) is not None:
            return False
        query = ev.parse_query(event)
        sql = query.sql.strip()
        if (statement := parse_xa(sql)) is not None:
            self._in_xa = statement[0] == "START"
            return statement[0] == "COMMIT"
        context = DdlContext(query.db or "", sql_mode=query.sql_mode or 0)
        return classify_ddl(sql, context, in_any_case(self.captures)).relevant


_CHECKS: dict[int, Callable[[_ChangeSearch, Event], bool]] = {
    c.TABLE_MAP_EVENT: _ChangeSearch.table_map,
    c.XA_PREPARE_LOG_EVENT: _ChangeSearch.xa_prepare,
    c.QUERY_EVENT: _ChangeSearch.query,
}


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
            (``snapshot.chunk_queue``).
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


def _measure_lag(cfg: ConnectorConfig, conn: MySqlConnection, ledger: LedgerState) -> StreamLag:
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
