"""Tell one binlog file from another of the same name.

After RESET BINARY LOGS AND GTIDS, on a restored backup and on a copied data directory the names, the positions, the
GTIDs and even the server's uuid come again. What does not come again is the head of a file: the time at which it was
made and the set executed before it (FORMAT_DESCRIPTION, PREVIOUS_GTIDS), and the first transaction's GTID event, which
has held the commit time in microseconds since MySQL 8.0.1, also for anonymous transactions.

A server only ever appends to the file it writes, and begins a new one when it starts. So a file with the same head
holds the same events, up to the position that was read once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from struct import Struct

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.broken_connections import again_if_broken
from airflow_provider_mysql_cdc.cdc.binlog.connect import LOGIN_DELAYS_S, ConnectionSettings, connect, fetch_all
from airflow_provider_mysql_cdc.cdc.binlog.dump import (
    FILE_START,
    UNREGISTERED_SERVER_ID,
    replication_slave_error,
    start_dump,
)
from airflow_provider_mysql_cdc.cdc.binlog.packets import EOF, PACKET_HEADER, PacketReader, raise_for_error
from airflow_provider_mysql_cdc.cdc.binlog.purged_files import ServerState
from airflow_provider_mysql_cdc.cdc.binlog.server_errors import is_gtid_mode_mismatch
from airflow_provider_mysql_cdc.cdc.errors import (
    BinlogCorruptError,
    BinlogPurgedError,
    SourcePrivilegeError,
    SourceSettingError,
)
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, same_fingerprint

_HEADER = Struct("<IBIIIH")  # time, type, server id, length, position, flags
_EVENT_IDENTITY = Struct("<IBI")
_DIGEST_DIGITS = 16
_REMEDY = (
    "take a new snapshot (mysql_cdc_snapshot with again=true), then trigger mysql_cdc_verify with repair=yes, as rows "
    "that were deleted meanwhile are still in the topics; or, when the events in between do not matter, continue "
    "from a position of this binlog (DAG mysql_cdc_reset_offset with current, earliest or file:position); or set "
    "database.hostname to the server that still has the former files"
)


def read_fingerprint(settings: ConnectionSettings, file: str, server_uuid: str | None = None) -> str:
    """Return the fingerprint of one of the server's binlog files.

    Args:
        settings: How to reach the server (REPLICATION SLAVE).
        file: The file's name.
        server_uuid: The server that it belongs to; None for the one that answers.

    Returns:
        ``<seconds since 1970>.<digest of the head>`` and, once the file holds a transaction, ``.<digest of its GTID
        event>``; then ``/<state of the server>``, as it was before (``purged_files``), where the server tells it.

    Raises:
        BinlogPurgedError: The server has no such file.
        ServerChangedError: Another server answers.
        SourceError: What the server says otherwise.
    """
    return again_if_broken(lambda: _dump_fingerprint(settings, file, server_uuid), LOGIN_DELAYS_S)


def _dump_fingerprint(settings: ConnectionSettings, file: str, server_uuid: str | None) -> str:
    connection = connect(settings, replication=True)
    try:
        state = ServerState.read(connection)
        packets = start_dump(
            connection,
            BinlogOffset(file, FILE_START, server_uuid=server_uuid),
            where=settings.address(),
            server_id=UNREGISTERED_SERVER_ID,
            silence_timeout_s=settings.silence_timeout_s,
            by_gtid=False,
        )
        fingerprint = _fingerprint(_dump_events(packets, f"{file}:{FILE_START}"), file)
        return fingerprint if state is None else f"{fingerprint}/{state}"
    except SourcePrivilegeError as error:
        # Who does not register is refused at the dump itself, with 1227.
        raise replication_slave_error(settings.address(), error.why) from error
    finally:
        with contextlib.suppress(Exception):
            connection.close()


def is_complete(fingerprint: str | None) -> bool:
    """Return whether a fingerprint has its last part: the file held a transaction when it was taken.

    Args:
        fingerprint: The fingerprint; None when it is not known.
    """
    return fingerprint is not None and fingerprint.count(".") == 2


def with_fingerprint(conn: MySqlConnection, settings: ConnectionSettings, offset: BinlogOffset) -> BinlogOffset:
    """Return an offset that was just read from the server with the fingerprint of its file.

    A file without any transaction is told from its successor by the second in which it was made, and so is each file of
    MySQL 5.7, which logs no commit times; so this second has passed when the function returns.

    Args:
        conn: An open connection.
        settings: How to reach the same server.
        offset: The offset.

    Raises:
        SourceError: See ``read_fingerprint``.
    """
    fingerprint = read_fingerprint(settings, offset.file, offset.server_uuid)
    created_s = fingerprint.partition(".")[0]
    remaining_s = "GREATEST(0, LEAST(1, %s + 1 - UNIX_TIMESTAMP(NOW(6))))"
    fetch_all(conn, f"SELECT SLEEP({remaining_s})", (int(created_s),))
    return replace(offset, origin=fingerprint)


def require_same_file(settings: ConnectionSettings, offset: BinlogOffset) -> BinlogOffset:
    """Refuse an offset whose binlog file the server has no more, although it has one of that name (FAULT-11).

    Args:
        settings: How to reach the server.
        offset: The offset; one without a fingerprint passes.

    Returns:
        The offset with the fingerprint as it is now.

    Raises:
        BinlogPurgedError: The file is another one, or gone.
        SourceError: See ``read_fingerprint``.
    """
    fingerprint = read_fingerprint(settings, offset.file, offset.server_uuid)
    if not same_fingerprint(offset.origin, fingerprint):
        raise BinlogPurgedError(
            "the binlog file of the stored position was replaced by another one of the same name",
            where=str(offset),
            why=f"the position was read from {_describe(offset.origin or '')}, and the server has "
            f"{_describe(fingerprint)}: its binary logs were reset, it is a restored backup or a copy, or another "
            "server "
            "answers under this address",
            remedy=_REMEDY,
        )
    return replace(offset, origin=fingerprint)


def require_creation_time(offset: BinlogOffset, created_s: int) -> None:
    """Refuse a dump that began in another file than the one just looked at: a RESET came between.

    A dump from the middle of a file, too, begins with the file's FORMAT_DESCRIPTION, whose header keeps its time.

    Args:
        offset: The start of the dump; one without a fingerprint passes.
        created_s: When the file of the dump was made, seconds since 1970.

    Raises:
        BinlogPurgedError: The file is another one.
    """
    expected_s = (offset.origin or "").partition(".")[0]
    if expected_s.isdigit() and int(expected_s) != created_s:
        raise BinlogPurgedError(
            "the binlog file of the start position was replaced by another one of the same name",
            where=str(offset),
            why=f"the position was read from {_describe(offset.origin or '')}, and the dump is of "
            f"{_describe(str(created_s))}: its binary logs were reset at this moment",
            remedy=_REMEDY,
        )


def _describe(fingerprint: str) -> str:
    seconds = fingerprint.partition(".")[0]
    created = (
        datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%d %H:%M:%S") if seconds.isdigit() else "unknown"
    )
    return f"a file made at {created} UTC ({fingerprint})"


def _dump_events(packets: PacketReader, where: str) -> Iterator[bytes]:
    """Yield the events of a dump with their headers, until the server ends it.

    Since GTIDs were switched on or off it may refuse to send the first transaction; then the head before it has to do.
    """
    chunk, at = b"", 0
    while True:
        chunk, at = packets.next_chunk(chunk, at), 0
        stop = PACKET_HEADER + int.from_bytes(chunk[:3], "little")
        payload = chunk[PACKET_HEADER:stop]
        if payload[:1] == bytes([EOF]):
            return
        if payload[:1] != b"\0":
            try:
                raise_for_error(payload, where)
            except SourceSettingError as error:
                if is_gtid_mode_mismatch(error):
                    return
                raise
        if len(payload) <= _HEADER.size:
            raise BinlogCorruptError("a packet is shorter than an event", where=where)
        yield payload[1:]
        at = stop


def _fingerprint(events: Iterator[bytes], file: str) -> str:
    header_digest, created_s, checksum_length = sha256(), None, 0
    for event in events:
        timestamp, kind, server_id, *_ = _HEADER.unpack_from(event)
        if kind == c.FORMAT_DESCRIPTION_EVENT and created_s is None:
            created_s = timestamp
            # The checksum's algorithm stands before the checksum, which this event always has.
            checksum_length = c.CHECKSUM_LENGTH if event[-c.CHECKSUM_LENGTH - 1] == c.CHECKSUM_CRC32 else 0
            # Position and flags are left out: the flag that a file is in use changes.
            header_digest.update(
                _EVENT_IDENTITY.pack(timestamp, kind, server_id) + event[_HEADER.size : -c.CHECKSUM_LENGTH]
            )
        elif created_s is None and kind == c.ROTATE_EVENT:
            continue  # made up by the server at the start of a dump
        elif created_s is None:
            break
        elif kind == c.PREVIOUS_GTIDS_LOG_EVENT:
            header_digest.update(
                _EVENT_IDENTITY.pack(timestamp, kind, server_id) + event[_HEADER.size : len(event) - checksum_length]
            )
        elif kind in c.GTID_EVENTS:
            gtid_digest = sha256(
                _EVENT_IDENTITY.pack(timestamp, kind, server_id) + event[_HEADER.size : len(event) - checksum_length]
            )
            return (
                f"{created_s}.{header_digest.hexdigest()[:_DIGEST_DIGITS]}.{gtid_digest.hexdigest()[:_DIGEST_DIGITS]}"
            )
        else:
            break
    if created_s is None:
        raise BinlogCorruptError("a binlog file does not begin with its format", where=f"{file}:{FILE_START}")
    return f"{created_s}.{header_digest.hexdigest()[:_DIGEST_DIGITS]}"
