"""What a person sees of a stream beside its metrics: state, errors, signals and scans.

All of it is in the ledger; every list is bounded. No value of a row is in it: neither bounds of key ranges nor
conditions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import JOB_ERROR_PREFIX
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.unread_tables import unread_tables
from airflow_provider_mysql_cdc.cdc.errors import CdcError, from_json
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import read_incremental_state
from airflow_provider_mysql_cdc.cdc.incremental.table_scan import TableScan
from airflow_provider_mysql_cdc.cdc.operate.stream_status import StreamStatus
from airflow_provider_mysql_cdc.cdc.signals.signal import pending_signals
from airflow_provider_mysql_cdc.cdc.signals.table_names import entry_for
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
