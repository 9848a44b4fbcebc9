"""Whole protocol packets out of a socket, at the speed of the socket.

pymysql's own packet reader makes an object and three copies a packet (measured: 167 MB a CPU-second against 370 here),
so a dump is read from the connection's socket directly. That is safe because the dump command is the last thing sent:
pymysql has read the answer of every command before it to its end, so nothing is left in its buffer.
"""

from __future__ import annotations

import contextlib
import math
import socket
from collections.abc import Callable
from typing import NamedTuple
from zlib import crc32

from airflow_provider_mysql_cdc.cdc.binlog.server_errors import DUMP_BROKE, server_error
from airflow_provider_mysql_cdc.cdc.errors import BinlogCorruptError, SourceConnectionError

PACKET_HEADER = 4
MAX_PACKET_PAYLOAD = 0xFFFFFF  # a payload of this length goes on in the next packet
BUFFER_BYTES = 1 << 20
OK, EOF, ERROR = 0x00, 0xFE, 0xFF
GATHER_BYTES = 1 << 17
"""What has arrived already is taken along up to so many bytes: TLS gives 16 KB at a time."""
WHOLE_PACKET = 1 << 30
"""More bytes than any packet has."""
WAIT_INTERVAL_S = 1.0
"""Longest time in seconds between two calls of ``on_wait`` while nothing arrives."""


class PassedOver(NamedTuple):
    """Hold what is left of a payload that was read and not kept.

    Args:
        head: Its beginning.
        crc: The CRC-32 of everything behind its first byte.
        rest: What has arrived behind it: the next chunk.
    """

    head: bytes
    crc: int
    rest: bytes


