"""Transactions of the stream as another server has them: the same, other ones, empty ones, skipped ones.

Transactions that the stream has read as empty ones, and another server may have executed with changes.

An errant transaction of a replica is settled by an empty one with its GTID on the primary (``SET gtid_next``, BEGIN,
COMMIT), or by anything that changes no captured table (FLUSH), and so is one that a replica cannot execute, there.
The GTID then counts as read. That is so until the stream goes on at the server that has the changes: they are in its
tables, and in no topic. So an offset has the GTIDs of such transactions (``BinlogOffset.read_empty``), and they are
looked up where the stream is to go on. What that server has executed first, under its own GTIDs, and purged since is
refused: nothing tells what it changed.

Transactions that a server has executed without the changes that the stream has read: they were skipped there.

``SET gtid_next``, BEGIN, COMMIT lets a replica pass over a transaction, and so does anything in their place that
changes no captured table: a statement (FLUSH, CREATE DATABASE IF NOT EXISTS), or rows of another table. Such a
transaction has the id of the server on which that was done, also where it is replicated from there; what a replication
filter or ``replica_skip_errors`` has made empty keeps the id of the server that executed the transaction first (MySQL
5.7.22, 8.0.15, 9.7.4).

Tell whether a server's transaction of a GTID is the one that the stream has read.

GTIDs are used again after RESET BINARY LOGS AND GTIDS, and by a server that takes writes behind a restored backup. What
does not come again is the time of the commit in microseconds, which replicas copy and mysqlbinlog keeps (MySQL 8.0.1).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import partial

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.connect import answering_server
from airflow_provider_mysql_cdc.cdc.binlog.dump import FILE_START
from airflow_provider_mysql_cdc.cdc.binlog.event import Event
from airflow_provider_mysql_cdc.cdc.binlog.event_parsers import GtidEvent, parse_gtid
from airflow_provider_mysql_cdc.cdc.binlog.position import LocalGtids, binary_logs, current_offset
from airflow_provider_mysql_cdc.cdc.binlog.query import parse_query
from airflow_provider_mysql_cdc.cdc.binlog.scan import BinlogScan
from airflow_provider_mysql_cdc.cdc.binlog.table_map import parse_table_map
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.classify import changes_rows, classify_ddl, in_any_case
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext
from airflow_provider_mysql_cdc.cdc.drain.failover.requested_position import (
    last_file,
    purged_gtids,
    refused_server,
    reset_remedy,
    shown_gtids,
)
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.gtid import MOST_READ_EMPTY, GtidSet, GtidTracker, gtid_source
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import TableId

_MAX_NAMED = 5


def require_nothing_in_empty(
    cfg: ConnectorConfig, conn: MySqlConnection, offset: BinlogOffset, read_empty: str | None, note: Log
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


def _changes(cfg: ConnectorConfig, conn: MySqlConnection, wanted: GtidSet) -> Iterator[tuple[str, str]]:
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


_BETWEEN = (c.PREVIOUS_GTIDS_LOG_EVENT, c.ROTATE_EVENT, c.STOP_EVENT)


class _Content(IntEnum):
    EMPTY, OTHER, CAPTURED = range(3)


@dataclass(slots=True)
class SkippedTransactions:
    """Look at the events of a server's binlog, one after the other.

    A transaction that was skipped on a server in between is known by those of the former server only: administrators
    also make empty ones on a primary, for what a replica alone has executed, and there they were read empty.

    A server into which binlog files were replayed has executed whole transactions under other servers' GTIDs, with the
    time of their first commit; where that is not logged, one with rows of a captured table shows it.

    Args:
        local_gtids: How it signs its own transactions.
        former_server: server_uuid of the server from which the stream has read them.
        is_change: Says of an event whether it changes captured tables, or may.
    """

    local_gtids: LocalGtids
    former_server: str
    is_change: Callable[[Event], bool]
    _last: tuple[str, int] | None = None
    _content: _Content = _Content.EMPTY
    _skipped: dict[tuple[_Content, int], GtidTracker] = field(default_factory=dict)
    _replayed: set[str] = field(default_factory=set)
    _signed: dict[int, set[str]] = field(default_factory=dict)
    _other_ids: Counter[int] = field(default_factory=Counter)

    def take(self, event: Event) -> None:
        """Take the next event."""
        if event.type in c.GTID_EVENTS:
            self._end_transaction()
            parsed = parse_gtid(event)
            if parsed.gtid is not None and not self._is_own(parsed, event.server_id):
                self._last, self._content = (parsed.gtid, event.server_id), _Content.EMPTY
        elif self._last is not None and self._content is not _Content.CAPTURED and not _is_around(event):
            self._content = _Content.CAPTURED if self.is_change(event) else _Content.OTHER

    def _is_own(self, parsed: GtidEvent, server_id: int) -> bool:
        """Return whether a transaction is one of the server itself, or was replayed with the time of its commit."""
        is_replayed = server_id == self.local_gtids.server_id and parsed.commit_us != parsed.immediate_commit_us
        return is_replayed or gtid_source(parsed.gtid or "").lower() == self.local_gtids.server_uuid

    def _end_transaction(self) -> None:
        if self._last is None:
            return
        (gtid, server_id), self._last = self._last, None
        is_lent, is_former = self.local_gtids.is_lent(gtid, server_id), self._is_former(gtid_source(gtid))
        if self._content is not _Content.CAPTURED:
            self._skipped.setdefault((self._content, server_id), GtidTracker("")).add(gtid)
            self._other_ids[server_id] += is_former and not is_lent and self._content is _Content.OTHER
        elif is_lent:
            self._replayed.add(gtid_source(gtid))
        else:
            self._signed.setdefault(server_id, set()).add(gtid_source(gtid).lower())

    def found(self) -> GtidSet:
        """Return the transactions that were skipped."""
        self._end_transaction()
        own, skipped = self.local_gtids, GtidSet()
        former_ids = {server_id for server_id, uuids in self._signed.items() if any(map(self._is_former, uuids))}
        former_ids = former_ids or {server_id for server_id, _ in (+self._other_ids).most_common(1)}
        for (content, server_id), tracker in self._skipped.items():
            if server_id == own.server_id and content is _Content.EMPTY:
                skipped = skipped.union(tracker.gtid_set())
            elif server_id == own.server_id:
                is_lent = lambda uuid: uuid not in own.group_uuids and uuid not in self._replayed  # noqa: E731
                skipped = skipped.union(tracker.gtid_set().of_sources(is_lent))
            elif former_ids and server_id not in former_ids:
                skipped = skipped.union(tracker.gtid_set().of_sources(self._is_former))
        return skipped

    def emptied(self) -> GtidSet:
        """Return transactions that were replicated and that something has made empty.

        Of the former server, and of those whose other transactions have changes of captured tables: the stream has read
        them there, or at another one.
        """
        self._end_transaction()
        empty = GtidSet()
        for (content, server_id), tracker in self._skipped.items():
            if content is _Content.EMPTY and server_id != self.local_gtids.server_id:
                sources = {self.former_server.lower(), *self._signed.get(server_id, ())}
                empty = empty.union(tracker.gtid_set().of_sources(sources.__contains__))
        return empty.subtract(self.found())

    def _is_former(self, uuid: str) -> bool:
        return uuid.lower() == self.former_server.lower()


def _is_around(event: Event) -> bool:
    """Return whether an event stands between transactions, or begins or ends one."""
    if event.type == c.QUERY_EVENT:
        return parse_query(event).sql.upper() in ("BEGIN", "COMMIT")
    return event.type == c.XID_EVENT or event.type in _BETWEEN


@dataclass(frozen=True, slots=True)
class TransactionMatch:
    """Say whether a server has the transaction that was read last.

    Args:
        text: What was found.
        is_other: Whether it has another one under this GTID; not where nothing tells.
    """

    text: str
    is_other: bool = False


def compare_transaction(cfg: ConnectorConfig, conn: MySqlConnection, last_commit: str) -> TransactionMatch:
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


def _commit_time(cfg: ConnectorConfig, conn: MySqlConnection, gtid: str) -> int:
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
