"""What a writer reads and produces, counted for its markers and reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING

from airflow_provider_mysql_cdc.cdc.binlog.constants import ROW_EVENT_KINDS
from airflow_provider_mysql_cdc.cdc.commit.plan import Marker
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import NULLED_SUFFIX
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import Tally
from airflow_provider_mysql_cdc.cdc.formats.dead_letter import SKIPPED_SUFFIX
from airflow_provider_mysql_cdc.cdc.formats.record_topics import TopicShare, partition_of
from airflow_provider_mysql_cdc.cdc.metrics.stream_metrics import StreamCounts, bounded_text
from airflow_provider_mysql_cdc.cdc.metrics.writer_metrics import EventPlace, WriterMetrics
from airflow_provider_mysql_cdc.cdc.model.clock import now_ms
from airflow_provider_mysql_cdc.cdc.model.records import NEW_KEY, TOMBSTONE, NativeCounts, RowRecord

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.binlog.event import Event
    from airflow_provider_mysql_cdc.cdc.drain.writer_position import WriterPosition


SKIPPED_STATEMENTS_SUFFIX = " (skipped statements)"
_WRITE, _DELETE = 0, 2
_RECORD_NUMBER = itemgetter(3)
_OPERATIONS = ("c", "u", "d", "u")
"""Debezium's letters of the operations, by the number of the decoder's function (``ROW_EVENT_KINDS``)."""

LastRows = tuple[str, "Event | None", str | None, int]
"""Path of a table, its last row event (None where whole transactions are decoded at once), and GTID and commit time in
microseconds of the transaction."""


@dataclass(slots=True)
class WriterMeter:
    """Count what a writer reads; what all writers read (filtered events, transactions) counts writer 0 alone.

    Args:
        first: Whether the writer is number 0.
        earlier: What an earlier attempt has committed of the batch.
        last_rows: The last row event that had records.
        connected: Whether the connection to the source is up.
    """

    first: bool = True
    earlier: StreamCounts = field(default_factory=StreamCounts)
    created: int = 0
    updated: int = 0
    deleted: int = 0
    filtered: int = 0
    committed: int = 0
    rolled_back: int = 0
    torn: int = 0
    disconnects: int = 0
    schema_changes: int = 0
    last_rows: LastRows | None = None
    connected: bool = False
    _noted: LastRows | None = None
    _place: EventPlace | None = None
    _schema_change: tuple[str, int] = ("", 0)

    def add_rows(self, operation: int, records: Sequence[RowRecord], produced: int, share: TopicShare) -> None:
        """Count the rows of an event by what happened to them.

        Args:
            operation: Number of the decoder's function.
            records: Records of the event: all of them, or those of rows whose keys are the writer's (``table_shape``).
            produced: How many of them this writer has produced.
            share: The writer's share of the topic.
        """
        if not produced:
            return
        rows = records[-1][2] + 1  # as many or more: rows of other writers, and such as cannot be read, have no record
        if operation == _WRITE:
            self.created += produced
        elif operation == _DELETE and produced == 2 * rows:  # each with its tombstone
            self.deleted += rows
        elif not any(map(_RECORD_NUMBER, records)):  # one record for each row: no tombstone, and no key has changed
            if operation == _DELETE:
                self.deleted += produced
            else:
                self.updated += produced
        else:
            self._add_each(operation, _own_records(records, share))

    def _add_each(self, operation: int, records: Iterable[RowRecord]) -> None:
        for _, value, _, number, header, _ in records:
            if number == TOMBSTONE:
                continue
            if number == NEW_KEY:
                self.created += 1
            # The old half of a changed key names the new key in a header; TiCDC writes it without a value.
            elif operation == _DELETE or header is not None or value is None:
                self.deleted += 1
            else:
                self.updated += 1

    def add_changes(self, created: int, updated: int, deleted: int) -> None:
        """Count rows of records that this writer has produced.

        Args:
            created: Rows that were inserted.
            updated: Rows that were updated.
            deleted: Rows that were deleted.
        """
        self.created += created
        self.updated += updated
        self.deleted += deleted

    def add_decoded(self, transactions: int, filtered: int) -> None:
        """Count transactions that were decoded at once.

        Args:
            transactions: Their number; all have committed.
            filtered: Row events in them of tables that are not captured.
        """
        if self.first:
            self.committed += transactions
            self.filtered += filtered

    def add_filtered(self) -> None:
        """Count a row event of a table that is not captured."""
        if self.first:
            self.filtered += 1

    def end_transaction(self, *, committed: bool) -> None:
        """Count a transaction that was read to its end.

        Args:
            committed: Whether it was committed; otherwise it was rolled back.
        """
        if self.first and committed:
            self.committed += 1
        elif self.first:
            self.rolled_back += 1

    def add_torn(self) -> None:
        """Count a transaction whose end is missing."""
        if self.first:
            self.torn += 1

    def on_schema_change(self, statement: str, *, earlier: bool) -> None:
        """Note a statement that has changed the structure of a table.

        Args:
            statement: Its text.
            earlier: Whether an earlier attempt has counted it.
        """
        self._schema_change = bounded_text(statement), now_ms()
        if self.first and not earlier:
            self.schema_changes += 1

    def lose_connection(self) -> None:
        """Count a connection to the source that broke."""
        self.connected = False
        self.disconnects += 1

    def metrics(
        self, position: WriterPosition, gtids: str | None, counts: Mapping[str, int], pending: tuple[int, int]
    ) -> WriterMetrics:
        """Return what the writer says of its batch now.

        Args:
            position: Its position.
            gtids: The GTID set at its position; None without GTIDs.
            counts: Its records by topic, and what it left out (``WriterCounts``).
            pending: Bytes of records that are not committed, and records in the queue of the Kafka client.
        """
        self._note_event(position)
        server_id, gtid = position.last_transaction
        transaction = gtid or (f"{position.file}:{position.pos}" if server_id else "")
        return WriterMetrics(
            counts=self.earlier.add(self._own_counts(counts)),
            last_event=self._place,
            transaction=transaction,
            schema_change=self._schema_change[0],
            schema_change_ms=self._schema_change[1],
            position=(position.file, position.pos),
            gtids=gtids or "",
            connected=self.connected,
            bytes_pending=pending[0],
            queued=pending[1],
        )

    def _own_counts(self, counts: Mapping[str, int]) -> StreamCounts:
        suffixes = (SKIPPED_SUFFIX, SKIPPED_STATEMENTS_SUFFIX)
        skipped = sum(n for name, n in counts.items() if name.endswith(suffixes))
        return StreamCounts(
            self.created,
            self.updated,
            self.deleted,
            self.filtered,
            max(0, skipped - self.earlier.skipped),  # the counts by topic contain those of earlier attempts
            self.committed,
            self.rolled_back,
            self.torn,
            self.disconnects,
            self.schema_changes,
        )

    def _note_event(self, position: WriterPosition) -> None:
        """Describe the last row event, unless it is the one of the last report."""
        last_rows = self.last_rows
        if last_rows is None or last_rows is self._noted:
            return
        self._noted = last_rows
        table, event, gtid, commit_us = last_rows
        in_file = ("", position.file, position.pos, 0)
        operation, file, pos, written_s = (
            in_file
            if event is None
            else (_OPERATIONS[ROW_EVENT_KINDS[event.type]], event.file, event.start_pos, event.timestamp)
        )
        self._place = EventPlace(
            file,
            pos,
            table,
            operation,
            gtid or "",
            position.last_transaction[0],
            commit_us // 1000 or written_s * 1000,
            now_ms(),
        )


def _own_records(records: Sequence[RowRecord], share: TopicShare) -> Iterable[RowRecord]:
    """Return the records of the writer's partitions."""
    if share.all_assigned:
        return records
    return [
        record
        for record in records
        if (partition_of(record[0], share.partitions) if record[5] is None else record[5]) in share.assigned
    ]


