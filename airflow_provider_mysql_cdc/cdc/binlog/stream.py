"""The binlog as a stream of events, from a stored position to an end fixed beforehand."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable
from typing import Any, Protocol
from zlib import crc32

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog import control_events
from airflow_provider_mysql_cdc.cdc.binlog.connect import ConnectionSettings, connect
from airflow_provider_mysql_cdc.cdc.binlog.control_events import decompress_events
from airflow_provider_mysql_cdc.cdc.binlog.dump import FILE_START, UNREGISTERED_SERVER_ID, start_dump
from airflow_provider_mysql_cdc.cdc.binlog.event import HEADER_LENGTH, Event, TransactionDecoder
from airflow_provider_mysql_cdc.cdc.binlog.event_parsers import parse_rotate
from airflow_provider_mysql_cdc.cdc.binlog.file_fingerprint import require_creation_time
from airflow_provider_mysql_cdc.cdc.binlog.packets import MAX_PACKET_PAYLOAD, WHOLE_PACKET, PassedOver, raise_for_error
from airflow_provider_mysql_cdc.cdc.binlog.position import LocalGtids, readable_start
from airflow_provider_mysql_cdc.cdc.binlog.unused_rows import FRAME, HEAD_LENGTH, UnusedRows, pass_over
from airflow_provider_mysql_cdc.cdc.errors import READ_AGAIN, BinlogCorruptError, StateError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, file_number, same_base

__all__ = ["BinlogStream", "Event", "PacketSource", "open_stream"]

_FRAME_LENGTH = FRAME.size
_EVENT_OFFSET = 5
_BODY_OFFSET = 24
_LOW32 = _MAX_START_POSITION = 0xFFFFFFFF
_NO_LIMIT = 1 << 63
_END_PASSED = -1
# What begins a transaction that may be walked; tagged GTIDs are of another type.
_TRANSACTION_STARTS = frozenset({c.GTID_LOG_EVENT, c.ANONYMOUS_GTID_LOG_EVENT})


def _follows_max_packet(chunk: bytes, at: int) -> bool:
    """Return whether the packet before this offset has the greatest length, so that an empty one may end it."""
    before = at - MAX_PACKET_PAYLOAD - 4
    return before >= 0 and chunk[before : before + 3] == b"\xff\xff\xff"


class PacketSource(Protocol):
    """Where packets come from (``packets.PacketReader``)."""

    def next_chunk(self, chunk: bytes, pos: int, more_than: int = 0, enough: int = WHOLE_PACKET) -> bytes:
        """Return a chunk that begins at ``chunk[pos]``, holds a whole packet, and more bytes than ``more_than``.

        As many bytes as ``enough`` need not be a whole packet.
        """

    def join_packets(self, chunk: bytes, pos: int, max_length: int) -> tuple[bytes, int]:
        """Return a chunk that begins with the payload of a packet of 16 MB or more, and the payload's end.

        A payload longer than ``max_length`` bytes is not whole.
        """

    def pass_over(self, chunk: bytes, pos: int, length: int, kept: int) -> PassedOver:
        """Read a payload of ``length`` bytes and keep the first ``kept`` of them."""


class BinlogStream:
    """Turn packets of a dump into events.

    Args:
        packets: Where packets come from.
        start: The position asked for.
        by_gtid: Whether the server leaves out transactions of the GTID set that was sent; positions then jump.
        connection: Closed with the stream.
        after: The offset that the caller asked for, if its file was purged and nothing after it: then no event is
            between it and ``start``.

    Attributes:
        server_version: Version of the server that wrote the current file, from its FORMAT_DESCRIPTION event.
        skipped: Events left out because MySQL marks them ignorable and their type is not known here.
        heartbeats: Heartbeats received.
        created: The current file, and when it was made in seconds since 1970, from its FORMAT_DESCRIPTION event.
        begun_by_start: Whether it is the first file since the server's start, from the same event.
        local_gtids: How the server signs its own transactions; a reader without an id does not ask.
    """

    def __init__(
        self,
        packets: PacketSource,
        start: BinlogOffset,
        *,
        by_gtid: bool = False,
        connection: Any = None,
        after: BinlogOffset | None = None,
    ) -> None:
        self._packets, self._by_gtid, self._connection, self._after = packets, by_gtid, connection, after
        self._chunk, self._at = b"", 0
        self._file, self._pos = start.file, start.pos
        self._unchecked_start = None if by_gtid else start
        # With GTIDs the server chooses the file; until its first ROTATE the place is not known.
        self._position_known = not by_gtid
        self._end: BinlogOffset | None = None
        self._limit = _NO_LIMIT
        self.server_version = ""
        self._checksum_length = 0  # bytes of checksum after each event, known from FORMAT_DESCRIPTION
        self.skipped = self.heartbeats = 0
        self.created = "", 0
        self.begun_by_start = False
        self.local_gtids = LocalGtids()
        self._handlers: dict[int, Callable[[Event, int], Iterable[Event]]] = {
            c.ROTATE_EVENT: self._rotate,
            c.FORMAT_DESCRIPTION_EVENT: self._format_description,
            c.HEARTBEAT_LOG_EVENT: self._heartbeat,
            c.HEARTBEAT_LOG_EVENT_V2: self._heartbeat,
            c.TRANSACTION_PAYLOAD_EVENT: self._payload,
            c.INCIDENT_EVENT: self._incident,
        }

    @property
    def reached(self) -> tuple[str, int]:
        """Return file and position behind the last event."""
        return self._file, self._pos

    def close(self) -> None:
        """Close the connection; the server ends its side at the next event or heartbeat."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            with contextlib.suppress(Exception):
                connection.close()

    def __enter__(self) -> BinlogStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # One loop without calls: it passes a million events a CPU-second, and a call for each would cost a tenth of that.
    def events(  # noqa: C901, PLR0912
        self,
        end: BinlogOffset | None = None,
        decoder: TransactionDecoder | None = None,
        unused: UnusedRows | None = None,
    ) -> Generator[Event]:
        """Yield events up to ``end`` exactly; a later call goes on from there.

        Real ROTATE events are yielded, those the server makes up are not; heartbeats and FORMAT_DESCRIPTION are
        consumed; the events of compressed transactions come unfolded.

        Args:
            end: A transaction boundary, or None to read until the connection ends.
            decoder: Deals with the transactions that it knows before their events are yielded, or with none.
            unused: Says of a table id that nothing is read of its rows: large row events of it are yielded with their
                beginning only, and never held.

        Raises:
            BinlogCorruptError: A checksum does not hold, or ``end`` is not an event boundary of this server.
            UnsupportedEventError: An event that must not be skipped is not known.
            SourceError: What the server says instead of an event.
            StateError: ``end`` lies before the position reached.
        """
        if self._set_end(end):
            return
        frame, new, passed_through, verify = FRAME.unpack_from, tuple.__new__, c.PASSED_THROUGH_EVENTS, crc32
        transaction_starts = frozenset[int]() if decoder is None else _TRANSACTION_STARTS
        chunk, at, filled, enough = (
            self._chunk,
            self._at,
            len(self._chunk),
            WHOLE_PACKET if unused is None else HEAD_LENGTH,
        )
        file, pos, limit, checksum_length = self._file, self._pos, self._limit, self._checksum_length
        try:
            while True:
                if filled - at < _FRAME_LENGTH:
                    self._pos = pos
                    chunk, at = self._next_chunk(chunk, at, enough), 0
                    filled = len(chunk)
                length_word, status, timestamp, kind, server_id, size, log_pos, flags = frame(chunk, at)
                stop = at + 4 + (length_word & 0xFFFFFF)
                if stop > filled:
                    large_event, chunk = self._large_event(unused, chunk, at, pos)
                    at, filled, pos = 0, len(chunk), self._pos
                    if large_event is not None:
                        yield large_event
                        if pos >= limit:
                            return
                    continue
                if status or size != stop - at - _EVENT_OFFSET or size < HEADER_LENGTH:
                    self._pos = pos
                    chunk, stop = self._irregular_packet(chunk, at, stop, size)
                    at, filled = 0, len(chunk)
                    if not stop:
                        continue
                if (
                    kind in transaction_starts
                    and (decoded := self._decode_transactions(decoder, chunk, at, pos)) is not None
                ):
                    chunk, at, pos = decoded
                    filled = len(chunk)
                elif kind in passed_through:
                    if checksum_length and verify(chunk[at + _EVENT_OFFSET : stop]) != control_events.CRC_RESIDUE:
                        raise control_events.checksum_error(file, pos, kind)
                    end_pos = pos + size
                    if end_pos & _LOW32 != log_pos:
                        end_pos = self._end_after_jump(pos, size, log_pos)
                    if end_pos > limit:
                        raise self._past_end_error(end_pos)
                    start, body, at, pos = end_pos - size, at + _BODY_OFFSET, stop, end_pos
                    yield new(
                        Event,
                        (
                            kind,
                            timestamp,
                            server_id,
                            flags,
                            file,
                            start,
                            pos,
                            chunk,
                            body,
                            stop - checksum_length,
                            False,
                        ),
                    )
                else:
                    self._pos = pos
                    event = Event(
                        kind, timestamp, server_id, flags, file, pos, pos + size, chunk, at + _BODY_OFFSET, stop
                    )
                    at = stop
                    yield from self._handlers.get(kind, self._unknown)(event, log_pos)
                    file, pos, limit, checksum_length = self._file, self._pos, self._limit, self._checksum_length
                if pos >= limit:
                    return
        finally:
            self._chunk, self._at, self._pos = chunk, at, pos

    def _decode_transactions(
        self, decoder: TransactionDecoder | None, chunk: bytes, at: int, pos: int
    ) -> tuple[bytes, int, int] | None:
        """Let whole transactions be dealt with; return where to go on, None with the event that is here."""
        if decoder is None:
            return None
        self._pos = pos
        decoded = decoder(chunk, at, self._file, pos, self._limit, self._checksum_length)
        if decoded.at == at:
            return (self._packets.next_chunk(chunk, at, len(chunk) - at), 0, pos) if decoded.cut else None
        return chunk, decoded.at, decoded.pos

    # -- packets ----------------------------------------------------------------------------------------------------

    def _large_event(self, unused: UnusedRows | None, chunk: bytes, at: int, pos: int) -> tuple[Event | None, bytes]:
        """Return a row event that is not held, or None; and the next chunk, which begins behind it."""
        self._pos = pos
        if unused is not None:
            passed = pass_over(
                self._packets, unused, chunk, at, file=self._file, pos=pos, checksum=self._checksum_length > 0
            )
            if passed is not None:
                return self._advance(passed.event, passed.log_pos), passed.rest
        return None, self._next_chunk(chunk, at)

    def _next_chunk(self, chunk: bytes, at: int, enough: int = WHOLE_PACKET) -> bytes:
        after_max_packet = _follows_max_packet(chunk, at)
        chunk = self._packets.next_chunk(chunk, at, enough=enough)
        if after_max_packet and chunk[:3] == b"\0\0\0":
            chunk = self._packets.next_chunk(chunk, 4)
        if len(chunk) < _FRAME_LENGTH:
            # Whole, but too short for an event.
            raise_for_error(chunk[4:], f"{self._file}:{self._pos}")
            raise BinlogCorruptError("a packet is shorter than an event", where=f"{self._file}:{self._pos}")
        return chunk

    def _irregular_packet(self, chunk: bytes, at: int, stop: int, size: int) -> tuple[bytes, int]:
        """Handle a packet that does not hold one event exactly, unless it is an error.

        Returns:
            A chunk, and the offset after the event at its beginning, or 0 when its beginning must be looked at anew.
        """
        where, length = f"{self._file}:{self._pos}", stop - at - 4
        if length == 0 and _follows_max_packet(chunk, at):
            return self._next_chunk(chunk, stop), 0
        if length == 0 or chunk[at + 4]:
            raise_for_error(chunk[at + 4 : stop], where)
        elif length == MAX_PACKET_PAYLOAD:
            chunk, stop = self._packets.join_packets(chunk, at, size + 1)
            if size == stop - _EVENT_OFFSET:
                return chunk, stop
        raise BinlogCorruptError("an event's length contradicts that of its packet", where=where)

    # -- events that are not simply passed on -----------------------------------------------------------------------

    def _rotate(self, event: Event, log_pos: int) -> Iterable[Event]:
        # The server makes up a ROTATE at the start of a dump and of each file; it stands in no file.
        if log_pos and event.timestamp and not event.flags & c.LOG_EVENT_ARTIFICIAL_F:
            event = self._verify_and_advance(event, log_pos)
            rotate, is_real = parse_rotate(event), True
        else:
            rotate, is_real = parse_rotate(control_events.strip_checksum(event)), False
        if rotate.file != self._file and not self._by_gtid:
            self._check_file_complete()
        self._file, self._pos, self._position_known = rotate.file, rotate.position, True
        self._set_limit()
        return (event,) if is_real else ()

    def _format_description(self, event: Event, log_pos: int) -> Iterable[Event]:
        self.created = self._file, event.timestamp
        self._checksum_length, self.server_version, self.begun_by_start = control_events.parse_format_description(event)
        if self._unchecked_start is not None:
            require_creation_time(self._unchecked_start, event.timestamp)
            self._unchecked_start = None  # the files after it are made later
        # Sent out of place, at the start of a dump, it has no position.
        if log_pos or self._pos == FILE_START:
            self._pos += event.end_pos - event.start_pos
        return ()

    def _heartbeat(self, event: Event, log_pos: int) -> Iterable[Event]:
        self.heartbeats += 1
        if self._by_gtid and self._position_known:
            file, position = control_events.parse_heartbeat(control_events.strip_checksum(event), log_pos)
            if file == self._file:
                self._pos = max(self._pos, self._pos & ~_LOW32 | position if position <= _LOW32 else position)
        return ()

    def _payload(self, event: Event, log_pos: int) -> Iterable[Event]:
        outer = self._verify_and_advance(event, log_pos)
        for inner in decompress_events(outer):
            if inner.type in c.PASSED_THROUGH_EVENTS:
                yield inner
            else:
                self._skip(inner)

    def _incident(self, event: Event, log_pos: int) -> Iterable[Event]:
        raise control_events.incident_error(self._verify_and_advance(event, log_pos))

    def _unknown(self, event: Event, log_pos: int) -> Iterable[Event]:
        self._skip(self._verify_and_advance(event, log_pos))
        return ()

    def _skip(self, event: Event) -> None:
        if not event.flags & c.LOG_EVENT_IGNORABLE_F and event.type != c.IGNORABLE_LOG_EVENT:
            raise control_events.unsupported_event(event)
        self.skipped += 1

    def _verify_and_advance(self, event: Event, log_pos: int) -> Event:
        """Check an event that stands in the file, move on behind it, and return it without checksum."""
        checksum_length = self._checksum_length
        if checksum_length and not control_events.checksum_matches(event):
            raise control_events.checksum_error(self._file, self._pos, event.type)
        return self._advance(event._replace(end=event.end - checksum_length), log_pos)

    def _advance(self, event: Event, log_pos: int) -> Event:
        """Move on behind an event that stands in the file, and return it with its positions."""
        pos, size = self._pos, event.end_pos - event.start_pos
        end_pos = pos + size
        if end_pos & _LOW32 != log_pos:
            end_pos = self._end_after_jump(pos, size, log_pos)
        if end_pos > self._limit:
            raise self._past_end_error(end_pos)
        self._pos = end_pos
        return event._replace(start_pos=end_pos - size, end_pos=end_pos)

    # -- places -----------------------------------------------------------------------------------------------------

    def _set_end(self, end: BinlogOffset | None) -> bool:
        """Take over the end; return whether it is reached already."""
        self._end = end
        self._set_limit()
        if end is None or not self._position_known or not same_base(self._file, end.file):
            return False
        if not end.covers(self._file, self._pos):
            if self._after is not None and end.covers(self._after.file, self._after.pos):
                return True  # of a batch that was planned before its files were purged
            raise StateError(
                "the end of the batch is before its start",
                where=f"{self._file}:{self._pos} to {end}",
                why="the positions come from different servers, or the binlog was reset in between",
                remedy="check that database.hostname is the server the stored offset belongs to",
            )
        return self._pos == end.pos and file_number(self._file) == file_number(end.file)

    def _set_limit(self) -> None:
        # Files of another base name come before the end: a server never returns to an earlier name without a reset.
        if self._end is None or not self._position_known or not same_base(self._file, self._end.file):
            self._limit = _NO_LIMIT
            return
        current_file, end_file = file_number(self._file), file_number(self._end.file)
        self._limit = (
            self._end.pos if current_file == end_file else _NO_LIMIT if current_file < end_file else _END_PASSED
        )

    def _end_after_jump(self, pos: int, size: int, log_pos: int) -> int:
        """Return the end of an event that does not follow the one before it; only skipped GTIDs may cause that.

        The header holds the low 32 bits of the position; a large transaction takes a file beyond 4 GB.
        """
        if not self._by_gtid or not log_pos:
            raise BinlogCorruptError(
                "the position of an event contradicts that of the event before it",
                where=f"{self._file}:{pos}",
                why=f"it should end at {pos + size & _LOW32} and says {log_pos}",
                remedy="check the file with mysqlbinlog --verify-binlog-checksum",
            )
        end_pos = pos & ~_LOW32 | log_pos
        return end_pos if end_pos >= pos + size else end_pos + _LOW32 + 1

    def _past_end_error(self, end_pos: int) -> BinlogCorruptError:
        return BinlogCorruptError(
            "the end of the batch is not an event boundary of this server's binlog",
            where=f"{self._end}",
            why=f"an event there ends at {end_pos}; the binlog was reset, or this is another server",
            remedy=f"connect to the server the batch was planned on; or {READ_AGAIN}",
        )

    def _check_file_complete(self) -> None:
        if self._pos < self._limit < _NO_LIMIT:
            raise BinlogCorruptError(
                "the binlog file ends before the end of the batch",
                where=f"{self._file}:{self._pos}, end {self._end}",
                why="the server lost the tail of its binlog (sync_binlog other than 1 and a crash)",
                remedy=READ_AGAIN,
            )


