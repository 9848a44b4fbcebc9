"""Check the events of each key one after the other: events that came twice, in the wrong order, or with a gap.

A snapshot may read a row again at any place of the stream; what it read is the row that the next event continues.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from airflow_provider_mysql_cdc.cdc.model.records import Headers
from airflow_provider_mysql_cdc.cdc.verify.read.event_record import (
    UNKNOWN_STRUCTURE,
    EventRecord,
    Row,
    commit_ts_of,
    event_identity,
    hash64,
    row_bytes,
)
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import DifferenceKind

_STEP = struct.Struct("<BQQIQI")
_READ, _CREATE, _UPDATE, _DELETE = "r", "c", "u", "d"
TOMBSTONE_OP = "-"
"""Stands for a tombstone among the operations of a key."""
_UNKNOWN = 0
_PARTIAL = 1
"""Stands for the columns of a row with unknown values."""
IsUnknown = Callable[[str, Any], bool]
"""Says of a column and its value whether that may stand for an unknown one."""
ROWS_ONLY_REASON = (
    "records of TiCDC's protocol have no row before a change: only an update of a deleted row shows that one is missing"
)
NO_TIMES_REASON = "records without enable-tidb-extension do not say their order: of histories only doubled deletes show"
_Facts = tuple[int, str, int] | tuple[int, str, int, int]
"""Time, operation and row of a record, and what names its event."""


class KeyStep(NamedTuple):
    """Hold what is checked of one record of a key.

    Args:
        order: Where the event is in the binlog; 0 where that is not known.
        op: Its operation.
        identity: Digest of what tells the event from others; 0 where nothing does.
        before: Digest of the row before it; 0 without one.
        before_columns: Digest of that row's columns.
        after: Digest of the row after it; 0 without one.
        after_columns: Digest of that row's columns.
    """

    partition: int
    offset: int
    order: int
    op: str
    identity: int
    before: int
    before_columns: int
    after: int
    after_columns: int


@dataclass(frozen=True, slots=True)
class HistoryRules:
    """Say what holds for the records of a topic.

    Args:
        tombstones: Whether a tombstone follows each delete event.
        complete: Whether every event is still there; a compacted topic has lost some, and so gaps mean nothing.
        rows_only: Whether records say nothing but the row after a change (``_check_rows``).
        whole_rows: Of these, whether they have all columns as they are, so that each change makes another record.
        together: Whether all events of a key are in one partition; nothing else orders them.
    """

    tombstones: bool
    complete: bool
    rows_only: bool = False
    whole_rows: bool = False
    together: bool = True

    @property
    def gapless(self) -> bool:
        """Whether the events of a key follow each other without a gap."""
        return self.complete and self.together


def step_bytes(
    record: EventRecord, order: int, headers: Headers, is_unknown: IsUnknown = lambda name, value: False
) -> bytes:
    """Return the bytes of what is checked of a record; its place is not among them.

    Args:
        record: The record; a tombstone has no operation.
        order: Where the event is in the binlog; 0 where that is not known.
        headers: The record's headers.
        is_unknown: Says whether a value may stand for an unknown one; such a row is compared with no other.
    """
    op = record.op or TOMBSTONE_OP
    return _STEP.pack(
        ord(op),
        _step_identity(record, order, headers),
        *_row_digests(record.before, record, is_unknown),
        *_row_digests(record.after, record, is_unknown),
    )


def read_step(partition: int, offset: int, order: int, value: bytes) -> KeyStep:
    """Return the step that ``step_bytes`` wrote.

    Args:
        partition: The record's partition.
        offset: Its offset.
        order: Where the event is in the binlog.
        value: The bytes.
    """
    op, *digests = _STEP.unpack(value)
    return KeyStep(partition, offset, order, chr(op), *digests)


def check_history(steps: Sequence[KeyStep], rules: HistoryRules) -> Iterator[tuple[DifferenceKind, KeyStep]]:
    """Yield what is wrong with the records of one key, with the record at which it shows.

    An event that continues the row of the event before it is right, whatever its place in the binlog: positions begin
    anew on another server, and all events of a compressed transaction have the same.

    Args:
        steps: The records of the key, in any order.
        rules: What holds for the topic.
    """
    if rules.rows_only:
        yield from _check_rows(steps, rules)
        return
    ordered, seen, last = sorted(steps), set[int](), None
    for index, step in enumerate(ordered):
        if step.op == TOMBSTONE_OP:
            continue
        if last is not None and last.partition == step.partition and step.op != _READ:
            kind = _kind_of_break(last, step, seen, rules)
            if kind is not None:
                yield kind, step
        if rules.tombstones and step.op == _DELETE and not _has_tombstone(ordered, index):
            yield DifferenceKind.NO_TOMBSTONE, step
        seen.add(step.identity)
        last = step


def _kind_of_break(last: KeyStep, step: KeyStep, seen: set[int], rules: HistoryRules) -> DifferenceKind | None:
    """Return what is wrong with an event that does not continue the one before it; None if it does."""
    if step.before == last.after and (step.before_columns == last.after_columns or step.before == _UNKNOWN):
        return None
    if step.identity != _UNKNOWN and step.identity in seen:
        return DifferenceKind.DUPLICATE
    if _UNKNOWN < step.order < last.order:
        return DifferenceKind.REORDERED
    # Rows of another structure have other columns; without ``before`` nothing can be said.
    known = _PARTIAL not in (step.before_columns, last.after_columns)
    comparable = (known and step.before_columns == last.after_columns) or _UNKNOWN in (step.before, last.after)
    # A row that is inserted although it is there was deleted by TRUNCATE or with its table, which have no row events.
    is_known = step.before != _UNKNOWN
    return DifferenceKind.GAP if rules.gapless and comparable and is_known else None


def _has_tombstone(ordered: Sequence[KeyStep], index: int) -> bool:
    step, following = ordered[index], ordered[index + 1 : index + 2]
    return any(after.op == TOMBSTONE_OP and after.partition == step.partition for after in following)


def _check_rows(steps: Sequence[KeyStep], rules: HistoryRules) -> Iterator[tuple[DifferenceKind, KeyStep]]:
    """Check records that say the row after a change alone, as TiCDC's do.

    A record has the timestamp of its transaction, and a delete has nothing. So it shows that a record came twice or
    behind a later one, and that a row was updated although it was deleted; a lost update, or an insert between two
    deletes, does not show. A delete behind a delete counts as one that came twice.
    """
    last: KeyStep | None = None
    latest, seen = _UNKNOWN, set[_Facts]()
    for step in sorted(steps):
        if last is None or last.partition != step.partition:
            latest = _UNKNOWN
        elif (kind := _kind_of_row_break(last, step, latest, seen, rules)) is not None:
            yield kind, step
        seen |= {_facts(step), (*_facts(step), step.identity)}
        last, latest = step, max(latest, step.order)


def _facts(step: KeyStep) -> tuple[int, str, int]:
    return step.order, step.op, step.after


def _kind_of_row_break(
    last: KeyStep, step: KeyStep, latest: int, seen: set[_Facts], rules: HistoryRules
) -> DifferenceKind | None:
    if step.op == _DELETE:
        return DifferenceKind.DUPLICATE if rules.gapless and last.op == _DELETE else None
    if step.order == _UNKNOWN:
        return None
    if step.order < latest:
        return DifferenceKind.DUPLICATE if _facts(step) in seen else DifferenceKind.REORDERED
    if step.identity != _UNKNOWN and (*_facts(step), step.identity) in seen:
        return DifferenceKind.DUPLICATE
    # A change that the record does not show, of a column that is left out or masked, leaves an equal record. So does a
    # snapshot right behind the transaction that has inserted the row; only the names of the events differ then.
    if rules.whole_rows and step.op != _CREATE and _facts(step) == _facts(last):
        return DifferenceKind.DUPLICATE
    return DifferenceKind.GAP if rules.gapless and step.op == _UPDATE and last.op == _DELETE else None


def _step_identity(record: EventRecord, order: int, headers: Headers) -> int:
    # TiCDC's timestamp is that of a transaction, which may have changed a row several times.
    return event_identity(record, _UNKNOWN if commit_ts_of(record.source) is not None else order, headers)


def _row_digests(row: Row | None, record: EventRecord, is_unknown: IsUnknown) -> tuple[int, int]:
    """Return the digests of a row and of its columns: their forms where the record says them, and the structure."""
    if row is None:
        return _UNKNOWN, 0
    forms = record.forms
    if record.structure == UNKNOWN_STRUCTURE or any(is_unknown(name, value) for name, value in row.items()):
        return hash64(row_bytes(row)), _PARTIAL
    columns = sorted(row) if forms is None else [f"{name} {forms.get(name)}" for name in sorted(row)]
    # Under another structure the same value may have another text, and the same name stand for another column.
    return hash64(row_bytes(row)), zlib.crc32("\0".join((*columns, f" {record.structure}")).encode())
