"""Changes of the state of ad-hoc snapshots, as notifications and as records for one transaction.

The notifications about changes of the state, as Debezium writes them.

Source: Debezium 3.6.1, ``AbstractIncrementalSnapshotChangeEventSource``. Blocking snapshots, and the scans that finish
an interrupted one, are reported like an initial snapshot (``signals.notification_record``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.unread_tables import unread_key
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import (
    IncrementalState,
    read_incremental_state,
    state_changes,
)
from airflow_provider_mysql_cdc.cdc.incremental.scan_bounds import NO_KEY_REASON, UNKNOWN_TABLE_REASON
from airflow_provider_mysql_cdc.cdc.incremental.scan_updates import (
    STOP_REASON,
    UNCAPTURED_REASON,
    end_uncaptured,
    follow_renamed,
)
from airflow_provider_mysql_cdc.cdc.incremental.scan_validity import ScanValidity, record_format_digest
from airflow_provider_mysql_cdc.cdc.incremental.table_scan import DoneKeyRange, TableScan
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.offset import comparable
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema.history import read_history
from airflow_provider_mysql_cdc.cdc.signals import notification_record
from airflow_provider_mysql_cdc.cdc.signals import notification_record as initial_notifications
from airflow_provider_mysql_cdc.cdc.signals.actions import entry_name
from airflow_provider_mysql_cdc.cdc.signals.notification_record import Notification, NotificationType, ScanStatus
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import Bound

_STATUS_BY_REASON = {
    NO_KEY_REASON: ScanStatus.NO_PRIMARY_KEY,
    UNKNOWN_TABLE_REASON: ScanStatus.UNKNOWN_SCHEMA,
    STOP_REASON: ScanStatus.SKIPPED,
    UNCAPTURED_REASON: ScanStatus.SKIPPED,
}
"""Status of an aborted scan; with any other reason it is ``SQL_EXCEPTION``."""
MAX_UNKNOWN_TABLES = 1000
"""Most tables of one signal whose names match no captured table that have a notification each; the log names all."""


def started(state: IncrementalState, request_id: str, *, blocking: bool = False) -> Notification:
    """Return the notification that a request was accepted.

    Args:
        state: The state with its scans.
        request_id: Its id.
        blocking: Whether it is a blocking snapshot.
    """
    if blocking:
        return initial_notifications.snapshot_notification(NotificationType.STARTED, signal_id=request_id)
    tables = notification_record.join_names(str(scan.table) for scan in _scans_of(state, request_id))
    return Notification(NotificationType.STARTED, request_id, {notification_record.DATA_COLLECTIONS: tables})


def started_with_unknown(
    state: IncrementalState, request_id: str, unknown_tables: Sequence[str]
) -> Iterator[Notification]:
    """Yield the notification that an incremental snapshot was accepted, and those of its tables that are not captured.

    Args:
        state: The state with its scans.
        request_id: Its id.
        unknown_tables: Its entries that match no captured table.
    """
    unknown = [entry_name(entry) for entry in unknown_tables]
    captured = [str(scan.table) for scan in _scans_of(state, request_id)]
    tables = notification_record.join_names([*captured, *unknown])
    yield Notification(NotificationType.STARTED, request_id, {notification_record.DATA_COLLECTIONS: tables})
    max_chars = notification_record.MAX_PROGRESS_CHARS
    for number, name in enumerate(unknown[:MAX_UNKNOWN_TABLES]):
        left = notification_record.join_names([*captured, *unknown[number:]], max_chars)
        yield Notification(
            NotificationType.TABLE_SCAN_COMPLETED,
            request_id,
            {
                notification_record.DATA_COLLECTIONS: left,
                notification_record.SCANNED_COLLECTION: name,
                notification_record.TOTAL_ROWS: "0",
                notification_record.STATUS: ScanStatus.UNKNOWN_SCHEMA.value,
                notification_record.REASON: "no captured table matches it",
            },
        )


def completed(request_id: str, *, blocking: bool = False) -> Notification:
    """Return the notification that all scans of a request have ended.

    Args:
        request_id: Its id.
        blocking: Whether it is a blocking snapshot.
    """
    if blocking:
        return initial_notifications.snapshot_notification(NotificationType.COMPLETED, signal_id=request_id)
    return Notification(NotificationType.COMPLETED, request_id)


def paused_or_resumed(state: IncrementalState, type_: NotificationType) -> Iterator[Notification]:
    """Yield the notification of each incremental snapshot that is paused or continues.

    Args:
        state: The state.
        type_: ``PAUSED`` or ``RESUMED``.
    """
    scans = [scan for scan in state.active_scans if scan.kind == "incremental"]
    for request_id in dict.fromkeys(scan.request for scan in scans):
        tables = notification_record.join_names(str(scan.table) for scan in scans if scan.request == request_id)
        yield Notification(type_, request_id, {notification_record.DATA_COLLECTIONS: tables})


def stopped(
    before: IncrementalState, after: IncrementalState, order: Sequence[TableId] | None = None
) -> Iterator[Notification]:
    """Yield the notification of each incremental snapshot of which a signal has stopped tables.

    A signal whose tables no incremental snapshot has is reported as in Debezium: with the id of the last of them that
    continue, and without a table.

    Args:
        before: The state before.
        after: The state now.
        order: The tables that the signal names, in its order; None for all.
    """
    place = {table: number for number, table in enumerate(order or ())}
    scans = sorted(_newly_ended(before, after), key=lambda scan: place.get(scan.table, 0))
    for request_id in dict.fromkeys(scan.request for scan in scans):
        tables = notification_record.join_names(str(scan.table) for scan in scans if scan.request == request_id)
        yield Notification(NotificationType.ABORTED, request_id, {notification_record.DATA_COLLECTIONS: tables})
    running = [scan.request for scan in after.active_scans if not _reported_as_initial(scan)]
    if order is not None and not order and running:
        yield Notification(NotificationType.ABORTED, running[-1], {notification_record.DATA_COLLECTIONS: ""})


def changed(
    before: IncrementalState, after: IncrementalState, done_ranges: Iterable[DoneKeyRange] = ()
) -> Iterator[Notification]:
    """Yield the notifications of scans that began, read key ranges or ended, and of requests whose scans all ended.

    Args:
        before: The state before.
        after: The state now.
        done_ranges: The key ranges that were read in between.
    """
    ranges: dict[int, list[DoneKeyRange]] = {}
    for done_range in done_ranges:
        ranges.setdefault(done_range.key_range.scan_number, []).append(done_range)
    touched = [s for n, s in sorted(after.scans.items()) if s is not before.scans.get(n) or n in ranges]
    for request_id in dict.fromkeys(scan.request for scan in touched):
        scans = _scans_of(after, request_id)
        of_request = [scan for scan in touched if scan.request == request_id]
        if _reported_as_initial(scans[0]):
            yield from _initial_changes(before, scans, of_request)
        else:
            yield from _incremental_changes(before, scans, of_request, ranges)


def log_lines(notifications: Iterable[Notification]) -> Iterator[str]:
    """Yield a line for each table whose scan has ended.

    Args:
        notifications: From ``changed``.
    """
    for notification in notifications:
        if notification.type is NotificationType.TABLE_SCAN_COMPLETED:
            text = ", ".join(f"{name}={value}" for name, value in notification.additional_data.items())
            yield f"snapshot {notification.id}: {text}"


def _incremental_changes(
    before: IncrementalState,
    scans: Sequence[TableScan],
    touched: Iterable[TableScan],
    ranges: Mapping[int, Sequence[DoneKeyRange]],
) -> Iterator[Notification]:
    ended = False
    left = {scan.number: str(scan.table) for scan in scans if not _has_ended(before, scan)}
    for scan in touched:
        # Each notification lists the tables that are not read yet, with the one that it is about.
        tables = notification_record.join_names(left.values(), notification_record.MAX_PROGRESS_CHARS)
        for done_range in ranges.get(scan.number, ()):
            yield Notification(
                NotificationType.IN_PROGRESS,
                scan.request,
                {
                    notification_record.DATA_COLLECTIONS: tables,
                    notification_record.CURRENT_COLLECTION: str(scan.table),
                    notification_record.MAXIMUM_KEY: _key_text(scan.last_key, '"<null>"'),
                    notification_record.LAST_PROCESSED_KEY: _key_text(done_range.key_range.high, "<null>"),
                },
            )
        if scan.ended and left.pop(scan.number, None) is not None:
            ended = True
            yield Notification(
                NotificationType.TABLE_SCAN_COMPLETED,
                scan.request,
                {
                    notification_record.DATA_COLLECTIONS: tables,
                    notification_record.SCANNED_COLLECTION: str(scan.table),
                    notification_record.TOTAL_ROWS: str(scan.rows),
                    notification_record.STATUS: _status(scan).value,
                    **({notification_record.REASON: scan.reason} if scan.reason else {}),
                },
            )
    if ended and not left:
        yield completed(scans[0].request)


def _initial_changes(
    before: IncrementalState, scans: Sequence[TableScan], touched: Iterable[TableScan]
) -> Iterator[Notification]:
    request = scans[0]
    signal_id = "" if request.initial else request.request
    tables, ended = initial_notifications.table_list(scan.table for scan in scans), False
    begun = initial_notifications.list_in_progress(scan.table for scan in scans)
    for scan in touched:
        earlier = before.scans.get(scan.number)
        was_read = scan.state == "done" and not scan.reason
        if earlier is not None and earlier.state == "waiting" and (scan.state == "running" or was_read):
            yield initial_notifications.table_in_progress(scan.table, begun, signal_id)
        if not scan.ended or _has_ended(before, scan):
            continue
        ended = True
        if was_read:
            yield initial_notifications.table_scan_completed(scan.table, scan.rows, tables, signal_id)
        else:
            yield initial_notifications.table_scan_failed(scan.table, scan.reason, signal_id)
    if ended and all(scan.ended for scan in scans):
        aborted = any(scan.state == "aborted" for scan in scans)
        kind = NotificationType.ABORTED if aborted else NotificationType.COMPLETED
        yield initial_notifications.snapshot_notification(kind, signal_id=signal_id)


def _reported_as_initial(scan: TableScan) -> bool:
    return scan.initial or scan.kind == "blocking"


def _has_ended(state: IncrementalState, scan: TableScan) -> bool:
    earlier = state.scans.get(scan.number)
    return earlier is not None and earlier.ended


def _newly_ended(before: IncrementalState, after: IncrementalState) -> list[TableScan]:
    return [scan for _, scan in sorted(after.scans.items()) if scan.ended and not _has_ended(before, scan)]


def _status(scan: TableScan) -> ScanStatus:
    if scan.state == "done":
        return ScanStatus.SUCCEEDED if scan.rows or scan.last_key is not None else ScanStatus.EMPTY
    return _STATUS_BY_REASON.get(scan.reason, ScanStatus.SQL_EXCEPTION)


def _scans_of(state: IncrementalState, request_id: str) -> list[TableScan]:
    return [scan for _, scan in sorted(state.scans.items()) if scan.request == request_id]


def _key_text(bound: Bound | None, missing: str) -> str:
    return missing if bound is None else ",".join(map(str, bound))


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
    job.commit(state_records(cfg, job, stored, after, list(changed(stored, after))))


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
    job.commit(state_records(cfg, job, stored, after, list(changed(stored, after))))
