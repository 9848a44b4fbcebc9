"""Scans of a stream that has gone on at another server: their positions are those of the former one."""

from __future__ import annotations

from dataclasses import replace

from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.incremental import notifications
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import read_incremental_state
from airflow_provider_mysql_cdc.cdc.incremental.initial_scans import follow_renamed
from airflow_provider_mysql_cdc.cdc.incremental.scan_validity import ScanValidity, record_format_digest
from airflow_provider_mysql_cdc.cdc.incremental.state_records import state_records
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.offset import comparable
from airflow_provider_mysql_cdc.cdc.schema.history import read_history


def restart_moved_scans(cfg: ConnectorConfig, job: JobLedger, ledger: LedgerState, log: Log) -> None:
    """Let scans that began on another server begin again, before a batch is read on this one.

    Statements after a scan's start decide whether it may go on, and which name its table has; after the move they stand
    in another binlog than the start. Reading rows twice is better than never. Renames that were drained on the former
    server are followed first, as a window would have.

    Args:
        cfg: The connector's configuration.
        job: The ledger; the batch is in force.
        ledger: Its content.
        log: Writes one line to the log.
    """
    plan = ledger.plan_in_force()
    stored = read_incremental_state(ledger)
    before = stored.with_advanced_cursors()
    moved = [
        s for s in before.active_scans if s.start_offset is not None and not comparable(s.start_offset, plan.start)
    ]
    if plan.continued_from is None or not moved:
        return
    validity = ScanValidity(plan.continued_from, record_format_digest(cfg), moved, cfg.captures)
    for record in read_history(cfg):
        validity.check_record(record)
    renamed = [(scan, name) for scan, name in validity.renamed(moved) if cfg.captures(name)]
    restarted = [replace(s.restart(), start_offset=plan.start) if s.initial else s.restart() for s in moved]
    after = before.with_scans(restarted).without_ranges({scan.number for scan in restarted})
    after = follow_renamed(after, renamed, plan.start)
    for scan in moved:
        log(f"the snapshot of {scan.table} begins again: the stream goes on at another server since it began")
    job.commit(state_records(cfg, job, stored, after, list(notifications.changed(stored, after))))
