"""Go on at another server: find the place of the stored offset in its binlog by GTIDs.

File and position belong to one server. Where replication has copied its transactions to the server that answers now,
the stored GTID set says where the stream stands in that server's binlog: behind the last transaction of the set, if
nothing before it is missing in the set. Then every transaction before the place was drained, and none after it.

The next batch begins at this place, with the same GTID set (``BatchPlan.continued_from``). The commit protocol takes
it for the offset of the earlier batches; the schema history gets a copy of its records at the new place, in the
transaction that puts the plan in force. Nothing else in the pipeline knows of the change.

Refused by name, before anything is written: the server lacks transactions that were drained, or has skipped one; it
has purged some that were not; it has errant ones among those that were drained, or changes in one that was empty; it
has no GTIDs, or the stored offset has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.binlog_coverage import SEARCHED_MB
from airflow_provider_mysql_cdc.cdc.binlog.connect import answering_server, fetch_all
from airflow_provider_mysql_cdc.cdc.binlog.dump import FILE_START
from airflow_provider_mysql_cdc.cdc.binlog.event_parsers import parse_gtid
from airflow_provider_mysql_cdc.cdc.binlog.file_fingerprint import with_fingerprint
from airflow_provider_mysql_cdc.cdc.binlog.position import LocalGtids, binary_logs, current_offset, replica_status
from airflow_provider_mysql_cdc.cdc.binlog.scan import BinlogScan
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.drain.failover.replication_filters import require_reason_of_empty
from airflow_provider_mysql_cdc.cdc.drain.failover.requested_position import (
    VERIFY_REMEDY,
    GtidSearch,
    last_file,
    previous_gtids_of,
    refused_server,
    reset_remedy,
    shown_gtids,
    start_file,
)
from airflow_provider_mysql_cdc.cdc.drain.failover.server_transactions import (
    SkippedTransactions,
    change_of_captured,
    compare_transaction,
    require_nothing_in_empty,
    statement_about_tables,
)
from airflow_provider_mysql_cdc.cdc.errors import ServerChangedError, SourceSettingError
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.gtid import GtidSet, GtidTracker, gtid_source
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, ResumePosition
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.schema.history import read_history
from airflow_provider_mysql_cdc.cdc.schema.history_replay import carried_batch_records, carried_records

EXECUTED_WAIT_S = 5
"""Seconds for which a server may still be executing transactions that it has received."""
_SHOWN_CHARS = 300


@dataclass(frozen=True, slots=True)
class _Search:
    """Hold what the search of a binlog for the place of a GTID set has found.

    Args:
        place: The position before the first transaction that the set lacks.
        boundary: The same place as a reader comes to it: the beginning of a file, where it is the first one there.
        gtids: What the search has seen.
        anonymous: Position of a transaction without a GTID among those that were read; None if there is none.
        statements: Statements about captured tables in transactions that do not count, by GTID.
        changed: Transactions that the set lacks and that change captured tables.
        skipped: Transactions that the server has executed as empty ones, because somebody has skipped them.
        emptied: Transactions of the former server that it has replicated as empty ones.
    """

    place: BinlogOffset
    boundary: BinlogOffset
    gtids: GtidSearch
    anonymous: str | None
    statements: Mapping[str, str]
    changed: GtidSet
    skipped: GtidSet
    emptied: GtidSet


def is_other_server(conn: MySqlConnection, offset: BinlogOffset) -> bool:
    """Return whether a connection leads to another server than the one whose binlog an offset stands in.

    Args:
        conn: An open connection.
        offset: The offset; one without a server's uuid is of any.
    """
    return offset.server_uuid is not None and answering_server(conn).lower() != offset.server_uuid.lower()


def place_on_server(
    cfg: ConnectorConfig, conn: MySqlConnection, offset: BinlogOffset, note: Log = lambda line: None
) -> BinlogOffset:
    """Return an offset's place in the binlog of the server that answers; the offset itself if it is of that server.

    Args:
        cfg: The connector's configuration.
        conn: An open connection to the source.
        offset: A transaction boundary up to which everything is in Kafka.
        note: Receives one line where transactions that do not count differ between the servers.

    Raises:
        ServerChangedError: The place cannot be told, or transactions would be left out or written twice.
        SourceError: The server refuses a query, or cannot be reached.
    """
    if not is_other_server(conn, offset):
        return offset
    stored = _stored_gtids(cfg, conn, offset)
    found = _find(cfg, conn, offset, stored, stored, offset, note)
    _require_same_transaction(cfg, conn, offset, offset.last_commit)
    place = replace(found.place, gtids=str(found.gtids.stored), last_commit=offset.last_commit).remembering(offset)
    return with_fingerprint(conn, cfg.connection_settings(), place)


def position_on_server(
    cfg: ConnectorConfig, conn: MySqlConnection, start: BinlogOffset, reached: ResumePosition
) -> ResumePosition:
    """Return the position of a writer inside an unfinished batch in the binlog of the server that answers.

    Args:
        cfg: The connector's configuration.
        conn: An open connection to the source.
        start: The batch's start.
        reached: The writer's position in the binlog of the former server.

    Raises:
        ServerChangedError: The position cannot be told, or the transaction in which it lies is not the next one here.
        SourceError: The server refuses a query, or cannot be reached.
    """
    stored, reached_gtids = _stored_gtids(cfg, conn, start), _stored_gtids(cfg, conn, reached.offset)
    found = _find(cfg, conn, start, reached_gtids, stored, reached.offset)
    if not reached.is_boundary and (reached.gtid is None or reached.gtid != found.gtids.next_gtid):
        raise _partly_committed_error(conn, start, stored, reached, found)
    last_commit = reached.offset.last_commit
    _require_same_transaction(cfg, conn, start, last_commit)
    boundary = found.place if reached_gtids == stored else found.boundary
    offset = replace(boundary, gtids=str(found.gtids.stored), origin=None, last_commit=last_commit)
    return replace(reached, offset=offset.remembering(reached.offset))


def _require_same_transaction(
    cfg: ConnectorConfig, conn: MySqlConnection, offset: BinlogOffset, last_commit: str | None
) -> None:
    """Refuse a server whose transaction of that GTID is another one: GTIDs come again after a RESET, or on a backup."""
    if last_commit is None or not cfg.counts_gtid_source(gtid_source(last_commit)):
        return
    comparison = compare_transaction(cfg, conn, last_commit)
    if comparison.is_other:
        raise _no_gtids_error(conn, offset, f"{comparison.text}, so its GTIDs are not those of the stream")


def _find(
    cfg: ConnectorConfig,
    conn: MySqlConnection,
    offset: BinlogOffset,
    wanted: GtidSet,
    stored: GtidSet,
    read_up_to: BinlogOffset,
    note: Log = lambda line: None,
) -> _Search:
    """Return the place of a GTID set in the server's binlog, which holds all that the set of an offset lacks."""
    executed, purged = _server_sets(conn, wanted.of_sources(cfg.counts_gtid_source))
    absent, lost = wanted.subtract(executed), purged.subtract(stored)
    if missing := absent.of_sources(cfg.counts_gtid_source):
        raise _missing_error(conn, offset, stored, missing, lost.of_sources(cfg.writes_rows_of))
    # Rows of the others are not written: nothing is lost without them.
    if needed := lost.of_sources(cfg.writes_rows_of):
        raise _purged_error(conn, offset, stored, needed)
    held = wanted.subtract(absent)
    found = _search(cfg, conn, held, purged, offset.server_uuid or "")
    if (errant := found.gtids.errant) and errant == errant.subtract(found.changed):
        note(f"this server has executed {shown_gtids(errant)}, which change no captured table: they count as read")
        found = _search(cfg, conn, held.union(errant), purged, offset.server_uuid or "")
    if found.anonymous is not None:
        raise _no_gtids_error(conn, offset, f"the transaction at {found.anonymous} has no GTID")
    if found.gtids.errant:
        raise _errant_error(conn, offset, stored, found)
    read = wanted.subtract(GtidSet.parse(read_up_to.read_empty)).of_sources(cfg.counts_gtid_source)
    if skipped := read.subtract(read.subtract(found.skipped.union(_never_logged(conn, executed, purged)))):
        raise _skipped_error(conn, offset, stored, skipped)
    if emptied := read.subtract(read.subtract(found.emptied)).subtract(GtidSet.parse(read_up_to.read_as_text)):
        require_reason_of_empty(conn, offset, emptied, note)
    if unlogged := found.gtids.unread():
        raise _no_gtids_error(
            conn, offset, f"its binlog does not contain {shown_gtids(unlogged)}, which it has executed"
        )
    _require_no_statements(conn, offset, stored, found)
    require_nothing_in_empty(cfg, conn, offset, read_up_to.read_empty, note)
    if line := _uncounted_line(cfg, absent, lost, found.gtids):
        note(line)
    return found


