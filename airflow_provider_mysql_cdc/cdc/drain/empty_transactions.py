"""Transactions that the stream has read as empty ones, and another server may have executed with changes.

An errant transaction of a replica is settled by an empty one with its GTID on the primary (``SET gtid_next``, BEGIN,
COMMIT), or by anything that changes no captured table (FLUSH), and so is one that a replica cannot execute, there.
The GTID then counts as read. That is so until the stream goes on at the server that has the changes: they are in its
tables, and in no topic. So an offset has the GTIDs of such transactions (``BinlogOffset.read_empty``), and they are
looked up where the stream is to go on. What that server has executed first, under its own GTIDs, and purged since is
refused: nothing tells what it changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.connect import answering_server
from airflow_provider_mysql_cdc.cdc.binlog.dump import FILE_START
from airflow_provider_mysql_cdc.cdc.binlog.event import Event
from airflow_provider_mysql_cdc.cdc.binlog.event_parsers import parse_gtid, parse_query
from airflow_provider_mysql_cdc.cdc.binlog.position import binary_logs, current_offset
from airflow_provider_mysql_cdc.cdc.binlog.scan import BinlogScan
from airflow_provider_mysql_cdc.cdc.binlog.table_map import parse_table_map
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.classify import changes_rows, classify_ddl, in_any_case
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext
from airflow_provider_mysql_cdc.cdc.drain.refused_server import refused_server, reset_remedy, shown_gtids
from airflow_provider_mysql_cdc.cdc.drain.requested_position import last_file, purged_gtids
from airflow_provider_mysql_cdc.cdc.model.gtid import MOST_READ_EMPTY, GtidSet, GtidTracker
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import TableId

_MAX_NAMED = 5


def require_nothing_in_empty(
    cfg: ConnectorConfig, conn: Any, offset: BinlogOffset, read_empty: str | None, note: Log
) -> None:
    """Refuse a server that has changes of captured tables in transactions that the stream has read as empty ones.

    Args:
        cfg: The connector's configuration.
        conn: An open connection to the server to which the stream is to move.
        offset: Where the stream stands, in the binlog of the former server.
        read_empty: GTIDs of those transactions.
        note: Receives one line where it cannot be told.

    Raises:
        ServerChangedError: It has; nothing is written.
        SourceError: The server refuses a query, or cannot be reached.
    """
    wanted = GtidSet.parse(read_empty).of_sources(cfg.writes_rows_of)
    if not wanted:
        return
    held = wanted.subtract(purged_gtids(conn))
    changed, tables = GtidTracker(""), dict[str, None]()
    for gtid, table in _changes(cfg, conn, held):
        changed.add(gtid)
        tables[table] = None
    lost = wanted.subtract(held)
    if own := lost.of_sources(answering_server(conn).lower().__eq__):
        raise refused_server(
            conn,
            offset,
            f"it has executed {shown_gtids(own)} itself and purged them, and the stream has read them as empty ones, "
            "by which somebody settles an errant transaction (SET gtid_next): what they have changed in its tables is "
            "not in the topics, and in no binlog file any more",
            "let database.hostname lead to a server without them; or continue with what this one has: "
            + reset_remedy(GtidSet.parse(offset.gtids or "")),
        )
    if gtids := changed.gtid_set():
        more = f" and {len(tables) - _MAX_NAMED} more" if len(tables) > _MAX_NAMED else ""
        raise refused_server(
            conn,
            offset,
            f"it has executed {shown_gtids(gtids)} with changes of captured tables "
            f"({', '.join(list(tables)[:_MAX_NAMED])}{more}), and the stream has read them as empty ones, by which "
            "somebody settles an errant transaction or skips one (SET gtid_next, gtid_purged): the changes are in its "
            "tables, and not in the topics",
            "let database.hostname lead to a server without them; or continue with what this one has: "
            + reset_remedy(GtidSet.parse(offset.gtids or "")),
        )
    doubts = [f"it has {shown_gtids(lost)} in no binlog file any more"] if lost else []
    if sum(map(len, wanted.sets.values())) >= MOST_READ_EMPTY:
        doubts.append("there were more than are remembered")
    if doubts:
        note(
            f"WARNING: the stream has read transactions as empty ones that this server may have executed with changes: "
            f"{'; '.join(doubts)}. Trigger mysql_cdc_verify with repair=yes, which finds what is missing"
        )


def moved_by_hand(offset: BinlogOffset, former: BinlogOffset) -> BinlogOffset:
    """Return an offset that a person requests, with the empty transactions of the one at which the stream stands.

    Those that another server has executed itself are accepted with the move to it.

    Args:
        offset: The offset, of any server.
        former: Where the stream stands.
    """
    uuid = (offset.server_uuid or "").lower()
    read_empty = GtidSet.parse(former.read_empty)
    if uuid != (former.server_uuid or "").lower():
        read_empty = read_empty.of_sources(lambda source: source != uuid)
    return replace(offset.remembering(former), read_empty=str(read_empty) or None)


def with_unread_purged(offset: BinlogOffset, purged: str) -> BinlogOffset:
    """Return the start of a batch that also remembers what was added to gtid_purged of its server behind it.

    Files before the offset have only what its set has; the rest is in no file, so the stream never reads it
    (``SET GLOBAL gtid_purged = '+...'``, MySQL 8.0). It is asked for after the batch's end was read, whose set has it.

    Args:
        offset: The start.
        purged: ``gtid_purged`` of its server, read after the end of the batch.
    """
    if not offset.gtids or not (added := GtidSet.parse(purged).subtract(GtidSet.parse(offset.gtids))):
        return offset
    remembered = GtidSet.parse(offset.read_empty).union(added).newest(MOST_READ_EMPTY)
    return replace(offset, read_empty=str(remembered))


def _changes(cfg: ConnectorConfig, conn: Any, wanted: GtidSet) -> Iterator[tuple[str, str]]:
    """Yield GTID and table, or statement, of each change of captured tables in transactions that a server has logged.

    Only files that hold some of them are read, the newest first.
    """
    names, until = [name for name, _ in binary_logs(conn)], current_offset(conn)
    while wanted and (found := last_file(conn, names, partial(_lacks, wanted))):
        file, before = found
        if file != names[-1]:
            until = until.with_position(names[names.index(file) + 1], FILE_START)
        start, gtid = until.with_position(file, FILE_START), None
        for event in BinlogScan(cfg.connection_settings(), start, until):
            if event.type in c.GTID_EVENTS:
                gtid = parse_gtid(event).gtid
                gtid = gtid if gtid is not None and wanted.contains(gtid) else None
            elif gtid is not None and (change := change_of_captured(cfg, event)):
                yield gtid, change
        names, until, wanted = names[: names.index(file)], start, wanted.subtract(wanted.subtract(before))


def _lacks(wanted: GtidSet, before: GtidSet) -> bool:
    return not before.contains(wanted)


def unread_purged_line(cfg: ConnectorConfig, start: BinlogOffset) -> str | None:
    """Return the line of the log about what ``with_unread_purged`` has added to the start of a batch; None for nothing.

    Args:
        cfg: The connector's configuration.
        start: The start.
    """
    added = GtidSet.parse(start.read_empty).subtract(GtidSet.parse(start.gtids)).of_sources(cfg.writes_rows_of)
    if not start.gtids or not added:
        return None
    return (
        f"WARNING: {shown_gtids(added)} was added to gtid_purged of the server: a dump, a clone or a backup was "
        "loaded, or an errant transaction was settled. What these transactions, and the load itself, have changed in "
        "captured tables is in no binlog file, and so in no topic: unless that is nothing, trigger mysql_cdc_verify "
        "with repair=yes"
    )


def change_of_captured(cfg: ConnectorConfig, event: Event) -> str | None:
    """Return which captured table an event changes, or the statement that may change some; None where it does not.

    Args:
        cfg: The connector's configuration.
        event: An event of a transaction.
    """
    if event.type == c.TABLE_MAP_EVENT:
        table_map = parse_table_map(event)
        table = TableId(table_map.db, table_map.table)
        return str(table) if cfg.needs_schema(table) else None
    if event.type not in (c.QUERY_EVENT, c.EXECUTE_LOAD_QUERY_EVENT):
        return None
    query = parse_query(event)
    is_xa_commit = query.sql[: len("XA COMMIT")].upper() == "XA COMMIT"  # of rows that were prepared before
    if is_xa_commit or changes_rows(query.sql, query.sql_mode or 0, query.updated_dbs, cfg.captures_database):
        return query.sql
    return statement_about_tables(cfg, event)


def statement_about_tables(cfg: ConnectorConfig, event: Event) -> str | None:
    """Return the text of a statement if it may be about captured tables.

    Args:
        cfg: The connector's configuration.
        event: A QUERY event.
    """
    query = parse_query(event)
    relevance = classify_ddl(query.sql, DdlContext.from_query(query), in_any_case(cfg.needs_schema), cfg.needs_database)
    return query.sql if relevance.relevant else None