UNLOGGED_SUFFIX = " (changes without row events)"


@dataclass(slots=True)
class WriterCounts:
    """Count the records of one writer, those that an earlier attempt at the batch committed included.

    Args:
        by_topic: Records by topic; rows left out count under a name of their own (``dead_letter.SKIPPED_SUFFIX``),
            and so do statements that changed rows of a table without row events (``UNLOGGED_SUFFIX``), and statements
            of a database that were skipped (``SKIPPED_STATEMENTS_SUFFIX``).
        by_table: Of these the records of row events, by table (``TableId.path``).
        earlier_native: What the native kernel decoded in an earlier attempt.
        tally: Counts what the native kernel decodes in this one, and maybe in earlier batches; None without the
            kernel.
        tally_before: What it had counted before this batch.
        meter: Measures what the writer reads, for the metrics.
        take_outputs: Takes from the writer what a chain of transforms has made, by topic; None where there is no chain,
            and topics are counted as they are before it.
    """

    by_topic: dict[str, int] = field(default_factory=dict)
    by_table: dict[str, int] = field(default_factory=dict)
    earlier_native: NativeCounts = field(default_factory=NativeCounts)
    tally: Tally | None = None
    tally_before: NativeCounts = field(default_factory=NativeCounts)
    meter: WriterMeter = field(default_factory=WriterMeter)
    take_outputs: Callable[[], Mapping[str, int]] | None = None

    @classmethod
    def resume(cls, marker: Marker | None, tally: Tally | None, writer: int = 0) -> WriterCounts:
        """Return counts that continue those of an earlier attempt.

        Args:
            marker: The writer's last marker in this batch, or None.
            tally: Counts what the native kernel decodes; None without the kernel.
            writer: The writer's index.
        """
        before = NativeCounts() if tally is None else tally.counts()
        if marker is None:
            return cls(tally=tally, tally_before=before, meter=WriterMeter(first=writer == 0))
        meter = WriterMeter(writer == 0, marker.metrics.counts)
        return cls(dict(marker.counts), dict(marker.tables), marker.native, tally, before, meter)

    def add_rows(self, topic: str, table: str, count: int) -> None:
        """Count records of row events.

        Args:
            topic: Their topic.
            table: Their table (``TableId.path``).
            count: Their number.
        """
        if count:
            if self.take_outputs is None:
                self._add(topic, count)
            self.by_table[table] = self.by_table.get(table, 0) + count

    def add_side_record(self, topic: str) -> None:
        """Count a record that comes from no row event.

        Args:
            topic: Its topic.
        """
        if self.take_outputs is None:
            self._add(topic)

    def _add(self, name: str, count: int = 1) -> None:
        self.by_topic[name] = self.by_topic.get(name, 0) + count

    def add_outputs(self) -> None:
        """Count what a chain of transforms has made since the last call."""
        for topic, count in ({} if self.take_outputs is None else self.take_outputs()).items():
            self._add(topic, count)

    def add_unlogged_change(self, table: str) -> None:
        """Count a statement that changed rows of a table without row events.

        Args:
            table: The table, as ``database.table``.
        """
        self._add(table + UNLOGGED_SUFFIX)

    def add_skipped_statement(self, database: str) -> None:
        """Count a statement that was not understood and skipped.

        Args:
            database: The database of its tables, otherwise that of its session.
        """
        self._add(database + SKIPPED_STATEMENTS_SUFFIX)

    def add_nulled(self, topic: str, count: int) -> None:
        """Count values that are null in records because no type of the contract can hold them.

        Args:
            topic: The topic of the records.
            count: Their number.
        """
        self._add(topic + NULLED_SUFFIX, count)

    def records(self) -> int:
        """Return the number of records."""
        return sum(self.by_topic.values())

    def native(self) -> NativeCounts:
        """Return what the native kernel has decoded."""
        own = NativeCounts() if self.tally is None else self.tally.counts().since(self.tally_before)
        return self.earlier_native.add(own)
