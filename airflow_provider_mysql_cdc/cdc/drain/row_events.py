"""Row events of a writer: decode their rows, and hand the records of its partitions to its producer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.event import Event
from airflow_provider_mysql_cdc.cdc.binlog.event_parsers import GtidEvent
from airflow_provider_mysql_cdc.cdc.binlog.rows_header import FLAGS_END, TABLE_ID_BYTES
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import (
    NULLED,
    EventContext,
    NulledValue,
    nulled_warning,
)
from airflow_provider_mysql_cdc.cdc.decode.tolerant_decoder import BadRow
from airflow_provider_mysql_cdc.cdc.drain.committer import Committer
from airflow_provider_mysql_cdc.cdc.drain.side_records import PLACEHOLDER, TransactionMetadata
from airflow_provider_mysql_cdc.cdc.drain.table_route import NO_SHARE, TableRoute
from airflow_provider_mysql_cdc.cdc.drain.table_routes import TableRoutes
from airflow_provider_mysql_cdc.cdc.drain.taken_over import TakenOver
from airflow_provider_mysql_cdc.cdc.drain.window_keys import EventRows, WindowKeys
from airflow_provider_mysql_cdc.cdc.drain.writer_meter import WriterCounts
from airflow_provider_mysql_cdc.cdc.drain.writer_position import WriterPosition, row_event_size
from airflow_provider_mysql_cdc.cdc.drain.xa_transactions import XaTransactions
from airflow_provider_mysql_cdc.cdc.formats.dead_letter import DeadLetterReporter, format_rows, have_partitions
from airflow_provider_mysql_cdc.cdc.formats.record_formats import RecordFormats
from airflow_provider_mysql_cdc.cdc.formats.record_topics import partition_of
from airflow_provider_mysql_cdc.cdc.model.gtid import gtid_source
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
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.sink.writer import TransactionalWriter
from airflow_provider_mysql_cdc.cdc.ticdc.commit_ts import CommitClock, transaction_number


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


@dataclass(slots=True)
class RowEventHandler:
    """Decode the rows of each event, and produce the records of the writer's partitions.

    Args:
        xa: The writer's XA transactions; rows inside of one are produced when it commits.
        dead_letters: Reports rows that cannot be decoded or serialized.
        failed_rows: Rows of the last event that could not be decoded; None when such a row stops the run.
        metadata: Numbers the events of a transaction; None without transaction metadata.
        window_keys: Remembers which rows were changed; None outside of an incremental snapshot window.
        commit_clock: Gives transactions TiCDC's commit timestamps; None in other formats.
        ctx: Texts of the current event for the decoders.
        counts_source: Says of a server's uuid whether rows of its transactions become records (``gtid.source.*``); None
            where those of all servers do.
    """

    position: WriterPosition
    routes: TableRoutes
    output: RecordOutput
    committer: Committer
    xa: XaTransactions
    dead_letters: DeadLetterReporter
    failed_rows: list[BadRow] | None = None
    metadata: TransactionMetadata | None = None
    window_keys: WindowKeys | None = None
    commit_clock: CommitClock | None = None
    ctx: EventContext = field(default_factory=EventContext)
    counts_source: Callable[[str], bool] | None = None
    _uncounted: bool = False
    _noted_sources: set[str] = field(default_factory=set)
    _nulled_columns: set[tuple[TableId, str]] = field(default_factory=set)

    def __post_init__(self) -> None:
        if self.metadata is not None:
            self.ctx.transaction = PLACEHOLDER

    @property
    def needs_gtid_events(self) -> bool:
        """Whether ``begin_transaction`` does anything."""
        return self.counts_source is not None or self.commit_clock is not None

    def begin_transaction(self, gtid_event: GtidEvent, event: Event) -> None:
        """Prepare for the rows of a transaction; the event's time replaces one that the server does not log (5.7)."""
        if self.counts_source is not None:
            uuid = None if gtid_event.gtid is None else gtid_source(gtid_event.gtid)
            self._uncounted = uuid is not None and not self.counts_source(uuid)
            if uuid is not None and self._uncounted and uuid not in self._noted_sources:
                self._noted_sources.add(uuid)
                self.committer.note(f"rows of transactions of server {uuid} are not written (gtid.source.*)", once=True)
        if self.commit_clock is not None:
            self._begin_timestamp(self.commit_clock, gtid_event, event)

    def _begin_timestamp(self, clock: CommitClock, gtid_event: GtidEvent, event: Event) -> None:
        """Show TiCDC's timestamp of a transaction that begins."""
        position = self.position
        if position.resume is not None and not position.transaction_committed():
            clock.continue_behind(position.partly_committed())
        if not self._uncounted:
            us = gtid_event.commit_us or event.timestamp * 1_000_000
            number = transaction_number(gtid_event.gtid, gtid_event.sequence_number)
            self.ctx.transaction = str(clock.next_ts((position.file, position.pos), us, number).value)

    def handle(self, event: Event, xa_commit: Event | None = None) -> None:
        """Produce the records of a row event.

        Args:
            event: The event.
            xa_commit: The event that commits the rows of a prepared XA transaction; None for rows of other ones.

        Raises:
            BinlogCorruptError: No TABLE_MAP event announced its table id, or it cannot belong to its table.
            ValueDecodeError: A row cannot be decoded, and such rows stop the run.
            SinkError: Kafka does not accept a record, or refuses a commit.
        """
        if self.xa.open:
            return
        position, buf, body, end = self.position, event.buf, event.body, event.end
        position.add_rows(row_event_size(event))
        operation = c.ROW_EVENT_KINDS[event.type]
        route = self.routes.by_id.get(int.from_bytes(buf[body : body + TABLE_ID_BYTES], "little"))
        header = None if route is None else route.headers.get(event.type)
        pos = body + FLAGS_END + len(header or b"")
        if route is None or header is None or buf[body + FLAGS_END : pos] != header or pos >= end:
            route, event, pos = self.routes.of_rows(event)
            buf, end = event.buf, event.end
        if self._uncounted:
            return
        if self.window_keys is not None:
            self.window_keys.add_rows(route.table, EventRows(event, pos, operation), xa_commit or event)
        if route.source is None or route.decoder is None:
            self._pass_over(route)
            return
        taken = self.output.taken_over
        skipping = position.resume is not None and position.rows_committed()
        skipping = skipping or (taken is not None and taken.holds_event(position))
        if skipping and self.metadata is None:
            return
        ctx = self.ctx
        route.write_source_block(ctx, route.source, event, position)
        records: list[RowRecord] = []
        route.decode[operation](buf, pos, end, ctx, records)
        if NULLED.values:
            self._report_nulled(route, NULLED.take(), skipping=skipping)
        if self.failed_rows:
            self._report_failed_rows(route, skipping=skipping)
        if self.metadata is not None:
            records = self.metadata.number_records(route.table, records)
            if skipping:
                return
        self.output.counts.meter.last_rows = route.path, event, position.gtid, position.commit_us
        for bad_row in self.output.produce_rows(route, records, ctx.where, operation):
            self._report(route, bad_row)
        self.committer.after_rows()

    def _pass_over(self, route: TableRoute) -> None:
        """Count an event of a table that is not captured, unless an earlier attempt has."""
        if route.share is NO_SHARE and (self.position.resume is None or not self.position.rows_committed()):
            self.output.counts.meter.add_filtered()

    def _report_nulled(self, route: TableRoute, values: list[NulledValue], *, skipping: bool) -> None:
        """Count the values of an event that are null in its records, and log the first one of each column."""
        if skipping or not route.counts_values:
            return
        self.output.counts.add_nulled(route.topic, len(values))
        for value in values:
            if (route.table, value.column) not in self._nulled_columns:
                self._nulled_columns.add((route.table, value.column))
                self.committer.note(nulled_warning(route.table, value, self.ctx.where), once=True)

    def _report_failed_rows(self, route: TableRoute, *, skipping: bool) -> None:
        """Report the rows of an event that could not be decoded, those of this writer's partitions."""
        failed, share = self.failed_rows or [], route.share
        failed_rows, failed[:] = list(failed), []
        for row in failed_rows:
            if not skipping and share.assigned and partition_of(row.key, share.partitions) in share.assigned:
                self._report(route, row)

    def _report(self, route: TableRoute, row: BadRow) -> None:
        """Report a row of which no record is produced; exactly one writer does so for each row."""
        self.dead_letters.report(route.topic, row, self.ctx.as_json(), self.output.headers)
        if self.window_keys is not None:
            self.window_keys.on_unwritten_row(row.row)
