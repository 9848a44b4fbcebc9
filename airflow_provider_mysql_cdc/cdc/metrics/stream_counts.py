"""What a stream's drains have read, as counts that only grow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from airflow_provider_mysql_cdc.cdc.model.stored_record import Members


@dataclass(frozen=True, slots=True)
class StreamCounts:
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

    created: int = 0
    updated: int = 0
    deleted: int = 0
    filtered: int = 0
    skipped: int = 0
    committed: int = 0
    rolled_back: int = 0
    torn: int = 0
    disconnects: int = 0
    schema_changes: int = 0

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

    def to_json(self) -> dict[str, int]:
        """Return plain JSON, without zeros."""
        return {f.name: n for f in fields(self) if (n := getattr(self, f.name))}

    @classmethod
    def from_json(cls, data: Mapping[str, object] | Members) -> StreamCounts:
        """Read what ``to_json`` wrote.

        Raises:
            DamagedRecordError: It is something else.
        """
        record = data if isinstance(data, Members) else Members(data)
        return cls(**{f.name: record.integer(f.name, 0) for f in fields(cls)})
