"""One writer of a batch: reads the whole range of the batch and produces its share of the records in binlog order."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.event import TransactionDecoder
from airflow_provider_mysql_cdc.cdc.binlog.server_errors import is_broken_connection
from airflow_provider_mysql_cdc.cdc.binlog.stream import BinlogStream, open_stream
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.decode.native_kernel import kernel
from airflow_provider_mysql_cdc.cdc.drain.committer import CHECK_EVENTS, Committer
from airflow_provider_mysql_cdc.cdc.drain.ddl_effects import DdlEffects
from airflow_provider_mysql_cdc.cdc.drain.event_handlers import EventHandlers
from airflow_provider_mysql_cdc.cdc.drain.plain_transactions import PlainTransactions
from airflow_provider_mysql_cdc.cdc.drain.reconnects import Reconnects
from airflow_provider_mysql_cdc.cdc.drain.row_events import RecordOutput
from airflow_provider_mysql_cdc.cdc.drain.table_routes import TableRoutes
from airflow_provider_mysql_cdc.cdc.drain.whole_transactions import WholeTransactions
from airflow_provider_mysql_cdc.cdc.drain.writer_context import WriterContext
from airflow_provider_mysql_cdc.cdc.drain.writer_position import WriterPosition
from airflow_provider_mysql_cdc.cdc.errors import (
    IncompatibleSchemaError,
    RecordTooLargeError,
    SourceConnectionError,
    TransformError,
)
from airflow_provider_mysql_cdc.cdc.faults import fault_point
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset


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
    """Read a batch's events in binlog order, over as many connections as that takes, and commit their records.

    Args:
        whole_transactions: Decodes whole transactions natively; None where each event is handled in Python.
        plain_transactions: Handles the events of plain transactions where ``whole_transactions`` does not; None where
            ``handlers`` get each event.
    """

    context: WriterContext
    position: WriterPosition
    routes: TableRoutes
    handlers: EventHandlers
    ddl: DdlEffects
    output: RecordOutput
    committer: Committer
    whole_transactions: WholeTransactions | None
    plain_transactions: PlainTransactions | None = None

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
            raise self.ddl.ddl_events.name_statement(error) from error
        except (TransformError, IncompatibleSchemaError) as error:
            if self.context.cfg.chain is not None:
                # The row event may be produced in part, so nothing is committed here.
                self.context.report_refusal(self.position.reached().offset, error)
            raise
        fault_point("writer.done", self.context.index)
        clock = self.committer.commit_clock
        commit_ts = clock.last or None if clock is not None else None
        return WriterResult(self.output.counts.by_topic, self.ddl.state, self.position.last_transaction, commit_ts)

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
            stream = self._reconnect(reconnects, error, stream.created) if self.position.has_moved else None
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
        self.position.connect(stream.local_gtids)
        return stream

    def _read_events(self, stream: BinlogStream) -> SourceConnectionError | None:
        """Handle events to the end of the batch; return the error where the connection breaks before it."""
        handlers, handle_rows = self.handlers.by_type(), self.handlers.rows.handle
        row_event_types, check, until_check = c.ROW_EVENT_KINDS, self.committer.check, CHECK_EVENTS
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
        if self.ddl.changed_at == (position.file, position.pos):
            raise error  # the structures are not those of the boundary any more
        self.committer.commit_pending()
        while True:
            reconnects.wait(error, (position.file, position.pos, position.events, position.statements))
            # The server ends an older dump of the same client: it must not be that of a newer attempt.
            self.context.require_in_force()
            try:
                reached = position.reached()
                stream = self._open_stream(self._place_on_same_server(reached.offset, created))
            except SourceConnectionError as refused:
                error = refused
                continue
            position.read_again(reached)
            self.handlers.abandon_transaction()
            return stream

    def _place_on_same_server(self, reached: BinlogOffset, created: tuple[str, int]) -> BinlogOffset:
        """Return a boundary with what tells its server and its binlog file from others of this name."""
        place = self.context.plan.start.with_position(reached.file, reached.pos, reached.gtids)
        file, created_s = created
        return replace(place, origin=str(created_s)) if place.origin is None and file == place.file else place
