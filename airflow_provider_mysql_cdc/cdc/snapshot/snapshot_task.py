"""One task of a snapshot: joins the consistent view, then reads chunk after chunk and produces straight to Kafka."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import CHUNK_PREFIX
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.commit.takeover import join_plan
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import Tally, kernel
from airflow_provider_mysql_cdc.cdc.emit.source_block import snapshot_marker
from airflow_provider_mysql_cdc.cdc.errors import RecordTooLargeError, SinkError
from airflow_provider_mysql_cdc.cdc.formats import table_options, topic_routing
from airflow_provider_mysql_cdc.cdc.formats.avro_format import RecordFormats
from airflow_provider_mysql_cdc.cdc.formats.avro_rows import TextRows, create_text_rows, snapshot_source
from airflow_provider_mysql_cdc.cdc.job.batch_size_retry import reduce_and_rejoin
from airflow_provider_mysql_cdc.cdc.job.coordinator import CoordinatorClient
from airflow_provider_mysql_cdc.cdc.job.job_ledger import ledger_record
from airflow_provider_mysql_cdc.cdc.job.named_errors import named_errors
from airflow_provider_mysql_cdc.cdc.job.schema_ids import ask_driver
from airflow_provider_mysql_cdc.cdc.job.stage_runner import StageArguments, open_task
from airflow_provider_mysql_cdc.cdc.job.task_operation import EMPTY
from airflow_provider_mysql_cdc.cdc.model.native_counts import NativeCounts
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId
from airflow_provider_mysql_cdc.cdc.sink.writer import TransactionalWriter
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk
from airflow_provider_mysql_cdc.cdc.snapshot.chunk_records import ListEntry, renamed_rows_members
from airflow_provider_mysql_cdc.cdc.snapshot.consistent_view import require_server
from airflow_provider_mysql_cdc.cdc.snapshot.key_kinds import stored_dates_allowed
from airflow_provider_mysql_cdc.cdc.snapshot.remaining_chunks import ResolvedChunk, spans_to_json
from airflow_provider_mysql_cdc.cdc.snapshot.row_emitter import (
    TRANSACTION_TIME_SHARE,
    EmitTarget,
    RowEmitter,
    out_of_time,
)
from airflow_provider_mysql_cdc.cdc.snapshot.row_spool import RowSpool
from airflow_provider_mysql_cdc.cdc.snapshot.rows import stream_blocks
from airflow_provider_mysql_cdc.cdc.snapshot.select import chunk_sql
from airflow_provider_mysql_cdc.cdc.snapshot.snapshot_operations import (
    CHUNK_DONE,
    CHUNK_PROGRESS,
    NEXT_CHUNK,
    NOTE,
    OPENED,
    READY,
    AssignedChunk,
    ChunkRows,
    LogLine,
    OpenedView,
)

PROGRESS_ROWS = 10_000  # SNAP-56


class _ProgressReporter:
    """Tell of progress each ``PROGRESS_ROWS`` rows."""

    def __init__(self, report: Callable[[int], object]) -> None:
        self._report, self._next_report = report, PROGRESS_ROWS

    def __call__(self, rows: int) -> None:
        if rows >= self._next_report:
            self._next_report = rows - rows % PROGRESS_ROWS + PROGRESS_ROWS
            self._report(rows)


_MAX_DECODERS = 64
"""Decoders that a task keeps: chunks of a table come one after the other, and there may be thousands of tables."""


@dataclass(frozen=True, slots=True)
class SnapshotInputs:
    """Hold what the tasks of a snapshot need.

    Args:
        plan: The snapshot's plan (epoch, partition counts).
        tables: Table structures by name.
        partitions: Partition count of each topic.
        run_id: Id of the run, for the context headers.
    """

    plan: BatchPlan
    tables: dict[TableId, Table]
    partitions: dict[str, int]
    run_id: str


def snapshot_task(index: int, arguments: StageArguments[SnapshotInputs]) -> dict[str, int]:
    """Run one snapshot task; called in a Spark task of a barrier stage.

    Args:
        index: The task's index.
        arguments: What the task was started with.

    Returns:
        Rows per topic.
    """
    inputs = arguments.inputs
    plan = inputs.plan
    with open_task(index, arguments) as (cfg, channel):
        # A chunk is of one table.
        single_partition = all(count == 1 for count in inputs.partitions.values())
        with (
            contextlib.closing(kafka_clients.record_writer(cfg, index, single_partition=single_partition)) as sink,
            named_errors(cfg),
        ):
            with kafka_clients.ledger(cfg) as ledger:
                join_plan(ledger, plan, sink, index)
            with connect(cfg.connection_settings()) as conn:
                view = _join_view(conn, channel)
                if view is None:  # the driver looks at the tables anew, with new tasks
                    return {}
                require_server(conn, view.offset.server_uuid)
                headers = table_options.headers(cfg, inputs.run_id)
                task = SnapshotTask(
                    cfg, plan, index, conn, sink, channel, inputs.tables, inputs.partitions, view, headers
                )
                task.formats = RecordFormats.from_config(cfg, ask_driver(channel))
                return task.run()


def _join_view(conn: Any, channel: CoordinatorClient) -> OpenedView | None:
    """Open this task's view together with those of all others; None when the driver has no use for them."""
    with conn.cursor() as cursor:
        cursor.execute("SET SESSION time_zone = '+00:00', wait_timeout = 2147483, net_write_timeout = 3600")
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    READY.arrive(channel)
    opened = OPENED
    while True:
        with conn.cursor() as cursor:
            cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        reply = opened.arrive(channel)
        if reply.reopen is None:
            return reply.view
        conn.rollback()
        READY.named(reply.reopen.ready_point).arrive(channel)
        opened = OPENED.named(reply.reopen.opened_point)


