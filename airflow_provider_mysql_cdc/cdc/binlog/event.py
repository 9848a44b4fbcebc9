"""One event of the binlog, the primitives of its bytes, and the error of bytes that are not what a server writes."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import wraps
from struct import Struct
from typing import Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

from airflow_provider_mysql_cdc.cdc.errors import BinlogCorruptError


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


# What malformed bytes raise where they are sliced, unpacked, decoded or looked up.
MALFORMED_ERRORS = (ValueError, LookupError, TypeError, ArithmeticError, RecursionError, struct.error)
CORRUPT_REMEDY = "check the file with mysqlbinlog --verify-binlog-checksum; if it is sound, report the event"

P = ParamSpec("P")
R = TypeVar("R")


def event_parser(what: str) -> Callable[[Callable[Concatenate[Event, P], R]], Callable[Concatenate[Event, P], R]]:
    """Return a decorator for a parser of events: what malformed bytes raise in it becomes ``BinlogCorruptError``.

    Args:
        what: What is read, as in "a GTID event".
    """

    def decorate(parse: Callable[Concatenate[Event, P], R]) -> Callable[Concatenate[Event, P], R]:
        @wraps(parse)
        def wrapper(event: Event, /, *args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return parse(event, *args, **kwargs)
            except MALFORMED_ERRORS as error:
                raise unreadable_event(what, event, error) from error

        return wrapper

    return decorate


def unreadable_event(what: str, event: Event, error: Exception) -> BinlogCorruptError:
    """Return the error for an event that cannot be read.

    Args:
        what: What was read, as in "a GTID event".
        event: The event.
        error: What reading it raised.
    """
    return BinlogCorruptError(f"{what} cannot be read", where=event.where(), why=str(error), remedy=CORRUPT_REMEDY)


HEADER_LENGTH = 19
# timestamp, type, server id, size with header and checksum, end position (32 bits), flags
HEADER = Struct("<IBIIIH").unpack_from

_LENENC_SIZES = {252: 2, 253: 3, 254: 8}


def lenenc(buf: bytes, pos: int) -> tuple[int, int]:
    """Return a length-encoded integer and the offset after it.

    Raises:
        IndexError: The bytes end early, or the first byte is not one of a length-encoded integer.
    """
    first = buf[pos]
    if first < 251:
        return first, pos + 1
    size = _LENENC_SIZES.get(first)
    stop = pos + 1 + (size or 0)
    if size is None or stop > len(buf):
        raise IndexError(f"length-encoded integer at {pos}")
    return int.from_bytes(buf[pos + 1 : stop], "little"), stop


def varint(buf: bytes, pos: int) -> tuple[int, int]:
    """Return an unsigned integer of MySQL's serialization library and the offset after it.

    The number of trailing one bits of the first byte is the number of further bytes; the value follows the zero bit
    after them, little-endian. Nine bytes hold a full 64-bit value.

    Raises:
        IndexError: The bytes end early.
    """
    first = buf[pos]
    if not first & 1:
        return first >> 1, pos + 1
    extra_bytes = ((first + 1) & ~first).bit_length() - 1
    stop = pos + 1 + extra_bytes
    if stop > len(buf):
        raise IndexError(f"variable-length integer at {pos}")
    value = int.from_bytes(buf[pos:stop], "little")
    return value >> (extra_bytes + 1 if extra_bytes < 8 else 8), stop


def signed_varint(buf: bytes, pos: int) -> tuple[int, int]:
    """Return a signed integer of MySQL's serialization library (sign in the lowest bit) and the offset after it.

    Raises:
        IndexError: The bytes end early.
    """
    value, pos = varint(buf, pos)
    return (value >> 1) ^ -(value & 1), pos


def bits(data: bytes, count: int) -> tuple[bool, ...]:
    """Return ``count`` bits, the first in the highest bit of the first byte."""
    return tuple(bool(data[i >> 3] & 0x80 >> (i & 7)) for i in range(count))
