"""Process pending signals between two batches, each exactly once, even after a failure.

The new state, the notifications, the deletion of the signals' records and the offset in the Kafka signal topic are
written in one Kafka transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, cast

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import SIGNAL_OFFSET_KEY
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState, ProcessedSignals
from airflow_provider_mysql_cdc.cdc.commit.unread_tables import earlier_lists
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.drain.between_batches import records_between_batches
from airflow_provider_mysql_cdc.cdc.emit.envelope import new_run_id
from airflow_provider_mysql_cdc.cdc.faults import fault_point
from airflow_provider_mysql_cdc.cdc.formats import record_topics, table_options
from airflow_provider_mysql_cdc.cdc.incremental import notifications as notices
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import (
    IncrementalState,
    StopTime,
    read_incremental_state,
)
from airflow_provider_mysql_cdc.cdc.incremental.notifications import state_records
from airflow_provider_mysql_cdc.cdc.incremental.scan_updates import (
    SnapshotRequest,
    is_new_request,
    is_reported,
    new_tables_signal,
    queue_scans,
    record_refusal,
    restart_scans,
    scans_after_stop,
    set_paused,
    stop_scans,
)
from airflow_provider_mysql_cdc.cdc.incremental.set_binlog_position import (
    PositionMove,
    find_move,
    move_plan,
    signals_taken_before,
    signals_taken_records,
)
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.model.clock import now_ms
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema.history import load_schema_state
from airflow_provider_mysql_cdc.cdc.schema.table_changes import apply_all
from airflow_provider_mysql_cdc.cdc.schema.table_discovery import captured_tables
from airflow_provider_mysql_cdc.cdc.signals import notification_record
from airflow_provider_mysql_cdc.cdc.signals.actions import (
    ExecuteSnapshot,
    LogMessage,
    PauseSnapshot,
    ResumeSnapshot,
    SchemaChanges,
    SetBinlogPosition,
    SignalAction,
    SignalRefused,
    StopSnapshot,
    match_tables,
    quoting_mode,
    require_contained,
)
from airflow_provider_mysql_cdc.cdc.signals.content_digest import content_digest
from airflow_provider_mysql_cdc.cdc.signals.kafka_channel import has_new_signals, in_time_order, poll_signals
from airflow_provider_mysql_cdc.cdc.signals.notification_record import Notification, NotificationType
from airflow_provider_mysql_cdc.cdc.signals.signal import Signal, pending_signals, read_action
from airflow_provider_mysql_cdc.cdc.signals.signal_table import watermark_obstacle

MAX_CONDITION_BYTES = 16 * 2**20
"""Bytes of the conditions of all active scans: each scan's record has its own, and each run reads all of them."""


class SignalRefusal(NamedTuple):
    """Tell why a signal is not carried out.

    Args:
        signal: The signal.
        reason: What is wrong with it.
        unknown_tables: Its tables, if it requests an incremental snapshot and captures none of them.
    """

    signal: Signal
    reason: str
    unknown_tables: Sequence[str] = ()


