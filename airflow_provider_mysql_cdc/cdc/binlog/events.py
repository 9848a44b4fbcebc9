"""Parse the events that carry no rows.

Source: MySQL source, ``libs/mysql/binlog/event/control_events.h`` and ``statement_events.h``.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.errors import BinlogCorruptError

_QUERY = struct.Struct("<IIBHH")
_ORIGINAL_FOLLOWS = 1 << 55


@dataclass(frozen=True, slots=True)
class GtidEvent:
    """Describe the transaction that begins.

    Args:
        gtid: ``uuid:number`` or ``uuid:tag:number``; None for an anonymous transaction.
        commit_us: Commit time on the server where it was committed first, microseconds since the epoch; 0 if not told.
    """

    gtid: str | None
    commit_us: int = 0


@dataclass(frozen=True, slots=True)
class RotateEvent:
    """Name the next file.

    Args:
        file: Next binlog file.
        position: Position in it, always 4.
    """

    file: str
    position: int


@dataclass(frozen=True, slots=True)
class QueryEvent:
    """Hold a statement with the session it ran in.

    Args:
        thread_id: Session.
        error_code: 0, or the error the statement ended with.
        db: Default database, empty for none.
        sql: The statement.
        sql_mode: Bits of sql_mode.
        client_charset: Collation id of character_set_client, or None.
        collation_connection: Collation id, or None.
        collation_server: Collation id, or None.
        default_collation_for_utf8mb4: Collation id, or None.
        explicit_defaults_for_timestamp: The variable, or None when the server does not log it.
    """

    thread_id: int
    error_code: int
    db: str
    sql: str
    sql_mode: int = 0
    client_charset: int | None = None
    collation_connection: int | None = None
    collation_server: int | None = None
    default_collation_for_utf8mb4: int | None = None
    explicit_defaults_for_timestamp: bool | None = None


def parse_gtid(event: Any) -> GtidEvent:
    """Parse GTID, ANONYMOUS_GTID and GTID_TAGGED events.

    Args:
        event: The event.
    """
    if event.type == c.GTID_TAGGED_LOG_EVENT:
        return _tagged(event)
    buf, at = event.buf, event.body
    gtid = None
    if event.type == c.GTID_LOG_EVENT:
        gno = int.from_bytes(buf[at + 17 : at + 25], "little")
        raw = buf[at + 1 : at + 17].hex()
        gtid = f"{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{raw[16:20]}-{raw[20:]}:{gno}"
    at += 42  # flags, uuid, number, type of the logical clock, its two stamps
    if at + 7 > event.end:
        return GtidEvent(gtid)
    commit = int.from_bytes(buf[at : at + 7], "little")
    if commit & _ORIGINAL_FOLLOWS:
        commit = int.from_bytes(buf[at + 7 : at + 14], "little")
    return GtidEvent(gtid, commit)


def _varint(buf: bytes, at: int) -> tuple[int, int]:
    """Read an unsigned integer of mysql::serialization: as many extra bytes as the first byte has trailing ones."""
    first, extra = buf[at], 0
    while extra < 8 and first >> extra & 1:
        extra += 1
    if extra == 8:
        return int.from_bytes(buf[at + 1 : at + 9], "little"), at + 9
    value = int.from_bytes(buf[at : at + 1 + extra], "little") >> (extra + 1)
    return value, at + 1 + extra


def _signed(buf: bytes, at: int) -> tuple[int, int]:
    value, at = _varint(buf, at)
    return (~(value >> 1) if value & 1 else value >> 1), at


def _tagged(event: Any) -> GtidEvent:
    """Parse GTID_TAGGED (MySQL 8.3): numbered fields in the format of mysql::serialization.

    Fields: 0 flags, 1 uuid, 2 number, 3 tag, 4 last committed, 5 sequence number, 6 immediate commit time,
    7 original commit time, then others that are not read.
    """
    buf, at, found = event.buf, event.body, {}
    for _ in range(3):  # version, size, last field that may not be ignored
        _, at = _varint(buf, at)
    while at < event.end:
        field, at = _varint(buf, at)
        reader = _TAGGED_FIELDS.get(field)
        if reader is None:
            break
        found[field], at = reader(buf, at)
    try:
        tag = found[3]
        gtid = f"{found[1]}:{tag}:{found[2]}" if tag else f"{found[1]}:{found[2]}"
    except KeyError as error:
        raise BinlogCorruptError(
            "a tagged GTID event lacks a field", where=f"{event.file}:{event.start_pos}", why=f"field {error}"
        ) from error
    return GtidEvent(gtid, found.get(7, found.get(6, 0)))


def _read_uuid(buf: bytes, at: int) -> tuple[str, int]:
    raw = []
    for _ in range(16):
        value, at = _varint(buf, at)
        raw.append(value)
    return str(uuid.UUID(bytes=bytes(raw))), at


def _read_text(buf: bytes, at: int) -> tuple[str, int]:
    size, at = _varint(buf, at)
    return bytes(buf[at : at + size]).decode(), at + size


_TAGGED_FIELDS: dict[int, Callable[[bytes, int], tuple[Any, int]]] = {
    0: _varint,
    1: _read_uuid,
    2: _signed,
    3: _read_text,
    4: _signed,
    5: _signed,
    6: _varint,
    7: _varint,
}


def parse_rotate(event: Any) -> RotateEvent:
    """Parse ROTATE."""
    at = event.body
    position = int.from_bytes(event.buf[at : at + 8], "little")
    return RotateEvent(bytes(event.buf[at + 8 : event.end]).decode(), position)


def parse_rows_query(event: Any) -> str:
    """Return the statement of a ROWS_QUERY event; its length byte is of no use for long statements."""
    return bytes(event.buf[event.body + 1 : event.end]).decode("utf-8", "replace")


# Status variables of a query event: code -> size in bytes, or a function of (buffer, offset) that gives it.
_STATUS_SIZES: dict[int, int | Callable[[bytes, int], int]] = {
    0: 4,
    1: 8,
    2: lambda b, at: b[at] + 2,
    3: 4,
    4: 6,
    5: lambda b, at: b[at] + 1,
    6: lambda b, at: b[at] + 1,
    7: 2,
    8: 2,
    9: 8,
    10: 4,
    11: lambda b, at: b[at] + b[at + 1 + b[at]] + 2,
    12: lambda b, at: _names(b, at),
    13: 3,
    16: 1,
    17: 8,
    18: 2,
    19: 1,
    20: 1,
}


def _names(buf: bytes, at: int) -> int:
    # 254 stands for "more than 16 databases", without names.
    count, end = buf[at], at + 1
    for _ in range(0 if count == 254 else count):
        end = buf.index(b"\0", end) + 1
    return end - at


# Python codecs of client character sets that are not a subset of utf8mb4, by collation id.
_CLIENT_CODECS = {
    5: "cp1252", 8: "cp1252", 15: "cp1252", 31: "cp1252", 47: "cp1252", 48: "cp1252", 49: "cp1252", 94: "cp1252",
    1: "big5", 84: "big5", 9: "iso8859_2", 2: "iso8859_2", 12: "euc_jp", 91: "euc_jp", 13: "shift_jis", 88: "shift_jis",
    95: "cp932", 96: "cp932", 19: "cp949", 85: "cp949", 24: "gb2312", 86: "gb2312", 28: "gbk", 87: "gbk",
    248: "gb18030", 249: "gb18030", 250: "gb18030", 7: "koi8_r", 22: "koi8_u", 26: "cp1250", 51: "cp1251",
    57: "cp1256", 59: "cp1257", 25: "iso8859_7", 16: "iso8859_8", 18: "tis_620", 30: "iso8859_9", 4: "cp850",
    36: "cp866", 40: "cp852", 41: "iso8859_13", 97: "euc_jp", 98: "euc_jp",
}  # fmt: skip


def parse_query(event: Any) -> QueryEvent:
    """Parse QUERY.

    Args:
        event: The event.

    Raises:
        BinlogCorruptError: The statement's bytes do not fit the session's character set.
    """
    buf, at = bytes(event.buf), event.body
    thread, _, db_length, error_code, status_length = _QUERY.unpack_from(buf, at)
    at += _QUERY.size
    status = _status(buf, at, at + status_length)
    at += status_length
    db = buf[at : at + db_length].decode()
    raw = buf[at + db_length + 1 : event.end]
    charset = status.get(4)
    client = int.from_bytes(charset[:2], "little") if charset else None
    return QueryEvent(
        thread_id=thread,
        error_code=error_code,
        db=db,
        sql=_text(raw, client, event),
        sql_mode=int.from_bytes(status.get(1, b""), "little"),
        client_charset=client,
        collation_connection=int.from_bytes(charset[2:4], "little") if charset else None,
        collation_server=int.from_bytes(charset[4:6], "little") if charset else None,
        default_collation_for_utf8mb4=int.from_bytes(status[18], "little") if 18 in status else None,
        explicit_defaults_for_timestamp=bool(status[16][0]) if 16 in status else None,
    )


def _text(raw: bytes, client: int | None, event: Any) -> str:
    codec = _CLIENT_CODECS.get(client or 0, "utf-8")
    try:
        return raw.decode(codec)
    except UnicodeDecodeError:
        # Literals of a statement may hold any bytes (introducers, binary data); names and keywords stay readable.
        return raw.decode(codec, "replace")


def _status(buf: bytes, at: int, end: int) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    while at < end:
        code = buf[at]
        at += 1
        size = _STATUS_SIZES.get(code)
        if size is None:
            break  # later servers append codes; what follows is not needed
        length = size if isinstance(size, int) else size(buf, at)
        found[code] = buf[at : at + length]
        at += length
    return found
