"""The notifications about changes of the state, in the format of Debezium's notifications."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import IncrementalState
from airflow_provider_mysql_cdc.cdc.incremental.table_scan import DoneKeyRange, TableScan
from airflow_provider_mysql_cdc.cdc.signals import notification_record
from airflow_provider_mysql_cdc.cdc.signals.notification_record import NotificationType, ScanStatus
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import Bound


class Notification(NamedTuple):
    """Hold one notification before it is written.

    Args:
        type: The notification type.
        id: Id of the signal that caused it.
        additional_data: Members of ``additional_data`` besides the connector's name.
        aggregate_type: The aggregate type.
    """

    type: NotificationType
    id: str
    additional_data: Mapping[str, str] = {}
    aggregate_type: str = notification_record.INCREMENTAL


def started(state: IncrementalState, request_id: str) -> Notification:
    """Return the notification that a request was accepted.

    Args:
        state: The state with its scans.
        request_id: Its id.
    """
    return Notification(
        NotificationType.STARTED,
        request_id,
        {notification_record.DATA_COLLECTIONS: _table_list(_scans_of(state, request_id))},
    )


def progress(state: IncrementalState, done_ranges: Iterable[DoneKeyRange]) -> Iterator[Notification]:
    """Yield a notification for each key range that was read.

    Args:
        state: The state.
        done_ranges: The key ranges.
    """
    tables_left: dict[str, str] = {}
    for key_range in (d.key_range for d in done_ranges):
        scan = state.scans.get(key_range.scan_number)
        if scan is not None:
            if scan.request not in tables_left:
                tables_left[scan.request] = notification_record.join_names(
                    (str(s.table) for s in _scans_of(state, scan.request) if not s.ended),
                    notification_record.MAX_PROGRESS_CHARS,
                )
            yield Notification(
                NotificationType.IN_PROGRESS,
                scan.request,
                {
                    notification_record.DATA_COLLECTIONS: tables_left[scan.request],
                    notification_record.CURRENT_COLLECTION: str(scan.table),
                    notification_record.MAXIMUM_KEY: _key_text(scan.last_key),
                    notification_record.LAST_PROCESSED_KEY: _key_text(key_range.high),
                },
            )


def ended(before: IncrementalState, after: IncrementalState) -> Iterator[Notification]:
    """Yield notifications for scans that have ended, and for requests whose scans have all ended.

    Args:
        before: The state before.
        after: The state now.
    """
    newly_ended = [
        s for o, s in sorted(after.scans.items()) if s.ended and (o not in before.scans or not before.scans[o].ended)
    ]
    for scan in newly_ended:
        yield Notification(
            NotificationType.TABLE_SCAN_COMPLETED,
            scan.request,
            {
                notification_record.SCANNED_COLLECTION: str(scan.table),
                notification_record.TOTAL_ROWS: str(scan.rows),
                notification_record.STATUS: _status(scan).value,
                **({notification_record.REASON: scan.reason} if scan.reason else {}),
            },
        )
    for request_id in dict.fromkeys(scan.request for scan in newly_ended):
        scans = _scans_of(after, request_id)
        if all(scan.ended for scan in scans):
            all_aborted = all(scan.state == "aborted" for scan in scans)
            kind = NotificationType.ABORTED if all_aborted else NotificationType.COMPLETED
            yield Notification(
                kind, request_id, {notification_record.DATA_COLLECTIONS: _table_list(scans)} if all_aborted else {}
            )


def log_lines(notifications: Iterable[Notification]) -> Iterator[str]:
    """Yield a line for each notification that has a result or a list of tables.

    Args:
        notifications: From ``ended``.
    """
    for notification in notifications:
        if notification.additional_data:
            text = ", ".join(f"{name}={value}" for name, value in notification.additional_data.items())
            yield f"snapshot {notification.id}: {text}"


def _status(scan: TableScan) -> ScanStatus:
    if scan.state == "done" and not scan.reason:
        return ScanStatus.SUCCEEDED if scan.rows or scan.last_key is not None else ScanStatus.EMPTY
    return ScanStatus.SKIPPED


def _scans_of(state: IncrementalState, request_id: str) -> list[TableScan]:
    return [scan for _, scan in sorted(state.scans.items()) if scan.request == request_id]


def _table_list(scans: Iterable[TableScan]) -> str:
    return notification_record.join_names(str(scan.table) for scan in scans)


def _key_text(bound: Bound | None) -> str:
    return "" if bound is None else ", ".join(map(str, bound))
