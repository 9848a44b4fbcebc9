"""The commands that start a binlog dump, and the replication clients that the server lists.

The commands that start a binlog dump.

Layouts: MySQL source, ``com_binlog_dump``, ``com_binlog_dump_gtid``. COM_REGISTER_SLAVE, which makes the client visible
in SHOW REPLICAS, is encoded by mysql-replication. Its reader is not used: it makes an object for every event
(23 thousand rows a CPU-second), and it drops compressed transactions without a word.
"""

from __future__ import annotations

import socket
import uuid
from collections.abc import Callable
from struct import Struct
from typing import Any, NamedTuple

from pymysqlreplication.binlogstream import ReportSlave

from airflow_provider_mysql_cdc.cdc.binlog.connect import answering_server, fetch_all, fetch_dicts
from airflow_provider_mysql_cdc.cdc.binlog.packets import PacketReader
from airflow_provider_mysql_cdc.cdc.errors import (
    ServerChangedError,
    SourceAuthError,
    SourceError,
    SourcePrivilegeError,
    StateError,
)
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.gtid import GtidSet
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset

FILE_START = 4  # after the magic number
UNREGISTERED_SERVER_ID = 0
"""Id of a reader that is no writer, as mysqlbinlog's: the server ends its dump at the end of the last file, and ends
nobody else's for it. With an id of the stream, it would end the dump of a writer that lives from batch to batch."""
REPORT_HOST = "mysql-cdc"
_MAX_HOST_CHARS = 60
"""Longest host that a client may report to MySQL before 8.0.17."""
_CLIENT_NAMESPACE = uuid.UUID("0f9a3f0e-2f6c-5c0b-9a55-6f1d1f0d3a77")
_COM_BINLOG_DUMP, _COM_BINLOG_DUMP_GTID = 0x12, 0x1E
_THROUGH_GTID = 0x0004
_DUMP = Struct("<BIHI")  # command, position, flags, server id; then the file name
_DUMP_GTID = Struct("<BHIIQI")  # command, flags, server id, length of file name (0), position, length of the GTID set
_LOW32 = 0xFFFFFFFF
# How long the server keeps a dump whose client does not read (MySQL's default is 60 s): as long as Kafka may block it.
_NET_WRITE_TIMEOUT_S = 900
_HEARTBEATS_PER_TIMEOUT = 3


def start_dump(
    connection: Any,
    start: BinlogOffset,
    *,
    where: str,
    server_id: int,
    client_name: str = "",
    silence_timeout_s: float,
    by_gtid: bool,
    on_wait: Callable[[], None] | None = None,
) -> PacketReader:
    """Register as a replication client and ask for the binlog.

    Args:
        connection: A fresh pymysql connection; nothing else may be run on it afterwards.
        start: Position or GTID set to begin at. A position beyond 4 GB begins at the file's start.
        where: Address for messages.
        client_name: Name of the stream, for ``client_uuid``.
        server_id: Id of this client, or ``UNREGISTERED_SERVER_ID``.
        silence_timeout_s: Longest silence in seconds; heartbeats are asked for three times as often.
        by_gtid: Begin after ``start.gtids``.
        on_wait: See ``PacketReader``.

    Raises:
        ServerChangedError: File and position belong to another server (STRM-06).
        SourceError: What the server answers.
    """
    if not by_gtid:
        require_same_server(connection, start)
    heartbeat_ns = max(int(silence_timeout_s * 1e9 / _HEARTBEATS_PER_TIMEOUT), 1_000_000)
    # mysqlbinlog (id 0) has no UUID.
    uuid_text = client_uuid(client_name, server_id) if server_id else None
    # Both generations of names; without the checksum variable a server with checksums refuses the dump.
    fetch_all(
        connection,
        "SET @slave_uuid = %s, @replica_uuid = %s, @master_heartbeat_period = %s, @source_heartbeat_period = %s, "
        "@master_binlog_checksum = 'CRC32', @source_binlog_checksum = 'CRC32', "
        "SESSION net_write_timeout = CAST(GREATEST(@@SESSION.net_write_timeout, %s) AS SIGNED)",
        (uuid_text, uuid_text, heartbeat_ns, heartbeat_ns, _NET_WRITE_TIMEOUT_S),
    )
    sock: socket.socket = connection._sock
    packets = PacketReader(sock, where, silence_timeout_s, on_wait)
    # mysqlbinlog (id 0) does not register either, and 8.0.15 can die of SHOW SLAVE HOSTS after such a client.
    if server_id:
        _register_replica(packets, server_id, client_name, where)
    payload = gtid_dump_command(start.gtids, server_id) if by_gtid else position_dump_command(start, server_id)
    packets.send(len(payload).to_bytes(4, "little") + payload)
    return packets


