"""The events of plain transactions without the event loop: GTID, BEGIN, TABLE_MAP of known tables, rows and XID.

The stream yields an object for each event, which the writer hands to what handles its type. Where transactions have one
row, that costs as much as decoding a wide row. Here one loop looks at the bytes of the event types that nearly all
events have, and does what the writer's handlers do. It ends at the first event that is anything else, or that does not
hold what it should: the stream and the handlers go on there, also in the middle of a transaction.
"""

from __future__ import annotations

from collections.abc import Callable
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
from airflow_provider_mysql_cdc.cdc.drain.row_events import RowEventHandler
from airflow_provider_mysql_cdc.cdc.drain.table_routes import TableRoutes
from airflow_provider_mysql_cdc.cdc.drain.writer_meter import WriterMeter
from airflow_provider_mysql_cdc.cdc.drain.writer_position import WriterPosition
from airflow_provider_mysql_cdc.cdc.model.gtid import GtidTracker

_LENGTH, _BODY = 0xFFFFFF, 24
_LOW32 = 0xFFFFFFFF
_EVENT = 5  # offset of an event in its packet: after the packet's header and the status
_MAX_BEGINS = 256

EventFrame = tuple[int, int, int, int, int, int, int, int]
"""Packet header, status, timestamp, type, server id, size, position behind the event and flags (``FRAME``)."""
HandlePlainEvent = Callable[[bytes, int, int, EventFrame, str, int, int], bool]
"""Handles an event, or returns False: bytes, offset of its body and behind it, header, file, position of the event and
behind it."""


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
        position: The writer's position.
        tracker: The GTIDs that the writer has read.
        routes: Routes of the tables that TABLE_MAP events announced.
        rows: Handles row events.
        committer: Commits when it is time.
        meter: Counts transactions.
        has_begin: Whether something else has to be done where a transaction begins (transaction metadata).
        has_end: Whether something else has to be done where it ends (transaction metadata, signals).
    """

    position: WriterPosition
    tracker: GtidTracker
    routes: TableRoutes
    rows: RowEventHandler
    committer: Committer
    meter: WriterMeter
    has_begin: bool = False
    has_end: bool = False
    _handlers: dict[int, HandlePlainEvent] = field(init=False)
    _begins: dict[bytes, int] = field(default_factory=dict)
    _until_check: int = CHECK_EVENTS

    def __post_init__(self) -> None:
        self._handlers = {c.TABLE_MAP_EVENT: self._table_map, **dict.fromkeys(c.ROW_EVENT_KINDS, self._rows)}
        if not self.rows.needs_gtid_events:
            self._handlers |= dict.fromkeys((c.GTID_LOG_EVENT, c.ANONYMOUS_GTID_LOG_EVENT), self._gtid)
        if not self.has_begin:
            self._handlers[c.QUERY_EVENT] = self._begin
        if not self.has_end:
            self._handlers[c.XID_EVENT] = self._commit

    def handle_events(self, chunk: bytes, at: int, file: str, pos: int, limit: int, tail: int) -> HandledEvents:
        """Handle events up to the first one that the event loop has to handle.

        Args:
            chunk: Packets of a dump.
            at: Offset of the packet with a GTID event.
            file: Binlog file.
            pos: Position of that event.
            limit: No event ends after this position.
            tail: Bytes of checksum after each event.

        Raises:
            CdcError: As ``RowEventHandler.handle`` and ``Committer.check``.
        """
        if self.position.resume is not None:
            return HandledEvents(at, pos)
        handlers, frame, verify, filled, least = self._handlers, FRAME.unpack_from, crc32, len(chunk), FRAME.size
        while filled - at >= least:
            header = frame(chunk, at)
            length_word, status, _, kind, _, size, log_pos, _ = header
            stop, end_pos = at + 4 + (length_word & _LENGTH), pos + size
            if stop > filled or size != stop - at - _EVENT or size < HEADER_LENGTH + tail or status:
                break
            handle = handlers.get(kind)
            if handle is None or end_pos & _LOW32 != log_pos or end_pos > limit:
                break
            if tail and verify(chunk[at + _EVENT : stop]) != CRC_RESIDUE:
                break
            if not handle(chunk, at + _BODY, stop - tail, header, file, pos, end_pos):
                break
            at, pos = stop, end_pos
            self._until_check -= 1
            if not self._until_check:
                self._until_check = CHECK_EVENTS
                self.committer.check()
        return HandledEvents(at, pos)

    def _gtid(self, chunk: bytes, body: int, end: int, header: EventFrame, file: str, pos: int, end_pos: int) -> bool:
        position = self.position
        if position.file != file or position.events or position.statements or position.query is not None:
            return False
        parsed = parse_common_gtid(header[3], chunk, body, end)
        if parsed is None:
            return False
        gtid, commit_us = parsed
        position.gtid, position.commit_us, position.thread, position.begun = gtid, commit_us, 0, False
        position.last_transaction = header[4], gtid
        return True

    def _begin(self, chunk: bytes, body: int, end: int, header: EventFrame, file: str, pos: int, end_pos: int) -> bool:
        text = chunk[body:end]
        thread = self._begins.get(text)
        if thread is None:
            event = Event(*header[3:1:-1], header[4], header[7], file, pos, end_pos, chunk, body, end)
            thread = begin_thread_id(event)
            if thread is None:
                return False
            if len(self._begins) >= _MAX_BEGINS:
                self._begins.clear()
            self._begins[text] = thread
        position = self.position
        position.statements += 1
        position.thread, position.begun = thread, True
        return True

    def _table_map(
        self, chunk: bytes, body: int, end: int, header: EventFrame, file: str, pos: int, end_pos: int
    ) -> bool:
        number = int.from_bytes(chunk[body : body + TABLE_ID_BYTES], "little")
        return self.routes.announce(number, chunk[body + TABLE_ID_BYTES : end])

    def _rows(self, chunk: bytes, body: int, end: int, header: EventFrame, file: str, pos: int, end_pos: int) -> bool:
        _, _, timestamp, kind, server_id, _, _, flags = header
        # As ``Event(...)``, in half the time.
        event = tuple.__new__(Event, (kind, timestamp, server_id, flags, file, pos, end_pos, chunk, body, end, False))
        self.rows.handle(event)
        return True

    def _commit(self, chunk: bytes, body: int, end: int, header: EventFrame, file: str, pos: int, end_pos: int) -> bool:
        position = self.position
        self.meter.end_transaction(committed=True)
        if position.gtid is not None:
            self.tracker.add(position.gtid)
        position.move_to(file, end_pos)
        return True
