"""What the tasks of a verification are started with, and what they call on its driver, beside a window's operations."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from airflow_provider_mysql_cdc.cdc.drain.batch_run import WriterInputs
from airflow_provider_mysql_cdc.cdc.job.task_barrier import BarrierPoint
from airflow_provider_mysql_cdc.cdc.job.task_operation import EmptyMessage, TaskOperation
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.stored_record import Record
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk
from airflow_provider_mysql_cdc.cdc.verify.compare.checksum_fold import DifferingKeys
from airflow_provider_mysql_cdc.cdc.verify.history.batch_counts import CountedPart, KeptBatch
from airflow_provider_mysql_cdc.cdc.verify.structures.structure_versions import TableVersions


@dataclass(frozen=True, slots=True)
class TopicRange:
    """Name records of a topic."""

    topic: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class NextPart(Record):
    """Answer a task that asks for work: a part of a table or of a topic, or neither when nothing is left."""

    chunk: SnapshotChunk | None = None
    records: TopicRange | None = None


@dataclass(frozen=True, slots=True)
class UnreadableRecords(Record):
    """Report records of a topic that cannot be read as events.

    Args:
        number: How many there are.
        examples: Place and reason of some, ``(topic[partition]@offset, reason)``.
    """

    topic: str
    number: int
    examples: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class UnreadTable(Record):
    """Report a table that cannot be compared."""

    db: str
    table: str
    reason: str


@dataclass(frozen=True, slots=True)
class TableName(Record):
    """Name a table."""

    db: str
    table: str


COMPARE = BarrierPoint.declare("compare", EmptyMessage)
"""A task has written its part of the batch, and waits for the parts of tables and topics to read."""
NEXT_PART = TaskOperation("part", EmptyMessage, NextPart)
"""A task asks for a part of a table or of a topic."""
RECORDS_UNREADABLE = TaskOperation("unreadable", UnreadableRecords, EmptyMessage)
"""A task has met records that are no events."""
RECORDS_COUNTED = TaskOperation("counted", CountedPart, EmptyMessage)
"""A task has counted the records of a part of a topic by their batches."""
TABLE_UNREAD = TaskOperation("unread", UnreadTable, EmptyMessage)
"""A task cannot read a table."""
VERSIONS = TaskOperation("versions", TableName, TableVersions)
"""A task asks for the structures that a table has had."""


MAX_RANGE_RECORDS = 500_000
"""Offsets of a partition that one part spans at most."""


def topic_ranges(topic: str, bounds: dict[int, tuple[int, int]]) -> list[TopicRange]:
    """Return the parts of a topic."""
    return [
        TopicRange(topic, partition, start, min(start + MAX_RANGE_RECORDS, end))
        for partition, (first, end) in sorted(bounds.items())
        for start in range(first, end, MAX_RANGE_RECORDS)
    ]


class PartQueue:
    """Hand out parts, and log how many are left."""

    def __init__(self, chunks: Sequence[SnapshotChunk], ranges: Sequence[TopicRange], log: Log) -> None:
        self._parts: list[NextPart] = [*(NextPart(chunk=chunk) for chunk in chunks)]
        self._parts += [NextPart(records=part) for part in ranges]
        # The source and Kafka are read at the same time.
        self._parts.sort(key=lambda part: -_size(part))
        self._total, self._log, self._lock = len(self._parts), log, threading.Lock()

    def next(self, task: int, request: EmptyMessage) -> NextPart:
        """Return the next part; an empty one when none is left."""
        with self._lock:
            if not self._parts:
                return NextPart()
            taken = self._total - len(self._parts)
            if taken and taken % max(1, self._total // 10) == 0:
                self._log(f"verification: {taken:,} of {self._total:,} parts of tables and topics are read")
            return self._parts.pop(0)


def _size(part: NextPart) -> int:
    if part.chunk is not None:
        return part.chunk.rows
    return 0 if part.records is None else part.records.end - part.records.start


@dataclass(frozen=True, slots=True)
class VerifyInputs:
    """Hold what the tasks of a verification need.

    Args:
        writer: What they need as writers of the batch that ends at the verification's position.
        tables: Names of the tables to compare, in the order of their numbers.
        buckets: Number of buckets.
        sample_percent: Share of the keys to compare.
        rows_per_second: Most rows that all tasks together read from the source in a second; 0 for no limit.
        tasks: Number of tasks.
        history_tables: Numbers of the tables whose events are also checked one after the other.
        transaction_topic: The topic with which the events of transactions are compared; empty if they are not.
        batches: The batches by which records are counted.
        checksum_buckets: Buckets of keys of the tables that are compared by checksums, by number.
        differing: Of the others, which keys are looked at, where a round by checksums was before; all of those that are
            not in it.
        sums_in_sql: Whether the server may add up the checksums of rows; otherwise tasks encode the rows.
        judged_tombstones: Topics whose keys may be of several rows, in which tombstones are behind deletes.
        repairs: Runs that have repaired something, by topic, and until when; other hands write their header, too.
    """

    writer: WriterInputs
    tables: tuple[TableId, ...]
    buckets: int
    sample_percent: float
    rows_per_second: int
    tasks: int
    history_tables: frozenset[int] = frozenset()
    transaction_topic: str = ""
    checksum_buckets: Mapping[int, int] = field(default_factory=dict)
    differing: Mapping[TableId, DifferingKeys] = field(default_factory=dict)
    batches: tuple[KeptBatch, ...] = ()
    sums_in_sql: bool = True
    judged_tombstones: frozenset[str] = frozenset()
    repairs: Mapping[str, Mapping[bytes | None, int]] = field(default_factory=dict)
