"""Plain transactions without the event loop: GTID, BEGIN, TABLE_MAP of known tables, rows and XID.

The events of plain transactions without the event loop: GTID, BEGIN, TABLE_MAP of known tables, rows and XID.

The stream yields an object for each event, which the writer hands to what handles its type. Where transactions have one
row, that costs as much as decoding a wide row. Here one loop looks at the bytes of the event types that nearly all
events have, and does what the writer's handlers do; inserted rows go to ``plain_rows``. It ends at the first event that
is anything else, or that does not hold what it should: the stream and the handlers go on there, also in the middle of a
transaction. What is only counted becomes visible at the end of a call, and where the writer may commit.

Inserted rows of plain transactions: the texts around them are made as seldom as they change, and counts added late.

Most row events of a writer in pure Python insert rows of a table whose records need nothing after they are decoded, and
all of which the writer produces. For those, what ``RowEventHandler`` looks at in each event is looked at once in each
table, and the bytes of a chunk become text once. Counts are added to the writer's when somebody reads them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import NamedTuple
from zlib import crc32

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.control_events import CRC_RESIDUE
from airflow_provider_mysql_cdc.cdc.binlog.event import HEADER_LENGTH, Event
from airflow_provider_mysql_cdc.cdc.binlog.event_parsers import parse_common_gtid
from airflow_provider_mysql_cdc.cdc.binlog.query import begin_thread_id
from airflow_provider_mysql_cdc.cdc.binlog.rows_header import FLAGS_END, TABLE_ID_BYTES
from airflow_provider_mysql_cdc.cdc.binlog.unused_rows import FRAME
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import NULLED
from airflow_provider_mysql_cdc.cdc.decode.codegen.emitter import ROW_ERRORS, NullBitmapFunctions
from airflow_provider_mysql_cdc.cdc.decode.row_decoder import RowDecoder
from airflow_provider_mysql_cdc.cdc.decode.values.json_bytes import to_byte_text
from airflow_provider_mysql_cdc.cdc.drain.committer import CHECK_EVENTS, Committer
from airflow_provider_mysql_cdc.cdc.drain.row_events import RowEventHandler
from airflow_provider_mysql_cdc.cdc.drain.table_route import TableRoute
from airflow_provider_mysql_cdc.cdc.drain.table_routes import TableRoutes
from airflow_provider_mysql_cdc.cdc.drain.writer_meter import WriterMeter
from airflow_provider_mysql_cdc.cdc.drain.writer_position import WriterPosition
from airflow_provider_mysql_cdc.cdc.emit import source_block as source_of
from airflow_provider_mysql_cdc.cdc.emit.source_block import SourceBlock, change_us
from airflow_provider_mysql_cdc.cdc.formats.unwrapped_decoder import UnwrappedRowDecoder, UnwrappedSource
from airflow_provider_mysql_cdc.cdc.formats.unwrapped_rows import UnwrappedRows
from airflow_provider_mysql_cdc.cdc.model.records import RowRecord, byte_count

_PLAIN_DECODERS = (RowDecoder, UnwrappedRowDecoder)
_MAX_TABLES = 1024
_MAX_TEXT = 2 << 20
"""Bytes of a chunk that is made text at once; rows of larger ones, which hold a large event, go through the handler."""


@dataclass(slots=True)
class PlainInserts:
    """Hold what the inserted rows of a table need.

    Args:
        route: The table's route.
        source: Writes the source block, or the text after unwrapped rows.
        decoder: Decodes its rows.
        table_id: The table's number, as it stands in events.
        header: What stands between flags and rows.
        before_source: Text before the source block.
        tail: Text after the row's number.
        thread: The thread that the tail names; None when it has to be made again.
        now: The time in nanoseconds that unwrapped rows show.
    """

    route: TableRoute
    source: SourceBlock | UnwrappedSource
    decoder: RowDecoder
    table_id: bytes
    header: bytes
    before_source: str = ""
    tail: str = ""
    thread: int | None = None
    now: int = 0
    functions: NullBitmapFunctions = field(init=False)
    bitmap_size: int = field(init=False)
    rows_at: int = field(init=False)

    def __post_init__(self) -> None:
        self.functions, self.bitmap_size = self.decoder.writes, self.decoder.bitmap_size
        self.rows_at = FLAGS_END + len(self.header)


@dataclass(slots=True)
class PlainRows:
    """Produce the records of inserted rows.

    Args:
        handler: Handles all other rows.
    """

    handler: RowEventHandler
    _tables: dict[bytes, tuple[TableRoute, PlainInserts | None]] = field(default_factory=dict)
    _chunk: bytes = b""
    _text: str = ""
    _records: list[RowRecord] = field(default_factory=list)
    _counted: PlainInserts | None = None
    _row_count: int = 0
    _last: tuple[int, int, str, int, str | None, int] | None = None

    def table(self, table_map: bytes, chunk: bytes) -> PlainInserts | None:
        """Return what the rows of a table need; None where the handler reads them.

        Args:
            table_map: The body of the TABLE_MAP event, whose route is in use.
            chunk: What holds the rows.
        """
        handler, table_id = self.handler, table_map[:TABLE_ID_BYTES]
        route = handler.routes.by_id[int.from_bytes(table_id, "little")]
        known = self._tables.get(table_map)
        if known is None or known[0] is not route:
            if len(self._tables) >= _MAX_TABLES:
                self._tables.clear()
            known = self._tables[table_map] = route, _plain_table(handler, route, table_id)
        return None if handler.xa.open or len(chunk) > _MAX_TEXT else known[1]

    def insert(
        self,
        table: PlainInserts,
        chunk: bytes,
        body: int,
        end: int,
        file: str,
        pos: int,
        server_id: int,
        timestamp: int,
    ) -> bool:
        """Produce the records of an event, or return False: the handler reads it, and finds out why.

        Raises:
            SinkError: Kafka does not accept a record.
        """
        handler, first = self.handler, body + table.rows_at
        if chunk[body : body + TABLE_ID_BYTES] != table.table_id or chunk[body + FLAGS_END : first] != table.header:
            return False
        position, source = handler.position, table.source
        if position.thread != table.thread or table is not self._counted:
            self._begin_rows(table)
        gtid, commit_us = position.gtid, position.commit_us
        gtid_text, file_text, head = "null" if gtid is None else f'"{gtid}"', f'"{file}"', ""
        if isinstance(source, SourceBlock):
            us, marker = change_us(source.layout, timestamp, commit_us), source.streamed_marker
            head = source.head(us, marker, server_id, gtid_text, file_text, pos)
        elif source.differs:
            us, thread = change_us(source.plain.layout, timestamp, commit_us), position.thread or "null"
            handler.ctx.src_tail = source.fields(
                us, "null", server_id, gtid_text, file_text, pos, thread, "null", table.now
            )
            table.tail = table.decoder.row_texts(handler.ctx, "c")[1]
        if not self._decode(table, chunk, first, end, table.before_source + head):
            return False
        position.add_rows(end - body)
        records, output = self._records, handler.output
        if isinstance(source, SourceBlock):
            output.sink.produce_all(table.route.topic, records, output.headers)
        else:
            output.sink.produce_plain(table.route.topic, records, output.headers, 0, byte_count(records))
        self._counted, self._row_count = table, self._row_count + len(records)
        self._last = timestamp, server_id, file, pos, gtid, commit_us
        return True

    def _decode(self, table: PlainInserts, chunk: bytes, at: int, end: int, middle: str) -> bool:
        """Decode the rows of an event; return whether it holds some, and all are what they should be."""
        if chunk is not self._chunk:
            self._chunk, self._text = chunk, chunk.decode("latin-1")
        text, records, functions, size = self._text, self._records, table.functions, table.bitmap_size
        if not middle.isascii():
            middle = to_byte_text(middle)
        records.clear()
        tail, row, append = table.tail, self.handler.ctx.first_row, records.append
        try:
            while at < end:
                at, row = functions[chunk[at : at + size]](chunk, text, at, end, middle, tail, row, append)
        except ROW_ERRORS:
            at = 0
        if at != end or NULLED.values:
            NULLED.values.clear()
            return False
        return bool(records)

    def _begin_rows(self, table: PlainInserts) -> None:
        """Make the texts of a table's rows, and count those of the table before."""
        if table is not self._counted:
            self.add_counts()
        ctx, source = self.handler.ctx, table.source
        table.thread = thread = self.handler.position.thread
        table.now = time.time_ns()
        ctx.src_head = ctx.src_tail = ""
        if isinstance(source, SourceBlock):
            ctx.src_tail, ctx.tail = source.tail_by_thread[thread], source.op_tail(table.now)
        table.before_source, table.tail = table.decoder.row_texts(ctx, "c")

    def add_counts(self) -> None:
        """Add what was produced since the last call to the writer's counts, and let the next rows show a new time."""
        table, rows, last = self._counted, self._row_count, self._last
        if table is None or last is None:
            return
        route, counts = table.route, self.handler.output.counts
        timestamp, server_id, file, pos, gtid, commit_us = last
        counts.add_rows(route.topic, route.path, rows)
        counts.meter.created += rows
        event = Event(c.WRITE_ROWS_EVENT_V2, timestamp, server_id, 0, file, pos, pos, b"", 0, 0)
        counts.meter.last_rows = route.path, event, gtid, commit_us
        table.thread = self._counted = self._last = None
        self._row_count = 0


