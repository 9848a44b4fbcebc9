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
_CHARACTERS = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext")
LEAST = {"id": 42, "type": 21, "data": 128}
"""Characters that each column must hold: a UUID and ``-close``, ``snapshot-window-close``, and a small JSON object."""
# As Debezium's manual has it, with room for longer lists of tables.
_COLUMNS = "(id VARCHAR(42) NOT NULL PRIMARY KEY, type VARCHAR(32) NOT NULL, data MEDIUMTEXT NULL)"


@dataclass(frozen=True, slots=True)
class ColumnFact:
    """Describe a column of the signal table.

    Args:
        name: Its name.
        type: Its type, without length.
        length: Characters that it holds, or None.
        needed: Whether an INSERT that does not name it is refused.
    """

    name: str
    type: str
    length: int | None
    needed: bool = False


@dataclass(frozen=True, slots=True)
class TableFacts:
    """Hold what the server says about the signal table and what watermarks rest on.

    Args:
        variables: Global variables by name; those a version does not have are absent.
        columns: The table's columns; none when there is no such table, or the account may not see it.
        do_db: Databases that alone are written to the binlog; none for all.
        ignore_db: Databases that are not.
        refused: The server's words by statement that the account may not run: INSERT, DELETE.
    """

    variables: Mapping[str, str]
    columns: Sequence[ColumnFact] = ()
    do_db: frozenset[str] = frozenset()
    ignore_db: frozenset[str] = frozenset()
    refused: Mapping[str, str] | None = None


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
    facts = read_facts(conn, cfg)
    if table is not None and not cfg[F.READ_ONLY] and not facts.columns and cfg[F.SIGNAL_DATA_COLLECTION_CREATE]:
        create(conn, table)
        log(f"signal table {table} is created")
        facts = read_facts(conn, cfg)
    for problem in problems(facts, cfg):
        raise problem


def unfit(conn: Any, cfg: ConnectorConfig) -> str | None:
    """Return why no watermarks can be taken, for whoever asked for a snapshot; None when they can.

    Args:
        conn: An open connection of the configured account.
        cfg: The connector's configuration.

    Raises:
        SourceError: The server cannot be asked.
    """
    facts = read_facts(conn, cfg)
    table = cfg[F.SIGNAL_DATA_COLLECTION]
    found = next(_read_only(facts) if table is None else problems(facts, cfg), None)
    if found is None:
        return None
    reason = f"{found.what}: {found.why}; what to do: {found.remedy}"
    return reason if table is not None or cfg[F.READ_ONLY] else f"there is no signal table, and {reason}"


def create(conn: Any, table: TableId) -> None:
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
            cursor.execute(f"CREATE TABLE IF NOT EXISTS {table.quoted()} {_COLUMNS} DEFAULT CHARSET utf8mb4")
    except (pymysql.MySQLError, OSError) as error:
        cause = from_exception(error, str(table))
        if isinstance(cause, SourceConnectionError):
            raise cause from error
        raise ConfigError(
            "the signal table cannot be created",
            where=f"{F.SIGNAL_DATA_COLLECTION.name}={table}",
            why=cause.why,
            remedy=f"grant CREATE on it, and make sure that its database exists; or create it: {statement(table)}",
        ) from error


def statement(table: TableId) -> str:
    """Return the statement that creates a signal table."""
    return f"CREATE TABLE {table.quoted()} {_COLUMNS}"


def read_facts(conn: Any, cfg: ConnectorConfig) -> TableFacts:
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
        return TableFacts(variables)
    rows = fetch_all(
        conn,
        "SELECT c.column_name, c.data_type, c.character_maximum_length, c.is_nullable, c.column_default, c.extra "
        "FROM information_schema.columns c JOIN information_schema.tables t USING (table_schema, table_name) "
        "WHERE c.table_schema = %s AND c.table_name = %s AND t.table_type = 'BASE TABLE' ORDER BY c.ordinal_position",
        (table.db, table.table),
    )
    columns = [
        ColumnFact(
            str(name),
            str(kind).lower(),
            None if length is None else int(length),
            nullable == "NO" and default is None and not str(extra),
        )
        for name, kind, length, nullable, default, extra in rows
    ]
    status = (binlog_status(conn) or [{}])[0]
    return TableFacts(
        variables,
        columns,
        _names(status.get("Binlog_Do_DB")),
        _names(status.get("Binlog_Ignore_DB")),
        _refused(conn, table, columns) if len(columns) >= 3 and not cfg[F.READ_ONLY] else {},
    )