def open_stream(
    settings: ConnectionSettings,
    start: BinlogOffset,
    *,
    server_id: int,
    silence_timeout_s: float | None = None,
    by_gtid: bool = False,
    on_wait: Callable[[], None] | None = None,
) -> BinlogStream:
    """Connect, register as a replication client and start the dump.

    Args:
        settings: How to reach the server (``cfg.connection_settings()``).
        start: Where to begin: file and position, or with ``by_gtid`` the GTID set executed so far.
        server_id: Id of this client, unique among servers and replication clients (STRM-02). The server ends a
            connection that an earlier run of the same stream left behind under this id, and no other one
            (``dump.client_uuid``).
        silence_timeout_s: Longest wait in seconds for an event or a heartbeat; None for that of the settings.
        by_gtid: Begin after ``start.gtids`` wherever that is on this server (STRM-05).
        on_wait: Called at least every second as long as the stream waits, and whenever something has arrived: the
            events handed out so far have been dealt with then (``PacketReader``).

    Returns:
        The stream. It begins in the first file if the position's was purged, and nothing after the position with it.

    Raises:
        BinlogPurgedError: The position or transactions after the GTID set are gone, or the position belongs to
            another server (STRM-06) or to a file that was replaced by one of the same name.
        SourceAuthError, SourcePrivilegeError, SourceConnectionError, SourceSettingError: See ``connect``.
    """
    asked, start = start, start if by_gtid else readable_start(settings, start)
    connection = connect(settings, replication=True)
    try:
        local_gtids = LocalGtids() if server_id == UNREGISTERED_SERVER_ID else LocalGtids.read(connection)
        packets = start_dump(
            connection,
            start,
            where=settings.address(),
            server_id=server_id,
            client_name=settings.client_name,
            silence_timeout_s=settings.silence_timeout_s if silence_timeout_s is None else silence_timeout_s,
            by_gtid=by_gtid,
            on_wait=on_wait,
        )
        if start.pos <= _MAX_START_POSITION or by_gtid:
            after = None if start == asked else asked
            stream = BinlogStream(packets, start, by_gtid=by_gtid, connection=connection, after=after)
        else:
            # The dump command has room for 32 bits only, so this dump began at the file's start.
            stream = BinlogStream(packets, start.with_position(start.file, FILE_START), connection=connection)
            for _ in stream.events(start):
                pass
        stream.local_gtids = local_gtids
        return stream
    except BaseException:
        with contextlib.suppress(Exception):
            connection.close()
        raise