def _plain_table(handler: RowEventHandler, route: TableRoute, table_id: bytes) -> PlainInserts | None:
    """Return what the inserted rows of a table need; None where their records need more than decoding."""
    decoder, share, output, source = route.decoder, route.share, handler.output, route.source
    header = route.headers.get(c.WRITE_ROWS_EVENT_V2)
    if decoder is None or route.decode[0] != decoder.write:
        return None
    if isinstance(decoder, UnwrappedRows) and isinstance(source, UnwrappedSource) and source.headers is None:
        decoder = decoder.avro_decoder
    elif not isinstance(source, SourceBlock) or route.write_source_block is not source_of.fill:
        return None
    if header is None or not isinstance(decoder, RowDecoder) or type(decoder) not in _PLAIN_DECODERS:
        return None
    if route.record_format is not None or route.id_headers is not None or output.has_id_header:
        return None
    if not share.all_assigned or share.partitions != 1 or "c" in decoder.options.skipped_ops:
        return None
    if handler.needs_gtid_events or handler.metadata is not None or handler.window_keys is not None:
        return None
    return PlainInserts(route, source, decoder, table_id, header)


_LENGTH, _BODY = 0xFFFFFF, 24
_LOW32 = 0xFFFFFFFF
_EVENT = 5  # offset of an event in its packet: after the packet's header and the status
_MAX_BEGINS = 256
_GTID_KINDS = frozenset({c.GTID_LOG_EVENT, c.ANONYMOUS_GTID_LOG_EVENT})
_NO_KIND = -1
_AROUND_ROWS = 4
"""Events of a transaction of one statement besides its rows."""


