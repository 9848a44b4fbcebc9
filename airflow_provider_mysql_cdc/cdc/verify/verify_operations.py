"""Operations that a task of a verification calls on its driver, beside those of a window (``window_operations``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc.job.task_barrier import BarrierPoint
from airflow_provider_mysql_cdc.cdc.job.task_operation import EmptyMessage, TaskOperation
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk
from airflow_provider_mysql_cdc.cdc.verify.batch_counts import CountedPart
from airflow_provider_mysql_cdc.cdc.verify.structure_versions import TableVersions


@dataclass(frozen=True, slots=True)
class TopicRange:
    """Name records of a topic.

    Args:
        topic: The topic.
        partition: The partition.
        start: Offset of the first record.
        end: The offset after the last one.
    """

    topic: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class NextPart:
    """Answer a task that asks for work: a part of a table or of a topic, or neither when nothing is left.

    Args:
        chunk: The rows.
        records: The records.
    """

    chunk: SnapshotChunk | None = None
    records: TopicRange | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        records = self.records
        return {
            "chunk": None if self.chunk is None else self.chunk.to_json(),
            "records": None if records is None else [records.topic, records.partition, records.start, records.end],
        }

    @classmethod
    def from_json(cls, members: Mapping[str, Any]) -> NextPart:
        """Read what ``to_json`` wrote."""
        chunk, records = members["chunk"], members["records"]
        return cls(
            None if chunk is None else SnapshotChunk.from_json(chunk),
            None if records is None else TopicRange(str(records[0]), *map(int, records[1:])),
        )


@dataclass(frozen=True, slots=True)
class UnreadableRecords:
    """Report records of a topic that cannot be read as events.

    Args:
        topic: The topic.
        number: How many there are.
        examples: Place and reason of some, ``(topic[partition]@offset, reason)``.
    """

    topic: str
    number: int
    examples: tuple[tuple[str, str], ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {"topic": self.topic, "number": self.number, "examples": [list(example) for example in self.examples]}

    @classmethod
    def from_json(cls, members: Mapping[str, Any]) -> UnreadableRecords:
        """Read what ``to_json`` wrote."""
        examples = tuple((str(place), str(reason)) for place, reason in members["examples"])
        return cls(str(members["topic"]), int(members["number"]), examples)


@dataclass(frozen=True, slots=True)
class UnreadTable:
    """Report a table that cannot be compared.

    Args:
        db: Its database.
        table: Its name.
        reason: Why.
    """

    db: str
    table: str
    reason: str

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {"db": self.db, "table": self.table, "reason": self.reason}

    @classmethod
    def from_json(cls, members: Mapping[str, Any]) -> UnreadTable:
        """Read what ``to_json`` wrote."""
        return cls(str(members["db"]), str(members["table"]), str(members["reason"]))


@dataclass(frozen=True, slots=True)
class TableName:
    """Name a table.

    Args:
        db: Its database.
        table: Its name.
    """

    db: str
    table: str

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {"db": self.db, "table": self.table}

    @classmethod
    def from_json(cls, members: Mapping[str, Any]) -> TableName:
        """Read what ``to_json`` wrote."""
        return cls(str(members["db"]), str(members["table"]))


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