def carried_history(
    cfg: ConnectorConfig,
    offset: BinlogOffset,
    place: BinlogOffset,
    epoch: int,
    reached: tuple[ResumePosition, ResumePosition] | None = None,
) -> list[SideRecord]:
    """Return the records that give the schema history the structures at an offset also at its place on another server.

    Args:
        cfg: The connector's configuration.
        offset: The offset.
        place: Its place in the binlog of the server that answers.
        epoch: Epoch of the batch that begins there.
        reached: How far writer 0 has committed the batch, on the former server and here: the records of its statements
            are copied too, because it does not write them again.

    Raises:
        SchemaError: A record of the history is damaged, or is another connector's.
        SinkError: Kafka cannot be read.
    """
    history = list(read_history(cfg, bases=(offset,)))
    records = carried_records(history, cfg.topic_prefix, offset, place, epoch)
    if reached is not None:
        records += carried_batch_records(history, offset, place, *reached, epoch)
    return [SideRecord(cfg.history_topic, None, record.to_bytes()) for record in records]


def change_line(offset: BinlogOffset, place: BinlogOffset, address: str) -> str:
    """Return the line of the log that says from where to where the stream has moved.

    Args:
        offset: The offset on the earlier server.
        place: Its place on the server that answers.
        address: The server's address.
    """
    return (
        f"the stream goes on at server {place.server_uuid} ({address}) at {place}, which is the place of {offset} of "
        f"server {offset.server_uuid}: both have executed exactly {shown_gtids(GtidSet.parse(place.gtids))} there"
    )


