"""Compare the entries of one bucket by checksums, and tell what of them is compared by value afterwards.

Compare the entries of one bucket, in a task of the shuffle: rows and events by value, or their checksums.

Rows are compared with the last states of keys by the checksum of each, or by their sums, bucket by bucket.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace

from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId
from airflow_provider_mysql_cdc.cdc.verify.compare.checksum_entries import (
    HEAD_BYTES,
    MARK,
    NO_ROW,
    ROW_STATES,
    STATES,
    SUM,
    SUM_BITS,
    RecordSlices,
    SumKind,
    key_bucket,
)
from airflow_provider_mysql_cdc.cdc.verify.compare.folding import BucketFold, BucketResult, TableCounts
from airflow_provider_mysql_cdc.cdc.verify.history.key_history import HistoryRules
from airflow_provider_mysql_cdc.cdc.verify.read.entries import is_sampled, read_entries
from airflow_provider_mysql_cdc.cdc.verify.read.sql_literals import escapes_as_in_sql
from airflow_provider_mysql_cdc.cdc.verify.read.sql_row_text import SqlTexts, buckets_condition, sample_condition
from airflow_provider_mysql_cdc.cdc.verify.structures.compared_table import ComparedTable
from airflow_provider_mysql_cdc.cdc.verify.structures.row_comparison import CarriedRowComparison

_SPLIT_STATE = struct.Struct(">20s16s")
"""A state as bytes: which key it is, and the rest, which compares by the order."""
_SPLIT_ROW = struct.Struct(">20s8x8s")
"""The state of a row, which has no order: which key it is, and its checksum."""
_COUNT_SHIFT = 128
_ONE = 1 << _COUNT_SHIFT
"""One row, in a number that has the sum of checksums below."""
_Sums = dict[tuple[int, int], tuple[int, int]]
_ORDER_BYTES = 8
_CHECKSUMS = struct.Struct(">QQ")
"""The order of a state, and its checksum."""
_ONLY_CHECKSUM, _ONLY_KEY = struct.Struct(">28xQ"), struct.Struct(">20s16x")
"""Parts of a state in a block."""


@dataclass(slots=True)
class ChecksumResult:
    """Hold what checksums say, by the tables' numbers.

    Args:
        rows: Number of rows.
        records: Number of events.
        differing: Buckets of keys that differ, or were not judged.
        unjudged: Tables of which no bucket was judged.
    """

    rows: Counter[int] = field(default_factory=Counter)
    records: Counter[int] = field(default_factory=Counter)
    differing: dict[int, set[int]] = field(default_factory=dict)
    unjudged: set[int] = field(default_factory=set)


class ChecksumFold:
    """Fold the blocks of one task of the shuffle."""

    def __init__(self) -> None:
        self._blocks: list[memoryview] = []
        self._states: dict[bytes, bytes] = {}
        self._row_states: dict[bytes, bytes] = {}
        self._rows: _Sums = {}
        self._result = ChecksumResult()

    def add(self, block: bytes) -> None:
        """Add a block, in any order."""
        if block.startswith(STATES):
            self._blocks.append(memoryview(block)[HEAD_BYTES:])
            return
        if block.startswith(ROW_STATES):
            self._add_row_states(memoryview(block)[HEAD_BYTES:])
            return
        for kind, table, bucket, number, checksum in SUM.iter_unpack(memoryview(block)[HEAD_BYTES:]):
            self._add_sum(SumKind(kind), table, bucket, number, checksum)

    def _add_states(self, block: memoryview) -> None:
        states = self._states
        new: dict[bytes, bytes] = dict(_SPLIT_STATE.iter_unpack(block))  # type: ignore[arg-type]
        if len(new) * _SPLIT_STATE.size == len(block) and states.keys().isdisjoint(new):
            states.update(new)
            return
        known = states.get
        for key, state in _SPLIT_STATE.iter_unpack(block):
            if state > known(key, b""):
                states[key] = state

    def _add_row_states(self, block: memoryview) -> None:
        rows = self._row_states
        new: dict[bytes, bytes] = dict(_SPLIT_ROW.iter_unpack(block))  # type: ignore[arg-type]
        if len(new) * _SPLIT_ROW.size == len(block) and rows.keys().isdisjoint(new):
            rows.update(new)
            return
        for key, checksum in _SPLIT_ROW.iter_unpack(block):
            if rows.setdefault(key, checksum) is not checksum:  # several rows have one key in records
                self._mark(key)

    def _mark(self, key: bytes) -> None:
        """Let the rows of a key's bucket be compared."""
        table, bucket = int.from_bytes(key[:2], "big"), int.from_bytes(key[2:4], "big")
        self._result.differing.setdefault(table, set()).add(bucket)

    def _add_sum(self, kind: SumKind, table: int, bucket: int, number: int, checksum: int) -> None:
        result = self._result
        match kind:
            case SumKind.ROWS:
                rows, checksums = self._rows.get((table, bucket), (0, 0))
                self._rows[table, bucket] = rows + number, (checksums + checksum) & SUM_BITS
                result.rows[table] += number
            case SumKind.COUNTED_ROWS:
                result.rows[table] += number
            case SumKind.RECORDS:
                result.records[table] += number
            case SumKind.UNJUDGED_BUCKET:
                result.differing.setdefault(table, set()).add(bucket)
            case SumKind.UNJUDGED_TABLE:
                result.unjudged.add(table)

    def result(self) -> ChecksumResult:
        """Compare, and return what was found."""
        if not self._row_states and self._have_equal_rows_once():
            return self._result
        for block in self._blocks:
            self._add_states(block)
        self._blocks.clear()
        self._take_equal_rows()
        if self._is_equal_as_a_whole():
            return self._result
        topics = self._topic_sums()
        for table, bucket in self._rows.keys() | topics.keys():
            if self._rows.get((table, bucket)) != topics.get((table, bucket)):
                self._result.differing.setdefault(table, set()).add(bucket)
        return self._result

    def _have_equal_rows_once(self) -> bool:
        """Return whether each key has one state alone, and these say the rows: nothing has to be folded then.

        Several rows may have one key in records (``decimal.handling.mode=double``), so that keys are unique is looked
        at, too.
        """
        number, checksum = self._row_sums()
        found = 0
        for block in self._blocks:
            checksums = [only for (only,) in _ONLY_CHECKSUM.iter_unpack(block)]
            if 0 in checksums:
                return False
            number, found = number - len(checksums), found + sum(checksums)
        if number != 0 or (checksum - found) & SUM_BITS != 0:
            return False
        keys: set[bytes] = set()
        for block in self._blocks:
            keys.update([key for (key,) in _ONLY_KEY.iter_unpack(block)])
        return len(keys) * _SPLIT_STATE.size == sum(map(len, self._blocks))

    def _row_sums(self) -> tuple[int, int]:
        """Return number and sum of all rows that are in sums."""
        numbers, checksums = zip(*self._rows.values(), strict=True) if self._rows else ((), ())
        return sum(numbers), sum(checksums)

    def _take_equal_rows(self) -> None:
        """Compare the rows that have a state each; what is left has to equal the sums over the other rows."""
        if not self._row_states:
            return
        row_of, states = self._row_states.get, self._states
        self._states = {key: state for key, state in states.items() if row_of(key) != state[_ORDER_BYTES:]}
        if len(states) - len(self._states) < len(self._row_states):
            for key in self._row_states:
                if key in self._states or key not in states:
                    self._mark(key)

    def _is_equal_as_a_whole(self) -> bool:
        """Return whether number and sum of all rows are those of all keys that have one.

        Buckets that differ would have to make up for each other, which is no more likely than equal sums in one.
        """
        number, checksum = self._row_sums()
        found = [checksum_of for _, checksum_of in _CHECKSUMS.iter_unpack(b"".join(self._states.values()))]
        return number == len(found) - found.count(0) and (checksum - sum(found)) & SUM_BITS == 0

    def _topic_sums(self) -> _Sums:
        totals: dict[bytes, int] = {}
        number, known = int.from_bytes, totals.get
        for key, state in self._states.items():
            checksum = state[_ORDER_BYTES:]
            if checksum != NO_ROW:
                place = key[:4]
                totals[place] = known(place, 0) + number(checksum, "big") + _ONE
        return {
            (number(place[:2], "big"), number(place[2:], "big")): (total >> _COUNT_SHIFT, total & SUM_BITS)
            for place, total in totals.items()
        }


