"""What keeps a server from being read in place of the source: it has to hold the same rows at the same GTID set.

A replica whose rows were changed by other means (errors that were skipped, ``sql_log_bin=0``) cannot be told from one
that has them all; what it lacks is reported as a difference, and a repair, which reads the source, writes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.binlog_coverage import replica_channels
from airflow_provider_mysql_cdc.cdc.binlog.connect import answering_server, fetch_all
from airflow_provider_mysql_cdc.cdc.binlog.filter_lists import FilterLists
from airflow_provider_mysql_cdc.cdc.binlog.position import gtids_on
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import SourceSettingError
from airflow_provider_mysql_cdc.cdc.model.gtid import GtidSet
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.verify.views.replica import connect_replica

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


def executed_gtids(conn: Any) -> GtidSet:
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


def _existing_tables(conn: Any, tables: Sequence[TableId]) -> set[TableId]:
    databases = sorted({table.db for table in tables})
    sql = "SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema IN "
    rows = fetch_all(conn, f"{sql}({', '.join(['%s'] * len(databases))})", tuple(databases)) if databases else []
    return {TableId(str(db), str(table)) for db, table in rows}


def _named(tables: Sequence[TableId]) -> str:
    more = f" and {len(tables) - _MAX_NAMED} more" if len(tables) > _MAX_NAMED else ""
    return ", ".join(map(str, tables[:_MAX_NAMED])) + more


def _refusal(what: str, address: str, why: str, remedy: str) -> SourceSettingError:
    return SourceSettingError(what, where=f"replica {address}", why=why, remedy=f"{remedy}; {_SOURCE_INSTEAD}")
