"""What a Debezium connector has written behind the place at which this stream goes on from it.

A connector stops anywhere: in the middle of a transaction, and, where it was killed, with records in the topics that
its offset does not know of. So the stream begins at the transaction boundary before, and leaves out what is there: up
to the offset in all topics, and in each partition up to its last record, as a producer writes a partition in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import TAKEN_OVER_KEY
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.drain.writer_position import WriterPosition
from airflow_provider_mysql_cdc.cdc.errors import ServerChangedError
from airflow_provider_mysql_cdc.cdc.formats.record_topics import partition_of
from airflow_provider_mysql_cdc.cdc.model.gtid import GtidSet
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, PreparedXa, compare_offsets, file_number
from airflow_provider_mysql_cdc.cdc.model.records import PartitionedRecord, SideRecord
from airflow_provider_mysql_cdc.cdc.model.stored_record import Count, Record

TRANSACTION_END = 2**40
"""Stands for the number of an event behind all row events of a transaction."""


class RecordPlace(NamedTuple):
    """The place of a record in the order of the stream.

    Args:
        file: Number of the binlog file.
        pos: Position of the transaction's first event.
        event: Number of the row event in the transaction, from 1; 0 for statements, and for the transaction's begin.
        row: Number of the row in the event, from 0; or of the QUERY event in the transaction, from 1.
        record: Number of the record among those of the row or statement.
    """

    file: Count
    pos: Count
    event: Count = 0
    row: Count = 0
    record: Count = 0

    @classmethod
    def at(cls, offset: BinlogOffset) -> RecordPlace:
        """Return the place of a boundary of transactions; places are compared within the binlog of one server."""
        return cls(file_number(offset.file), offset.pos)


@dataclass(frozen=True, slots=True)
class TakenOver(Record):
    """Say what is in the topics already.

    Args:
        start: The transaction boundary at which the stream begins.
        until: The boundary behind which nothing is there.
        reached: Records of tables before this place are in the topics.
        ends: The same for single partitions, by topic and partition: the place behind the last record.
        boundary_partitions: Partitions of the transaction topic, among which a connector spreads its records by key.
        written: Sum of the ends of each topic of the stream, in Kafka's offsets.
    """

    start: BinlogOffset
    until: BinlogOffset
    reached: RecordPlace
    ends: Mapping[str, Mapping[int, RecordPlace]] = field(default_factory=dict)
    boundary_partitions: Count = 1
    written: Mapping[str, Count] = field(default_factory=dict)

    def is_passed(self, position: WriterPosition) -> bool:
        """Return whether nothing of the transactions from here on is in the topics.

        Args:
            position: The writer's position, at the beginning of a transaction.
        """
        return _place(position, 0) >= RecordPlace.at(self.until)

    def holds_event(self, position: WriterPosition) -> bool:
        """Return whether all records of the row event that was counted last are in the topics.

        Args:
            position: The writer's position.
        """
        return _place(position, position.events + 1) <= self.reached

    def without_written(
        self, topic: str, records: Iterable[PartitionedRecord], position: WriterPosition
    ) -> Iterator[PartitionedRecord]:
        """Yield the records of the row event that was counted last which are not in their topic.

        Args:
            topic: The topic.
            records: Records of the event.
            position: The writer's position.
        """
        ends, event = self.ends.get(topic, {}), _place(position, position.events)
        for record in records:
            _, _, row, number, _, partition = record
            place = event._replace(row=row, record=number)
            if place >= self.reached and place >= ends.get(partition, place):
                yield record

    def holds_statement(self, record: SideRecord, number: int, position: WriterPosition) -> bool:
        """Return whether a record of the QUERY event that was counted last is in its topic.

        Args:
            record: The record.
            number: Its number among those of the statement.
            position: The writer's position.
        """
        return self._ends_behind(record.topic, _place(position, 0, position.statements)._replace(record=number))

    def holds_boundary(self, record: SideRecord, position: WriterPosition, *, end: bool) -> bool:
        """Return whether the BEGIN or END record of the transaction is in its topic.

        Args:
            record: The record, in the format of its topic.
            position: The writer's position, in the transaction.
            end: Whether it is the END record.
        """
        partition = partition_of(record.key, self.boundary_partitions)
        return self._ends_behind(record.topic, _place(position, TRANSACTION_END if end else 0), partition)

    def _ends_behind(self, topic: str, place: RecordPlace, partition: int = 0) -> bool:
        return place < self.ends.get(topic, {}).get(partition, place)

    def holds_xa(self, xa: PreparedXa, server_uuid: str | None) -> bool:
        """Return whether the connector has written the rows of a prepared transaction: it does so at XA PREPARE.

        Args:
            xa: The transaction, which commits now.
            server_uuid: The server whose binlog contains it.
        """
        return server_uuid == self.start.server_uuid and RecordPlace(file_number(xa.file), xa.start) < RecordPlace.at(
            self.start
        )

    def is_ahead(self, plan: BatchPlan) -> bool:
        """Return whether the connector may have written records that belong to a batch.

        Args:
            plan: The batch.

        Raises:
            ServerChangedError: Another server answers before the first batches have passed these records.
        """
        if plan.start.server_uuid == self.until.server_uuid:
            return compare_offsets(plan.start, self.until) < 0
        if GtidSet.parse(plan.start.gtids).contains(GtidSet.parse(self.until.gtids)):
            return False
        raise ServerChangedError(
            "another server answers before the stream has passed what the Debezium connector has written",
            where=f"{plan.start}, take-over up to {self.until}",
            why="its records in the topics are known by positions of the server before",
            remedy="run mysql_cdc_drain once at the server before; where it is gone, run mysql-cdc import-debezium "
            "again, at this server",
        )


def _place(position: WriterPosition, event: int, row: int = 0) -> RecordPlace:
    return RecordPlace(file_number(position.file), position.pos, event, row)


def taken_over(ledger: LedgerState) -> TakenOver | None:
    """Return what a connector had written when the stream was taken over; None where it was not.

    Args:
        ledger: The ledger.
    """
    record = ledger.other_records.get(TAKEN_OVER_KEY)
    return None if record is None else TakenOver.from_json(record)
