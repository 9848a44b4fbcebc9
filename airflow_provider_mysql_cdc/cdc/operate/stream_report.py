"""What a person sees of a stream, and what a person should be told of it before consumers notice.

What a person sees of a stream beside its metrics: state, errors, signals and scans.

All of it is in the ledger; every list is bounded. No value of a row is in it: neither bounds of key ranges nor
conditions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import JOB_ERROR_PREFIX
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.unread_tables import unread_tables
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.property_names import scrub
from airflow_provider_mysql_cdc.cdc.errors import CdcError, from_json
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import read_incremental_state
from airflow_provider_mysql_cdc.cdc.incremental.table_scan import TableScan
from airflow_provider_mysql_cdc.cdc.model.clock import duration_text
from airflow_provider_mysql_cdc.cdc.operate.check_setup import check_setup
from airflow_provider_mysql_cdc.cdc.operate.stream_status import StreamStatus, read_status
from airflow_provider_mysql_cdc.cdc.signals.actions import entry_for
from airflow_provider_mysql_cdc.cdc.signals.signal import pending_signals
from airflow_provider_mysql_cdc.cdc.verify.report.verdict_records import read_last_verdicts

MAX_ENTRIES = 100
"""Entries of a list that a report has."""

ReportJson = dict[str, Any]


def stream_state(status: StreamStatus) -> str:
    """Return a stream's state in a word or two.

    Args:
        status: Its status.
    """
    batch = status.batch
    if not batch:
        return "not started"
    if status.active:
        return "no progress" if status.hangs else {"snapshot": "snapshot"}.get(batch["kind"], "draining")
    failed = batch.get("ok") is False and batch.get("outcome_of") == batch["epoch"]
    if failed or not batch["complete"]:
        return "failed" if failed else "interrupted"
    if status.lag.milliseconds is None:
        return "lag unknown"
    return "behind" if status.lag.milliseconds else "up to date"


def stream_report(ledger: LedgerState) -> ReportJson:
    """Return errors, signals and scans of a stream as plain JSON.

    Args:
        ledger: The ledger; chunks are not needed.

    Raises:
        DamagedRecordError: A record of the ledger is not valid.
    """
    incremental = read_incremental_state(ledger).with_advanced_cursors()
    written = incremental.written_rows()
    ended = sorted((s for s in incremental.scans.values() if s.ended), key=lambda s: -s.number)
    scans = [*incremental.active_scans, *ended]
    requests = sorted(incremental.requests.values(), key=lambda r: -r.ts_ms)
    return {
        "errors": sorted(_errors(ledger), key=lambda e: -e["ts_ms"])[:MAX_ENTRIES],
        "signals": [
            {"id": s.id, "type": s.type, "channel": s.channel, "sent_ms": s.sent_ms}
            for _, s in islice(pending_signals(ledger.signals), MAX_ENTRIES)
        ],
        "requests": [
            {"id": r.id, "verdict": r.verdict, "reason": r.reason, "ts_ms": r.ts_ms, "tables": r.scan_count}
            for r in requests[:MAX_ENTRIES]
        ],
        "scans": [_scan(scan, written.get(scan.number, scan.rows)) for scan in scans[:MAX_ENTRIES]],
        "scans_active": len(incremental.active_scans),
        "scans_paused": incremental.paused,
        "never_read": [
            {"table": str(each.table), "entry": entry_for(each.table), "where": each.where, "why": each.why}
            for each in islice(unread_tables(ledger).values(), MAX_ENTRIES)
        ],
    }


def _errors(ledger: LedgerState) -> Iterator[ReportJson]:
    """Yield the errors that jobs have ended with, with their remedies."""
    for key, record in ledger.other_records.items():
        if key.startswith(JOB_ERROR_PREFIX):
            yield _error(from_json(record["error"]), int(record["ts_ms"]), str(record["owner"]))


def _error(error: CdcError, ts_ms: int, owner: str) -> ReportJson:
    return error.to_json() | {"remedy": error.next_step(), "ts_ms": ts_ms, "owner": owner}


def _scan(scan: TableScan, rows: int) -> ReportJson:
    return {
        "number": scan.number,
        "table": str(scan.table),
        "entry": entry_for(scan.table),
        "request": scan.request,
        "kind": scan.kind,
        "state": scan.state,
        "rows": rows,
        "reason": scan.reason,
        "started_ms": scan.started_ms,
        "initial": scan.initial,
    }


def table_counts(ledger: LedgerState, counts: Mapping[str, int]) -> list[ReportJson]:
    """Return what the ledger knows of each table: records of the last run, and the last verdict.

    Args:
        ledger: The ledger.
        counts: Records of the last run by table.
    """
    last = read_last_verdicts(ledger)
    verdicts = {} if last is None else {verdict.table: str(verdict.verdict) for verdict in last.tables}
    return [
        {"table": table, "records": counts.get(table, 0), "verdict": verdicts.get(table)}
        for table in sorted({*counts, *verdicts})
    ]


@dataclass(frozen=True, slots=True)
class AlarmLimits:
    """Say from when on something is an alarm.

    Args:
        lag_s: Age in seconds of the first change that is not in Kafka; None does not look.
        idle_s: Seconds since the last batch after which changes that wait, with no run active, mean that nobody drains
            the stream; None does not look.
        settings: Whether weak settings of source and Kafka (``mysql-cdc preflight``) are alarms.
    """

    lag_s: float | None = None
    idle_s: float | None = None
    settings: bool = False

    @property
    def any(self) -> bool:
        """Whether there is anything to look at."""
        return self.lag_s is not None or self.idle_s is not None or self.settings


@dataclass(frozen=True, slots=True)
class StreamAlarm:
    """Hold one alarm.

    Args:
        kind: ``failure``, ``deadline``, ``lag``, ``lag-unknown``, ``not-drained``, ``hangs``, ``settings`` or
            ``unreachable``.
        stream: ``topic.prefix``, or the connection where it is not known.
        text: What is wrong, one sentence.
        remedy: What to do; empty if the text says it.
    """

    kind: str
    stream: str
    text: str
    remedy: str = ""

    def __str__(self) -> str:
        remedy = f" What to do: {self.remedy.rstrip('.')}." if self.remedy else ""
        return f"{self.stream}: {self.text.rstrip('.')}.{remedy}"

    def to_json(self) -> dict[str, str]:
        """Return plain JSON."""
        return {"kind": self.kind, "stream": self.stream, "text": self.text, "remedy": self.remedy}


def find_alarms(cfg: ConnectorConfig, limits: AlarmLimits) -> list[StreamAlarm]:
    """Look at a stream; what cannot be read is an alarm too.

    Args:
        cfg: The connector's configuration.
        limits: From when on something is an alarm.
    """
    stream = cfg.topic_prefix
    found: list[StreamAlarm] = []
    try:
        if limits.lag_s is not None or limits.idle_s is not None:
            found += judge_status(read_status(cfg), limits)
        if limits.settings:
            found += [
                StreamAlarm("settings", stream, f"{finding.what} ({finding.why})", finding.fix)
                for report in check_setup(cfg, None)
                for finding in report.findings
            ]
    except CdcError as error:
        found.append(error_alarm("unreachable", stream, error))
    properties = cfg.properties()
    return [replace(a, text=scrub(a.text, properties), remedy=scrub(a.remedy, properties)) for a in found]


def judge_status(status: StreamStatus, limits: AlarmLimits) -> Iterator[StreamAlarm]:
    """Yield the alarms of a status.

    Args:
        status: The status.
        limits: From when on something is an alarm.
    """
    lag, stream = status.lag, status.stream
    age_s = None if lag.milliseconds is None else lag.milliseconds / 1000
    if age_s is None and not _takes_snapshot(status) and not _was_never_started(status):
        yield StreamAlarm("lag-unknown", stream, f"its lag cannot be measured: {lag.why}")
    elif age_s is not None and limits.lag_s is not None and age_s >= limits.lag_s:
        age, allowed = duration_text(age_s), duration_text(limits.lag_s)
        text = f"the first change that is not in Kafka is {age} old, of {allowed} allowed"
        yield StreamAlarm("lag", stream, text, "see whether its drain runs, and what its log says")
    if status.hangs and status.progress_age_ms is not None:
        since = duration_text(status.progress_age_ms / 1000)
        yield StreamAlarm("hangs", stream, f"its run has reported nothing for {since}", "read the run's log")
    idle_s = _idle_seconds(status.batch, status.at_ms)
    waits = age_s is None or age_s > 0
    if limits.idle_s is not None and waits and not status.active and idle_s is not None and idle_s >= limits.idle_s:
        text = f"nobody drains it: changes wait, no run is active, and the last batch ended {duration_text(idle_s)} ago"
        yield StreamAlarm("not-drained", stream, text, "unpause its drain, or see why no run of it starts")


def error_alarm(kind: str, stream: str, error: CdcError) -> StreamAlarm:
    """Return the alarm of an error.

    Args:
        kind: Its kind.
        stream: ``topic.prefix``, or what is known in its place.
        error: The error.
    """
    where, why = f" [{error.where}]" * bool(error.where), f": {error.why}" * bool(error.why)
    return StreamAlarm(kind, stream, f"{type(error).__name__}: {error.what}{where}{why}", error.next_step())


def _takes_snapshot(status: StreamStatus) -> bool:
    """Return whether a run takes a snapshot and reports: until it is complete, no lag can be measured."""
    return bool(status.active) and status.batch.get("kind") == "snapshot" and not status.hangs


def _was_never_started(status: StreamStatus) -> bool:
    """Return whether the source can be asked, and no run of the stream was ever asked for."""
    return status.active is not None and not status.batch


def _idle_seconds(batch: Mapping[str, Any], at_ms: int) -> float | None:
    ended_ms = batch.get("ended_ms")
    return None if ended_ms is None else max(0.0, (at_ms - ended_ms) / 1000)
