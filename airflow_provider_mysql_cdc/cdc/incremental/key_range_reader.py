"""One task of a round when the stream stands at the batch's end: reads stretches in its view and writes their rows."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pymysql

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.decode.codegen.event_context import EventContext
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import key_columns, selected_columns
from airflow_provider_mysql_cdc.cdc.drain.drain_operations import PROGRESS, WriterReport
from airflow_provider_mysql_cdc.cdc.drain.window_keys import WindowKeys, row_key_options
from airflow_provider_mysql_cdc.cdc.errors import (
    RecordTooLargeError,
    SchemaMismatchError,
    SourceConnectionError,
    SourceError,
)
from airflow_provider_mysql_cdc.cdc.formats import table_options, topic_routing
from airflow_provider_mysql_cdc.cdc.formats.avro_format import RecordFormats
from airflow_provider_mysql_cdc.cdc.formats.avro_rows import TextRows, create_text_rows, snapshot_source
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import done_range_key
from airflow_provider_mysql_cdc.cdc.incremental.key_range_queue import is_transient, range_condition
from airflow_provider_mysql_cdc.cdc.incremental.table_scan import DoneKeyRange, KeyRange
from airflow_provider_mysql_cdc.cdc.incremental.window_filter import RowKeyReader, untouched_rows, with_last
from airflow_provider_mysql_cdc.cdc.incremental.window_operations import (
    NEXT_RANGE,
    RANGE_DONE,
    RANGE_RETURNED,
    RangeDone,
    RangeReadOptions,
    RangeReturned,
)
from airflow_provider_mysql_cdc.cdc.job.batch_size_retry import reduce_and_rejoin
from airflow_provider_mysql_cdc.cdc.job.coordinator import CoordinatorClient
from airflow_provider_mysql_cdc.cdc.job.job_ledger import ledger_record
from airflow_provider_mysql_cdc.cdc.job.task_operation import EMPTY
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, TableId
from airflow_provider_mysql_cdc.cdc.sink.writer import TransactionalWriter
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import chunk_columns, key_kind
from airflow_provider_mysql_cdc.cdc.snapshot.key_kinds import stored_dates_allowed
from airflow_provider_mysql_cdc.cdc.snapshot.row_emitter import EmitTarget, RowEmitter, out_of_time
from airflow_provider_mysql_cdc.cdc.snapshot.row_spool import RowSpool
from airflow_provider_mysql_cdc.cdc.snapshot.rows import RowBlock, stream_blocks
from airflow_provider_mysql_cdc.cdc.snapshot.select import rows_sql

UNKNOWN_NAME_ERRORS = (1054, 1146)
"""ER_BAD_FIELD_ERROR, ER_NO_SUCH_TABLE."""


class RangeUnreadable(Exception):
    """Say why a stretch cannot be read in this round.

    Args:
        reason: The reason.
        permanent: Whether no later round can read it either.
    """

    def __init__(self, reason: str, *, permanent: bool = False) -> None:
        super().__init__(reason)
        self.permanent = permanent


@dataclass(frozen=True, slots=True)
class _CompiledTable:
    """Hold what reading one table takes.

    Args:
        table: The table as of the batch's end.
        columns: The columns that are read: those of the events, and those of the table's own key.
        text_rows: Makes the records.
        key_reader: Reads rows' own keys; None for a table without a key.
        partitions: Partitions of its topic.
        topic: Its topic.
    """

    table: Table
    columns: tuple[Column, ...]
    text_rows: TextRows
    key_reader: RowKeyReader | None
    partitions: int
    topic: str


@dataclass(slots=True)
class KeyRangeReader:
    """Read stretches until the driver has none left.

    Args:
        cfg: The connector's configuration.
        plan: The round's batch; the stream stands at its end.
        index: The task's index.
        conn: The connection that holds the view.
        sink: The transactional producer.
        channel: Calls to the driver.
        state: Table structures at the batch's end.
        touched: Which rows the view is not believed for.
        run_id: Id of the run, for the context headers.
        last_transaction: Server id and GTID of the batch's last transaction.
        counts: Records by topic, which goes on changing.
        avro_formats: The forms of records; None when all is JSON.
    """

    cfg: ConnectorConfig
    plan: BatchPlan
    index: int
    conn: Any
    sink: TransactionalWriter
    channel: CoordinatorClient
    state: SchemaState
    touched: WindowKeys
    run_id: str
    last_transaction: tuple[int, str | None] = (0, None)
    counts: dict[str, int] = field(default_factory=dict)
    avro_formats: RecordFormats | None = None
    _compiled_tables: dict[TableId, _CompiledTable] = field(default_factory=dict)

    def run(self) -> dict[str, int]:
        """Ask for stretches and read them; return records by topic."""
        while (assigned := self.channel.call(NEXT_RANGE, EMPTY).assigned) is not None:
            try:
                done_range = self._write_range(assigned.key_range, assigned.options)
            except RangeUnreadable as error:
                self.channel.call(RANGE_RETURNED, RangeReturned(assigned.key_range, str(error), error.permanent))
            else:
                self.channel.call(RANGE_DONE, RangeDone(done_range))
        return self.counts

    def _write_range(self, key_range: KeyRange, options: RangeReadOptions) -> DoneKeyRange:
        """Write one stretch, and again with smaller batches where its topic takes none as large."""
        while True:
            try:
                return self._write_once(key_range, options)
            except RecordTooLargeError as error:
                message = reduce_and_rejoin(self.cfg, self.plan, self.sink, self.index, error)
                self.channel.call(PROGRESS, WriterReport(str(self.plan.end), 0, once=message))

    def _write_once(self, key_range: KeyRange, options: RangeReadOptions) -> DoneKeyRange:
        """Read a stretch in full, then write its rows and the record that says so in one Kafka transaction."""
        where = f"{options.kind} snapshot of {key_range}"
        compiled = self._compiled_table(key_range, options)
        with RowSpool(where) as spool:
            self._fill_spool(spool, key_range, compiled, options.condition, where)
            faults.fault_point("incremental.stretch_read", self.index)
            emitted_rows = 0
            emitter = self._emitter(compiled, where, key_range, options)
            for block, is_last in with_last(self._untouched_blocks(spool, compiled)):
                if emitted_rows:
                    self._require_time(emitted_rows, spool.rows)
                emitter.emit_block(
                    block, emitted_rows, edge_markers(key_range, options, emitted_rows + block.rows if is_last else 0)
                )
                emitted_rows += block.rows
            left_out = spool.rows - emitted_rows
        written_rows = emitted_rows - emitter.left_out
        done_range = DoneKeyRange(key_range, written_rows, left_out)
        topic, key, value = ledger_record(self.cfg, done_range_key(key_range), done_range.to_json())
        self.sink.produce(topic, key, value, 0)
        faults.fault_point("incremental.before_commit", self.index)
        self.sink.commit()
        faults.fault_point("incremental.after_commit", self.index)
        self.counts[compiled.topic] = self.counts.get(compiled.topic, 0) + written_rows
        return done_range

    def _require_time(self, emitted_rows: int, total_rows: int) -> None:
        """Give a stretch up while its transaction can be ended in good order; a later round would come no further.

        Raises:
            NotNow: Its rows cannot be written within one Kafka transaction.
        """
        if out_of_time(self.cfg, self.sink):
            self.sink.abort()
            raise RangeUnreadable(
                f"{emitted_rows:,} of {total_rows:,} rows took as long as one Kafka transaction may last: lower "
                "incremental.snapshot.chunk.size, or raise transaction.timeout.ms where the table cannot be cut",
                permanent=True,
            )

    def _fill_spool(
        self, spool: RowSpool, key_range: KeyRange, compiled: _CompiledTable, condition: str | None, where: str
    ) -> None:
        where_sql = range_condition(key_range.columns, key_range.kinds, key_range.low, key_range.high, condition)
        sql = rows_sql(key_range.table, compiled.columns, where_sql, key_range.columns)
        try:
            with stored_dates_allowed(self.conn, key_range.kinds):
                spool.fill(stream_blocks(self.conn, sql, where), lambda _: None)
        except SchemaMismatchError as error:
            # The view holds the table as the stream knows it, so a name that is missing is one of the condition. A
            # table that was rebuilt between the view and its lock (error 1412) can be read in the next view.
            unknown_name = (
                isinstance(error.__cause__, pymysql.MySQLError) and error.__cause__.args[0] in UNKNOWN_NAME_ERRORS
            )
            raise RangeUnreadable(error.why, permanent=unknown_name and condition is not None) from error
        except SourceError as error:
            transient = is_transient(error.__cause__)
            if isinstance(error, SourceConnectionError) and not transient:
                raise
            raise RangeUnreadable(error.message(), permanent=not transient) from error

    def _untouched_blocks(self, spool: RowSpool, compiled: _CompiledTable) -> Iterable[RowBlock]:
        """Return the rows that no event behind the low watermark touched."""
        touched = self.touched.keys.get(compiled.table.id)
        if not touched or compiled.key_reader is None:
            return spool.blocks()
        return untouched_rows(spool.blocks(), compiled.key_reader, touched)

    def _compiled_table(self, key_range: KeyRange, options: RangeReadOptions) -> _CompiledTable:
        """Return what reading a table takes.

        Raises:
            NotNow: It cannot be read in this round.
        """
        table_id = key_range.table
        reason = self.touched.missing_watermark() or self.touched.unreadable.get(table_id)
        if reason is not None:
            raise RangeUnreadable(reason)
        table = self.state.tables.get(table_id)
        if table is None:
            raise RangeUnreadable("the stream does not know the table")
        other_key_columns = options.cut_by_key and key_range.columns != chunk_columns(table)
        if other_key_columns or tuple(key_kind(table, name) for name in key_range.columns) != key_range.kinds:
            raise RangeUnreadable("its key is another one than when the snapshot began")
        compiled = self._compiled_tables.get(table_id)
        if compiled is None:
            compiled = self._compiled_tables[table_id] = self._compile_table(table)
        return compiled

    def _compile_table(self, table: Table) -> _CompiledTable:
        topic = topic_routing.table_topic_name(self.cfg, table.id)
        partitions = self.plan.partitions.get(topic)
        if partitions is None:
            raise RangeUnreadable(f"its topic {topic} was made within this batch")
        options = table_options.table_options(self.cfg, table)
        key_options = row_key_options(table)
        required_columns = {
            *selected_columns(table, options),
            *key_columns(table, key_options),
        }
        columns = tuple(c for c in table.columns if c in required_columns)
        avro_format = None if self.avro_formats is None else self.avro_formats.table_format(table, options, topic)
        return _CompiledTable(
            table,
            columns,
            create_text_rows(self.cfg, avro_format, table, options, columns),
            RowKeyReader(table, key_options, columns) if key_options.key_columns else None,
            partitions,
            topic,
        )

    def _emitter(
        self, compiled: _CompiledTable, where: str, key_range: KeyRange, options: RangeReadOptions
    ) -> RowEmitter:
        rows = compiled.text_rows
        source_texts = snapshot_source(self.cfg, compiled.table.id, writes_avro=rows.writes_avro)
        end, last, now_ms = self.plan.end, self.last_transaction, time.time_ns() // 1_000_000

        def fill(context: EventContext, marker: str) -> None:
            source_texts.fill(context, end, now_ms, marker, last)

        return RowEmitter(
            cfg=self.cfg,
            table=compiled.table,
            decode=rows.decode,
            fill=fill,
            source_texts=source_texts,
            where=where,
            target=EmitTarget(
                self.sink,
                compiled.topic,
                compiled.partitions,
                table_options.headers(self.cfg, self.run_id),
                self.index,
                rows.record_format,
                rows.id_headers,
            ),
            counts=self.counts,
            id_prefix=f"{options.kind}/{self.plan.epoch}/{key_range.scan}",
            marker=options.snapshot_marker(key_range, first=False, last=False),
        )


def edge_markers(key_range: KeyRange, options: RangeReadOptions, row_count: int) -> dict[int, str]:
    """Return ``source_block.snapshot`` of the first row and of the last one by their numbers, where they are told
    apart.

    Args:
        key_range: The stretch.
        options: What the driver asks of it.
        row_count: Number of its rows; 0 where the last one is still to come.
    """
    if options.kind == "incremental":
        return {}
    edge_rows = {1, row_count} if row_count else {1}
    return {
        number: options.snapshot_marker(key_range, first=number == 1, last=number == row_count) for number in edge_rows
    }