@dataclass(slots=True)
class SignalProcessor:
    """Apply signals to the state of ad-hoc snapshots.

    Args:
        cfg: The connector's configuration.
        conn: An open connection to the source.
        job: The ledger; nothing is written to it here.
        ledger: Its content.
        log: Writes one line to the log.
        state: The state, updated by each signal.
        notifications: Notifications to publish.
        refused: Signals that cannot be carried out.
        move: A move of the stream to another position, or None.
        schema_records: Table structures for the schema history and the schema change topic.
    """

    cfg: ConnectorConfig
    conn: MySqlConnection
    job: JobLedger
    ledger: LedgerState
    log: Log
    state: IncrementalState
    notifications: list[Notification] = field(default_factory=list)
    refused: list[SignalRefusal] = field(default_factory=list)
    move: PositionMove | None = None
    schema_records: list[SideRecord] = field(default_factory=list)
    _signal: Signal = field(default_factory=lambda: Signal("", "", "", "airflow"))
    _digest: str = ""
    _schema_state: SchemaState | None = None
    _taken_before: list[ProcessedSignals | None] = field(default_factory=list)
    _captured_tables: tuple[TableId, ...] | None = None

    def process(self, signal: Signal) -> None:
        """Carry out one signal, or record why it is refused.

        Args:
            signal: The signal.

        Raises:
            CdcError: The source or Kafka cannot be reached; the signal stays pending.
        """
        if (taken := self._taken_before_move(signal)) is not None:
            if signal.applied:  # like a DDL statement of the binlog, which is read again as well
                return
            self.log(
                f"signal {signal.id} ({signal.type}) at {signal.position} is not carried out again: the stream "
                "had reached "
                f"{taken.offset} before it was moved back; send the signal again if the stream had skipped it"
            )
            return
        self._signal, self._digest = signal, content_digest(signal)
        try:
            action = read_action(signal, self.cfg[F.SIGNAL_TRUSTED_CHANNELS])
            if signal.applied:
                self._report_applied(action, f"from {signal.position} on")
                return
            _HANDLERS[type(action)](self, action)
        except SignalRefused as error:
            self._refuse(SignalRefusal(signal, error.reason, error.unknown_tables))

    def _refuse(self, refusal: SignalRefusal) -> None:
        """Record why a signal is refused; a copy of one whose outcome was reported is only logged."""
        signal, reason, _ = refusal
        reported = bool(signal.id) and is_reported(self.state, signal.id, reason, self._digest)
        suffix = " (no notification: this id and content were reported before)" if reported else ""
        self.log(f"signal {signal.id} ({signal.type}, channel {signal.channel}) is refused: {reason}{suffix}")
        if not reported:
            self.refused.append(refusal)
            if signal.id:
                self.state = record_refusal(self.state, signal.id, reason, now_ms(), self._digest)

    def execute_snapshot(self, action: SignalAction) -> None:
        """Queue the scans of a signal."""
        snapshot = cast(ExecuteSnapshot, action)
        self._require_new(snapshot)
        tables, unmatched = match_tables(snapshot.collections, self._list_captured())
        for entry in unmatched:
            self.log(f"signal {snapshot.signal_id}: no captured table matches {entry}")
        if snapshot.collections and not tables:
            refusal = "no captured table matches " + ", ".join(snapshot.collections)[:1000]
            raise SignalRefused(refusal, unmatched if snapshot.kind == "incremental" else ())
        if (reason := watermark_obstacle(self.conn, self.cfg)) is not None:
            raise SignalRefused(reason)
        conditions = {t: sql for t in tables if (sql := snapshot.condition(t)) is not None}
        if snapshot.kind == "blocking" and any(
            sql.lstrip().upper().startswith("SELECT") for sql in conditions.values()
        ):
            raise SignalRefused(
                "the condition of a blocking snapshot must be a WHERE condition, not a SELECT statement"
            )
        self._check_conditions(conditions)
        self._queue(SnapshotRequest(snapshot.signal_id, snapshot.kind, tables, conditions, snapshot.surrogate_key))
        self.log(f"signal {snapshot.signal_id}: {snapshot.kind} snapshot of {len(tables)} table(s)")
        blocking = snapshot.kind == "blocking"
        if blocking:
            self.notifications.append(notices.started(self.state, snapshot.signal_id, blocking=True))
        else:
            self.notifications += notices.started_with_unknown(self.state, snapshot.signal_id, unmatched)
        if not tables:
            self.notifications.append(notices.completed(snapshot.signal_id, blocking=blocking))

    def _queue(self, request: SnapshotRequest) -> None:
        """Queue what the signal requests, with its content and its time."""
        sequence, sent_ms = self._signal.sequence, self._signal.sent_ms
        request = replace(request, digest=self._digest, sequence=sequence, sent_ms=sent_ms)
        self.state = queue_scans(self.state, request, now_ms())

    def _check_conditions(self, conditions: Mapping[TableId, str]) -> None:
        """Refuse conditions that would change the rest of the query, or that are too large for the ledger.

        Args:
            conditions: Conditions by table.
        """
        if not conditions:
            return
        mode = quoting_mode(self.conn)
        for sql in set(conditions.values()):
            require_contained(sql, mode)
        active_conditions = [scan.condition or "" for scan in self.state.active_scans]
        size = sum(len(sql.encode()) for sql in (*active_conditions, *conditions.values()))
        if size > MAX_CONDITION_BYTES:
            raise SignalRefused(
                f"its conditions, one for each of {len(conditions)} table(s), and those of the running snapshots have "
                f"{size} bytes; the limit is {MAX_CONDITION_BYTES}"
            )

    def stop_snapshot(self, action: SignalAction) -> None:
        """Abort scans."""
        entries = cast(StopSnapshot, action).collections
        active_tables = [scan.table for scan in self.state.active_scans if scan.kind == "incremental"]
        tables = match_tables(entries, active_tables)[0] if entries else None
        before, stop = self.state, StopTime(self._signal.sequence, self._signal.sent_ms)
        self.state = stop_scans(before, tables, stop)
        self.notifications += notices.stopped(before, self.state, tables)
        self.log(
            f"signal {action.signal_id}: the snapshots of "
            f"{len(before.active_scans) - len(self.state.active_scans)} table(s) are stopped"
        )
        if later := scans_after_stop(before, tables, stop):
            requests = ", ".join(dict.fromkeys(scan.request for scan in later))
            self.log(
                f"signal {action.signal_id}: the snapshots of {len(later)} table(s) continue, because it is not "
                f"certain that they were requested before it was sent: {requests}; send stop-snapshot again to stop "
                "them"
            )

    def pause_or_resume(self, action: SignalAction) -> None:
        """Pause scans, or resume them."""
        paused = isinstance(action, PauseSnapshot)
        before, self.state = self.state, set_paused(self.state, paused=paused)
        if before.paused != self.state.paused:
            kind = NotificationType.PAUSED if paused else NotificationType.RESUMED
            self.notifications += notices.paused_or_resumed(self.state, kind)
        self.log(f"signal {action.signal_id}: ad-hoc snapshots {'are paused' if self.state.paused else 'continue'}")

    def log_message(self, action: SignalAction) -> None:
        """Write a line to the log."""
        self.log(cast(LogMessage, action).render(self.ledger.end()))

    def set_binlog_position(self, action: SignalAction) -> None:
        """Move the stream to another position; the last one of several such signals is used."""
        self._require_new(action)
        if self.schema_records:
            raise SignalRefused(
                "another pending signal changes table structures at the current position; send this one again after it"
            )
        move = find_move(self.cfg, self.conn, self.job, self.ledger, cast(SetBinlogPosition, action))
        self.log(f"signal {action.signal_id}: {move.log_line()}")
        self.move = move
        self._complete(action, move.notification_data())

    def apply_schema_changes(self, action: SignalAction) -> None:
        """Apply the table structures of a signal without a binlog position: they are in force after the last batch."""
        self._require_new(action)
        changes, stream_offset = cast(SchemaChanges, action).parse_changes(self.cfg), self.ledger.end()
        if stream_offset is None or self.move is not None:
            raise SignalRefused("another pending signal moves the stream; send this one again after it")
        epoch = self.ledger.plan_in_force().epoch
        if self._schema_state is None:
            self._schema_state = load_schema_state(self.cfg, until=stream_offset, epoch=epoch + 1)
        self._schema_state, applied_changes = apply_all(self._schema_state, changes)
        self.schema_records += records_between_batches(self.cfg, changes, applied_changes, stream_offset, epoch)
        self._report_applied(action, f"from {stream_offset} on")

    def _report_applied(self, action: SignalAction, where: str) -> None:
        """Report that table structures are in force."""
        changes = cast(SchemaChanges, action).changes
        tables = notification_record.join_names(str(change.get("id", "")) for change in changes)
        self.log(f"signal {action.signal_id}: its table structures are in force {where}: {tables}")
        self._complete(action, {notification_record.DATA_COLLECTIONS: tables})

    def _complete(self, action: SignalAction, additional_data: Mapping[str, str]) -> None:
        """Record that a signal other than a snapshot was carried out."""
        if action.signal_id:
            self._queue(SnapshotRequest(action.signal_id, "incremental", (), {}))
        self.notifications.append(
            Notification(NotificationType.COMPLETED, action.signal_id, additional_data, notification_record.SIGNAL)
        )

    def _require_new(self, action: SignalAction) -> None:
        if not is_new_request(self.state, action.signal_id, self._digest):
            raise SignalRefused(
                "a signal with this id was carried out before; it is not carried out again: send it with another id"
            )

    def _taken_before_move(self, signal: Signal) -> ProcessedSignals | None:
        """Return up to where signals were read before the stream was moved, if that includes this signal."""
        if signal.position is None or self.ledger.processed_signals is None:
            return None
        if not self._taken_before:
            self._taken_before.append(signals_taken_before(self.cfg, self.conn, self.ledger))
        taken = self._taken_before[0]
        return taken if taken is not None and taken.covers(signal.position, signal.epoch) else None

    def _list_captured(self) -> tuple[TableId, ...]:
        if self._captured_tables is None:
            self._captured_tables = tuple(captured_tables(self.conn, self.cfg))
        return self._captured_tables


