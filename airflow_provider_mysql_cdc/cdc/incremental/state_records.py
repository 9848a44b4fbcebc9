"""The records of a change of the state of ad-hoc snapshots: ledger and notifications, for one transaction."""

from __future__ import annotations

from airflow_provider_mysql_cdc.cdc.commit.unread_tables import unread_key
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import IncrementalState, state_changes
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.signals import notification_record
from airflow_provider_mysql_cdc.cdc.signals.notification_record import Notification


def state_records(
    cfg: ConnectorConfig,
    job: JobLedger,
    before: IncrementalState,
    after: IncrementalState,
    notifications: list[Notification],
) -> list[SideRecord]:
    """Return the ledger records and notifications of a change of the state; a table that was read is not unread.

    Args:
        cfg: The connector's configuration.
        job: The ledger.
        before: The state in the ledger.
        after: The new state.
        notifications: The notifications.
    """
    records: list[SideRecord] = [
        SideRecord(cfg.ledger_topic, key.encode(), None) if value is None else job.record(key, value)
        for key, value in state_changes(before, after)
    ]
    records += [SideRecord(cfg.ledger_topic, unread_key(table).encode(), None) for table in _read_tables(before, after)]
    return records + notification_record.notification_records(cfg, notifications)


def _read_tables(before: IncrementalState, after: IncrementalState) -> list[TableId]:
    """Return the tables that were read completely between two states; a reason says why one was not."""
    read = []
    for number, scan in after.scans.items():
        earlier = before.scans.get(number, scan.restart())
        if scan.state == "done" and not scan.reason and not earlier.ended and earlier.condition is None:
            read.append(scan.table)
    return read