class HandledEvents(NamedTuple):
    """Say where the stream goes on (``binlog.event.DecodedTransactions``).

    Args:
        at: Offset behind the events.
        pos: Position behind them.
        cut: Whether more bytes are wanted; the stream itself waits for the rest of an event.
    """

    at: int
    pos: int
    cut: bool = False


@dataclass(slots=True)
class PlainTransactions:
    """Handle the events of plain transactions for a writer.

    Args:
        has_begin: Whether something else has to be done where a transaction begins (transaction metadata).
        has_end: Whether something else has to be done where it ends (transaction metadata, signals).
    """

    position: WriterPosition
    routes: TableRoutes
    rows: RowEventHandler
    committer: Committer
    meter: WriterMeter
    has_begin: bool = False
    has_end: bool = False
    _plain_rows: PlainRows = field(init=False)
    _begins: dict[bytes, int] = field(default_factory=dict)
    _until_check: int = CHECK_EVENTS
    _ended: int = 0

    def __post_init__(self) -> None:
        self._plain_rows = PlainRows(self.rows)

    def handle_events(self, chunk: bytes, at: int, file: str, pos: int, limit: int, tail: int) -> HandledEvents:
        """Handle events up to the first one that the event loop has to handle (``TransactionDecoder``).

        Raises:
            CdcError: As ``RowEventHandler.handle`` and ``Committer.check``.
        """
        if self.position.resume is not None or self.position.file != file or self.rows.output.taken_over is not None:
            return HandledEvents(at, pos)
        try:
            return self._handle_events(chunk, at, file, pos, limit, tail)
        finally:
            self.add_counts()

    def add_counts(self) -> None:
        """Add what was read since the last call to the writer's counts."""
        self._plain_rows.add_counts()
        self.meter.add_decoded(self._ended, 0)
        self._ended = 0

    # One loop with few calls and no table of handlers: that would cost a tenth of what a wide row costs.
    def _handle_events(  # noqa: C901, PLR0912
        self, chunk: bytes, at: int, file: str, pos: int, limit: int, tail: int
    ) -> HandledEvents:
        frame, verify, filled, least = FRAME.unpack_from, crc32, len(chunk), FRAME.size
        gtid_kinds = frozenset[int]() if self.rows.needs_gtid_events else _GTID_KINDS
        begin_kind = _NO_KIND if self.has_begin else c.QUERY_EVENT
        end_kind = _NO_KIND if self.has_end else c.XID_EVENT
        row_kinds, map_kind, insert_kind, insert = (
            c.ROW_EVENT_KINDS,
            c.TABLE_MAP_EVENT,
            c.WRITE_ROWS_EVENT_V2,
            self._plain_rows.insert,
        )
        sink, commit_bytes = self.committer.sink, self.committer.commit_bytes
        position, begins = self.position, self._begins
        table_map, table, until_check = b"", None, self._until_check
        while filled - at >= least:
            length_word, status, timestamp, kind, server_id, size, log_pos, flags = frame(chunk, at)
            stop, end_pos = at + 4 + (length_word & _LENGTH), pos + size
            if stop > filled or size != stop - at - _EVENT or size < HEADER_LENGTH + tail or status:
                break
            if end_pos & _LOW32 != log_pos or end_pos > limit:
                break
            if tail and verify(chunk[at + _EVENT : stop]) != CRC_RESIDUE:
                break
            body, end = at + _BODY, stop - tail
            if kind in row_kinds:
                if (
                    table is None
                    or kind != insert_kind
                    or not insert(table, chunk, body, end, file, pos, server_id, timestamp)
                ):
                    # As ``Event(...)``, in half the time.
                    event = kind, timestamp, server_id, flags, file, pos, end_pos, chunk, body, end, False
                    self.add_counts()
                    self.rows.handle(tuple.__new__(Event, event))
                until_check = 0 if sink.bytes_pending >= commit_bytes else until_check - 1
            elif kind == end_kind:
                self._ended += 1
                until_check -= _AROUND_ROWS
                position.end(file, end_pos)
            elif kind in gtid_kinds:
                if not self._begin_transaction(kind, file, server_id, chunk, body, end):
                    break
                if position.is_lent:
                    at, pos = stop, end_pos
                    break
            elif kind == map_kind:
                if chunk[body:end] != table_map:
                    if not self._announce(table_map := chunk[body:end]):
                        break
                    table = self._plain_rows.table(table_map, chunk)
            elif kind == begin_kind and (thread := begins.get(chunk[body:end]) or self._read_begin(chunk[body:end])):
                position.begin_statement(thread)
            else:
                break
            at, pos = stop, end_pos
            if until_check <= 0:
                until_check = CHECK_EVENTS
                self.add_counts()
                self.committer.check()
        self._until_check = until_check
        return HandledEvents(at, pos)

    def _begin_transaction(self, kind: int, file: str, server_id: int, chunk: bytes, body: int, end: int) -> bool:
        position = self.position
        if position.events or position.statements or position.query is not None:
            return False
        parsed = parse_common_gtid(kind, chunk, body, end)
        if parsed is None:
            return False
        gtid, commit_us = parsed
        position.begin(file, server_id, gtid, commit_us)
        return True

    def _read_begin(self, text: bytes) -> int | None:
        thread = begin_thread_id(Event(c.QUERY_EVENT, 0, 0, 0, "", 0, 0, text, 0, len(text)))
        if thread is not None:
            if len(self._begins) >= _MAX_BEGINS:
                self._begins.clear()
            self._begins[text] = thread
        return thread

    def _announce(self, table_map: bytes) -> bool:
        number = int.from_bytes(table_map[:TABLE_ID_BYTES], "little")
        return self.routes.announce(number, table_map[TABLE_ID_BYTES:])
