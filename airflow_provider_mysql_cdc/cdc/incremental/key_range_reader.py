"""One task of a window after the batch: reads key ranges in its view and writes the rows that no event changed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import pymysql

from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import key_columns, selected_columns
from airflow_provider_mysql_cdc.cdc.decode.text_decoder import KeyReader, native_key_reader
from airflow_provider_mysql_cdc.cdc.drain.drain_operations import PROGRESS, WriterReport
from airflow_provider_mysql_cdc.cdc.drain.structure_check import difference_in_view
from airflow_provider_mysql_cdc.cdc.drain.window_keys import WindowKeys, row_key_options
from airflow_provider_mysql_cdc.cdc.errors import SchemaMismatchError, SourceConnectionError, SourceError
from airflow_provider_mysql_cdc.cdc.formats import record_topics, table_options
from airflow_provider_mysql_cdc.cdc.formats.record_formats import RecordFormats
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import done_range_key
from airflow_provider_mysql_cdc.cdc.incremental.scan_bounds import is_transient, range_condition
from airflow_provider_mysql_cdc.cdc.incremental.table_scan import DoneKeyRange, KeyRange
from airflow_provider_mysql_cdc.cdc.incremental.window_operations import (
    NEXT_RANGE,
    RANGE_DONE,
    RANGE_RETURNED,
    RangeDone,
    RangeReadOptions,
    RangeReturned,
)
from airflow_provider_mysql_cdc.cdc.job.coordinator import CoordinatorClient
from airflow_provider_mysql_cdc.cdc.job.task_operation import EMPTY
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, TableId
from airflow_provider_mysql_cdc.cdc.sink.writer import TransactionalWriter
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import chunk_columns, key_kind, override_sql, rows_sql
from airflow_provider_mysql_cdc.cdc.snapshot.range_writer import (
    RangeFaultPoints,
    RangeWriter,
    RowCounts,
    RowRange,
    TableSelect,
    ViewPosition,
    all_rows,
)
from airflow_provider_mysql_cdc.cdc.snapshot.row_emitter import SnapshotRoute, make_snapshot_route
from airflow_provider_mysql_cdc.cdc.snapshot.rows import RowBlock


class RowKeyReader:
    """Read the primary keys of rows, in the format of ``WindowKeys``.

    Args:
        table: The table.
        options: From ``row_key_options``.
        columns: The columns of the SELECT in its order.
    """

    def __init__(self, table: Table, options: DecoderOptions, columns: tuple[Column, ...]) -> None:
        self._read_row_key = KeyReader(table, options, columns)
        self._read_block_keys = native_key_reader(table, options, columns)

    def keys_of(self, block: RowBlock) -> list[bytes]:
        """Return the keys of all rows.

        Args:
            block: The rows.

        Raises:
            ValueDecodeError: A key cannot be read.
        """
        if self._read_block_keys is None or block.large:
            return [self._read_row_key(packet) for packet in block]
        keys, pos = self._read_block_keys(block.data, 0, block.rows)
        while len(keys) < block.rows:
            packet, pos = block.row_at(pos)
            keys.append(self._read_row_key(packet))
            more_keys, pos = self._read_block_keys(block.data, pos, block.rows - len(keys))
            keys += more_keys
        return keys


def untouched_rows(
    blocks: Iterable[RowBlock],
    key_reader: RowKeyReader,
    touched: Set[bytes],
    unwritten: Set[bytes] = frozenset(),
    on_unwritten: Callable[[], None] = lambda: None,
) -> Iterator[RowBlock]:
    """Yield the rows whose keys are in no event.

    Args:
        blocks: The rows.
        key_reader: Reads their keys.
        touched: The keys of events.
        unwritten: The keys of changes of which the stream has no record.
        on_unwritten: Called where a row has one of these.
    """
    for block in blocks:
        row_keys = key_reader.keys_of(block)
        if not unwritten.isdisjoint(row_keys):
            on_unwritten()
        remaining = block if touched.isdisjoint(row_keys) else _without_touched(block, row_keys, touched)
        if remaining.rows:
            yield remaining


def _without_touched(block: RowBlock, keys: Sequence[bytes], touched: Collection[bytes]) -> RowBlock:
    """Return the rows of a block whose keys are not in ``touched``."""
    if block.large:
        return RowBlock(0, b"")
    packets, pos, rows = list[bytes](), 0, 0
    for key in keys:
        _, stop = block.row_at(pos)
        if key not in touched:
            packets.append(block.data[pos:stop])
            rows += 1
        pos = stop
    return RowBlock(rows, b"".join(packets))


UNKNOWN_NAME_ERRORS = (1054, 1146)
"""ER_BAD_FIELD_ERROR, ER_NO_SUCH_TABLE."""
_MENDED = (
    "rows of it cannot be written as its view shows them, and one was changed since then by an event that could not be "
    "written either"
)
FAULT_POINTS = RangeFaultPoints("incremental.stretch_read", "incremental.before_commit", "incremental.after_commit")


class RangeUnreadable(Exception):
    """Raised when a key range cannot be read in this window.

    Args:
        reason: The reason.
        permanent: Whether no later window can read it either.
    """

    def __init__(self, reason: str, *, permanent: bool = False) -> None:
        super().__init__(reason)
        self.permanent = permanent


@dataclass(frozen=True, slots=True)
class CompiledTable:
    """Hold the decoders of one table.

    Args:
        table: The table at the end of the batch.
        columns: The columns that are read: those of the events, and those of the table's own key.
        route: How the rows become records.
        key_reader: Reads the keys of rows; None for a table without a key.
    """

    table: Table
    columns: tuple[Column, ...]
    route: SnapshotRoute
    key_reader: RowKeyReader | None


@dataclass(slots=True)
class KeyRangeReader:
    """Read key ranges until the driver has none left.

    Args:
        cfg: The connector's configuration.
        plan: The window's batch; the stream is at its end.
        index: The task's index.
        conn: The connection that holds the view.
        sink: The transactional producer.
        channel: Calls to the driver.
        state: Table structures at the end of the batch.
        touched: Keys of rows that events have changed since the low watermark.
        run_id: Id of the run, for the context headers.
        last_transaction: Server id and GTID of the batch's last transaction.
        commit_ts: TiCDC's commit timestamp of the last transaction before the end of the batch; None in other formats.
        avro_formats: The formats of records; None when all of them are JSON.
    """

    cfg: ConnectorConfig
    plan: BatchPlan
    index: int
    conn: MySqlConnection
    sink: TransactionalWriter
    channel: CoordinatorClient
    state: SchemaState
    touched: WindowKeys
    run_id: str
    last_transaction: tuple[int, str | None] = (0, None)
    commit_ts: int | None = None
    avro_formats: RecordFormats | None = None
    writer: RangeWriter = field(init=False)
    _compiled_tables: dict[TableId, CompiledTable] = field(default_factory=dict)
    _may_be_mended: bool = False

    def __post_init__(self) -> None:
        headers = table_options.headers(self.cfg, self.run_id)
        self.writer = RangeWriter(
            self.cfg,
            self.plan,
            self.index,
            self.conn,
            self.sink,
            headers,
            FAULT_POINTS,
            self.report_line,
            self.report_line,
        )

    def run(self) -> dict[str, int]:
        """Request key ranges and write them; return records by topic."""
        while (assigned := self.channel.call(NEXT_RANGE, EMPTY).assigned) is not None:
            try:
                done_range = self._write_range(assigned.key_range, assigned.options)
            except RangeUnreadable as error:
                self.channel.call(RANGE_RETURNED, RangeReturned(assigned.key_range, str(error), error.permanent))
            else:
                self.channel.call(RANGE_DONE, RangeDone(done_range))
        return self.writer.counts

    def report_line(self, line: str) -> None:
        """Write a line to the job's log."""
        self.channel.call(PROGRESS, WriterReport(str(self.plan.end), 0, once=line))

    def _write_range(self, key_range: KeyRange, options: RangeReadOptions) -> DoneKeyRange:
        compiled = self._table_of(key_range, options)
        written = self.writer.write(self._row_range(key_range, options, compiled))
        # A topic is counted from its first key range on, even if that has no rows.
        self.writer.counts.setdefault(compiled.route.topic, 0)
        return self._done_range(key_range, written)

    def _row_range(self, key_range: KeyRange, options: RangeReadOptions, compiled: CompiledTable) -> RowRange:
        condition = range_condition(
            key_range.columns, key_range.kinds, key_range.low, key_range.high, options.condition
        )
        override = override_sql(self.cfg, self.conn, compiled.table, compiled.columns) if options.initial else None
        sql = override or rows_sql(key_range.table, compiled.columns, condition, key_range.columns)
        if options.condition is not None:
            # The server ends a slow condition before the client drops the connection, and the view with it.
            limit_ms = self.cfg[F.DATABASE_QUERY_TIMEOUT_MS] * 9 // 10
            sql = sql.replace("SELECT ", f"SELECT /*+ MAX_EXECUTION_TIME({limit_ms}) */ ", 1)
        return RowRange(
            where=f"{options.kind} snapshot of {key_range}",
            select=TableSelect(compiled.table, sql, lambda: compiled.route, self._unchanged_rows(compiled)),
            key_kinds=key_range.kinds,
            position=self.position,
            id_prefix=f"{options.kind}/{self.plan.epoch}/{key_range.scan_number}",
            row_id_prefix=f"{options.kind} snapshot of {key_range.table}, stretch {key_range.number}",
            ledger_record=lambda written: self._ledger_record(key_range, written),
            timeout_error=_timeout_error,
            report_progress=lambda _: None,
            read_errors=lambda: unreadable_range(options.condition),
            edge_marker=_edge_marker(key_range, options),
            marker=options.snapshot_marker(key_range, first=False, last=False),
            stoppable_kind=options.kind,
        )

    def _ledger_record(self, key_range: KeyRange, written: RowCounts) -> tuple[str, dict[str, Any]]:
        """Return the record that the rows of a key range are committed with.

        Raises:
            RangeUnreadable: One of the rows that cannot be written may have been mended since the view.
        """
        if written.unreadable and self._may_be_mended:
            self.sink.abort()
            raise RangeUnreadable(_MENDED)
        return done_range_key(key_range), self._done_range(key_range, written).to_json()

    def _done_range(self, key_range: KeyRange, written: RowCounts) -> DoneKeyRange:
        return DoneKeyRange(key_range, written.written, written.changed, self.position().ts_ms)

    def position(self) -> ViewPosition:
        """Return what the source block of a row says; the ledger keeps the time (``verify`` tells our views by it)."""
        return ViewPosition(self.plan.end, self.plan.created_ms, self.last_transaction, self.commit_ts)

    def _unchanged_rows(self, compiled: CompiledTable) -> Callable[[Iterable[RowBlock]], Iterable[RowBlock]]:
        """Return the filter of rows that an event after the low watermark changed."""
        self._may_be_mended = False
        table, key_reader = compiled.table.id, compiled.key_reader
        touched, unwritten = self.touched.keys_of(table), self.touched.unwritten_keys_of(table)
        if not (touched or unwritten) or key_reader is None:
            return all_rows
        return lambda blocks: untouched_rows(blocks, key_reader, touched, unwritten, self._note_unwritten)

    def _note_unwritten(self) -> None:
        self._may_be_mended = True

    def _table_of(self, key_range: KeyRange, options: RangeReadOptions) -> CompiledTable:
        compiled = self.compiled_table(key_range.table)
        other_key_columns = options.cut_by_key and key_range.columns != chunk_columns(compiled.table)
        if other_key_columns or tuple(key_kind(compiled.table, name) for name in key_range.columns) != key_range.kinds:
            raise RangeUnreadable("its key has changed since the snapshot began")
        return compiled

    def compiled_table(self, table_id: TableId) -> CompiledTable:
        """Return the decoders of a table, at the end of the batch.

        Raises:
            RangeUnreadable: The table cannot be read in this window.
        """
        reason = self.touched.missing_watermark() or self.touched.unreadable.get(table_id)
        if reason is not None:
            raise RangeUnreadable(reason)
        table = self.state.tables.get(table_id)
        if table is None:
            raise RangeUnreadable("the schema history does not contain the table")
        compiled = self._compiled_tables.get(table_id)
        if compiled is None:
            compiled = self._compiled_tables[table_id] = self._compile_table(table)
        return compiled

    def _compile_table(self, table: Table) -> CompiledTable:
        with unreadable_range(condition=None):
            difference = difference_in_view(self.conn, table)
        if difference:
            raise RangeUnreadable(f"its structure differs from the server's: {difference}")
        topic = record_topics.table_topic_name(self.cfg, table.id)
        partitions = self.plan.partitions.get(topic) if self.cfg.chain is None else 1
        if partitions is None:
            raise RangeUnreadable(f"its topic {topic} was created during this batch")
        key_options = row_key_options(table)
        required_columns = {
            *selected_columns(table, table_options.table_options(self.cfg, table)),
            *key_columns(table, key_options),
        }
        columns = tuple(c for c in table.columns if c in required_columns)
        return CompiledTable(
            table,
            columns,
            make_snapshot_route(self.cfg, self.avro_formats, table, partitions, columns),
            RowKeyReader(table, key_options, columns) if key_options.key_columns else None,
        )


def _edge_marker(key_range: KeyRange, options: RangeReadOptions) -> Callable[[bool, bool], str] | None:
    """Return ``RowRange.edge_marker``; None for incremental, where all rows have the same ``source.snapshot``."""
    if options.kind == "incremental":
        return None
    return lambda first, last: options.snapshot_marker(key_range, first=first, last=last)


def _timeout_error(produced: int, rows: int) -> RangeUnreadable:
    """Return the error for a key range whose rows do not fit into one Kafka transaction, now or later."""
    return RangeUnreadable(
        f"{produced:,} of {rows:,} rows took as long as one Kafka transaction may last: lower "
        "incremental.snapshot.chunk.size, or raise transaction.timeout.ms if the table cannot be split by a key",
        permanent=True,
    )


@contextlib.contextmanager
def unreadable_range(condition: str | None) -> Iterator[None]:
    """Replace errors of the source, except a broken connection, by ``RangeUnreadable``.

    Args:
        condition: SQL condition of the rows, or None.

    Raises:
        RangeUnreadable: The source returned an error instead of rows, or of the table's structure.
    """
    try:
        yield
    except SchemaMismatchError as error:
        # The table in the view has the structure of the schema history, so an unknown name is one of the condition. A
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
