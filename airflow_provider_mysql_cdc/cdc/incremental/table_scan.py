"""The scans of tables in ad-hoc snapshots, as values with their progress.

A table is read in key ranges ``low < key <= high`` that follow each other from its first key to the one that was its
last when the scan began (INC-09, INC-19). ``cursor`` is the key up to which everything is done. Several key ranges are
read at the same time, so some after the cursor may already be done; each of these has a record of its own until the
cursor has passed it (``advance_cursor``). So the record of a scan does not grow, and after any failure the next run
continues at the first missing key (INC-17).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.stored_record import Count, Record
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.signals.actions import SnapshotKind
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import Bound
from airflow_provider_mysql_cdc.cdc.snapshot.key_kinds import check_bounds

ScanState = Literal["waiting", "running", "done", "aborted"]
ENDED_STATES: frozenset[str] = frozenset({"done", "aborted"})


@dataclass(frozen=True, slots=True)
class TableScan(Record):
    """Describe the ad-hoc snapshot of one table.

    Args:
        table: The table.
        request: Id of the signal that requested it.
        number: Its number, unique within a stream; scans are read in this order.
        kind: ``incremental``, or ``blocking``: the stream waits until all tables of the request are read.
        condition: SQL condition of the rows, or None; it came from a trusted channel.
        surrogate_key: Column by which the table is split instead of its key, or None.
        chunk_size: Rows of a chunk as requested; 0 means incremental.snapshot.chunk.size.
        state: ``waiting`` until its first and last key are known, ``running``, ``done`` or ``aborted``.
        columns: The columns that bound key ranges; empty for a table that is one key range.
        kinds: The kind of each column (``snapshot.key_kinds``).
        last_key: The last key when the scan began; None for a table that is one key range.
        cursor: Everything up to this key is done; None before the first key range.
        next_number: Number of the first key range after the cursor.
        rows: Rows written.
        counted_rows: Those of them that the tally of a run has counted.
        reason: Why it was aborted, why it is done although its table was not read, or why the table of an interrupted
            snapshot could not be read last.
        started_ms: When it began, milliseconds since 1970; 0 while it waits.
        start_offset: Position of the stream when it began; None while it waits.
        format_digest: Digest of the record format (``scan_validity.record_format_digest``).
        initial: Whether it finishes an interrupted snapshot (``scan_updates``).
        first_view_ms: The first time that rows of its views say; 0 before the first row.
        last_view_ms: The last one.
    """

    table: TableId
    request: str
    number: Count
    kind: SnapshotKind = "incremental"
    condition: str | None = None
    surrogate_key: str | None = None
    chunk_size: Count = 0
    state: ScanState = "waiting"
    columns: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    last_key: Bound | None = None
    cursor: Bound | None = None
    next_number: Count = 0
    rows: Count = 0
    reason: str = ""
    started_ms: Count = 0
    start_offset: BinlogOffset | None = None
    format_digest: str = ""
    initial: bool = False
    counted_rows: Count = 0
    first_view_ms: Count = 0
    last_view_ms: Count = 0

    @property
    def ended(self) -> bool:
        """Whether the scan is done or aborted."""
        return self.state in ENDED_STATES

    def begin(self, columns: tuple[str, ...], kinds: tuple[str, ...], last_key: Bound | None, now_ms: int) -> TableScan:
        """Return the running scan with its range, before the first key.

        Args:
            columns: The columns that bound key ranges.
            kinds: Their kinds.
            last_key: The last key; None without columns.
            now_ms: Current time, milliseconds since 1970.
        """
        return replace(
            self,
            state="running",
            columns=columns,
            kinds=kinds,
            last_key=last_key,
            cursor=None,
            next_number=0,
            started_ms=now_ms,
            reason="",
        )

    def with_validity(self, start_offset: BinlogOffset, format_digest: str) -> TableScan:
        """Return the scan with the values that ``ScanValidity`` checks later.

        Args:
            start_offset: Position of the stream.
            format_digest: Digest of the record format.
        """
        return replace(self, start_offset=start_offset, format_digest=format_digest)

    def restart(self) -> TableScan:
        """Return the scan as waiting again; it will be read from the start."""
        return replace(
            self, state="waiting", columns=(), kinds=(), last_key=None, cursor=None, next_number=0, start_offset=None
        )

    def counting(self, done: Iterable[DoneKeyRange]) -> TableScan:
        """Return the scan with the rows and the views of key ranges that no record of their own keeps any more."""
        scan = self
        for each in done:
            first, last = scan.first_view_ms or each.view_ms, max(scan.last_view_ms, each.view_ms)
            scan = replace(scan, rows=scan.rows + each.rows, first_view_ms=first, last_view_ms=last)
        return scan

    def abort(self, reason: str) -> TableScan:
        """Return the scan as aborted."""
        return replace(self, state="aborted", reason=reason)

    def unreadable(self, reason: str) -> TableScan:
        """Return the scan of a table that cannot be read: it is aborted.

        One that finishes an interrupted snapshot waits until the table can be read: nobody can ask for it once more.

        Args:
            reason: The reason.
        """
        return replace(self, reason=reason) if self.initial else self.abort(reason)

    def finish(self, reason: str = "") -> TableScan:
        """Return the scan as done.

        Args:
            reason: Why there is nothing to read; empty if the table was read.
        """
        return replace(self, state="done", reason=reason)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON, without the condition of a scan that has ended."""
        return Record.to_json(replace(self, condition=None) if self.ended else self)

    def check(self) -> None:
        """Check everything that becomes part of SQL.

        Raises:
            ValueError: The text says what is wrong, and where.
        """
        check_bounds(self.columns, self.kinds, {"last_key": self.last_key, "cursor": self.cursor})


