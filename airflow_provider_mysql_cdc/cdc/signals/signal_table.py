"""The signal table before a run: is it there, wide enough, written to the binlog, and may the account write into it?

Watermarks are rows of it, or GTID sets with ``read.only``; what they rest on is checked here too (INC-34 to INC-39).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pymysql

from airflow_provider_mysql_cdc.cdc.binlog.connect import fetch_all
from airflow_provider_mysql_cdc.cdc.binlog.position import binlog_status
from airflow_provider_mysql_cdc.cdc.binlog.server_errors import from_exception
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.enums import WatermarkStrategy
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, SourceConnectionError
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.table import TableId

_VARIABLES = (
    "binlog_order_commits", "gtid_mode", "replica_parallel_workers", "slave_parallel_workers",
    "replica_preserve_commit_order", "slave_preserve_commit_order", "super_read_only",
)  # fmt: skip
_TEXT_TYPES = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext")
MIN_LENGTHS = {"id": 42, "type": 21, "data": 128}
"""Characters that each column must hold: a UUID and ``-close``, ``snapshot-window-close``, and a small JSON object."""
# As Debezium's manual has it, with room for longer lists of tables.
_COLUMN_DEFINITIONS = "(id VARCHAR(42) NOT NULL PRIMARY KEY, type VARCHAR(32) NOT NULL, data MEDIUMTEXT NULL)"


@dataclass(frozen=True, slots=True)
class SignalTableColumn:
    """Describe a column of the signal table.

    Args:
        name: Its name.
        type: Its type, without length.
        length: Characters that it holds, or None.
        required: Whether an INSERT that does not name it is refused.
    """

    name: str
    type: str
    length: int | None
    required: bool = False


@dataclass(frozen=True, slots=True)
class SignalTableFacts:
    """Hold what the server says about the signal table and what watermarks rest on.

    Args:
        variables: Global variables by name; those a version does not have are absent.
        columns: The table's columns; none when there is no such table, or the account may not see it.
        binlog_do_db: Databases that alone are written to the binlog; none for all.
        binlog_ignore_db: Databases that are not.
        denied_statements: The server's words by statement that the account may not run: INSERT, DELETE.
    """

    variables: Mapping[str, str]
    columns: Sequence[SignalTableColumn] = ()
    binlog_do_db: frozenset[str] = frozenset()
    binlog_ignore_db: frozenset[str] = frozenset()
    denied_statements: Mapping[str, str] | None = None


def require_watermarks(conn: Any, cfg: ConnectorConfig, log: Log) -> None:
    """Check what signals of the table, and watermarks, need; create the table where that is allowed.

    Args:
        conn: An open connection of the configured account.
        cfg: The connector's configuration.
        log: Takes one line of text.

    Raises:
        ConfigError: Something keeps them from working.
        SourceError: The server cannot be asked.
    """
    table = cfg[F.SIGNAL_DATA_COLLECTION]
    if table is None and not cfg[F.READ_ONLY]:
        return
    facts = read_table_facts(conn, cfg)
    if table is not None and not cfg[F.READ_ONLY] and not facts.columns and cfg[F.SIGNAL_DATA_COLLECTION_CREATE]:
        create_signal_table(conn, table)
        log(f"signal table {table} is created")
        facts = read_table_facts(conn, cfg)
    for problem in signal_table_problems(facts, cfg):
        raise problem


def watermark_obstacle(conn: Any, cfg: ConnectorConfig) -> str | None:
    """Return why no watermarks can be taken, for whoever asked for a snapshot; None when they can.

    Args:
        conn: An open connection of the configured account.
        cfg: The connector's configuration.

    Raises:
        SourceError: The server cannot be asked.
    """
    facts = read_table_facts(conn, cfg)
    table = cfg[F.SIGNAL_DATA_COLLECTION]
    problem = next(_read_only_problems(facts) if table is None else signal_table_problems(facts, cfg), None)
    if problem is None:
        return None
    reason = f"{problem.what}: {problem.why}; what to do: {problem.remedy}"
    return reason if table is not None or cfg[F.READ_ONLY] else f"there is no signal table, and {reason}"


def create_signal_table(conn: Any, table: TableId) -> None:
    """Create the signal table.

    Args:
        conn: An open connection.
        table: Its name.

    Raises:
        ConfigError: The server refuses.
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
            remedy=f"grant CREATE on it, and make sure that its database exists; or create it: "
            f"{create_statement(table)}",
        ) from error


def create_statement(table: TableId) -> str:
    """Return the statement that creates a signal table."""
    return f"CREATE TABLE {table.quoted()} {_COLUMN_DEFINITIONS}"


def read_table_facts(conn: Any, cfg: ConnectorConfig) -> SignalTableFacts:
    """Ask the server.

    Args:
        conn: An open connection.
        cfg: The connector's configuration.

    Raises:
        SourceError: It cannot be asked.
    """
    names = ", ".join(f"'{name}'" for name in _VARIABLES)
    variables = dict(fetch_all(conn, f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})"))
    table = cfg[F.SIGNAL_DATA_COLLECTION]
    if table is None:
        return SignalTableFacts(variables)
    rows = fetch_all(
        conn,
        "SELECT c.column_name, c.data_type, c.character_maximum_length, c.is_nullable, c.column_default, c.extra "
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
        for name, kind, length, nullable, default, extra in rows
    ]
    status = (binlog_status(conn) or [{}])[0]
    return SignalTableFacts(
        variables,
        columns,
        _split_names(status.get("Binlog_Do_DB")),
        _split_names(status.get("Binlog_Ignore_DB")),
        _denied_statements(conn, table, columns) if len(columns) >= 3 and not cfg[F.READ_ONLY] else {},
    )


