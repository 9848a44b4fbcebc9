"""One task of a verification: opens its view, drains to the view's position, then reads parts of tables and topics."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import key_columns, selected_columns
from airflow_provider_mysql_cdc.cdc.drain.batch_run import WriterInputs, write_batch
from airflow_provider_mysql_cdc.cdc.drain.row_keys import row_key_options
from airflow_provider_mysql_cdc.cdc.drain.structure_check import difference_in_view
from airflow_provider_mysql_cdc.cdc.errors import SchemaMismatchError, SourceConnectionError, SourceError, StateError
from airflow_provider_mysql_cdc.cdc.formats import table_options
from airflow_provider_mysql_cdc.cdc.formats.avro_rows import snapshot_source
from airflow_provider_mysql_cdc.cdc.formats.record_formats import RecordFormats
from airflow_provider_mysql_cdc.cdc.incremental.window_operations import OPENED
from airflow_provider_mysql_cdc.cdc.incremental.window_task import open_window_view
from airflow_provider_mysql_cdc.cdc.job.coordinator import CoordinatorClient
from airflow_provider_mysql_cdc.cdc.job.named_errors import named_errors
from airflow_provider_mysql_cdc.cdc.job.schema_ids import ask_driver
from airflow_provider_mysql_cdc.cdc.job.schema_texts import ask_driver_for_texts
from airflow_provider_mysql_cdc.cdc.job.stage_runner import StageArguments, open_task
from airflow_provider_mysql_cdc.cdc.job.task_operation import EMPTY
from airflow_provider_mysql_cdc.cdc.job.task_runner import Block
from airflow_provider_mysql_cdc.cdc.model.records import Headers, RowRecord
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord, read_between
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk, chunk_condition
from airflow_provider_mysql_cdc.cdc.snapshot.key_kinds import stored_dates_allowed
from airflow_provider_mysql_cdc.cdc.snapshot.row_emitter import EmitTarget, RowEmitter, make_snapshot_route
from airflow_provider_mysql_cdc.cdc.snapshot.rows import stream_blocks
from airflow_provider_mysql_cdc.cdc.snapshot.select import rows_sql
from airflow_provider_mysql_cdc.cdc.verify.compared_table import (
    ComparedTable,
    TopicTables,
    compared_table,
    tables_by_topic,
)
from airflow_provider_mysql_cdc.cdc.verify.entries import EntryBlocks
from airflow_provider_mysql_cdc.cdc.verify.event_entries import event_entries, history_entry, row_entry
from airflow_provider_mysql_cdc.cdc.verify.event_readers import event_reader
from airflow_provider_mysql_cdc.cdc.verify.event_record import EventReader, EventRecord, UnreadableRecord
from airflow_provider_mysql_cdc.cdc.verify.verify_operations import (
    COMPARE,
    NEXT_PART,
    RECORDS_UNREADABLE,
    TABLE_UNREAD,
    TopicRange,
    UnreadableRecords,
    UnreadTable,
)

READ_TIMEOUT_S = 120.0
"""Seconds without a record of a topic after which a task fails."""
MAX_UNREADABLE_EXAMPLES = 20
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
    """

    writer: WriterInputs
    tables: tuple[TableId, ...]
    buckets: int
    sample_percent: float
    rows_per_second: int
    tasks: int
    history_tables: frozenset[int] = frozenset()


def run_verify_task(index: int, arguments: StageArguments[VerifyInputs]) -> Iterator[Block]:
    """Run one task of a verification; called in a Spark task of a barrier stage.

    Args:
        index: The task's index, which is its writer's index.
        arguments: What the task was started with.

    Yields:
        Blocks of entries (``entries``), with their buckets.
    """
    inputs = arguments.inputs
    with open_task(index, arguments) as (cfg, channel), named_errors(cfg), connect(cfg.connection_settings()) as conn:
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
        tables = compared_tables(cfg, inputs.tables, state.tables)
        yield from _PartReader(cfg, plan, index, conn, channel, inputs, tables, view.unreadable).run()


def compared_tables(
    cfg: ConnectorConfig, names: Sequence[TableId], structures: Mapping[TableId, Any]
) -> dict[TableId, ComparedTable]:
    """Return the tables to compare.

    Args:
        cfg: The connector's configuration.
        names: Their names, in the order of their numbers.
        structures: Structures of all tables; one that is missing was dropped meanwhile.
    """
    return {
        name: compared_table(cfg, number, structures[name]) for number, name in enumerate(names) if name in structures
    }


