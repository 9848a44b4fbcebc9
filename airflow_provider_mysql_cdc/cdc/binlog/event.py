"""One event of the binlog, and what a reader may do with whole transactions before their events are split."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol


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


class DecodedTransactions(Protocol):
    """What a stream reads of a walk (``decode.native_transactions``)."""

    @property
    def at(self) -> int:
        """Offset behind the transactions that were walked."""

    @property
    def pos(self) -> int:
        """Position behind them."""

    @property
    def cut(self) -> bool:
        """Whether more bytes may bring more of them."""


TransactionDecoder = Callable[[bytes, int, str, int, int, int], DecodedTransactions]
"""Deals with the transactions that it knows: chunk, offset of the packet with the first one's GTID event, file,
position, the position behind which no event ends, bytes of checksum behind each event."""
