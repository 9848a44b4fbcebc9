"""Events that steer the stream, and compressed transactions, whose events are inside one.

Compressed transactions: the events inside a TRANSACTION_PAYLOAD event.

Layout (MySQL source, ``Transaction_payload_event``): fields of a number and a length, both length-encoded, up to the
end mark 0; then the payload, a zstd stream. Inner events have the usual header but no checksum, and position 0.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple
from zlib import crc32

import zstandard

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.event import HEADER, HEADER_LENGTH, Event, event_parser, lenenc
from airflow_provider_mysql_cdc.cdc.errors import READ_AGAIN, BinlogCorruptError, UnsupportedEventError

CRC_RESIDUE = 0x2144DF1C  # CRC-32 of any bytes followed by their own CRC-32, little-endian
_FORMAT_DESCRIPTION = Struct(
    "<H50sIB"
).unpack_from  # binlog version, server version, creation time, length of event headers
_FORMAT_DESCRIPTION_LENGTH = 57
_FLAGS_OFFSET = 17  # offset of the flags in an event header
# Lengths of fixed event parts that the parsers of this package rely on.
_POST_HEADER_LENGTHS = {
    c.QUERY_EVENT: 13,
    c.ROTATE_EVENT: 8,
    c.TABLE_MAP_EVENT: 8,
    c.WRITE_ROWS_EVENT_V1: 8,
    c.UPDATE_ROWS_EVENT_V1: 8,
    c.DELETE_ROWS_EVENT_V1: 8,
    c.WRITE_ROWS_EVENT_V2: 10,
    c.UPDATE_ROWS_EVENT_V2: 10,
    c.DELETE_ROWS_EVENT_V2: 10,
}
_HEARTBEAT_END, _HEARTBEAT_FILE, _HEARTBEAT_POSITION = 0, 1, 2


def checksum_matches(event: Event) -> bool:
    """Return whether an event, given with its checksum, is what the server wrote."""
    return crc32(event.buf[event.body - HEADER_LENGTH : event.end]) == CRC_RESIDUE


def strip_checksum(event: Event) -> Event:
    """Return an event made up by the server without its checksum.

    Before the first FORMAT_DESCRIPTION nothing tells whether there is one.
    """
    return event._replace(end=event.end - c.CHECKSUM_LENGTH) if checksum_matches(event) else event


class FileFormat(NamedTuple):
    """Say how a binlog file is written.

    Args:
        checksum_length: Bytes of checksum that end each of its events.
        server_version: Version of the server that wrote it.
        begun_by_start: Whether it is the first one since the server's start, or since its binary logs were reset.
    """

    checksum_length: int
    server_version: str
    begun_by_start: bool


@event_parser("a FORMAT_DESCRIPTION event")
def parse_format_description(event: Event) -> FileFormat:
    """Read a FORMAT_DESCRIPTION event; return how its file is written.

    Args:
        event: The event with its own checksum.

    Raises:
        UnsupportedEventError: A binlog version, header length or checksum algorithm that is not known.
        BinlogCorruptError: The checksum does not hold.
    """
    buf, body = event.buf, event.body
    if event.end - body < _FORMAT_DESCRIPTION_LENGTH + 1 + c.CHECKSUM_LENGTH:
        raise IndexError(f"it has {event.end - body} bytes")
    # One length for each event type follows the fixed part; then the algorithm and a checksum.
    post_header_lengths = buf[body + _FORMAT_DESCRIPTION_LENGTH : event.end - c.CHECKSUM_LENGTH - 1]
    version, server_version, start_time, header_length = _FORMAT_DESCRIPTION(buf, body)
    if version != 4 or header_length != HEADER_LENGTH:
        raise _format_error(event, server_version, f"binlog version {version} with headers of {header_length} bytes")
    for kind, length in _POST_HEADER_LENGTHS.items():
        # A server writes 0 for types it does not know any more.
        if kind <= len(post_header_lengths) and post_header_lengths[kind - 1] not in (0, length):
            raise _format_error(
                event, server_version, f"events of type {kind} have {post_header_lengths[kind - 1]} fixed bytes"
            )
    algorithm = buf[event.end - c.CHECKSUM_LENGTH - 1]
    version_text = server_version.rstrip(bytes(1)).decode("utf-8", "replace")
    if algorithm == c.CHECKSUM_OFF:
        return FileFormat(0, version_text, start_time != 0)
    if algorithm != c.CHECKSUM_CRC32:
        raise _format_error(event, server_version, f"checksum algorithm {algorithm}")
    if not checksum_matches(event) and not _matches_without_in_use(event):
        raise checksum_error(event.file, event.start_pos, event.type)
    return FileFormat(c.CHECKSUM_LENGTH, version_text, start_time != 0)


def _matches_without_in_use(event: Event) -> bool:
    """Check again with the in-use flag cleared: it changes in the file after the checksum was made."""
    raw = bytearray(event.buf[event.body - HEADER_LENGTH : event.end])
    raw[_FLAGS_OFFSET] &= ~c.LOG_EVENT_BINLOG_IN_USE_F & 0xFF
    return crc32(raw) == CRC_RESIDUE


@event_parser("a heartbeat")
def parse_heartbeat(event: Event, log_pos: int) -> tuple[str, int]:
    """Return file and position of a heartbeat, which tells how far the server has read.

    Args:
        event: The event without checksum.
        log_pos: The header's position, 32 bits.

    Raises:
        BinlogCorruptError: The structure does not hold.
    """
    buf, pos = event.buf, event.body
    if event.type == c.HEARTBEAT_LOG_EVENT:
        return buf[pos : event.end].decode(), log_pos
    file, position = "", log_pos
    while pos < event.end:
        kind, pos = lenenc(buf, pos)
        if kind == _HEARTBEAT_END:
            break
        length, pos = lenenc(buf, pos)
        if kind == _HEARTBEAT_FILE:
            file = buf[pos : pos + length].decode()
        elif kind == _HEARTBEAT_POSITION:
            position = lenenc(buf, pos)[0]
        pos += length
    return file, position


def checksum_error(file: str, pos: int, event_type: int) -> BinlogCorruptError:
    """Return the error for an event whose checksum does not hold."""
    return BinlogCorruptError(
        "the checksum of a binlog event does not hold",
        where=f"{file}:{pos}",
        why=f"event of type {event_type} was damaged on the server's disk or on the way",
        remedy="check the file with mysqlbinlog --verify-binlog-checksum; if it is sound, run the task again",
    )


def incident_error(event: Event) -> BinlogCorruptError:
    """Return the error for an INCIDENT event: a number (2 bytes) and a text with its length (1 byte)."""
    buf, body = event.buf, event.body
    text = buf[body + 3 : event.end].decode("utf-8", "replace")
    return BinlogCorruptError(
        "the server logged an incident: changes are missing from its binlog",
        where=event.where(),
        why=f"incident {int.from_bytes(buf[body : body + 2], 'little')} {text}",
        remedy=READ_AGAIN,
    )


def unsupported_event(event: Event) -> UnsupportedEventError:
    """Return the error for an event that is not known and not marked as ignorable."""
    return UnsupportedEventError(
        f"binlog events of type {event.type} are not known",
        where=event.where(),
        why="the server does not mark the event as one that may be ignored",
        remedy="check that the source is MySQL 5.7 to 9.x; update this package",
    )


def _format_error(event: Event, server_version: bytes, why: str) -> UnsupportedEventError:
    return UnsupportedEventError(
        "the binlog has a format that is not known",
        where=event.where(),
        why=f"{why}, written by {server_version.rstrip(bytes(1)).decode('utf-8', 'replace')}",
        remedy="check that the source is MySQL 5.7 to 9.x; update this package",
    )


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