def _names(text: object) -> frozenset[str]:
    return frozenset(name for name in str(text or "").split(",") if name)


def _refused(conn: Any, table: TableId, columns: Sequence[ColumnFact]) -> dict[str, str]:
    """Return what the server says to statements that the account may not run; EXPLAIN needs their privileges."""
    names = ", ".join("`" + column.name.replace("`", "``") + "`" for column in columns[:3])
    statements = {
        "INSERT": f"EXPLAIN INSERT INTO {table.quoted()} ({names}) VALUES ('', '', '')",
        "DELETE": f"EXPLAIN DELETE FROM {table.quoted()} WHERE {names.partition(', ')[0]} = ''",
    }
    found = {}
    for name, sql in statements.items():
        try:
            with conn.cursor() as cursor:
                cursor.execute(sql)
                cursor.fetchall()
        except (pymysql.MySQLError, OSError) as error:
            cause = from_exception(error, str(table))
            if isinstance(cause, SourceConnectionError):
                raise cause from error
            found[name] = cause.why
    return found


def problems(facts: TableFacts, cfg: ConnectorConfig) -> Iterator[ConfigError]:
    """Yield what keeps signals and watermarks from working.

    Args:
        facts: What the server says.
        cfg: The connector's configuration.
    """
    if cfg[F.READ_ONLY]:
        yield from _read_only(facts)
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
            remedy=f"create it: {statement(table)}; or let it be created: {F.SIGNAL_DATA_COLLECTION_CREATE.name}=true; "
            "or grant INSERT on it to the account",
        )
        return
    yield from _shape(facts.columns, table, where)
    yield from _writable(facts, cfg, table, where)


def _shape(columns: Sequence[ColumnFact], table: TableId, where: str) -> Iterator[ConfigError]:
    why = "the first three columns hold id, type and data of signals and watermarks, whatever their names"
    remedy = f"create it anew: {statement(table)}"
    if len(columns) < 3:
        yield ConfigError(f"the signal table has {len(columns)} columns", where=where, why=why, remedy=remedy)
    for column, (part, least) in zip(columns, LEAST.items(), strict=False):
        json_data = part == "data" and column.type == "json"
        if column.type not in _CHARACTERS and not json_data:
            what = f"column {column.name} of the signal table is no column of characters"
            yield ConfigError(what, where=where, why=f"it is {column.type.upper()}; {why}", remedy=remedy)
        elif column.length is not None and column.length < least and not json_data:
            what = f"column {column.name} of the signal table is too narrow"
            held = f"it holds {column.length} characters, and watermarks need {least}"
            yield ConfigError(what, where=where, why=held, remedy=remedy)
    for column in columns[3:]:
        if column.needed:
            what = f"column {column.name} of the signal table has no default"
            yield ConfigError(
                what,
                where=where,
                why="watermarks are inserted with id, type and data alone",
                remedy="give it a default, or let it be NULL",
            )


def _writable(facts: TableFacts, cfg: ConnectorConfig, table: TableId, where: str) -> Iterator[ConfigError]:
    read_only = f"or take watermarks from GTIDs, without writing: {F.READ_ONLY.name}=true"
    if facts.variables.get("super_read_only", "OFF").upper() in ("ON", "1"):
        yield ConfigError(
            "watermarks cannot be written: the server is read-only",
            where=where,
            why="super_read_only is ON",
            remedy=f"connect to the primary, {read_only}",
        )
    deletes = cfg[F.INCREMENTAL_SNAPSHOT_WATERMARKING_STRATEGY] is WatermarkStrategy.INSERT_DELETE
    for name in ("INSERT", "DELETE") if deletes else ("INSERT",):
        if (why := (facts.refused or {}).get(name)) is not None:
            needed = "INSERT, DELETE and SELECT" if deletes else "INSERT"
            yield ConfigError(
                f"the account may not {name} in the signal table",
                where=where,
                why=f"watermarks are written with it; the server says: {why}",
                remedy=f"GRANT {needed.replace(' and', ',')} ON {table.quoted()} TO the account, {read_only}",
            )
    if table.db in facts.ignore_db or (facts.do_db and table.db not in facts.do_db):
        option = "binlog_ignore_db" if table.db in facts.ignore_db else "binlog_do_db"
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


def _read_only(facts: TableFacts) -> Iterator[ConfigError]:
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