def merge_checksums(results: Iterable[ChecksumResult]) -> ChecksumResult:
    """Return the results of all tasks of the shuffle as one."""
    merged = ChecksumResult()
    for result in results:
        merged.rows.update(result.rows)
        merged.records.update(result.records)
        for table, buckets in result.differing.items():
            merged.differing.setdefault(table, set()).update(buckets)
        merged.unjudged |= result.unjudged
    return merged


def add_counts_of_checksums(counts: dict[int, TableCounts], checksums: ChecksumResult) -> None:
    """Add the rows and records that were compared by checksums to those that were compared one by one."""
    for table, rows in checksums.rows.items():
        counts.setdefault(table, TableCounts()).rows += rows
    for table, records in checksums.records.items():
        counts.setdefault(table, TableCounts()).events += records


@dataclass(frozen=True, slots=True)
class ComparedBucket:
    """Hold what was found in the entries of one bucket.

    Args:
        rows: What a comparison of rows has found.
        checksums: What checksums say.
    """

    rows: BucketResult
    checksums: ChecksumResult


@dataclass(frozen=True, slots=True)
class ReduceBucket:
    """Compare the entries of one bucket.

    Args:
        max_found: Most differences of each table and kind.
        rules: What holds for the histories of keys, by the table's number.
        compare: Compares a row with its last event.
        moving: Numbers of tables whose rows may have events in several partitions.
        whole: Numbers of tables whose events are compared with the transaction topic.
    """

    max_found: int
    rules: Mapping[int, HistoryRules]
    compare: CarriedRowComparison
    moving: frozenset[int]
    whole: frozenset[int]

    def __call__(self, blocks: Iterable[bytes]) -> ComparedBucket:
        """Compare."""
        rows, checksums = BucketFold(self.compare, self.max_found, self.rules, self.moving, self.whole), ChecksumFold()
        for block in blocks:
            if block.startswith(MARK):
                checksums.add(block)
            else:
                rows.add(read_entries(block))
        return ComparedBucket(rows.result(), checksums.result())


