"""Where the server's binlog stands, and what it still holds."""

from __future__ import annotations

from typing import Any

import pymysql

from airflow_provider_mysql_cdc.cdc.binlog.connect import DENIED_ERRORS
from airflow_provider_mysql_cdc.cdc.errors import (
    BinlogPurgedError,
    SourceConnectionError,
    SourceError,
    SourcePrivilegeError,
    SourceSettingError,
)
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset

# MySQL 8.4 removed SHOW MASTER STATUS; 8.0 and 5.7 do not know the new form before 8.2.
_STATUS = ("SHOW BINARY LOG STATUS", "SHOW MASTER STATUS")
ER_PARSE, ER_NO_BINARY_LOGGING = 1064, 1381


def current_offset(conn: Any) -> BinlogOffset:
    """Return the position after the last transaction, with the GTID set executed up to it.

    Args:
        conn: An open connection.

    Raises:
        SourceSettingError: Binary logging is off.
        SourcePrivilegeError: REPLICATION CLIENT is missing.
    """
    row = None
    with conn.cursor() as cursor:
        for statement in _STATUS:
            try:
                cursor.execute(statement)
                row = cursor.fetchone()
                break
            except pymysql.MySQLError as error:
                if error.args[0] != ER_PARSE:
                    raise _status_error(error) from error
        cursor.execute("SELECT @@server_uuid, @@gtid_mode")
        uuid, gtid_mode = cursor.fetchone()
    if not row:
        raise SourceSettingError(
            "binary logging is off", where="log_bin", remedy="start the server with log_bin and binlog_format=ROW"
        )
    gtids = str(row[4]).replace("\n", "") if len(row) > 4 else ""
    return BinlogOffset(str(row[0]), int(row[1]), gtids if str(gtid_mode).startswith("ON") else None, str(uuid))


def _status_error(error: pymysql.MySQLError) -> SourceError:
    if error.args[0] in DENIED_ERRORS:
        return SourcePrivilegeError(
            "the account may not ask for the binlog's position",
            why=str(error.args[1]),
            remedy="GRANT REPLICATION CLIENT ON *.* to the account",
        )
    if error.args[0] == ER_NO_BINARY_LOGGING:
        return SourceSettingError("binary logging is off", where="log_bin", remedy="start the server with log_bin")
    return SourceConnectionError("asking for the binlog's position failed", why=str(error.args[-1]))


def binary_logs(conn: Any) -> list[tuple[str, int]]:
    """Return (name, size in bytes) of every binlog file, oldest first.

    Args:
        conn: An open connection.
    """
    try:
        with conn.cursor() as cursor:
            cursor.execute("SHOW BINARY LOGS")
            return [(str(row[0]), int(row[1])) for row in cursor.fetchall()]
    except pymysql.MySQLError as error:
        raise _status_error(error) from error


def check_available(conn: Any, offset: BinlogOffset) -> None:
    """Check that the server still holds the binlog from an offset on, and that it is the same server.

    Args:
        conn: An open connection.
        offset: Where reading is to begin.

    Raises:
        BinlogPurgedError: The file is gone, or shorter than the position (another server's, or a reset one).
    """
    with conn.cursor() as cursor:
        cursor.execute("SELECT @@server_uuid")
        uuid = str(cursor.fetchone()[0])
    files = binary_logs(conn)
    sizes = dict(files)
    why = ""
    if offset.server_uuid and offset.server_uuid != uuid:
        why = f"the offset belongs to server {offset.server_uuid}, this is {uuid}"
    elif offset.file not in sizes:
        why = f"the server's binlog begins at {files[0][0] if files else '(nothing)'}"
    elif sizes[offset.file] < offset.pos:
        why = f"{offset.file} has only {sizes[offset.file]} bytes: the binlogs were reset"
    if why:
        raise BinlogPurgedError(
            "the server no longer holds the binlog at the start position",
            where=str(offset),
            why=why,
            remedy="the events between are lost for this stream: take a new snapshot, and keep binlogs longer "
            "(binlog_expire_logs_seconds)",
        )
