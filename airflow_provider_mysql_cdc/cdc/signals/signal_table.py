"""Check the signal table before a run: its existence, its columns, its binlog logging and the account's privileges.

Watermarks are rows of it, or GTID sets with ``read.only``; their preconditions are checked here too (INC-34 to INC-39).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pymysql

from airflow_provider_mysql_cdc.cdc.binlog.binlog_coverage import databases_left_out, read_binlog_lists
from airflow_provider_mysql_cdc.cdc.binlog.connect import fetch_all
from airflow_provider_mysql_cdc.cdc.binlog.filter_lists import EITHER, YES, FilterLists
from airflow_provider_mysql_cdc.cdc.binlog.grants import read_account
from airflow_provider_mysql_cdc.cdc.binlog.server_errors import from_exception
from airflow_provider_mysql_cdc.cdc.binlog.server_facts import unclear_options
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.enums import WatermarkStrategy
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, SourceConnectionError
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.finding import WARNING, Finding
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.table import TableId

_VARIABLES = (
    "binlog_order_commits", "gtid_mode", "replica_parallel_workers", "slave_parallel_workers",
    "replica_preserve_commit_order", "slave_preserve_commit_order", "super_read_only",
)  # fmt: skip
_TEXT_TYPES = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext")
MIN_LENGTHS = {"id": 42, "type": 21, "data": 128}
"""Least characters of each column: for a UUID and ``-close``, ``snapshot-window-close``, and a small JSON object."""
# As in Debezium's manual, with room for longer lists of tables.
_COLUMN_DEFINITIONS = "(id VARCHAR(42) NOT NULL PRIMARY KEY, type VARCHAR(32) NOT NULL, data MEDIUMTEXT NULL)"


@dataclass(frozen=True, slots=True)
class SignalTableColumn:
    """Describe a column of the signal table.

    Args:
        name: Its name.
        type: Its type, without length.
        length: Most characters that it holds, or None.
        required: Whether an INSERT must give it a value.
    """

    name: str
    type: str
    length: int | None
    required: bool = False


@dataclass(frozen=True, slots=True)
class SignalTableFacts:
    """Hold what the server reports about the signal table and the preconditions of watermarks.

    Args:
        variables: Global variables by name; those a version does not have are absent.
        columns: The table's columns; empty when there is no such table, or the account may not see it.
        binlog_lists: The options by which databases are left out of the binlog.
        is_logged: Whether rows of its database were found there; looked for only where the options leave it open.
        name: The table's name as the server has it; None when there is no such table.
        denied_statements: The server's error text for each statement that the account may not run: INSERT, DELETE.
        account: The account as GRANT takes it.
    """

    variables: Mapping[str, str]
    columns: Sequence[SignalTableColumn] = ()
    binlog_lists: FilterLists = field(default_factory=FilterLists)
    is_logged: bool = False
    denied_statements: Mapping[str, str] | None = None
    account: str = "the account"
    name: TableId | None = None


def require_watermarks(conn: MySqlConnection, cfg: ConnectorConfig, log: Log) -> None:
    """Check the preconditions of table signals and watermarks; create the table where that is configured.

    Args:
        conn: An open connection of the configured account.
        cfg: The connector's configuration.
        log: Takes one line of text.

    Raises:
        ConfigError: One precondition is not met.
        SourceError: A query fails.
    """
    table = cfg[F.SIGNAL_DATA_COLLECTION]
    if table is None and not cfg[F.READ_ONLY]:
        return
    facts = read_table_facts(conn, cfg)
    if table is not None and not cfg[F.READ_ONLY] and not facts.columns and cfg[F.SIGNAL_DATA_COLLECTION_CREATE]:
        create_signal_table(conn, table)
        log(f"created the signal table {table}")
        facts = read_table_facts(conn, cfg)
    for problem in signal_table_problems(facts, cfg):
        raise problem


def signal_table_findings(conn: MySqlConnection, cfg: ConnectorConfig) -> list[Finding]:
    """Return why ad-hoc snapshots are refused, as warnings; the stream goes on without them.

    Args:
        conn: An open connection of the configured account.
        cfg: The connector's configuration.

    Raises:
        SourceError: A query fails.
    """
    if cfg[F.SIGNAL_DATA_COLLECTION] is None and not cfg[F.READ_ONLY]:
        return []
    problems = signal_table_problems(read_table_facts(conn, cfg), cfg)
    return [Finding(WARNING, f"ad-hoc snapshots are refused: {p.what}", p.why, p.remedy) for p in problems]


def watermark_obstacle(conn: MySqlConnection, cfg: ConnectorConfig) -> str | None:
    """Return why watermarks cannot be used, and so no ad-hoc snapshot can be taken; None when they can.

    Args:
        conn: An open connection of the configured account.
        cfg: The connector's configuration.

    Raises:
        SourceError: A query fails.
    """
    facts = read_table_facts(conn, cfg)
    table = cfg[F.SIGNAL_DATA_COLLECTION]
    problem = next(_read_only_problems(facts) if table is None else signal_table_problems(facts, cfg), None)
    if problem is None:
        return None
    reason = f"{problem.what}: {problem.why}; what to do: {problem.remedy}"
    return reason if table is not None or cfg[F.READ_ONLY] else f"no signal table is configured, and {reason}"


def create_signal_table(conn: MySqlConnection, table: TableId) -> None:
    """Create the signal table.

    Args:
        conn: An open connection.
        table: Its name.

    Raises:
        ConfigError: The server refuses the statement.
        SourceConnectionError: The connection broke.
    """
    try:
        with conn.cursor() as cursor:
            cursor.execute(f"CREATE TABLE IF NOT EXISTS {table.quoted()} {_COLUMN_DEFINITIONS} DEFAULT CHARSET utf8mb4")
    except (pymysql.MySQLError, OSError) as error:
        cause = from_exception(error, str(table))
        if isinstance(cause, SourceConnectionError):
            raise cause from error
        raise ConfigError(
            "the signal table cannot be created",
            where=f"{F.SIGNAL_DATA_COLLECTION.name}={table}",
            why=cause.why,
            remedy=f"grant the account CREATE on it, and make sure that its database exists; or create it yourself: "
            f"{create_statement(table)}",
        ) from error


def create_statement(table: TableId) -> str:
    """Return the statement that creates a signal table."""
    return f"CREATE TABLE {table.quoted()} {_COLUMN_DEFINITIONS}"


def read_table_facts(conn: MySqlConnection, cfg: ConnectorConfig) -> SignalTableFacts:
    """Read the facts from the server.

    Args:
        conn: An open connection.
        cfg: The connector's configuration.

    Raises:
        SourceError: A query fails.
    """
    names = ", ".join(f"'{name}'" for name in _VARIABLES)
    variables = dict(fetch_all(conn, f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})"))
    table = cfg[F.SIGNAL_DATA_COLLECTION]
    if table is None:
        return SignalTableFacts(variables)
    rows = fetch_all(
        conn,
        "SELECT c.column_name, c.data_type, c.character_maximum_length, c.is_nullable, c.column_default, c.extra, "
        "t.table_schema, t.table_name "
        "FROM information_schema.columns c JOIN information_schema.tables t USING (table_schema, table_name) "
        "WHERE c.table_schema = %s AND c.table_name = %s AND t.table_type = 'BASE TABLE' ORDER BY c.ordinal_position",
        (table.db, table.table),
    )
    columns = [
        SignalTableColumn(
            str(name),
            str(kind).lower(),
            None if length is None else int(length),
            nullable == "NO" and default is None and not str(extra),
        )
        for name, kind, length, nullable, default, extra, _, _ in rows
    ]
    lists = read_binlog_lists(conn)
    return SignalTableFacts(
        variables,
        columns,
        lists,
        not databases_left_out(conn, cfg.connection_settings(), lists, [table.db])[1],
        _denied_statements(conn, table, columns) if len(columns) >= 3 and not cfg[F.READ_ONLY] else {},
        read_account(conn),
        TableId(*map(str, rows[0][-2:])) if rows else None,
    )


def _denied_statements(conn: MySqlConnection, table: TableId, columns: Sequence[SignalTableColumn]) -> dict[str, str]:
    """Return the server's error text for statements that the account may not run; EXPLAIN needs the same privileges."""
    names = ", ".join("`" + column.name.replace("`", "``") + "`" for column in columns[:3])
    statements = {
        "INSERT": f"EXPLAIN INSERT INTO {table.quoted()} ({names}) VALUES ('', '', '')",
        "DELETE": f"EXPLAIN DELETE FROM {table.quoted()} WHERE {names.partition(', ')[0]} = ''",
    }
    denied = {}
    for name, sql in statements.items():
        try:
            with conn.cursor() as cursor:
                cursor.execute(sql)
                cursor.fetchall()
        except (pymysql.MySQLError, OSError) as error:
            cause = from_exception(error, str(table))
            if isinstance(cause, SourceConnectionError):
                raise cause from error
            denied[name] = cause.why
    return denied


