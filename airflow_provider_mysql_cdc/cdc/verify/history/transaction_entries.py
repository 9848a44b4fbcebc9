"""Make the entries with which events are compared with the transaction topic (``transaction_fold``)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord
from airflow_provider_mysql_cdc.cdc.verify.avro_events import LookupSchema
from airflow_provider_mysql_cdc.cdc.verify.event_readers import boundary_reader
from airflow_provider_mysql_cdc.cdc.verify.history.transaction_fold import (
    TRANSACTION_TOPIC,
    boundary_entry,
    event_entry,
)
from airflow_provider_mysql_cdc.cdc.verify.read.entries import EntryKind, FoldEntry
from airflow_provider_mysql_cdc.cdc.verify.read.event_record import EventRecord, UnreadableRecord


class TransactionEntries:
    """Make the entries of events and of the records of the transaction topic.

    Args:
        cfg: The connector's configuration.
        topic: The transaction topic; empty where transactions are not compared.
        numbers: Numbers of the tables that are compared.
        lookup_schema: Returns the text of a schema.
    """

    def __init__(
        self, cfg: ConnectorConfig, topic: str, numbers: Mapping[TableId, int], lookup_schema: LookupSchema
    ) -> None:
        self.topic, self._numbers = topic, {str(table): number for table, number in numbers.items()}
        self._boundaries = boundary_reader(cfg, lookup_schema) if topic else None

    def of_event(self, number: int, event: EventRecord, record: TopicRecord) -> Iterator[FoldEntry]:
        """Yield the entry of an event; none of one without a transaction.

        Args:
            number: The table's number.
            event: The event.
            record: Its record.

        Raises:
            UnreadableRecord: Its transaction block is none.
        """
        if self.topic and event.transaction is not None:
            place = record.partition, record.offset
            try:
                yield event_entry(number, place, record.timestamp_ms, event.transaction)
            except (KeyError, TypeError, struct.error) as error:
                raise UnreadableRecord(f"the transaction block cannot be read: {error!r}") from None

    def of_boundary(self, record: TopicRecord) -> Iterator[FoldEntry]:
        """Yield the entry of a record of the transaction topic; one that cannot be read is as if it were missing.

        Args:
            record: The record.
        """
        if record.value is None or self._boundaries is None:
            return
        try:
            payload, _ = self._boundaries.read(record.value, record.headers)
            place = record.partition, record.offset
            yield boundary_entry(self._numbers, place, record.timestamp_ms, payload)
        except (UnreadableRecord, KeyError, TypeError, ValueError, AttributeError):
            return

    def of_start(self, numbers: Iterable[int], start: int, record: TopicRecord) -> Iterator[FoldEntry]:
        """Yield the entries of the first record of a part of a topic.

        Args:
            numbers: Numbers of the topic's tables.
            start: The part's first offset.
            record: The record.
        """
        if self.topic:
            for number in numbers:
                at_ms = max(0, record.timestamp_ms)
                yield FoldEntry(number, EntryKind.TOPIC_START, record.partition, start, at_ms, b"", b"")

    def of_topic(self, start: int, records: Iterable[TopicRecord]) -> Iterator[FoldEntry]:
        """Yield the entries of a part of the transaction topic.

        Args:
            start: The part's first offset.
            records: Its records.
        """
        first = True
        for record in records:
            if first:
                first = False
                yield from self.of_start((TRANSACTION_TOPIC,), start, record)
            yield from self.of_boundary(record)
