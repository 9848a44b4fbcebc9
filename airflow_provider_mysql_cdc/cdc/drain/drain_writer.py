"""One writer of a drain: reads the whole range of the batch and produces what it owns, in binlog order."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog import events as ev
from airflow_provider_mysql_cdc.cdc.binlog.dump import FILE_START
from airflow_provider_mysql_cdc.cdc.binlog.stream import Event, open_stream
from airflow_provider_mysql_cdc.cdc.commit.known_topics import KnownTopic
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan, Marker
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.enums import Operation
from airflow_provider_mysql_cdc.cdc.ddl.apply import Applied, TableChange
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.decode.context import EventContext
from airflow_provider_mysql_cdc.cdc.decode.header import check_rows, rows_header
from airflow_provider_mysql_cdc.cdc.drain.committer import CHECK_EVENTS, Committer, Progress
from airflow_provider_mysql_cdc.cdc.drain.key_filters import KeyFilters, RowsAt
from airflow_provider_mysql_cdc.cdc.drain.place import Position
from airflow_provider_mysql_cdc.cdc.drain.read_at import CommittedBy
from airflow_provider_mysql_cdc.cdc.drain.routes import Route, Routes
from airflow_provider_mysql_cdc.cdc.drain.schema_log import SchemaLog
from airflow_provider_mysql_cdc.cdc.drain.side_records import truncate_value
from airflow_provider_mysql_cdc.cdc.drain.touched_keys import TouchedKeys
from airflow_provider_mysql_cdc.cdc.drain.transactions import PLACEHOLDER, Transactions
from airflow_provider_mysql_cdc.cdc.drain.xa_transactions import XaTransactions, find_prepared, parse_xa, read_rows
from airflow_provider_mysql_cdc.cdc.emit import source
from airflow_provider_mysql_cdc.cdc.errors import UnsupportedEventError
from airflow_provider_mysql_cdc.cdc.faults import fault_point
from airflow_provider_mysql_cdc.cdc.job.dead_letter import DeadLetters
from airflow_provider_mysql_cdc.cdc.job.owner import partition_of
from airflow_provider_mysql_cdc.cdc.model.gtid import GtidTracker
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.xa import PreparedXa
from airflow_provider_mysql_cdc.cdc.schema.told_changes import apply_all
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
    _at: Position = field(init=False)
    _routes: Routes = field(init=False)
    _log: SchemaLog = field(init=False)
    _letters: DeadLetters = field(init=False)
    _tables: dict[int, Route] = field(default_factory=dict)
    _tracker: GtidTracker = field(init=False)
    _ctx: EventContext = field(init=False)
    _committer: Committer = field(init=False)
    _transactions: Transactions | None = None
    _xa: XaTransactions = field(init=False)
    _committing: Event | None = None
    _ending: Event | None = None
    _committed_by: CommittedBy | None = None

    def __post_init__(self) -> None:
        self._at = Position(self.plan.start)
        self._routes = Routes(self.cfg, self.plan, self.index, self.run_id, self.filters, self.topics, self.touched)
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
        )
        if self._routes.signals is not None:
            self._routes.signals.on_structures = self._structures
        self._letters = DeadLetters(self.cfg, self.index, self.sink.produce, self.counts)

    def run(self) -> dict[str, int]:
        """Read from the batch's start to its end and commit everything; return records per topic.

        Raises:
            CdcError: Anything that keeps the batch from being complete; nothing after the last marker is visible.
        """
        handlers = self._handlers()
        rows, check, left = _ROWS_VERSIONS, self._committer.check, CHECK_EVENTS
        stream = open_stream(
            self.cfg.connection_settings(),
            self.plan.start,
            server_id=self.cfg.server_id(self.index),
            silence_timeout_s=self.cfg[F.SOURCE_SILENCE_TIMEOUT_MS] / 1000,
            on_wait=check,
        )
        try:
            for event in stream.events(self.plan.end):
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
        self._at.enter(self._boundary(self.plan.end.file, self.plan.end.pos))
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
        self.last = event.server_id, parsed.gtid
        # A file that the server's stop or crash ended has no ROTATE event that names the next one.
        moved = event.file != at.boundary.file
        at.enter(self._boundary(event.file, FILE_START) if moved else None)

    def _rows_query(self, event: Event) -> None:
        self._at.query = ev.parse_rows_query(event)

    def _rotate(self, event: Event) -> None:
        rotate = ev.parse_rotate(event)
        self._at.enter(self._boundary(rotate.file, rotate.position))

    def _table_map(self, event: Event) -> None:
        table_id, route = self._routes.of_table_map(event, self.state)
        self._tables[table_id] = route

    def _query(self, event: Event) -> None:
        query = ev.parse_query(event)
        self._at.statements += 1
        sql = query.sql.strip()
        word = sql[:8].upper().rstrip(";")
        if word == "BEGIN":
            self._at.thread = query.thread_id
            self._at.begun = True
            self._begin_transaction(event)
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
        verb, xid = parse_xa(sql) or ("", "")
        if verb == "END":
            return
        if verb not in ("START", "COMMIT", "ROLLBACK"):
            raise UnsupportedEventError(
                "an XA statement is not understood",
                where=f"{event.file}:{event.start_pos}: {sql[:200]}",
                why="whether its transaction commits decides about rows",
                remedy="report the statement; no setting passes it over",
            )
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
            if event.type in _ROWS_VERSIONS:
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
                self._produce(topic, key, value, 0)

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
                self._produce(topic, key, value, 0)
        return True

    def _changed(self, state: SchemaState, event: Event, changes: Sequence[TableChange]) -> None:
        before, self.state = self.state, state
        self._routes.forget(before, self.state, f"{event.file}:{event.start_pos}", changes)
        self._tables.clear()

    def _truncations(self, event: Event, applied: Applied) -> None:
        """Produce the truncate events of the topics whose partition 0 this writer owns."""
        if str(Operation.TRUNCATE) in self._routes.options.skipped_ops:
            return
        for change in applied.changes:
            if change.kind == "TRUNCATE" and change.table is not None and self.cfg.captures(change.table.id):
                share = self._routes.ready_share(change.table.id)
                if 0 in share.mine:
                    self._produce(share.topic, None, truncate_value(self.cfg, change.table, event, self._at), 0)

    def _rows(self, event: Event) -> None:
        if self._xa.open:
            return
        at = self._at
        at.events += 1
        header = rows_header(event)
        route = self._tables.get(header.table_id)
        if route is None:
            raise self._routes.unknown_table(event, header.table_id)
        if route.signals is not None:
            # Also of events that are committed: the transaction's end may not be.
            route.signals.take(event, header, _ROWS_VERSIONS[event.type])
        if self.touched is not None:
            at_row = RowsAt(event, header.pos, _ROWS_VERSIONS[event.type])
            self.touched.rows(route.table, at_row, self._committing or event)
        if route.source is None or route.decoder is None:
            return
        check_rows(event, header, len(route.decoder.table.columns))
        skipping = at.resume is not None and at.rows_committed()
        if skipping and self._transactions is None:
            return
        ctx = self._ctx
        source.fill(ctx, route.source, event, at)
        out: list[Any] = []
        route.decode[_ROWS_VERSIONS[event.type]](event.buf, header.pos, event.end, ctx, out)
        at_rows = RowsAt(event, header.pos, _ROWS_VERSIONS[event.type])
        if self._routes.failed:
            self._left_out(route, at_rows, skipping=skipping)
        if self.filters is not None:
            out = self.filters.keep(route.table, out, self._committing or event, at_rows, self._by())
        if self._transactions is not None:
            out = self._transactions.number(route.table, out)
            if skipping:
                return
        self._produce_rows(route, out, event)
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
                self._letters.put(route.topic, row, self._ctx, self._routes.headers)

    def _produce_rows(self, route: Route, out: list[Any], event: Event) -> None:
        produce, topic, share = self.sink.produce, route.topic, route.share
        headers = self._routes.headers
        n = 0
        if share.whole and share.partitions == 1 and not self._routes.identity:
            for key, value, _, _, header in out:
                produce(topic, key, value, 0, headers if header is None else [header, *headers])
            n = len(out)
        elif share.mine:
            for key, value, row, leg, header in out:
                part = partition_of(key, share.partitions)
                if part not in share.mine:
                    continue
                extra = headers if header is None else [header, *headers]
                if self._routes.identity:
                    extra = [*extra, ("cdc-id", self._identity(event, row, leg))]
                produce(topic, key, value, part, extra)
                n += 1
        if n:
            self.counts[topic] = self.counts.get(topic, 0) + n
            self.tables[route.path] = self.tables.get(route.path, 0) + n

    def _identity(self, event: Event, row: int, leg: int) -> bytes:
        """Return GTID (or server uuid, file and outer position), event ordinal, row and leg (design, section 4)."""
        at = self._at
        start = at.gtid or f"{self.plan.start.server_uuid}/{at.boundary}"
        return f"{start}/{at.events}/{row}/{leg}".encode()

    # -- transactions and commits -----------------------------------------------------------------------------------

    def _begin_transaction(self, event: Event) -> None:
        transactions = self._transactions
        if transactions is None:
            return
        transactions.begin(self._at.gtid, event.file, event.start_pos)
        if self.index == 0 and not self._at.statement_committed():
            self._produce(*transactions.begin_record(), 0, headed=False)

    def _end_transaction(self, event: Event) -> None:
        at = self._at
        if self._transactions is not None and self._transactions.open:
            if self.index == 0 and not at.transaction_committed():
                self._produce(*self._transactions.end_record(), 0, headed=False)
            self._transactions.end()
        if self._routes.signals is not None:
            self._ending = event
            self._routes.signals.end(at.boundary, committed=at.transaction_committed())
        if at.gtid is not None:
            self._tracker.add(at.gtid)
        at.enter(self._boundary(event.file, event.end_pos))

    def _boundary(self, file: str, pos: int) -> BinlogOffset:
        # The GTID set is rendered at commits only; here it would cost more than decoding a row.
        return BinlogOffset(file, pos, None, self.plan.start.server_uuid)

    def _produce(
        self, topic: str, key: bytes | None, value: bytes | None, partition: int, *, headed: bool = True
    ) -> None:
        """Produce a record that is no row event; transaction records get no context headers, as in Debezium."""
        headers = self._routes.headers if headed and topic != self.cfg.history_topic else None
        self.sink.produce(topic, key, value, partition, headers)
        if topic != self.cfg.history_topic:
            self.counts[topic] = self.counts.get(topic, 0) + 1


_ROWS_VERSIONS: dict[int, int] = {
    c.WRITE_ROWS_EVENT_V1: 0,
    c.WRITE_ROWS_EVENT_V2: 0,
    c.UPDATE_ROWS_EVENT_V1: 1,
    c.UPDATE_ROWS_EVENT_V2: 1,
    c.DELETE_ROWS_EVENT_V1: 2,
    c.DELETE_ROWS_EVENT_V2: 2,
    c.PARTIAL_UPDATE_ROWS_EVENT: 3,
}
