"""Cache the schema history that a job has read for its next batch.

A batch needs the structures at its start. A history of 10,000 tables has 30,000 records, and a job that runs for an
hour plans a batch every few seconds: from its second batch on it reads only the new records.

The cache holds the structures up to the first record after the offset, and the later records as they are, because a
later batch may need them.
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
"""Returns the committed records from a topic offset on."""


@dataclass(frozen=True, slots=True)
class TopicEnd:
    """Hold where a topic ends.

    Args:
        id: Kafka's id of the topic; None from brokers without topic ids, and for a topic that does not exist.
        offset: The high watermark of its partition.
    """

    id: str | None
    offset: int


@dataclass(slots=True)
class HistoryCache:
    """Rebuild structures for the batches of one job in sequence."""

    end: TopicEnd = TopicEnd(None, 0)
    """Where the topic ended when it was last read; without an id before the first read."""
    _replayed: Replay | None = None
    _later_records: list[HistoryRecord] = field(default_factory=list)
    statements: int = 0
    """Statements after the full description that the last call has applied."""

    def structures(self, end: TopicEnd, read: HistoryReader, target: Replay) -> SchemaState:
        """Return the structures at an offset.

        Args:
            end: Where the history ends now.
            read: Reads the history from a topic offset on.
            target: A replay for the offset, without records yet.

        Raises:
            DdlParseError: A statement cannot be parsed.
            SchemaError: The history cannot be read.
        """
        cached, later_records = self._replayed, self._later_records
        # If this fails, the next batch reads the whole history again.
        self._replayed, self._later_records = None, []
        if cached is None or not self._can_continue(cached, end, target):
            replayed, first, later_records = target, 0, []
        else:
            replayed, first = cached.continue_to(target), self.end.offset
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
        if end.id is not None:  # without an id, a recreated topic could not be distinguished from the earlier one
            self.end, self._replayed, self._later_records = end, replayed, pending
        self.statements = result.statements
        return result.structures()

    def _can_continue(self, cached: Replay, end: TopicEnd, target: Replay) -> bool:
        """Return whether the cache is of the same topic, and can be continued to the target offset."""
        if self.end.id != end.id or end.offset < self.end.offset or target.epoch < cached.epoch:
            return False
        return comparable(cached.until, target.until) and compare_offsets(target.until, cached.until) >= 0
