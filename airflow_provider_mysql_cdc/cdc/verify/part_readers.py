"""Read the parts of tables and topics that a task of a verification gets, as entries or as checksums."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME

from airflow_provider_mysql_cdc.cdc.binlog.connect import fetch_all
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.drain.structure_check import difference_in_view
from airflow_provider_mysql_cdc.cdc.errors import SchemaMismatchError, SourceConnectionError, SourceError
from airflow_provider_mysql_cdc.cdc.formats.record_formats import RecordFormats
from airflow_provider_mysql_cdc.cdc.formats.record_topics import table_topic_name
from airflow_provider_mysql_cdc.cdc.job.coordinator import CoordinatorClient
from airflow_provider_mysql_cdc.cdc.job.schema_ids import ask_driver, ask_driver_for_texts
from airflow_provider_mysql_cdc.cdc.job.task_runner import Block
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.stored_record import INT64_MAX
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import RecordsDeleted, TopicRecord, to_record
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk, chunk_condition, rows_sql
from airflow_provider_mysql_cdc.cdc.snapshot.key_kinds import stored_dates_allowed
from airflow_provider_mysql_cdc.cdc.snapshot.rows import stream_blocks
from airflow_provider_mysql_cdc.cdc.verify.checksum_reader import TableChecksums, TaskChecksums
from airflow_provider_mysql_cdc.cdc.verify.compare.checksum_entries import ChecksumBlocks, SumKind
from airflow_provider_mysql_cdc.cdc.verify.compare.event_entries import RecordKeys, TableEntries, history_entry
from airflow_provider_mysql_cdc.cdc.verify.history.batch_counts import CountedPart, KeptBatches, PartCounter
from airflow_provider_mysql_cdc.cdc.verify.history.transactions import TransactionEntries
from airflow_provider_mysql_cdc.cdc.verify.read.entries import EntryBlocks
from airflow_provider_mysql_cdc.cdc.verify.read.event_readers import boundary_reader, event_reader
from airflow_provider_mysql_cdc.cdc.verify.read.event_record import EventReader, EventRecord, UnreadableRecord
from airflow_provider_mysql_cdc.cdc.verify.read.row_records import (
    RowRecords,
    WrittenRow,
    is_repair,
    read_messages,
    read_records,
    without_unknown_repair,
)
from airflow_provider_mysql_cdc.cdc.verify.structures.compared_table import ComparedTable, tables_by_topic
from airflow_provider_mysql_cdc.cdc.verify.structures.written_structures import WrittenStructures
from airflow_provider_mysql_cdc.cdc.verify.verify_operations import (
    RECORDS_COUNTED,
    RECORDS_UNREADABLE,
    TABLE_UNREAD,
    VERSIONS,
    TableName,
    TopicRange,
    UnreadableRecords,
    UnreadTable,
    VerifyInputs,
)
from airflow_provider_mysql_cdc.cdc.verify.views.view_batch import is_time_limit

MAX_EXAMPLES = 20
"""Places of unreadable records that a task reports of one part of a topic."""


@dataclass(slots=True)
class TaskTables:
    """Hold the tables that a task reads, and what it makes of their rows and records.

    Args:
        plan: The batch that ends at the position of the verification.
        channel: The way to the driver.
        inputs: What the task was started with.
    """

    cfg: ConnectorConfig
    plan: BatchPlan
    channel: CoordinatorClient
    inputs: VerifyInputs
    tables: Mapping[TableId, ComparedTable]
    formats: RecordFormats | None = field(init=False)
    blocks: EntryBlocks = field(init=False)
    checksums: TaskChecksums = field(init=False)
    _entries: dict[int, TableEntries] = field(default_factory=dict)
    _readers: dict[str, EventReader] = field(default_factory=dict)

    def __post_init__(self) -> None:
        inputs = self.inputs
        self.formats = RecordFormats.from_config(self.cfg, ask_driver(self.channel))
        self.checksums = TaskChecksums(
            self.cfg,
            ChecksumBlocks(inputs.buckets),
            self.formats,
            inputs.checksum_buckets,
            inputs.differing,
            inputs.sample_percent,
            self.plan.partitions,
            lambda number: self.entries_of(number).compared,
            inputs.sums_in_sql,
        )
        chosen = {each.number for each in self.tables.values() if self.checksums.filter_of(each) is not None}
        self.blocks = EntryBlocks(inputs.buckets, inputs.sample_percent, chosen)

    def take_full(self) -> Iterator[Block]:
        """Yield the full blocks."""
        yield from self.blocks.take_full()
        yield from self.checksums.blocks.take_full()

    def take_rest(self) -> Iterator[Block]:
        """Yield all blocks that are left."""
        yield from self.blocks.take_rest()
        yield from self.checksums.blocks.take_rest()

    def entries_of(self, number: int) -> TableEntries:
        """Return what makes the entries of a table, with the structures that it has had."""
        entries = self._entries.get(number)
        if entries is None:
            compared = self.tables[self.inputs.tables[number]]
            name = compared.table.id
            versions = self.channel.call(VERSIONS, TableName(name.db, name.table))
            compared = replace(compared, written=WrittenStructures(self.cfg, compared.table, versions))
            entries = self._entries[number] = TableEntries(compared, self.reader(compared.topic))
        return entries

    def reader(self, topic: str) -> EventReader:
        """Return the reader of a topic's records."""
        reader = self._readers.get(topic)
        if reader is None:
            reader = self._readers[topic] = event_reader(self.cfg, topic, ask_driver_for_texts(self.channel))
        return reader


