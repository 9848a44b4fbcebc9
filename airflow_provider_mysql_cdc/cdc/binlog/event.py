"""One event of the binlog."""

from __future__ import annotations

from typing import NamedTuple


class Event(NamedTuple):
    """Hold the header of an event and where its body lies in a buffer that never changes.

    Args:
        type: Event type number (``constants``).
        timestamp: Seconds since the epoch at the statement's start.
        server_id: Id of the server that first wrote the event.
        flags: Header flags.
        file: Binlog file.
        start_pos: Byte position of the event in the file; for an event inside a compressed transaction that of the
            outer TRANSACTION_PAYLOAD event.
        end_pos: Byte position after the event (the outer event).
        buf: Bytes that hold the event.
        body: Offset in ``buf`` of the body, after the 19-byte header.
        end: Offset in ``buf`` after the body, without checksum.
        inner: Whether the event came out of a compressed transaction.
    """

    type: int
    timestamp: int
    server_id: int
    flags: int
    file: str
    start_pos: int
    end_pos: int
    buf: bytes
    body: int
    end: int
    inner: bool = False

    def where(self) -> str:
        """Return ``file:position`` for messages."""
        return f"{self.file}:{self.start_pos}"
