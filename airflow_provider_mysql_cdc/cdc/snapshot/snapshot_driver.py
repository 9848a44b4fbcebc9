"""The driver of a snapshot: definitions, chunks, the consistent view, and the ledger records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.binlog.position import current_offset, wait_for_visible_offset
from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import CAPTURED_LISTS_KEY, SNAPSHOT_KEY, VIEW_KEY
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.commit.run_tally import taskless_run_id
from airflow_provider_mysql_cdc.cdc.commit.unread_tables import lists_record
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.emit.envelope import new_run_id
from airflow_provider_mysql_cdc.cdc.errors import CdcError, StateError
from airflow_provider_mysql_cdc.cdc.formats import record_topics, table_options
from airflow_provider_mysql_cdc.cdc.job import run_lock
from airflow_provider_mysql_cdc.cdc.job.config_guard import begin_pinned_plan
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.job.job_metrics import JobLog
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.cdc.job.stage_runner import StageLeader, StageRunner, named_errors
from airflow_provider_mysql_cdc.cdc.job.task_barrier import TaskBarrier
from airflow_provider_mysql_cdc.cdc.job.task_operation import EMPTY, EmptyMessage
from airflow_provider_mysql_cdc.cdc.job.task_runner import TaskRunner
from airflow_provider_mysql_cdc.cdc.job.topic_guard import (
    history_id_record,
    note_topic_ends,
    prepare_topics,
    require_written_topics,
    topic_partitions,
)
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId
from airflow_provider_mysql_cdc.cdc.schema.history import require_first_in_history, require_own_history
from airflow_provider_mysql_cdc.cdc.schema.snapshot_records import (
    SnapshotSchema,
    build_snapshot_schema,
    captured_state,
    history_records,
    schema_change_records,
)
from airflow_provider_mysql_cdc.cdc.schema.table_discovery import (
    TableDefinitions,
    captured_tables,
    lock_metadata,
    read_definitions,
    require_readable_names,
)
from airflow_provider_mysql_cdc.cdc.schema.table_findings import no_table_error
from airflow_provider_mysql_cdc.cdc.signals.notification_record import (
    NotificationType,
    notification_records,
    snapshot_notification,
)
from airflow_provider_mysql_cdc.cdc.snapshot import recovery
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk, check_override, split_table
from airflow_provider_mysql_cdc.cdc.snapshot.chunk_queue import (
    ChunkQueue,
    SnapshotMeter,
    SnapshotProgress,
    edge_chunks_of,
)
from airflow_provider_mysql_cdc.cdc.snapshot.chunk_records import (
    count_rows,
    delete_chunk_records,
    done_record,
    done_records,
    record_chunks,
    recorded_chunks,
    report_keys,
)
from airflow_provider_mysql_cdc.cdc.snapshot.consistent_view import ConsistentView
from airflow_provider_mysql_cdc.cdc.snapshot.snapshot_checks import require_drained
from airflow_provider_mysql_cdc.cdc.snapshot.snapshot_operations import (
    CHUNK_DONE,
    CHUNK_PROGRESS,
    HELD,
    NEXT_CHUNK,
    NOTE,
    OPENED,
    READY,
    ChunkRows,
    LogLine,
)
from airflow_provider_mysql_cdc.cdc.snapshot.snapshot_task import SnapshotInputs, snapshot_task
from airflow_provider_mysql_cdc.cdc.snapshot.table_lineage import tables_created_since
from airflow_provider_mysql_cdc.cdc.snapshot.table_reports import TableReports, end_of_view_records
from airflow_provider_mysql_cdc.cdc.snapshot.view_coordinator import (
    ViewCallbacks,
    ViewOpener,
    lock_seconds,
    wait_for_next_second,
)
from airflow_provider_mysql_cdc.cdc.ticdc.commit_ts import view_ts

BARRIER_TIMEOUT_S = 120.0
"""Longest wait in seconds for all tasks to be connected, and for all to have opened their views."""
VIEW_END_TIMEOUT_S = 30.0
"""Longest wait in seconds for the end of the view's lock once the tasks have ended."""
SOME_TABLES = "some_tables"
"""Option of a snapshot that captures other tables than the drains of its stream, whose configuration the job lacks."""
ChunkHandler = Callable[[int, ChunkRows], EmptyMessage]
MAX_ATTEMPTS = 5
"""How often tables and definitions are read, and a view is opened, before the run fails."""


