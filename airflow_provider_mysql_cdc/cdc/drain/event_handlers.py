"""What a writer does with the events of transactions, whatever is in them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog import event_parsers as ev
from airflow_provider_mysql_cdc.cdc.binlog.event import Event
from airflow_provider_mysql_cdc.cdc.binlog.query import begin_thread_id
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.drain.committer import Committer
from airflow_provider_mysql_cdc.cdc.drain.ddl_effects import DdlEffects
from airflow_provider_mysql_cdc.cdc.drain.row_events import RecordOutput, RowEventHandler
from airflow_provider_mysql_cdc.cdc.drain.side_records import TransactionMetadata
from airflow_provider_mysql_cdc.cdc.drain.table_routes import TableRoutes
from airflow_provider_mysql_cdc.cdc.drain.whole_transactions import WholeTransactions
from airflow_provider_mysql_cdc.cdc.drain.writer_context import WriterContext
from airflow_provider_mysql_cdc.cdc.drain.writer_position import WriterPosition, require_no_rows
from airflow_provider_mysql_cdc.cdc.drain.xa_transactions import XaTransactions, find_prepared, read_rows, require_xa
from airflow_provider_mysql_cdc.cdc.errors import BinlogPurgedError
from airflow_provider_mysql_cdc.cdc.model.offset import PreparedXa
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.signals.table_rows import CommitTime, SignalRows


@dataclass(slots=True)
class EventHandlers:
    """Handle each event in binlog order.

    Args:
        xa: XA transactions that are open or prepared.
        signals: Reads the signal table; None where no signal or watermark comes from it.
        metadata: Writes transaction metadata; None where it is off.
        whole_transactions: Decodes whole transactions natively; None where each event is handled in Python.
    """

    context: WriterContext
    position: WriterPosition
    xa: XaTransactions
    signals: SignalRows | None
    routes: TableRoutes
    rows: RowEventHandler
    ddl: DdlEffects
    output: RecordOutput
    committer: Committer
    metadata: TransactionMetadata | None
    whole_transactions: WholeTransactions | None

    def by_type(self) -> dict[int, Callable[[Event], None]]:
        """Return the handlers of events other than row events, by event type."""
        return {
            c.TABLE_MAP_EVENT: self._table_map,
            c.QUERY_EVENT: self._query,
            c.XID_EVENT: self._end_counted,
            c.XA_PREPARE_LOG_EVENT: self._end_xa,
            **dict.fromkeys(c.GTID_EVENTS, self._gtid),
            c.ROWS_QUERY_LOG_EVENT: self._rows_query,
            c.ROTATE_EVENT: self._rotate,
            c.EXECUTE_LOAD_QUERY_EVENT: self._load_statement,
        }

    def abandon_transaction(self) -> None:
        """Forget the transaction that the connection broke in, whose first events are handled already."""
        self.xa.abandon()
        if self.signals is not None:
            self.signals.abandon_transaction()
        if self.metadata is not None:
            self.metadata.end()
        self.routes.by_id.clear()

    def _gtid(self, event: Event) -> None:
        parsed = ev.parse_gtid(event)
        position = self.position
        if position.is_torn:
            self.output.counts.meter.add_torn()
        position.begin(event.file, event.server_id, parsed.gtid, parsed.commit_us)
        taken = self.output.taken_over
        if taken is not None and taken.is_passed(position):
            self.output.taken_over = None
        self.rows.begin_transaction(parsed, event)

    def _rows_query(self, event: Event) -> None:
        self.position.note_query(ev.parse_rows_query(event))

    def _rotate(self, event: Event) -> None:
        rotate = ev.parse_rotate(event)
        if self.position.is_torn:
            self.output.counts.meter.add_torn()
        self.position.move_to(rotate.file, rotate.position)

    def _table_map(self, event: Event, xa_commit: Event | None = None) -> None:
        route = self.routes.of_table_map(event, self.ddl.state, partial(self.ddl.correct_table, xa_commit=xa_commit))
        if self.position.is_lent and self.context.cfg.needs_schema(route.table):
            self.position.note_change()
        if self.whole_transactions is not None:
            self.whole_transactions.add_route(event, route)

    def _query(self, event: Event) -> None:
        if (thread := begin_thread_id(event)) is not None:
            self._begin_transaction(event, thread)
            return
        query = ev.parse_query(event)
        sql = query.sql.strip()
        keyword = sql[:8].upper().rstrip(";")
        if keyword == "BEGIN":
            self._begin_transaction(event, query.thread_id)
            return
        if keyword.startswith("XA"):
            self._xa_statement(event, sql)
            return
        if keyword.startswith("ROLLBACK"):
            require_no_rows(self.position, sql, event)
        if keyword.startswith(("COMMIT", "ROLLBACK")) and not sql[8:].strip(" ;"):
            self.position.end_statement()
            self._end_counted(event, committed=keyword.startswith("COMMIT"))
            return
        if keyword.startswith(("SAVEPOIN", "ROLLBACK")):
            self.position.add_statement()
            return
        self.position.add_statement(query.thread_id)
        self.ddl.on_statement(event, query)
        if not self.position.begun:
            self._end_transaction(event)

    def _xa_statement(self, event: Event, sql: str) -> None:
        verb, xid = require_xa(sql, f"{event.file}:{event.start_pos}")
        if verb == "START":  # Debezium gives XA transactions neither a thread nor metadata
            self.position.begin_statement(0)
            self.xa.start(xid, self.position.boundary)
            return
        self.position.add_statement()
        if verb == "END":
            return
        prepared = self.xa.take_prepared(xid)
        if verb == "COMMIT":
            needs_rows = self.context.window_keys is not None or not self.position.transaction_committed()
            self._produce_xa(prepared or (self._find_prepared(xid) if needs_rows else None), event)
        self._end_counted(event, committed=verb == "COMMIT")

    def _find_prepared(self, xid: str) -> PreparedXa | None:
        self.committer.commit_before_delay(math.inf)
        self.xa.searched = True
        return find_prepared(self.context.cfg, xid, self.position.boundary, self.committer.note, self.committer.check)

    def _end_xa(self, event: Event) -> None:
        committed = self.xa.end(event)
        self._produce_xa(committed, event)
        if committed is None:  # prepared; it counts when it is decided
            self._end_transaction(event)
        else:
            self._end_counted(event)

    def _produce_xa(self, prepared: PreparedXa | None, commit_event: Event) -> None:
        """Produce the rows of an XA transaction that commits; its locks kept DDL away (see ``xa_transactions``).

        Rows that an earlier attempt committed are read too, because tables are corrected by their TABLE_MAP events, and
        a window needs their keys.
        """
        taken, server_uuid = self.context.taken_over, self.context.plan.start.server_uuid
        if prepared is None or (taken is not None and taken.holds_xa(prepared, server_uuid)):
            return
        try:
            self._read_xa(prepared, commit_event)
        except BinlogPurgedError:
            if not self.position.transaction_committed():
                raise
            if self.context.window_keys is not None:
                self.context.window_keys.on_unread_rows()

    def _read_xa(self, prepared: PreparedXa, commit_event: Event) -> None:
        position, committer = self.position, self.committer
        gtid, commit_us = position.gtid, position.commit_us
        committer.commit_before_delay(2 * self.context.cfg[F.CONNECT_TIMEOUT_MS] / 1000)
        server_uuid = self.context.plan.start.server_uuid
        for event in read_rows(self.context.cfg, prepared, server_uuid, committer.check):
            if event.type in c.ROW_EVENT_KINDS:
                self.rows.handle(event, commit_event)
            elif event.type in c.GTID_EVENTS:
                parsed = ev.parse_gtid(event)
                position.show(parsed.gtid, parsed.commit_us)
            elif event.type == c.TABLE_MAP_EVENT:
                self._table_map(event, commit_event)
            elif event.type == c.ROWS_QUERY_LOG_EVENT:
                self._rows_query(event)
            committer.after_event()
        position.show(gtid, commit_us)

    def _load_statement(self, event: Event) -> None:
        self.ddl.ddl_events.refuse_statement_format(ev.parse_query(event), f"{event.file}:{event.start_pos}")

    def _begin_transaction(self, event: Event, thread: int) -> None:
        self.position.begin_statement(thread)
        metadata = self.metadata
        if metadata is None:
            return
        metadata.begin(self.position.gtid, event.file, event.start_pos)
        if self.context.index == 0 and not self.position.statement_committed():
            self._produce_boundary(metadata.begin_record(), end=False)

    def _produce_boundary(self, record: SideRecord, *, end: bool) -> None:
        """Produce the BEGIN or END record of the transaction, unless a Debezium connector has."""
        taken = self.output.taken_over
        if taken is None or not taken.holds_boundary(self.output.formatted(record), self.position, end=end):
            self.output.produce_side(record, with_headers=False)

    def _end_counted(self, event: Event, *, committed: bool = True) -> None:
        """End a transaction, and count it unless an earlier attempt has."""
        if not self.position.transaction_committed():
            self.output.counts.meter.end_transaction(committed=committed)
        self._end_transaction(event)

    def _end_transaction(self, event: Event) -> None:
        position = self.position
        if self.metadata is not None and self.metadata.open:
            if self.context.index == 0 and not position.transaction_committed():
                self._produce_boundary(self.metadata.end_record(), end=True)
            self.metadata.end()
        if self.signals is not None:
            self.signals.end_transaction(
                position.boundary,
                partial(self.ddl.on_signal, event),
                CommitTime(position.commit_us, event.timestamp),
                already_committed=position.transaction_committed(),
            )
        position.end(event.file, event.end_pos)
