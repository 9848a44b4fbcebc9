"""The binlog as a stream of events, from a stored position to an end fixed beforehand."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from struct import Struct
from typing import Any, Protocol
from zlib import crc32

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog import control
from airflow_provider_mysql_cdc.cdc.binlog.connect import ConnectionSettings, connect
from airflow_provider_mysql_cdc.cdc.binlog.dump import start_dump
from airflow_provider_mysql_cdc.cdc.binlog.event import Event
from airflow_provider_mysql_cdc.cdc.binlog.packets import PacketReader, raise_for_error
from airflow_provider_mysql_cdc.cdc.binlog.payload import unfold
from airflow_provider_mysql_cdc.cdc.errors import BinlogCorruptError, StateError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, file_number

__all__ = ["BinlogStream", "Event", "PacketSource", "open_stream"]

# Packet header (length and sequence number), status byte, event header.
_FRAME = Struct("<IBIBIIIH")
_FRAME_LENGTH = _FRAME.size
_BEFORE_EVENT = 5
_BEFORE_BODY = 24
_LOW32 = 0xFFFFFFFF
_CRC_RESIDUE = 0x2144DF1C  # CRC-32 of any bytes followed by their own CRC-32
_NO_LIMIT = 1 << 63
_DONE = -1


class PacketSource(Protocol):
    """Where packets come from (``packets.PacketReader``)."""

    def more(self, chunk: bytes, pos: int) -> bytes:
        """Return a chunk that begins at ``chunk[pos]`` and holds a whole packet."""

    def join(self, chunk: bytes, pos: int) -> tuple[bytes, int]:
        """Return a chunk that begins with the whole payload of a packet of 16 MB or more, and the payload's end."""


class BinlogStream:
    """Turn packets of a dump into events.

    Args:
        packets: Where packets come from.
        start: The position asked for.
        by_gtid: Whether the server leaves out transactions of the GTID set that was sent; positions then jump.
        connection: Closed with the stream.

    Attributes:
        skipped: Events left out because MySQL marks them ignorable and their type is not known here.
        heartbeats: Heartbeats received.
    """

    def __init__(
        self, packets: PacketSource, start: BinlogOffset, *, by_gtid: bool = False, connection: Any = None
    ) -> None:
        self._packets, self._by_gtid, self._connection = packets, by_gtid, connection
        self._chunk, self._at = b"", 0
        self._file, self._pos, self._goal = start.file, start.pos, start.pos
        self._limit = _NO_LIMIT
        self._end: BinlogOffset | None = None
        self._tail = 0  # bytes of checksum after each event, known from FORMAT_DESCRIPTION
        self.skipped = self.heartbeats = 0

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

    def events(self, end: BinlogOffset | None = None) -> Iterator[Event]:
        """Yield events up to ``end`` exactly; a later call goes on from there.

        Real ROTATE events are yielded, those the server makes up are not; heartbeats and FORMAT_DESCRIPTION are
        consumed; the events of compressed transactions come unfolded.

        Args:
            end: A transaction boundary, or None to read until the connection ends.

        Raises:
            BinlogCorruptError: A checksum does not hold, or ``end`` is not an event boundary of this server.
            UnsupportedEventError: An event that must not be skipped is not known.
            SourceError: What the server says instead of an event.
            StateError: ``end`` lies before the position reached.
        """
        if not self._set_end(end):
            return
        frame, new, plain, packets, verify = _FRAME.unpack_from, tuple.__new__, c.PLAIN_EVENTS, self._packets, crc32
        chunk, at, size_of_chunk = self._chunk, self._at, len(self._chunk)
        file, pos, limit, tail = self._file, self._pos, self._limit, self._tail
        try:
            while True:
                if size_of_chunk - at < _FRAME_LENGTH:
                    chunk, at = packets.more(chunk, at), 0
                    size_of_chunk = len(chunk)
                    if size_of_chunk < _FRAME_LENGTH:
                        raise_for_error(chunk[4:], f"{file}:{pos}")
                word, status, timestamp, kind, server_id, size, log_pos, flags = frame(chunk, at)
                stop = at + 4 + (word & 0xFFFFFF)
                if stop > size_of_chunk:
                    chunk, at = packets.more(chunk, at), 0
                    size_of_chunk = len(chunk)
                    continue
                if status or size != stop - at - _BEFORE_EVENT:
                    chunk, stop = self._odd_packet(chunk, at, stop, size)
                    at, size_of_chunk = 0, len(chunk)
                if kind in plain:
                    if tail and verify(chunk[at + _BEFORE_EVENT : stop]) != _CRC_RESIDUE:
                        raise control.bad_checksum(file, pos, kind)
                    end_pos = pos + size
                    if end_pos & _LOW32 != log_pos:
                        end_pos = self._moved(pos, size, log_pos)
                    if end_pos > limit:
                        raise self._past_end(end_pos)
                    body, at, pos = at + _BEFORE_BODY, stop, end_pos
                    yield new(
                        Event,
                        (kind, timestamp, server_id, flags, file, end_pos - size, end_pos, chunk, body, stop - tail, False),
                    )
                else:
                    self._pos = pos
                    event = Event(
                        kind, timestamp, server_id, flags, file, pos, pos + size, chunk, at + _BEFORE_BODY, stop
                    )
                    at = stop
                    yield from self._special(event, log_pos)
                    file, pos, limit, tail = self._file, self._pos, self._limit, self._tail
                if pos >= limit:
                    return
        finally:
            self._chunk, self._at, self._pos = chunk, at, pos
