"""One task of a snapshot: joins the consistent view, then reads chunk after chunk and writes them to Kafka."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import CHUNK_PREFIX
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.commit.takeover import join_plan
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import Tally, kernel
from airflow_provider_mysql_cdc.cdc.emit.source_block import snapshot_marker
from airflow_provider_mysql_cdc.cdc.errors import SinkError
from airflow_provider_mysql_cdc.cdc.formats import record_topics, table_options
from airflow_provider_mysql_cdc.cdc.formats.chain_writer import begin_batch, with_chain
from airflow_provider_mysql_cdc.cdc.formats.record_formats import RecordFormats
from airflow_provider_mysql_cdc.cdc.job.coordinator import CoordinatorClient
from airflow_provider_mysql_cdc.cdc.job.schema_ids import ask_driver
from airflow_provider_mysql_cdc.cdc.job.stage_runner import StageArguments, named_errors, open_task
from airflow_provider_mysql_cdc.cdc.job.task_operation import EMPTY
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.records import NativeCounts
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId
from airflow_provider_mysql_cdc.cdc.sink.writer import TransactionalWriter
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk, chunk_sql
from airflow_provider_mysql_cdc.cdc.snapshot.chunk_records import ListEntry
from airflow_provider_mysql_cdc.cdc.snapshot.consistent_view import hold_tables, set_view_limits
from airflow_provider_mysql_cdc.cdc.snapshot.range_writer import (
    RangeFaultPoints,
    RangeWriter,
    RowCounts,
    RowRange,
    TableSelect,
    ViewPosition,
)
from airflow_provider_mysql_cdc.cdc.snapshot.row_emitter import (
    TRANSACTION_TIME_SHARE,
    SnapshotRoute,
    make_snapshot_route,
)
from airflow_provider_mysql_cdc.cdc.snapshot.snapshot_operations import (
    CHUNK_DONE,
    CHUNK_PROGRESS,
    HELD,
    NEXT_CHUNK,
    NOTE,
    OPENED,
    READY,
    AssignedChunk,
    ChunkRows,
    LogLine,
    OpenedView,
)
from airflow_provider_mysql_cdc.cdc.ticdc.commit_ts import view_ts

_MAX_DECODERS = 64
"""Decoders that a task keeps: chunks of one table follow each other, and there may be thousands of tables."""
FAULT_POINTS = RangeFaultPoints("snapshot.chunk_read", "writer.before_commit", "snapshot.after_chunk")


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
        arguments: The arguments that ``snapshot_driver`` passes to all tasks.

    Returns:
        Rows per topic.
    """
    inputs = arguments.inputs
    plan = inputs.plan
    with open_task(index, arguments) as (cfg, channel):
        # A chunk has rows of one table.
        single_partition = cfg.chain is None and all(count == 1 for count in inputs.partitions.values())
        writer = kafka_clients.record_writer(cfg, index, single_partition=single_partition)
        with (
            contextlib.closing(with_chain(cfg, writer, ask_driver(channel))) as sink,
            named_errors(cfg),
        ):
            with kafka_clients.ledger(cfg) as ledger:
                begin_batch(sink, plan, join_plan(ledger, plan, sink, index).topics)
            with connect(cfg.connection_settings()) as conn:
                view = _join_view(conn, channel, [table for table in inputs.tables if cfg.captures(table)])
                if view is None:  # the driver reads the tables again and starts new tasks
                    return {}
                headers = table_options.headers(cfg, inputs.run_id)
                task = SnapshotTask(
                    cfg, plan, index, conn, sink, channel, inputs.tables, inputs.partitions, view, headers
                )
                task.formats = RecordFormats.from_config(cfg, ask_driver(channel))
                return task.run()


