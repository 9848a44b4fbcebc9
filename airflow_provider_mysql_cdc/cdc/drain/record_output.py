"""What a writer hands to its producer: the records of its partitions, counted by topic and table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from airflow_provider_mysql_cdc.cdc.decode.tolerant_decoder import BadRow
from airflow_provider_mysql_cdc.cdc.drain.table_route import TableRoute
from airflow_provider_mysql_cdc.cdc.drain.taken_over import TakenOver
from airflow_provider_mysql_cdc.cdc.drain.writer_counts import WriterCounts
from airflow_provider_mysql_cdc.cdc.drain.writer_position import WriterPosition
from airflow_provider_mysql_cdc.cdc.formats.formatted_rows import format_rows, have_partitions
from airflow_provider_mysql_cdc.cdc.formats.partition_assignment import partition_of
from airflow_provider_mysql_cdc.cdc.formats.record_formats import RecordFormats
from airflow_provider_mysql_cdc.cdc.model.records import (
    HEADER,
    PARTITION,
    AddedHeaders,
    Header,
    Headers,
    PartitionedRecord,
    RowRecord,
    SideRecord,
)
from airflow_provider_mysql_cdc.cdc.sink.writer import TransactionalWriter


@dataclass(slots=True)
class RecordOutput:
    """Produce the records of the writer's partitions, in binlog order.

    Args:
        sink: The transactional producer.
        headers: Headers of all records.
        has_id_header: Whether records get the header ``cdc-id``.
        tolerant: Whether rows that cannot be serialized are left out.
        position: The writer's position.
        formats: Serializes side records; None when all records are JSON.
        history_topic: The schema history's topic, whose records are JSON without headers and are not counted.
        server_uuid: The server that the batch is read from, for ids of records without a GTID.
        counts: Counts the records.
        taken_over: What a Debezium connector has written of the batch; None for nothing.
    """

    sink: TransactionalWriter
    headers: list[Header]
    has_id_header: bool
    tolerant: bool
    position: WriterPosition
    formats: RecordFormats | None
    history_topic: str
    server_uuid: str | None
    counts: WriterCounts
    taken_over: TakenOver | None = None

    def produce_rows(self, route: TableRoute, records: list[RowRecord], where: str, operation: int) -> list[BadRow]:
        """Produce the records that a decoder's function made of a row event, each to its partition.

        Returns the rows that cannot be serialized.

        Raises:
            ValueDecodeError: A row cannot be serialized, and such rows stop the run.
        """
        share, bad_rows = route.share, list[BadRow]()
        if self.taken_over is not None:
            n, bad_rows = self._produce_unwritten(self.taken_over, route, records, where)
        elif route.record_format is not None and have_partitions(records):
            n = self._produce_partitioned(route, records)
        elif route.record_format is not None:
            formatted, bad_rows = format_rows(route.record_format, records, share, where, tolerant=self.tolerant)
            n = self._produce_formatted(route, formatted)
        elif share.all_assigned and share.partitions == 1 and not self.has_id_header and route.id_headers is None:
            self.sink.produce_all(route.topic, records, self.headers)
            n = len(records)
        else:
            partition_count, assigned = share.partitions, share.assigned
            partitions = (partition_of(r[0], partition_count) for r in records if assigned)
            pairs = zip(records, partitions, strict=False)
            n = self._produce_formatted(
                route, ((k, v, row, n, h, p) for (k, v, row, n, h, _), p in pairs if p in assigned)
            )
        self.counts.add_rows(route.topic, route.path, n)
        self.counts.meter.add_rows(operation, records, n, share)
        return bad_rows

    def produce_decoded(
        self, route: TableRoute, records: list[RowRecord], partition: int, gtid: str | None, event: int, size: int
    ) -> None:
        """Produce records of whole transactions that the native kernel decoded, if their partition is the writer's.

        GTID and number of the row event are those that ids of records begin with; the size is that of keys and values.
        """
        if partition not in route.share.assigned:
            return
        if self.has_id_header or route.id_headers is not None:
            partitioned = ((k, v, row, n, h, partition) for k, v, row, n, h, _ in records)
            n = self._produce_formatted(route, partitioned, self._event_id(gtid, event))
        else:
            self.sink.produce_plain(route.topic, records, self.headers, partition, size)
            n = len(records)
        self.counts.add_rows(route.topic, route.path, n)

    def _produce_unwritten(
        self, taken: TakenOver, route: TableRoute, records: list[RowRecord], where: str
    ) -> tuple[int, list[BadRow]]:
        """Produce the records that a Debezium connector has not written; return their number, and rows left out."""
        share, bad_rows = route.share, list[BadRow]()
        if route.record_format is not None:
            kept, bad_rows = format_rows(route.record_format, records, share, where, tolerant=self.tolerant)
        else:
            partitions = (partition_of(r[0], share.partitions) for r in records)
            kept = [(*r[:PARTITION], p) for r, p in zip(records, partitions, strict=True) if p in share.assigned]
        unwritten = list(taken.without_written(route.topic, kept, self.position))
        if any(isinstance(record[HEADER], AddedHeaders) for record in unwritten):
            self.sink.produce_all(route.topic, unwritten, self.headers)  # which tells them from those for the chain
            return len(unwritten), bad_rows
        return self._produce_formatted(route, unwritten), bad_rows

    def _produce_partitioned(self, route: TableRoute, records: Sequence[PartitionedRecord]) -> int:
        """Produce the records of the writer's partitions; return their number."""
        assigned = route.share.assigned
        if not route.share.all_assigned:
            records = [record for record in records if record[PARTITION] in assigned]
        if self.has_id_header:
            return self._produce_formatted(route, records)
        self.sink.produce_all(route.topic, records, self.headers)
        return len(records)

    def _produce_formatted(
        self, route: TableRoute, records: Iterable[PartitionedRecord], event_id: str | None = None
    ) -> int:
        """Produce records one by one, each with its headers; return their number."""
        topic, id_headers = route.topic, route.id_headers
        produce, headers, has_id_header = self.sink.produce, self.headers, self.has_id_header
        if has_id_header and event_id is None:
            event_id = self._event_id(self.position.gtid, self.position.events)
        n = 0
        for key, value, row, record_number, header, partition in records:
            record_headers: Headers = headers if header is None else [header, *headers]
            if has_id_header:
                record_headers = [*record_headers, ("cdc-id", f"{event_id}/{row}/{record_number}".encode())]
            if id_headers is not None:
                record_headers = id_headers.append_to(record_headers, key, value)
            produce(topic, key, value, partition, record_headers)
            n += 1
        if n:
            self.sink.note_partition(topic, partition)
        return n

    def produce_side(self, record: SideRecord, *, with_headers: bool = True) -> None:
        """Produce a record that comes from no row event; those of transactions get no headers, as in Debezium."""
        topic = record.topic
        if topic != self.history_topic:
            if with_headers:
                record = record._replace(headers=self.headers)
            record = self.formatted(record)
            self.counts.add_side_record(topic)
        self.sink.produce(topic, record.key, record.value, 0, record.headers)

    def formatted(self, record: SideRecord) -> SideRecord:
        """Return a record that comes from no row event, in the format of its topic.

        Args:
            record: The record; key and value as JSON.

        Raises:
            RegistryError: The registry does not return the id of a schema.
        """
        return record if self.formats is None else self.formats.format_side_record(record)

    def _event_id(self, gtid: str | None, event: int) -> str:
        """Return GTID (or server UUID and position) and number of the row event, which ids begin with (design, 4)."""
        return f"{gtid or f'{self.server_uuid}/{self.position.boundary}'}/{event}"
