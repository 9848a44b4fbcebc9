"""Where the server's binlog stands, whether a position is still there, and the GTIDs of the server and its replicas."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect, fetch_all, fetch_dicts
from airflow_provider_mysql_cdc.cdc.binlog.dump import FILE_START, require_same_server
from airflow_provider_mysql_cdc.cdc.binlog.file_fingerprint import require_same_file, with_fingerprint
from airflow_provider_mysql_cdc.cdc.binlog.purged_files import PurgeLoss, loss_behind, unproven_reason, unproven_remedy
from airflow_provider_mysql_cdc.cdc.binlog.server_errors import MISSING_TRANSACTIONS
from airflow_provider_mysql_cdc.cdc.errors import BinlogPurgedError, ServerChangedError, SourceError, SourceSettingError
from airflow_provider_mysql_cdc.cdc.model.connection import ConnectionSettings, MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.gtid import gtid_source, standard_text
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, file_number, same_base

_EXECUTED_WAIT_S = 5
_VISIBILITY_POLL_S = 0.005
# MySQL 8.2 brought the first form; 8.4 removed the second (SETUP-07).
_STATUS_STATEMENTS = ("SHOW BINARY LOG STATUS", "SHOW MASTER STATUS")


def current_offset(conn: MySqlConnection) -> BinlogOffset:
    """Return the end of the server's binlog, a transaction boundary, without the fingerprint of its file.

    File and position are exact. The GTID set is exact while writers are locked out; otherwise it can lack transactions
    that were being committed. What is kept has to be stamped (``end_of_binlog``,
    ``file_fingerprint.with_fingerprint``).

    Args:
        conn: An open connection (REPLICATION CLIENT).

    Raises:
        SourceSettingError: Binary logging is off.
        SourceError: What the server says otherwise.
    """
    return stated_end(conn, binlog_status(conn)).offset


class BinlogEnd(NamedTuple):
    """Hold the end of a server's binlog, and ``gtid_purged`` as it was a moment later."""

    offset: BinlogOffset
    purged: str


def stated_end(conn: MySqlConnection, rows: Sequence[dict[str, Any]]) -> BinlogEnd:
    """Return the end of the server's binlog as it was when the server stated it; see ``current_offset``.

    Args:
        conn: The open connection over which ``binlog_status`` was asked.
        rows: What it returned.

    Raises:
        SourceSettingError: Binary logging is off.
        SourceError: What the server says otherwise.
    """
    variables = "SELECT @@server_uuid, @@GLOBAL.gtid_mode, @@GLOBAL.gtid_purged"
    uuid, gtid_mode, purged = fetch_all(conn, variables)[0]
    if not rows:
        raise SourceSettingError(
            "binary logging is off",
            where=str(uuid),
            why="the server reports no binlog position",
            remedy="start the server with log_bin=ON and binlog_format=ROW",
        )
    row = rows[0]
    gtids = standard_text(row["Executed_Gtid_Set"]) if gtid_mode != "OFF" else None
    return BinlogEnd(BinlogOffset(row["File"], int(row["Position"]), gtids, str(uuid)), str(purged))


def end_of_binlog(conn: MySqlConnection, settings: ConnectionSettings) -> BinlogOffset:
    """Return the end of the server's binlog with the fingerprint of its file: an offset to be kept.

    Args:
        conn: An open connection (REPLICATION CLIENT).
        settings: How to reach the same server (REPLICATION SLAVE).

    Raises:
        BinlogPurgedError: The binary logs were reset between the two.
        SourceError: See ``current_offset`` and ``file_fingerprint.read_fingerprint``.
    """
    end = with_fingerprint(conn, settings, current_offset(conn))
    _require_executed_gtids(conn, end)
    return end


def wait_for_visible_offset(conn: MySqlConnection, wait_s: float) -> tuple[BinlogOffset, bool]:
    """Return the end of the server's binlog once every transaction before it can be seen by others.

    A transaction stands in the binlog before the storage engine has committed it; until then its GTID is owned (MySQL
    manual, "gtid_owned"). With gtid_mode=OFF nothing tells, and with the two modes between nothing of anonymous ones.

    Args:
        conn: An open connection.
        wait_s: Longest wait in seconds; semi-synchronous replication stretches a commit.

    Returns:
        The position, and whether all before it is known to be visible.
    """
    offset, deadline = current_offset(conn), time.monotonic() + wait_s
    if not gtids_on(conn):
        return offset, False
    owned_gtids = _owned_gtids(conn)
    while owned_gtids and (owned_gtids := owned_gtids & _owned_gtids(conn)) and time.monotonic() < deadline:
        time.sleep(_VISIBILITY_POLL_S)
    return offset, not owned_gtids


