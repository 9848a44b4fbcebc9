"""Write the rows of a key range to Kafka, in one transaction with the ledger record that says the range is done.

Chunks of a snapshot and key ranges of an ad-hoc snapshot are written in the same way. All rows are read before the
first record is produced (``rows``), so a Kafka transaction does not wait for the source. Where a topic refuses
batches of the current size, the range is read and written again with smaller batches.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import (
    NULLED_SUFFIX,
    EventContext,
    NulledValue,
    nulled_warning,
)
from airflow_provider_mysql_cdc.cdc.errors import CdcError, RecordTooLargeError, ValueDecodeError
from airflow_provider_mysql_cdc.cdc.formats import record_topics
from airflow_provider_mysql_cdc.cdc.formats.avro_rows import snapshot_source
from airflow_provider_mysql_cdc.cdc.formats.chain_writer import output_counter
from airflow_provider_mysql_cdc.cdc.job.batch_size_retry import reduce_and_rejoin
from airflow_provider_mysql_cdc.cdc.job.job_ledger import ledger_record
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.records import Header, Headers
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId
from airflow_provider_mysql_cdc.cdc.sink.writer import TransactionalWriter
from airflow_provider_mysql_cdc.cdc.snapshot.key_kinds import stored_dates_allowed
from airflow_provider_mysql_cdc.cdc.snapshot.row_emitter import (
    DEFAULT_MARKER,
    EmitTarget,
    RowEmitter,
    SnapshotRoute,
    out_of_time,
)
from airflow_provider_mysql_cdc.cdc.snapshot.rows import RowBlock, RowSpool, stream_blocks, unwritable_row, with_last

PROGRESS_ROWS = 10_000  # SNAP-56


@dataclass(frozen=True, slots=True)
class ViewPosition:
    """Say where the source block of a row says that it comes from.

    Args:
        offset: The binlog position of the view in which the row was read.
        ts_ms: Time in milliseconds since 1970.
        last_transaction: Server id and GTID of the transaction before that position; 0 and None where the source block
            names none.
        commit_ts: TiCDC's commit timestamp of the rows; None in other formats.
    """

    offset: BinlogOffset
    ts_ms: int
    last_transaction: tuple[int, str | None] = (0, None)
    commit_ts: int | None = None


@dataclass(frozen=True, slots=True)
class RowCounts:
    """Count the rows of one key range.

    Args:
        written: Rows written.
        unreadable: Rows left out because a value could not be read.
        changed: Rows left out because an event of the stream changed them.
        nulled: Values that are null in their records because no type of the contract can hold them.
        topics: What a chain of transforms has made of them, by topic; None without a chain.
    """

    written: int = 0
    unreadable: int = 0
    changed: int = 0
    nulled: int = 0
    topics: Mapping[str, int] | None = None

    @property
    def read(self) -> int:
        """Return the number of rows that were read."""
        return self.written + self.unreadable + self.changed


def all_rows(blocks: Iterable[RowBlock]) -> Iterable[RowBlock]:
    """Return the rows unchanged."""
    return blocks


class KeyedRecord(NamedTuple):
    """Hold a record that is made of the topic's records and not of a row: a delete or a tombstone."""

    key: bytes | None
    value: bytes | None
    partition: int
    headers: Headers


@dataclass(frozen=True, slots=True)
class TableSelect:
    """Describe which rows of a table belong to a key range.

    Args:
        table: The table.
        sql: The SELECT of its rows.
        make_route: Returns what makes records of the rows. It is called only if there are rows, as many of thousands
            of tables may be empty.
        unchanged_rows: Leaves out rows that an event of the stream changed.
        listed_rows: Leaves out rows of the SELECT, as they are read, that are not to be written.
    """

    table: Table
    sql: str
    make_route: Callable[[], SnapshotRoute]
    unchanged_rows: Callable[[Iterable[RowBlock]], Iterable[RowBlock]] = all_rows
    listed_rows: Callable[[Iterable[RowBlock]], Iterable[RowBlock]] = all_rows


