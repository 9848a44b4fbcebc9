"""One task of a verification: opens its view, drains to the view's position, then reads parts of tables and topics."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.connect import fetch_all
from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.drain.batch_run import WriterInputs, write_batch
from airflow_provider_mysql_cdc.cdc.drain.structure_check import difference_in_view
from airflow_provider_mysql_cdc.cdc.errors import SchemaMismatchError, SourceConnectionError, SourceError, StateError
from airflow_provider_mysql_cdc.cdc.formats import table_options
from airflow_provider_mysql_cdc.cdc.formats.record_formats import RecordFormats
from airflow_provider_mysql_cdc.cdc.formats.record_topics import table_topic_name
from airflow_provider_mysql_cdc.cdc.incremental.window_operations import OPENED
from airflow_provider_mysql_cdc.cdc.incremental.window_task import open_window_view
from airflow_provider_mysql_cdc.cdc.job.coordinator import CoordinatorClient
from airflow_provider_mysql_cdc.cdc.job.named_errors import named_errors
from airflow_provider_mysql_cdc.cdc.job.schema_ids import ask_driver
from airflow_provider_mysql_cdc.cdc.job.schema_texts import ask_driver_for_texts
from airflow_provider_mysql_cdc.cdc.job.stage_runner import StageArguments, open_task
from airflow_provider_mysql_cdc.cdc.job.task_operation import EMPTY
from airflow_provider_mysql_cdc.cdc.job.task_runner import Block
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord, to_record
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk, chunk_condition
from airflow_provider_mysql_cdc.cdc.snapshot.key_kinds import stored_dates_allowed
from airflow_provider_mysql_cdc.cdc.snapshot.rows import stream_blocks
from airflow_provider_mysql_cdc.cdc.snapshot.select import rows_sql
from airflow_provider_mysql_cdc.cdc.verify.batch_counts import CountedPart, PartCounter
from airflow_provider_mysql_cdc.cdc.verify.carried_rows import carried_row_schema
from airflow_provider_mysql_cdc.cdc.verify.checksum_entries import ChecksumBlocks, SumKind
from airflow_provider_mysql_cdc.cdc.verify.checksum_tables import DifferingKeys, KeyFilter
from airflow_provider_mysql_cdc.cdc.verify.compared_table import (
    ComparedTable,
    TopicTables,
    compared_table,
    tables_by_topic,
)
from airflow_provider_mysql_cdc.cdc.verify.entries import EntryBlocks
from airflow_provider_mysql_cdc.cdc.verify.event_entries import history_entry
from airflow_provider_mysql_cdc.cdc.verify.event_readers import event_reader
from airflow_provider_mysql_cdc.cdc.verify.event_record import EventReader, EventRecord, UnreadableRecord
from airflow_provider_mysql_cdc.cdc.verify.kept_batches import KeptBatch, KeptBatches
from airflow_provider_mysql_cdc.cdc.verify.plain_entries import plain_entries
from airflow_provider_mysql_cdc.cdc.verify.record_keys import RecordKeys
from airflow_provider_mysql_cdc.cdc.verify.record_range import read_messages, read_records
from airflow_provider_mysql_cdc.cdc.verify.repair_marks import is_repair
from airflow_provider_mysql_cdc.cdc.verify.replica import connect_views
from airflow_provider_mysql_cdc.cdc.verify.row_comparison import ComparedColumns
from airflow_provider_mysql_cdc.cdc.verify.row_records import RowRecords, WrittenRow
from airflow_provider_mysql_cdc.cdc.verify.table_entries import TableEntries
from airflow_provider_mysql_cdc.cdc.verify.task_checksums import TaskChecksums
from airflow_provider_mysql_cdc.cdc.verify.time_limit import is_time_limit, time_limit
from airflow_provider_mysql_cdc.cdc.verify.transaction_entries import TransactionEntries
from airflow_provider_mysql_cdc.cdc.verify.verify_operations import (
    COMPARE,
    NEXT_PART,
    RECORDS_COUNTED,
    RECORDS_UNREADABLE,
    TABLE_UNREAD,
    VERSIONS,
    TableName,
    TopicRange,
    UnreadableRecords,
    UnreadTable,
)
from airflow_provider_mysql_cdc.cdc.verify.written_structures import WrittenStructures

MAX_EXAMPLES = 20
"""Places of unreadable records that a task reports of one part of a topic."""


@dataclass(frozen=True, slots=True)
class VerifyInputs:
    """Hold what the tasks of a verification need.

    Args:
        writer: What they need as writers of the batch that ends at the verification's position.
        tables: Names of the tables to compare, in the order of their numbers.
        buckets: Number of buckets.
        sample_percent: Share of the keys to compare.
        rows_per_second: Most rows that all tasks together read from the source in a second; 0 for no limit.
        tasks: Number of tasks.
        history_tables: Numbers of the tables whose events are also checked one after the other.
        transaction_topic: The topic with which the events of transactions are compared; empty if they are not.
        batches: The batches by which records are counted.
        row_schemas: Avro schemas of rows, by the table's number, as those have them who compare the rows.
        columns: Columns of the tables, by number, as those have them who compare the rows.
        checksum_buckets: Buckets of keys of the tables that are compared by checksums, by number.
        differing: Of the others, which keys are looked at, where a round by checksums was before; all of those that are
            not in it.
        sums_in_sql: Whether the server may add up the checksums of rows; otherwise tasks encode the rows.
    """

    writer: WriterInputs
    tables: tuple[TableId, ...]
    buckets: int
    sample_percent: float
    rows_per_second: int
    tasks: int
    history_tables: frozenset[int] = frozenset()
    columns: Mapping[int, ComparedColumns] = field(default_factory=dict)
    transaction_topic: str = ""
    checksum_buckets: Mapping[int, int] = field(default_factory=dict)
    differing: Mapping[TableId, DifferingKeys] = field(default_factory=dict)
    batches: tuple[KeptBatch, ...] = ()
    row_schemas: Mapping[int, str] = field(default_factory=dict)
    sums_in_sql: bool = True


def run_verify_task(index: int, arguments: StageArguments[VerifyInputs]) -> Iterator[Block]:
    """Run one task of a verification; called in a Spark task of a barrier stage.

    Args:
        index: The task's index, which is its writer's index.
        arguments: What the task was started with.

    Yields:
        Blocks of entries (``entries``), with their buckets.
    """
    inputs = arguments.inputs
    with open_task(index, arguments) as (cfg, channel), named_errors(cfg), connect_views(cfg) as conn:
        view = open_window_view(conn, channel, table_options.decoder_options(cfg).skipped_ops)
        if view is None:
            return
        plan = OPENED.arrive(channel).plan
        with contextlib.closing(kafka_clients.record_writer(cfg, index)) as sink:
            state = write_batch(cfg, index, sink, channel, plan, inputs.writer).state
        COMPARE.arrive(channel)
        if state is None:
            raise StateError(
                "a task does not know the structures at the position of the verification",
                why="an earlier attempt of it had written its part of the batch",
                remedy="run the task again",
                retriable=True,
            )
        tables = compared_tables(cfg, inputs.tables, state.tables, inputs.columns)
        with time_limit(cfg, conn):
            yield from _PartReader(cfg, plan, index, conn, channel, inputs, tables, view.unreadable).run()


def compared_tables(
    cfg: ConnectorConfig,
    names: Sequence[TableId],
    structures: Mapping[TableId, Any],
    columns: Mapping[int, ComparedColumns] = MappingProxyType({}),
) -> dict[TableId, ComparedTable]:
    """Return the tables to compare.

    Args:
        cfg: The connector's configuration.
        names: Their names, in the order of their numbers.
        structures: Structures of all tables; one that is missing was dropped meanwhile.
        columns: Columns of the tables, by number, as those have them who compare the rows; of others, those of the
            structures.
    """
    return {
        name: compared_table(cfg, number, structures[name], columns.get(number))
        for number, name in enumerate(names)
        if name in structures
    }


@dataclass(slots=True)
class _PartReader:
    """Read parts of tables and topics until the driver has none left."""

    cfg: ConnectorConfig
    plan: BatchPlan
    index: int
    conn: Any
    channel: CoordinatorClient
    inputs: VerifyInputs
    tables: dict[TableId, ComparedTable]
    unreadable: Mapping[TableId, str]
    _formats: RecordFormats | None = field(init=False)
    _blocks: EntryBlocks = field(init=False)
    _by_topic: Mapping[str, TopicTables] = field(init=False)
    _entries: dict[int, TableEntries] = field(default_factory=dict)
    _transactions: TransactionEntries = field(init=False)
    _rows: dict[int, RowRecords] = field(default_factory=dict)
    _readers: dict[str, EventReader] = field(default_factory=dict)
    _batches: KeptBatches = field(init=False)
    _record_keys: dict[str, RecordKeys] = field(default_factory=dict)
    _unread: set[TableId] = field(default_factory=set)
    _checksums: TaskChecksums = field(init=False)
    _topic_of: Callable[[TableId], str] = field(init=False)

    def __post_init__(self) -> None:
        self._formats = RecordFormats.from_config(self.cfg, ask_driver(self.channel))
        self._blocks = EntryBlocks(self.inputs.buckets, self.inputs.sample_percent)
        self._checksums = TaskChecksums(
            self.cfg,
            ChecksumBlocks(self.inputs.buckets),
            self._formats,
            self.inputs.checksum_buckets,
            self.inputs.differing,
            self.plan.partitions,
            lambda number: self._entries_of(number).compared,
            sums_in_sql=self.inputs.sums_in_sql,
        )
        self._by_topic = tables_by_topic(self.tables.values())
        self._topic_of = functools.cache(functools.partial(table_topic_name, self.cfg))
        self._batches = KeptBatches(self.inputs.batches)
        numbers = {name: compared.number for name, compared in self.tables.items()}
        lookup_schema = ask_driver_for_texts(self.channel)
        self._transactions = TransactionEntries(self.cfg, self.inputs.transaction_topic, numbers, lookup_schema)

    def run(self) -> Iterator[Block]:
        """Yield the blocks of all parts that this task gets."""
        while True:
            part = self.channel.call(NEXT_PART, EMPTY)
            if part.chunk is not None:
                yield from self._read_rows(part.chunk)
            elif part.records is not None and part.records.topic == self.inputs.transaction_topic:
                yield from self._read_transactions(part.records)
            elif part.records is not None:
                yield from self._read_records(part.records)
            else:
                yield from self._blocks.take_rest()
                yield from self._checksums.blocks.take_rest()
                return

    def _entries_of(self, number: int) -> TableEntries:
        entries = self._entries.get(number)
        if entries is None:
            entries = self._entries[number] = self._new_entries(self.tables[self.inputs.tables[number]])
        return entries

    def _new_entries(self, compared: ComparedTable) -> TableEntries:
        # The place in the binlog tells which event of a key is later where they are in several partitions, and which
        # ones a TRUNCATE deletes.
        truncates = "t" not in table_options.decoder_options(self.cfg).skipped_ops
        several = self.plan.partitions.get(compared.topic, 1) > 1
        name = compared.table.id
        versions = self.channel.call(VERSIONS, TableName(name.db, name.table))
        written = WrittenStructures(self.cfg, compared.table, versions)
        compared, ordered = replace(compared, written=written), truncates or several or written.has_former_keys
        carried = carried_row_schema(self.cfg, compared.table)
        is_known = carried == self.inputs.row_schemas.get(compared.number, "")
        plain = plain_entries(self.cfg, compared, self._formats, ordered=ordered) if is_known else None
        return TableEntries(compared, self._reader(compared.topic), plain)

    def _reader(self, topic: str) -> EventReader:
        reader = self._readers.get(topic)
        if reader is None:
            reader = event_reader(self.cfg, topic, ask_driver_for_texts(self.channel))
            self._readers[topic] = reader
        return reader

    def _read_rows(self, chunk: SnapshotChunk) -> Iterator[Block]:
        """Yield the blocks of rows."""
        compared = self.tables.get(chunk.table)
        if compared is None or chunk.table in self._unread:
            return
        if reason := self._unreadable_reason(compared):
            self._unread.add(chunk.table)
            self.channel.call(TABLE_UNREAD, UnreadTable(chunk.table.db, chunk.table.table, reason))
            return
        checksums = self._checksums.of_table(compared)
        if checksums is not None and (sql := checksums.sums_sql(chunk_condition(chunk))) is not None:
            started = time.monotonic()
            with stored_dates_allowed(self.conn, chunk.kinds):
                self._keep_rate(started, checksums.add_sums(fetch_all(self.conn, sql)))
            yield from self._checksums.blocks.take_full()
            return
        yield from self._encode_rows(chunk, compared, self._row_records(compared))

    def _encode_rows(self, chunk: SnapshotChunk, compared: ComparedTable, records: RowRecords) -> Iterator[Block]:
        chosen, condition = self._checksums.filter_of(compared), chunk_condition(chunk)
        started, rows, total = time.monotonic(), 0, 0
        with stored_dates_allowed(self.conn, chunk.kinds):
            if chosen is not None and chosen.condition:
                counted = f"SELECT COUNT(*) FROM {compared.table.id.quoted()} WHERE {condition}"
                total = int(fetch_all(self.conn, counted)[0][0])
                condition = f"{condition} AND {chosen.condition}"
            sql = rows_sql(compared.table.id, records.columns, condition, ())
            for block in stream_blocks(self.conn, sql, f"verification of {chunk.id}"):
                yield from self._add_rows(compared, records.of_block(block))
                rows += block.rows
                self._keep_rate(started, rows)
        if total > rows:
            self._checksums.blocks.add(SumKind.COUNTED_ROWS, compared.number, number=total - rows)
            self._keep_rate(started, total)
        if not records.errors:
            return
        if (checksums := self._checksums.of_table(compared)) is not None:
            checksums.leave_unjudged()
        else:
            examples = tuple((f"table {chunk.table}", error.message()) for error in records.errors[:MAX_EXAMPLES])
            self.channel.call(RECORDS_UNREADABLE, UnreadableRecords(compared.topic, len(records.errors), examples))
        records.errors.clear()

    def _add_rows(self, compared: ComparedTable, rows: Iterable[WrittenRow]) -> Iterator[Block]:
        if (checksums := self._checksums.of_table(compared)) is not None:
            checksums.add_rows(rows)
            yield from self._checksums.blocks.take_full()
            return
        entries, chosen, skipped = self._entries_of(compared.number), self._checksums.filter_of(compared), 0
        if chosen is not None and not chosen.condition:
            given = list(rows)
            rows = [row for row in given if chosen.has(row[0])]
            skipped = len(given) - len(rows)
        for row in rows if entries.plain is None else entries.plain.add_rows(rows, self._blocks):
            self._blocks.add(entries.of_row(row))
        if skipped:
            self._checksums.blocks.add(SumKind.COUNTED_ROWS, compared.number, number=skipped)
        yield from self._blocks.take_full()

    def _row_records(self, compared: ComparedTable) -> RowRecords:
        records = self._rows.get(compared.number)
        if records is None:
            partitions = self.plan.partitions.get(compared.topic, 1)
            records = RowRecords(self.cfg, compared.table, partitions, self._formats, self.plan.end)
            self._rows[compared.number] = records
        return records

    def _keep_rate(self, started: float, rows: int) -> None:
        """Wait where this task has read more rows than its share of the limit."""
        if limit := self.inputs.rows_per_second / self.inputs.tasks:
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

    def _read_records(self, part: TopicRange) -> Iterator[Block]:
        (number, *others) = self._by_topic[part.topic].tables.values()
        compared = next(each for each in self.tables.values() if each.number == number)
        if not others and (checksums := self._checksums.of_table(compared)) is not None:
            yield from checksums.read_records(part)
        else:
            yield from self._read_events(part, None if others else self._checksums.filter_of(compared))

    def _read_events(self, part: TopicRange, chosen: KeyFilter | None) -> Iterator[Block]:
        reader, unreadable, examples = self._reader(part.topic), 0, list[tuple[str, str]]()
        counter = PartCounter(self._batches, tombstones=self.cfg[F.TOMBSTONES_ON_DELETE])
        for records in self._records_to_read(part, chosen, counter):
            for record in records:
                try:
                    event = reader.read(record.key, record.value, record.headers)
                    counter.add(event, record)
                    self._add_event(part.topic, event, record)
                except UnreadableRecord as error:
                    counter.unreadable += 1
                    if (found := self._keys(part.topic).unreadable(record, str(error))) is not None:
                        self._blocks.add(found)
                    else:
                        unreadable += 1
                        if len(examples) < MAX_EXAMPLES:
                            examples.append((f"{part.topic}[{record.partition}]@{record.offset}", str(error)))
            yield from self._blocks.take_full()
        if self.inputs.batches and counter.first_ms is not None:
            counted = CountedPart(
                part.topic, part.partition, part.start, counter.first_ms, counter.counts, counter.unreadable
            )
            self.channel.call(RECORDS_COUNTED, counted)
        if unreadable:
            self.channel.call(RECORDS_UNREADABLE, UnreadableRecords(part.topic, unreadable, tuple(examples)))

    def _records_to_read(
        self, part: TopicRange, chosen: KeyFilter | None, counter: PartCounter
    ) -> Iterator[list[TopicRecord]]:
        """Yield the records that have to be read, of a part of a topic; add the entries of the plain ones."""
        only = self._only_table(part.topic)
        plain = None if only is None else only.plain
        for messages in read_messages(self.cfg, part.topic, part.partition, (part.start, part.end)):
            if counter.first_ms is None:
                start = to_record(messages[0])
                counter.first_ms = start.timestamp_ms
                self._add_start(part, start)
            looked_at = messages
            if chosen is not None and only is not None:
                looked_at = self._checksums.left_messages(only.compared.number, chosen, messages)
            # An event that is read is what later ones are compared with.
            first = 1 if plain is not None and plain.knows_none else len(looked_at)
            for some in (looked_at[:first], looked_at[first:]):
                left = some if plain is None else plain.add_events(some, part.partition, self._blocks)
                yield [to_record(message) for message in left]

    def _add_start(self, part: TopicRange, record: TopicRecord) -> None:
        numbers = self._by_topic[part.topic].tables.values()
        for started in self._transactions.of_start(numbers, part.start, record):
            self._blocks.add(started)

    def _read_transactions(self, part: TopicRange) -> Iterator[Block]:
        records = read_records(self.cfg, part.topic, {part.partition: (part.start, part.end)})
        for entry in self._transactions.of_topic(part.start, records):
            self._blocks.add(entry)
            yield from self._blocks.take_full()

    def _keys(self, topic: str) -> RecordKeys:
        keys = self._record_keys.get(topic)
        if keys is None:
            compared = [self._entries_of(number).compared for number in self._by_topic[topic].tables.values()]
            keys = self._record_keys[topic] = RecordKeys(compared, self._reader(topic))
        return keys

    def _only_table(self, topic: str) -> TableEntries | None:
        """Return the entries of a topic's only table, whose events need not be read to find their table."""
        numbers = list(self._by_topic[topic].tables.values())
        if len(numbers) != 1 or numbers[0] in self.inputs.history_tables:
            return None
        return self._entries_of(numbers[0])

    def _add_event(self, topic: str, event: EventRecord, record: TopicRecord) -> None:
        number = self._by_topic[topic].number_of(event)
        if is_repair(record.headers) and (number is not None or record.value is None):
            for repaired in self._keys(topic).repaired(record, number):
                self._blocks.add(repaired)
        if number is None:
            self._by_topic[topic].require_own(event, self._topic_of)
            return
        entries = self._entries_of(number)
        for entry in entries.of_event(event, record):
            self._blocks.add(entry)
        if number in self.inputs.history_tables:
            step = history_entry(entries.compared, event, (record.partition, record.offset), record.headers)
            if step is not None:
                self._blocks.add(step)
        for entry in self._transactions.of_event(number, event, record):
            self._blocks.add(entry)
