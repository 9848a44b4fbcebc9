"""Where a connector's offset is in the server's binlog, and where the records are that it has written behind it.

The connector counts the events of a transaction from its BEGIN on, of whatever type, and stores the position of that
BEGIN; with GTIDs, the set before the transaction. A compressed transaction has the position of its one event. Source:
Debezium 3.6.1, ``BinlogStreamingChangeEventSource`` and ``BinlogOffsetContext``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.dump import FILE_START
from airflow_provider_mysql_cdc.cdc.binlog.event import Event
from airflow_provider_mysql_cdc.cdc.binlog.event_parsers import parse_gtid, parse_query
from airflow_provider_mysql_cdc.cdc.binlog.position import binary_logs, check_available, end_of_binlog
from airflow_provider_mysql_cdc.cdc.binlog.scan import BinlogScan
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.debezium.connect_offsets import DebeziumOffset
from airflow_provider_mysql_cdc.cdc.debezium.topic_ends import LastRecord
from airflow_provider_mysql_cdc.cdc.drain.failover.requested_position import (
    position_of_gtids,
    previous_gtids_of,
    purged_gtids,
)
from airflow_provider_mysql_cdc.cdc.drain.taken_over import TRANSACTION_END, RecordPlace, TakenOver
from airflow_provider_mysql_cdc.cdc.errors import BinlogPurgedError, StateError
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.gtid import GtidSet, GtidTracker
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, file_number

STOP_WELL = (
    "start the connector again, let it run for some seconds, stop it (PUT /connectors/NAME/stop, or SIGTERM of a "
    "standalone worker) and import again"
)


@dataclass(slots=True)
class _LoggedTransaction:
    """The transaction that is being read.

    Args:
        file: Its file.
        pos: Position of its first event.
        gtid: Its GTID, or None.
        begin: Position of its BEGIN; -1 before it.
        passed: Events from BEGIN on.
        rows: Row events.
        statements: QUERY events.
        is_xa: Whether it is an XA transaction.
        compressed: Whether its events have one position.
    """

    file: str
    pos: int
    gtid: str | None = None
    begin: int = -1
    passed: int = 0
    rows: int = 0
    statements: int = 0
    is_xa: bool = False
    compressed: bool = False

    def place(self, event: int = 0, row: int = 0, record: int = 0) -> RecordPlace:
        return RecordPlace(file_number(self.file), self.pos, event, row, record)

    def add(self, event: Event) -> None:
        """Count an event of the transaction."""
        self.compressed = self.compressed or event.inner
        if event.type == c.QUERY_EVENT:
            self.statements += 1
            sql = parse_query(event).sql.strip().upper()
            self.is_xa = self.is_xa or sql.startswith("XA START")
            if sql == "BEGIN" and self.begin < 0:
                self.begin = event.start_pos
        self.rows += event.type in c.ROW_EVENT_KINDS
        self.passed += self.begin >= 0


def transactions(scan: BinlogScan) -> Iterator[tuple[_LoggedTransaction, Event]]:
    """Yield the events of a part of the binlog, each with its transaction; what ends a file has one of its own."""
    current, skipped = _LoggedTransaction(scan.start.file, scan.start.pos), 0
    for event in scan:
        if event.type in c.GTID_EVENTS:
            current = _LoggedTransaction(event.file, event.start_pos, parse_gtid(event).gtid)
        elif event.type in (c.ROTATE_EVENT, c.STOP_EVENT):
            current = _LoggedTransaction(event.file, event.start_pos)
        else:
            if event.file != current.file:
                current = _LoggedTransaction(event.file, FILE_START)
            current.passed += (scan.stream.skipped - skipped) * (current.begin >= 0)
            current.add(event)
        skipped = scan.stream.skipped
        yield current, event


@dataclass(frozen=True, slots=True)
class StartPlace:
    """Say where the stream begins.

    Args:
        offset: The transaction boundary.
        same_server: Whether the connector's positions are those of this server's binlog.
    """

    offset: BinlogOffset
    same_server: bool


def find_start(cfg: ConnectorConfig, conn: MySqlConnection, offset: DebeziumOffset) -> StartPlace:
    """Return the transaction boundary at or before a connector's offset.

    Args:
        cfg: The connector's configuration.
        conn: An open connection.
        offset: Its offset.

    Raises:
        BinlogPurgedError: The server no longer has it.
        ConfigError: The GTID set has a gap, or the server does not know all of it.
        StateError: It is in the middle of an XA transaction, or no place of this binlog.
    """
    settings, end = cfg.connection_settings(), end_of_binlog(conn, cfg.connection_settings())
    sizes = dict(binary_logs(conn))
    found = None
    if FILE_START <= offset.pos <= sizes.get(offset.file, -1):
        found = _boundary_in_file(cfg, conn, offset, end)
    if found is not None and (offset.gtids is None or end.gtids is None or _fits(cfg, offset, found, end)):
        place = found.transaction
        gtids = None if end.gtids is None else str(found.executed)
        return StartPlace(
            check_available(conn, settings, end.with_position(place.file, place.pos, gtids)), same_server=True
        )
    if offset.gtids is not None and end.gtids is not None:
        return StartPlace(position_of_gtids(cfg, conn, end, GtidSet.parse(offset.gtids)), same_server=False)
    files = list(sizes)
    raise BinlogPurgedError(
        "the server's binlog does not have the place of the connector's offset",
        where=f"{offset}, {offset.where}",
        why=f"the server has {files[0]} to {files[-1]}, and the offset has no GTID set",
        remedy="give the server that the connector has read from; if its binlog was purged, take a new snapshot "
        "(mysql_cdc_snapshot), then run mysql_cdc_verify with repair=yes",
    )


@dataclass(frozen=True, slots=True)
class _Boundary:
    """A transaction boundary of a file: its transaction, what was executed before it, and the transaction before."""

    transaction: _LoggedTransaction
    executed: GtidSet
    before: _LoggedTransaction | None


def _boundary_in_file(
    cfg: ConnectorConfig, conn: MySqlConnection, offset: DebeziumOffset, end: BinlogOffset
) -> _Boundary | None:
    """Return the boundary at or before the position of an offset; None where no connector would have stored it."""
    start = end.with_position(offset.file, FILE_START)
    executed, current, before = GtidTracker(""), _LoggedTransaction(start.file, start.pos), None
    is_place, rows = offset.pos == FILE_START, 0
    scan = BinlogScan(cfg.connection_settings(), start, end)
    for transaction, event in transactions(scan):
        if transaction is not current:
            if (transaction.file, transaction.pos > offset.pos) != (offset.file, False):
                break
            if current.gtid is not None:
                executed.add(current.gtid)
            before, current, rows = current, transaction, 0
        is_place = is_place or offset.pos in (event.start_pos, event.end_pos)
        rows += event.type in c.ROW_EVENT_KINDS and event.start_pos < offset.pos
    else:
        if scan.stream.reached == (offset.file, offset.pos) and current.pos < offset.pos:
            if current.gtid is not None:
                executed.add(current.gtid)
            before, current, rows, is_place = current, _LoggedTransaction(*scan.stream.reached), 0, True
    if rows and current.is_xa:
        raise _xa_error(str(offset))
    if not is_place or rows or (offset.event and current.begin != offset.pos):
        return None
    known = previous_gtids_of(conn, offset.file).union(purged_gtids(conn)) if end.gtids is not None else GtidSet()
    return _Boundary(current, known.union(executed.gtid_set()), before)


def _fits(cfg: ConnectorConfig, offset: DebeziumOffset, found: _Boundary, end: BinlogOffset) -> bool:
    """Return whether an offset's GTID set was executed at its position; the last statement is not in it yet."""
    stored = GtidSet.parse(offset.gtids)
    later = stored.subtract(found.executed).subtract(stored.subtract(GtidSet.parse(end.gtids)))
    lacked, before = found.executed.subtract(stored).of_sources(cfg.counts_gtid_source), found.before
    if before is not None and before.gtid is not None and not before.rows:
        lacked = lacked.subtract(GtidSet.parse(before.gtid))
    return not later and not lacked


