"""The writer that jobs use; ``TransactionalWriter`` implements it for Kafka, and the tests in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from airflow_provider_mysql_cdc.cdc.model.records import Headers, RowRecord, SideRecord


def transactional_id(prefix: str, writer: int | str) -> str:
    """Return ``<topic.prefix>.<writer>``, which is the same in every batch, so that an older attempt is fenced."""
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
        """Note the partition of rows that are written with ``produce``, which also writes side records."""

    def produce_all(self, topic: str, records: Sequence[RowRecord], headers: Headers, partition: int = 0) -> None:
        """Add records to the current transaction."""

    def produce_plain(
        self, topic: str, records: Sequence[RowRecord], headers: Headers, partition: int, size: int
    ) -> None:
        """Add records of one partition to the current transaction."""

    @property
    def bytes_pending(self) -> int:
        """Bytes of keys and values in the current transaction."""

    def send(self, records: Sequence[SideRecord]) -> None:
        """Add side records to the current transaction, and wait until Kafka has them."""

    def commit(self, records: Sequence[SideRecord] = ()) -> None:
        """Add side records and commit."""

    def abort(self) -> None:
        """Abort the current transaction."""

    def close(self) -> None:
        """Close the client; an open transaction is aborted."""
