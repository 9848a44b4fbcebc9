"""A binlog position that a person requests, by file and position or by GTID set, and servers at which it is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.connect import answering_server, fetch_all, fetch_dicts
from airflow_provider_mysql_cdc.cdc.binlog.dump import FILE_START
from airflow_provider_mysql_cdc.cdc.binlog.event_parsers import parse_gtid
from airflow_provider_mysql_cdc.cdc.binlog.position import binary_logs, check_available, gtids_on
from airflow_provider_mysql_cdc.cdc.binlog.scan import BinlogScan
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import BinlogPurgedError, ConfigError, ServerChangedError, SourceError
from airflow_provider_mysql_cdc.cdc.model.connection import ConnectionSettings, MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.gtid import MAX_COPIED_CHARS, GtidSet, GtidTracker, gtid_source
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset

Place = tuple[str, int]
"""Binlog file and position."""


@dataclass(slots=True)
class GtidSearch:
    """Find the place before which everything of a set stands, and nothing else.

    Transactions of servers that do not count (``gtid.source.*``) may stand on either side of it: those that the set
    lacks may be passed over, those of the set may come after it, because their rows are not written.

    Args:
        stored: The set; the server has executed all of it.
        previous: GTIDs that stand before the transactions searched, or were purged.
        counts: Says of a server's uuid whether its transactions count.

    Attributes:
        place: The place before the first transaction that the set lacks; None at the end of the binlog.
        boundary: The same place as a reader comes to it: the beginning of a file, where it is the first one there.
        next_gtid: GTID of the transaction that begins there.
        errant: Transactions that count and that the set lacks, before the last one of the set.
        passed_over: Transactions that do not count and that the set lacks, before the place.
        repeated: Transactions that do not count, of the set, after the place.
    """

    stored: GtidSet
    previous: GtidSet
    counts: Callable[[str], bool] = lambda uuid: True
    place: Place | None = None
    boundary: Place | None = None
    next_gtid: str | None = None
    errant: GtidSet = field(default_factory=GtidSet)
    passed_over: GtidSet = field(default_factory=GtidSet)
    repeated: GtidSet = field(default_factory=GtidSet)
    _passed: GtidTracker = field(init=False)
    _lacked: GtidTracker = field(init=False)
    _lacked_uncounted: GtidTracker = field(init=False)

    def __post_init__(self) -> None:
        self._passed = GtidTracker(str(self.previous))
        self._forget_place()

    def add(self, gtid: str, at: Place, file_start: Place | None) -> bool:
        """Take the next transaction; return whether the search is over.

        Args:
            gtid: Its GTID.
            at: Its beginning.
            file_start: The beginning of its file, where it is the first transaction there.
        """
        if self.stored.contains(gtid):
            self._passed.add(gtid)
            if self.place is not None:
                self._add_stored_behind(gtid)
            return False
        if self.place is None:
            self.place, self.boundary, self.next_gtid = at, file_start or at, gtid
        if not self.unread():
            return True
        (self._lacked if self.counts(gtid_source(gtid)) else self._lacked_uncounted).add(gtid)
        return False

    def unread(self) -> GtidSet:
        """Return the transactions of the set that were not among those taken."""
        return self.stored.subtract(self._passed.gtid_set())

    def is_out_of_order(self, gtid: str) -> bool:
        """Return whether a statement in a transaction that was just taken may be left out, or be read twice.

        Args:
            gtid: The transaction's GTID.
        """
        return self.place is not None and not self.counts(gtid_source(gtid))

    def _add_stored_behind(self, gtid: str) -> None:
        lacked = self._lacked.gtid_set()
        if not self.counts(gtid_source(gtid)):
            self.repeated = self.repeated.add(gtid)
        elif lacked:
            self.errant = self.errant.union(lacked)
        else:
            self.passed_over = self.passed_over.union(self._lacked_uncounted.gtid_set())
            self.repeated = GtidSet()
            self._forget_place()

    def _forget_place(self) -> None:
        self.place = self.boundary = self.next_gtid = None
        self._lacked, self._lacked_uncounted = GtidTracker(""), GtidTracker("")


_SHOWN_CHARS = 300
VERIFY_REMEDY = "then trigger mysql_cdc_verify with repair=yes, because topics may differ from this server's tables"


def refused_server(
    conn: MySqlConnection, offset: BinlogOffset, why: str, remedy: str, *, retriable: bool = False
) -> ServerChangedError:
    """Return the error of a server at which a stream cannot go on.

    Args:
        conn: An open connection to it.
        offset: Where the stream stands, in the binlog of the former server.
        why: What is wrong with the server, as the end of a sentence about it.
        remedy: What to do.
        retriable: Whether a retry can help.
    """
    return ServerChangedError(
        "the stored position belongs to another server, and the stream cannot go on at the one that answers",
        where=str(offset),
        why=f"it was read on server {offset.server_uuid}, and server {answering_server(conn)} answers; {why}",
        remedy=remedy,
        retriable=retriable,
    )


def reset_remedy(gtids: GtidSet) -> str:
    """Return how to go on with what a server has.

    Args:
        gtids: Transactions that are left out; none for all of the server's.
    """
    text = str(gtids)
    requested = text if text and len(text) <= MAX_COPIED_CHARS else "current"
    return f"trigger mysql_cdc_reset_offset with offset={requested}, {VERIFY_REMEDY}"


def shown_gtids(gtids: GtidSet) -> str:
    """Return the text of a set for a message.

    Args:
        gtids: The set.
    """
    text = str(gtids)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."


# Events that begin a transaction, or are between two of them (names of SHOW BINLOG EVENTS).
_BOUNDARY_EVENTS = {
    "Gtid",
    "Anonymous_Gtid",
    "Gtid_tagged",
    "Rotate",
    "Stop",
    "Format_desc",
    "Previous_gtids",
    "Heartbeat",
}
_REMEDY = "give a transaction boundary: the position of a Gtid or Anonymous_Gtid event (SHOW BINLOG EVENTS IN 'file')"
_GTID_TEXT_LIMIT = 300
"""Characters of a GTID set in a message."""


def position_at(
    conn: MySqlConnection, settings: ConnectionSettings, server_offset: BinlogOffset, file: str, pos: int
) -> BinlogOffset:
    """Return the offset at a file and position, after checking that the stream can continue there.

    Args:
        conn: An open connection.
        settings: How to reach the same server.
        server_offset: Any offset of the server.
        file: Binlog file.
        pos: Position in it.

    Raises:
        BinlogPurgedError: The server does not hold the position.
        ConfigError: No event begins there, or the position is inside a transaction.
        SourceError: The server refuses a query, or cannot be reached.
    """
    offset = check_available(conn, settings, server_offset.with_position(file, pos))
    _require_boundary(conn, offset)
    return with_executed_gtids(conn, settings, offset)


def with_executed_gtids(conn: MySqlConnection, settings: ConnectionSettings, offset: BinlogOffset) -> BinlogOffset:
    """Return an offset with the GTID set that was executed before it, by which another server finds its place.

    Args:
        conn: An open connection.
        settings: How to reach the same server.
        offset: A transaction boundary of a file that the server has.

    Raises:
        SourceError: The server refuses a query, or cannot be reached.
    """
    if not gtids_on(conn):
        return offset
    executed = GtidTracker(str(previous_gtids_of(conn, offset.file).union(purged_gtids(conn))))
    if offset.pos > FILE_START:
        for event in BinlogScan(settings, offset.with_position(offset.file, FILE_START), offset):
            if event.type in c.GTID_EVENTS and (gtid := parse_gtid(event).gtid) is not None:
                executed.add(gtid)
    return replace(offset, gtids=executed.text())


def _require_boundary(conn: MySqlConnection, offset: BinlogOffset) -> None:
    """Check that the server has a transaction boundary at a position of a file that it holds."""
    quoted = offset.file.replace("\\", "").replace("'", "")
    try:
        events = fetch_dicts(conn, f"SHOW BINLOG EVENTS IN '{quoted}' FROM {offset.pos} LIMIT 1")
    except SourceError as error:
        raise ConfigError(
            "no event begins at this position", where=str(offset), why=error.why, remedy=_REMEDY
        ) from error
    # The end of a file has no event. MySQL 8 and later go on to the next event where none begins (read from 9.7).
    if events and int(events[0]["Pos"]) != offset.pos:
        raise ConfigError(
            "no event begins at this position",
            where=str(offset),
            why=f"the next one begins at {events[0]['Pos']}",
            remedy=_REMEDY,
        )
    if events and events[0]["Event_type"] not in _BOUNDARY_EVENTS:
        raise ConfigError(
            "the position is inside a transaction",
            where=str(offset),
            why=f"a {events[0]['Event_type']} event begins there",
            remedy=_REMEDY,
        )


def position_of_gtids(
    cfg: ConnectorConfig, conn: MySqlConnection, binlog_end: BinlogOffset, requested: GtidSet
) -> BinlogOffset:
    """Return the offset before the first transaction that a GTID set does not contain.

    The stream is read by file and position, so the set has to be one that was executed at some position: with a gap in
    it, the stream would contain transactions after that position that the set contains too. Transactions that are in no
    file (``gtid_purged``: those of a dump or a clone, too) lie before every position.

    Args:
        cfg: The connector's configuration.
        conn: An open connection.
        binlog_end: The end of the server's binlog.
        requested: The set.

    Raises:
        BinlogPurgedError: The server no longer holds transactions that the set lacks.
        ConfigError: GTIDs are off; the server does not know a transaction of the set; or the set has a gap.
        SourceError: The server refuses a query, or cannot be reached.
    """
    where = f"gtid_set {str(requested)[:_GTID_TEXT_LIMIT]}"
    if binlog_end.gtids is None:
        raise ConfigError("GTIDs are off", where=where, remedy="give binlog_filename and binlog_position")
    unknown = requested.subtract(GtidSet.parse(binlog_end.gtids))
    if counted := unknown.of_sources(cfg.counts_gtid_source):
        raise ConfigError(
            "the server has not executed all transactions of the GTID set",
            where=where,
            why=f"gtid_executed lacks {str(counted)[:_GTID_TEXT_LIMIT]}",
            remedy="give a set that this server has executed, as SELECT @@gtid_executed shows it",
        )
    files, purged = [name for name, _ in binary_logs(conn)], purged_gtids(conn)
    held = requested.subtract(unknown).union(purged)
    if lost := purged.subtract(requested).of_sources(cfg.writes_rows_of):
        raise _purged_error(where, lost, held)
    file, previous_gtids = start_file(conn, files, held, where)
    start = check_available(conn, cfg.connection_settings(), binlog_end.with_position(file, FILE_START))
    search = GtidSearch(held, previous_gtids.union(purged), cfg.writes_rows_of)
    position = _search_position(cfg, start, binlog_end, search)
    if search.errant:
        raise ConfigError(
            "the GTID set has a gap, so no binlog position corresponds to it",
            where=where,
            why=f"it lacks {str(search.errant)[:_GTID_TEXT_LIMIT]}, the first of them at {position}, and contains "
            "transactions that were executed after them",
            remedy=f"to leave them out of the stream, {reset_remedy(held.union(search.errant))}; or read everything "
            "from the first of them on, what the set contains too: trigger mysql_cdc_reset_offset with "
            f"offset={position}",
        )
    return check_available(
        conn, cfg.connection_settings(), binlog_end.with_position(position.file, position.pos, str(held))
    )


def purged_gtids(conn: MySqlConnection) -> GtidSet:
    """Return the transactions that a server has executed and has in none of its binlog files.

    Args:
        conn: An open connection.

    Raises:
        SourceError: The query fails.
    """
    return GtidSet.parse(str(fetch_all(conn, "SELECT @@GLOBAL.gtid_purged")[0][0]))


def _purged_error(where: str, lost: GtidSet, without: GtidSet) -> BinlogPurgedError:
    return BinlogPurgedError(
        "the server no longer holds transactions that the GTID set lacks",
        where=where,
        why=f"no binlog file of it has {str(lost)[:_GTID_TEXT_LIMIT]} (gtid_purged)",
        remedy=f"to leave them out of the stream, {reset_remedy(without)}",
    )


def start_file(conn: MySqlConnection, files: Sequence[str], requested: GtidSet, where: str) -> tuple[str, GtidSet]:
    """Return the last file before which only transactions of a set were executed, and their set; sets only grow.

    Args:
        conn: An open connection.
        files: The server's binlog files, in order.
        requested: The set.
        where: What the set is, for the error.

    Raises:
        BinlogPurgedError: The first file begins after a transaction that the set lacks.
    """
    found = last_file(conn, files, requested.contains)
    if found is None:
        missing = previous_gtids_of(conn, files[0]).subtract(requested) if files else GtidSet()
        raise _purged_error(where, missing, requested.union(missing))
    return found


def last_file(
    conn: MySqlConnection, files: Sequence[str], holds: Callable[[GtidSet], bool]
) -> tuple[str, GtidSet] | None:
    """Return the last binlog file of which something holds, and the set executed before it; None for no file.

    Args:
        conn: An open connection.
        files: Binlog files, in order.
        holds: Says it of the set that was executed before a file. Sets only grow, and where it does not hold it does
            not hold of larger ones.

    Raises:
        SourceError: A query fails.
    """
    low, high, previous_gtids = 0, len(files), GtidSet()
    while low < high:
        middle = (low + high) // 2
        previous = previous_gtids_of(conn, files[middle])
        if holds(previous):
            low, previous_gtids = middle + 1, previous
        else:
            high = middle
    return (files[low - 1], previous_gtids) if low else None


def previous_gtids_of(conn: MySqlConnection, file: str) -> GtidSet:
    """Return the GTID set that was executed before a binlog file.

    Args:
        conn: An open connection.
        file: The file's name.

    Raises:
        SourceError: The query fails.
    """
    events = fetch_dicts(conn, f"SHOW BINLOG EVENTS IN '{file}' LIMIT 2")
    return GtidSet.parse(next((e["Info"] for e in events if e["Event_type"] == "Previous_gtids"), ""))


def _search_position(cfg: ConnectorConfig, start: BinlogOffset, end: BinlogOffset, search: GtidSearch) -> BinlogOffset:
    """Return the position that a search finds in a part of the binlog: its place, or the end."""
    for event in BinlogScan(cfg.connection_settings(), start, end):
        gtid = parse_gtid(event).gtid if event.type in c.GTID_EVENTS else None
        if gtid is not None and search.add(gtid, (event.file, event.start_pos), None):
            break
    return end if search.place is None else end.with_position(*search.place)
