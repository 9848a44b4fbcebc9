"""The metrics of a stream at one moment, and what its drains have read, as counts that only grow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from airflow_provider_mysql_cdc.cdc.model.stored_record import Count, Record


@dataclass(frozen=True, slots=True)
class StreamCounts(Record):
    """Count what drains have read of the binlog.

    Args:
        created: Rows that were inserted, each with its record; the new half of a changed key counts here.
        updated: Rows that were updated.
        deleted: Rows that were deleted; the old half of a changed key counts here.
        filtered: Row events of tables that the stream does not capture.
        skipped: Rows that could not be decoded or written, and statements that were not understood.
        committed: Transactions with rows that committed.
        rolled_back: Transactions in the binlog that were rolled back.
        torn: Transactions that the next one followed without their end.
        disconnects: Connections to the source that broke inside of a batch.
        schema_changes: Statements that changed the structure of a table.
    """

    created: Count = 0
    updated: Count = 0
    deleted: Count = 0
    filtered: Count = 0
    skipped: Count = 0
    committed: Count = 0
    rolled_back: Count = 0
    torn: Count = 0
    disconnects: Count = 0
    schema_changes: Count = 0

    @property
    def events(self) -> int:
        """Return the events seen: those with records, and those that were filtered out."""
        return self.created + self.updated + self.deleted + self.filtered

    def add(self, other: StreamCounts) -> StreamCounts:
        """Return the sums.

        Args:
            other: The other counts.
        """
        return StreamCounts(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


MAX_NAMES = 1000
"""Tables that a metric names; the others are counted in ``TotalTableCount`` and the like."""
MAX_TEXT = 1000
"""Characters of a statement or an event that a metric shows."""

Attributes = Mapping[str, Any]
"""Values by Debezium's name of the metric, as JSON: whole numbers, texts, truth values, lists and objects; and times by
names of their own, from which ages are computed when they are shown (``_AGES``)."""

_AGES = {
    "last_event_ms": "MilliSecondsSinceLastEvent",
    "recovered_ms": "MilliSecondsSinceLastRecoveredChange",
    "applied_ms": "MilliSecondsSinceLastAppliedChange",
}
"""Stored times, in milliseconds since 1970, and the metrics that say how long ago they were."""


@dataclass(frozen=True, slots=True)
class StreamMetrics(Record):
    """Hold the metrics of a stream.

    Args:
        counts: What the stream's drains have read since it began.
        snapshot: Attributes of the family ``snapshot``; empty unless a snapshot runs, or has run in this run (MET-60).
        streaming: Attributes of the family ``streaming``, except those that come from ``counts``; empty before the
            first batch.
        history: Attributes of the family ``schema-history``.
        at_ms: When they were gathered, milliseconds since 1970; 0 when there are none.
    """

    counts: StreamCounts = field(default_factory=StreamCounts)
    snapshot: Attributes = field(default_factory=dict)
    streaming: Attributes = field(default_factory=dict)
    history: Attributes = field(default_factory=dict)
    at_ms: Count = 0

    def followed_by(self, later: StreamMetrics) -> StreamMetrics:
        """Return the metrics after later ones are added: counts add up, attributes are replaced family by family.

        Args:
            later: What was gathered since.
        """
        return StreamMetrics(
            self.counts.add(later.counts),
            later.snapshot or self.snapshot,
            {**self.streaming, **later.streaming},
            {**self.history, **later.history},
            max(self.at_ms, later.at_ms),
        )

    def for_next_run(self) -> StreamMetrics:
        """Return what the next run begins with: the snapshot of an earlier run is not one of its own (MET-60)."""
        return replace(self, snapshot={})

    def stopped(self) -> StreamMetrics:
        """Return the metrics as they are once no driver works any more: nothing is connected, nothing is queued."""
        streaming = {**self.streaming, **_STOPPED_STREAMING} if self.streaming else self.streaming
        snapshot = {**self.snapshot, **_STOPPED_SNAPSHOT} if self.snapshot else self.snapshot
        history = {**self.history, "Status": "STOPPED"} if self.history else self.history
        return replace(self, streaming=streaming, snapshot=snapshot, history=history)

    def families(self, now_ms: int) -> dict[str, dict[str, Any]]:
        """Return the attributes by Debezium's name of their family; a family without any is left out.

        Args:
            now_ms: The time, milliseconds since 1970, of which ages are computed.
        """
        counts = self.counts
        counted = {
            "TotalNumberOfEventsSeen": counts.events,
            "TotalNumberOfCreateEventsSeen": counts.created,
            "TotalNumberOfUpdateEventsSeen": counts.updated,
            "TotalNumberOfDeleteEventsSeen": counts.deleted,
            "NumberOfEventsFiltered": counts.filtered,
            "NumberOfCommittedTransactions": counts.committed,
            "NumberOfRolledBackTransactions": counts.rolled_back,
            "NumberOfNotWellFormedTransactions": counts.torn,
            "NumberOfSkippedEvents": counts.skipped,
            "NumberOfDisconnects": counts.disconnects,
        }
        found = {
            "snapshot": dict(self.snapshot),
            "streaming": {**self.streaming, **counted} if self.streaming else {},
            "schema-history": dict(self.history),
        }
        return {name: _with_ages(attributes, now_ms) for name, attributes in found.items() if attributes}


def _with_ages(attributes: Attributes, now_ms: int) -> dict[str, Any]:
    ages = {age: max(0, now_ms - attributes[name]) for name, age in _AGES.items() if attributes.get(name)}
    return {**{name: value for name, value in attributes.items() if name not in _AGES}, **ages}


_STOPPED_STREAMING = {"Connected": False, "CurrentQueueSizeInBytes": 0}
_STOPPED_SNAPSHOT = {"SnapshotRunning": False, "HoldingGlobalLock": False}


def bounded_names(names: list[str]) -> list[str]:
    """Return at most ``MAX_NAMES`` names, so that a record does not grow without limit."""
    return names[:MAX_NAMES]


def bounded_text(text: str) -> str:
    """Return at most ``MAX_TEXT`` characters of a text."""
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"
