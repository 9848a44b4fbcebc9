"""Effects of DDL on a writer: table structures, routes, and the records about a statement or a corrected structure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from airflow_provider_mysql_cdc.cdc.binlog import event_parsers as ev
from airflow_provider_mysql_cdc.cdc.binlog.event import Event
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.enums import Operation, UnloggedChangesMode
from airflow_provider_mysql_cdc.cdc.ddl.apply import DdlResult, TableChange
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.decode.table_correction import TableCorrection
from airflow_provider_mysql_cdc.cdc.drain.committer import Committer
from airflow_provider_mysql_cdc.cdc.drain.ddl_events import DdlEventHandler
from airflow_provider_mysql_cdc.cdc.drain.joined_tables import UnreadTables
from airflow_provider_mysql_cdc.cdc.drain.row_events import RecordOutput
from airflow_provider_mysql_cdc.cdc.drain.side_records import truncate_value
from airflow_provider_mysql_cdc.cdc.drain.statement_reports import (
    TouchedTables,
    cascade_warnings,
    correction_warning,
    skipped_notification,
    skipped_warning,
    snapshot_signal,
    unlogged_notification,
    unlogged_warnings,
)
from airflow_provider_mysql_cdc.cdc.drain.table_routes import TableRoutes
from airflow_provider_mysql_cdc.cdc.drain.topic_shares import TopicShares
from airflow_provider_mysql_cdc.cdc.drain.whole_transactions import WholeTransactions
from airflow_provider_mysql_cdc.cdc.drain.writer_context import WriterContext
from airflow_provider_mysql_cdc.cdc.drain.writer_position import WriterPosition
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema.table_changes import apply_all
from airflow_provider_mysql_cdc.cdc.signals.actions import SchemaChanges, SignalRefused


@dataclass(slots=True)
class DdlEffects:
    """Carry out what changes table structures, for every writer, and produce the records of writer 0.

    Args:
        state: Table structures as of the last event.
        shares: The writer's share of each table's topic.
        touched_tables: Notes tables whose structures are to be compared with the server's; None where writer 0 does it.
        whole_transactions: Decodes whole transactions natively; None where each event is handled in Python.
        changed_at: The boundary behind which structures have changed last.
    """

    context: WriterContext
    state: SchemaState
    position: WriterPosition
    shares: TopicShares
    routes: TableRoutes
    ddl_events: DdlEventHandler
    unread_tables: UnreadTables
    output: RecordOutput
    committer: Committer
    touched_tables: TouchedTables | None
    whole_transactions: WholeTransactions | None
    changed_at: tuple[str, int] | None = None

    def on_statement(self, event: Event, query: ev.QueryEvent) -> None:
        """Apply a statement, and produce its records."""
        where = f"{event.file}:{event.start_pos}"
        query, previous_state = self.ddl_events.completed(query, event.timestamp, where), self.state
        applied = self.ddl_events.apply(previous_state, query, where)
        changed = applied.state is not self.state
        if self.position.is_lent and self._changes_captured(applied):
            self.position.note_change()
        self.position.note_text(is_text=not applied.changes)
        if changed:
            self._replace_state(applied.state, event, applied.changes)
            self.output.counts.meter.on_schema_change(query.sql, earlier=self.position.statement_committed())
        touched = self.ddl_events.touched_tables(applied, query)
        self._note_touched(touched, where, skipped=bool(applied.skipped))
        if applied.skipped:
            self.routes.on_skipped_statement(touched, where)
            self._forget_learned_tables()
            self._report_skipped(applied.skipped, touched, query, where)
        if self.context.window_keys is not None:
            self.context.window_keys.on_statement(applied.changes, event, self.ddl_events.moved_row_tables(query))
        no_change = applied.kind == "ignored" and not changed
        if (no_change and self.position.begun) or self.position.statement_committed():
            return
        self._produce_truncates(event, applied)
        if self.context.index == 0:
            self._report_unlogged_changes(previous_state, applied, query, where)
            records = (
                self.ddl_events.non_structural_records(event, query, self.position)
                if no_change
                else self.ddl_events.records(applied, event, query, self.position)
            )
            self._produce(records)

    def _changes_captured(self, applied: DdlResult) -> bool:
        """Return whether a statement changed captured tables: ``DROP TABLE IF EXISTS`` of none, say, does not."""
        changes = [c for c in applied.changes if applied.state is not self.state or c.kind == "TRUNCATE"]
        return any(t is not None and self.context.cfg.captures(t) for c in changes for t in (c.id, c.previous_id))

    def _report_skipped(self, why: str, touched: Sequence[TableId], query: ev.QueryEvent, where: str) -> None:
        """Report a statement that was not understood."""
        if self.context.index or self.position.statement_committed():
            return
        self.committer.note(skipped_warning(query, why, where), once=True)
        self.output.counts.add_skipped_statement(touched[0].db if touched else query.db or "(none)")
        notification = skipped_notification(self.context.cfg, query, why, where)
        if notification is not None:
            self.output.produce_side(notification)

    def _report_unlogged_changes(
        self, previous_state: SchemaState, applied: DdlResult, query: ev.QueryEvent, where: str
    ) -> None:
        """Report rows that a statement changed without row events, and request a snapshot if one is configured."""
        cfg, changes = self.context.cfg, self.ddl_events.unlogged_changes(previous_state, applied, query)
        self.unread_tables.on_statement(previous_state, applied, changes, where, atomic=query.ddl_xid is not None)
        for line in unlogged_warnings(changes, query.sql, where):
            self.committer.note(line, once=True)
        if not self.context.server.get("logs_cascades", 1):
            for line in cascade_warnings(cfg, applied, query, where):
                self.committer.note(line, once=True)
        for change in changes:
            self.output.counts.add_unlogged_change(str(change.table))
            notification = unlogged_notification(cfg, change, query.sql, where)
            if notification is not None:
                self.output.produce_side(notification)
        if cfg[F.SNAPSHOT_AFTER_UNLOGGED_CHANGES] is UnloggedChangesMode.INCREMENTAL:
            signal = snapshot_signal(cfg, changes, self.context.plan.epoch, where)
            if signal is not None:
                self.committer.side_records.append(signal)

    def on_signal(self, event: Event, signal: SchemaChanges) -> bool:
        """Apply a schema-changes signal at the end of its transaction; return whether its structures are valid."""
        try:
            signaled = signal.parse_changes(self.context.cfg)
        except SignalRefused:
            return False
        state, changes = apply_all(self.state, signaled)
        self._replace_state(state, event, changes)
        if self.context.window_keys is not None:
            self.context.window_keys.on_statement(changes, event)
        if self.context.index == 0 and not self.position.transaction_committed():
            for record in self.ddl_events.signaled_records(signaled, changes, event, self.position):
                self.output.produce_side(record)
        return True

    def correct_table(self, correction: TableCorrection, event: Event, xa_commit: Event | None = None) -> SchemaState:
        """Give a table the structure that its TABLE_MAP event has, record that as its change; return all structures."""
        table, position = correction.table, self.position
        # It counts as a statement of the transaction, so that a marker says whether its records are committed.
        position.add_statement()
        self.state = self.state.with_table(table, self.state.non_unique_indexes.get(table.id, ()))
        self.changed_at = position.file, position.pos
        self.routes.on_correction()
        self._forget_learned_tables()
        self._note_touched([table.id], event.where())
        change = TableChange("ALTER", table.id, None, table, "", table.id.db)
        recorded_at = event if xa_commit is None else xa_commit
        if self.context.window_keys is not None:
            self.context.window_keys.on_statement([change], recorded_at)
        if self.context.index == 0 and not position.statement_committed():
            self.committer.note(correction_warning(correction, event.where()))
            for record in self.ddl_events.correction_records(change, recorded_at, position):
                self.output.produce_side(record)
        return self.state

    def _replace_state(self, state: SchemaState, event: Event, changes: Sequence[TableChange]) -> None:
        previous_state, self.state = self.state, state
        self.changed_at = self.position.file, self.position.pos
        self.shares.on_schema_change(previous_state, self.state, f"{event.file}:{event.start_pos}", changes)
        self.routes.on_schema_change()
        self._forget_learned_tables()

    def _note_touched(self, tables: Collection[TableId], where: str, *, skipped: bool = False) -> None:
        """Note tables that a statement touched, whether or not it was found to change their structures."""
        if self.touched_tables is not None and tables:
            self.touched_tables.on_statement(tables, where, skipped=skipped)
            self.routes.on_correction()
            self._forget_learned_tables()

    def _forget_learned_tables(self) -> None:
        if self.whole_transactions is not None:
            self.whole_transactions.walker.forget()

    def _produce_truncates(self, event: Event, applied: DdlResult) -> None:
        """Produce the truncate events of the topics whose partition 0 this writer owns."""
        if Operation.TRUNCATE in self.context.cfg[F.SKIPPED_OPERATIONS]:
            return
        for change in applied.changes:
            if change.kind == "TRUNCATE" and change.table is not None and self.context.cfg.captures(change.table.id):
                share = self.shares.ensure_share(change.table.id)
                if 0 in share.assigned:
                    value = truncate_value(self.context.cfg, change.table, event, self.position)
                    self._produce([SideRecord(share.topic, None, value)])

    def _produce(self, records: Iterable[SideRecord]) -> None:
        """Produce the records of a statement that a Debezium connector has not written."""
        taken, numbers = self.output.taken_over, Counter[str]()
        for record in records:
            if taken is None or not taken.holds_statement(record, numbers[record.topic], self.position):
                self.output.produce_side(record)
            numbers[record.topic] += 1
