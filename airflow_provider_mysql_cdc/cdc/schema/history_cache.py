"""What a job has read of the schema history, kept for its next batch.

A batch needs the structures at its start. A history of 10,000 tables has 30,000 records, and a job that goes on for an
hour plans a batch every few seconds: from its second batch on it reads only what came since.

What is kept are the structures behind the records up to the first one that lies behind the offset; those behind it are
kept as they are, as a later batch may need them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.model.offset import comparable, compare_offsets
from airflow_provider_mysql_cdc.cdc.schema.history_replay import Replay

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.schema.history_record import HistoryRecord

HistoryReader = Callable[[int], Iterable["HistoryRecord"]]
"""From the offset of the first record that is wanted to the committed records from there on."""


@dataclass(frozen=True, slots=True)
class TopicEnd:
    """Say where a topic ends.

    Args:
        id: Kafka's id of the topic; None from brokers that give none, and of a topic that is not there.
        offset: The high watermark of its partition.
    """

    id: str | None
    offset: int


@dataclass(slots=True)
class HistoryCache:
    """Rebuild structures for one batch after the other of one job."""

    _end: TopicEnd = TopicEnd(None, 0)
    _replayed: Replay | None = None
    _later_records: list[HistoryRecord] = field(default_factory=list)

    def structures(self, end: TopicEnd, read: HistoryReader, target: Replay) -> SchemaState:
        """Return the structures at an offset.

        Args:
            end: Where the history ends now.
            read: Reads it.
            target: Says for which offset; nothing is taken yet.

        Raises:
            DdlParseError: A statement is not understood.
            SchemaError: The history cannot be read.
        """
        cached, later_records = self._replayed, self._later_records
        # Should this fail, the next batch begins anew.
        self._replayed, self._later_records = None, []
        if cached is None or not self._can_continue(cached, end, target):
            replayed, first, later_records = target, 0, []
        else:
            replayed, first = cached.continue_to(target), self._end.offset
        pending: list[HistoryRecord] = []
        for records in (later_records, read(first) if first < end.offset else ()):
            for record in records:
                if pending or not replayed.add(record):
                    pending.append(record)
        result = replayed
        if pending:
            result = replayed.continue_to(replayed)
            for record in pending:
                result.add(record)
        if end.id is not None:  # without an id, a topic made anew would be taken for the one before
            self._end, self._replayed, self._later_records = end, replayed, pending
        return result.structures()

    def _can_continue(self, cached: Replay, end: TopicEnd, target: Replay) -> bool:
        """Return whether what is kept was part of the same topic, and holds at the offset that is wanted."""
        if self._end.id != end.id or end.offset < self._end.offset or target.epoch < cached.epoch:
            return False
        return comparable(cached.until, target.until) and compare_offsets(target.until, cached.until) >= 0
