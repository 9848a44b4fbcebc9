"""Where the server's binlog stands, and whether a position is still there."""

from __future__ import annotations

from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.connect import fetch_all, fetch_named
from airflow_provider_mysql_cdc.cdc.binlog.dump import FILE_START, require_same_server
from airflow_provider_mysql_cdc.cdc.binlog.server_errors import AHEAD
from airflow_provider_mysql_cdc.cdc.errors import BinlogPurgedError, SourceError, SourceSettingError
from airflow_provider_mysql_cdc.cdc.model.gtid import GtidSet
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset

_EXECUTED_WAIT_S = 5
# MySQL 8.2 brought the first form; 8.4 removed the second (SETUP-07).
_STATUS = ("SHOW BINARY LOG STATUS", "SHOW MASTER STATUS")


def current_offset(conn: Any) -> BinlogOffset:
    """Return the end of the server's binlog, a transaction boundary.

    File and position are exact. The GTID set is exact while writers are locked out; otherwise it can lack transactions
    that were being committed.

    Args:
        conn: An open connection (REPLICATION CLIENT).

    Raises:
        SourceSettingError: Binary logging is off.
        SourceError: What the server says otherwise.
    """
    rows = _status(conn)
    uuid, gtid_mode = fetch_all(conn, "SELECT @@server_uuid, @@GLOBAL.gtid_mode")[0]
    if not rows:
        raise SourceSettingError(
            "binary logging is off",
            where=str(uuid),
            why="the server reports no binlog position",
            remedy="start the server with log_bin=ON and binlog_format=ROW",
        )
    row = rows[0]
    gtids = str(GtidSet.parse(row["Executed_Gtid_Set"])) if gtid_mode != "OFF" else None
    return BinlogOffset(row["File"], int(row["Position"]), gtids, str(uuid))


def _status(conn: Any) -> list[dict[str, Any]]:
    try:
        return fetch_named(conn, _STATUS[0])
    except SourceError as error:
        if "error 1064" not in error.why:
            raise
    return fetch_named(conn, _STATUS[1])


def binary_logs(conn: Any) -> list[tuple[str, int]]:
    """Return the server's binlog files in order, with their sizes in bytes.

    Raises:
        SourceSettingError: Binary logging is off.
        SourceError: What the server says otherwise.
    """
    return [(row["Log_name"], int(row["File_size"])) for row in fetch_named(conn, "SHOW BINARY LOGS")]


def check_available(conn: Any, offset: BinlogOffset) -> None:
    """Make sure that the server's binlog still holds a position (FAULT-04, FAULT-11).

    Args:
        conn: An open connection.
        offset: The position.

    Raises:
        BinlogPurgedError: The file is gone, is shorter than the position, or belongs to another server; or the server
            lacks transactions of the offset's GTID set, because its binlog was reset.
    """
    require_same_server(conn, offset)
    _require_executed(conn, offset)
    files = binary_logs(conn)
    size = dict(files).get(offset.file)
    if size is not None and FILE_START <= offset.pos <= size:
        return
    why = (
        f"the server holds {files[0][0]} to {files[-1][0]}"
        if size is None and files
        else f"the file has {size} bytes; the binlog was reset, or the server lost its tail in a crash"
        if files
        else "the server holds no binlog file"
    )
    raise BinlogPurgedError(
        "the binlog no longer holds the start position",
        where=str(offset),
        why=why,
        remedy="take a new snapshot; raise binlog_expire_logs_seconds so that files outlive the longest pause",
    )


def _require_executed(conn: Any, offset: BinlogOffset) -> None:
    """Refuse an offset with transactions that the server never executed: names and positions of files come again."""
    if not offset.gtids or fetch_all(conn, "SELECT @@GLOBAL.gtid_mode")[0][0] == "OFF":
        return
    if fetch_all(conn, "SELECT GTID_SUBSET(%s, @@GLOBAL.gtid_executed)", (offset.gtids,))[0][0]:
        return
    # A transaction is sent to replicas before it counts as executed; semi-synchronous replication stretches that.
    waited = fetch_all(conn, "SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, %s)", (offset.gtids, _EXECUTED_WAIT_S))[0][0]
    if waited:
        raise AHEAD.make(str(offset), f"its GTID set {offset.gtids[:200]} holds more than gtid_executed")