_HANDLERS: Mapping[type[SignalAction], Callable[[SignalProcessor, SignalAction], None]] = {
    ExecuteSnapshot: SignalProcessor.execute_snapshot,
    StopSnapshot: SignalProcessor.stop_snapshot,
    PauseSnapshot: SignalProcessor.pause_or_resume,
    ResumeSnapshot: SignalProcessor.pause_or_resume,
    LogMessage: SignalProcessor.log_message,
    SetBinlogPosition: SignalProcessor.set_binlog_position,
    SchemaChanges: SignalProcessor.apply_schema_changes,
}


def process_signals(
    cfg: ConnectorConfig, conn: MySqlConnection, job: JobLedger, ledger: LedgerState, log: Log, owner: str = ""
) -> tuple[IncrementalState, bool]:
    """Carry out all pending signals.

    Args:
        cfg: The connector's configuration.
        conn: An open connection to the source.
        job: The ledger; its last batch is complete.
        ledger: Its content.
        log: Writes one line to the log.
        owner: The id of this run.

    Returns:
        The new state, as stored in the ledger, and whether the stream was moved, which ends the drain.

    Raises:
        CdcError: The source or Kafka fails; all signals stay pending.
    """
    before = read_incremental_state(ledger)
    state = before.with_advanced_cursors()
    # Also those that an earlier run has read completely, and whose end it did not write.
    ended = list(notices.changed(before, state))
    processor = SignalProcessor(cfg, conn, job, ledger, log, state, ended)
    pending = pending_signals(ledger.signals)
    polled = poll_signals(cfg, ledger)
    for line in (*notices.log_lines(ended), *polled.log_lines):
        log(line)
    for signal in in_time_order(
        [signal for _, signal in (*pending, *polled.signals)], lambda s: s.sequence, lambda s: s.sent_ms
    ):
        processor.process(signal)
    if (new_tables := new_tables_signal(cfg, ledger, processor.state)) is not None and processor.move is None:
        processor.process(new_tables)
    move = processor.move
    if move is not None and move.needed:
        processor.state = restart_scans(processor.state, move.target)
    records = [*processor.schema_records, *state_records(cfg, job, before, processor.state, processor.notifications)]
    records += _refusal_records(cfg, processor.refused)
    records += [SideRecord(cfg.ledger_topic, key.encode(), None) for key, _ in pending]
    if polled.new_offset is not None:
        records.append(job.record(SIGNAL_OFFSET_KEY, polled.new_offset))
    fault_point("signals.before_commit")
    if move is not None and move.needed:
        plan = move_plan(ledger, move, owner)
        job.begin(plan, [*move.history_records, *signals_taken_records(job, ledger, plan.epoch), *records])
        return processor.state, True
    if records:
        job.commit(records, {record_topics.schema_change_topic(cfg): table_options.headers(cfg, new_run_id())})
    return processor.state, False


def _refusal_records(cfg: ConnectorConfig, refused: Iterable[SignalRefusal]) -> Iterator[SideRecord]:
    """Yield the notifications of refused signals; unknown tables are reported as by Debezium."""
    for signal, reason, unknown_tables in refused:
        if unknown_tables:
            notifications = [
                *notices.started_with_unknown(IncrementalState(), signal.id, unknown_tables),
                notices.completed(signal.id),
            ]
            yield from notification_record.notification_records(cfg, notifications)
        elif (record := notification_record.refusal_record(cfg, signal, reason, now_ms())) is not None:
            yield record


def has_pending_work(cfg: ConnectorConfig, ledger: LedgerState) -> bool:
    """Return whether a drain has something to do even if the binlog has no new events.

    Args:
        cfg: The connector's configuration.
        ledger: The ledger.
    """
    state = read_incremental_state(ledger)
    if ledger.signals or state.runnable_scans or earlier_lists(cfg, ledger) is not None:
        return True
    if (new_tables := new_tables_signal(cfg, ledger, state)) is not None and new_tables.id not in state.requests:
        return True
    return has_new_signals(cfg, ledger)