def _xa_error(where: str) -> StateError:
    return StateError(
        "the connector was stopped in the middle of an XA transaction, or killed behind one",
        where=where,
        why="it writes its rows before XA PREPARE, and this stream at XA COMMIT, so it cannot be told which are there",
        remedy=STOP_WELL,
    )


def find_written(
    cfg: ConnectorConfig,
    conn: MySqlConnection,
    offset: DebeziumOffset,
    start: StartPlace,
    last: Iterable[LastRecord],
    *,
    trusts_offset: bool = False,
) -> TakenOver:
    """Return what the connector has written behind the boundary at which the stream begins.

    Args:
        cfg: The connector's configuration.
        conn: An open connection.
        offset: Its offset.
        start: From ``find_start``.
        last: The last records of topics; those before the boundary say nothing.
        trusts_offset: Whether records whose place cannot be told count as before the offset.

    Raises:
        StateError: The offset, or a record, has a place that the binlog does not have, or that is of no use.
    """
    search = _WrittenSearch(offset, start, list(last), trusts_offset)
    begin = start.offset
    if not search.open:
        return TakenOver(begin, begin, RecordPlace.at(begin))
    end = end_of_binlog(conn, cfg.connection_settings())
    executed = None if begin.gtids is None else GtidTracker(begin.gtids)
    current, until = None, begin
    scan = BinlogScan(cfg.connection_settings(), begin, end)
    for transaction, event in transactions(scan):
        if current is not None and transaction is not current:
            if executed is not None and current.gtid is not None:
                executed.add(current.gtid)
            search.end_transaction(current)
            until = begin.with_position(transaction.file, transaction.pos)
            if not search.open:
                break
        current = transaction
        search.add(transaction, event)
    else:
        if current is not None:
            if executed is not None and current.gtid is not None:
                executed.add(current.gtid)
            search.end_transaction(current)
        until = begin.with_position(*scan.stream.reached)
    search.require_all_found()
    until = replace(until, gtids=None if executed is None else executed.text())
    return TakenOver(begin, until, search.reached, search.ends)


