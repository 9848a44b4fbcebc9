"""What is to be told of a step of the books, in the words of Debezium's notifications."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import Books
from airflow_provider_mysql_cdc.cdc.incremental.table_scan import DoneStretch, TableScan
from airflow_provider_mysql_cdc.cdc.signals import notification_record as notify
from airflow_provider_mysql_cdc.cdc.signals.notification_record import NotificationType, ScanStatus
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import Bound


class Notice(NamedTuple):
    """Hold one notification before it is written.

    Args:
        type: What happened.
        id: Id of the signal that led to it.
        additional: Members of ``additional_data`` beside the connector's name.
        aggregate: What it speaks of.
    """

    type: NotificationType
    id: str
    additional: Mapping[str, str] = {}
    aggregate: str = notify.INCREMENTAL


def started(books: Books, request: str) -> Notice:
    """Return the notice that a request was accepted.

    Args:
        books: The books with its scans.
        request: Its id.
    """
    return Notice(NotificationType.STARTED, request, {notify.DATA_COLLECTIONS: _tables(_of(books, request))})


def progress(books: Books, done: Iterable[DoneStretch]) -> Iterator[Notice]:
    """Yield a notice for each stretch that was read.

    Args:
        books: The books.
        done: The stretches.
    """
    left: dict[str, str] = {}
    for stretch in (d.stretch for d in done):
        scan = books.scans.get(stretch.scan)
        if scan is not None:
            if scan.request not in left:
                left[scan.request] = _tables(s for s in _of(books, scan.request) if not s.ended)
            yield Notice(
                NotificationType.IN_PROGRESS,
                scan.request,
                {
                    notify.DATA_COLLECTIONS: left[scan.request],
                    notify.CURRENT_COLLECTION: str(scan.table),
                    notify.MAXIMUM_KEY: _key(scan.last),
                    notify.LAST_PROCESSED_KEY: _key(stretch.high),
                },
            )


def ended(before: Books, after: Books) -> Iterator[Notice]:
    """Yield notices for scans that have ended, and for requests that have nothing left.

    Args:
        before: The books before.
        after: The books now.
    """
    over = [
        s for o, s in sorted(after.scans.items()) if s.ended and (o not in before.scans or not before.scans[o].ended)
    ]
    for scan in over:
        yield Notice(
            NotificationType.TABLE_SCAN_COMPLETED,
            scan.request,
            {
                notify.SCANNED_COLLECTION: str(scan.table),
                notify.TOTAL_ROWS: str(scan.rows),
                notify.STATUS: _status(scan).value,
                **({notify.REASON: scan.reason} if scan.reason else {}),
            },
        )
    for request in dict.fromkeys(scan.request for scan in over):
        scans = _of(after, request)
        if all(scan.ended for scan in scans):
            stopped = all(scan.state == "aborted" for scan in scans)
            kind = NotificationType.ABORTED if stopped else NotificationType.COMPLETED
            yield Notice(kind, request, {notify.DATA_COLLECTIONS: _tables(scans)} if stopped else {})


def _status(scan: TableScan) -> ScanStatus:
    if scan.state == "done":
        return ScanStatus.SUCCEEDED if scan.rows or scan.last is not None else ScanStatus.EMPTY
    return ScanStatus.SKIPPED


def _of(books: Books, request: str) -> list[TableScan]:
    return [scan for _, scan in sorted(books.scans.items()) if scan.request == request]


def _tables(scans: Iterable[TableScan]) -> str:
    return ", ".join(dict.fromkeys(str(scan.table) for scan in scans))


def _key(bound: Bound | None) -> str:
    return "" if bound is None else ", ".join(map(str, bound))
