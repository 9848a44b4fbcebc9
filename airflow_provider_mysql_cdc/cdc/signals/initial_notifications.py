"""Notifications of an initial snapshot, and of a blocking one, which Debezium reports in the same way.

Source: Debezium 3.6.1, ``InitialSnapshotNotificationService``: each has a random id.
``AbstractSnapshotChangeEventSource`` writes STARTED and COMPLETED or ABORTED, ``RelationalSnapshotChangeEventSource``
IN_PROGRESS before the first row of a table and TABLE_SCAN_COMPLETED after its last one.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping

from airflow_provider_mysql_cdc.cdc.model.java_order import hash_set_order
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.signals import notification_record
from airflow_provider_mysql_cdc.cdc.signals.notification_record import Notification, NotificationType, ScanStatus


def snapshot_notification(
    type_: NotificationType, additional_data: Mapping[str, str] | None = None, signal_id: str = ""
) -> Notification:
    """Return a notification of an initial or blocking snapshot.

    Args:
        type_: What happened.
        additional_data: Members of ``additional_data`` besides the connector's name.
        signal_id: Id of the signal that requested a blocking snapshot.
    """
    data = dict(additional_data or {})
    if signal_id:
        data[notification_record.SIGNAL_ID] = signal_id
    return Notification(type_, str(uuid.uuid4()), data, notification_record.INITIAL)


def table_in_progress(table: TableId, tables: str, signal_id: str = "") -> Notification:
    """Return the notification that a table is being read.

    Args:
        table: The table.
        tables: All tables of the snapshot (``list_in_progress``).
        signal_id: Id of the signal that requested a blocking snapshot.
    """
    data = {
        notification_record.CURRENT_COLLECTION: str(table),
        notification_record.DATA_COLLECTIONS: tables,
    }
    return snapshot_notification(NotificationType.IN_PROGRESS, data, signal_id)


def table_scan_completed(table: TableId, rows: int, tables: str, signal_id: str = "") -> Notification:
    """Return the notification that a table was read.

    Args:
        table: The table.
        rows: Rows that were read.
        tables: All tables of the snapshot (``table_list``).
        signal_id: Id of the signal that requested a blocking snapshot.
    """
    data = {
        notification_record.SCANNED_COLLECTION: str(table),
        notification_record.DATA_COLLECTIONS: tables,
        notification_record.TOTAL_ROWS: str(rows),
        notification_record.STATUS: ScanStatus.SUCCEEDED.value,
    }
    return snapshot_notification(NotificationType.TABLE_SCAN_COMPLETED, data, signal_id)


def table_scan_failed(table: TableId, reason: str, signal_id: str = "") -> Notification:
    """Return the notification that a table could not be read.

    Args:
        table: The table.
        reason: Why.
        signal_id: Id of the signal that requested a blocking snapshot.
    """
    data = {
        notification_record.SCANNED_COLLECTION: str(table),
        notification_record.STATUS: ScanStatus.SQL_EXCEPTION.value,
        notification_record.REASON: reason,
    }
    return snapshot_notification(NotificationType.TABLE_SCAN_COMPLETED, data, signal_id)


def table_list(tables: Iterable[TableId]) -> str:
    """Return the tables of a snapshot as a text, whose length is bounded, as there is one in two notifications of each.

    Args:
        tables: The tables.
    """
    return notification_record.join_names(map(str, tables), notification_record.MAX_PROGRESS_CHARS)


def list_in_progress(tables: Iterable[TableId]) -> str:
    """Return the same for notifications of tables in progress, in which Debezium has the order of a hash set.

    Args:
        tables: The tables.
    """
    names = hash_set_order(map(str, tables))
    return notification_record.join_names(names, notification_record.MAX_PROGRESS_CHARS)