def client_uuid(client_name: str, server_id: int) -> str:
    """Return the UUID with which a client reads the binlog.

    When a dump begins, the server ends older dumps of the same UUID; if the client has none, as Debezium's, then older
    dumps of the same server id that have none either (``kill_zombie_dump_threads``). So a run takes the place of an
    earlier run of its own stream, and neither ends nor is ended by another client with its server id.

    Args:
        client_name: Name of the stream (``topic.prefix``).
        server_id: Id of the client.
    """
    return str(uuid.uuid5(_CLIENT_NAMESPACE, f"{client_name}/{server_id}"))


def report_host(client_name: str) -> str:
    """Return what a client reports as its host in SHOW REPLICAS.

    Args:
        client_name: Name of the stream (``topic.prefix``).
    """
    return f"{REPORT_HOST}/{client_name}"[:_MAX_HOST_CHARS] if client_name else REPORT_HOST


def _register_replica(packets: PacketReader, server_id: int, client_name: str, where: str) -> None:
    packets.send(ReportSlave(report_host(client_name)).encoded(server_id))
    try:
        packets.read_response()
    except SourceAuthError as error:
        # The server answers with 1045, although the account is connected already.
        raise replication_slave_error(where, error.why) from error


def replication_slave_error(where: str, why: str) -> SourcePrivilegeError:
    """Return the error for an account that may not read the binlog (SETUP-06).

    Args:
        where: Address, or file and position.
        why: What the server says.
    """
    return SourcePrivilegeError(
        "the account lacks REPLICATION SLAVE",
        where=where,
        why=why,
        remedy="GRANT REPLICATION SLAVE ON *.* TO the account",
    )


def position_dump_command(start: BinlogOffset, server_id: int) -> bytes:
    """Return the COM_BINLOG_DUMP command; a position beyond 32 bits becomes the file's start."""
    pos = start.pos if start.pos <= _LOW32 else FILE_START
    return _DUMP.pack(_COM_BINLOG_DUMP, pos, 0, server_id) + start.file.encode()


def gtid_dump_command(gtids: str | None, server_id: int) -> bytes:
    """Return the COM_BINLOG_DUMP_GTID command.

    Raises:
        StateError: There is no GTID set, or it cannot be read.
    """
    try:
        if gtids is None:
            raise ValueError("the stored offset has no GTID set")
        encoded = GtidSet.parse(gtids).encode()
    except ValueError as error:
        raise StateError(
            "the binlog cannot be opened by GTID",
            where=str(gtids)[:200],
            why=str(error),
            remedy="open it by file and position, on the server the offset belongs to",
        ) from error
    header = _DUMP_GTID.pack(_COM_BINLOG_DUMP_GTID, _THROUGH_GTID, server_id, 0, FILE_START, len(encoded))
    return header + encoded


def require_same_server(connection: Any, offset: BinlogOffset) -> None:
    """Refuse an offset whose file and position belong to another server.

    Args:
        connection: An open connection.
        offset: The offset; one without a server uuid passes.

    Raises:
        ServerChangedError: Another server answers; a retry finds the place of the offset's GTID set there.
    """
    if offset.server_uuid is None:
        return
    server_uuid = answering_server(connection)
    if server_uuid.lower() != offset.server_uuid.lower():
        raise ServerChangedError(
            "the stored position belongs to another server",
            where=str(offset),
            why=f"it was read on server {offset.server_uuid}, and server {server_uuid} answers; "
            "a binlog file and position mean nothing on another server",
            remedy="run the task again: it looks for the place of the stream's GTID set on this server; or set "
            "database.hostname to the former server",
            retriable=True,
        )


# 8.0.22 brought the first form; 8.4 removed the second.
_REPLICA_STATEMENTS = (
    ("SHOW REPLICAS", "Server_Id", "Replica_UUID"),
    ("SHOW SLAVE HOSTS", "Server_id", "Slave_UUID"),
)


class RegisteredClient(NamedTuple):
    """A replication client that SHOW REPLICAS lists.

    Args:
        server_id: Its id.
        host: The host that it reports.
        uuid: Its UUID; empty for a client without one.
    """

    server_id: int
    host: str
    uuid: str = ""


def registered_clients(conn: MySqlConnection) -> tuple[RegisteredClient, ...]:
    """Return the clients that the server lists; those that read without registering, as Debezium's does, are not.

    Args:
        conn: An open connection whose account has REPLICATION SLAVE.

    Raises:
        SourceError: The query fails.
    """
    for statement, id_column, uuid_column in _REPLICA_STATEMENTS:
        try:
            return tuple(
                RegisteredClient(int(row[id_column]), str(row["Host"]), str(row.get(uuid_column) or ""))
                for row in fetch_dicts(conn, statement)
            )
        except SourceError as error:
            if "error 1064" not in error.why:
                raise
    return ()


def is_own_client(client: RegisteredClient, client_name: str) -> bool:
    """Return whether a client is an earlier run of this stream.

    Args:
        client: The client.
        client_name: ``topic.prefix``.
    """
    return client.host == report_host(client_name) and client.uuid == client_uuid(client_name, client.server_id)