def run_snapshot(spec: JobSpec, runner: TaskRunner, log: Log) -> dict[str, int]:
    """Take the snapshot of a job in one consistent view; return records by topic.

    Args:
        spec: The job; its plan has kind ``snapshot``.
        runner: Runs all tasks at the same time.
        log: Writes one line to the log.

    Raises:
        CdcError: The snapshot could not be completed; finished chunks are kept, and windows of the drain read the rest.
    """
    cfg, log = ConnectorConfig.from_properties(spec.properties), JobLog(log)
    faults.set_current_driver()
    plan = BatchPlan.from_json(spec.plan)
    with (
        run_lock.hold_run_lock(cfg.connection_settings(), cfg.topic_prefix, spec.owner) as lock,
        JobLedger(cfg, spec.run or taskless_run_id()) as job,
    ):
        cfg = cfg.of_server(lock.server_uuid)
        try:
            with named_errors(cfg):
                rows, offset = _SnapshotDriver(cfg, plan, job, runner, log, bool(spec.options.get(SOME_TABLES))).run()
        except CdcError as error:
            job.write_outcome(plan, error=error)
            raise
        faults.fault_point("driver.before_outcome")
        lock.require()
        job.write_outcome(plan, counts=rows)
        log(f"snapshot {plan.epoch} done: {sum(rows.values()):,} rows in {len(rows)} topic(s), offset {offset}")
        return rows