def gtids_on(conn: MySqlConnection) -> bool:
    """Return whether every transaction of the server has a GTID.

    Args:
        conn: An open connection.
    """
    return str(fetch_all(conn, "SELECT @@GLOBAL.gtid_mode")[0][0]) == "ON"


def _owned_gtids(conn: MySqlConnection) -> frozenset[tuple[str, str]]:
    """Return the GTIDs in use: ``uuid:7#12:8#13,uuid:...``, where a thread's id follows each number."""
    text = str(fetch_all(conn, "SELECT @@GLOBAL.gtid_owned")[0][0] or "")
    owned: list[tuple[str, str]] = []
    for entry in re.split(r"[,\s]+", text):
        source, _, numbers = entry.partition(":")
        owned += [(source, gtid) for gtid in numbers.split(":") if gtid]
    return frozenset(owned)


def binlog_status(conn: MySqlConnection) -> list[dict[str, Any]]:
    """Return what the server says of its binlog, by column name; nothing when binary logging is off.

    Args:
        conn: An open connection (REPLICATION CLIENT).

    Raises:
        SourceError: What the server says otherwise.
    """
    try:
        return fetch_dicts(conn, _STATUS_STATEMENTS[0])
    except SourceError as error:
        if "error 1064" not in error.why:
            raise
    return fetch_dicts(conn, _STATUS_STATEMENTS[1])


def binary_logs(conn: MySqlConnection) -> list[tuple[str, int]]:
    """Return the server's binlog files in order, with their sizes in bytes.

    Raises:
        SourceSettingError: Binary logging is off.
        SourceError: What the server says otherwise.
    """
    return [(row["Log_name"], int(row["File_size"])) for row in fetch_dicts(conn, "SHOW BINARY LOGS")]


def bytes_between(files: Sequence[tuple[str, int]], start: BinlogOffset, end: BinlogOffset) -> int:
    """Return the size of a range of one server's binlog in bytes.

    Args:
        files: What ``binary_logs`` returned; needed when the range spans files.
        start: Its start.
        end: Its end.
    """
    first, last = file_number(start.file), file_number(end.file)
    if first == last:
        return end.pos - start.pos
    sizes = {file_number(name): size for name, size in files if same_base(name, start.file)}
    between = sum(size for number, size in sizes.items() if first < number < last)
    return sizes.get(first, start.pos) - start.pos + between + end.pos


def check_available(conn: MySqlConnection, settings: ConnectionSettings, offset: BinlogOffset) -> BinlogOffset:
    """Make sure that the server's binlog still holds everything after a position (FAULT-04, FAULT-11).

    Args:
        conn: An open connection.
        settings: How to reach the same server.
        offset: The position.

    Returns:
        The offset, with the fingerprint of its file as it is now. Its file may have been purged if nothing after the
        offset was (``purged_files``).

    Raises:
        BinlogPurgedError: The file is gone, and maybe events with it; or it is shorter than the position, is another
            one of the same name, or belongs to another server; or the server lacks transactions of the offset's GTID
            set, because its binlog was reset.
    """
    require_same_server(conn, offset)
    _require_executed_gtids(conn, offset)
    files = binary_logs(conn)
    size = dict(files).get(offset.file)
    if size is not None and FILE_START <= offset.pos <= size:
        return require_same_file(settings, offset)
    loss = loss_behind(conn, offset, files) if size is None else PurgeLoss.POSSIBLE
    if loss is PurgeLoss.NONE:
        return offset
    if loss is PurgeLoss.UNPROVEN:
        raise BinlogPurgedError(
            "it cannot be told whether the binlog still holds everything after the start position",
            where=str(offset),
            why=unproven_reason(offset),
            remedy=unproven_remedy(offset),
        )
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
        remedy="events between are lost for this stream: take a new snapshot (trigger mysql_cdc_snapshot with "
        "again=true), then trigger mysql_cdc_verify with repair=yes, as rows that were deleted meanwhile are still in "
        "the topics; and raise binlog_expire_logs_seconds so that files outlive the longest pause",
    )


