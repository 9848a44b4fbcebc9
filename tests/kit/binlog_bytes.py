"""Write binlog events as a server would, and serve them over a socket."""

from __future__ import annotations

import socket
import struct
import threading
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.packets import MAX_PACKET_PAYLOAD, PacketReader
from airflow_provider_mysql_cdc.cdc.binlog.stream import BinlogStream
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset

HEADER = struct.Struct("<IBIIIH")
TIMESTAMP, SERVER_ID = 1_700_000_000, 7
UUID = bytes(range(16))
UUID_TEXT = "00010203-0405-0607-0809-0a0b0c0d0e0f"
POST_HEADERS = {2: 13, 4: 8, 19: 8, 23: 0, 24: 0, 25: 0, 30: 10, 31: 10, 32: 10, 39: 10}


def event_bytes(
    kind: int,
    body: bytes,
    end_pos: int,
    *,
    crc: bool = True,
    flags: int = 0,
    timestamp: int = TIMESTAMP,
    server_id: int = SERVER_ID,
) -> bytes:
    """Return one event: header, body and checksum."""
    size = HEADER.size + len(body) + (4 if crc else 0)
    raw = HEADER.pack(timestamp, kind, server_id, size, end_pos & 0xFFFFFFFF, flags) + body
    return raw + struct.pack("<I", zlib.crc32(raw)) if crc else raw


def packets(payload: bytes, sequence: int = 0) -> bytes:
    """Return a payload as one packet, or as several when it is too long for one."""
    out = bytearray()
    while True:
        part, payload = payload[:MAX_PACKET_PAYLOAD], payload[MAX_PACKET_PAYLOAD:]
        out += len(part).to_bytes(3, "little") + bytes([sequence & 0xFF]) + part
        sequence += 1
        if len(part) < MAX_PACKET_PAYLOAD:
            return bytes(out)


def error_packet(code: int, text: str) -> bytes:
    return packets(b"\xff" + struct.pack("<H", code) + b"#HY000" + text.encode())


def format_body(*, algorithm: int = 1, version: int = 4, lengths: dict[int, int] = POST_HEADERS) -> bytes:
    table = bytes(lengths.get(kind, 0) for kind in range(1, 43))
    return struct.pack("<H50sIB", version, b"9.7.4", 0, 19) + table + bytes([algorithm])


def lenenc(value: int) -> bytes:
    if value < 251:
        return bytes([value])
    for first, size in ((b"\xfc", 2), (b"\xfd", 3)):
        if value < 1 << 8 * size:
            return first + value.to_bytes(size, "little")
    return b"\xfe" + struct.pack("<Q", value)


def payload_body(inner: bytes, *, compression: int = 0, size: int = 0) -> bytes:
    """Return the body of a TRANSACTION_PAYLOAD event around an already compressed payload."""
    fields = b""
    for kind, value in ((2, compression), (3, size), (1, len(inner))):
        encoded = lenenc(value)
        fields += lenenc(kind) + lenenc(len(encoded)) + encoded
    return fields + lenenc(0) + inner


@dataclass
class Dump:
    """Collect what a server sends in a dump.

    Args:
        file: Binlog file.
        pos: Position in it.
        crc: Whether events carry checksums.
    """

    file: str = "binlog.000001"
    pos: int = 4
    crc: bool = True
    data: bytearray = field(default_factory=bytearray)
    events: list[tuple[int, str, int, int, bytes]] = field(default_factory=list)

    def begin(self) -> Dump:
        """Send what a dump and each file begin with: a made-up ROTATE and the format."""
        self.artificial(c.ROTATE_EVENT, struct.pack("<Q", self.pos) + self.file.encode())
        return self.format()

    def format(self, **kwargs: int) -> Dump:
        body = format_body(**{"algorithm": int(self.crc), **kwargs})
        # The checksum has its place in this event even when there are none.
        if self.pos > 4:
            self._send(event_bytes(c.FORMAT_DESCRIPTION_EVENT, body, 0))
        else:
            self.pos += HEADER.size + len(body) + 4
            self._send(event_bytes(c.FORMAT_DESCRIPTION_EVENT, body, self.pos))
        return self

    def add(
        self, kind: int, body: bytes = b"body", *, flags: int = 0, listed: bool = True, server_id: int = SERVER_ID
    ) -> Dump:
        start = self.pos
        self.pos += HEADER.size + len(body) + (4 if self.crc else 0)
        self._send(event_bytes(kind, body, self.pos, crc=self.crc, flags=flags, server_id=server_id))
        if listed:
            self.events.append((kind, self.file, start, self.pos, body))
        return self

    def transaction(self, rows: int = 1) -> Dump:
        self.add(c.ANONYMOUS_GTID_LOG_EVENT, bytes(58)).add(c.QUERY_EVENT, b"BEGIN")
        for n in range(rows):
            self.add(c.TABLE_MAP_EVENT, b"map").add(c.WRITE_ROWS_EVENT_V2, b"row %d" % n)
        return self.add(c.XID_EVENT, bytes(8))

    def rotate(self, file: str, *, real: bool = True) -> Dump:
        """End the file and begin the next one."""
        if real:
            self.add(c.ROTATE_EVENT, struct.pack("<Q", 4) + file.encode())
        self.file, self.pos = file, 4
        return self.begin()

    def artificial(self, kind: int, body: bytes, *, log_pos: int = 0) -> Dump:
        self._send(event_bytes(kind, body, log_pos, crc=self.crc, flags=c.LOG_EVENT_ARTIFICIAL_F, timestamp=0))
        return self

    def heartbeat(self) -> Dump:
        return self.artificial(c.HEARTBEAT_LOG_EVENT, self.file.encode(), log_pos=self.pos)

    def raw(self, data: bytes) -> Dump:
        self.data += data
        return self

    def offset(self) -> BinlogOffset:
        return BinlogOffset(self.file, self.pos)

    def _send(self, event: bytes) -> None:
        self.data += packets(b"\0" + event)


@contextmanager
def served(data: Iterable[bytes], *, silence_s: float = 5.0, close: bool = True) -> Iterator[PacketReader]:
    """Yield a reader of a socket on which another thread writes these pieces.

    Args:
        data: Pieces to write.
        silence_s: The reader's deadline.
        close: Close the socket behind the last piece; otherwise fall silent.
    """
    near, far = socket.socketpair()
    done = threading.Event()

    def write() -> None:
        with far:
            try:
                for piece in data:
                    far.sendall(piece)
            except OSError:
                return
            if not close:
                done.wait(30)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        with near:
            yield PacketReader(near, "source:3306", silence_s)
    finally:
        done.set()
        thread.join(10)


@contextmanager
def stream_of(
    data: bytes | Iterable[bytes],
    start: BinlogOffset,
    *,
    by_gtid: bool = False,
    silence_s: float = 5.0,
    close: bool = True,
) -> Iterator[BinlogStream]:
    """Yield a stream over bytes as a server would send them."""
    pieces = [bytes(data)] if isinstance(data, (bytes, bytearray)) else data
    with served(pieces, silence_s=silence_s, close=close) as reader:
        yield BinlogStream(reader, start, by_gtid=by_gtid)