@dataclass(slots=True)
class _WrittenSearch:
    """Find the places of the offset and of the last records, among the events behind the start.

    Args:
        offset: The connector's offset.
        start: Where the stream begins.
        last: The last records of topics.
        trusts_offset: Whether records whose place cannot be told count as before the offset.
    """

    offset: DebeziumOffset
    start: StartPlace
    last: list[LastRecord]
    trusts_offset: bool = False
    reached: RecordPlace = field(init=False)
    ends: dict[str, dict[int, RecordPlace]] = field(default_factory=dict)
    _wanted: dict[tuple[str, int], list[LastRecord]] = field(default_factory=dict)
    _matches: dict[tuple[str, int], list[tuple[_LoggedTransaction, int, int]]] = field(default_factory=dict)
    _boundaries: dict[str, LastRecord] = field(default_factory=dict)
    _open_offset: bool = field(init=False)

    def __post_init__(self) -> None:
        offset, begin = self.offset, self.start.offset
        self.reached = RecordPlace.at(begin)
        if offset.row and not offset.event:
            raise _xa_error(str(offset))
        # A server that applies a transaction may write it in other events, so there only the records tell.
        self._open_offset = bool(offset.event) and self.start.same_server
        if offset.event and not self.start.same_server and self.trusts_offset:
            raise _other_server_error(offset)
        done = GtidSet.parse(begin.gtids)
        for record in self.last:
            if record.gtid is not None and done.contains(record.gtid):
                continue
            if name := record.transaction_id:
                if not (_is_before(name, begin) if name.startswith("file=") else done.contains(name)):
                    self._boundaries[name] = record
            elif not self.start.same_server:
                if record.gtid is not None:
                    self._wanted.setdefault((record.file, record.pos), []).append(record)
            elif RecordPlace(file_number(record.file), record.pos) >= RecordPlace.at(begin):
                self._wanted.setdefault((record.file, record.pos), []).append(record)

    @property
    def open(self) -> bool:
        """Whether something is not found yet."""
        return self._open_offset or bool(self._wanted or self._boundaries)

    def add(self, transaction: _LoggedTransaction, event: Event) -> None:
        """Take the next event."""
        if self._open_offset and transaction.begin >= 0 and transaction.passed >= self.offset.event:
            self._open_offset = False
            self.reached = transaction.place(transaction.rows + 1, self.offset.row)
        if event.type in c.ROW_EVENT_KINDS:
            numbers = transaction.rows, 0
        elif event.type == c.QUERY_EVENT:
            numbers = 0, transaction.statements
        elif event.type == c.XID_EVENT:  # a blocking snapshot writes its statements as of the last event before it
            numbers = TRANSACTION_END, 0
        else:
            return
        key = event.file, event.start_pos
        if key in self._wanted:
            self._matches.setdefault(key, []).append((transaction, *numbers))

    def end_transaction(self, transaction: _LoggedTransaction) -> None:
        """Take the end of a transaction.

        Raises:
            StateError: The offset has more events than it, or a record in it has no place of its own.
        """
        if self._open_offset and transaction.begin >= 0:
            raise StateError(
                "the transaction has fewer events than the connector says that it has passed",
                where=str(self.offset),
                why=f"it begins at {transaction.file}:{transaction.pos} and has {transaction.passed} events",
                remedy="check that database.hostname is the server that the connector has read from; otherwise "
                + STOP_WELL,
            )
        for key, matches in self._matches.items():
            others = []
            for last in self._wanted.pop(key):
                if last.gtid in (None, transaction.gtid):
                    if (place := _place_of(last, matches, trusts_offset=self.trusts_offset)) is not None:
                        self._add_end(last, place)
                else:  # of another server's transaction at the same position
                    others.append(last)
            self._wanted |= {key: others} if others else {}
        self._matches.clear()
        ids = {transaction.gtid, f"file={transaction.file},pos={transaction.begin}"}
        for name in ids.intersection(self._boundaries):
            last = self._boundaries.pop(str(name))
            self._add_end(last, transaction.place(TRANSACTION_END if last.ended else 0, 0, 1))
        if transaction.is_xa and transaction.rows and self.open:  # written at XA PREPARE, and again at XA COMMIT
            raise _xa_error(f"XA transaction at {transaction.file}:{transaction.pos}")

    def _add_end(self, last: LastRecord, place: RecordPlace) -> None:
        self.ends.setdefault(last.topic, {})[last.partition] = place

    def require_all_found(self) -> None:
        """Check that every record has a place.

        Raises:
            StateError: One has none behind the start.
        """
        open_records = [*(last for of in self._wanted.values() for last in of), *self._boundaries.values()]
        if self._open_offset or open_records:
            last = open_records[0] if open_records else None
            raise StateError(
                "the server's binlog does not have a change that the connector has written",
                where=str(self.offset)
                if last is None
                else f"{last.where}: {last.transaction_id or f'{last.file}:{last.pos}'}, the offset is {self.offset}",
                why="it is not behind the connector's offset: another server answers, its binlog was reset, or another "
                "program writes into the topic",
                remedy="check that database.hostname is the server that the connector has read from; otherwise "
                + STOP_WELL,
            )


