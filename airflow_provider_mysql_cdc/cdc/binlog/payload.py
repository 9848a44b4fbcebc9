"""Compressed transactions: the events inside a TRANSACTION_PAYLOAD event.

Layout (MySQL source, ``Transaction_payload_event``): fields of a number and a length, both length-encoded, up to the
end mark 0; then the payload, a zstd stream. Inner events have the usual header but no checksum, and position 0.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import NamedTuple

import zstandard

from airflow_provider_mysql_cdc.cdc.binlog.corrupt import event_parser
from airflow_provider_mysql_cdc.cdc.binlog.event import Event
from airflow_provider_mysql_cdc.cdc.binlog.wire import HEADER, HEADER_LENGTH, lenenc
from airflow_provider_mysql_cdc.cdc.errors import READ_AGAIN, BinlogCorruptError, UnsupportedEventError

PIECE_BYTES = 1 << 20
# max_allowed_packet cannot be larger, so neither can an event that a replica could read uncompressed.
MAX_EVENT_BYTES = 1 << 30
_END_MARK, _SIZE, _COMPRESSION, _UNCOMPRESSED_SIZE = 0, 1, 2, 3
_ZSTD, _NONE = 0, 255


class Payload(NamedTuple):
    """Hold the payload of a compressed transaction.

    Args:
        data: Its bytes.
        compression: 0 for zstd, 255 for none.
        uncompressed_size: Size after decompression in bytes, 0 when the event does not tell.
    """

    data: memoryview
    compression: int
    uncompressed_size: int


@event_parser("a compressed transaction")
def parse_payload(event: Event) -> Payload:
    """Read the fields of a TRANSACTION_PAYLOAD event.

    Raises:
        BinlogCorruptError: The structure does not hold.
    """
    # Fields are read where they stand: a payload can have a gigabyte, so it is not copied.
    data, pos, end, values = event.buf, event.body, event.end, dict[int, int]()
    while (field := lenenc(data, pos))[0] != _END_MARK:
        length, pos = lenenc(data, field[1])
        values[field[0]] = lenenc(data, pos)[0]
        pos += length
        if pos >= end:
            raise IndexError("its fields do not end inside the event")
    pos = field[1]
    size = values.get(_SIZE, end - pos)
    if size < 0 or pos + size > end:
        raise IndexError(f"{size} bytes at {pos - event.body} of {end - event.body}: it is cut off")
    return Payload(
        memoryview(data)[pos : pos + size], values.get(_COMPRESSION, _NONE), values.get(_UNCOMPRESSED_SIZE, 0)
    )


def decompress_events(event: Event) -> Iterator[Event]:
    """Yield the events of a compressed transaction, with the outer event's positions.

    The payload is decompressed piece by piece; memory holds one piece and the largest event, and grows by no more than
    is really there, whatever an event's header claims.

    Args:
        event: The TRANSACTION_PAYLOAD event.

    Raises:
        BinlogCorruptError: The payload cannot be decompressed, its events do not fit into it, or it holds more than
            the uncompressed size that the event states.
        UnsupportedEventError: A compression other than zstd.
    """
    payload = parse_payload(event)
    if payload.compression == _NONE:
        yield from _split_events(event, io.BytesIO(payload.data), payload.uncompressed_size)
        return
    if payload.compression != _ZSTD:
        raise UnsupportedEventError(
            "a transaction is compressed with an unknown method",
            where=event.where(),
            why=f"compression type {payload.compression}",
            remedy=f"set binlog_transaction_compression=OFF on the server; then {READ_AGAIN}",
        )
    try:
        with zstandard.ZstdDecompressor().stream_reader(payload.data, read_across_frames=True) as reader:
            yield from _split_events(event, reader, payload.uncompressed_size)
    except zstandard.ZstdError as error:
        raise BinlogCorruptError(
            "a compressed transaction cannot be decompressed", where=event.where(), why=str(error)
        ) from error


def _split_events(
    outer: Event, source: io.BufferedIOBase | zstandard.ZstdDecompressionReader, expected_size: int
) -> Iterator[Event]:
    file, start, end_pos = outer.file, outer.start_pos, outer.end_pos
    buf, pos, total = b"", 0, 0
    while True:
        size = HEADER_LENGTH
        if len(buf) - pos >= HEADER_LENGTH:
            timestamp, kind, server_id, size, _, flags = HEADER(buf, pos)
            if size < HEADER_LENGTH:
                raise BinlogCorruptError("an event in a compressed transaction has no length", where=outer.where())
            if size > MAX_EVENT_BYTES or (expected_size and total + size > expected_size):
                raise BinlogCorruptError(
                    "an event in a compressed transaction is longer than can be",
                    where=outer.where(),
                    why=f"{size} bytes behind {total}; the transaction has {expected_size or 'an unknown number'}",
                )
            if len(buf) - pos >= size:
                yield Event(
                    kind, timestamp, server_id, flags, file, start, end_pos, buf, pos + HEADER_LENGTH, pos + size, True
                )
                pos += size
                total += size
                continue
        buf, pos = _read_more(buf[pos:], source, size), 0
        if not buf:
            # A zstd stream that is cut off between two events ends without an error.
            if expected_size and total != expected_size:
                raise BinlogCorruptError(
                    "a compressed transaction is cut off", where=outer.where(), why=f"{total} of {expected_size} bytes"
                )
            return
        if len(buf) < size:
            raise BinlogCorruptError("a compressed transaction ends within an event", where=outer.where())


def _read_more(unread: bytes, source: io.BufferedIOBase | zstandard.ZstdDecompressionReader, needed: int) -> bytes:
    """Return ``unread`` and what follows it, at least ``needed`` bytes unless the source ends."""
    out = io.BytesIO()  # its value is handed out without another copy
    filled = out.write(unread)
    while filled < needed and (piece := source.read(PIECE_BYTES)):
        filled += out.write(piece)
    return out.getvalue()
