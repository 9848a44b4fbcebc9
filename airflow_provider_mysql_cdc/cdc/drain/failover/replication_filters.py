"""Ask a server to which a stream is to move whether it can have all changes of the captured tables, under their
names.

Ask a server to which a stream is to move whether it can have all changes of the captured tables, under their names.

GTIDs do not tell: what a replica's filters leave out is executed as an empty transaction with the same GTID, and a
server with another ``lower_case_table_names`` logs the same rows under other names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.binlog_coverage import (
    ignores_case,
    read_binlog_lists,
    read_logged_tables,
    replica_channels,
)
from airflow_provider_mysql_cdc.cdc.binlog.connect import fetch_all
from airflow_provider_mysql_cdc.cdc.binlog.filter_lists import FilterLists
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.drain.failover.requested_position import (
    VERIFY_REMEDY,
    refused_server,
    reset_remedy,
    shown_gtids,
)
from airflow_provider_mysql_cdc.cdc.errors import SourceError, SourcePrivilegeError
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.gtid import GtidSet
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema.history import load_schema_state
from airflow_provider_mysql_cdc.cdc.schema.history_record import HistoryRecord

_MAX_TABLES_NAMED = 5
_NO_SUCH_TABLE = "error 1146"
_PASSED_ERRORS = "'replica_skip_errors', 'slave_skip_errors', 'replica_exec_mode', 'slave_exec_mode'"
_CHANNELS = (
    ("NULL", "replication_applier_global_filters"),  # of channels to come; they stay when a replica is promoted
    ("CHANNEL_NAME", "replication_applier_filters"),
)
_NAMES_WITH_COMMAS = (
    "SELECT 1 FROM information_schema.SCHEMATA WHERE SCHEMA_NAME LIKE '%,%' UNION ALL "
    "SELECT 1 FROM information_schema.TABLES WHERE TABLE_NAME LIKE '%,%' LIMIT 1"
)


@dataclass(frozen=True, slots=True)
class ReplicationFilters:
    """Hold the replication filters of a server.

    Args:
        lists: Those of each channel, and those of channels to come.
        commas: Whether entries may contain commas: a statement separates entries by itself, an option does not.
        by_option: Whether all were set by options, so that they are as they were when the server was started.
    """

    lists: tuple[FilterLists, ...] = ()
    commas: bool = True
    by_option: bool = False

    @classmethod
    def read(cls, conn: MySqlConnection, former_server: str | None) -> ReplicationFilters:
        """Read them.

        Args:
            conn: An open connection.
            former_server: server_uuid of the server that the stream has read; of several channels, those that lead to
                it count.

        Raises:
            SourcePrivilegeError: The account may not read them.
            SourceError: The server refuses a query otherwise.
        """
        channels = list(replica_channels(conn))
        former = (former_server or "").lower()
        from_former = {channel.name for channel in channels if former and channel.source_uuid.lower() == former}
        try:
            rows = [
                (channel, str(name), str(rule), str(configured_by))
                for channel_column, table in _CHANNELS
                for channel, name, rule, configured_by in _rules(conn, channel_column, table)
                if channel is None or not from_former or channel in from_former
            ]
        except SourceError as error:
            if _NO_SUCH_TABLE not in error.why:
                raise
            # MySQL 5.7 shows them only as long as there is a channel.
            return cls(tuple(c.lists for c in channels if not from_former or c.name in from_former))
        named: dict[str | None, list[tuple[str, str]]] = {}
        for channel, name, rule, _ in rows:
            named.setdefault(channel, []).append((name, rule))
        case = bool(rows) and ignores_case(conn)
        by_option = [configured_by.startswith("STARTUP") for *_, configured_by in rows]
        commas = any(by_option) or bool(rows and fetch_all(conn, _NAMES_WITH_COMMAS))
        return cls(tuple(FilterLists.of(lists, ignores_case=case) for lists in named.values()), commas, all(by_option))

    def leave_out(self, table: TableId) -> bool:
        """Return whether a filter may leave changes of a table out.

        Args:
            table: The table.
        """
        commas = self.commas or "," in str(table)
        return any(True in lists.leaves_out(table, commas=commas) for lists in self.lists)

    def told_by(self, passed: TableId) -> ReplicationFilters:
        """Return what is known of them when rows of a table came through.

        Args:
            passed: The table.
        """
        return replace(self, lists=tuple(lists.told_by(passed) for lists in self.lists))

    def __str__(self) -> str:
        return ", ".join(dict.fromkeys(lists.shown("replicate") for lists in self.lists if lists.texts))


def _rules(conn: MySqlConnection, channel_column: str, table: str) -> Iterator[tuple[Any, ...]]:
    """Yield channel, name, rule and origin of each filter of a table.

    A filter that was set to nothing is shown with the rule of the row before it, also of another channel (MySQL 9.7.4).
    """
    former: tuple[Any, ...] = None, ""
    columns = f"{channel_column}, FILTER_NAME, FILTER_RULE, CONFIGURED_BY"
    for row in fetch_all(conn, f"SELECT {columns} FROM performance_schema.{table}"):
        channel, name, rule, _ = row
        if name.endswith("_TABLE"):
            is_own = "." in rule and (channel, rule) != former
        elif name == "REPLICATE_REWRITE_DB":
            is_own = rule.startswith("(")
        else:
            is_own = rule != former[1] or (channel != former[0] and "." not in rule)
        if rule and is_own:
            yield row
        former = channel, rule


def require_fit_server(cfg: ConnectorConfig, conn: MySqlConnection, offset: BinlogOffset, epoch: int) -> None:
    """Refuse a server whose binlog may lack changes of captured tables, or has them under other names.

    Args:
        cfg: The connector's configuration.
        conn: An open connection to the server to which the stream is to move.
        offset: Where the stream stands, in the binlog of the former server.
        epoch: Epoch of the batch that begins there.

    Raises:
        ServerChangedError: It is not fit; nothing is written.
        SchemaError: The schema history cannot be read.
    """
    letter_cases: list[int] = []

    def note(record: HistoryRecord) -> None:
        letter_cases.append(record.context.lower_case_table_names)

    state = load_schema_state(cfg, until=offset, epoch=epoch, on_record=note)
    here = int(fetch_all(conn, "SELECT @@lower_case_table_names")[0][0])
    # Records that the product wrote itself have the default, 0.
    former = max(letter_cases, default=here)
    if former != here:
        raise refused_server(
            conn,
            offset,
            f"its lower_case_table_names is {here}, and that of the former server is {former}: tables have "
            "other names in its binlog than in the schema history",
            "let database.hostname lead to a server with the same lower_case_table_names; or begin a new stream with "
            "another topic.prefix",
        )
    require_no_filters(cfg, conn, offset, [table for table in state.tables if cfg.captures(table)])


def require_no_filters(
    cfg: ConnectorConfig, conn: MySqlConnection, offset: BinlogOffset, tables: Iterable[TableId]
) -> None:
    """Refuse a server with replication filters that leave changes of tables out, or one that passes over errors.

    Args:
        cfg: The connector's configuration.
        conn: An open connection to the server to which the stream is to move.
        offset: Where the stream stands, in the binlog of the former server.
        tables: The captured tables.

    Raises:
        ServerChangedError: It has, or they cannot be read.
    """
    _require_no_passed_errors(conn, offset)
    try:
        filters = ReplicationFilters.read(conn, offset.server_uuid)
    except SourcePrivilegeError as error:
        raise refused_server(
            conn,
            offset,
            f"the account may not read its replication filters, which could have left changes out ({error.why})",
            "GRANT SELECT ON performance_schema.* TO the account, and run the task again",
        ) from error
    left_out = [table for table in tables if filters.leave_out(table)]
    if left_out and filters.by_option:
        left_out = _still_left_out(cfg, conn, filters, left_out, offset.server_uuid)
    if left_out:
        names = ", ".join(map(str, left_out[:_MAX_TABLES_NAMED]))
        more = f" and {len(left_out) - _MAX_TABLES_NAMED} more" if len(left_out) > _MAX_TABLES_NAMED else ""
        raise refused_server(
            conn,
            offset,
            f"it has replication filters ({filters}) that leave out changes of captured tables ({names}{more}), or may "
            "do so where a comma may belong to a name: they are missing in its tables and in its binlog, although it "
            "has executed their GTIDs",
            "let database.hostname lead to a server without these filters; or, if its tables are the ones that count "
            f"now, {reset_remedy(GtidSet.parse(offset.gtids or ''))}",
        )


def _require_no_passed_errors(conn: MySqlConnection, offset: BinlogOffset) -> None:
    """Refuse a server that passes over changes which it cannot make, also in a part of a transaction."""
    lax = {
        str(name).replace("slave", "replica"): str(value)
        for name, value in fetch_all(conn, f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({_PASSED_ERRORS})")
        if str(value).upper() not in ("OFF", "STRICT", "")
    }
    if lax:
        shown = " and ".join(f"{name}={value}" for name, value in lax.items())
        raise refused_server(
            conn,
            offset,
            f"it has {shown}: what it could not execute it has passed over, also in a part of a transaction, so "
            "changes in the topics may be missing in its tables",
            "let database.hostname lead to a server without it; or continue with what this one has: "
            + reset_remedy(GtidSet.parse(offset.gtids or "")),
        )


def require_reason_of_empty(conn: MySqlConnection, offset: BinlogOffset, emptied: GtidSet, note: Log) -> None:
    """Refuse a server that has replicated transactions as empty ones, and has no filters that explain it.

    Filters that it has are judged by the tables that they leave out (``require_no_filters``). MySQL 5.7 may have
    filters that it does not show, and makes empty transactions of statements about temporary tables.

    Args:
        conn: An open connection to the server to which the stream is to move.
        offset: Where the stream stands, in the binlog of the former server.
        emptied: Transactions of the former server, which the stream has read with changes.
        note: Receives one line where it cannot be told.

    Raises:
        ServerChangedError: It has none.
        SourceError: The server refuses a query, or cannot be reached.
    """
    filters = str(ReplicationFilters.read(conn, offset.server_uuid)) or read_binlog_lists(conn).shown("binlog")
    if filters:
        note(
            f"WARNING: it has replicated {shown_gtids(emptied)} as empty transactions, which its filters ({filters}) "
            f"explain if they were about tables that are not captured; if it had others before, {VERIFY_REMEDY}"
        )
        return
    what = (
        f"it has replicated {shown_gtids(emptied)} as empty transactions, and has no replication filters now: a filter "
        "that it had, or replica_skip_errors, has left out what the stream has read; unless they are old ones of many "
        "statements of sessions with another binlog_format than ROW, about temporary tables or without rows"
    )
    if str(fetch_all(conn, "SELECT @@version")[0][0]).startswith("5."):
        note(f"WARNING: {what}; {VERIFY_REMEDY}")
        return
    raise refused_server(
        conn,
        offset,
        f"{what}, so changes in the topics may be missing in its tables",
        "let database.hostname lead to a server that has executed them; or continue with what this one has: "
        + reset_remedy(GtidSet.parse(offset.gtids or "")),
    )


def _still_left_out(
    cfg: ConnectorConfig,
    conn: MySqlConnection,
    filters: ReplicationFilters,
    tables: list[TableId],
    former_server: str | None,
) -> list[TableId]:
    """Return those of tables that a filter may leave out although other tables, or they themselves, came through it."""
    left_out = dict.fromkeys(tables)

    def is_told(table: TableId) -> bool:
        nonlocal filters
        left_out.pop(table, None)
        before, filters = filters, filters.told_by(table)
        if filters != before:
            for other in [other for other in left_out if not filters.leave_out(other)]:
                del left_out[other]
        return not left_out

    read_logged_tables(conn, cfg.connection_settings(), is_told, former_server)
    return list(left_out)
