"""A source for the model of the whole stream: servers with a binlog each, failovers, resets of the binary logs.

The product's own code asks it (``check_available``, ``end_of_binlog``, ``require_same_file``): a connection answers the
statements that this code sends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace, TracebackType
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog import connect as mysql_connect
from airflow_provider_mysql_cdc.cdc.binlog import dump
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.drain.failover.requested_position import GtidSearch
from airflow_provider_mysql_cdc.cdc.errors import BinlogPurgedError
from airflow_provider_mysql_cdc.cdc.model.connection import ConnectionSettings
from airflow_provider_mysql_cdc.cdc.model.gtid import GtidSet
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, TableId
from airflow_provider_mysql_cdc.cdc.schema.history_record import HistoryRecord
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk
from airflow_provider_mysql_cdc.cdc.snapshot.key_kinds import SIGNED

FILE, KEYS = "binlog.000001", 6
TABLES = {TableId("d", "t"): range(4), TableId("d", "u"): range(4, KEYS)}
COLUMN = Column("id", 1, "INT", "INT", nullable=False)
STATE = SchemaState({name: Table(name, (COLUMN,), ("id",)) for name in TABLES})
CHUNKS = {
    "t": [
        SnapshotChunk(TableId("d", "t"), 0, ("id",), None, (1,), last=False, kinds=(SIGNED,)),
        SnapshotChunk(TableId("d", "t"), 1, ("id",), (1,), None, kinds=(SIGNED,)),
    ],
    "u": [SnapshotChunk(TableId("d", "u"), 0, ("id",), None, None, kinds=(SIGNED,))],
}
RowRecord = tuple[TableId, int, str, int]
"""Table, key, kind of the record, and the change."""


def table_of(key: int) -> TableId:
    """Return the table that holds a key."""
    return next(table for table, keys in TABLES.items() if key in keys)


@dataclass(frozen=True, slots=True)
class Change:
    """One transaction: it gives a key its n-th value.

    Args:
        n: Number of the change, in the order of the world.
        key: The key.
        gtid: Its GTID, the same on every server.
        ts_ms: When it was committed first.
        changed_tables: The tables that a statement changed; none for rows.
    """

    n: int
    key: int
    gtid: str
    ts_ms: int
    changed_tables: tuple[TableId, ...] = ()

    @property
    def records(self) -> list[RowRecord]:
        """Return what a stream produces for it."""
        return [(table_of(self.key), self.key, "c", self.n)]


@dataclass(eq=False)
class Binlog:
    """One life of a server's binlog, from a RESET to the next; names and positions are those of every other life.

    Args:
        made: When its file was made; no two lives have the same.
        first: Position of the first transaction.
        width: Bytes of a transaction.
        base: Last change of each key before the first transaction.
        executed: Transactions that the server had executed before the first one.
    """

    made: int
    first: int
    width: int
    base: dict[int, int]
    changes: list[Change] = field(default_factory=list)
    executed: GtidSet = field(default_factory=GtidSet)

    def end(self) -> int:
        """Return the position behind the last transaction."""
        return self.place(len(self.changes))

    def place(self, count: int) -> int:
        """Return the position behind the first transactions."""
        return self.first + self.width * count

    def origin(self) -> str:
        """Return the fingerprint of its file, as ``binlog.file_fingerprint`` makes it."""
        return f"{self.made}.head" + (f".{self.changes[0].gtid.replace(':', '-')}" if self.changes else "")

    def between(self, start: int, end: int) -> list[tuple[int, Change]]:
        """Return the transactions of a range, each with the position behind it."""
        ends = [(self.place(i + 1), change) for i, change in enumerate(self.changes)]
        return [(at, change) for at, change in ends if start < at <= end]

    def executed_at(self, at: int) -> GtidSet:
        """Return the transactions before a position."""
        executed = self.executed
        for _, change in self.between(0, at):
            executed = executed.add(change.gtid)
        return executed

    def rows(self, at: int) -> dict[int, int]:
        """Return the last change of each key at a position."""
        return self.base | {change.key: change.n for _, change in self.between(0, at)}


class Server:
    """A server: its data, its binlog, what it has executed."""

    def __init__(self, world: Source, uuid: str) -> None:
        self.uuid, self._world = uuid, world
        self.data: dict[int, int] = dict.fromkeys(range(KEYS), -1)
        self.executed: GtidSet = GtidSet()
        self.purged: GtidSet = GtidSet()
        self.binlog = world.new_binlog(self)

    def apply(self, change: Change) -> None:
        """Write a transaction, its own or one that was replicated."""
        self.data[change.key] = change.n
        self.binlog.changes.append(change)
        self.executed = self.executed.add(change.gtid)


class Source:
    """Two servers; the stream's address leads to one of them, and one of them is written to."""

    def __init__(self, ask: Callable[[], None]) -> None:
        self._ask, self._made, self._servers, self.now_ms = ask, 1_000_000, 0, 2000
        self.changes = 0
        self.lives: dict[int, Binlog] = {}
        self.primary = self.address = self._server()
        self.replica = self._server()

    def _server(self) -> Server:
        self._servers += 1
        return Server(self, f"{self._servers:08d}-0000-0000-0000-000000000000")

    def new_binlog(self, server: Server) -> Binlog:
        """Return an empty binlog for a server."""
        self._made += 1
        odd = self._made % 2
        made = Binlog(self._made, 157 + 40 * odd, 10 - 3 * odd, dict(server.data))
        self.lives[self._made] = made
        return made

    def life(self, offset: BinlogOffset) -> Binlog:
        """Return the binlog in which an offset stands."""
        assert offset.origin is not None, f"{offset} does not say in which binlog it stands"
        return self.lives[int(offset.origin.partition(".")[0])]

    def executed_at(self, offset: BinlogOffset) -> GtidSet:
        """Return the transactions before an offset."""
        return self.life(offset).executed_at(offset.pos)

    def write(self, lag: bool = False) -> None:
        """Commit a transaction on the primary, and on the replica unless that lags."""
        n, self.changes = self.changes, self.changes + 1
        self.now_ms += 2000
        # After a reset, a server would use GTIDs again, and then nobody can tell what another server has executed.
        change = Change(n, n * 5 % 7 % KEYS, f"{self.primary.uuid}:{n + 1}", self.now_ms)
        self.primary.apply(change)
        if not lag:
            self.catch_up()

    def catch_up(self) -> None:
        """Let the replica apply what it lacks."""
        for change in self.primary.binlog.changes:
            if not self.replica.executed.contains(change.gtid):
                self.replica.apply(change)

    def readdress(self) -> None:
        """Let the address lead to the other server, whichever is written to."""
        self.address = self.replica if self.address is self.primary else self.primary

    def promote(self) -> None:
        """Make the replica the primary and let the address follow; the old one is created again from it.

        What the replica has not applied is lost.
        """
        self.primary = self.address = self.replica
        self._rebuild_replica()

    def reset(self) -> None:
        """RESET BINARY LOGS AND GTIDS on the primary; the replica is created again from it."""
        here = self.address is self.primary
        self.primary.executed = self.primary.purged = GtidSet()
        self.primary.binlog = self.new_binlog(self.primary)
        self._rebuild_replica()
        if not here:
            self.address = self.replica

    def _rebuild_replica(self) -> None:
        self.replica = self._server()
        self.replica.data = dict(self.primary.data)
        self.replica.executed = self.replica.purged = self.replica.binlog.executed = self.primary.executed
        self.replica.binlog.base = dict(self.primary.data)

    def all_changes(self) -> list[Change]:
        """Return the transactions of all servers, each once."""
        return list({change.gtid: change for life in self.lives.values() for change in life.changes}.values())

    def connect(self, settings: ConnectionSettings | None = None, **_: Any) -> Connection:
        """Return a connection to the server under the address; another one than that of the settings is refused."""
        self._ask()
        connection = Connection(self.address)
        if settings is not None:
            mysql_connect._require_server(mysql_connect.answering_server(connection), settings)
        return connection

    # -- tables, as the stage asks for them -----------------------------------------------------------------------

    def schema(self, _: BinlogOffset | None = None) -> SchemaState:
        """Return the tables at a position, or now."""
        return STATE

    def history(self) -> list[HistoryRecord]:
        """Return the statements so far."""
        return []

    def split(self, table: TableId) -> list[SnapshotChunk]:
        """Return the chunks of a table."""
        return CHUNKS[table.table]

    def lock(self, _: Connection, __: TableId) -> None:
        """Hold a table's name and structure until the connection ends; an error if the view cannot read it."""

    def unlock(self, _: Connection) -> None:
        """Let statements change the tables that a connection holds."""

    def rows_now(self, table: TableId, _: tuple[str, ...]) -> dict[int, int] | None:
        """Return the rows of a table by these columns; None when there is no such table."""
        return {key: n for key, n in self.address.data.items() if key in TABLES[table]}

    def rows_in_view(self, conn: Connection, table: TableId) -> dict[int, int]:
        """Return the rows of a table that a connection holds, in its view."""
        rows = conn.server.binlog.rows(conn.view)
        return {key: n for key, n in rows.items() if key in TABLES[table]}

    def rows_at(self, offset: BinlogOffset, table: TableId) -> dict[int, int]:
        """Return the rows of a table in a view at a position."""
        rows = self.life(offset).rows(offset.pos)
        return {key: n for key, n in rows.items() if key in TABLES[table]}

    def place_of(self, conn: Connection, wanted: GtidSet, purged: GtidSet) -> tuple[BinlogOffset, GtidSearch]:
        """Return what ``drain.failover.failover`` finds in the binlog of a connection's server."""
        binlog, search = conn.server.binlog, GtidSearch(wanted, purged)
        ends = [binlog.first, *(at for at, _ in binlog.between(0, binlog.end()))]
        for start, change in zip(ends, binlog.changes, strict=False):
            if search.add(change.gtid, (FILE, start), None):
                break
        file, pos = search.place or (FILE, ends[-1])
        return BinlogOffset(file, pos, None, conn.server.uuid), search

    def read_origin(self, settings: ConnectionSettings, file: str, server_uuid: str | None = None) -> str:
        """Stand in for ``binlog.file_fingerprint.read_fingerprint``."""
        self.connect(settings)
        dump.require_same_server(Connection(self.address), BinlogOffset(file, 4, server_uuid=server_uuid))
        if file != FILE:
            raise BinlogPurgedError("no such file", where=file)
        return self.address.binlog.origin()


