"""Fold the events of one bucket by key, and compare what they lead to with the rows of the tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any

from airflow_provider_mysql_cdc.cdc.verify.compare.event_entries import FOREIGN_KEY, OF_ANY_TABLE, OF_PLACE, is_raw
from airflow_provider_mysql_cdc.cdc.verify.compare.key_state import EqualRowEvent, KeyState, Truncates, count_rows
from airflow_provider_mysql_cdc.cdc.verify.history.key_history import (
    HistoryRules,
    KeyStep,
    check_history,
    read_step,
)
from airflow_provider_mysql_cdc.cdc.verify.history.transactions import TransactionFold
from airflow_provider_mysql_cdc.cdc.verify.read.entries import EntryKind, FoldEntry
from airflow_provider_mysql_cdc.cdc.verify.read.event_record import row_bytes, stored_row
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import DifferenceKind
from airflow_provider_mysql_cdc.cdc.verify.structures.row_comparison import RowDifference

CompareRows = Callable[[int, Mapping[str, Any], Mapping[str, Any]], RowDifference]
"""Compares the values of a row with those of its last event, given the table's number."""


_ALIVE = (EntryKind.ALIVE, EntryKind.ALIVE_UNDER_OTHER_KEY)


@dataclass(frozen=True, slots=True)
class FoundDifference:
    """Hold one difference that was found in a bucket.

    Args:
        table: The table's number.
        key: Canonical bytes of the row's identity.
        columns: Columns that differ.
        row: Canonical bytes of the table's row; None without one.
        event_row: Canonical bytes of the values after the last event; None without one.
        record: Partition and offset of the last event, or of the record that is wrong; None without one.
        last: Partition and offset of the last event; None without one.
        places: Records of the key that consumers have to forget, wherever they are.
        reason: Why a record is no event.
    """

    table: int
    kind: DifferenceKind
    key: bytes
    columns: tuple[str, ...] = ()
    row: bytes | None = None
    event_row: bytes | None = None
    record: tuple[int, int] | None = None
    last: tuple[int, int] | None = None
    places: tuple[tuple[int, int], ...] = ()
    reason: str = ""


@dataclass(slots=True)
class TableCounts:
    """Count what was compared of one table.

    Args:
        rows: Rows of the table.
        events: Events of its topic.
        partial: Rows without a difference whose last event was compared in part.
        partial_columns: Such rows by column that was not compared.
        differences: Differences by kind.
        columns: Differing rows by column.
        undecided: Keys of which it is not known which event is their last one.
        unplaced: Rows without events, and events without rows, of which events may be that do not say their key.
        kept: Rows of which an earlier event is the last one under a record key that they no longer have.
    """

    rows: int = 0
    events: int = 0
    partial: int = 0
    undecided: int = 0
    unplaced: int = 0
    kept: int = 0
    differences: Counter[DifferenceKind] = field(default_factory=Counter)
    columns: Counter[str] = field(default_factory=Counter)
    partial_columns: Counter[str] = field(default_factory=Counter)

    def add(self, other: TableCounts) -> None:
        """Add the counts of another bucket."""
        for each in fields(self):
            mine, others = getattr(self, each.name), getattr(other, each.name)
            setattr(self, each.name, mine + others)


@dataclass(slots=True)
class BucketResult:
    """Hold what the comparison of one bucket found.

    Args:
        counts: Counts by the table's number.
        found: Differences, at most as many of each table and kind as were asked for.
        undecidable: Why rows of tables without a key cannot be told, by the table's number.
        unjudged_transactions: Number of transactions that may be incomplete because records are gone, by table.
    """

    counts: dict[int, TableCounts] = field(default_factory=dict)
    found: list[FoundDifference] = field(default_factory=list)
    undecidable: dict[int, str] = field(default_factory=dict)
    unjudged_transactions: Counter[int] = field(default_factory=Counter)


