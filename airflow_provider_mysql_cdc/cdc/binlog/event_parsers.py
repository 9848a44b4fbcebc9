"""Parsers of the events that matter to a change stream, row events excepted.

Layouts: MySQL source, ``mysql/binlog/event/{control,statement,rows}_event*.h``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.event import (
    MALFORMED_ERRORS,
    Event,
    event_parser,
    lenenc,
    signed_varint,
    unreadable_event,
    varint,
)
from airflow_provider_mysql_cdc.cdc.binlog.query import QueryEvent, parse_query
from airflow_provider_mysql_cdc.cdc.errors import UnsupportedEventError
from airflow_provider_mysql_cdc.cdc.model.gtid import GtidSet, require_tag, uuid_text
from airflow_provider_mysql_cdc.cdc.model.offset import file_number

__all__ = [
    "GtidEvent",
    "QueryEvent",
    "RotateEvent",
    "parse_gtid",
    "parse_previous_gtids",
    "parse_query",
    "parse_rotate",
    "parse_rows_query",
    "parse_xid",
]

_ROTATE = Struct("<Q").unpack_from
_GTID = Struct("<B16sqBqq")  # flags, uuid, number, kind of the logical clock, last committed, sequence number
_GTID_FULL = Struct("<B16sqBqqQ")  # the same, seven bytes of the commit time, the first of the transaction's length
_LENGTH_OFFSET = _GTID_FULL.size - 1
_GTID_5_6 = Struct("<B16sq")  # MySQL 5.6
_LOGICAL_CLOCK = 2
_TIME_BYTES = 7
_NUMBER_BYTES = 8
_HAS_ORIGINAL_TIME = 1 << 55
_cached_uuid = lru_cache(maxsize=256)(uuid_text)


class RotateEvent(NamedTuple):
    """Name the next binlog file.

    Args:
        file: Its name.
        position: Where it is read from, 4 except at the start of a dump.
    """

    file: str
    position: int


class GtidEvent(NamedTuple):
    """Describe the transaction that begins.

    Args:
        gtid: ``uuid:number`` or ``uuid:tag:number``; None for an anonymous transaction.
        commit_us: Commit time on the server that committed it first, microseconds since the epoch; 0 before MySQL 8.0.
        immediate_commit_us: Commit time on the server read from, a replica perhaps; 0 before MySQL 8.0.
        last_committed: Logical clock: the transaction can run beside all after this one; 0 before 5.7.
        sequence_number: Logical clock: number of the transaction in the file; 0 before 5.7.
        transaction_length: Bytes of the transaction with this event; 0 before 8.0.2.
    """

    gtid: str | None
    commit_us: int = 0
    immediate_commit_us: int = 0
    last_committed: int = 0
    sequence_number: int = 0
    transaction_length: int = 0


@event_parser("a ROTATE event")
def parse_rotate(event: Event) -> RotateEvent:
    """Parse a ROTATE event.

    Raises:
        BinlogCorruptError: The structure does not hold, or it names no binlog file.
    """
    buf, body = event.buf, event.body
    _require_size(event, _NUMBER_BYTES + 1)
    name = buf[body + _NUMBER_BYTES : event.end].decode()
    file_number(name)
    return RotateEvent(name, _ROTATE(buf, body)[0])


@event_parser("an XID event")
def parse_xid(event: Event) -> int:
    """Return the storage engine's number of the transaction that an XID event commits.

    Raises:
        BinlogCorruptError: The structure does not hold.
    """
    _require_size(event, _NUMBER_BYTES)
    return int.from_bytes(event.buf[event.body : event.body + 8], "little")


def parse_rows_query(event: Event) -> str:
    """Return the statement of a ROWS_QUERY event.

    Its character set is not logged; it is read as UTF-8, and what is not UTF-8 becomes U+FFFD, as Debezium does.
    The length byte before it is cut to 255 and ignored, as the server does.
    """
    return event.buf[event.body + 1 : event.end].decode("utf-8", "replace")


def _require_size(event: Event, size: int) -> None:
    if event.end - event.body < size:
        raise IndexError(f"it has {event.end - event.body} bytes, {size} expected")


@event_parser("a PREVIOUS_GTIDS event")
def parse_previous_gtids(event: Event) -> GtidSet:
    """Return the set of a PREVIOUS_GTIDS event: everything executed before this file.

    Raises:
        BinlogCorruptError: The structure does not hold.
    """
    return GtidSet.decode(event.buf[event.body : event.end])


def parse_gtid(event: Event) -> GtidEvent:
    """Parse a GTID, ANONYMOUS_GTID or tagged GTID event.

    Raises:
        BinlogCorruptError: The structure does not hold.
        UnsupportedEventError: Not such an event, or one with a part that must not be ignored.
    """
    parse = _GTID_PARSERS.get(event.type)
    if parse is None:
        raise UnsupportedEventError(f"event type {event.type} announces no transaction", where=event.where())
    try:
        return parse(event)
    except MALFORMED_ERRORS as error:
        raise unreadable_event("a GTID event", event, error) from error


def parse_common_gtid(kind: int, buf: bytes, pos: int, end: int) -> tuple[str | None, int] | None:
    """Return GTID and commit time in microseconds of a GTID or ANONYMOUS_GTID event as a source of MySQL 8.0 writes it.

    Args:
        kind: The event's type.
        buf: Bytes that hold it.
        pos: Offset of its body.
        end: Offset after it.

    Returns:
        Both, or None for an event that ``parse_gtid`` has to look at.
    """
    if end - pos < _GTID_FULL.size:
        return None
    _, uuid, number, clock, _, _, time = _GTID_FULL.unpack_from(buf, pos)
    if clock != _LOGICAL_CLOCK or time & _HAS_ORIGINAL_TIME:
        return None
    commit_us = time & _HAS_ORIGINAL_TIME - 1
    if kind == c.ANONYMOUS_GTID_LOG_EVENT:
        return None, commit_us
    return (f"{_cached_uuid(uuid)}:{number}", commit_us) if number > 0 else None


def _parse_untagged(event: Event) -> GtidEvent:
    buf, pos, end = event.buf, event.body, event.end
    if end - pos >= _GTID_FULL.size and event.type == c.GTID_LOG_EVENT:
        _, uuid, number, clock, last_committed, sequence_number, time = _GTID_FULL.unpack_from(buf, pos)
        if clock == _LOGICAL_CLOCK and number > 0 and not time & _HAS_ORIGINAL_TIME:
            length, time = lenenc(buf, pos + _LENGTH_OFFSET)[0], time & _HAS_ORIGINAL_TIME - 1
            return GtidEvent(f"{_cached_uuid(uuid)}:{number}", time, time, last_committed, sequence_number, length)
    clock = last_committed = sequence_number = immediate = original = length = 0
    if end - pos >= _GTID.size:
        _, uuid, number, clock, last_committed, sequence_number = _GTID.unpack_from(buf, pos)
    elif end - pos >= _GTID_5_6.size:
        _, uuid, number = _GTID_5_6.unpack_from(buf, pos)
    else:
        raise IndexError("the event is shorter than its fixed part")
    if number < 1 and event.type != c.ANONYMOUS_GTID_LOG_EVENT:
        raise ValueError(f"the number of the GTID is {number}")
    pos += _GTID.size
    if clock != _LOGICAL_CLOCK:
        last_committed = sequence_number = 0
    elif end - pos >= _TIME_BYTES:
        immediate = original = int.from_bytes(buf[pos : pos + _TIME_BYTES], "little")
        pos += _TIME_BYTES
        if immediate & _HAS_ORIGINAL_TIME:
            immediate &= _HAS_ORIGINAL_TIME - 1
            original = int.from_bytes(buf[pos : pos + _TIME_BYTES], "little")
            pos += _TIME_BYTES
        if pos < end:
            length = lenenc(buf, pos)[0]
    gtid = None if event.type == c.ANONYMOUS_GTID_LOG_EVENT else f"{_cached_uuid(uuid)}:{number}"
    return GtidEvent(gtid, original, immediate, last_committed, sequence_number, length)


class _TaggedGtid(NamedTuple):
    """Fields of a tagged GTID event by their numbers in the serialized message."""

    flags: int = 0
    uuid: str = ""
    number: int = 0
    tag: str = ""
    last_committed: int = 0
    sequence_number: int = 0
    immediate_commit_us: int = 0
    original_commit_us: int = 0
    transaction_length: int = 0
    server_version: int = 0
    original_server_version: int = 0
    commit_group_ticket: int = 0


def _uuid_field(buf: bytes, pos: int) -> tuple[str, int]:
    octets = bytearray()
    for _ in range(16):
        octet, pos = varint(buf, pos)
        octets.append(octet)  # ValueError above 255
    return uuid_text(bytes(octets)), pos


def _tag_field(buf: bytes, pos: int) -> tuple[str, int]:
    length, pos = varint(buf, pos)
    tag = buf[pos : pos + length].decode("ascii")
    if tag:
        require_tag(tag)
    return tag, pos + length


_TAGGED_FIELDS: dict[str, Callable[[bytes, int], tuple[int | str, int]]] = {
    "uuid": _uuid_field,
    "tag": _tag_field,
    "number": signed_varint,
    "last_committed": signed_varint,
    "sequence_number": signed_varint,
}


def _parse_tagged(event: Event) -> GtidEvent:
    """Parse the message: version, size, last field that must not be ignored, then (number, value) pairs."""
    buf, pos = event.buf, event.body
    _, pos = varint(buf, pos)
    size, pos = varint(buf, pos)
    end = event.body + size
    first_ignorable, pos = varint(buf, pos)
    if end > event.end:
        raise IndexError("the message is longer than the event")
    values: dict[str, int | str] = {}
    while pos < end:
        number, pos = varint(buf, pos)
        if number >= len(_TaggedGtid._fields):
            if number < first_ignorable:
                raise UnsupportedEventError(f"a GTID event has field {number}, which is not known", where=event.where())
            break
        name = _TaggedGtid._fields[number]
        values[name], pos = _TAGGED_FIELDS.get(name, varint)(buf, pos)
    tagged = _TaggedGtid(**values)  # type: ignore[arg-type]
    if not tagged.uuid or tagged.number < 1:
        raise ValueError(f"the GTID is {tagged.uuid}:{tagged.tag}:{tagged.number}")
    tsid = f"{tagged.uuid}:{tagged.tag}" if tagged.tag else tagged.uuid
    return GtidEvent(
        f"{tsid}:{tagged.number}",
        tagged.original_commit_us or tagged.immediate_commit_us,
        tagged.immediate_commit_us,
        tagged.last_committed,
        tagged.sequence_number,
        tagged.transaction_length,
    )


_GTID_PARSERS: dict[int, Callable[[Event], GtidEvent]] = {
    c.GTID_LOG_EVENT: _parse_untagged,
    c.ANONYMOUS_GTID_LOG_EVENT: _parse_untagged,
    c.GTID_TAGGED_LOG_EVENT: _parse_tagged,
}