class _RecordCollector:
    """Take the place of a producer, and keep the records."""

    def __init__(self) -> None:
        self.records: list[tuple[bytes | None, bytes | None, int, Headers]] = []

    def produce(
        self, topic: str, key: bytes | None, value: bytes | None, partition: int, headers: Headers = ()
    ) -> None:
        """Keep a record."""
        self.records.append((key, value, partition, headers))

    def produce_all(self, topic: str, records: Sequence[RowRecord], headers: Headers, partition: int = 0) -> None:
        """Keep records."""
        self.records += [(key, value, partition, headers) for key, value, *_ in records]


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
    _blocks: EntryBlocks = field(init=False)
    _by_topic: Mapping[str, TopicTables] = field(init=False)
    _by_number: Mapping[int, ComparedTable] = field(init=False)
    _readers: dict[str, EventReader] = field(default_factory=dict)
    _unread: set[TableId] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._blocks = EntryBlocks(self.inputs.buckets, self.inputs.sample_percent)
        self._by_topic = tables_by_topic(self.tables.values())
        self._by_number = {compared.number: compared for compared in self.tables.values()}

    def run(self) -> Iterator[Block]:
        """Yield the blocks of all parts that this task gets."""
        formats = RecordFormats.from_config(self.cfg, ask_driver(self.channel))
        while True:
            part = self.channel.call(NEXT_PART, EMPTY)
            if part.chunk is not None:
                yield from self._read_rows(part.chunk, formats)
            elif part.records is not None:
                yield from self._read_records(part.records)
            else:
                yield from self._blocks.take_rest()
                return

    def _reader(self, topic: str) -> EventReader:
        reader = self._readers.get(topic)
        if reader is None:
            reader = event_reader(self.cfg, topic, ask_driver_for_texts(self.channel))
            self._readers[topic] = reader
        return reader

    def _read_rows(self, chunk: SnapshotChunk, formats: RecordFormats | None) -> Iterator[Block]:
        compared = self.tables.get(chunk.table)
        if compared is None or chunk.table in self._unread:
            return
        if reason := self._unreadable_reason(compared):
            self._unread.add(chunk.table)
            self.channel.call(TABLE_UNREAD, UnreadTable(chunk.table.db, chunk.table.table, reason))
            return
        reader, collector = self._reader(compared.topic), _RecordCollector()
        emitter, sql = self._emitter(compared, chunk, formats, collector)
        where, started, rows = f"verification of {chunk.id}", time.monotonic(), 0
        with stored_dates_allowed(self.conn, chunk.kinds):
            for block in stream_blocks(self.conn, sql, where):
                emitter.emit_block(block, 0, {})
                for key, value, partition, headers in collector.records:
                    self._blocks.add(row_entry(compared, reader.read(key, value, headers), partition))
                collector.records.clear()
                yield from self._blocks.take_full()
                rows += block.rows
                self._keep_rate(started, rows)

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
            if isinstance(error, SourceConnectionError):
                raise
            return error.why
        return f"its structure differs from the server's: {difference}" if difference else ""

    def _emitter(
        self, compared: ComparedTable, chunk: SnapshotChunk, formats: RecordFormats | None, sink: Any
    ) -> tuple[RowEmitter, str]:
        cfg, table = self.cfg, compared.table
        required = {
            *selected_columns(table, table_options.table_options(cfg, table)),
            *key_columns(table, row_key_options(table)),
        }
        columns = tuple(column for column in table.columns if column in required)
        partitions = self.plan.partitions.get(compared.topic, 1)
        route = make_snapshot_route(cfg, formats, table, partitions, columns)
        rows = route.text_rows
        source_texts = snapshot_source(cfg, table.id, writes_avro=rows.writes_avro)

        def fill(context: Any, marker: str) -> None:
            source_texts.fill(context, self.plan.end, time.time_ns() // 1_000_000, marker, (0, None))
            if cfg.is_ticdc:
                context.transaction = "0"

        emitter = RowEmitter(
            cfg=cfg,
            table=table,
            decode=rows.decode,
            partial_rows=route.partial_rows,
            fill=fill,
            source_texts=source_texts,
            where=f"verification of {chunk.id}",
            target=EmitTarget(sink, route.topic, partitions, [], self.index, rows.record_format, rows.id_headers),
            counts={},
            id_prefix="",
            row_id_prefix="",
        )
        return emitter, rows_sql(table.id, columns, chunk_condition(chunk), ())

    def _read_records(self, part: TopicRange) -> Iterator[Block]:
        reader, tables = self._reader(part.topic), self._by_topic[part.topic]
        unreadable, examples = 0, list[tuple[str, str]]()
        bounds = {part.partition: (part.start, part.end)}
        for record in read_between(self.cfg.kafka_settings(), part.topic, bounds, timeout_s=READ_TIMEOUT_S):
            try:
                self._add_event(tables, reader.read(record.key, record.value, record.headers), record)
            except UnreadableRecord as error:
                unreadable += 1
                if len(examples) < MAX_UNREADABLE_EXAMPLES:
                    examples.append((f"{part.topic}[{record.partition}]@{record.offset}", str(error)))
            yield from self._blocks.take_full()
        if unreadable:
            self.channel.call(RECORDS_UNREADABLE, UnreadableRecords(part.topic, unreadable, tuple(examples)))

    def _add_event(self, tables: TopicTables, event: EventRecord, record: TopicRecord) -> None:
        number = tables.number_of(event)
        if number is None:
            return
        compared = self._by_number[number]
        for entry in event_entries(compared, event, record.partition, record.offset):
            self._blocks.add(entry)
        if number in self.inputs.history_tables:
            step = history_entry(compared, event, (record.partition, record.offset), record.headers)
            if step is not None:
                self._blocks.add(step)
