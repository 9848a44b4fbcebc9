"""What a server leaves out of its binlog: databases, changes that it replicates, rows of tables that are not logged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.connect import fetch_all
from airflow_provider_mysql_cdc.cdc.binlog.dump import FILE_START
from airflow_provider_mysql_cdc.cdc.binlog.event import Event
from airflow_provider_mysql_cdc.cdc.binlog.event_parsers import parse_gtid
from airflow_provider_mysql_cdc.cdc.binlog.filter_lists import EITHER, NO, YES, FilterLists
from airflow_provider_mysql_cdc.cdc.binlog.position import binary_logs, binlog_status, current_offset, replica_status
from airflow_provider_mysql_cdc.cdc.binlog.scan import BinlogScan
from airflow_provider_mysql_cdc.cdc.binlog.table_map import parse_table_map
from airflow_provider_mysql_cdc.cdc.model.connection import ConnectionSettings, MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.gtid import gtid_source
from airflow_provider_mysql_cdc.cdc.model.table import TableId

SEARCHED_MB = 256
"""Most of the binlog that is read, which takes some seconds."""


def read_logged_tables(
    conn: MySqlConnection,
    settings: ConnectionSettings,
    is_enough: Callable[[TableId], bool],
    source_uuid: str | None = None,
) -> None:
    """Look for tables of which rows were logged since the server was started, as far as its binlog is searched.

    The options that leave tables out do not change while a server runs. The newest file is read first.

    Args:
        conn: An open connection.
        settings: How to reach the same server.
        is_enough: Takes each table once, and says whether the search is over.
        source_uuid: server_uuid of the server whose transactions count; None for all.

    Raises:
        SourceError: The binlog cannot be read.
    """
    until, found, remaining = current_offset(conn), set[TableId](), SEARCHED_MB << 20
    for name, size in reversed(binary_logs(conn)):
        start, counts = until.with_position(name, FILE_START), source_uuid is None
        scan = BinlogScan(settings, start, until)
        for event in scan:
            if source_uuid is not None and event.type in c.GTID_EVENTS:
                counts = gtid_source(parse_gtid(event).gtid or "").lower() == source_uuid.lower()
            elif counts and event.type == c.TABLE_MAP_EVENT and (table := _table_of(event)) not in found:
                found.add(table)
                if is_enough(table):
                    return
            if event.end_pos > remaining:
                return
        if scan.stream.begun_by_start:
            return
        until, remaining = start, remaining - size


def _table_of(event: Event) -> TableId:
    table_map = parse_table_map(event)
    return TableId(table_map.db, table_map.table)


_FILTERS = (
    "Replicate_Do_DB", "Replicate_Ignore_DB", "Replicate_Do_Table", "Replicate_Ignore_Table",
    "Replicate_Wild_Do_Table", "Replicate_Wild_Ignore_Table", "Replicate_Rewrite_DB",
)  # fmt: skip
_TABLES = "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE TABLE_TYPE = 'BASE TABLE' ORDER BY 1, 2"


@dataclass(frozen=True, slots=True)
class ReplicaChannel:
    """Describe a channel through which the server replicates from another one.

    Args:
        name: The channel's name; empty for the default one.
        source: ``host:port`` of the other server.
        applies: Whether changes are applied at present.
        delay_s: Seconds by which they are delayed on purpose.
        lists: Filters that leave changes out.
        source_uuid: server_uuid of the other server; empty before the first connection to it.
        receives: Whether it is connected to the other server: ``Yes``, ``No``, or ``Connecting``.
        retrieved: GTID set of the transactions that have arrived, executed or not.
    """

    name: str
    source: str
    applies: bool
    delay_s: int = 0
    lists: FilterLists = field(default_factory=FilterLists)
    source_uuid: str = ""
    receives: str = "Yes"
    retrieved: str = ""

    def __str__(self) -> str:
        return f"{self.source}, channel {self.name!r}" if self.name else self.source


@dataclass(frozen=True, slots=True)
class BinlogCoverage:
    """Hold what the binlog of a server does not contain.

    Args:
        lists: ``binlog_do_db`` and ``binlog_ignore_db``.
        left_out: Captured tables whose rows these options leave out.
        doubtful: Captured tables of which it cannot be told.
        channels: The server's replication channels; empty for one that is no replica.
    """

    lists: FilterLists = field(default_factory=FilterLists)
    left_out: tuple[TableId, ...] = ()
    doubtful: tuple[TableId, ...] = ()
    channels: tuple[ReplicaChannel, ...] = ()

    def options(self) -> str:
        """Return the options that leave databases out, as in the server's configuration."""
        return self.lists.shown("binlog")