def readable_start(settings: ConnectionSettings, start: BinlogOffset) -> BinlogOffset:
    """Return where a dump begins that is to give everything after an offset.

    Args:
        settings: How to reach the server.
        start: The offset.

    Returns:
        The offset; or the beginning of the first file if the offset's was purged, and nothing after the offset with it.

    Raises:
        BinlogPurgedError: The file is another one of that name, or gone, and maybe events with it.
        SourceError: See ``file_fingerprint.read_fingerprint``.
    """
    if start.origin is None and not start.gtids:
        return start
    try:
        require_same_file(settings, start)
    except ServerChangedError:
        raise
    except BinlogPurgedError:
        if not start.gtids:
            raise
        with connect(settings) as conn:
            files = binary_logs(conn)
            if loss_behind(conn, start, files) is not PurgeLoss.NONE:
                raise
        return start.with_position(files[0][0], FILE_START, start.gtids)
    return start


def _require_executed_gtids(conn: MySqlConnection, offset: BinlogOffset) -> None:
    """Refuse an offset with transactions that the server never executed: names and positions of files come again."""
    if not offset.gtids:
        return
    query = "SELECT @@GLOBAL.gtid_mode, GTID_SUBSET(%s, @@GLOBAL.gtid_executed)"
    mode, executed = fetch_all(conn, query, (offset.gtids,))[0]
    if mode == "OFF" or executed:
        return
    # A transaction is sent to replicas before it counts as executed; semi-synchronous replication stretches that.
    timed_out = fetch_all(conn, "SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, %s)", (offset.gtids, _EXECUTED_WAIT_S))[0][0]
    if timed_out:
        raise MISSING_TRANSACTIONS.build(
            str(offset), f"its GTID set {offset.gtids[:200]} holds more than gtid_executed"
        )


_SYNTAX_ERROR = "error 1064"
_STATEMENTS = ("SHOW REPLICA STATUS", "SHOW SLAVE STATUS")  # the first came with 8.0.22


def replica_status(conn: MySqlConnection) -> list[dict[str, Any]]:
    """Return what a server says of each channel through which it replicates, by the column names of MySQL 8.0.22.

    Args:
        conn: An open connection (REPLICATION CLIENT).

    Raises:
        SourceError: The server cannot be asked.
    """
    try:
        rows = fetch_dicts(conn, _STATEMENTS[0])
    except SourceError as error:
        if _SYNTAX_ERROR not in error.why:
            raise
        rows = fetch_dicts(conn, _STATEMENTS[1])
    return [{_current_name(name): value for name, value in row.items()} for row in rows]


def _current_name(name: str) -> str:
    return name.replace("Master_", "Source_").replace("Slave_", "Replica_")


_NAMES = ("server_id", "server_uuid", "group_replication_group_name", "group_replication_view_change_uuid")


@dataclass(frozen=True, slots=True)
class LocalGtids:
    """Hold how a server signs its own transactions.

    Args:
        server_id: Its server_id, which is in the header of each event that it has executed first; 0 where not known.
        server_uuid: Its server_uuid, which its GTIDs begin with.
        group_uuids: What they begin with where it is a member of a replication group.
        sources: server_uuid by server_id of the servers from which it replicates.
    """

    server_id: int = 0
    server_uuid: str = ""
    group_uuids: frozenset[str] = frozenset()
    sources: Mapping[int, str] = field(default_factory=dict)

    @classmethod
    def read(cls, conn: MySqlConnection) -> LocalGtids:
        """Read it.

        Args:
            conn: An open connection.

        Raises:
            SourceError: The query fails.
        """
        names = ", ".join(f"'{name}'" for name in _NAMES)
        rows = fetch_all(conn, f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})")
        found = {str(name): str(value) for name, value in rows}
        group = frozenset(found[name].lower() for name in _NAMES[2:] if found.get(name))
        sources = {int(row["Source_Server_Id"]): str(row["Source_UUID"]).lower() for row in replica_status(conn)}
        return cls(int(found["server_id"]), found["server_uuid"].lower(), group, sources)

    def is_lent(self, gtid: str, server_id: int) -> bool:
        """Return whether somebody has given a GTID of another server to a transaction of this one.

        Args:
            gtid: The transaction's GTID.
            server_id: The server id in its events.
        """
        uuid = gtid_source(gtid).lower()
        return 0 < server_id == self.server_id and uuid != self.server_uuid and uuid not in self.group_uuids