def signal_table_problems(facts: SignalTableFacts, cfg: ConnectorConfig) -> Iterator[ConfigError]:
    """Yield the unmet preconditions of signals and watermarks.

    Args:
        facts: What the server reports.
        cfg: The connector's configuration.
    """
    table = cfg[F.SIGNAL_DATA_COLLECTION]
    where = f"{F.SIGNAL_DATA_COLLECTION.name}={table}"
    if facts.name not in (None, table):
        yield ConfigError(
            "the signal table has its name in another letter case",
            where=where,
            why=f"the server has it as {facts.name}, and so has the binlog: no signal and no watermark would be found",
            remedy=f"set {F.SIGNAL_DATA_COLLECTION.name}={facts.name}",
        )
    if cfg[F.READ_ONLY]:
        yield from _read_only_problems(facts)
        return
    if table is None:
        return
    if not facts.columns:
        yield ConfigError(
            "the signal table does not exist",
            where=where,
            why="the account sees no such table on the server; names are case-sensitive",
            remedy=f"create it: {create_statement(table)}; or set {F.SIGNAL_DATA_COLLECTION_CREATE.name}=true; "
            "or grant INSERT on it to the account if it exists",
        )
        return
    yield from _column_problems(facts.columns, table, where)
    yield from _write_problems(facts, cfg, table, where)


