"""The driver of a window: one batch of the drain, after which key ranges of tables are read.

For the commit protocol a window is an ordinary batch: it is complete when all its writers are at its end, and a retry
finishes it without reading any key range. The key ranges after its end are committed one by one, each with its own
record, by writers that the next run fences first.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.binlog.connect import answering_server
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.unread_tables import unchecked_records
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.drain.batch_planner import plan_window_batch
from airflow_provider_mysql_cdc.cdc.drain.batch_run import StartedBatch, WriterInputs, begin_batch, finish_batch
from airflow_provider_mysql_cdc.cdc.drain.ddl_events import server_variables
from airflow_provider_mysql_cdc.cdc.drain.drain_operations import PROGRESS, SCHEMA_REFUSED, DrainProgress
from airflow_provider_mysql_cdc.cdc.drain.joined_tables import UnwrittenRows
from airflow_provider_mysql_cdc.cdc.drain.structure_check import check_structures
from airflow_provider_mysql_cdc.cdc.emit.envelope import new_run_id
from airflow_provider_mysql_cdc.cdc.errors import CdcError, StateError
from airflow_provider_mysql_cdc.cdc.incremental import notifications as notices
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import IncrementalState, read_incremental_state
from airflow_provider_mysql_cdc.cdc.incremental.key_range_assignment import KeyRangeQueue
from airflow_provider_mysql_cdc.cdc.incremental.key_range_metrics import KeyRangeMeter
from airflow_provider_mysql_cdc.cdc.incremental.notifications import state_records
from airflow_provider_mysql_cdc.cdc.incremental.scan_bounds import resume_scan, with_last_key
from airflow_provider_mysql_cdc.cdc.incremental.scan_updates import follow_renamed
from airflow_provider_mysql_cdc.cdc.incremental.scan_validity import ScanValidity, record_format_digest
from airflow_provider_mysql_cdc.cdc.incremental.table_scan import TableScan
from airflow_provider_mysql_cdc.cdc.incremental.watermarks import WatermarkUnavailable, low_watermark, needs_lock
from airflow_provider_mysql_cdc.cdc.incremental.window_operations import (
    DRAINED,
    NEXT_RANGE,
    OPENED,
    RANGE_DONE,
    RANGE_RETURNED,
    READY,
    ROWS_UNWRITTEN,
    PlanReply,
    ReadyReply,
    WindowStart,
)
from airflow_provider_mysql_cdc.cdc.incremental.window_task import run_window_task
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.job.job_metrics import JobLog
from airflow_provider_mysql_cdc.cdc.job.stage_runner import StageLeader, StageRunner, named_errors
from airflow_provider_mysql_cdc.cdc.job.task_barrier import TaskBarrier
from airflow_provider_mysql_cdc.cdc.job.task_operation import EMPTY, EmptyMessage, TaskHandler
from airflow_provider_mysql_cdc.cdc.job.task_runner import TaskRunner
from airflow_provider_mysql_cdc.cdc.job.topic_guard import require_recorded_history
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.schema.history import load_schema_state
from airflow_provider_mysql_cdc.cdc.snapshot.consistent_view import LOCK_WAIT_S

WindowScans = tuple[list[TableScan], ScanValidity]
"""The scans of a window, and whether they may continue."""
MAX_SCANS_PER_WINDOW = 100
"""Scans that one window reads; each task holds metadata locks on their tables meanwhile."""
READ_TIME_S = 10.0
"""Seconds after which a window assigns no more key ranges, so that the stream continues; not for blocking scans."""
BARRIER_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class WindowResult:
    """Hold the result of a window.

    Args:
        counts: Records by topic.
        ranges_read: Number of key ranges read.
        reason: Why nothing could be read; empty if something was read.
        blocked_scans: Orders of scans that could not continue.
    """

    counts: dict[str, int]
    ranges_read: int
    reason: str = ""
    blocked_scans: frozenset[int] = frozenset()


@dataclass(slots=True)
class WindowDriver:
    """Run one window.

    Args:
        cfg: The connector's configuration.
        conn: An open connection to the source.
        job: The ledger.
        runner: Runs the tasks.
        owner: The id of this run.
        log: The job's log.
        weights: Records per topic in earlier batches.
        deferred_scans: Orders of scans that could not continue in earlier windows; the others come first.
    """

    cfg: ConnectorConfig
    conn: MySqlConnection
    job: JobLedger
    runner: TaskRunner
    owner: str
    log: JobLog
    weights: dict[str, int] = field(default_factory=dict)
    deferred_scans: frozenset[int] = frozenset()
    _begun_batch: StartedBatch | None = None
    _progress: DrainProgress | None = None
    _queue: KeyRangeQueue | None = None
    _unwritten: UnwrittenRows = field(default_factory=UnwrittenRows)
    _unwritten_lock: threading.Lock = field(default_factory=threading.Lock)
    _reason: str = ""
    _deferred_reasons: dict[int, str] = field(default_factory=dict)

    def run(self, ledger: LedgerState, state: IncrementalState) -> WindowResult:
        """Run the window; the ledger's last batch is complete.

        Args:
            ledger: The ledger.
            state: Its state with advanced cursors; it has runnable scans.

        Raises:
            CdcError: The window failed; if its batch was in force, the outcome record contains the error.
        """
        try:
            with named_errors(self.cfg):
                return self._run_window(ledger, state)
        except CdcError as error:
            if self._begun_batch is not None:
                self.job.write_outcome(self._begun_batch.plan, error=error)
            raise

    def _run_window(self, ledger: LedgerState, state: IncrementalState) -> WindowResult:
        start, last_plan = ledger.end(), ledger.plan_in_force()
        if start is None:
            raise StateError(
                "a window cannot begin while a batch is incomplete", where=f"epoch {last_plan.epoch}", retriable=True
            )
        scans = select_scans(state.runnable_scans, self.deferred_scans)
        require_recorded_history(self.cfg, ledger)
        validity = ScanValidity(start, record_format_digest(self.cfg), scans, self.cfg.captures)
        # Scans that continue are checked against the whole history; if all of them begin, the job's cache is enough.
        stored_history = None if validity.scans else self.job.history_cache
        schema_state = load_schema_state(
            self.cfg,
            until=start,
            epoch=last_plan.epoch + 1,
            on_record=validity.check_record,
            since=[scan.start_offset for scan in validity.scans if scan.start_offset is not None],
            cache=stored_history,
        )
        barrier = TaskBarrier(self._task_count(), BARRIER_TIMEOUT_S)

        def lead(stage_ended: threading.Event) -> None:
            self._run_stages(barrier, ledger, (scans, validity), schema_state)

        task_counts = StageRunner(self.cfg, self.runner, self.job.schema_ids).run_barrier(
            run_window_task,
            StageLeader(self.cfg, barrier, lead, "the driver of a window failed", BARRIER_TIMEOUT_S),
            WriterInputs(schema_state, new_run_id(), server_variables(self.conn)),
            self._handlers(barrier),
        )
        return self._finish(task_counts)

    def _task_count(self) -> int:
        parallelism = self.cfg[F.SNAPSHOT_PARALLELISM]
        slots = self.runner.slots(parallelism)
        return max(1, min(parallelism or slots, slots))

    def _handlers(self, barrier: TaskBarrier) -> list[TaskHandler]:
        return [
            barrier.handler(READY),
            barrier.handler(OPENED),
            ROWS_UNWRITTEN.handled_by(self._add_unwritten),
            barrier.handler(DRAINED),
            PROGRESS.handled_by(lambda task, report: self._required_progress().update(task, report)),
            # The batch of a window is continued, and shortened, by a drain.
            SCHEMA_REFUSED.handled_by(lambda task, refusal: EMPTY),
            NEXT_RANGE.handled_by(lambda task, request: self._required_queue().next(task, request)),
            RANGE_DONE.handled_by(lambda task, request: self._required_queue().mark_done(task, request)),
            RANGE_RETURNED.handled_by(lambda task, request: self._required_queue().mark_unreadable(task, request)),
        ]

    def _add_unwritten(self, _task: int, unwritten: UnwrittenRows) -> EmptyMessage:
        """Add the changes that a task has not written."""
        with self._unwritten_lock:
            self._unwritten.merge(unwritten)
        return EMPTY

    def _required_progress(self) -> DrainProgress:
        assert self._progress is not None  # a task writes after it was released from OPENED
        return self._progress

    def _required_queue(self) -> KeyRangeQueue:
        assert self._queue is not None  # a task reads after it was released from DRAINED
        return self._queue

    def _run_stages(
        self, barrier: TaskBarrier, ledger: LedgerState, scans: WindowScans, start_schema: SchemaState
    ) -> None:
        """Take the tasks from one point of their barrier to the next, while their stage runs."""
        barrier.wait(READY)
        tables = tuple(dict.fromkeys(scan.table for scan in scans[0]))
        server_uuid = answering_server(self.conn)
        lock_needed = needs_lock(self.cfg, self.conn, scans[0], start_schema)
        try:
            with low_watermark(self.cfg, self.conn, tables, lock=lock_needed) as low:
                barrier.release(READY, ReadyReply(WindowStart(tables, low.offset, low.row_id, server_uuid)))
                barrier.wait(OPENED)
        except WatermarkUnavailable as error:
            self._reason = str(error)
            before = read_incremental_state(ledger)
            unreadable = [scan.unreadable(str(error)) for scan in scans[0] if scan.initial]
            self._write_state(before, before.with_scans(unreadable))
            barrier.release(READY, ReadyReply())
            return
        start, epoch = ledger.end(), ledger.plan_in_force().epoch + 1
        assert start is not None
        plan = plan_window_batch(
            self.cfg,
            self.conn,
            (start, low.offset if low.locked else None),
            epoch,
            self.owner,
            self.weights,
            ledger.prepared(),
            barrier.tasks,
        )
        self._begun_batch = begin_batch(self.cfg, self.job, plan, self.log, start_schema, offsets_checked=True)
        self._progress = DrainProgress(self._begun_batch.plan, self.log, metrics=self.job.metrics)
        self._queue = self._build_queue(self._begun_batch.ledger, scans, start_schema)
        self._queue.on_assigned = KeyRangeMeter(self.conn, self.job.metrics).on_assigned
        barrier.release(OPENED, PlanReply(self._begun_batch.plan))
        barrier.wait(DRAINED, unlimited=True)
        blocking = any(scan.kind == "blocking" for scan in scans[0])
        self._queue.deadline = float("inf") if blocking else time.monotonic() + READ_TIME_S
        barrier.release(DRAINED, self._unwritten)

    def _build_queue(self, ledger: LedgerState, window_scans: WindowScans, schema_state: SchemaState) -> KeyRangeQueue:
        """Determine and store the range of waiting scans, and return the queue of all running ones.

        The ledger is read after earlier attempts are fenced: until then one of their tasks may have committed.
        """
        before = read_incremental_state(ledger)
        active_scans = {scan.number: scan for scan in before.with_advanced_cursors().active_scans}
        scans = [active_scans[scan.number] for scan in window_scans[0] if scan.number in active_scans]
        # A statement that waits for the tasks' views to close blocks all later queries of the table. A condition that
        # takes too long is ended by the server (error 3024), before the client drops the connection, which would
        # fail the run.
        max_query_ms = self.cfg[F.DATABASE_QUERY_TIMEOUT_MS] * 9 // 10
        with self.conn.cursor() as cursor:
            cursor.execute(f"SET SESSION lock_wait_timeout = {LOCK_WAIT_S}, max_execution_time = {max_query_ms}")
        resumed = [self._resume_scan(scan, window_scans[1], schema_state) for scan in scans]
        restarted = {scan.number for scan, now in zip(scans, resumed, strict=True) if now is not scan}
        resumed = [scan if scan.number in restarted else with_last_key(self.conn, scan) for scan in resumed]
        after = before.with_advanced_cursors().with_scans(resumed).without_ranges(restarted).with_advanced_cursors()
        renamed = [(scan, name) for scan, name in window_scans[1].renamed(scans) if self.cfg.captures(name)]
        for scan, name in renamed:
            self.log(f"{scan.table} was renamed to {name} before the snapshot had read it; it is read as {name}")
        after = follow_renamed(after, renamed, window_scans[1].stream_offset)
        self._write_state(before, after)
        running = [scan for scan in resumed if scan.state == "running"]
        return KeyRangeQueue.for_scans(
            self.conn, after, running, self.cfg[F.INCREMENTAL_SNAPSHOT_CHUNK_SIZE], float("inf"), self.log
        )

    def _resume_scan(self, scan: TableScan, validity: ScanValidity, schema_state: SchemaState) -> TableScan:
        invalid_reason = validity.invalid_reasons.get(scan.number)
        if invalid_reason is not None:
            self.log(f"snapshot of {scan.table} restarts from the beginning: {invalid_reason}")
        table, captured = schema_state.tables.get(scan.table), self.cfg.captures(scan.table)

        def on_deferred(reason: str) -> None:
            self.log(f"snapshot of {scan.table} begins in a later window: {reason}")
            self._deferred_reasons[scan.number] = reason

        resumed = resume_scan(
            self.conn,
            scan,
            table,
            captured=captured,
            invalid=invalid_reason is not None,
            whole_table=scan.initial and self.cfg.select_override(scan.table) is not None,
            on_deferred=on_deferred,
        )
        if resumed is scan or (resumed.state != "running" and not scan.initial):
            return resumed
        return resumed.with_validity(validity.stream_offset, validity.format_digest)

    def _write_state(self, before: IncrementalState, after: IncrementalState) -> None:
        """Write the state and its notifications in one transaction."""
        if records := self._state_records(before, after):
            self.job.commit(records)

    def _state_records(self, before: IncrementalState, after: IncrementalState) -> list[SideRecord]:
        """Return the records of the state and its notifications."""
        done_ranges = self._queue.done_ranges if self._queue is not None else []
        notifications = list(notices.changed(before, after, done_ranges))
        for line in notices.log_lines(notifications):
            self.log(line)
        return state_records(self.cfg, self.job, before, after, notifications)

    def _finish(self, task_counts: list[dict[str, int]]) -> WindowResult:
        """Finish the window; the key ranges of its tasks are committed in the ledger already."""
        if self._begun_batch is None or self._queue is None or self._progress is None:
            return WindowResult({}, 0, self._reason)
        totals = finish_batch(self.job, self.cfg, self._begun_batch, task_counts)
        faults.fault_point("incremental.before_books")
        ledger = self.job.read(chunks=False)
        before = read_incremental_state(ledger)
        for done_range in self._queue.done_ranges:
            if done_range.rows and (scan := before.scans.get(done_range.key_range.scan_number)) is not None:
                self.job.add_table_counts({scan.table.path(): done_range.rows})
        advanced = before.with_advanced_cursors()
        unreadable = [
            advanced.scans[number].unreadable(reason)
            for number, reason in self._queue.blocked_scans(permanent=True).items()
            if number in advanced.scans and not advanced.scans[number].ended
        ]
        after = advanced.with_scans(unreadable).with_advanced_cursors().with_counted_rows()
        waiting = {scan.number: scan.reason for scan in unreadable if not scan.ended}
        blocked = self._deferred_reasons | self._queue.blocked_scans(permanent=False) | waiting
        suspects = {before.scans[number].table for number in blocked if number in before.scans}
        # What cannot be read may have another structure than the schema history has.
        end = self._begun_batch.plan.end
        unchecked = unchecked_records(self.cfg.ledger_topic, ledger, suspects, f"{end.file}:{end.pos}")
        records = [*self._state_records(before, after), *unchecked]
        self.log(self._progress.summary(totals, self.job.native_counts.text()))
        self.job.write_outcome(self._begun_batch.plan, counts=totals, records=records)
        check_structures(self.cfg, self.job, self._begun_batch.plan, self.job.latest(), self.log)
        reason = "; ".join(sorted(set(blocked.values())))
        return WindowResult(totals, len(self._queue.done_ranges), reason, frozenset(blocked))


def select_scans(runnable_scans: Sequence[TableScan], deferred_scans: frozenset[int]) -> list[TableScan]:
    """Return the scans of a window; those that could not continue before do not displace others.

    Args:
        runnable_scans: The runnable scans, in their order.
        deferred_scans: Orders of scans that could not continue.
    """
    return sorted(runnable_scans, key=lambda scan: scan.number in deferred_scans)[:MAX_SCANS_PER_WINDOW]