@dataclass(slots=True)
class _SnapshotDriver:
    cfg: ConnectorConfig
    plan: BatchPlan
    job: JobLedger
    runner: TaskRunner
    log: JobLog
    some_tables: bool = False
    run_id: str = field(default_factory=new_run_id)
    meter: SnapshotMeter = field(default_factory=SnapshotMeter)

    def run(self) -> tuple[dict[str, int], BinlogOffset]:
        ledger, self.plan = begin_pinned_plan(self.cfg, self.job, self.plan)
        if ledger.complete():
            self.log(f"snapshot {self.plan.epoch} was completed by another attempt")
            outcome = ledger.outcome or {}
            counts = outcome["counts"] if outcome.get("epoch") == self.plan.epoch else {}
            return dict(counts), BinlogOffset.from_json((ledger.snapshot or {})["offset"])
        self.job.metrics.snapshot, self.job.metrics.snapshot_tables = self.meter.attributes, self.meter.tables
        if self._view_recorded(ledger):
            return self._finish(recorded_chunks(ledger, self.plan.epoch)[0])
        for _ in range(MAX_ATTEMPTS):
            chunks, changed_tables = self._read_tables(ledger)
            if not changed_tables:
                return self._finish(chunks)
            self.log(f"the view is not used, and all tables are read again: {', '.join(changed_tables[:5])}")
        raise StateError(
            "no consistent view could be opened: tables changed between reading their definitions and opening it",
            where=", ".join(changed_tables[:5]),
            why=f"captured tables were created, dropped or renamed in each of {MAX_ATTEMPTS} tries",
            remedy="run the task again after these statements, or exclude short-lived tables from the stream "
            "(table.exclude.list)",
            retriable=True,
        )

    def _read_tables(self, ledger: LedgerState) -> tuple[list[SnapshotChunk], list[str]]:
        """Find the tables and read their chunks in one view; return the chunks, or the changes meanwhile."""
        with connect(self.cfg.connection_settings()) as conn:
            start_offset, _ = wait_for_visible_offset(conn, lock_seconds(self.cfg))
            tables = self._captured_tables(conn)
            if missing_table := lock_metadata(conn, tables, lock_seconds(self.cfg)):
                return [], [f"{missing_table} no longer exists"]
            # The definitions are read under metadata locks, so they cannot change before the view is open.
            definitions = read_definitions(conn, self.cfg, tables, self.log)
            state = captured_state(definitions)
            if recovery.is_recovery(self.cfg):
                self.job.require(self.plan)
                recovery.replace_history(self.cfg, self.plan.start, current_offset(conn))
            else:
                require_own_history(self.cfg)
            prepare_topics(self.cfg, self.job, self.plan, ledger, state, self.log)
            if self.cfg[F.SNAPSHOT_MODE].reads_rows:
                # A schema that the registry refuses stops the run here, not after hours of other tables.
                self.job.register_schemas(state.tables[t] for t in tables if self.cfg.snapshots_rows(t))
            finished = self._finished_tables(ledger)
            chunks = self._plan_chunks(conn, {t: state.tables[t] for t in tables}, finished)
            done = {c.id: ledger.chunks[c.id] for table_chunks in finished.values() for c in table_chunks}
            list_entries = record_chunks(self.job, self.plan.epoch, chunks, done)
            faults.fault_point("plan.after_store")
            finished_rows = {id_: int(record["rows"]) for id_, record in done.items()}
            waiting = [chunk for chunk in chunks if chunk.id not in finished_rows]
            edge_chunks = edge_chunks_of(conn, chunks, state)
            tables_progress = SnapshotProgress(chunks, finished_rows)
            queue = ChunkQueue(
                waiting, finished_rows, self.log, len(chunks), edge_chunks, list_entries, tables_progress
            )
            self.job.metrics.begin(self.plan, state.tables)
            self.meter.begin(tables, chunks, queue)
            return chunks, self._read_chunks(queue, start_offset, state, definitions, conn, ledger)

    def _finished_tables(self, ledger: LedgerState) -> dict[TableId, list[SnapshotChunk]]:
        """Return the tables that an interrupted attempt of ``initial_only`` has read, with their chunks."""
        if str(self.cfg[F.SNAPSHOT_MODE]) != "initial_only":
            return {}
        read: dict[TableId, list[SnapshotChunk]] = {}
        for record in ledger.done_chunks(self.plan.epoch).values():
            chunk = SnapshotChunk.from_json(record["chunk"])
            read.setdefault(chunk.table, []).append(chunk)
        ordered = {table: sorted(chunks, key=lambda chunk: chunk.number) for table, chunks in read.items()}
        return {
            table: chunks
            for table, chunks in ordered.items()
            if chunks[-1].last and len(chunks) == chunks[-1].number + 1
        }

    def _captured_tables(self, conn: MySqlConnection) -> list[TableId]:
        tables = captured_tables(conn, self.cfg)
        require_readable_names(conn, self.cfg, tables)
        if not tables:
            raise no_table_error()
        overrides = self.cfg[F.SNAPSHOT_SELECT_STATEMENT_OVERRIDES]
        for name in sorted(set(overrides) - set(map(str, tables))):
            self.log(f"{F.SNAPSHOT_SELECT_STATEMENT_OVERRIDES.name}.{name} has no effect: no captured table is {name}")
        return tables

    def _plan_chunks(
        self, conn: MySqlConnection, tables: dict[TableId, Table], finished: dict[TableId, list[SnapshotChunk]]
    ) -> list[SnapshotChunk]:
        """Return the chunks of all tables; those of a finished table are the ones that were read."""
        chunks = []
        for table in tables.values():
            if table.id in finished:
                chunks += finished[table.id]
            elif self._reads(table.id):
                check_override(self.cfg, conn, table)
                single_chunk = self.cfg.select_override(table.id) is not None
                chunks += split_table(conn, table, self.cfg[F.SNAPSHOT_CHUNK_ROWS], single_chunk=single_chunk)
        return chunks

    def _reads(self, table: TableId) -> bool:
        return self.cfg[F.SNAPSHOT_MODE].reads_rows and self.cfg.captures(table) and self.cfg.snapshots_rows(table)

    def _view_recorded(self, ledger: LedgerState) -> bool:
        view = ledger.other_records.get(VIEW_KEY)
        return view is not None and view["epoch"] == self.plan.epoch

    def _read_chunks(
        self,
        queue: ChunkQueue,
        start_offset: BinlogOffset,
        state: SchemaState,
        definitions: TableDefinitions,
        guard_conn: Any,
        ledger: LedgerState,
    ) -> list[str]:
        """Read the waiting chunks in one view; return the changes that made the view unusable."""
        requested_tasks = min(self.cfg[F.SNAPSHOT_PARALLELISM], len(queue.waiting))
        slots = self.runner.slots(requested_tasks)
        tasks = max(1, min(requested_tasks or slots, slots, len(queue.waiting)))
        self.job.reserve_writers(tasks, ledger)
        self.log(f"snapshot {self.plan.epoch}: {len(queue.waiting)} chunk(s) to read with {tasks} task(s)")
        if tasks < requested_tasks:
            self.log(f"{F.SNAPSHOT_PARALLELISM.name} asks for {requested_tasks} tasks; Spark has {slots} slot(s)")
        # Parsed before the view is opened, as the tasks wait meanwhile and a server may have thousands of tables.
        described = build_snapshot_schema(definitions)
        listed = list(definitions.tables)

        def find_changes(view: ConsistentView) -> list[str]:
            lower_case_table_names = definitions.lower_case_table_names
            if self.plan.gapless:
                require_drained(self.cfg, self.plan.start, view.offset)
            return tables_created_since(self.cfg, listed, start_offset, view.offset, lower_case_table_names)

        def record_view(view: ConsistentView) -> None:
            self.write_schemas(view, described, queue.edge_chunks[1] == "", ledger)

        wait_for_next_second(guard_conn, ledger)
        barrier = TaskBarrier(tasks, BARRIER_TIMEOUT_S)
        opener = ViewOpener(
            self.cfg,
            barrier,
            listed,
            guard_conn,
            ViewCallbacks(find_changes, record_view, self.log, self.meter.on_lock),
        )
        reports = TableReports(self.cfg, self.job, queue)
        inputs = SnapshotInputs(
            self.plan,
            dict(state.tables),
            topic_partitions(self.cfg, state.tables),
            self.run_id,
        )
        StageRunner(self.cfg, self.runner, self.job.schema_ids).run_barrier(
            snapshot_task,
            StageLeader(self.cfg, barrier, opener.lead, "opening the consistent view failed", VIEW_END_TIMEOUT_S),
            inputs,
            [
                barrier.handler(READY),
                barrier.handler(OPENED),
                barrier.handler(HELD),
                NEXT_CHUNK.handled_by(reports.next),
                NOTE.handled_by(self._log_once),
                CHUNK_PROGRESS.handled_by(self._publishing(queue.progress)),
                CHUNK_DONE.handled_by(self._publishing(reports.done)),
            ],
        )
        return opener.changed_tables

    def _publishing(self, handler: ChunkHandler) -> ChunkHandler:
        """Return what handles a report of rows, and publishes the metrics when it is time."""

        def handle(task: int, request: ChunkRows) -> EmptyMessage:
            reply = handler(task, request)
            self.job.metrics.publish_if_due()
            return reply

        return handle

    def _log_once(self, task: int, request: LogLine) -> EmptyMessage:
        """Write a task's line into the job's log, once."""
        self.log.once(request.text)
        return EMPTY

    def _finish(self, chunks: list[SnapshotChunk]) -> tuple[dict[str, int], BinlogOffset]:
        """Check that every chunk is committed, and store where the drain begins."""
        faults.fault_point("snapshot.before_books")
        ledger = self.job.read()
        done = done_records(ledger, self.plan.epoch, chunks)
        missing = [c.id for c in chunks if c.id not in done]
        view = ledger.other_records.get(VIEW_KEY)
        if missing or view is None:
            raise StateError(
                f"{len(missing)} of {len(chunks)} chunks of the snapshot are not committed",
                where=", ".join(missing[:5]),
                remedy="run the task again; windows of the drain read the rest",
                retriable=True,
            )
        drain_start = BinlogOffset.from_json(view["offset"])
        self.meter.complete({id_: _rows_read(record) for id_, record in done.items()}, chunks)
        rows = count_rows(self.cfg, self.job, done)
        if native_text := self.job.native_counts.text():
            self.log(f"snapshot {self.plan.epoch}: {native_text}")
        require_written_topics(self.cfg, ledger, self.plan, rows)
        note_topic_ends(self.cfg, self.job, ledger, rows)
        reports = end_of_view_records(self.cfg, ledger, chunks, done)
        self.job.put_with_counts(SNAPSHOT_KEY, done_record(self.plan.epoch, drain_start), self.plan, rows, reports)
        delete_chunk_records(self.job, ledger)
        return rows, drain_start

    def write_schemas(
        self, view: ConsistentView, described: SnapshotSchema, no_rows: bool, ledger: LedgerState
    ) -> None:
        """Write the schema changes and the schema history of the view, once for each snapshot."""
        cfg, plan = self.cfg, self.plan
        records = notification_records(cfg, [snapshot_notification(NotificationType.STARTED)])
        records += [SideRecord(cfg.ledger_topic, key.encode(), None) for key in report_keys(ledger)]
        offset = view.offset
        if recovery.is_recovery(cfg):
            recovery.require_no_ddl(cfg, plan.start, offset)
            offset = plan.start
        elif cfg[F.INCLUDE_SCHEMA_CHANGES]:
            changes = schema_change_records(cfg, described, offset, view.ts_ms, final=no_rows)
            records += [record_topics.routed_record(cfg, change.topic, change.key, change.value) for change in changes]
        records += history_records(cfg, described, offset, plan.epoch)
        record = {"epoch": plan.epoch, "offset": offset.to_json(), "ts_ms": view.ts_ms}
        if cfg.is_ticdc:
            record["commit_ts"] = view_ts(view.ts_ms, plan.commit_ts)
        records += [self.job.record(VIEW_KEY, record), history_id_record(cfg, self.job)]
        # Tables that a first snapshot of some tables leaves out join the stream with its first drain.
        first = CAPTURED_LISTS_KEY not in ledger.other_records
        if (first or not self.some_tables) and not recovery.is_recovery(cfg):
            records.append(self.job.record(CAPTURED_LISTS_KEY, lists_record(cfg)))
        headers = {record_topics.schema_change_topic(cfg): table_options.headers(cfg, self.run_id)}
        self.job.commit(records, headers, check=lambda: require_first_in_history(cfg))


def _rows_read(record: dict[str, Any]) -> int:
    """Return how many rows of a chunk were read: those that were written, and those that were left out."""
    return int(record["rows"]) + int(record["left_out"])