@dataclass(slots=True)
class SnapshotTask:
    """Read chunks until the driver has none left.

    Args:
        cfg: The connector's configuration.
        plan: The snapshot's plan (epoch, partition counts).
        index: The task's index.
        conn: The connection that holds the view.
        sink: The transactional producer.
        channel: Calls to the driver.
        tables: Table structures by name.
        partitions: Partition count of each topic.
        view: The moment that the view shows.
        headers: Headers of every record.
        formats: The forms of records; None when all is JSON.
    """

    cfg: ConnectorConfig
    plan: BatchPlan
    index: int
    conn: Any
    sink: TransactionalWriter
    channel: CoordinatorClient
    tables: dict[TableId, Table]
    partitions: dict[str, int]
    view: OpenedView
    headers: list[tuple[str, bytes]]
    counts: dict[str, int] = field(default_factory=dict)
    formats: RecordFormats | None = None
    _decoders: dict[tuple[TableId, TableId], TextRows] = field(default_factory=dict)
    _left_out: int = 0
    _tally: Tally | None = field(default_factory=lambda: kernel().new_tally())
    _native_counts: NativeCounts = field(default_factory=NativeCounts)
    _rows_by_table: dict[TableId, tuple[int, int]] = field(default_factory=dict)

    def run(self) -> dict[str, int]:
        """Ask for chunks and read them; return rows per topic."""
        self.channel.call(NOTE, LogLine(f"rows are decoded by {kernel().text}"))
        while (assigned := self.channel.call(NEXT_CHUNK, EMPTY).assigned) is not None:
            rows = self._write_chunk(assigned)
            self.channel.call(CHUNK_DONE, ChunkRows(assigned.resolved.chunk.id, rows))
        return self.counts

    def _write_chunk(self, assigned: AssignedChunk) -> int:
        """Write one chunk, and again with smaller batches where a topic takes none as large; return its rows."""
        while True:
            counts = dict(self.counts)
            try:
                rows = self._read_and_produce(assigned.resolved, assigned.first, assigned.final)
                self._commit(assigned.resolved, rows, assigned.list_entry)
            except RecordTooLargeError as error:
                note = reduce_and_rejoin(self.cfg, self.plan, self.sink, self.index, error)
                self.counts = counts
                self._new_native_counts()
                self.channel.call(NOTE, LogLine(note))
            else:
                return rows

    def _commit(self, resolved: ResolvedChunk, rows: int, list_entry: ListEntry) -> None:
        chunk = resolved.chunk
        record = {
            "epoch": self.plan.epoch,
            **list_entry,
            "chunk": chunk.to_json(),
            "offset": self.view.offset.to_json(),
            "ts_ms": self.view.ts_ms,
            "rows": rows - self._left_out,
            "left_out": self._left_out,
            "writer": self.index,
            "attempt": self.plan.attempt,
            **renamed_rows_members(chunk, self._rows_by_table),
            **self._new_native_counts().members(),
        }
        if resolved.spans:
            record["spans"] = spans_to_json(resolved.spans)
        topic, key, value = ledger_record(self.cfg, CHUNK_PREFIX + chunk.id, record)
        self.sink.produce(topic, key, value, 0)
        faults.fault_point("writer.before_commit", self.index)
        self.sink.commit()
        faults.fault_point("snapshot.after_chunk", self.index)

    def _new_native_counts(self) -> NativeCounts:
        """Return what the native kernel has decoded since this was asked before."""
        if self._tally is None:
            return self._native_counts
        earlier_counts, self._native_counts = self._native_counts, self._tally.counts()
        return self._native_counts.since(earlier_counts)

    def _text_reader(self, table: Table, source: TableId, topic: str) -> TextRows:
        text_reader = self._decoders.get((source, table.id))
        if text_reader is None:
            options = table_options.table_options(self.cfg, table)
            record_format = None if self.formats is None else self.formats.table_format(table, options, topic)
            text_reader = create_text_rows(self.cfg, record_format, table, options, tally=self._tally)
            if len(self._decoders) >= _MAX_DECODERS:
                self._decoders.clear()
            self._decoders[source, table.id] = text_reader
        return text_reader

    def _emitter(self, table: Table, source: TableId, where: str) -> RowEmitter:
        cfg = self.cfg
        offset, ts_ms = self.view.offset, self.view.ts_ms
        topic = topic_routing.table_topic_name(cfg, table.id)
        partitions = self.partitions.get(topic, cfg[F.TOPIC_CREATION_PARTITIONS])
        text_reader = self._text_reader(table, source, topic)
        source_texts = snapshot_source(cfg, table.id, writes_avro=text_reader.writes_avro)
        return RowEmitter(
            cfg=cfg,
            table=table,
            decode=text_reader.decode,
            fill=lambda ctx, marker: source_texts.fill(ctx, offset, ts_ms, marker),
            source_texts=source_texts,
            where=where,
            target=EmitTarget(
                self.sink,
                topic,
                partitions,
                self.headers,
                self.index,
                text_reader.record_format,
                text_reader.id_headers,
            ),
            counts=self.counts,
            id_prefix=f"snapshot/{self.plan.epoch}",
        )

    def _check_transaction_time(self, resolved: ResolvedChunk, number: int, rows: int) -> None:
        """Stop while the transaction can still be ended in good order; a retry would come no further.

        Raises:
            SinkError: The chunk's rows cannot be written within one Kafka transaction.
        """
        if not out_of_time(self.cfg, self.sink):
            return
        limit_s = self.cfg[F.TRANSACTION_TIMEOUT_MS] / 1000
        self.sink.abort()
        is_split = bool(resolved.chunk.columns)
        raise SinkError(
            "a chunk has more rows than can be written within one Kafka transaction",
            where=f"snapshot of {resolved.chunk.id}",
            why=f"{number:,} of {rows:,} rows took {limit_s * TRANSACTION_TIME_SHARE:.0f} s; transaction.timeout.ms is "
            f"{limit_s * 1000:.0f}" + ("" if is_split else ", and the table is not cut along its key"),
            remedy="lower snapshot.chunk.rows"
            if is_split
            else "raise transaction.timeout.ms (and the broker's transaction.max.timeout.ms), or give the table a "
            "primary key by which it can be cut (snapshot.chunk.rows in docs/properties.md says of which types), "
            "without a statement, converter or message.key.columns of its own",
            retriable=is_split,
        )

    def _read_and_produce(self, resolved: ResolvedChunk, first: bool, final: bool) -> int:
        """Read one chunk and then produce its rows: a Kafka transaction does not wait for the source."""
        chunk, total, self._left_out, self._rows_by_table = resolved.chunk, 0, 0, {}
        where = f"snapshot of {chunk.id}"
        with contextlib.ExitStack() as spools:
            spooled = [
                (table, source, self._fill_spool(spools.enter_context(RowSpool(where)), chunk, table, source))
                for table, source in ((replace(self.tables[s], id=name), s) for s, name in resolved.table_reads)
            ]
            faults.fault_point("snapshot.chunk_read", self.index)
            for table, source, spool in spooled:
                if not spool.rows:  # of thousands of tables many may be empty
                    self._rows_by_table[table.id] = 0, 0
                    continue
                emitter = self._emitter(table, source, where)
                self._produce(resolved, spool, emitter, first, final)
                self._left_out += emitter.left_out
                self._rows_by_table[table.id] = (spool.rows - emitter.left_out, emitter.left_out)
                self.counts[emitter.topic] = self.counts.get(emitter.topic, 0) + spool.rows - emitter.left_out
                total += spool.rows
        return total

    def _fill_spool(self, spool: RowSpool, chunk: SnapshotChunk, table: Table, source: TableId) -> RowSpool:
        """Read the chunk's rows of one table."""
        where = f"snapshot of {chunk.id}"
        report = _ProgressReporter(lambda rows: self.channel.call(CHUNK_PROGRESS, ChunkRows(chunk.id, rows)))
        with stored_dates_allowed(self.conn, chunk.kinds):
            blocks = stream_blocks(self.conn, chunk_sql(self.cfg, self.conn, table, chunk, source), where)
            spool.fill(blocks, report)
        return spool

    def _produce(self, resolved: ResolvedChunk, spool: RowSpool, emitter: RowEmitter, first: bool, final: bool) -> None:
        """Produce the rows that were read of one table."""
        chunk, rows, number = resolved.chunk, spool.rows, 0
        edge_markers = {
            at: snapshot_marker(
                first_row=at == 1 and chunk.number == 0,
                last_row=at == rows and chunk.last,
                first_table=first,
                last_table=final and at == rows and chunk.last,
            )
            for at in (1, rows)
        }
        for block in spool.blocks():
            self._check_transaction_time(resolved, number, rows)
            emitter.emit_block(block, number, edge_markers)
            number += block.rows
