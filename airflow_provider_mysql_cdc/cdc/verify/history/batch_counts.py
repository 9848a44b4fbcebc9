"""Compare how many records of each batch a topic has with how many the ledger counts.

Only a loss is told: records that are too many are told by what they are. A delete stands for its tombstone too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.job.task_operation import EMPTY, EmptyMessage
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord
from airflow_provider_mysql_cdc.cdc.verify.compared_table import ComparedTable
from airflow_provider_mysql_cdc.cdc.verify.history.kept_batches import (
    CLOCK_SKEW_MS,
    KeptBatch,
    KeptBatches,
    read_kept_batches,
)
from airflow_provider_mysql_cdc.cdc.verify.history.key_history import HistoryRules
from airflow_provider_mysql_cdc.cdc.verify.read.event_record import EventRecord
from airflow_provider_mysql_cdc.cdc.verify.read.repair_marks import is_repair
from airflow_provider_mysql_cdc.cdc.verify.read.source_place import source_order

_CHANGES = frozenset("cudt")


@dataclass(frozen=True, slots=True)
class CountedPart:
    """Report how many records of each batch a part of a topic has.

    Args:
        topic: The topic.
        partition: The partition.
        start: The part's first offset.
        first_ms: Timestamp of its first record.
        counts: Number of records by the batch's epoch.
        unreadable: Number of records that do not say of which batch they are.
    """

    topic: str
    partition: int
    start: int
    first_ms: int
    counts: Mapping[int, int]
    unreadable: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        counts = [[epoch, number] for epoch, number in self.counts.items()]
        return {
            "topic": self.topic,
            "partition": self.partition,
            "start": self.start,
            "first_ms": self.first_ms,
            "counts": counts,
            "unreadable": self.unreadable,
        }

    @classmethod
    def from_json(cls, members: Mapping[str, Any]) -> CountedPart:
        """Read what ``to_json`` wrote."""
        counts = {int(epoch): int(number) for epoch, number in members["counts"]}
        place = int(members["partition"]), int(members["start"]), int(members["first_ms"])
        return cls(str(members["topic"]), *place, counts, int(members["unreadable"]))


class PartCounter:
    """Count the records of one part of a topic by their batches.

    Args:
        batches: The batches.
        tombstones: Whether a tombstone follows each delete.
    """

    def __init__(self, batches: KeptBatches, *, tombstones: bool) -> None:
        self._batches, self._deletes = batches, 2 if tombstones else 1
        self.first_ms: int | None = None
        self.counts: dict[int, int] = {}
        self.unreadable = 0

    def add(self, event: EventRecord, record: TopicRecord) -> None:
        """Count an event.

        Args:
            event: The event.
            record: Its record.
        """
        if event.op not in _CHANGES or is_repair(record.headers):
            return
        batch = self._batches.batch_of(source_order(event.source), record.timestamp_ms)
        if batch is not None:
            number = self._deletes if event.op == "d" else 1
            self.counts[batch.epoch] = self.counts.get(batch.epoch, 0) + number


@dataclass(frozen=True, slots=True)
class LostRecords:
    """Say that a topic has fewer records of a batch than the ledger counts.

    Args:
        batch: The batch.
        found: Number of records in the topic.
        expected: Number of records that were committed.
    """

    batch: KeptBatch
    found: int
    expected: int


def lost_records(topic: str, batches: Iterable[KeptBatch], parts: Sequence[CountedPart]) -> Iterator[LostRecords]:
    """Yield what a topic has lost of each batch; batches from before its first records are left out.

    Records that cannot be read may be those that are missed: after a change of converters, all earlier ones are.

    Args:
        topic: The topic.
        batches: The batches.
        parts: What its parts have.
    """
    first: dict[int, tuple[int, int]] = {}
    found: dict[int, int] = {}
    unreadable = sum(part.unreadable for part in parts)
    for part in parts:
        place = part.start, part.first_ms
        first[part.partition] = min(place, first.get(part.partition, place))
        for epoch, number in part.counts.items():
            found[epoch] = found.get(epoch, 0) + number
    if not first:
        return
    lost = [first_ms for start, first_ms in first.values() if start]
    since = max([min(first_ms for _, first_ms in first.values()), *lost]) + CLOCK_SKEW_MS * bool(lost)
    for batch in batches:
        expected = batch.counts.get(topic, 0)
        if batch.begun_ms >= since and found.get(batch.epoch, 0) + unreadable < expected:
            yield LostRecords(batch, found.get(batch.epoch, 0), expected)


@dataclass(slots=True)
class PartCounts:
    """Collect what the parts of topics have.

    Args:
        batches: The batches.
        topics: The topics of which no records between others are lost.
    """

    batches: tuple[KeptBatch, ...] = ()
    topics: frozenset[str] = frozenset()
    _parts: dict[tuple[str, int, int], CountedPart] = field(default_factory=dict)

    @classmethod
    def of_tables(
        cls, cfg: ConnectorConfig, tables: Iterable[ComparedTable], rules: Mapping[int, HistoryRules]
    ) -> PartCounts:
        """Return what to collect; nothing where histories are not checked.

        Args:
            cfg: The connector's configuration.
            tables: The tables of a verification.
            rules: What holds for the histories of their keys; empty where they are not checked.

        Raises:
            SinkError: The ledger cannot be read.
        """
        topics = frozenset(c.topic for c in tables if c.number in rules and rules[c.number].complete)
        return cls(read_kept_batches(cfg) if topics else (), topics)

    def add(self, part: CountedPart) -> EmptyMessage:
        """Add what a part has; one that a later attempt has read again counts once.

        Args:
            part: The part.
        """
        self._parts[part.topic, part.partition, part.start] = part
        return EMPTY

    def lost(
        self, tables: Iterable[ComparedTable], bounds: Mapping[str, Mapping[int, tuple[int, int]]]
    ) -> dict[int, list[LostRecords]]:
        """Return what topics have lost, by the number of their first table.

        Args:
            tables: The tables.
            bounds: First offset, and the offset after the last record, by topic and partition.
        """
        first: dict[str, int] = {}
        for compared in tables:
            first.setdefault(compared.topic, compared.number)
        lost = {}
        for topic, number in first.items():
            gone = any(start == end > 0 for start, end in bounds.get(topic, {}).values())
            if topic in self.topics and not gone:
                parts = [part for part in self._parts.values() if part.topic == topic]
                lost[number] = list(lost_records(topic, self.batches, parts))
        return lost