@dataclass(frozen=True, slots=True)
class RowRange:
    """Describe one key range to be written.

    Args:
        where: Its name in errors.
        select: The rows to read.
        key_kinds: Kinds of the columns that bound it (``key_kinds``).
        position: Returns what the source block says; called after the rows were read.
        id_prefix: Distinguishes this read of the table from others in the header cdc-id.
        row_id_prefix: Distinguishes, together with the row's number, rows without a unique key in the header cdc-id.
        ledger_record: Returns key and value of the ledger record, from the rows that were written; None where nothing
            was to be written.
        timeout_error: Returns the error for rows that do not fit into one Kafka transaction, from the number of rows
            produced and the number of rows read.
        report_progress: Called with the number of rows read, every ``PROGRESS_ROWS`` rows.
        read_errors: Returns what surrounds the reading, to replace its errors.
        edge_marker: ``source.snapshot`` of the first and the last row, from whether a row is the first and whether it
            is the last; None where these have the same as the others.
        marker: ``source.snapshot`` of the other rows.
        stoppable_kind: The kind of the ad-hoc snapshot, for the error of a row that cannot be written; empty for a
            snapshot that is no ad-hoc one.
        headers: Headers of the rows, beside those of every record.
        first_records: Returns the records that are written before the rows, after these were read.
    """

    where: str
    select: TableSelect
    key_kinds: tuple[str, ...]
    position: Callable[[], ViewPosition]
    id_prefix: str
    row_id_prefix: str
    ledger_record: Callable[[RowCounts], tuple[str, dict[str, Any]] | None]
    timeout_error: Callable[[int, int], Exception]
    report_progress: Callable[[int], object]
    read_errors: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext
    edge_marker: Callable[[bool, bool], str] | None = None
    marker: str = DEFAULT_MARKER
    stoppable_kind: str = ""
    headers: Sequence[Header] = ()
    first_records: Callable[[], Iterable[KeyedRecord]] = tuple

    def edge_markers(self, row_count: int) -> dict[int, str]:
        """Return ``source.snapshot`` of the first and the last row by their numbers, from 1.

        Args:
            row_count: Number of rows of the table; 0 where the last row is not known yet.
        """
        if self.edge_marker is None:
            return {}
        return {number: self.edge_marker(number == 1, number == row_count) for number in {1, row_count or 1}}


@dataclass(frozen=True, slots=True)
class RangeFaultPoints:
    """Name the fault points of a key range.

    Args:
        after_read: All rows are read, none is produced.
        before_commit: Rows and ledger record are produced, the commit has not begun.
        after_commit: The transaction is committed.
    """

    after_read: str
    before_commit: str
    after_commit: str


def create_emitter(
    cfg: ConnectorConfig,
    table: Table,
    route: SnapshotRoute,
    position: ViewPosition,
    target: EmitTarget,
    counts: dict[str, int],
    *,
    where: str,
    id_prefix: str,
    row_id_prefix: str,
    marker: str,
) -> RowEmitter:
    """Return what produces the rows of one table.

    Args:
        cfg: The connector's configuration.
        table: The table.
        route: How its rows become records.
        position: What the source block says.
        target: Where the records are produced.
        counts: Records by topic; dead letters are added.
        where: The rows, for error messages.
        id_prefix: See ``RowRange``.
        row_id_prefix: See ``RowRange``.
        marker: See ``RowRange``.
    """
    rows = route.text_rows
    source_texts = rows.unwrapped or snapshot_source(cfg, table.id, writes_avro=rows.writes_avro)

    def fill(context: EventContext, row_marker: str) -> None:
        source_texts.fill(context, position.offset, position.ts_ms, row_marker, position.last_transaction)
        if position.commit_ts is not None:
            context.transaction = str(position.commit_ts)

    return RowEmitter(
        cfg=cfg,
        table=table,
        decode=route.text_rows.decode,
        partial_rows=route.partial_rows,
        fill=fill,
        source_texts=source_texts,
        where=where,
        target=target,
        counts=counts,
        id_prefix=id_prefix,
        row_id_prefix=row_id_prefix,
        marker=marker,
    )


class _ProgressReporter:
    """Report progress every ``PROGRESS_ROWS`` rows."""

    def __init__(self, report: Callable[[int], object]) -> None:
        self._report, self._next_report = report, PROGRESS_ROWS

    def __call__(self, rows: int) -> None:
        if rows >= self._next_report:
            self._next_report = rows - rows % PROGRESS_ROWS + PROGRESS_ROWS
            self._report(rows)