class Connection:
    """Answer what the product asks a server."""

    open = True

    def __init__(self, server: Server, on_close: Callable[[Connection], None] = lambda _: None) -> None:
        self.server, self.view, self._on_close = server, 0, on_close

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._on_close(self)

    def cursor(self) -> Cursor:
        return Cursor(self)

    def close(self) -> None:
        self._on_close(self)

    def rollback(self) -> None:
        self._on_close(self)


def _answers(server: Server) -> dict[str, Callable[[Sequence[Any]], list[dict[str, Any]]]]:
    status = {"File": FILE, "Position": server.binlog.end(), "Executed_Gtid_Set": str(server.executed)}
    return {
        "SELECT @@server_uuid, @@GLOBAL.gtid_mode": lambda _: [
            {"uuid": server.uuid, "mode": "ON", "purged": str(server.purged)}
        ],
        "SELECT @@server_uuid": lambda _: [{"uuid": server.uuid}],
        "SELECT @@GLOBAL.gtid_mode, GTID_SUBSET": lambda args: [
            {"mode": "ON", "held": server.executed.contains(args[0])}
        ],
        "SELECT @@GLOBAL.gtid_mode": lambda _: [{"mode": "ON"}],
        "SELECT @@GLOBAL.gtid_purged": lambda _: [{"purged": str(server.purged)}],
        "SELECT @@GLOBAL.gtid_executed, @@GLOBAL.gtid_purged": lambda _: [
            {"executed": str(server.executed), "purged": str(server.purged)}
        ],
        "SHOW REPLICA STATUS": lambda _: [],
        "SELECT WAIT_FOR_EXECUTED_GTID_SET": lambda _: [{"waited": 1}],
        "SHOW BINARY LOG STATUS": lambda _: [status],
        "SHOW BINARY LOGS": lambda _: [{"Log_name": FILE, "File_size": server.binlog.end()}],
        "SELECT @@GLOBAL.gtid_owned": lambda _: [{"owned": ""}],
        "SELECT @@lower_case_table_names": lambda _: [{"names": 0}],
        "SHOW BINLOG EVENTS": lambda _: [],  # places are boundaries
        "SELECT SLEEP": lambda _: [{"slept": 0}],
        "SELECT 1 FROM": lambda _: [{"row": 1}],
        "(SELECT 1 FROM": lambda _: [],  # a query that holds the tables
        "SET SESSION": lambda _: [],
        "START TRANSACTION": lambda _: [],
    }


class Cursor:
    """Answer one statement."""

    def __init__(self, conn: Connection) -> None:
        self._conn, self._found = conn, list[dict[str, Any]]()

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        return None

    def execute(self, sql: str, args: Sequence[Any] | None = None) -> None:
        if sql.startswith("START TRANSACTION"):
            self._conn.view = self._conn.server.binlog.end()
        answers = _answers(self._conn.server)
        self._found = next(answer for start, answer in answers.items() if sql.startswith(start))(args or ())

    @property
    def description(self) -> list[tuple[str]]:
        return [(name,) for name in (self._found[0] if self._found else {})]

    def fetchall(self) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in self._found]

    def fetchone(self) -> tuple[Any, ...] | None:
        return next(iter(self.fetchall()), None)


def binlog_event(at: int, keys: Sequence[int] = ()) -> Any:
    """Return what a window asks of an event that ends at a position.

    Args:
        at: The position.
        keys: The keys of its rows.
    """
    return SimpleNamespace(file=FILE, end_pos=at, where=lambda: f"{FILE}:{at}", buf=keys, end=len(keys))