def _stored_gtids(cfg: ConnectorConfig, conn: MySqlConnection, offset: BinlogOffset) -> GtidSet:
    if cfg[F.GTID_IGNORE_ON_RECOVERY]:
        raise _no_gtids_error(conn, offset, "gtid.ignore.on.recovery=true keeps GTIDs from being asked")
    if not offset.gtids:
        raise _no_gtids_error(conn, offset, "the stored offset has no GTID set")
    mode = str(fetch_all(conn, "SELECT @@GLOBAL.gtid_mode")[0][0])
    if mode != "ON":
        raise _no_gtids_error(conn, offset, f"its gtid_mode is {mode}")
    return GtidSet.parse(offset.gtids)


def _server_sets(conn: MySqlConnection, stored: GtidSet) -> tuple[GtidSet, GtidSet]:
    """Return gtid_executed, once it holds a set or the wait is over, and gtid_purged."""
    fetch_all(conn, "SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, %s)", (str(stored), EXECUTED_WAIT_S))
    executed, purged = fetch_all(conn, "SELECT @@GLOBAL.gtid_executed, @@GLOBAL.gtid_purged")[0]
    return GtidSet.parse(str(executed)), GtidSet.parse(str(purged))


def _search_start(conn: MySqlConnection, names: list[str], wanted: GtidSet, purged: GtidSet) -> tuple[str, GtidSet]:
    """Return the file in which the last transaction of a set stands, or the first file; and the set before it.

    In files that begin behind the whole set there may be transactions without a GTID (gtid_mode was off for a while).
    """
    file, previous = start_file(conn, names, wanted.union(purged), shown_gtids(wanted))
    if not previous.contains(wanted):
        return file, previous
    earlier = last_file(conn, names[: names.index(file)], lambda before: not before.contains(wanted))
    return earlier or (names[0], previous_gtids_of(conn, names[0]))


