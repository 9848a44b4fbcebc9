"""One writer of a drain: reads the whole range of the batch and produces what it owns, in binlog order."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog import event_parsers as ev
from airflow_provider_mysql_cdc.cdc.binlog.dump import FILE_START
from airflow_provider_mysql_cdc.cdc.binlog.query import begin_thread
from airflow_provider_mysql_cdc.cdc.binlog.rows_header import FLAGS_END, TABLE_ID_BYTES
from airflow_provider_mysql_cdc.cdc.binlog.stream import Event, open_stream
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan, Marker
from airflow_provider_mysql_cdc.cdc.commit.topic_records import KnownTopic
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.enums import Operation
from airflow_provider_mysql_cdc.cdc.ddl.apply import Applied, TableChange
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.decode.codegen.event_context import EventContext
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import kernel
from airflow_provider_mysql_cdc.cdc.drain.chunk_visibility import CommittedBy
from airflow_provider_mysql_cdc.cdc.drain.committer import CHECK_EVENTS, Committer, Progress
from airflow_provider_mysql_cdc.cdc.drain.ddl_events import SchemaLog
from airflow_provider_mysql_cdc.cdc.drain.producer_renewal import ClientTurn
from airflow_provider_mysql_cdc.cdc.drain.record_output import RecordOutput
from airflow_provider_mysql_cdc.cdc.drain.side_records import truncate_value
from airflow_provider_mysql_cdc.cdc.drain.snapshot_filter import KeyFilters, RowsAt
from airflow_provider_mysql_cdc.cdc.drain.table_routes import Route, Routes
from airflow_provider_mysql_cdc.cdc.drain.transaction_metadata import PLACEHOLDER, Transactions
from airflow_provider_mysql_cdc.cdc.drain.whole_transactions import WalkedTransactions
from airflow_provider_mysql_cdc.cdc.drain.window_keys import TouchedKeys
from airflow_provider_mysql_cdc.cdc.drain.writer_position import Position
from airflow_provider_mysql_cdc.cdc.drain.xa_transactions import XaTransactions, find_prepared, read_rows, require_xa
from airflow_provider_mysql_cdc.cdc.faults import fault_point
from airflow_provider_mysql_cdc.cdc.formats.avro_format import Forms
from airflow_provider_mysql_cdc.cdc.formats.dead_letter import DeadLetters
from airflow_provider_mysql_cdc.cdc.formats.partition_share import partition_of
from airflow_provider_mysql_cdc.cdc.model.gtid import GtidTracker
from airflow_provider_mysql_cdc.cdc.model.native_counts import NativeCounts
from airflow_provider_mysql_cdc.cdc.model.xa import PreparedXa
from airflow_provider_mysql_cdc.cdc.schema.table_changes import apply_all
from airflow_provider_mysql_cdc.cdc.signals.actions import SchemaChanges
from airflow_provider_mysql_cdc.cdc.signals.table_names import SignalRefused
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
        server: Variables of the source (``schema_log.server_variables``).
        resume: Where an earlier attempt of the same batch got to, or None.
        filters: Keys that a resumed snapshot read later than the batch's events (see ``snapshot.filters``).
        run_id: Id of the run, for the context headers.
        progress: Called every two seconds with counters.
        topics: Topics as the ledger knows them.
        touched: Remembers which rows of tables under snapshot were touched; None outside of a round.
        counts: Records by topic.
        tables: Of these the records of row events, by table.
        forms: The forms of records; None when all is JSON.
        renew: Replaces the sink's client behind a commit, and takes its id over; None keeps it.
        last: Server id and GTID of the last transaction.
    """

    cfg: ConnectorConfig
    plan: BatchPlan
    index: int
    state: SchemaState
    sink: TransactionalWriter
    server: dict[str, int]
    resume: Marker | None = None
    run_id: str = ""
    progress: Progress = lambda _: None
    filters: KeyFilters | None = None
    touched: TouchedKeys | None = None
    topics: Mapping[str, KnownTopic] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    tables: dict[str, int] = field(default_factory=dict)
    last: tuple[int, str | None] = (0, None)
    forms: Forms | None = None
    renew: Callable[[Marker], None] | None = None
    _at: Position = field(init=False)
    _routes: Routes = field(init=False)
    _log: SchemaLog = field(init=False)
    _letters: DeadLetters = field(init=False)
    _tables: dict[int, Route] = field(default_factory=dict)
    _tracker: GtidTracker = field(init=False)
    _ctx: EventContext = field(init=False)
    _committer: Committer = field(init=False)
    _output: RecordOutput = field(init=False)
    _transactions: Transactions | None = None
    _xa: XaTransactions = field(init=False)
    _committing: Event | None = None
    _ending: Event | None = None
    _committed_by: CommittedBy | None = None
    _walked: WalkedTransactions | None = None
    # Whether records tell the order of transactions (TiCDC's timestamps).
    _ordered: bool = False

    def __post_init__(self) -> None:
        self._ordered = self.cfg.ticdc
        self._at = Position(self.plan.start)
        self._routes = Routes(
            self.cfg, self.plan, self.index, self.run_id, self.filters, self.topics, self.touched, self.forms
        )
        self._log = SchemaLog(self.cfg, self.plan.epoch, self.server)
        self._tracker = GtidTracker(self.plan.start.gtids)
        self._ctx = EventContext()
        self._xa = XaTransactions(self.plan.prepared)
        if self.cfg[F.PROVIDE_TRANSACTION_METADATA]:
            self._transactions = Transactions(self.cfg)
            self._ctx.transaction = PLACEHOLDER
        if self.resume is not None:
            self._at.resume = self.resume.reached
            self.counts, self.tables = dict(self.resume.counts), dict(self.resume.tables)
        before = NativeCounts() if self.resume is None else self.resume.native
        self._committer = Committer(
            cfg=self.cfg,
            plan=self.plan,
            index=self.index,
            sink=self.sink,
            counts=self.counts,
            tables=self.tables,
            at=self._at,
            xa=self._xa,
            tracker=self._tracker,
            progress=self.progress,
            side=self._routes.learned,
            forms=self.forms,
            turn=None
            if self.renew is None
            else ClientTurn(lambda: len(self.tables), self.renew, lambda: self.sink.unsuited),
            native=lambda: before.add(self._routes.native()),
        )
        if self._routes.signals is not None:
            self._routes.signals.on_structures = self._structures
        if (forms := self.forms) is not None:
            self._routes.before_making = lambda: self._committer.make_room(forms.longest_s)
        self._output = RecordOutput(
            sink=self.sink,
            routes=self._routes,
            at=self._at,
            forms=self.forms,
            history_topic=self.cfg.history_topic,
            server_uuid=self.plan.start.server_uuid,
            counts=self.counts,
            tables=self.tables,
        )
        self._letters = DeadLetters(self.cfg, self.index, self.sink.produce, self.counts)
        if (walker := self._routes.walker()) is not None:
            self._walked = WalkedTransactions(
                walker, self._output, self._at, self._tracker, self._committer, self._passed
            )

    def run(self) -> dict[str, int]:
        """Read from the batch's start to its end and commit everything; return records per topic.

        Raises:
            CdcError: Anything that keeps the batch from being complete; nothing after the last marker is visible.
        """
        self._committer.note(f"rows are decoded by {kernel().text}", once=True)
        handlers = self._handlers()
        rows, check, left = c.ROWS_VERSIONS, self._committer.check, CHECK_EVENTS
        walk = None if self._walked is None else self._walked.walk
        stream = open_stream(
            self.cfg.connection_settings(),
            self.plan.start,
            server_id=self.cfg.server_id(self.index),
            silence_timeout_s=self.cfg[F.SOURCE_SILENCE_TIMEOUT_MS] / 1000,
            on_wait=check,
        )
        try:
            for event in stream.events(self.plan.end, walk):
                kind = event.type
                if kind in rows:
                    self._rows(event)
                elif (handler := handlers.get(kind)) is not None:
                    handler(event)
                left -= 1
                if not left:
                    left = CHECK_EVENTS
                    check()
        finally:
            stream.close()
        self._at.pass_to(self.plan.end.file, self.plan.end.pos)
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
        at = self._at
        at.gtid, at.commit_us = parsed.gtid, parsed.commit_us
        at.thread, at.begun = 0, False
        if self._ordered:
            self._ctx.transaction = str(parsed.sequence_number)
        self.last = event.server_id, parsed.gtid
        # A file that the server's stop or crash ended has no ROTATE event that names the next one.
        if event.file != at.file:
            at.pass_to(event.file, FILE_START)
        else:
            at.enter()

    def _passed(self, server_id: int, gtid: str | None) -> None:
        self.last = server_id, gtid

    def _rows_query(self, event: Event) -> None:
        self._at.query = ev.parse_rows_query(event)

    def _rotate(self, event: Event) -> None:
        rotate = ev.parse_rotate(event)
        self._at.pass_to(rotate.file, rotate.position)

    def _table_map(self, event: Event) -> None:
        table_id, route = self._routes.of_table_map(event, self.state)
        self._tables[table_id] = route
        if self._walked is not None:
            self._walked.learn(event, route)

    def _query(self, event: Event) -> None:
        self._at.statements += 1
        if (thread := begin_thread(event)) is not None:
            self._begin_transaction(event, thread)
            return
        query = ev.parse_query(event)
        sql = query.sql.strip()
        word = sql[:8].upper().rstrip(";")
        if word == "BEGIN":
            self._begin_transaction(event, query.thread_id)
            return
        if word.startswith("XA"):
            self._xa_statement(event, sql)
            return
        if word.startswith(("COMMIT", "ROLLBACK")) and not sql[8:].strip(" ;"):
            self._end_transaction(event)
            return
        if word.startswith(("SAVEPOIN", "ROLLBACK")):
            return
        self._at.thread = query.thread_id
        self._ddl(event, query)
        if not self._at.begun:
            self._end_transaction(event)

    def _xa_statement(self, event: Event, sql: str) -> None:
        verb, xid = require_xa(sql, f"{event.file}:{event.start_pos}")
        if verb == "END":
            return
        if verb == "START":  # Debezium gives XA transactions neither a thread nor metadata
            self._at.begun = True
            self._xa.start(xid, self._at.boundary)
            return
        rows = self._xa.decide(xid)
        if verb == "COMMIT" and not self._at.transaction_committed():
            self._produce_xa(rows or self._find_prepared(xid), event)
        self._end_transaction(event)

    def _find_prepared(self, xid: str) -> PreparedXa | None:
        self._committer.make_room(math.inf)
        return find_prepared(self.cfg, xid, self._at.boundary, self._committer.note, self._committer.check)

    def _end_xa(self, event: Event) -> None:
        one_phase = self._xa.end(event)
        if not self._at.transaction_committed():
            self._produce_xa(one_phase, event)
        self._end_transaction(event)

    def _produce_xa(self, rows: PreparedXa | None, commit: Event) -> None:
        """Produce the rows of an XA transaction that commits; DDL cannot have come between (see ``xa``)."""
        if rows is None:
            return
        at, committer = self._at, self._committer
        gtid, commit_us = at.gtid, at.commit_us
        self._committing, self._committed_by = commit, CommittedBy(gtid, commit_us)
        committer.make_room(2 * self.cfg[F.CONNECT_TIMEOUT_MS] / 1000)
        for event in read_rows(self.cfg, rows, committer.check):
            if event.type in c.ROWS_VERSIONS:
                self._rows(event)
            elif event.type in c.GTID_EVENTS:
                parsed = ev.parse_gtid(event)
                at.gtid, at.commit_us = parsed.gtid, parsed.commit_us
            elif event.type == c.TABLE_MAP_EVENT:
                self._table_map(event)
            elif event.type == c.ROWS_QUERY_LOG_EVENT:
                self._rows_query(event)
            committer.passed_event()
        self._committing = self._committed_by = None
        at.gtid, at.commit_us = gtid, commit_us

    def _by(self) -> CommittedBy:
        """Return the transaction that commits the rows: not an XA PREPARE."""
        return self._committed_by or CommittedBy(self._at.gtid, self._at.commit_us)

    def _load_statement(self, event: Event) -> None:
        self._log.refuse_statement_format(ev.parse_query(event), f"{event.file}:{event.start_pos}")

    def _ddl(self, event: Event, query: ev.QueryEvent) -> None:
        where = f"{event.file}:{event.start_pos}"
        applied = self._log.apply(self.state, query, where)
        changed = applied.state is not self.state
        if changed:
            self._changed(applied.state, event, applied.changes)
        if self.touched is not None:
            self.touched.statement(applied.changes, event, self._log.moved(query))
        idle = applied.kind == "ignored" and not changed
        if (idle and self._at.begun) or self._at.statement_committed():
            return
        self._truncations(event, applied)
        if self.index == 0:
            log = (
                self._log.noise(event, query, self._at) if idle else self._log.records(applied, event, query, self._at)
            )
            for topic, key, value in log:
                self._output.side(topic, key, value)

    def _structures(self, signal: SchemaChanges) -> bool:
        """Put structures in force that a row of the signal table tells, from the end of its transaction on."""
        event = self._ending
        assert event is not None  # _end_transaction
        try:
            told = signal.told(self.cfg)
        except SignalRefused:
            return False
        state, changes = apply_all(self.state, told)
        self._changed(state, event, changes)
        if self.touched is not None:
            self.touched.statement(changes, event)
        if self.index == 0 and not self._at.transaction_committed():
            for topic, key, value in self._log.told(told, changes, event, self._at):
                self._output.side(topic, key, value)
        return True

    def _changed(self, state: SchemaState, event: Event, changes: Sequence[TableChange]) -> None:
        before, self.state = self.state, state
        self._routes.forget(before, self.state, f"{event.file}:{event.start_pos}", changes)
        self._tables.clear()
        if self._walked is not None:
            self._walked.walker.forget()

    def _truncations(self, event: Event, applied: Applied) -> None:
        """Produce the truncate events of the topics whose partition 0 this writer owns."""
        if str(Operation.TRUNCATE) in self._routes.options.skipped_ops:
            return
        for change in applied.changes:
            if change.kind == "TRUNCATE" and change.table is not None and self.cfg.captures(change.table.id):
                share = self._routes.ready_share(change.table.id)
                if 0 in share.mine:
                    self._output.side(share.topic, None, truncate_value(self.cfg, change.table, event, self._at))

    def _rows(self, event: Event) -> None:
        if self._xa.open:
            return
        at, buf, body, end = self._at, event.buf, event.body, event.end
        at.events += 1
        kind = c.ROWS_VERSIONS[event.type]
        route = self._tables.get(int.from_bytes(buf[body : body + TABLE_ID_BYTES], "little"))
        header = None if route is None else route.headers.get(event.type)
        pos = body + FLAGS_END + len(header or b"")
        if route is None or header is None or buf[body + FLAGS_END : pos] != header or pos >= end:
            route, pos = self._routes.of_rows(event, self._tables)
        if self.touched is not None:
            self.touched.rows(route.table, RowsAt(event, pos, kind), self._committing or event)
        if route.source is None or route.decoder is None:
            return
        skipping = at.resume is not None and at.rows_committed()
        if skipping and self._transactions is None:
            return
        ctx = self._ctx
        route.fill(ctx, route.source, event, at)
        out: list[Any] = []
        route.decode[kind](buf, pos, end, ctx, out)
        if self._routes.failed:
            self._left_out(route, RowsAt(event, pos, kind), skipping=skipping)
        if self.filters is not None:
            at_rows = RowsAt(event, pos, kind)
            out = self.filters.keep(route.table, out, self._committing or event, at_rows, self._by())
        if self._transactions is not None:
            out = self._transactions.number(route.table, out)
            if skipping:
                return
        for bad in self._output.rows(route, out, ctx.where):
            self._letters.put(route.topic, bad, ctx.as_json(), self._routes.headers)
        self._committer.passed_rows()

    def _left_out(self, route: Route, at: RowsAt, *, skipping: bool) -> None:
        """Hand the rows of an event that could not be decoded to the dead letters, those of this writer's share."""
        failed, share = self._routes.failed or [], route.share
        rows, failed[:] = list(failed), []
        if self.filters is not None:
            given: list[Any] = [(row.key, None, row.row, 0, row) for row in rows]
            kept = self.filters.keep(route.table, given, self._committing or at.event, at, self._by())
            rows = [r[4] for r in kept]
        for row in rows:
            if not skipping and share.mine and partition_of(row.key, share.partitions) in share.mine:
                self._letters.put(route.topic, row, self._ctx.as_json(), self._routes.headers)

    # -- transactions and commits -----------------------------------------------------------------------------------

    def _begin_transaction(self, event: Event, thread: int) -> None:
        self._at.thread, self._at.begun = thread, True
        transactions = self._transactions
        if transactions is None:
            return
        transactions.begin(self._at.gtid, event.file, event.start_pos)
        if self.index == 0 and not self._at.statement_committed():
            self._output.side(*transactions.begin_record(), headed=False)

    def _end_transaction(self, event: Event) -> None:
        at = self._at
        if self._transactions is not None and self._transactions.open:
            if self.index == 0 and not at.transaction_committed():
                self._output.side(*self._transactions.end_record(), headed=False)
            self._transactions.end()
        if self._routes.signals is not None:
            self._ending = event
            self._routes.signals.end(at.boundary, committed=at.transaction_committed())
        if at.gtid is not None:
            self._tracker.add(at.gtid)
        at.pass_to(event.file, event.end_pos)
