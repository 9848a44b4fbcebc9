"""What a job needs from a writer; Kafka and the in-memory twin both provide it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from airflow_provider_mysql_cdc.cdc.model.records import RowRecord, SideRecord

Headers = Sequence[tuple[str, "bytes | None"]]
RecordWithHeaders = tuple[str, "bytes | None", "bytes | None", "Headers | None"]
"""The same with its headers."""


def transactional_id(prefix: str, writer: int | str) -> str:
    """Return ``<topic.prefix>.<writer>``; it stays the same over batches so that an older attempt is fenced."""
    return f"{prefix}.{writer}"


class RecordWriter(Protocol):
    """One transactional writer."""

    def init(self, timeout_s: float = 60.0) -> None:
        """Fence older attempts of the same transactional id."""

    def produce(
        self, topic: str, key: bytes | None, value: bytes | None, partition: int, headers: Headers | None = None
    ) -> None:
        """Add a record to the current transaction."""

    def note_partition(self, topic: str, partition: int) -> None:
        """Note where rows go that come through ``produce``, as side records do."""

    def produce_all(self, topic: str, records: Sequence[RowRecord], headers: Headers, partition: int = 0) -> None:
        """Add records to the current transaction."""

    def produce_plain(
        self, topic: str, records: Sequence[RowRecord], headers: Headers, partition: int, size: int
    ) -> None:
        """Add records with neither header nor partition of their own to the current transaction."""

    @property
    def bytes_pending(self) -> int:
        """Bytes of keys and values in the current transaction."""

    def commit(self, records: Sequence[SideRecord | RecordWithHeaders] = ()) -> None:
        """Add side records and commit."""

    def abort(self) -> None:
        """Throw the current transaction away."""

    def close(self) -> None:
        """Free the client; an open transaction is aborted."""