@dataclass(slots=True)
class RowReader:
    """Read parts of tables.

    Args:
        of_task: The tables.
        conn: A connection with the view.
        unreadable: Why tables cannot be read in the view.
    """

    of_task: TaskTables
    conn: MySqlConnection
    unreadable: Mapping[TableId, str]
    _records: dict[int, RowRecords] = field(default_factory=dict)
    _unread: set[TableId] = field(default_factory=set)

    def read(self, chunk: SnapshotChunk) -> Iterator[Block]:
        """Read a part of a table; yield the blocks that are full."""
        task = self.of_task
        compared = task.tables.get(chunk.table)
        if compared is None or chunk.table in self._unread:
            return
        if reason := self._unreadable_reason(compared):
            self._unread.add(chunk.table)
            task.channel.call(TABLE_UNREAD, UnreadTable(chunk.table.db, chunk.table.table, reason))
            return
        checksums = task.checksums.of_table(compared)
        if checksums is not None and (sql := checksums.sums_sql(chunk_condition(chunk))) is not None:
            started = time.monotonic()
            with stored_dates_allowed(self.conn, chunk.kinds):
                self._keep_rate(started, checksums.add_sums(fetch_all(self.conn, sql)))
            yield from task.take_full()
        else:
            yield from self._encode(chunk, compared, checksums)

    def _encode(
        self, chunk: SnapshotChunk, compared: ComparedTable, checksums: TableChecksums | None
    ) -> Iterator[Block]:
        task, records, condition = self.of_task, self._row_records(compared), chunk_condition(chunk)
        chosen = task.checksums.filter_of(compared)
        started, rows, total = time.monotonic(), 0, 0
        with stored_dates_allowed(self.conn, chunk.kinds):
            if chosen is not None and chosen.condition:
                sampled = f" AND {chosen.sampled}" if chosen.sampled else ""
                counted = f"SELECT COUNT(*) FROM {compared.table.id.quoted()} WHERE {condition}{sampled}"
                total = int(fetch_all(self.conn, counted)[0][0])
                condition = f"{condition} AND {chosen.condition}"
            sql = rows_sql(compared.table.id, records.columns, condition, ())
            for block in stream_blocks(self.conn, sql, f"verification of {chunk.id}"):
                if checksums is not None:
                    checksums.add_rows(records.of_block(block))
                else:
                    self._add_entries(compared, records.of_block(block))
                yield from task.take_full()
                rows += block.rows
                self._keep_rate(started, rows)
        if total > rows:
            task.checksums.blocks.add(SumKind.COUNTED_ROWS, compared.number, number=total - rows)
            self._keep_rate(started, total)
        if records.errors and checksums is not None:
            checksums.leave_unjudged()
        elif records.errors:
            examples = tuple((f"table {chunk.table}", error.message()) for error in records.errors[:MAX_EXAMPLES])
            task.channel.call(RECORDS_UNREADABLE, UnreadableRecords(compared.topic, len(records.errors), examples))
        records.errors.clear()

    def _add_entries(self, compared: ComparedTable, rows: Iterable[WrittenRow]) -> None:
        task, skipped = self.of_task, 0
        entries, chosen = task.entries_of(compared.number), task.checksums.filter_of(compared)
        for row in rows:
            fields = None if chosen is None or chosen.condition else chosen.fields_of(row[0])
            if chosen is None or fields is None or chosen.differs(fields):
                task.blocks.add(entries.of_row(row))
            else:
                skipped += chosen.is_sampled(fields)
        if skipped:
            task.checksums.blocks.add(SumKind.COUNTED_ROWS, compared.number, number=skipped)

    def _row_records(self, compared: ComparedTable) -> RowRecords:
        records = self._records.get(compared.number)
        if records is None:
            task = self.of_task
            partitions = task.plan.partitions.get(compared.topic, 1)
            records = RowRecords(task.cfg, compared.table, partitions, task.formats, task.plan.end)
            self._records[compared.number] = records
        return records

    def _keep_rate(self, started: float, rows: int) -> None:
        """Wait where this task has read more rows than its share of the limit."""
        if limit := self.of_task.inputs.rows_per_second / self.of_task.inputs.tasks:
            time.sleep(max(0.0, started + rows / limit - time.monotonic()))

    def _unreadable_reason(self, compared: ComparedTable) -> str:
        """Return why a table cannot be read in this view; empty if it can."""
        if reason := self.unreadable.get(compared.table.id):
            return reason
        try:
            difference = difference_in_view(self.conn, compared.table)
        except (SchemaMismatchError, SourceError) as error:
            if isinstance(error, SourceConnectionError) or is_time_limit(error):
                raise
            return error.why
        return f"its structure differs from the server's: {difference}" if difference else ""


