"""Carry out the signals that wait, between two batches: each exactly once, whatever ends the run.

New books, the notifications, the deletion of the signals' own records and the place in the Kafka signal topic are one
Kafka transaction.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState, SignalsTaken
from airflow_provider_mysql_cdc.cdc.commit.plan import SIGNAL_OFFSET_KEY
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.drain.ddl_events import between_batches
from airflow_provider_mysql_cdc.cdc.emit.headers import new_run_id
from airflow_provider_mysql_cdc.cdc.faults import fault_point
from airflow_provider_mysql_cdc.cdc.formats import wiring
from airflow_provider_mysql_cdc.cdc.incremental import notifications as notices
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import Books, books_of, changes
from airflow_provider_mysql_cdc.cdc.incremental.notifications import Notice
from airflow_provider_mysql_cdc.cdc.incremental.scan_requests import Wanted, anew, ask, pause, refuse, stop
from airflow_provider_mysql_cdc.cdc.incremental.set_binlog_position import (
    Move,
    find_move,
    move_plan,
    taken_before,
    taken_records,
)
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema.history import load_state
from airflow_provider_mysql_cdc.cdc.schema.table_changes import apply_all
from airflow_provider_mysql_cdc.cdc.schema.table_discovery import captured_tables
from airflow_provider_mysql_cdc.cdc.signals import notification_record as notify
from airflow_provider_mysql_cdc.cdc.signals.actions import (
    Action,
    ExecuteSnapshot,
    LogMessage,
    PauseSnapshot,
    ResumeSnapshot,
    SchemaChanges,
    SetBinlogPosition,
    StopSnapshot,
)
from airflow_provider_mysql_cdc.cdc.signals.conditions import quoting_mode, require_contained
from airflow_provider_mysql_cdc.cdc.signals.kafka_channel import poll, signals_wait
from airflow_provider_mysql_cdc.cdc.signals.notification_record import NotificationType
from airflow_provider_mysql_cdc.cdc.signals.signal import Signal, read_action, waiting
from airflow_provider_mysql_cdc.cdc.signals.signal_table import unfit
from airflow_provider_mysql_cdc.cdc.signals.table_names import SignalRefused, match_tables
from airflow_provider_mysql_cdc.cdc.sink.record_writer import SideRecord

MAX_CONDITIONS = 16 * 2**20
"""Bytes of the conditions of all scans at work: the record of each scan holds its own, and each run reads them all."""


@dataclass(slots=True)
class Taking:
    """Carry signals out on the books.

    Args:
        cfg: The connector's configuration.
        conn: An open connection to the source.
        job: The ledger, to which nothing is written here.
        ledger: What it holds.
        log: Takes one line of text.
        books: The books, which go on changing.
        notices: What is to be told.
        refused: Signals that cannot be carried out, with the reasons.
        move: Where the stream goes on instead of behind its last batch.
        records: Structures for the schema history and the schema change topic.
    """

    cfg: ConnectorConfig
    conn: Any
    job: JobLedger
    ledger: LedgerState
    log: Log
    books: Books
    notices: list[Notice] = field(default_factory=list)
    refused: list[tuple[Signal, str]] = field(default_factory=list)
    move: Move | None = None
    records: list[SideRecord] = field(default_factory=list)
    _state: SchemaState | None = None
    _taken: list[SignalsTaken | None] = field(default_factory=list)
    _captured: tuple[TableId, ...] | None = None

    def take(self, signal: Signal) -> None:
        """Carry one signal out, or write down why not.

        Args:
            signal: The signal.

        Raises:
            CdcError: The source or Kafka cannot be asked; the signal waits on.
        """
        if (taken := self._done_before(signal)) is not None:
            if signal.applied:  # as a statement of the binlog, which comes again too
                return
            self.log(
                f"signal {signal.id} ({signal.type}) stands at {signal.place}, before {taken.offset}, where the stream "
                "was before it was moved: it is not carried out again; send it anew if the stream had skipped it then"
            )
            return
        try:
            action = read_action(signal, self.cfg[F.SIGNAL_TRUSTED_CHANNELS])
            if signal.applied:
                self._applied(action, f"from {signal.place} on")
                return
            _HANDLERS[type(action)](self, action)
        except SignalRefused as error:
            self.log(f"signal {signal.id} ({signal.type}, channel {signal.channel}) is refused: {error}")
            self.refused.append((signal, str(error)))
            if signal.id:
                self.books = refuse(self.books, signal.id, str(error), _now())

    def execute(self, action: Action) -> None:
        """Queue the scans of a signal."""
        wanted = cast(ExecuteSnapshot, action)
        self._require_new(wanted)
        tables, nothing = match_tables(wanted.collections, self._tables())
        for entry in nothing:
            self.log(f"signal {wanted.signal_id}: no captured table is {entry}")
        if wanted.collections and not tables:
            raise SignalRefused("no captured table matches " + ", ".join(wanted.collections)[:1000])
        if (reason := unfit(self.conn, self.cfg)) is not None:
            raise SignalRefused(reason)
        conditions = {t: sql for t in tables if (sql := wanted.condition(t)) is not None}
        if wanted.kind == "blocking" and any(sql.lstrip().upper().startswith("SELECT") for sql in conditions.values()):
            raise SignalRefused("a blocking snapshot takes a condition for WHERE, not a statement of its own")
        self._require_sound(conditions)
        request = Wanted(wanted.signal_id, wanted.kind, tables, conditions, wanted.surrogate_key)
        self.books = ask(self.books, request, _now())
        self.log(f"signal {wanted.signal_id}: {wanted.kind} snapshot of {len(tables)} table(s)")
        self.notices.append(notices.started(self.books, wanted.signal_id))
        if not tables:
            self.notices.append(Notice(NotificationType.COMPLETED, wanted.signal_id))

    def _require_sound(self, conditions: Mapping[TableId, str]) -> None:
        """Refuse conditions that reach beyond their place in a query, or that the ledger would have to hold too often.

        Args:
            conditions: Conditions by table.
        """
        if not conditions:
            return
        mode = quoting_mode(self.conn)
        for sql in set(conditions.values()):
            require_contained(sql, mode)
        held = [scan.condition or "" for scan in self.books.active]
        size = sum(len(sql.encode()) for sql in (*held, *conditions.values()))
        if size > MAX_CONDITIONS:
            raise SignalRefused(
                f"its conditions, one for each of {len(conditions)} table(s), and those of the snapshots at work have "
                f"{size} bytes; {MAX_CONDITIONS} are taken"
            )

    def stop(self, action: Action) -> None:
        """Give up scans."""
        entries = cast(StopSnapshot, action).collections
        active = [scan.table for scan in self.books.active]
        tables = match_tables(entries, active)[0] if entries else None
        before = self.books
        self.books = stop(before, tables)
        self.notices += notices.ended(before, self.books)
        self.log(f"signal {action.signal_id}: {len(before.active) - len(self.books.active)} table(s) are not read on")

    def rest(self, action: Action) -> None:
        """Let scans rest, or go on."""
        paused = isinstance(action, PauseSnapshot)
        before, self.books = self.books, pause(self.books, paused=paused)
        if before.paused != self.books.paused:
            kind = NotificationType.PAUSED if paused else NotificationType.RESUMED
            tables = ", ".join(dict.fromkeys(str(scan.table) for scan in self.books.active))
            self.notices.append(Notice(kind, action.signal_id, {notify.DATA_COLLECTIONS: tables}))
        self.log(f"signal {action.signal_id}: ad-hoc snapshots {'rest' if self.books.paused else 'go on'}")

    def say(self, action: Action) -> None:
        """Write a line into the log."""
        self.log(cast(LogMessage, action).line(self.ledger.end()))

    def go_to(self, action: Action) -> None:
        """Let the stream go on elsewhere; of several such signals the last counts."""
        self._require_new(action)
        if self.records:
            raise SignalRefused("another signal tells structures where the stream stands; send it again behind that")
        move = find_move(self.cfg, self.conn, self.job, self.ledger, cast(SetBinlogPosition, action))
        self.log(f"signal {action.signal_id}: {move.line()}")
        self.move = move
        self._done(action, move.told())

    def structures(self, action: Action) -> None:
        """Put structures in force that a signal tells which has no place of its own: behind the last batch."""
        self._require_new(action)
        changes, here = cast(SchemaChanges, action).told(self.cfg), self.ledger.end()
        if here is None or self.move is not None:
            raise SignalRefused("the stream is moved by another signal; send it again behind that")
        epoch = self.ledger.plan_in_force().epoch
        if self._state is None:
            self._state = load_state(self.cfg, until=here, epoch=epoch + 1)
        self._state, done = apply_all(self._state, changes)
        self.records += between_batches(self.cfg, changes, done, here, epoch)
        self._applied(action, f"from {here} on")

    def _applied(self, action: Action, where: str) -> None:
        """Write down that structures are in force."""
        changes = cast(SchemaChanges, action).changes
        tables = ", ".join(str(change.get("id", "")) for change in changes)
        self.log(f"signal {action.signal_id}: the structures that it tells hold {where}: {tables}")
        self._done(action, {notify.DATA_COLLECTIONS: tables})

    def _done(self, action: Action, told: Mapping[str, str]) -> None:
        """Write down that a signal that is no snapshot is carried out."""
        if action.signal_id:
            self.books = ask(self.books, Wanted(action.signal_id, "incremental", (), {}), _now())
        self.notices.append(Notice(NotificationType.COMPLETED, action.signal_id, told, notify.SIGNAL))

    def _require_new(self, action: Action) -> None:
        if action.signal_id in self.books.requests:
            raise SignalRefused("a signal of this id has been carried out before; nothing is done again")

    def _done_before(self, signal: Signal) -> SignalsTaken | None:
        """Return what says that a row of the signal table was carried out before the stream was moved."""
        if signal.place is None or self.ledger.signals_taken is None:
            return None
        if not self._taken:
            self._taken.append(taken_before(self.cfg, self.conn, self.ledger))
        taken = self._taken[0]
        return taken if taken is not None and taken.covers(signal.place, signal.epoch) else None

    def _tables(self) -> tuple[TableId, ...]:
        if self._captured is None:
            self._captured = tuple(captured_tables(self.conn, self.cfg))
        return self._captured


_HANDLERS: Mapping[type[Action], Callable[[Taking, Action], None]] = {
    ExecuteSnapshot: Taking.execute,
    StopSnapshot: Taking.stop,
    PauseSnapshot: Taking.rest,
    ResumeSnapshot: Taking.rest,
    LogMessage: Taking.say,
    SetBinlogPosition: Taking.go_to,
    SchemaChanges: Taking.structures,
}


def take_signals(
    cfg: ConnectorConfig, conn: Any, job: JobLedger, ledger: LedgerState, log: Log, owner: str = ""
) -> tuple[Books, bool]:
    """Carry out all signals that wait.

    Args:
        cfg: The connector's configuration.
        conn: An open connection to the source.
        job: The ledger; its last batch is complete.
        ledger: What it holds.
        log: Takes one line of text.
        owner: Who runs.

    Returns:
        The books behind them, which the ledger holds then; and whether the stream was moved, which ends the drain.

    Raises:
        CdcError: The source or Kafka fails; what waits goes on waiting.
    """
    before = books_of(ledger)
    taking = Taking(cfg, conn, job, ledger, log, before.folded())
    waits = waiting(ledger.signals)
    polled = poll(cfg, ledger)
    for line in polled.notes:
        log(line)
    for _, signal in (*waits, *polled.signals):
        taking.take(signal)
    move = taking.move
    if move is not None and move.needed:
        taking.books = anew(taking.books)
    told = [notify.refusal(cfg, signal, reason, _now()) for signal, reason in taking.refused]
    records = [*taking.records, *book_records(cfg, job, before, taking.books, taking.notices)]
    records += [record for record in told if record is not None]
    records += [(cfg.ledger_topic, key.encode(), None) for key, _ in waits]
    if polled.place is not None:
        records.append(job.record(SIGNAL_OFFSET_KEY, polled.place))
    fault_point("signals.before_commit")
    if move is not None and move.needed:
        plan = move_plan(ledger, move, owner)
        job.begin(plan, [*move.records, *taken_records(job, ledger, plan.epoch), *records])
        return taking.books, True
    if records:
        job.commit(records, {wiring.schema_topic(cfg): wiring.headers(cfg, new_run_id())})
    return taking.books, False


def book_records(
    cfg: ConnectorConfig, job: JobLedger, before: Books, after: Books, told: list[Notice]
) -> list[SideRecord]:
    """Return the records of a step of the books, with what is told of it.

    Args:
        cfg: The connector's configuration.
        job: The ledger.
        before: The books in the ledger.
        after: The books from now on.
        told: The notices.
    """
    records: list[SideRecord] = [
        (cfg.ledger_topic, key.encode(), None) if value is None else job.record(key, value)
        for key, value in changes(before, after)
    ]
    for notice in told:
        found = notify.notification(cfg, notice.aggregate, notice.type, notice.id, notice.additional, _now())
        if found is not None:
            records.append(found)
    return records


def _now() -> int:
    return time.time_ns() // 1_000_000


def work_waits(cfg: ConnectorConfig, ledger: LedgerState) -> bool:
    """Return whether a drain has something to do although nothing is new in the binlog.

    Args:
        cfg: The connector's configuration.
        ledger: The ledger.
    """
    if ledger.signals or books_of(ledger).work:
        return True
    return signals_wait(cfg, ledger)