class BucketFold:
    """Fold the entries of one bucket.

    Args:
        compare: Compares a row with its last event, where their bytes differ.
        max_found: Most differences of each table and kind that are returned; all are counted.
        rules: What holds for the histories of keys, by the table's number.
        moving: Numbers of tables whose rows may have events in several partitions, because something else than the
            row's key chooses them.
        whole: Numbers of tables whose events are compared with the transaction topic.
    """

    def __init__(
        self,
        compare: CompareRows,
        max_found: int,
        rules: Mapping[int, HistoryRules] = MappingProxyType({}),
        moving: frozenset[int] = frozenset(),
        whole: frozenset[int] = frozenset(),
    ) -> None:
        self._compare, self._max_found, self._rules, self._moving = compare, max_found, rules, moving
        self._steps: dict[tuple[int, bytes], list[KeyStep]] = {}
        self._more_rows: dict[tuple[int, bytes], list[bytes]] = {}
        self._keys: dict[tuple[int, bytes], KeyState] = {}
        self._keyless_rows = Counter[tuple[int, bytes]]()
        self._keyless_events: dict[tuple[int, bytes], list[EqualRowEvent]] = {}
        self._truncates: dict[int, Truncates] = {}
        self._unplaced: dict[int, int] = {}
        self._transactions = TransactionFold(whole)
        self._result = BucketResult()
        self._found_counts = Counter[tuple[int, DifferenceKind]]()
        self._add: Mapping[EntryKind, Callable[[FoldEntry], None]] = {
            EntryKind.ROW: self._add_row,
            EntryKind.ALIVE: self._add_event,
            EntryKind.DEAD: self._add_event,
            EntryKind.ALIVE_UNDER_OTHER_KEY: self._add_event,
            EntryKind.DEAD_UNDER_OTHER_KEY: self._add_event,
            EntryKind.TRUNCATE: self._add_truncate,
            EntryKind.TOMBSTONE: lambda entry: self._state(entry).add_tombstone(entry.partition, entry.offset),
            EntryKind.ADDED: self._add_keyless_event,
            EntryKind.REMOVED: self._add_keyless_event,
            EntryKind.KEYLESS_ROW: self._add_keyless_row,
            EntryKind.STEP: self._add_step,
            EntryKind.UNDECIDABLE: self._add_undecidable,
            EntryKind.UNPLACED: self._add_unplaced,
            EntryKind.UNREADABLE: self._add_unreadable,
            EntryKind.REPAIRED: self._add_repair,
            EntryKind.KEPT: lambda entry: self._state(entry).add_kept(entry),
            EntryKind.TRANSACTION_EVENT: self._transactions.add_event,
            EntryKind.TRANSACTION_BOUNDARY: self._transactions.add_boundary,
            EntryKind.TOPIC_START: self._transactions.add_start,
        }

    def add(self, entries: Iterable[FoldEntry]) -> None:
        """Add entries, in any order."""
        for entry in entries:
            self._add[entry.kind](entry)

    def result(self) -> BucketResult:
        """Compare, and return what was found."""
        for (table, key), state in self._keys.items():
            self._judge(table, key, state)
        for table, key in self._keyless_rows.keys() | self._keyless_events.keys():
            if table not in self._result.undecidable:
                self._judge_equal_rows(table, key)
        for (table, key), steps in self._steps.items():
            self._judge_history(table, key, steps)
        for torn in self._transactions.torn():
            key = row_bytes({"transaction": torn.transaction})
            kind = DifferenceKind.TORN_TRANSACTION
            self._note(FoundDifference(torn.table, kind, key, record=torn.record, reason=torn.reason))
        self._result.unjudged_transactions = self._transactions.unjudged
        return self._result

    def _add_row(self, entry: FoldEntry) -> None:
        self._counts(entry.table).rows += 1
        state = self._state(entry)
        if state.row is None:
            state.row, state.row_partition = entry.value, entry.partition
        else:
            self._more_rows.setdefault((entry.table, entry.key), []).append(entry.value)

    def _add_event(self, entry: FoldEntry) -> None:
        self._counts(entry.table).events += 1
        value = entry.value if entry.kind in _ALIVE else None
        has_key = entry.kind in (EntryKind.ALIVE, EntryKind.DEAD)
        self._state(entry).add_event((entry.partition, entry.offset, entry.order, value, has_key))

    def _add_truncate(self, entry: FoldEntry) -> None:
        self._truncates.setdefault(entry.table, Truncates()).add(entry)

    def _add_keyless_event(self, entry: FoldEntry) -> None:
        self._counts(entry.table).events += 1
        event = EqualRowEvent.of_entry(entry)
        self._keyless_events.setdefault((entry.table, entry.key), []).append(event)

    def _add_keyless_row(self, entry: FoldEntry) -> None:
        self._counts(entry.table).rows += 1
        self._keyless_rows[entry.table, entry.key] += 1

    def _add_undecidable(self, entry: FoldEntry) -> None:
        self._result.undecidable[entry.table] = entry.value.decode()

    def _add_unplaced(self, entry: FoldEntry) -> None:
        self._unplaced[entry.table] = max(entry.order, self._unplaced.get(entry.table, 0))

    def _add_repair(self, entry: FoldEntry) -> None:
        past, place = self._state(entry).past, (entry.partition, entry.offset)
        if entry.value == OF_PLACE:
            past.settled.add(place)
        elif entry.value == OF_ANY_TABLE:
            past.of_any_table.append(place)
        else:
            past.repairs.setdefault(entry.partition, set()).add(entry.offset)

    def _add_unreadable(self, entry: FoldEntry) -> None:
        self._state(entry).past.unreadable.append((entry.partition, entry.offset, entry.value.decode()))

    def _add_step(self, entry: FoldEntry) -> None:
        step = read_step(entry.partition, entry.offset, entry.order, entry.value)
        self._steps.setdefault((entry.table, entry.key), []).append(step)

    def _state(self, entry: FoldEntry) -> KeyState:
        key = (entry.table, entry.key)
        state = self._keys.get(key)
        if state is None:
            state = self._keys[key] = KeyState()
        return state

    def _counts(self, table: int) -> TableCounts:
        counts = self._result.counts.get(table)
        if counts is None:
            counts = self._result.counts[table] = TableCounts()
        return counts

    def _judge(self, table: int, key: bytes, state: KeyState) -> None:
        state.settle()
        event = state.last_event()
        truncates = self._truncates.get(table)
        event_row = state.row_after(event, truncates)
        record = None if event is None else event[:2]
        if state.row is not None and (more_rows := self._more_rows.get((table, key))):
            state.row = self._judge_row_of_several(table, key, [state.row, *more_rows], event_row)
        found = FoundDifference(table, DifferenceKind.DIFFERING, key, (), state.row, event_row, record, record)
        for partition, offset, reason in state.left_unreadable():
            place = (partition, offset)
            unreadable = FoundDifference(table, DifferenceKind.UNREADABLE, key, (), None, None, place, record)
            self._note(replace(unreadable, places=(place,), reason=reason))
        if state.keeps_former_key(event, truncates):
            self._counts(table).kept += 1
        if table not in self._moving and len(state.partitions()) > 1:
            self._note(replace(found, kind=DifferenceKind.WRONG_PARTITION, places=state.places()))
        if (state.row is None) is not (event_row is None) and (0 if event is None else event[2]) < self._unplaced.get(
            table, 0
        ):
            self._counts(table).unplaced += 1
        elif table in self._moving and state.may_be_other(event):
            self._counts(table).undecided += 1
        elif state.row is None:
            if event_row is not None and table in self._moving and state.has_delete_without_place():
                self._counts(table).undecided += 1
            elif event_row is not None:
                self._note(replace(found, kind=DifferenceKind.GHOST, reason=FOREIGN_KEY if is_raw(key) else ""))
        elif event_row is None:
            self._note(replace(found, kind=DifferenceKind.MISSING))
        elif state.row != event_row:
            self._judge_values(found, state.row, event_row)

    def _judge_row_of_several(self, table: int, key: bytes, rows: list[bytes], event_row: bytes | None) -> bytes:
        """Return the row that the last event of a key is about, where several have that key in records.

        Records keep one row of a key, so consumers miss the others.
        """
        rows.sort()
        chosen = rows.pop(next((i for i, row in enumerate(rows) if self._is_said_by(table, row, event_row)), 0))
        for row in rows:
            reason = f"{len(rows) + 1} rows of the table have this key in records"
            self._note(FoundDifference(table, DifferenceKind.MISSING, key, (), row, reason=reason))
        return chosen

    def _is_said_by(self, table: int, row: bytes, event_row: bytes | None) -> bool:
        """Return whether a row has the values after an event."""
        if event_row is None or row == event_row:
            return row == event_row
        with suppress(ValueError):
            return not self._compare(table, stored_row(row), stored_row(event_row)).columns
        return False

    def _judge_history(self, table: int, key: bytes, steps: list[KeyStep]) -> None:
        """Check the records of a key behind the last repair of each partition."""
        state = self._keys.get((table, key))
        event = None if state is None else state.last_event()
        settled = {} if state is None else state.repaired_until()
        left = [step for step in steps if step.offset >= settled.get(step.partition, 0)]
        last = None if event is None else event[:2]
        rules = self._rules[table]
        for kind, step in check_history(left, rules):
            self._note(FoundDifference(table, kind, key, record=(step.partition, step.offset), last=last))

    def _judge_values(self, found: FoundDifference, row: bytes, event_row: bytes) -> None:
        try:
            difference = self._compare(found.table, stored_row(row), stored_row(event_row))
        except ValueError:
            self._note(replace(found, kind=DifferenceKind.UNREADABLE, event_row=None))
            return
        counts = self._counts(found.table)
        counts.columns.update(difference.columns)
        if difference.columns:
            self._note(replace(found, columns=difference.columns))
            return
        counts.partial += difference.partial
        counts.partial_columns.update((*difference.unknown, *difference.incomparable))

    def _judge_equal_rows(self, table: int, key: bytes) -> None:
        rows = self._keyless_rows.get((table, key), 0)
        events = count_rows(self._keyless_events.get((table, key), ()), moving=table in self._moving)
        kind = DifferenceKind.MISSING if rows > events else DifferenceKind.GHOST
        if rows != events:
            row, event_row = (key, None) if rows > events else (None, key)
            self._note(FoundDifference(table, kind, key, (), row, event_row), abs(rows - events))

    def _note(self, found: FoundDifference, number: int = 1) -> None:
        place = found.table, found.kind
        self._counts(found.table).differences[found.kind] += number
        if self._found_counts[place] < self._max_found:
            self._found_counts[place] += 1
            self._result.found.append(found)


def merge_results(results: Iterable[BucketResult], max_found: int) -> BucketResult:
    """Return the results of all buckets as one."""
    merged, kept = BucketResult(), Counter[tuple[int, DifferenceKind]]()
    for result in results:
        merged.undecidable |= result.undecidable
        merged.unjudged_transactions.update(result.unjudged_transactions)
        for table, counts in result.counts.items():
            merged.counts.setdefault(table, TableCounts()).add(counts)
        for found in result.found:
            place = (found.table, found.kind)
            if kept[place] < max_found:
                kept[place] += 1
                merged.found.append(found)
    return merged
