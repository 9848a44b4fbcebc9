"""Events that steer the stream and carry no data: checksums, format, heartbeats, incidents."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple
from zlib import crc32

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.corrupt import event_parser
from airflow_provider_mysql_cdc.cdc.binlog.event import Event
from airflow_provider_mysql_cdc.cdc.binlog.wire import HEADER_LENGTH, lenenc
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