def _other_server_error(offset: DebeziumOffset) -> StateError:
    return StateError(
        "the connector has stopped in the middle of a transaction, at another server",
        where=str(offset),
        why="this server may have written the transaction in other events than those that the connector has counted, "
        "and --trust-offset goes by its count",
        remedy="import at the server that the connector has read from; where it is gone, start the connector at this "
        "one, let it run for some seconds, stop it (PUT /connectors/NAME/stop) and import again",
    )


def _is_before(transaction_id: str, begin: BinlogOffset) -> bool:
    """Return whether a transaction without a GTID is before a place: its id is ``file=NAME,pos=POSITION``."""
    file, _, pos = transaction_id.removeprefix("file=").rpartition(",pos=")
    return RecordPlace(file_number(file), int(pos)) < RecordPlace.at(begin)


def _place_of(
    last: LastRecord, matches: list[tuple[_LoggedTransaction, int, int]], *, trusts_offset: bool
) -> RecordPlace | None:
    """Return the place of a record, of the events at its position; None where the offset has to say it."""
    rows = [match for match in matches if 0 < match[1] < TRANSACTION_END]
    matches = ([match for match in matches if match[2]] if last.is_statement else rows) or matches
    transaction, event, statement = matches[0]
    if transaction.is_xa:
        raise _xa_error(f"{last.where}: {last.file}:{last.pos}")
    if len(matches) > 1 and trusts_offset:
        return None
    if len(matches) > 1:
        raise StateError(
            "the connector has stopped in the middle of a compressed transaction",
            where=f"{last.where}: {last.file}:{last.pos}",
            why="its row events have one position, so it cannot be told which of its rows are in the topic",
            remedy=f"if it was stopped and not killed, --trust-offset takes its offset; otherwise {STOP_WELL}",
        )
    return transaction.place(event, last.row, last.record) if event else transaction.place(0, statement, last.record)