@dataclass(frozen=True, slots=True)
class DifferingKeys:
    """Name the keys of a table that the comparison by value has to look at, because checksums differ.

    Args:
        table: The table's structure when checksums were compared; with another one, all keys are looked at.
        buckets: Buckets of its keys.
        differing: Those that differ; None for all.
    """

    table: Table
    buckets: int
    differing: frozenset[int] | None = None


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """Tell which keys are looked at; one that is none of the table's always is.

    Args:
        slices: Takes the fields out of keys.
        buckets: Buckets of keys.
        differing: Those that are looked at; None for all.
        sample_percent: Share of the keys that is looked at.
        texts: Expressions of the table's rows; None where the server cannot tell.
    """

    slices: RecordSlices
    buckets: int
    differing: frozenset[int] | None
    sample_percent: float = 100.0
    texts: SqlTexts | None = None

    def has(self, key: bytes | None) -> bool:
        """Return whether a key is looked at."""
        fields = self.fields_of(key)
        return fields is None or self.differs(fields)

    def fields_of(self, key: bytes | None) -> bytes | None:
        """Return the fields of a key; None for one that is none of the table's."""
        return None if key is None else self.slices.fields_of(key)

    def differs(self, fields: bytes) -> bool:
        """Return whether a key with these fields is in the sample, and its bucket is looked at."""
        in_bucket = self.differing is None or key_bucket(fields, self.buckets) in self.differing
        return in_bucket and self.is_sampled(fields)

    def is_sampled(self, fields: bytes) -> bool:
        """Return whether a key with these fields is in the sample."""
        return is_sampled(escapes_as_in_sql(fields), self.sample_percent)

    @property
    def sampled(self) -> str:
        """The condition of the rows in the sample, in SQL; empty where the server cannot tell, or for all."""
        is_sample = self.texts is not None and self.sample_percent < 100
        return sample_condition(self.texts, self.sample_percent) if self.texts is not None and is_sample else ""

    @property
    def condition(self) -> str:
        """The condition of the rows that are looked at, in SQL; empty where the server cannot tell, or for all."""
        if self.texts is None:
            return ""
        differing = "" if self.differing is None else buckets_condition(self.texts, self.buckets, self.differing)
        return " AND ".join(filter(None, (differing, self.sampled)))


def differing_keys(
    tables: Iterable[ComparedTable],
    buckets: Mapping[int, int],
    result: ChecksumResult,
    compared_by_rows: Container[int] = (),
) -> dict[TableId, DifferingKeys]:
    """Return the keys whose rows have to be compared, by table; tables whose checksums are all equal have none.

    Args:
        tables: The tables that were compared by checksums.
        buckets: Buckets of their keys, by the table's number.
        result: What checksums say.
        compared_by_rows: Numbers of tables of which tasks have compared rows, as their records have to be read.
    """
    found: dict[TableId, DifferingKeys] = {}
    for compared in tables:
        number = compared.number
        if number in compared_by_rows:
            continue
        differing, count = result.differing.get(number, set()), buckets[number]
        if number in result.unjudged:
            found[compared.table.id] = DifferingKeys(compared.table, count)
        elif differing:
            found[compared.table.id] = DifferingKeys(compared.table, count, frozenset(differing))
    return found


def keys_left(differing: Mapping[TableId, DifferingKeys], unread: Container[TableId]) -> dict[TableId, DifferingKeys]:
    """Return the tables of which all rows have to be compared after all, because events have come with other keys.

    The server does not know such keys, so it has left out their rows.
    """
    left = {name: keys for name, keys in differing.items() if name in unread and keys.differing is not None}
    return {name: replace(keys, differing=None) for name, keys in left.items()}
