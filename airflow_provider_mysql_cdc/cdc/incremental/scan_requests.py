"""What a signal makes of the books: pure functions from books to books and the notices that go with it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import Books, Request
from airflow_provider_mysql_cdc.cdc.incremental.table_scan import ScanKind, TableScan
from airflow_provider_mysql_cdc.cdc.model.table import TableId

STOPPED = "stopped by a signal"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Say which tables are to be read, and how.

    Args:
        id: The signal's id.
        kind: ``incremental`` or ``blocking``.
        tables: The tables, in the order of the signal.
        conditions: SQL by table.
        surrogate: Column by which tables are cut instead of their keys, or None.
        chunk_size: Rows of a chunk; 0 takes incremental.snapshot.chunk.size.
    """

    id: str
    kind: ScanKind
    tables: Sequence[TableId]
    conditions: Mapping[TableId, str]
    surrogate: str | None = None
    chunk_size: int = 0


def ask(books: Books, wanted: Wanted, now_ms: int) -> Books:
    """Queue a scan for each table; a request whose id is known is the same request and asks for nothing new.

    Args:
        books: The books.
        wanted: What is asked for.
        now_ms: Now, milliseconds since 1970.
    """
    if wanted.id in books.requests:
        return books
    first = books.next_order
    scans = [
        TableScan(
            table, wanted.id, order, wanted.kind, wanted.conditions.get(table), wanted.surrogate, wanted.chunk_size
        )
        for order, table in enumerate(wanted.tables, first)
    ]
    request = Request(wanted.id, "accepted", first, len(scans), "", now_ms)
    asked = replace(books.with_scans(scans).with_request(request), next_order=first + len(scans))
    return asked.pruned()


def refuse(books: Books, request: str, reason: str, now_ms: int) -> Books:
    """Write down that a request was refused; one that is known keeps what it was told.

    Args:
        books: The books.
        request: The signal's id.
        reason: Why.
        now_ms: Now, milliseconds since 1970.
    """
    if request in books.requests:
        return books
    return books.with_request(Request(request, "refused", reason=reason, ts_ms=now_ms))


def stop(books: Books, tables: Collection[TableId] | None, kind: ScanKind = "incremental") -> Books:
    """Give scans up.

    Args:
        books: The books.
        tables: Which; None for all.
        kind: The kind of snapshot that is stopped.
    """
    ended = [s.abort(STOPPED) for s in books.active if s.kind == kind and (tables is None or s.table in tables)]
    return books.with_scans(ended).folded()


def anew(books: Books) -> Books:
    """Let all scans begin anew that are not ended: the stream has left something out.

    Args:
        books: The books.
    """
    scans = [scan.anew() for scan in books.active]
    return books.without_stretches({scan.order for scan in scans}).with_scans(scans)


def pause(books: Books, *, paused: bool) -> Books:
    """Stop reading, or go on; an incremental snapshot that is not there cannot be paused."""
    return replace(books, paused=paused and bool(books.active))
