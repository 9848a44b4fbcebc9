"""One writer of a batch: reads the whole range of the batch and produces its share of the records in binlog order."""

from __future__ import annotations

import inspect
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog import event_parsers as ev
from airflow_provider_mysql_cdc.cdc.binlog.dump import FILE_START
from airflow_provider_mysql_cdc.cdc.binlog.event import TransactionDecoder
from airflow_provider_mysql_cdc.cdc.binlog.query import begin_thread_id
from airflow_provider_mysql_cdc.cdc.binlog.server_errors import is_broken_connection
from airflow_provider_mysql_cdc.cdc.binlog.stream import BinlogStream, Event, open_stream
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.enums import Operation, UnloggedChangesMode
from airflow_provider_mysql_cdc.cdc.ddl.apply import DdlResult, TableChange
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import kernel
from airflow_provider_mysql_cdc.cdc.decode.table_correction import TableCorrection
from airflow_provider_mysql_cdc.cdc.drain.committer import CHECK_EVENTS, Committer
from airflow_provider_mysql_cdc.cdc.drain.correction_records import correction_warning
from airflow_provider_mysql_cdc.cdc.drain.ddl_events import DdlEventHandler
from airflow_provider_mysql_cdc.cdc.drain.joined_tables import UnreadTables
from airflow_provider_mysql_cdc.cdc.drain.plain_transactions import PlainTransactions
from airflow_provider_mysql_cdc.cdc.drain.reconnects import Reconnects
from airflow_provider_mysql_cdc.cdc.drain.record_output import RecordOutput
from airflow_provider_mysql_cdc.cdc.drain.rolled_back import require_no_rows
from airflow_provider_mysql_cdc.cdc.drain.row_events import RowEventHandler
from airflow_provider_mysql_cdc.cdc.drain.side_records import truncate_value
from airflow_provider_mysql_cdc.cdc.drain.skipped_statements import skipped_notification, skipped_warning
from airflow_provider_mysql_cdc.cdc.drain.table_routes import TableRoutes
from airflow_provider_mysql_cdc.cdc.drain.topic_shares import TopicShares
from airflow_provider_mysql_cdc.cdc.drain.touched_tables import TouchedTables
from airflow_provider_mysql_cdc.cdc.drain.transaction_metadata import TransactionMetadata
from airflow_provider_mysql_cdc.cdc.drain.unlogged_reports import (
    snapshot_signal,
    unlogged_notification,
    unlogged_warnings,
)
from airflow_provider_mysql_cdc.cdc.drain.whole_transactions import WholeTransactions
from airflow_provider_mysql_cdc.cdc.drain.writer_context import WriterContext
from airflow_provider_mysql_cdc.cdc.drain.writer_position import WriterPosition
from airflow_provider_mysql_cdc.cdc.drain.xa_transactions import XaTransactions, find_prepared, read_rows, require_xa
from airflow_provider_mysql_cdc.cdc.errors import (
    BinlogPurgedError,
    IncompatibleSchemaError,
    RecordTooLargeError,
    SourceConnectionError,
    TransformError,
)
from airflow_provider_mysql_cdc.cdc.faults import fault_point
from airflow_provider_mysql_cdc.cdc.model.gtid import GtidTracker
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, ResumePosition
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.model.xa import PreparedXa
from airflow_provider_mysql_cdc.cdc.schema.table_changes import apply_all
from airflow_provider_mysql_cdc.cdc.signals.actions import SchemaChanges
from airflow_provider_mysql_cdc.cdc.signals.table_names import SignalRefused
from airflow_provider_mysql_cdc.cdc.signals.table_rows import CommitTime, SignalRows


@dataclass(frozen=True, slots=True)
class WriterResult:
    """Say how a writer ended.

    Args:
        counts: Records by topic.
        state: Table structures at the batch's end; None when an earlier attempt had written everything.
        last_transaction: Server id and GTID of the last transaction.
        commit_ts: TiCDC's commit timestamp of the last transaction before the batch's end; None in other formats, and
            where no record has one.
    """

    counts: dict[str, int]
    state: SchemaState | None
    last_transaction: tuple[int, str | None] = (0, None)
    commit_ts: int | None = None