def _split_names(text: object) -> frozenset[str]:
    return frozenset(name for name in str(text or "").split(",") if name)


def _denied_statements(conn: Any, table: TableId, columns: Sequence[SignalTableColumn]) -> dict[str, str]:
    """Return what the server says to statements that the account may not run; EXPLAIN needs their privileges."""
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
    """Yield what keeps signals and watermarks from working.

    Args:
        facts: What the server says.
        cfg: The connector's configuration.
    """
    if cfg[F.READ_ONLY]:
        yield from _read_only_problems(facts)
        return
    table = cfg[F.SIGNAL_DATA_COLLECTION]
    if table is None:
        return
    where = f"{F.SIGNAL_DATA_COLLECTION.name}={table}"
    if not facts.columns:
        yield ConfigError(
            "the signal table does not exist",
            where=where,
            why="the server shows the account no such table; letters count as they are written",
            remedy=f"create it: {create_statement(table)}; or let it be created: "
            f"{F.SIGNAL_DATA_COLLECTION_CREATE.name}=true; "
            "or grant INSERT on it to the account",
        )
        return
    yield from _column_problems(facts.columns, table, where)
    yield from _write_problems(facts, cfg, table, where)


def _column_problems(columns: Sequence[SignalTableColumn], table: TableId, where: str) -> Iterator[ConfigError]:
    why = "the first three columns hold id, type and data of signals and watermarks, whatever their names"
    remedy = f"create it anew: {create_statement(table)}"
    if len(columns) < 3:
        yield ConfigError(f"the signal table has {len(columns)} columns", where=where, why=why, remedy=remedy)
    for column, (purpose, min_length) in zip(columns, MIN_LENGTHS.items(), strict=False):
        json_data = purpose == "data" and column.type == "json"
        if column.type not in _TEXT_TYPES and not json_data:
            what = f"column {column.name} of the signal table is no column of characters"
            yield ConfigError(what, where=where, why=f"it is {column.type.upper()}; {why}", remedy=remedy)
        elif column.length is not None and column.length < min_length and not json_data:
            what = f"column {column.name} of the signal table is too narrow"
            reason = f"it holds {column.length} characters, and watermarks need {min_length}"
            yield ConfigError(what, where=where, why=reason, remedy=remedy)
    for column in columns[3:]:
        if column.required:
            what = f"column {column.name} of the signal table has no default"
            yield ConfigError(
                what,
                where=where,
                why="watermarks are inserted with id, type and data alone",
                remedy="give it a default, or let it be NULL",
            )


def _write_problems(facts: SignalTableFacts, cfg: ConnectorConfig, table: TableId, where: str) -> Iterator[ConfigError]:
    read_only = f"or take watermarks from GTIDs, without writing: {F.READ_ONLY.name}=true"
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
                why=f"watermarks are written with it; the server says: {why}",
                remedy=f"GRANT {privileges.replace(' and', ',')} ON {table.quoted()} TO the account, {read_only}",
            )
    if table.db in facts.binlog_ignore_db or (facts.binlog_do_db and table.db not in facts.binlog_do_db):
        option = "binlog_ignore_db" if table.db in facts.binlog_ignore_db else "binlog_do_db"
        yield ConfigError(
            "the signal table is not written to the binlog",
            where=where,
            why=f"the server's option {option} leaves database {table.db} out, so no signal and no watermark is seen",
            remedy="put the signal table into a database that is logged, or change the option and restart the server",
        )
    if facts.variables.get("binlog_order_commits", "ON").upper() not in ("ON", "1"):
        yield ConfigError(
            "binlog_order_commits is OFF",
            where=where,
            why="transactions that stand before a watermark in the binlog can then become visible behind it, and a "
            "snapshot would miss them",
            remedy="SET PERSIST binlog_order_commits = ON (the default)",
        )


def _read_only_problems(facts: SignalTableFacts) -> Iterator[ConfigError]:
    where = f"{F.READ_ONLY.name}=true"
    mode = facts.variables.get("gtid_mode", "OFF")
    if mode.upper() != "ON":
        yield ConfigError(
            "GTIDs are off",
            where=where,
            why=f"without writing, the executed GTID set alone tells what a snapshot has seen; gtid_mode is {mode}",
            remedy="set gtid_mode and enforce_gtid_consistency to ON, or give a signal table and remove read.only",
        )
    for name in ("replica", "slave"):  # 8.0.26 brought the first form, 8.4 removed the second
        workers = facts.variables.get(f"{name}_parallel_workers", "0")
        order = facts.variables.get(f"{name}_preserve_commit_order")
        if order is None:
            continue
        if int(workers) > 0 and order.upper() not in ("ON", "1"):
            yield ConfigError(
                f"{name}_preserve_commit_order is OFF",
                where=where,
                why=f"{name}_parallel_workers is {workers}: a replica then commits in another order than its source, "
                "and its executed GTID set tells nothing of what a snapshot has seen",
                remedy=f"SET PERSIST {name}_preserve_commit_order = ON, or {name}_parallel_workers = 0",
            )
        return
