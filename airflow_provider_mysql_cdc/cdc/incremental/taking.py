"""Carry out the signals that wait, between two batches: each exactly once, whatever ends the run.

New books, the notifications, the deletion of the signals' own records and the place in the Kafka signal topic are one
Kafka transaction.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import SIGNAL_OFFSET_KEY
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.incremental import notices
from airflow_provider_mysql_cdc.cdc.incremental.asking import Wanted, ask, pause, refuse, stop
from airflow_provider_mysql_cdc.cdc.incremental.books import Books, books_of, changes
from airflow_provider_mysql_cdc.cdc.incremental.notices import Notice
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema.discover import captured_tables
from airflow_provider_mysql_cdc.cdc.signals import notify
from airflow_provider_mysql_cdc.cdc.signals.actions import (
    Action,
    ExecuteSnapshot,
    LogMessage,
    PauseSnapshot,
    ResumeSnapshot,
    StopSnapshot,
)
from airflow_provider_mysql_cdc.cdc.signals.kafka_channel import poll, signals_wait
from airflow_provider_mysql_cdc.cdc.signals.notify import NotificationType
from airflow_provider_mysql_cdc.cdc.signals.signal import Signal, read_action, waiting
from airflow_provider_mysql_cdc.cdc.signals.signal_table import unfit
from airflow_provider_mysql_cdc.cdc.signals.table_names import SignalRefused, match_tables
from airflow_provider_mysql_cdc.cdc.sink.api import SideRecord

Log = Callable[[str], None]


@dataclass(slots=True)
class Taking:
    """Carry signals out on the books.

    Args:
        cfg: The connector's configuration.
        conn: An open connection to the source.
        offset: Where the stream stands.
        log: Takes one line of text.
        books: The books, which go on changing.
        notices: What is to be told.
    """

    cfg: ConnectorConfig
    conn: Any
    offset: object
    log: Log
    books: Books
    notices: list[Notice] = field(default_factory=list)
    refused: list[tuple[Signal, str]] = field(default_factory=list)
    _captured: tuple[TableId, ...] | None = None

    def take(self, signal: Signal) -> None:
        """Carry one signal out, or write down why not.

        Args:
            signal: The signal.

        Raises:
            CdcError: The source or Kafka cannot be asked; the signal waits on.
        """
        try:
            action = read_action(signal, self.cfg[F.SIGNAL_TRUSTED_CHANNELS])
            handler = _HANDLERS.get(type(action))
            if handler is None:
                raise SignalRefused(f"{signal.type} is not carried out here: {_INSTEAD}")
            handler(self, action)
        except SignalRefused as error:
            self.log(f"signal {signal.id} ({signal.type}, channel {signal.channel}) is refused: {error}")
            self.refused.append((signal, str(error)))
            if signal.id:
                self.books = refuse(self.books, signal.id, str(error), _now())

    def execute(self, action: Action) -> None:
        """Queue the scans of a signal."""
        wanted = cast(ExecuteSnapshot, action)
        if wanted.signal_id in self.books.requests:
            raise SignalRefused("a signal of this id has been carried out before; nothing is done again")
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
        request = Wanted(wanted.signal_id, wanted.kind, tables, conditions, wanted.surrogate_key)
        self.books = ask(self.books, request, _now())
        self.log(f"signal {wanted.signal_id}: {wanted.kind} snapshot of {len(tables)} table(s)")
        self.notices.append(notices.started(self.books, wanted.signal_id))
        if not tables:
            self.notices.append(Notice(NotificationType.COMPLETED, wanted.signal_id))

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
        self.log(cast(LogMessage, action).line(self.offset))

    def _tables(self) -> tuple[TableId, ...]:
        if self._captured is None:
            self._captured = tuple(captured_tables(self.conn, self.cfg))
        return self._captured


_INSTEAD = "move the offset with DAG mysql_cdc_reset_offset, and take structures anew with snapshot.mode=recovery"
_HANDLERS: Mapping[type[Action], Callable[[Taking, Action], None]] = {
    ExecuteSnapshot: Taking.execute,
    StopSnapshot: Taking.stop,
    PauseSnapshot: Taking.rest,
    ResumeSnapshot: Taking.rest,
    LogMessage: Taking.say,
}


def take_signals(cfg: ConnectorConfig, conn: Any, job: JobLedger, ledger: LedgerState, log: Log) -> Books:
    """Carry out all signals that wait; return the books behind them, which the ledger holds then.

    Args:
        cfg: The connector's configuration.
        conn: An open connection to the source.
        job: The ledger; its last batch is complete.
        ledger: What it holds.
        log: Takes one line of text.

    Raises:
        CdcError: The source or Kafka fails; what waits goes on waiting.
    """
    before = books_of(ledger)
    taking = Taking(cfg, conn, ledger.end(), log, before.folded())
    waits = waiting(ledger.signals)
    polled = poll(cfg, ledger)
    for line in polled.notes:
        log(line)
    for _, signal in (*waits, *polled.signals):
        taking.take(signal)
    told = [notify.refusal(cfg, signal, reason, _now()) for signal, reason in taking.refused]
    records = book_records(cfg, job, before, taking.books, taking.notices)
    records += [record for record in told if record is not None]
    records += [(cfg.ledger_topic, key.encode(), None) for key, _ in waits]
    if polled.place is not None:
        records.append(job.record(SIGNAL_OFFSET_KEY, polled.place))
    if records:
        job.commit(records)
    return taking.books


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
        found = notify.notification(cfg, notify.INCREMENTAL, notice.type, notice.id, notice.additional, _now())
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