def _join_view(conn: MySqlConnection, channel: CoordinatorClient, tables: Sequence[TableId]) -> OpenedView | None:
    """Open this task's view at the same time as all other tasks; None if the driver discards the views."""
    set_view_limits(conn)
    READY.arrive(channel)
    opened = OPENED
    while True:
        with conn.cursor() as cursor:
            cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        reply = opened.arrive(channel)
        if reply.view is not None:
            hold_tables(conn, tables)
            HELD.arrive(channel)
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
        view: Position and time of the view.
        headers: Headers of every record.
        formats: The formats of records; None when all of them are JSON.
    """

    cfg: ConnectorConfig
    plan: BatchPlan
    index: int
    conn: MySqlConnection
    sink: TransactionalWriter
    channel: CoordinatorClient
    tables: dict[TableId, Table]
    partitions: dict[str, int]
    view: OpenedView
    headers: list[tuple[str, bytes]]
    formats: RecordFormats | None = None
    writer: RangeWriter = field(init=False)
    _routes: dict[TableId, SnapshotRoute] = field(default_factory=dict)
    _tally: Tally | None = field(default_factory=lambda: kernel().new_tally())
    _native_counts: NativeCounts = field(default_factory=NativeCounts)

    def __post_init__(self) -> None:
        self.writer = RangeWriter(
            self.cfg,
            self.plan,
            self.index,
            self.conn,
            self.sink,
            self.headers,
            FAULT_POINTS,
            self._report_retry,
            self._report_line,
        )

    def run(self) -> dict[str, int]:
        """Request chunks and write them; return rows per topic."""
        self._report_line(f"rows are decoded by {kernel().text}")
        while (assigned := self.channel.call(NEXT_CHUNK, EMPTY).assigned) is not None:
            written = self.writer.write(self._row_range(assigned))
            self.channel.call(CHUNK_DONE, ChunkRows(assigned.chunk.id, written.read))
        return self.writer.counts

    def _row_range(self, assigned: AssignedChunk) -> RowRange:
        chunk, table = assigned.chunk, self.tables[assigned.chunk.table]
        commit_ts = view_ts(self.view.ts_ms, self.plan.commit_ts) if self.cfg.is_ticdc else None
        position = ViewPosition(self.view.offset, self.view.ts_ms, commit_ts=commit_ts)
        return RowRange(
            where=f"snapshot of {chunk.id}",
            select=TableSelect(table, chunk_sql(self.cfg, self.conn, table, chunk), lambda: self._route(table)),
            key_kinds=chunk.kinds,
            position=lambda: position,
            # A snapshot that begins again reads the same keys in another view.
            id_prefix=f"snapshot/{self.plan.epoch}/{self.view.offset.file}:{self.view.offset.pos}",
            row_id_prefix=f"snapshot of {chunk.id}",
            ledger_record=lambda written: self._ledger_record(chunk, assigned.list_entry, written),
            timeout_error=lambda produced, rows: _timeout_error(self.cfg, chunk, produced, rows),
            report_progress=lambda rows: self.channel.call(CHUNK_PROGRESS, ChunkRows(chunk.id, rows)),
            edge_marker=lambda first, last: snapshot_marker(
                first_row=first and chunk.number == 0,
                last_row=last and chunk.last,
                first_table=assigned.first,
                last_table=assigned.final and last and chunk.last,
            ),
        )

    def _route(self, table: Table) -> SnapshotRoute:
        route = self._routes.get(table.id)
        if route is None:
            topic = record_topics.table_topic_name(self.cfg, table.id)
            partitions = self.partitions.get(topic) or self.cfg.topic_partitions(topic)
            route = make_snapshot_route(self.cfg, self.formats, table, partitions, tally=self._tally)
            if len(self._routes) >= _MAX_DECODERS:
                self._routes.clear()
            self._routes[table.id] = route
        return route

    def _ledger_record(
        self, chunk: SnapshotChunk, list_entry: ListEntry, written: RowCounts
    ) -> tuple[str, dict[str, Any]]:
        """Return key and value of the record that says that a chunk is done."""
        native = self._new_native_counts()
        record = {
            "epoch": self.plan.epoch,
            **list_entry,
            "chunk": chunk.to_json(),
            "offset": self.view.offset.to_json(),
            "ts_ms": self.view.ts_ms,
            "rows": written.written,
            "left_out": written.unreadable,
            **({"nulled": written.nulled} if written.nulled else {}),
            **({} if written.topics is None else {"topics": dict(written.topics)}),
            "attempt": self.plan.attempt,
            **({"native": native.to_json()} if native else {}),
        }
        return CHUNK_PREFIX + chunk.id, record

    def _report_retry(self, note: str) -> None:
        self._new_native_counts()
        self._report_line(note)

    def _report_line(self, line: str) -> None:
        self.channel.call(NOTE, LogLine(line))

    def _new_native_counts(self) -> NativeCounts:
        """Return the counts of the native kernel since the last call."""
        if self._tally is None:
            return self._native_counts
        earlier_counts, self._native_counts = self._native_counts, self._tally.counts()
        return self._native_counts.since(earlier_counts)


def _timeout_error(cfg: ConnectorConfig, chunk: SnapshotChunk, produced: int, rows: int) -> SinkError:
    """Return the error for a chunk whose rows do not fit into one Kafka transaction."""
    limit_s = cfg[F.TRANSACTION_TIMEOUT_MS] / 1000
    is_split = bool(chunk.columns)
    return SinkError(
        "a chunk has more rows than can be written within one Kafka transaction",
        where=f"snapshot of {chunk.id}",
        why=f"{produced:,} of {rows:,} rows took {limit_s * TRANSACTION_TIME_SHARE:.0f} s; transaction.timeout.ms is "
        f"{limit_s * 1000:.0f}" + ("" if is_split else ", and the table is not split by its key"),
        remedy="lower snapshot.chunk.rows"
        if is_split
        else "raise transaction.timeout.ms (and the broker's transaction.max.timeout.ms), or give the table a "
        "primary key by which it can be split (the types are listed at snapshot.chunk.rows in "
        "docs/properties.md), and no statement override",
        retriable=is_split,
    )
