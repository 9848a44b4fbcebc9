"""Open the views of a verification on a replica that holds the same rows at the same GTID set.

Open the views of a verification on a replica, and find their position in the binlog of the source.

The replica has to have applied what the stream has read. Then its commits are stopped by the short read lock that is
taken on the source otherwise: what it has executed by then is what all views show. In the binlog of the source this set
has one position, if the replica has committed in the order of the source; without ``replica_preserve_commit_order`` the
set may have gaps for a moment, and then the replica is refused.

What keeps a server from being read in place of the source: it has to hold the same rows at the same GTID set.

A replica whose rows were changed by other means (errors that were skipped, ``sql_log_bin=0``) cannot be told from one
that has them all; what it lacks is reported as a difference, and a repair, which reads the source, writes nothing.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.binlog_coverage import replica_channels
from airflow_provider_mysql_cdc.cdc.binlog.connect import answering_server, connect, fetch_all
from airflow_provider_mysql_cdc.cdc.binlog.filter_lists import FilterLists
from airflow_provider_mysql_cdc.cdc.binlog.position import current_offset, gtids_on, wait_for_visible_offset
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.drain.failover.requested_position import position_of_gtids
from airflow_provider_mysql_cdc.cdc.errors import (
    ConfigError,
    SourceConnectionError,
    SourceError,
    SourcePrivilegeError,
    SourceSettingError,
)
from airflow_provider_mysql_cdc.cdc.incremental.watermarks import SETTLE_TIMEOUT_S
from airflow_provider_mysql_cdc.cdc.model.connection import ConnectionSettings, MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.gtid import GtidSet
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, compare_offsets
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.snapshot.consistent_view import read_lock


def connect_replica(settings: ConnectionSettings) -> Any:
    """Open a connection to the replica.

    Raises:
        SourceError: It cannot be reached, or refuses the account.
    """
    try:
        return connect(settings)
    except SourceError as error:
        raise type(error)(
            f"the replica of the verification: {error.what}",
            where=error.where or settings.address(),
            why=error.why,
            remedy="check the connection that replica_conn_id names, or leave replica_conn_id out to read the source",
            retriable=error.can_retry,
        ) from error


@contextlib.contextmanager
def connect_views(cfg: ConnectorConfig) -> Iterator[Any]:
    """Open a connection to the server that tables are read from: the replica, or the source.

    Raises:
        SourceError: It cannot be reached, or refuses the account.
    """
    settings = cfg.replica_settings()
    with connect(cfg.connection_settings()) if settings is None else connect_replica(settings) as conn:
        yield conn


_COMMIT_WAIT_S = 5
_SHOWN_LENGTH = 200
_MAX_NAMED = 5
_SOURCE_INSTEAD = "or leave replica_conn_id out: then the source is read"


def check_replica(cfg: ConnectorConfig, source: Any, tables: Sequence[TableId]) -> None:
    """Refuse a replica that cannot be read in place of the source; does nothing where there is none.

    Args:
        cfg: The connector's configuration.
        source: An open connection to the source.
        tables: The tables to read.

    Raises:
        SourceError: It cannot be used (``require_usable_replica``), or cannot be reached.
    """
    if (settings := cfg.replica_settings()) is not None:
        with connect_replica(settings) as replica:
            require_usable_replica(source, replica, settings.address(), tables)


def require_usable_replica(source: Any, replica: Any, address: str, tables: Sequence[TableId]) -> None:
    """Refuse a server that cannot be read in place of the source.

    Args:
        source: An open connection to the source.
        replica: An open connection to the other server.
        address: Its address, for errors.
        tables: The tables to read.

    Raises:
        SourceSettingError: GTIDs are off on one of them; it is no replica of the source; a filter leaves tables out; it
            has transactions that the source lacks; or it lacks tables.
        SourceError: A server refuses a query.
    """
    for conn, which in ((source, "source"), (replica, "replica")):
        if not gtids_on(conn):
            raise _refusal(
                f"GTIDs are off on the {which}, so no position of the replica is known on the source",
                address,
                "gtid_mode is not ON",
                "set gtid_mode=ON on both servers",
            )
    _require_channel(source, replica, address, tables)
    require_no_errant_transactions(source, executed_gtids(replica), address)
    present = _existing_tables(replica, tables)
    if missing := [table for table in tables if table not in present]:
        raise _refusal(
            f"the replica lacks tables to verify: {_named(missing)}",
            address,
            "they do not exist there, or its account may not read them",
            "grant the account SELECT on them; if they do not exist, set the replica up again",
        )


def require_no_errant_transactions(source: Any, executed: GtidSet, address: str) -> None:
    """Refuse a GTID set with transactions that the source lacks.

    Args:
        source: An open connection to the source.
        executed: What the replica has executed.
        address: The replica's address, for errors.

    Raises:
        SourceSettingError: There are such transactions.
        SourceError: The source refuses a query.
    """
    errant = executed.subtract(executed_gtids(source))
    # A transaction is sent to replicas before it counts as executed; semi-synchronous replication stretches that.
    if errant and fetch_all(source, "SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, %s)", (str(errant), _COMMIT_WAIT_S))[0][0]:
        raise _refusal(
            "the replica has transactions that the source lacks, so its rows may be others",
            address,
            f"gtid_executed of the source lacks {str(errant)[:_SHOWN_LENGTH]}",
            "find out who has written to the replica, and set it up again; or use another replica",
        )


def executed_gtids(conn: MySqlConnection) -> GtidSet:
    """Return the GTID set that a server has executed."""
    return GtidSet.parse(str(fetch_all(conn, "SELECT @@GLOBAL.gtid_executed")[0][0] or ""))


def _require_channel(source: Any, replica: Any, address: str, tables: Sequence[TableId]) -> None:
    uuids = [answering_server(conn).lower() for conn in (source, replica)]
    if uuids[0] == uuids[1]:
        raise _refusal(
            "the replica of the verification is the source itself",
            address,
            f"both have the server_uuid {uuids[0]}",
            "use the connection of a replica",
        )
    channels = [channel for channel in replica_channels(replica) if channel.source_uuid.lower() == uuids[0]]
    if not channels:
        raise _refusal(
            "the server is no replica of the source",
            address,
            f"none of its replication channels reads from the server {uuids[0]} (SHOW REPLICA STATUS)",
            "use a server that replicates from the source directly",
        )
    lists = [channel.lists for channel in channels]
    if left_out := [table for table in tables if any(may_leave_out(each, table) for each in lists)]:
        raise _refusal(
            f"the replica does not replicate tables to verify: {_named(left_out)}",
            address,
            f"it has filters: {', '.join(each.shown('replicate') for each in lists if each.texts)}",
            "remove the filters and set the replica up again; or use another replica",
        )


def may_leave_out(lists: FilterLists, table: TableId) -> bool:
    """Return whether filters of a replica leave the rows of a table out, or rename its database.

    A list is read as one of several entries where the table's own name has no comma: what a replica lacks nevertheless
    is reported as a difference.
    """
    return True in lists.leaves_out(table, commas="," in str(table))


def _existing_tables(conn: MySqlConnection, tables: Sequence[TableId]) -> set[TableId]:
    databases = sorted({table.db for table in tables})
    sql = "SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema IN "
    rows = fetch_all(conn, f"{sql}({', '.join(['%s'] * len(databases))})", tuple(databases)) if databases else []
    return {TableId(str(db), str(table)) for db, table in rows}


def _named(tables: Sequence[TableId]) -> str:
    more = f" and {len(tables) - _MAX_NAMED} more" if len(tables) > _MAX_NAMED else ""
    return ", ".join(map(str, tables[:_MAX_NAMED])) + more


def _refusal(what: str, address: str, why: str, remedy: str) -> SourceSettingError:
    return SourceSettingError(what, where=f"replica {address}", why=why, remedy=f"{remedy}; {_SOURCE_INSTEAD}")


_WAIT_STEP_S = 5


def open_replica_views(
    cfg: ConnectorConfig,
    source: Any,
    settings: ConnectionSettings,
    tables: Sequence[TableId],
    start: BinlogOffset,
    open_views: Callable[[str], None],
    log: Log,
) -> BinlogOffset:
    """Let the tasks open their views on the replica; return their position on the source.

    Args:
        cfg: The connector's configuration.
        source: An open connection to the source, autocommit.
        settings: How to reach the replica.
        tables: Tables that the tasks read.
        start: The position that the stream has reached.
        open_views: Returns when all tasks have opened their views; takes the server_uuid of the replica.
        log: Takes one line of text.

    Raises:
        SourceError: The replica cannot be used, or has not applied in time what the stream has read.
    """
    with connect_replica(settings) as replica:
        require_usable_replica(source, replica, settings.address(), tables)
        deadline = time.monotonic() + cfg[F.VERIFY_REPLICA_TIMEOUT_MS] / 1000
        _wait_for_stream(source, replica, settings.address(), deadline, log)
        server_uuid = answering_server(replica)
        with _read_lock(cfg, replica, settings.address(), tables):
            executed = executed_gtids(replica)
            open_views(server_uuid)
    position = _position_on_source(cfg, source, settings.address(), executed)
    if compare_offsets(position, start) < 0:
        raise SourceError(
            "the replica is behind the stream",
            where=f"replica {settings.address()}",
            why=f"its transactions end at {position} of the source, and the stream has reached {start}",
            remedy="run the task again",
            retriable=True,
        )
    log(f"verification: the views are open on the replica {settings.address()}, at {position} of the source")
    return position


def _wait_for_stream(source: Any, replica: Any, address: str, deadline: float, log: Log) -> None:
    """Wait until the replica has applied everything that the source has committed by now.

    A transaction stands in the binlog, from which the stream reads it, before it counts as executed.
    """
    wait_for_visible_offset(source, SETTLE_TIMEOUT_S)
    wanted, logged = executed_gtids(source), False
    while missing := wanted.subtract(executed_gtids(replica)):
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise SourceError(
                "the replica has not applied in time what the stream has read",
                where=f"replica {address}, {F.VERIFY_REPLICA_TIMEOUT_MS.name}",
                why=f"it lacks {str(missing)[:_SHOWN_LENGTH]}",
                remedy="look at SHOW REPLICA STATUS there; when it has caught up, run the task again; or raise "
                f"{F.VERIFY_REPLICA_TIMEOUT_MS.name}, or leave replica_conn_id out: then the source is read",
                retriable=True,
            )
        if not logged:
            log(f"verification: waiting for the replica {address}, which lacks {str(missing)[:_SHOWN_LENGTH]}")
            logged = True
        step_s = min(_WAIT_STEP_S, left_s)
        fetch_all(replica, "SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, %s)", (str(wanted), step_s))


@contextmanager
def _read_lock(cfg: ConnectorConfig, replica: Any, address: str, tables: Sequence[TableId]) -> Iterator[None]:
    lock = read_lock(replica, cfg, list(tables))
    try:
        lock.__enter__()
    except (SourcePrivilegeError, SourceConnectionError) as error:
        raise type(error)(
            f"the replica: {error.what}",
            where=f"replica {address}, {error.where}",
            why=error.why,
            remedy=error.remedy,
            retriable=error.can_retry,
        ) from error
    try:
        yield
    finally:
        lock.__exit__(None, None, None)


def _position_on_source(cfg: ConnectorConfig, source: Any, address: str, executed: GtidSet) -> BinlogOffset:
    require_no_errant_transactions(source, executed, address)
    try:
        return position_of_gtids(cfg, source, current_offset(source), executed)
    except ConfigError as error:
        raise SourceError(
            "what the replica has executed has no position in the binlog of the source",
            where=f"replica {address}",
            why=error.why or error.what,
            remedy="set replica_preserve_commit_order=ON there, and run the task again; or leave replica_conn_id out: "
            "then the source is read",
            retriable=True,
        ) from error
