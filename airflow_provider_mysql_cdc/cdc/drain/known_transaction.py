"""Tell whether a server's transaction of a GTID is the one that the stream has read.

GTIDs are used again after RESET BINARY LOGS AND GTIDS, and by a server that takes writes behind a restored backup. What
does not come again is the time of the commit in microseconds, which replicas copy and mysqlbinlog keeps (MySQL 8.0.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.dump import FILE_START
from airflow_provider_mysql_cdc.cdc.binlog.event_parsers import parse_gtid
from airflow_provider_mysql_cdc.cdc.binlog.position import binary_logs, current_offset
from airflow_provider_mysql_cdc.cdc.binlog.scan import BinlogScan
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.drain.requested_position import last_file


@dataclass(frozen=True, slots=True)
class TransactionMatch:
    """Say whether a server has the transaction that was read last.

    Args:
        text: What was found.
        is_other: Whether it has another one under this GTID; not where nothing tells.
    """

    text: str
    is_other: bool = False


def compare_transaction(cfg: ConnectorConfig, conn: Any, last_commit: str) -> TransactionMatch:
    """Compare the last transaction that was read with the one that a server has under its GTID.

    Args:
        cfg: The connector's configuration.
        conn: An open connection to the server.
        last_commit: GTID and commit time (``BinlogOffset.last_commit``).

    Raises:
        SourceError: The server refuses a query, or cannot be reached.
    """
    gtid, _, time = last_commit.partition("@")
    found = _commit_time(cfg, conn, gtid)
    if not found:
        return TransactionMatch(f"its binlog does not have transaction {gtid}, or no time of its commit")
    if found == int(time):
        return TransactionMatch(f"its transaction {gtid} is the one that was read")
    return TransactionMatch(
        f"its transaction {gtid} is another one: it was committed {found} microseconds after 1970, and the one that "
        f"was read {time}",
        is_other=True,
    )


def _commit_time(cfg: ConnectorConfig, conn: Any, gtid: str) -> int:
    """Return when a transaction was committed first, in microseconds; 0 where the binlog does not tell."""
    files = [name for name, _ in binary_logs(conn)]
    found = last_file(conn, files, lambda before: not before.contains(gtid))
    if found is None:
        return 0
    end, after = current_offset(conn), files.index(found[0]) + 1
    start = end.with_position(found[0], FILE_START)
    until = end if after == len(files) else end.with_position(files[after], FILE_START)
    for event in BinlogScan(cfg.connection_settings(), start, until):
        if event.type in c.GTID_EVENTS and (parsed := parse_gtid(event)).gtid == gtid:
            return parsed.commit_us
    return 0