def _never_logged(conn: MySqlConnection, executed: GtidSet, purged: GtidSet) -> GtidSet:
    """Return what was added to gtid_purged of a server behind transactions that it has logged.

    What a dump or a clone brings lies before them: a clone begins with new binlog files (MySQL 9.7.4).
    """
    files = binary_logs(conn)
    unlogged = purged.subtract(previous_gtids_of(conn, files[0][0])) if files else GtidSet()
    return unlogged.behind_first_of(executed.subtract(unlogged))


def _search(
    cfg: ConnectorConfig, conn: MySqlConnection, wanted: GtidSet, purged: GtidSet, former_server: str
) -> _Search:
    """Read the binlog from the last file before which only transactions of the set stand, up to its last one."""
    end, files = current_offset(conn), binary_logs(conn)
    names = [name for name, _ in files]
    file, previous = _search_start(conn, names, wanted, purged)
    # With log_replica_updates=OFF, what was replicated is in no file and counts as purged.
    search = GtidSearch(wanted, previous.union(purged), cfg.writes_rows_of)
    anonymous, last_file, gtid, lacked = None, "", None, None
    statements: dict[str, str] = {}
    changed = GtidTracker("")
    skipped = SkippedTransactions(
        LocalGtids.read(conn), former_server, lambda event: change_of_captured(cfg, event) is not None
    )
    _take_earlier(cfg, skipped, files[: names.index(file)], end.with_position(file, FILE_START))
    try:
        for event in BinlogScan(cfg.connection_settings(), end.with_position(file, FILE_START), end):
            skipped.take(event)
            if lacked is not None and change_of_captured(cfg, event):
                changed.add(lacked)
            is_doubtful = event.type == c.QUERY_EVENT and gtid is not None and search.is_out_of_order(gtid)
            if gtid is not None and is_doubtful and (sql := statement_about_tables(cfg, event)):
                statements[gtid] = sql
            if event.type not in c.GTID_EVENTS:
                continue
            gtid = parse_gtid(event).gtid
            lacked = None if gtid is None or wanted.contains(gtid) else gtid
            if gtid is None:
                anonymous = anonymous or f"{event.file}:{event.start_pos}"
            else:
                file_start = None if last_file == event.file else (event.file, FILE_START)
                if search.add(gtid, (event.file, event.start_pos), file_start):
                    break
            last_file = event.file
    except SourceSettingError as error:
        if "anonymous" not in error.why:  # with gtid_mode=ON the server does not send them
            raise
        anonymous = error.where
    place = end if search.place is None else end.with_position(*search.place)
    if search.boundary is not None:
        boundary = end.with_position(*search.boundary)
    else:
        boundary = end if last_file == end.file else end.with_position(end.file, FILE_START)
    return _Search(
        place, boundary, search, anonymous, statements, changed.gtid_set(), skipped.found(), skipped.emptied()
    )


def _take_earlier(
    cfg: ConnectorConfig, skipped: SkippedTransactions, files: Sequence[tuple[str, int]], until: BinlogOffset
) -> None:
    """Look also at files before the one that is searched, which may have begun a moment ago."""
    sizes = accumulate(size for _, size in reversed(files))
    count = sum(size <= SEARCHED_MB << 20 for size in sizes)
    if not count:
        return
    start = until.with_position(files[-count][0], FILE_START)
    try:
        for event in BinlogScan(cfg.connection_settings(), start, until):
            skipped.take(event)
    except SourceSettingError as error:
        if "anonymous" not in error.why:  # of a time with another gtid_mode, which is over
            raise


def _require_no_statements(conn: MySqlConnection, offset: BinlogOffset, stored: GtidSet, found: _Search) -> None:
    """Refuse statements about captured tables that the structures would lack, or get twice."""
    search = found.gtids
    for gtid, sql in found.statements.items():
        if search.passed_over.contains(gtid) or search.repeated.contains(gtid):
            raise refused_server(
                conn,
                offset,
                f"transaction {gtid}, which does not count (gtid.source.*), stands there in another order and has the "
                f"statement {sql[:_SHOWN_CHARS]!r}: structures of captured tables would be wrong",
                "let database.hostname lead to a server that has them in the same order; or take a new snapshot "
                f"(mysql_cdc_snapshot with again=true), {VERIFY_REMEDY}",
            )


