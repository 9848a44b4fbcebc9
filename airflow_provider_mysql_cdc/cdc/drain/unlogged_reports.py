"""Reports of rows that a statement changed without row events: a line of the log and a notification."""

from __future__ import annotations

import time

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.signals import notification_record
from airflow_provider_mysql_cdc.cdc.signals.notification_record import NotificationType
from airflow_provider_mysql_cdc.cdc.snapshot.unlogged_changes import UnloggedChange

_MAX_STATEMENT_CHARS = 200
_REMEDY = (
    "Read the table again with an incremental snapshot (signal execute-snapshot, or DAG mysql_cdc_adhoc_snapshot); "
    "rows that are gone get no delete events, so remove them where the events are applied"
)


def unlogged_warning(change: UnloggedChange, sql: str, where: str) -> str:
    """Return the line of the log.

    Args:
        change: What happened.
        sql: The statement.
        where: ``file:position`` of the statement.
    """
    return (
        f"WARNING: rows of {change.table} were changed without row events by a statement at {where}: {change.what}. "
        f"{_REMEDY}. Statement: {_shorten(sql)}"
    )


def unlogged_notification(cfg: ConnectorConfig, change: UnloggedChange, sql: str, where: str) -> SideRecord | None:
    """Return the notification; None when no notification topic is configured.

    Args:
        cfg: The connector's configuration.
        change: What happened.
        sql: The statement.
        where: ``file:position`` of the statement.
    """
    additional_data = {
        notification_record.DATA_COLLECTIONS: str(change.table),
        notification_record.REASON: change.what,
        notification_record.STATEMENT: _shorten(sql),
        notification_record.POSITION: where,
    }
    return notification_record.notification_record(
        cfg,
        notification_record.UNLOGGED,
        NotificationType.SKIPPED,
        f"{where}/{change.table}",
        additional_data,
        time.time_ns() // 1_000_000,
    )


def _shorten(sql: str) -> str:
    """Return the statement's beginning on one line."""
    return " ".join(sql[:_MAX_STATEMENT_CHARS].split())