@dataclass(slots=True)
class DrainWriter:
    """Read a batch's events in binlog order, and hand each to what handles its type.

    Args:
        context: What the writer was started with.
        state: Table structures as of the last event.
        position: The writer's position.
        tracker: The GTIDs that the writer has read.
        xa: XA transactions that are open or prepared.
        shares: The writer's share of each table's topic.
        signals: Reads the signal table; None where no signal or watermark comes from it.
        routes: Routes of the tables that TABLE_MAP events announced.
        rows: Handles row events.
        ddl_events: Applies DDL, and makes its records.
        unread_tables: Follows the tables that were never read.
        output: Produces records.
        committer: Commits them.
        metadata: Writes transaction metadata; None where it is off.
        touched_tables: Notes tables whose structures are to be compared with the server's; None where writer 0 does it.
        whole_transactions: Decodes whole transactions natively; None where each event is handled here.
        plain_transactions: Handles the events of plain transactions where ``whole_transactions`` does not; None where
            each event is handled here.
    """

    context: WriterContext
    state: SchemaState
    position: WriterPosition
    tracker: GtidTracker
    xa: XaTransactions
    shares: TopicShares
    signals: SignalRows | None
    routes: TableRoutes
    rows: RowEventHandler
    ddl_events: DdlEventHandler
    unread_tables: UnreadTables
    output: RecordOutput
    committer: Committer
    metadata: TransactionMetadata | None
    touched_tables: TouchedTables | None
    whole_transactions: WholeTransactions | None
    plain_transactions: PlainTransactions | None = None
    _changed_at: tuple[str, int] | None = None

    def run(self) -> WriterResult:
        """Read from the batch's start to its end and commit everything.

        Raises:
            CdcError: The batch could not be completed; consumers see nothing after the last marker.
        """
        self.committer.note(f"rows are decoded by {kernel().text}", once=True)
        try:
            self._read_batch()
            self.position.move_to(self.context.plan.end.file, self.context.plan.end.pos)
            self.committer.finish()
        except RecordTooLargeError as error:
            raise self.ddl_events.name_statement(error) from error
        except (TransformError, IncompatibleSchemaError) as error:
            if self.context.cfg.chain is not None:
                # The row event may be produced in part, so nothing is committed here.
                self.context.report_refusal(self.position.reached(self.tracker.text()).offset, error)
            raise
        fault_point("writer.done", self.context.index)
        clock = self.committer.commit_clock
        commit_ts = clock.last or None if clock is not None else None
        return WriterResult(self.output.counts.by_topic, self.state, self.position.last_transaction, commit_ts)

    def _read_batch(self) -> None:
        """Read to the end of the batch; where the connection breaks, go on behind what was read (FAULT-03)."""
        cfg = self.context.cfg
        reconnects = Reconnects(cfg[F.CONNECT_MAX_ATTEMPTS], self.committer.check, self.committer.note)
        stream = self._kept_stream()
        if stream is not None:
            error = self._read_or_close(stream)
            if error is None:
                return
            # One that broke while it was not used is opened again as if there had been none.
            stream = self._reconnect(reconnects, error, stream.created) if self._has_read() else None
        stream = stream or self._first_stream(reconnects)
        while (error := self._read_or_close(stream)) is not None:
            stream = self._reconnect(reconnects, error, stream.created)

    def _kept_stream(self) -> BinlogStream | None:
        """Return the connection over which the batch before was read, if it stands where this one starts."""
        dump = self.context.kept.dump
        stream = dump.take(self.context.plan.start)
        if stream is None:
            return None
        dump.check = self.committer.check
        return self._use(stream)

    def _has_read(self) -> bool:
        """Return whether an event of the batch was handled."""
        position, start = self.position, self.context.plan.start
        moved = (position.file, position.pos) != (start.file, start.pos)
        return moved or position.gtid is not None or bool(position.events or position.statements)

    def _read_or_close(self, stream: BinlogStream) -> SourceConnectionError | None:
        """Read to the end of the batch; close the connection unless it is kept for the next one."""
        complete = False
        try:
            error = self._read_events(stream)
            complete = error is None
        finally:
            if complete:
                self.context.kept.dump.keep(stream, self.context.plan.end)
            else:
                stream.close()
        return error

    def _first_stream(self, reconnects: Reconnects) -> BinlogStream:
        """Return the stream from the batch's start on, also where the connection breaks before its first event."""
        try:
            return self._open_stream(self.context.plan.start)
        except SourceConnectionError as error:
            if not is_broken_connection(error):
                raise
            return self._reconnect(reconnects, error, ("", 0))

    def _open_stream(self, start: BinlogOffset) -> BinlogStream:
        cfg, index, dump = self.context.cfg, self.context.index, self.context.kept.dump
        dump.check = self.committer.check
        stream = open_stream(
            cfg.connection_settings(),
            start,
            server_id=cfg.server_id(index),
            silence_timeout_s=cfg[F.SOURCE_SILENCE_TIMEOUT_MS] / 1000,
            on_wait=dump.on_wait,
        )
        return self._use(stream)

    def _use(self, stream: BinlogStream) -> BinlogStream:
        self.routes.server_version = lambda: stream.server_version
        self.output.counts.meter.connected = True
        self.position.local_gtids = stream.local_gtids
        return stream

    def _read_events(self, stream: BinlogStream) -> SourceConnectionError | None:
        """Handle events to the end of the batch; return the error where the connection breaks before it."""
        handlers = self._handlers()
        row_event_types, check, until_check = c.ROW_EVENT_KINDS, self.committer.check, CHECK_EVENTS
        handle_rows = self.rows.handle
        decode_transactions = self._transaction_decoder()
        events = stream.events(self.context.plan.end, decode_transactions, self.routes.is_unused)
        try:
            for event in events:
                kind = event.type
                if kind in row_event_types:
                    handle_rows(event)
                elif (handler := handlers.get(kind)) is not None:
                    handler(event)
                until_check -= 1
                if not until_check:
                    until_check = CHECK_EVENTS
                    check()
        except SourceConnectionError as error:
            # A handler may have lost a connection of its own; then the stream is not at its end.
            if inspect.getgeneratorstate(events) != inspect.GEN_CLOSED:
                raise
            return error
        return None

    def _transaction_decoder(self) -> TransactionDecoder | None:
        """Return what reads transactions before the stream yields their events."""
        if self.whole_transactions is not None:
            return self.whole_transactions.decode_transactions
        return None if self.plain_transactions is None else self.plain_transactions.handle_events

    def _reconnect(
        self, reconnects: Reconnects, error: SourceConnectionError, created: tuple[str, int]
    ) -> BinlogStream:
        """Return a stream that begins at the last transaction boundary; what was read behind it counts as committed.

        Raises:
            SourceConnectionError: The transaction cannot be read twice, or the source cannot be reached.
            FencedError: A newer attempt is in force.
            ServerChangedError: Another server answers.
        """
        position = self.position
        self.output.counts.meter.lose_connection()
        if self._changed_at == (position.file, position.pos):
            raise error  # the structures are not those of the boundary any more
        self.committer.commit_pending()
        while True:
            reconnects.wait(error, (position.file, position.pos, position.events, position.statements))
            # The server ends an older dump of the same client: it must not be that of a newer attempt.
            self.context.require_in_force()
            try:
                reached = position.reached(self.tracker.text())
                stream = self._open_stream(self._place_on_same_server(reached.offset, created))
            except SourceConnectionError as refused:
                error = refused
                continue
            self._read_again_from(reached)
            return stream

    def _place_on_same_server(self, reached: BinlogOffset, created: tuple[str, int]) -> BinlogOffset:
        """Return a boundary with what tells its server and its binlog file from others of this name."""
        place = self.context.plan.start.with_position(reached.file, reached.pos, reached.gtids)
        file, created_s = created
        return replace(place, origin=str(created_s)) if place.origin is None and file == place.file else place

    def _read_again_from(self, reached: ResumePosition) -> None:
        """Forget the transaction that the connection broke in, whose first events are produced already."""
        if not self.position.is_before_resume():
            self.position.resume = reached
        self.position.begin_transaction()
        self.position.begun = False
        self.position.gtid, self.position.commit_us = self.position.last_commit
        self.xa.abandon()
        if self.signals is not None:
            self.signals.abandon_transaction()
        if self.metadata is not None:
            self.metadata.end()
        self.routes.by_id.clear()

    def _handlers(self) -> dict[int, Callable[[Event], None]]:
        return {
            c.TABLE_MAP_EVENT: self._table_map,
            c.QUERY_EVENT: self._query,
            c.XID_EVENT: self._commit_transaction,
            c.XA_PREPARE_LOG_EVENT: self._end_xa,
            **dict.fromkeys(c.GTID_EVENTS, self._gtid),
            c.ROWS_QUERY_LOG_EVENT: self._rows_query,
            c.ROTATE_EVENT: self._rotate,
            c.EXECUTE_LOAD_QUERY_EVENT: self._load_statement,
        }

    # -- events ---------------------------------------------------------------------------------------------------

    def _gtid(self, event: Event) -> None:
        parsed = ev.parse_gtid(event)
        position = self.position
        if position.events and not position.transaction_committed():
            self.output.counts.meter.add_torn()
        # A file that ended because the server stopped or crashed has no ROTATE event that names the next one.
        if event.file != position.file:
            position.move_to(event.file, FILE_START)
        else:
            position.begin_transaction()
        position.gtid, position.commit_us = parsed.gtid, parsed.commit_us
        position.thread, position.begun = 0, False
        taken = self.output.taken_over
        if taken is not None and taken.is_passed(position):
            self.output.taken_over = None
        self.rows.begin_transaction(parsed, event)
        position.sign(event.server_id, parsed.gtid)

    def _rows_query(self, event: Event) -> None:
        self.position.query = ev.parse_rows_query(event)

    def _rotate(self, event: Event) -> None:
        rotate = ev.parse_rotate(event)
        if self.position.events and not self.position.transaction_committed():
            self.output.counts.meter.add_torn()
        self.position.move_to(rotate.file, rotate.position)

    def _table_map(self, event: Event, xa_commit: Event | None = None) -> None:
        correct = self._correct_table if xa_commit is None else partial(self._correct_table, xa_commit=xa_commit)
        route = self.routes.of_table_map(event, self.state, correct)
        if self.position.is_lent and self.context.cfg.needs_schema(route.table):
            self.position.is_lent = False
        if self.whole_transactions is not None:
            self.whole_transactions.add_route(event, route)

    def _query(self, event: Event) -> None:
        self.position.statements += 1
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
            self.position.note_empty()
            self._end_counted(event, committed=keyword.startswith("COMMIT"))
            return
        if keyword.startswith(("SAVEPOIN", "ROLLBACK")):
            return
        self.position.thread = query.thread_id
        self._ddl(event, query)
        if not self.position.begun:
            self._end_transaction(event)

    def _xa_statement(self, event: Event, sql: str) -> None:
        verb, xid = require_xa(sql, f"{event.file}:{event.start_pos}")
        if verb == "END":
            return
        if verb == "START":  # Debezium gives XA transactions neither a thread nor metadata
            self.position.begun = True
            self.xa.start(xid, self.position.boundary)
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
            self._end_counted(event, committed=True)

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
                position.gtid, position.commit_us = parsed.gtid, parsed.commit_us
            elif event.type == c.TABLE_MAP_EVENT:
                self._table_map(event, commit_event)
            elif event.type == c.ROWS_QUERY_LOG_EVENT:
                self._rows_query(event)
            committer.after_event()
        position.gtid, position.commit_us = gtid, commit_us

    def _load_statement(self, event: Event) -> None:
        self.ddl_events.refuse_statement_format(ev.parse_query(event), f"{event.file}:{event.start_pos}")

    def _ddl(self, event: Event, query: ev.QueryEvent) -> None:
        where = f"{event.file}:{event.start_pos}"
        query, previous_state = self.ddl_events.completed(query, event.timestamp, where), self.state
        applied = self.ddl_events.apply(previous_state, query, where)
        changed = applied.state is not self.state
        if self.position.is_lent and self._changes_captured(applied):
            self.position.is_lent = False
        self.position.is_text = not applied.changes
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
            self._produce_of_statement(records)

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
        for change in changes:
            self.output.counts.add_unlogged_change(str(change.table))
            notification = unlogged_notification(cfg, change, query.sql, where)
            if notification is not None:
                self.output.produce_side(notification)
        if cfg[F.SNAPSHOT_AFTER_UNLOGGED_CHANGES] is UnloggedChangesMode.INCREMENTAL:
            signal = snapshot_signal(cfg, changes, self.context.plan.epoch, where)
            if signal is not None:
                self.committer.side_records.append(signal)

    def _apply_schema_changes(self, event: Event, signal: SchemaChanges) -> bool:
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

    def _correct_table(self, correction: TableCorrection, event: Event, xa_commit: Event | None = None) -> SchemaState:
        """Give a table the structure that its TABLE_MAP event has, and record it as a change of the table.

        Args:
            correction: The structure.
            event: The TABLE_MAP event.
            xa_commit: The event that commits its XA transaction, or None.

        Returns:
            All structures.
        """
        table, position = correction.table, self.position
        # It counts as a statement of the transaction, so that a marker says whether its records are committed.
        position.statements += 1
        self.state = self.state.with_table(table, self.state.non_unique_indexes.get(table.id, ()))
        self._changed_at = position.file, position.pos
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
        self._changed_at = self.position.file, self.position.pos
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
                    self._produce_of_statement([SideRecord(share.topic, None, value)])

    # -- transactions and commits -----------------------------------------------------------------------------------

    def _begin_transaction(self, event: Event, thread: int) -> None:
        self.position.thread, self.position.begun = thread, True
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

    def _produce_of_statement(self, records: Iterable[SideRecord]) -> None:
        """Produce the records of a statement that a Debezium connector has not written."""
        taken, numbers = self.output.taken_over, Counter[str]()
        for record in records:
            if taken is None or not taken.holds_statement(record, numbers[record.topic], self.position):
                self.output.produce_side(record)
            numbers[record.topic] += 1

    def _commit_transaction(self, event: Event) -> None:
        self._end_counted(event, committed=True)

    def _end_counted(self, event: Event, *, committed: bool) -> None:
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
                partial(self._apply_schema_changes, event),
                CommitTime(position.commit_us, event.timestamp),
                already_committed=position.transaction_committed(),
            )
        if position.gtid is not None:
            self.tracker.add(position.gtid)
        position.note_unchanged()
        position.move_to(event.file, event.end_pos)
