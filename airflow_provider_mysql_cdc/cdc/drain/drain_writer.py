"""One writer of a drain: reads the whole range of the batch and produces what it owns, in binlog order."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog import event_parsers as ev
from airflow_provider_mysql_cdc.cdc.binlog.dump import FILE_START
from airflow_provider_mysql_cdc.cdc.binlog.query import begin_thread_id
from airflow_provider_mysql_cdc.cdc.binlog.rows_header import FLAGS_END, TABLE_ID_BYTES
from airflow_provider_mysql_cdc.cdc.binlog.stream import Event, open_stream
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan, Marker
from airflow_provider_mysql_cdc.cdc.commit.topic_records import RecordedTopic
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.enums import Operation
from airflow_provider_mysql_cdc.cdc.ddl.apply import DdlResult, TableChange
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.decode.codegen.event_context import EventContext
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import kernel
from airflow_provider_mysql_cdc.cdc.drain.chunk_visibility import CommittingTransaction
from airflow_provider_mysql_cdc.cdc.drain.committer import CHECK_EVENTS, Committer, Progress
from airflow_provider_mysql_cdc.cdc.drain.ddl_events import DdlEventHandler
from airflow_provider_mysql_cdc.cdc.drain.producer_renewal import ProducerRenewal
from airflow_provider_mysql_cdc.cdc.drain.record_output import RecordOutput
from airflow_provider_mysql_cdc.cdc.drain.side_records import truncate_value
from airflow_provider_mysql_cdc.cdc.drain.snapshot_filter import EventRows, SnapshotFilter
from airflow_provider_mysql_cdc.cdc.drain.table_route import RouteSettings, TableRoute
from airflow_provider_mysql_cdc.cdc.drain.table_routes import TableRoutes
from airflow_provider_mysql_cdc.cdc.drain.topic_shares import TopicShares
from airflow_provider_mysql_cdc.cdc.drain.transaction_metadata import PLACEHOLDER, TransactionMetadata
from airflow_provider_mysql_cdc.cdc.drain.whole_transactions import WholeTransactions, create_transaction_decoder
from airflow_provider_mysql_cdc.cdc.drain.window_keys import WindowKeys
from airflow_provider_mysql_cdc.cdc.drain.writer_position import WriterPosition
from airflow_provider_mysql_cdc.cdc.drain.xa_transactions import XaTransactions, find_prepared, read_rows, require_xa
from airflow_provider_mysql_cdc.cdc.faults import fault_point
from airflow_provider_mysql_cdc.cdc.formats import table_options
from airflow_provider_mysql_cdc.cdc.formats.avro_format import RecordFormats
from airflow_provider_mysql_cdc.cdc.formats.dead_letter import DeadLetterReporter
from airflow_provider_mysql_cdc.cdc.formats.partition_share import partition_of
from airflow_provider_mysql_cdc.cdc.model.gtid import GtidTracker
from airflow_provider_mysql_cdc.cdc.model.native_counts import NativeCounts
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.model.xa import PreparedXa
from airflow_provider_mysql_cdc.cdc.schema.table_changes import apply_all
from airflow_provider_mysql_cdc.cdc.signals.actions import SchemaChanges
from airflow_provider_mysql_cdc.cdc.signals.table_names import SignalRefused
from airflow_provider_mysql_cdc.cdc.signals.table_rows import SignalRows
from airflow_provider_mysql_cdc.cdc.sink.writer import TransactionalWriter


@dataclass(slots=True)
class DrainWriter:
    """Run one writer of a batch.

    Args:
        cfg: The connector's configuration.
        plan: The batch.
        index: This writer's index, from 0.
        state: Table structures as of the batch's start.
        sink: The transactional producer, already initialised (older attempts are fenced).
        server: Variables of the source (``ddl_events.server_variables``).
        resume_marker: Where an earlier attempt of the same batch got to, or None.
        snapshot_filter: Keys that a resumed snapshot read later than the batch's events (see ``snapshot_filter``).
        run_id: Id of the run, for the context headers.
        progress: Called every two seconds with counters.
        recorded_topics: Topics as the ledger knows them.
        window_keys: Remembers which rows of tables under snapshot were touched; None outside of a round.
        counts: Records by topic.
        table_counts: Of these the records of row events, by table.
        formats: The forms of records; None when all is JSON.
        renew_producer: Replaces the sink's client behind a commit, and takes its id over; None keeps it.
        last_transaction: Server id and GTID of the last transaction.
    """

    cfg: ConnectorConfig
    plan: BatchPlan
    index: int
    state: SchemaState
    sink: TransactionalWriter
    server: dict[str, int]
    resume_marker: Marker | None = None
    run_id: str = ""
    progress: Progress = lambda _: None
    snapshot_filter: SnapshotFilter | None = None
    window_keys: WindowKeys | None = None
    recorded_topics: Mapping[str, RecordedTopic] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    table_counts: dict[str, int] = field(default_factory=dict)
    last_transaction: tuple[int, str | None] = (0, None)
    formats: RecordFormats | None = None
    renew_producer: Callable[[Marker], None] | None = None
    _position: WriterPosition = field(init=False)
    _settings: RouteSettings = field(init=False)
    _shares: TopicShares = field(init=False)
    _signals: SignalRows | None = None
    _routes: TableRoutes = field(init=False)
    _ddl_handler: DdlEventHandler = field(init=False)
    _dead_letters: DeadLetterReporter = field(init=False)
    _tracker: GtidTracker = field(init=False)
    _ctx: EventContext = field(init=False)
    _committer: Committer = field(init=False)
    _output: RecordOutput = field(init=False)
    _transaction_metadata: TransactionMetadata | None = None
    _xa: XaTransactions = field(init=False)
    _xa_commit_event: Event | None = None
    _xa_commit_transaction: CommittingTransaction | None = None
    _whole_transactions: WholeTransactions | None = None
    # Whether records tell the order of transactions (TiCDC's timestamps).
    _needs_sequence_number: bool = False

    def __post_init__(self) -> None:
        self._needs_sequence_number = self.cfg.is_ticdc
        self._position = WriterPosition(self.plan.start)
        settings = self._settings = RouteSettings.for_writer(
            self.cfg, self.formats, has_snapshot_filter=self.snapshot_filter is not None
        )
        side_records: list[SideRecord] = []
        self._shares = TopicShares(self.cfg, self.plan, self.index, side_records, self.recorded_topics)
        on_watermark = None if self.window_keys is None else self.window_keys.watermark_handler()
        self._signals = SignalRows.for_writer(self.cfg, self.plan.epoch, self.index, side_records, on_watermark)
        self._ddl_handler = DdlEventHandler(self.cfg, self.plan.epoch, self.server)
        self._tracker = GtidTracker(self.plan.start.gtids)
        self._ctx = EventContext()
        self._xa = XaTransactions(self.plan.prepared)
        if self.cfg[F.PROVIDE_TRANSACTION_METADATA]:
            self._transaction_metadata = TransactionMetadata(self.cfg)
            self._ctx.transaction = PLACEHOLDER
        if self.resume_marker is not None:
            self._position.resume = self.resume_marker.reached
            self.counts, self.table_counts = dict(self.resume_marker.counts), dict(self.resume_marker.tables)
        earlier_native = NativeCounts() if self.resume_marker is None else self.resume_marker.native
        self._committer = Committer(
            cfg=self.cfg,
            plan=self.plan,
            index=self.index,
            sink=self.sink,
            counts=self.counts,
            table_counts=self.table_counts,
            position=self._position,
            xa=self._xa,
            tracker=self._tracker,
            progress=self.progress,
            side_records=side_records,
            formats=self.formats,
            renewal=None
            if self.renew_producer is None
            else ProducerRenewal(lambda: len(self.table_counts), self.renew_producer, lambda: self.sink.renewal_due),
            native_counts=lambda: earlier_native.add(settings.native_counts()),
        )
        formats, committer = self.formats, self._committer
        self._routes = TableRoutes(
            settings,
            self._shares,
            self._signals,
            self.snapshot_filter,
            self.window_keys,
            before_build=lambda: None if formats is None else committer.commit_before_delay(formats.max_wait_s),
        )
        self._output = RecordOutput(
            sink=self.sink,
            headers=table_options.headers(self.cfg, self.run_id),
            has_id_header=self.cfg[F.CDC_ID_HEADER],
            tolerant=settings.failed_rows is not None,
            position=self._position,
            formats=self.formats,
            history_topic=self.cfg.history_topic,
            server_uuid=self.plan.start.server_uuid,
            counts=self.counts,
            table_counts=self.table_counts,
        )
        self._dead_letters = DeadLetterReporter(self.cfg, self.index, self.sink.produce, self.counts)
        walker = create_transaction_decoder(self.cfg, settings.tally, self.snapshot_filter, self.window_keys)
        if walker is not None:
            self._whole_transactions = WholeTransactions(
                walker, self._output, self._position, self._tracker, self._committer, self._note_transaction
            )

    def run(self) -> dict[str, int]:
        """Read from the batch's start to its end and commit everything; return records per topic.

        Raises:
            CdcError: Anything that keeps the batch from being complete; nothing after the last marker is visible.
        """
        self._committer.note(f"rows are decoded by {kernel().text}", once=True)
        handlers = self._handlers()
        row_event_types, check, until_check = c.ROW_EVENT_KINDS, self._committer.check, CHECK_EVENTS
        decode_transactions = None if self._whole_transactions is None else self._whole_transactions.decode_transactions
        stream = open_stream(
            self.cfg.connection_settings(),
            self.plan.start,
            server_id=self.cfg.server_id(self.index),
            silence_timeout_s=self.cfg[F.SOURCE_SILENCE_TIMEOUT_MS] / 1000,
            on_wait=check,
        )
        try:
            for event in stream.events(self.plan.end, decode_transactions):
                kind = event.type
                if kind in row_event_types:
                    self._rows(event)
                elif (handler := handlers.get(kind)) is not None:
                    handler(event)
                until_check -= 1
                if not until_check:
                    until_check = CHECK_EVENTS
                    check()
        finally:
            stream.close()
        self._position.move_to(self.plan.end.file, self.plan.end.pos)
        self._committer.finish()
        fault_point("writer.done", self.index)
        return self.counts

    def _handlers(self) -> dict[int, Callable[[Event], None]]:
        return {
            c.TABLE_MAP_EVENT: self._table_map,
            c.QUERY_EVENT: self._query,
            c.XID_EVENT: self._end_transaction,
            c.XA_PREPARE_LOG_EVENT: self._end_xa,
            **dict.fromkeys(c.GTID_EVENTS, self._gtid),
            c.ROWS_QUERY_LOG_EVENT: self._rows_query,
            c.ROTATE_EVENT: self._rotate,
            c.EXECUTE_LOAD_QUERY_EVENT: self._load_statement,
        }

    # -- events ---------------------------------------------------------------------------------------------------

    def _gtid(self, event: Event) -> None:
        parsed = ev.parse_gtid(event)
        position = self._position
        position.gtid, position.commit_us = parsed.gtid, parsed.commit_us
        position.thread, position.begun = 0, False
        if self._needs_sequence_number:
            self._ctx.transaction = str(parsed.sequence_number)
        self.last_transaction = event.server_id, parsed.gtid
        # A file that the server's stop or crash ended has no ROTATE event that names the next one.
        if event.file != position.file:
            position.move_to(event.file, FILE_START)
        else:
            position.begin_transaction()

    def _note_transaction(self, server_id: int, gtid: str | None) -> None:
        self.last_transaction = server_id, gtid

    def _rows_query(self, event: Event) -> None:
        self._position.query = ev.parse_rows_query(event)

    def _rotate(self, event: Event) -> None:
        rotate = ev.parse_rotate(event)
        self._position.move_to(rotate.file, rotate.position)

    def _table_map(self, event: Event) -> None:
        route = self._routes.of_table_map(event, self.state)
        if self._whole_transactions is not None:
            self._whole_transactions.add_route(event, route)

    def _query(self, event: Event) -> None:
        self._position.statements += 1
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
        if keyword.startswith(("COMMIT", "ROLLBACK")) and not sql[8:].strip(" ;"):
            self._end_transaction(event)
            return
        if keyword.startswith(("SAVEPOIN", "ROLLBACK")):
            return
        self._position.thread = query.thread_id
        self._ddl(event, query)
        if not self._position.begun:
            self._end_transaction(event)

    def _xa_statement(self, event: Event, sql: str) -> None:
        verb, xid = require_xa(sql, f"{event.file}:{event.start_pos}")
        if verb == "END":
            return
        if verb == "START":  # Debezium gives XA transactions neither a thread nor metadata
            self._position.begun = True
            self._xa.start(xid, self._position.boundary)
            return
        prepared = self._xa.take_prepared(xid)
        if verb == "COMMIT" and not self._position.transaction_committed():
            self._produce_xa(prepared or self._find_prepared(xid), event)
        self._end_transaction(event)

    def _find_prepared(self, xid: str) -> PreparedXa | None:
        self._committer.commit_before_delay(math.inf)
        return find_prepared(self.cfg, xid, self._position.boundary, self._committer.note, self._committer.check)

    def _end_xa(self, event: Event) -> None:
        one_phase = self._xa.end(event)
        if not self._position.transaction_committed():
            self._produce_xa(one_phase, event)
        self._end_transaction(event)

    def _produce_xa(self, prepared: PreparedXa | None, commit_event: Event) -> None:
        """Produce the rows of an XA transaction that commits; DDL cannot have come between (see ``xa``)."""
        if prepared is None:
            return
        position, committer = self._position, self._committer
        gtid, commit_us = position.gtid, position.commit_us
        self._xa_commit_event, self._xa_commit_transaction = commit_event, CommittingTransaction(gtid, commit_us)
        committer.commit_before_delay(2 * self.cfg[F.CONNECT_TIMEOUT_MS] / 1000)
        for event in read_rows(self.cfg, prepared, committer.check):
            if event.type in c.ROW_EVENT_KINDS:
                self._rows(event)
            elif event.type in c.GTID_EVENTS:
                parsed = ev.parse_gtid(event)
                position.gtid, position.commit_us = parsed.gtid, parsed.commit_us
            elif event.type == c.TABLE_MAP_EVENT:
                self._table_map(event)
            elif event.type == c.ROWS_QUERY_LOG_EVENT:
                self._rows_query(event)
            committer.after_event()
        self._xa_commit_event = self._xa_commit_transaction = None
        position.gtid, position.commit_us = gtid, commit_us

    def _commit_transaction(self) -> CommittingTransaction:
        """Return the transaction that commits the rows: not an XA PREPARE."""
        return self._xa_commit_transaction or CommittingTransaction(self._position.gtid, self._position.commit_us)

    def _load_statement(self, event: Event) -> None:
        self._ddl_handler.refuse_statement_format(ev.parse_query(event), f"{event.file}:{event.start_pos}")

    def _ddl(self, event: Event, query: ev.QueryEvent) -> None:
        where = f"{event.file}:{event.start_pos}"
        applied = self._ddl_handler.apply(self.state, query, where)
        changed = applied.state is not self.state
        if changed:
            self._replace_state(applied.state, event, applied.changes)
        if self.window_keys is not None:
            self.window_keys.on_statement(applied.changes, event, self._ddl_handler.moved_row_tables(query))
        no_change = applied.kind == "ignored" and not changed
        if (no_change and self._position.begun) or self._position.statement_committed():
            return
        self._produce_truncates(event, applied)
        if self.index == 0:
            records = (
                self._ddl_handler.non_structural_records(event, query, self._position)
                if no_change
                else self._ddl_handler.records(applied, event, query, self._position)
            )
            for topic, key, value in records:
                self._output.produce_side(topic, key, value)

    def _apply_schema_changes(self, event: Event, signal: SchemaChanges) -> bool:
        """Put structures in force that a row of the signal table tells, from the end of its transaction on."""
        try:
            signaled = signal.parse_changes(self.cfg)
        except SignalRefused:
            return False
        state, changes = apply_all(self.state, signaled)
        self._replace_state(state, event, changes)
        if self.window_keys is not None:
            self.window_keys.on_statement(changes, event)
        if self.index == 0 and not self._position.transaction_committed():
            for topic, key, value in self._ddl_handler.signaled_records(signaled, changes, event, self._position):
                self._output.produce_side(topic, key, value)
        return True

    def _replace_state(self, state: SchemaState, event: Event, changes: Sequence[TableChange]) -> None:
        previous_state, self.state = self.state, state
        self._shares.on_schema_change(previous_state, self.state, f"{event.file}:{event.start_pos}", changes)
        self._routes.on_schema_change()
        if self._whole_transactions is not None:
            self._whole_transactions.walker.forget()

    def _produce_truncates(self, event: Event, applied: DdlResult) -> None:
        """Produce the truncate events of the topics whose partition 0 this writer owns."""
        if str(Operation.TRUNCATE) in self._settings.options.skipped_ops:
            return
        for change in applied.changes:
            if change.kind == "TRUNCATE" and change.table is not None and self.cfg.captures(change.table.id):
                share = self._shares.ensure_share(change.table.id)
                if 0 in share.assigned:
                    self._output.produce_side(
                        share.topic, None, truncate_value(self.cfg, change.table, event, self._position)
                    )

    def _rows(self, event: Event) -> None:
        if self._xa.open:
            return
        position, buf, body, end = self._position, event.buf, event.body, event.end
        position.events += 1
        operation = c.ROW_EVENT_KINDS[event.type]
        route = self._routes.by_id.get(int.from_bytes(buf[body : body + TABLE_ID_BYTES], "little"))
        header = None if route is None else route.headers.get(event.type)
        pos = body + FLAGS_END + len(header or b"")
        if route is None or header is None or buf[body + FLAGS_END : pos] != header or pos >= end:
            route, pos = self._routes.of_rows(event)
        if self.window_keys is not None:
            self.window_keys.add_rows(route.table, EventRows(event, pos, operation), self._xa_commit_event or event)
        if route.source is None or route.decoder is None:
            return
        skipping = position.resume is not None and position.rows_committed()
        if skipping and self._transaction_metadata is None:
            return
        ctx = self._ctx
        route.fill_source(ctx, route.source, event, position)
        records: list[Any] = []
        route.decode[operation](buf, pos, end, ctx, records)
        if self._settings.failed_rows:
            self._send_dead_letters(route, EventRows(event, pos, operation), skipping=skipping)
        if self.snapshot_filter is not None:
            at_rows = EventRows(event, pos, operation)
            records = self.snapshot_filter.outside_chunks(
                route.table, records, self._xa_commit_event or event, at_rows, self._commit_transaction()
            )
        if self._transaction_metadata is not None:
            records = self._transaction_metadata.number_records(route.table, records)
            if skipping:
                return
        for bad_row in self._output.produce_rows(route, records, ctx.where):
            self._dead_letters.report(route.topic, bad_row, ctx.as_json(), self._output.headers)
        self._committer.after_rows()

    def _send_dead_letters(self, route: TableRoute, rows_at: EventRows, *, skipping: bool) -> None:
        """Hand the rows of an event that could not be decoded to the dead letters, those of this writer's share."""
        failed, share = self._settings.failed_rows or [], route.share
        failed_rows, failed[:] = list(failed), []
        if self.snapshot_filter is not None:
            candidates: list[Any] = [(row.key, None, row.row, 0, row) for row in failed_rows]
            outside_chunks = self.snapshot_filter.outside_chunks(
                route.table, candidates, self._xa_commit_event or rows_at.event, rows_at, self._commit_transaction()
            )
            failed_rows = [r[4] for r in outside_chunks]
        for row in failed_rows:
            if not skipping and share.assigned and partition_of(row.key, share.partitions) in share.assigned:
                self._dead_letters.report(route.topic, row, self._ctx.as_json(), self._output.headers)

    # -- transactions and commits -----------------------------------------------------------------------------------

    def _begin_transaction(self, event: Event, thread: int) -> None:
        self._position.thread, self._position.begun = thread, True
        metadata = self._transaction_metadata
        if metadata is None:
            return
        metadata.begin(self._position.gtid, event.file, event.start_pos)
        if self.index == 0 and not self._position.statement_committed():
            self._output.produce_side(*metadata.begin_record(), with_headers=False)

    def _end_transaction(self, event: Event) -> None:
        position = self._position
        if self._transaction_metadata is not None and self._transaction_metadata.open:
            if self.index == 0 and not position.transaction_committed():
                self._output.produce_side(*self._transaction_metadata.end_record(), with_headers=False)
            self._transaction_metadata.end()
        if self._signals is not None:
            self._signals.end_transaction(
                position.boundary,
                partial(self._apply_schema_changes, event),
                already_committed=position.transaction_committed(),
            )
        if position.gtid is not None:
            self._tracker.add(position.gtid)
        position.move_to(event.file, event.end_pos)