_MOST_DELETED = 100_000
"""Keys of deletes that are remembered until their tombstones come; other writers' records may be between the two."""


class LoneTombstones:
    """Find tombstones of other hands where a key may be that of several rows: consumers by key lose them.

    The stream writes a tombstone right behind the delete of its key.

    Args:
        start: The first offset that is read; the delete may be before it.
    """

    def __init__(self, start: int) -> None:
        self._is_first, self._deleted = start > 0, dict[bytes, None]()

    def require_delete(self, event: EventRecord, record: TopicRecord) -> None:
        """Check that a delete is before a tombstone; call it with each record.

        Raises:
            UnreadableRecord: None is.
        """
        may_be_cut, self._is_first = self._is_first, False
        if record.key is None or is_repair(record.headers):
            return
        if event.op == "d":
            self._deleted[record.key] = None
            if len(self._deleted) > _MOST_DELETED:  # without tombstones.on.delete
                del self._deleted[next(iter(self._deleted))]
        elif record.value is None and not may_be_cut:
            if record.key not in self._deleted:
                raise UnreadableRecord("it is a tombstone behind no delete: consumers by key lose the rows of its key")
            del self._deleted[record.key]


class TopicReader:
    """Read parts of topics."""

    def __init__(self, of_task: TaskTables) -> None:
        self._task, self._cfg, inputs = of_task, of_task.cfg, of_task.inputs
        self._by_topic = tables_by_topic(of_task.tables.values())
        self._topic_of: Callable[[TableId], str] = functools.cache(functools.partial(table_topic_name, self._cfg))
        self._batches, self._counts_batches = KeptBatches(inputs.batches), bool(inputs.batches)
        numbers = {name: compared.number for name, compared in of_task.tables.items()}
        lookup_schema = ask_driver_for_texts(of_task.channel)
        topic = inputs.transaction_topic
        boundaries = boundary_reader(self._cfg, lookup_schema) if topic else None
        self._transactions = TransactionEntries(topic, numbers, boundaries)
        self._record_keys: dict[str, RecordKeys] = {}
        self._repairs: Mapping[bytes | None, int] = {}

    def read(self, part: TopicRange) -> Iterator[Block]:
        """Read a part of a topic; yield the blocks that are full."""
        task = self._task
        if part.topic == task.inputs.transaction_topic:
            records = read_records(self._cfg, part.topic, {part.partition: (part.start, part.end)})
            for entry in self._transactions.of_topic(part.start, records):
                task.blocks.add(entry)
                yield from task.take_full()
            return
        try:
            yield from self._read_records(part)
        except RecordsDeleted as error:
            for name in self._by_topic[part.topic].tables:
                task.channel.call(TABLE_UNREAD, UnreadTable(name.db, name.table, str(error)))

    def _read_records(self, part: TopicRange) -> Iterator[Block]:
        task = self._task
        (number, *others) = self._by_topic[part.topic].tables.values()
        only = None if others else next(each for each in task.tables.values() if each.number == number)
        if only is not None and (checksums := task.checksums.of_table(only)) is not None:
            yield from checksums.read_records(part)
        else:
            yield from self._read_events(part, only)

    def _read_events(self, part: TopicRange, only: ComparedTable | None) -> Iterator[Block]:
        """Read events by value, of a topic's only table those of the keys that are looked at."""
        task, counter = self._task, PartCounter(self._batches, tombstones=self._cfg[F.TOMBSTONES_ON_DELETE])
        chosen = None if only is None else task.checksums.filter_of(only)
        unreadable, examples = 0, list[tuple[str, str]]()
        tombstones = LoneTombstones(part.start) if part.topic in task.inputs.judged_tombstones else None
        self._repairs = task.inputs.repairs.get(part.topic, {})
        for messages in read_messages(self._cfg, part.topic, part.partition, (part.start, part.end)):
            if counter.first_ms is None:
                if messages[0].timestamp()[0] == TIMESTAMP_LOG_APPEND_TIME:  # brokers write it, later than the repair
                    self._repairs = dict.fromkeys(self._repairs, INT64_MAX)
                start = to_record(messages[0])
                counter.first_ms = start.timestamp_ms
                for started in self._transactions.of_start(
                    self._by_topic[part.topic].tables.values(), part.start, start
                ):
                    task.blocks.add(started)
            looked_at = messages
            if chosen is not None and only is not None:
                looked_at = task.checksums.left_messages(only.number, chosen, messages)
            for record in map(to_record, looked_at):
                if (reason := self._add_record(part.topic, record, counter, tombstones)) is not None:
                    unreadable += 1
                    if len(examples) < MAX_EXAMPLES:
                        examples.append((f"{part.topic}[{record.partition}]@{record.offset}", reason))
            yield from task.take_full()
        if self._counts_batches and counter.first_ms is not None:
            counts = counter.first_ms, counter.counts, counter.unreadable
            task.channel.call(RECORDS_COUNTED, CountedPart(part.topic, part.partition, part.start, *counts))
        if unreadable:
            task.channel.call(RECORDS_UNREADABLE, UnreadableRecords(part.topic, unreadable, tuple(examples)))

    def _add_record(
        self, topic: str, record: TopicRecord, counter: PartCounter, tombstones: LoneTombstones | None
    ) -> str | None:
        """Add the entries of a record; return why it is no event, where it is not known which row it is about."""
        record = without_unknown_repair(record, self._repairs)
        try:
            event = self._task.reader(topic).read(record.key, record.value, record.headers)
            if not event.source or self._cfg.is_ticdc:
                event = replace(event, written_ms=record.timestamp_ms)
            if tombstones is not None:
                tombstones.require_delete(event, record)
            counter.add(event, record)
            self._add_event(topic, event, record)
        except UnreadableRecord as error:
            counter.unreadable += 1
            found = self._keys(topic).unreadable(record, str(error))
            if found is None:
                return str(error)
            self._task.blocks.add(found)
        return None

    def _keys(self, topic: str) -> RecordKeys:
        keys = self._record_keys.get(topic)
        if keys is None:
            compared = [self._task.entries_of(number).compared for number in self._by_topic[topic].tables.values()]
            keys = self._record_keys[topic] = RecordKeys(compared, self._task.reader(topic))
        return keys

    def _add_event(self, topic: str, event: EventRecord, record: TopicRecord) -> None:
        number, blocks = self._by_topic[topic].number_of(event), self._task.blocks
        if is_repair(record.headers) and (number is not None or record.value is None):
            for repaired in self._keys(topic).repaired(record, number):
                blocks.add(repaired)
        if record.value is not None:
            if not event.op and not self._cfg[F.TRANSFORMS]:
                raise UnreadableRecord("it is no change event, and no transforms lead messages to its topic")
            self._by_topic[topic].require_key(event, number)
        if number is None:
            self._by_topic[topic].require_own(event, self._topic_of)
        if number is None or (record.value is not None and not event.op):
            return
        entries = self._task.entries_of(number)
        for entry in entries.of_event(event, record):
            blocks.add(entry)
        if number in self._task.inputs.history_tables:
            step = history_entry(entries.compared, event, (record.partition, record.offset), record.headers)
            if step is not None:
                blocks.add(step)
        for entry in self._transactions.of_event(number, event, record):
            blocks.add(entry)