def read_coverage(
    conn: MySqlConnection, settings: ConnectionSettings, captures: Callable[[TableId], bool]
) -> BinlogCoverage:
    """Ask a server what it leaves out of its binlog.

    Args:
        conn: An open connection (REPLICATION CLIENT, and REPLICATION SLAVE where the options can be read in two ways).
        settings: How to reach the same server.
        captures: Whether a table is captured.

    Raises:
        SourceError: The server cannot be asked.
    """
    lists = read_binlog_lists(conn)
    tables: list[TableId] = []
    if lists.texts:
        tables = [table for row in fetch_all(conn, _TABLES) if captures(table := TableId(*map(str, row)))]
    left_out, doubtful = databases_left_out(conn, settings, lists, {table.db for table in tables})
    return BinlogCoverage(
        lists,
        tuple(table for table in tables if table.db in left_out),
        tuple(table for table in tables if table.db in doubtful),
        tuple(replica_channels(conn)),
    )


def read_binlog_lists(conn: MySqlConnection) -> FilterLists:
    """Return the options by which a server leaves databases out of its binlog.

    Args:
        conn: An open connection (REPLICATION CLIENT).

    Raises:
        SourceError: The server cannot be asked.
    """
    status = (binlog_status(conn) or [{}])[0]
    options = [(name, str(status.get(name) or "")) for name in ("Binlog_Do_DB", "Binlog_Ignore_DB")]
    return FilterLists.of(options, ignores_case=any(text for _, text in options) and ignores_case(conn))


def ignores_case(conn: MySqlConnection) -> bool:
    """Return whether a server compares the names of tables without case.

    Args:
        conn: An open connection.
    """
    return int(fetch_all(conn, "SELECT @@lower_case_table_names")[0][0]) > 0


def databases_left_out(
    conn: MySqlConnection, settings: ConnectionSettings, lists: FilterLists, databases: Iterable[str]
) -> tuple[frozenset[str], frozenset[str]]:
    """Return those of some databases whose rows are not logged, and those of which it cannot be told.

    Where the options can be read in two ways, rows in the binlog tell.

    Args:
        conn: An open connection.
        settings: How to reach the same server.
        lists: The server's options.
        databases: The databases.

    Raises:
        SourceError: The binlog cannot be read.
    """
    answers = {database: lists.leaves_out_database(database) for database in databases}
    doubtful = {database for database, answer in answers.items() if answer == EITHER}

    def is_told(table: TableId) -> bool:
        nonlocal lists
        lists = lists.told_by(table)
        doubtful.difference_update([name for name in doubtful if lists.leaves_out_database(name) == NO])
        return not doubtful

    if doubtful:
        read_logged_tables(conn, settings, is_told)
    return frozenset(database for database, answer in answers.items() if answer == YES), frozenset(doubtful)


def replica_channels(conn: MySqlConnection) -> Iterator[ReplicaChannel]:
    """Yield the channels through which a server replicates.

    Args:
        conn: An open connection (REPLICATION CLIENT).

    Raises:
        SourceError: The server cannot be asked.
    """
    status = replica_status(conn)
    folds = bool(status) and ignores_case(conn)
    for values in status:
        yield ReplicaChannel(
            str(values.get("Channel_Name") or ""),
            f"{values.get('Source_Host')}:{values.get('Source_Port')}",
            str(values.get("Replica_SQL_Running")) == "Yes",
            int(values.get("SQL_Delay") or 0),
            FilterLists.of(((name, str(values.get(name) or "")) for name in _FILTERS), ignores_case=folds),
            str(values.get("Source_UUID") or ""),
            str(values.get("Replica_IO_Running")),
            str(values.get("Retrieved_Gtid_Set") or ""),
        )


def is_replica_updates_logged(variables: Mapping[str, str]) -> bool:
    """Return whether a replica writes what it applies into its own binlog.

    Args:
        variables: Global variables by name.
    """
    value = variables.get("log_replica_updates", variables.get("log_slave_updates", "ON"))
    return value.upper() in ("ON", "1")