@dataclass(frozen=True, slots=True)
class KeyRange(Record):
    """Describe one range of a table: the rows with ``low < key <= high``.

    Args:
        table: The table.
        scan_number: Number of its scan.
        number: Number among the scan's key ranges; a higher one has greater keys.
        columns: The columns of the bounds.
        kinds: The kind of each column.
        low: Exclusive lower bound, or None.
        high: Inclusive upper bound; None for a table that is one key range.
        final: Whether it is the last one of the scan.
    """

    table: TableId
    scan_number: Count
    number: Count
    columns: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    low: Bound | None = None
    high: Bound | None = None
    final: bool = True

    @property
    def id(self) -> str:
        """Return ``scan/number``, its id in the ledger."""
        return f"{self.scan_number}/{self.number}"

    def __str__(self) -> str:
        return f"{self.table}, key range {self.number}"

    def check(self) -> None:
        """Check everything that becomes part of SQL.

        Raises:
            ValueError: The text says what is wrong, and where.
        """
        check_bounds(self.columns, self.kinds, {"low": self.low, "high": self.high})


@dataclass(frozen=True, slots=True)
class DoneKeyRange(Record):
    """Record that the rows of a key range are committed; the record is part of their Kafka transaction.

    Args:
        key_range: The key range.
        rows: Rows written.
        left_out: Rows left out, because an event of the stream changed them in the meantime.
        view_ms: The time that rows of its view say; 0 for a chunk of an interrupted snapshot.
    """

    key_range: KeyRange
    rows: Count
    left_out: Count = 0
    view_ms: Count = 0

    def check(self) -> None:
        """Check the key range.

        Raises:
            ValueError: The text says what is wrong, and where.
        """
        self.key_range.check()


def advance_cursor(scan: TableScan, done: Iterable[DoneKeyRange]) -> tuple[TableScan, list[DoneKeyRange]]:
    """Advance a scan's cursor over the finished key ranges that follow it without a gap.

    Args:
        scan: The scan.
        done: Key ranges whose rows are committed; those of other scans, or bounded by another key, are ignored.

    Returns:
        The scan, ``done`` if its last key range was among them, and the key ranges after the first gap, in order.
    """
    scan_identity = (scan.number, scan.columns, scan.kinds)
    own_ranges = [d for d in done if (d.key_range.scan_number, d.key_range.columns, d.key_range.kinds) == scan_identity]
    pending = sorted(own_ranges, key=lambda d: d.key_range.number)
    while pending and not scan.ended and pending[0].key_range.low == scan.cursor:
        next_range = pending.pop(0)
        scan = replace(
            scan,
            cursor=next_range.key_range.high,
            next_number=next_range.key_range.number + 1,
            reason="",
            state="done" if next_range.key_range.final else "running",
        ).counting([next_range])
    return scan, pending


@dataclass(frozen=True, slots=True)
class MissingRange:
    """Describe keys that are not read, between key ranges that are.

    Args:
        key_range: All of them as one key range.
        last_number: The highest number that a part of it may have.
    """

    key_range: KeyRange
    last_number: int


def missing_ranges(scan: TableScan, done: Iterable[DoneKeyRange]) -> list[MissingRange]:
    """Return the missing key ranges between the cursor and the finished ones after it.

    Args:
        scan: The scan after ``advance_cursor``.
        done: The key ranges that ``advance_cursor`` returned, in order.
    """
    missing, low, number = [], scan.cursor, scan.next_number
    for done_range in done:
        key_range = done_range.key_range
        if key_range.low != low:
            gap = KeyRange(scan.table, scan.number, number, scan.columns, scan.kinds, low, key_range.low, False)
            missing.append(MissingRange(gap, key_range.number - 1))
        low, number = key_range.high, key_range.number + 1
    return missing