class PacketReader:
    """Read packets from a socket in large pieces.

    Args:
        sock: Connected socket, plain or TLS.
        where: Address for messages.
        silence_timeout_s: Longest wait for a single byte in seconds; the server sends heartbeats more often.
        on_wait: Called after each piece that arrives, and every second while none does: before any event in it is
            handed out, when all events before it have been dealt with. What it raises ends the reading.
    """

    __slots__ = ("_buffer", "_max_waits", "_on_wait", "_silence_timeout_s", "_sock", "_timeout_s", "_where")

    def __init__(
        self, sock: socket.socket, where: str, silence_timeout_s: float, on_wait: Callable[[], None] | None = None
    ) -> None:
        self._sock, self._where, self._silence_timeout_s = sock, where, silence_timeout_s
        self._on_wait = on_wait
        self._max_waits = 1 if on_wait is None else math.ceil(silence_timeout_s / WAIT_INTERVAL_S)
        self._buffer = bytearray(BUFFER_BYTES)
        self._timeout_s = silence_timeout_s / self._max_waits
        sock.settimeout(self._timeout_s)

    def next_chunk(self, chunk: bytes, pos: int, more_than: int = 0, enough: int = WHOLE_PACKET) -> bytes:
        """Return a new chunk that begins where ``chunk`` is read up to, and holds at least one whole packet.

        Args:
            chunk: What the last call returned; empty at first.
            pos: Offset in it of the first packet that is not used yet.
            more_than: Bytes that are not enough even if they hold a whole packet.
            enough: Bytes that are enough even if they do not.

        Raises:
            SourceConnectionError: Silence, or the connection broke.
        """
        unread = len(chunk) - pos
        buffer = self._buffer
        if unread > len(buffer):
            buffer = self._grow(unread)
        buffer[:unread] = chunk[pos:] if pos else chunk
        filled = unread
        while True:
            needed = PACKET_HEADER
            if filled >= needed and filled <= more_than:
                needed = filled + 1
            elif filled >= needed:
                needed = min(needed + (buffer[0] | buffer[1] << 8 | buffer[2] << 16), enough)
                if filled >= needed:
                    filled = self._gather(memoryview(buffer), filled)
                    return bytes(memoryview(buffer)[:filled])
            if needed > len(buffer):
                buffer = self._grow(needed, filled)
            filled += self._receive(memoryview(buffer)[filled:])

    def join_packets(self, chunk: bytes, pos: int, max_length: int) -> tuple[bytes, int]:
        """Put a payload together that was sent in several packets (16 MB or more).

        Args:
            chunk: The current chunk.
            pos: Offset of the first of these packets, which is complete.
            max_length: Greatest length of the payload; what is longer is not read to its end.

        Returns:
            A chunk that begins with four bytes in place of a packet header, then the payload, then whatever follows;
            and the offset after the payload.

        Raises:
            SourceConnectionError: Silence, or the connection broke.
        """
        parts, size = [b"\0\0\0\0"], PACKET_HEADER
        while True:
            if len(chunk) - pos < PACKET_HEADER:
                chunk, pos = self.next_chunk(chunk, pos), 0
            length = int.from_bytes(chunk[pos : pos + 3], "little")
            stop = pos + PACKET_HEADER + length
            if stop > len(chunk):
                chunk, pos = self.next_chunk(chunk, pos), 0
                continue
            parts.append(chunk[pos + PACKET_HEADER : stop])
            pos, size = stop, size + length
            if length < MAX_PACKET_PAYLOAD or size - PACKET_HEADER > max_length:
                break
        return b"".join([*parts, chunk[pos:]]), size

    def pass_over(self, chunk: bytes, pos: int, length: int, kept: int) -> PassedOver:
        """Read a payload, of one or several packets, and keep its beginning only.

        Args:
            chunk: The current chunk.
            pos: Offset of the first of its packets.
            length: Length of the payload. It is no multiple of the longest packet, so no empty packet follows.
            kept: Bytes to keep.

        Raises:
            SourceConnectionError: Silence, or the connection broke.
            BinlogCorruptError: The packets have another length.
        """
        head, crc, left, in_packet = bytearray(), 0, length, 0
        piece, header = memoryview(chunk)[pos:], bytearray()
        while left:
            if not piece:
                piece = memoryview(self._buffer)
                piece = piece[: self._receive(piece)]
            if not in_packet:
                missing = PACKET_HEADER - len(header)
                header += piece[:missing]
                piece = piece[missing:]
                if len(header) < PACKET_HEADER:
                    continue
                in_packet = int.from_bytes(header[:3], "little")
                header.clear()
                if in_packet != min(left, MAX_PACKET_PAYLOAD):
                    raise BinlogCorruptError("an event's length contradicts that of its packet", where=self._where)
            part = piece[:in_packet]
            # The status byte before the event does not belong to what the checksum is of.
            crc = crc32(part[1:] if left == length else part, crc)
            head += part[: kept - len(head)]
            left, in_packet, piece = left - len(part), in_packet - len(part), piece[len(part) :]
        return PassedOver(bytes(head), crc, bytes(piece))

    def send(self, data: bytes) -> None:
        """Send a command, packet header included.

        Raises:
            SourceConnectionError: The connection broke.
        """
        try:
            self._sock.sendall(data)
        except OSError as error:
            raise self._connection_lost(str(error)) from error

    def read_response(self) -> bytes:
        """Read the answer to a command: return its payload.

        Raises:
            SourceError: The server answered with an error, or the connection broke.
        """
        chunk = self.next_chunk(b"", 0)
        payload = chunk[PACKET_HEADER:]
        raise_for_error(payload, self._where)
        return payload

    def _receive(self, view: memoryview) -> int:
        for _ in range(self._max_waits):
            count = self._wait(view)
            if self._on_wait is not None:
                self._on_wait()
            if count is not None:
                return count
        raise SourceConnectionError(
            f"neither an event nor a heartbeat arrived for {self._silence_timeout_s:g} s",
            where=self._where,
            why="the server or the network is stuck",
            remedy="run the task again; source.silence.timeout.ms sets the limit",
        )

    def _gather(self, buffer: memoryview, filled: int) -> int:
        """Take along what has arrived behind the first bytes; return how many there are."""
        self._sock.settimeout(0)
        # Nothing has arrived; or the connection is broken, which shows when what came before has been dealt with.
        with contextlib.suppress(OSError):
            while filled < GATHER_BYTES and (count := self._sock.recv_into(buffer[filled:])):
                filled += count
        self._sock.settimeout(self._timeout_s)
        return filled

    def _wait(self, view: memoryview) -> int | None:
        """Return how many bytes arrived, or None when none did in time."""
        try:
            count = self._sock.recv_into(view)
        except TimeoutError:
            return None
        except OSError as error:
            raise self._connection_lost(str(error)) from error
        if count == 0:
            raise self._connection_lost("the server closed it")
        return count

    def _connection_lost(self, why: str) -> SourceConnectionError:
        return SourceConnectionError(
            DUMP_BROKE,
            where=self._where,
            why=why,
            remedy="run the task again; it continues after the last commit",
        )

    def _grow(self, needed: int, keep: int = 0) -> bytearray:
        buffer = bytearray(needed + BUFFER_BYTES)
        buffer[:keep] = memoryview(self._buffer)[:keep]
        self._buffer = buffer
        return buffer


def raise_for_error(payload: bytes, where: str) -> None:
    """Raise what an error or end-of-file packet of a dump says; return for any other packet.

    Args:
        payload: The packet without its header.
        where: File and position, or address.

    Raises:
        SourceError: The leaf that fits.
        BinlogCorruptError: The packet is empty.
    """
    if not payload:
        raise BinlogCorruptError("the server sent an empty packet", where=where)
    if payload[0] == ERROR:
        code = int.from_bytes(payload[1:3], "little")
        text = payload[3:].decode("utf-8", "replace")
        raise server_error(code, text[6:] if text.startswith("#") else text, where)
    if payload[0] == EOF:
        raise SourceConnectionError(
            "the server ended the dump",
            where=where,
            why="it is shutting down, or its binlog was switched off",
            remedy="run the task again when the server is back",
        )
