"""What a stream's drains have read, as counts that only grow."""

from __future__ import annotations

from dataclasses import dataclass, fields

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