def _column_problems(columns: Sequence[SignalTableColumn], table: TableId, where: str) -> Iterator[ConfigError]:
    why = "the first three columns hold id, type and data of signals and watermarks, whatever they are called"
    remedy = f"recreate it: {create_statement(table)}"
    if len(columns) < 3:
        what = f"the signal table has {len(columns)} columns, fewer than three"
        yield ConfigError(what, where=where, why=why, remedy=remedy)
    for column, (purpose, min_length) in zip(columns, MIN_LENGTHS.items(), strict=False):
        json_data = purpose == "data" and column.type == "json"
        if column.type not in _TEXT_TYPES and not json_data:
            what = f"column {column.name} of the signal table is not a character column"
            yield ConfigError(what, where=where, why=f"it is {column.type.upper()}; {why}", remedy=remedy)
        elif column.length is not None and column.length < min_length and not json_data:
            what = f"column {column.name} of the signal table is too narrow"
            reason = f"it holds {column.length} characters, but watermarks need {min_length}"
            yield ConfigError(what, where=where, why=reason, remedy=remedy)
    for column in columns[3:]:
        if column.required:
            what = f"column {column.name} of the signal table has no default"
            yield ConfigError(
                what,
                where=where,
                why="watermarks are inserted with values for id, type and data only",
                remedy="give it a default, or make it nullable",
            )


def _write_problems(facts: SignalTableFacts, cfg: ConnectorConfig, table: TableId, where: str) -> Iterator[ConfigError]:
    read_only = f"or use GTID sets as watermarks, which writes nothing: {F.READ_ONLY.name}=true"
    if facts.variables.get("super_read_only", "OFF").upper() in ("ON", "1"):
        yield ConfigError(
            "watermarks cannot be written: the server is read-only",
            where=where,
            why="super_read_only is ON",
            remedy=f"connect to the primary, {read_only}",
        )
    deletes_rows = cfg[F.INCREMENTAL_SNAPSHOT_WATERMARKING_STRATEGY] is WatermarkStrategy.INSERT_DELETE
    for name in ("INSERT", "DELETE") if deletes_rows else ("INSERT",):
        if (why := (facts.denied_statements or {}).get(name)) is not None:
            privileges = "INSERT, DELETE and SELECT" if deletes_rows else "INSERT"
            yield ConfigError(
                f"the account may not {name} in the signal table",
                where=where,
                why=f"watermarks are written with this statement; the server reports: {why}",
                remedy=f"GRANT {privileges.replace(' and', ',')} ON {table.quoted()} TO {facts.account}; {read_only}",
            )
    options, left_out = facts.binlog_lists.shown("binlog"), facts.binlog_lists.leaves_out_database(table.db)
    if left_out == YES:
        yield ConfigError(
            "the signal table is not written to the binlog",
            where=where,
            why=f"the server was started with {options}, which excludes database {table.db}, so signals and watermarks "
            "are not seen",
            remedy="move the signal table to a database that is logged, or change the option and restart the server",
        )
    elif left_out == EITHER and not facts.is_logged:
        yield ConfigError(
            "it cannot be told whether the signal table is written to the binlog",
            where=where,
            why=unclear_options(options),
            remedy="insert a row into the signal table and run the task again, which then finds it in the binlog; if "
            "it fails as before, move the signal table, or give the option once for each database and restart the "
            "server",
        )
    if facts.variables.get("binlog_order_commits", "ON").upper() not in ("ON", "1"):
        yield ConfigError(
            "ad-hoc snapshots need binlog_order_commits=ON",
            where=where,
            why="it is OFF; a transaction that precedes a watermark in the binlog can then become visible after it, "
            "and a snapshot would miss it",
            remedy="SET PERSIST binlog_order_commits = ON (the default)",
        )


def _read_only_problems(facts: SignalTableFacts) -> Iterator[ConfigError]:
    where = f"{F.READ_ONLY.name}=true"
    mode = facts.variables.get("gtid_mode", "OFF")
    if mode.upper() != "ON":
        yield ConfigError(
            "GTIDs are off",
            where=where,
            why=f"without a signal table only the executed GTID set shows what a snapshot read; gtid_mode is {mode}",
            remedy="set gtid_mode and enforce_gtid_consistency to ON, or configure a signal table and remove read.only",
        )
    for name in ("replica", "slave"):  # 8.0.26 introduced the first name, 8.4 removed the second
        workers = facts.variables.get(f"{name}_parallel_workers", "0")
        order = facts.variables.get(f"{name}_preserve_commit_order")
        if order is None:
            continue
        if int(workers) > 0 and order.upper() not in ("ON", "1"):
            yield ConfigError(
                f"{name}_preserve_commit_order is OFF",
                where=where,
                why=f"{name}_parallel_workers is {workers}: the replica then commits in another order than its source, "
                "and its executed GTID set does not show what a snapshot has read",
                remedy=f"SET PERSIST {name}_preserve_commit_order = ON, or {name}_parallel_workers = 0",
            )
        return
