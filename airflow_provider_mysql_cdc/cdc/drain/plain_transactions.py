"""The events of plain transactions without the event loop: GTID, BEGIN, TABLE_MAP of known tables, rows and XID.

The stream yields an object for each event, which the writer hands to what handles its type. Where transactions have one
row, that costs as much as decoding a wide row. Here one loop looks at the bytes of the event types that nearly all
events have, and does what the writer's handlers do; inserted rows go to ``plain_rows``. It ends at the first event that
is anything else, or that does not hold what it should: the stream and the handlers go on there, also in the middle of a
transaction. What is only counted becomes visible at the end of a call, and where the writer may commit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple
from zlib import crc32

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.control_events import CRC_RESIDUE
from airflow_provider_mysql_cdc.cdc.binlog.event import Event
from airflow_provider_mysql_cdc.cdc.binlog.event_parsers import parse_common_gtid
from airflow_provider_mysql_cdc.cdc.binlog.query import begin_thread_id
from airflow_provider_mysql_cdc.cdc.binlog.rows_header import TABLE_ID_BYTES
from airflow_provider_mysql_cdc.cdc.binlog.unused_rows import FRAME
from airflow_provider_mysql_cdc.cdc.binlog.wire import HEADER_LENGTH
from airflow_provider_mysql_cdc.cdc.drain.committer import CHECK_EVENTS, Committer
from airflow_provider_mysql_cdc.cdc.drain.plain_rows import PlainRows
from airflow_provider_mysql_cdc.cdc.drain.row_events import RowEventHandler
from airflow_provider_mysql_cdc.cdc.drain.table_routes import TableRoutes
from airflow_provider_mysql_cdc.cdc.drain.writer_meter import WriterMeter
from airflow_provider_mysql_cdc.cdc.drain.writer_position import WriterPosition

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
