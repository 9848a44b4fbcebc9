"""The records of a change of the state of ad-hoc snapshots: ledger and notifications, for one transaction."""

from __future__ import annotations

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import IncrementalState, state_changes
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.signals import notification_record
from airflow_provider_mysql_cdc.cdc.signals.notification_record import Notification


def state_records(
    cfg: ConnectorConfig,
    job: JobLedger,
    before: IncrementalState,
    after: IncrementalState,
    notifications: list[Notification],
) -> list[SideRecord]:
    """Return the ledger records and notifications of a change of the state.

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
    return records + notification_record.notification_records(cfg, notifications)