def _uncounted_line(cfg: ConnectorConfig, absent: GtidSet, lost: GtidSet, search: GtidSearch) -> str | None:
    """Return the line of the log about transactions that do not count; None where the servers have the same ones."""
    parts = [
        f"{text} {shown_gtids(gtids)}"
        for text, gtids in (
            ("lacks", absent),
            ("has purged", lost),
            ("has, before the place,", search.passed_over),
            ("has, behind the place,", search.repeated),
        )
        if gtids
    ]
    if not parts:
        return None
    written = absent and not cfg[F.GTID_SOURCE_FILTER_DML_EVENTS]
    advice = "rows of the lacking ones are in the topics: trigger mysql_cdc_verify with repair=yes. " if written else ""
    return (
        f"WARNING: of transactions that do not count (gtid.source.*), this server {'; it '.join(parts)}. {advice}"
        "The structures of captured tables are compared with the server's after the batch"
    )


def _no_gtids_error(conn: MySqlConnection, offset: BinlogOffset, why: str) -> ServerChangedError:
    return refused_server(
        conn,
        offset,
        f"{why}, so the place of the stored offset in its binlog cannot be told",
        "let database.hostname lead to the former server; or take a new snapshot (mysql_cdc_snapshot with again=true), "
        f"{VERIFY_REMEDY}",
    )


def _missing_error(
    conn: MySqlConnection, offset: BinlogOffset, stored: GtidSet, missing: GtidSet, purged: GtidSet
) -> ServerChangedError:
    replica = bool(replica_status(conn))
    rest = reset_remedy(stored.subtract(missing).union(purged))
    remedy = f"if this server has lost them for good, continue with what it has: {rest}"
    unread = f"; and it has purged {shown_gtids(purged)}, which the stream has not read" if purged else ""
    return refused_server(
        conn,
        offset,
        f"gtid_executed lacks {shown_gtids(missing)}, whose changes are in the topics already{unread}",
        f"run the task again when the replica has executed them; {remedy}" if replica else remedy,
        retriable=replica,
    )


def _purged_error(conn: MySqlConnection, offset: BinlogOffset, stored: GtidSet, lost: GtidSet) -> ServerChangedError:
    return refused_server(
        conn,
        offset,
        f"it has purged {shown_gtids(lost)}, which the stream has not read",
        "let database.hostname lead to a server that still has them; or leave them out: "
        + reset_remedy(stored.union(lost)),
    )


def _errant_error(conn: MySqlConnection, offset: BinlogOffset, stored: GtidSet, found: _Search) -> ServerChangedError:
    return refused_server(
        conn,
        offset,
        f"it has executed {shown_gtids(found.gtids.errant)}, which the stream has not read, before transactions that "
        f"it has read; the first one is at {found.place}",
        "let database.hostname lead to a server without them; or leave them out: "
        + reset_remedy(stored.union(found.gtids.errant)),
    )


def _skipped_error(
    conn: MySqlConnection, offset: BinlogOffset, stored: GtidSet, skipped: GtidSet
) -> ServerChangedError:
    return refused_server(
        conn,
        offset,
        f"it has executed {shown_gtids(skipped)} as empty transactions, or with changes of no captured table, on "
        "another server than the one they come from, or has them in gtid_purged and never logged them, as somebody "
        "leaves it who skips a transaction (SET gtid_next, SET GLOBAL gtid_purged), and the stream has not read them "
        "so: their changes may be in the topics, and not in its tables",
        "let database.hostname lead to a server that has executed them; or continue with what this one has: "
        + reset_remedy(stored),
    )


def _partly_committed_error(
    conn: MySqlConnection, offset: BinlogOffset, stored: GtidSet, reached: ResumePosition, found: _Search
) -> ServerChangedError:
    return refused_server(
        conn,
        offset,
        f"transaction {reached.gtid or 'at ' + str(reached.offset)} is committed in part, and the transaction at that "
        f"place in its binlog is {found.gtids.next_gtid or 'not there yet'}",
        "let database.hostname lead to the former server until the batch is complete; or give the batch up, whose "
        "committed records may come a second time: " + reset_remedy(stored),
    )
