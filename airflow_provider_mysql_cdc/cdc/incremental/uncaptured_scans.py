"""The end of scans whose tables a batch does not capture, before the batch skips their changes."""

from __future__ import annotations

from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.incremental import notifications
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import read_incremental_state
from airflow_provider_mysql_cdc.cdc.incremental.scan_updates import UNCAPTURED_REASON, end_uncaptured
from airflow_provider_mysql_cdc.cdc.incremental.state_records import state_records
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.model.log import Log


def end_uncaptured_scans(cfg: ConnectorConfig, job: JobLedger, ledger: LedgerState, log: Log) -> None:
    """End the scans of tables that the configuration does not capture any more.

    It is written before a writer of the batch starts. After the batch it would be too late: if its driver died first,
    and the tables were captured again, the scans would go on behind changes that no record tells of.

    Args:
        cfg: The connector's configuration.
        job: The ledger; the batch is in force.
        ledger: Its content.
        log: Writes one line to the log.
    """
    stored = read_incremental_state(ledger)
    before = stored.with_advanced_cursors()
    after = end_uncaptured(before, cfg.captures)
    if after is before:
        return
    for scan in before.active_scans:
        if not cfg.captures(scan.table):
            log(f"WARNING: the snapshot of {scan.table} ends before the table was read: {UNCAPTURED_REASON}")
    job.commit(state_records(cfg, job, stored, after, list(notifications.changed(stored, after))))