@dataclass(slots=True)
class RangeWriter:
    """Write key ranges, each in one Kafka transaction.

    Args:
        cfg: The connector's configuration.
        plan: The plan that the writer has joined.
        index: The writer's index.
        conn: The connection that holds the view.
        sink: The transactional producer.
        headers: Headers of every record.
        fault_points: Fault points that each range passes.
        report_retry: Called with a line of text when a range is written again with smaller batches.
        report_line: Called with other lines of text.
        counts: Records by topic, of committed ranges.
    """

    cfg: ConnectorConfig
    plan: BatchPlan
    index: int
    conn: MySqlConnection
    sink: TransactionalWriter
    headers: list[tuple[str, bytes]]
    fault_points: RangeFaultPoints
    report_retry: Callable[[str], object]
    report_line: Callable[[str], object]
    counts: dict[str, int] = field(default_factory=dict)
    _nulled_columns: set[tuple[TableId, str]] = field(default_factory=set)

    def write(self, row_range: RowRange) -> RowCounts:
        """Write one range and commit it; return its rows.

        Args:
            row_range: The range.

        Raises:
            CdcError: The rows cannot be read, decoded or written; nothing of the range is visible.
            Exception: What ``row_range.timeout_error`` returns: the rows do not fit into one Kafka transaction.
        """
        while True:
            counts: dict[str, int] = {}
            try:
                written = self._with_outputs(row_range, self.write_rows(row_range, counts), counts)
                self._commit(row_range, written)
            except RecordTooLargeError as error:
                try:
                    note = reduce_and_rejoin(self.cfg, self.plan, self.sink, self.index, error)
                except RecordTooLargeError as final:
                    raise self._row_error(row_range, final) from final
                self.report_retry(note)
            except ValueDecodeError as error:
                raise self._row_error(row_range, error) from error
            else:
                for name, count in counts.items():
                    self.counts[name] = self.counts.get(name, 0) + count
                return written

    def _with_outputs(self, row_range: RowRange, written: RowCounts, counts: dict[str, int]) -> RowCounts:
        """Return a range's rows with the records that a chain of transforms has made of them, and count these."""
        take_outputs = output_counter(self.sink)
        if take_outputs is None:
            return written
        counts.pop(record_topics.table_topic_name(self.cfg, row_range.select.table.id), None)
        topics = take_outputs()
        counts |= topics
        return replace(written, topics=topics)

    def _row_error(self, row_range: RowRange, error: CdcError) -> CdcError:
        return unwritable_row(error, row_range.select.table.id, row_range.where, row_range.stoppable_kind)

    def write_rows(self, row_range: RowRange, counts: dict[str, int]) -> RowCounts:
        """Read all rows of a range, then produce them; return their numbers.

        Args:
            row_range: The range.
            counts: Records by topic; those of the range are added.
        """
        with RowSpool(row_range.where) as spool:
            with row_range.read_errors(), stored_dates_allowed(self.conn, row_range.key_kinds):
                blocks = stream_blocks(self.conn, row_range.select.sql, row_range.where)
                spool.fill(row_range.select.listed_rows(blocks), _ProgressReporter(row_range.report_progress))
            faults.fault_point(self.fault_points.after_read, self.index)
            self._produce_first(row_range, counts)
            return self._produce(spool, row_range, counts)

    def _produce_first(self, row_range: RowRange, counts: dict[str, int]) -> None:
        for record in row_range.first_records():
            topic = row_range.select.make_route().topic
            self.sink.produce(topic, *record)
            counts[topic] = counts.get(topic, 0) + 1

    def _produce(self, spool: RowSpool, row_range: RowRange, counts: dict[str, int]) -> RowCounts:
        if not spool.rows:
            return RowCounts()
        emitter, produced = self._emitter(row_range, counts), 0
        for block, is_last in with_last(row_range.select.unchanged_rows(spool.blocks())):
            self._require_time(row_range, produced, spool.rows)
            emitter.emit_block(block, produced, row_range.edge_markers(produced + block.rows if is_last else 0))
            produced += block.rows
        written = produced - emitter.left_out
        counts[emitter.topic] = counts.get(emitter.topic, 0) + written
        if emitter.nulled:
            self._report_nulled(row_range, emitter.nulled)
            counts[emitter.topic + NULLED_SUFFIX] = len(emitter.nulled)
        return RowCounts(written, emitter.left_out, spool.rows - produced, len(emitter.nulled))

    def _report_nulled(self, row_range: RowRange, values: Sequence[NulledValue]) -> None:
        """Report the first value of each column that is null in its record although the row has another one."""
        table = row_range.select.table.id
        for value in values:
            if (table, value.column) not in self._nulled_columns:
                self._nulled_columns.add((table, value.column))
                self.report_line(nulled_warning(table, value, row_range.where))

    def _emitter(self, row_range: RowRange, counts: dict[str, int]) -> RowEmitter:
        route = row_range.select.make_route()
        rows = route.text_rows
        return create_emitter(
            self.cfg,
            row_range.select.table,
            route,
            row_range.position(),
            EmitTarget(
                self.sink,
                route.topic,
                route.partitions,
                [*self.headers, *row_range.headers],
                self.index,
                rows.record_format,
                rows.id_headers,
            ),
            counts,
            where=row_range.where,
            id_prefix=row_range.id_prefix,
            row_id_prefix=row_range.row_id_prefix,
            marker=row_range.marker,
        )

    def _require_time(self, row_range: RowRange, produced: int, total: int) -> None:
        """Abort the transaction before the broker does so, which would fence this writer; a retry would take as long.

        Raises:
            Exception: What ``row_range.timeout_error`` returns.
        """
        if out_of_time(self.cfg, self.sink):
            self.sink.abort()
            raise row_range.timeout_error(produced, total)

    def _commit(self, row_range: RowRange, written: RowCounts) -> None:
        state = row_range.ledger_record(written)
        if state is None:
            return
        record = ledger_record(self.cfg, *state)
        self.sink.produce(record.topic, record.key, record.value, 0)
        faults.fault_point(self.fault_points.before_commit, self.index)
        self.sink.commit()
        faults.fault_point(self.fault_points.after_commit, self.index)
