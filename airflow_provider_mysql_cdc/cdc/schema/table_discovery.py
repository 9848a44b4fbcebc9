"""Find the tables to snapshot and read their definitions."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import pymysql

from airflow_provider_mysql_cdc.cdc.binlog.connect import fetch_all
from airflow_provider_mysql_cdc.cdc.binlog.grants import read_account
from airflow_provider_mysql_cdc.cdc.binlog.statement_text import with_null
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import SourcePrivilegeError
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.java import java_sort_key
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.table import TableId, quote_name
from airflow_provider_mysql_cdc.cdc.schema.printed_definitions import with_members, with_stored_defaults

MANY_TABLES = 1_000
"""Tables that are not captured, from which on a line says that their structures are read: a second or more."""
NO_SUCH_TABLE = (1146, 1049)  # the table, its database


@dataclass(frozen=True, slots=True)
class TableDefinitions:
    """Hold the source's own CREATE statements.

    Args:
        server_charset: ``@@character_set_server``.
        server_collation: ``@@collation_server``.
        databases: Database -> its CREATE DATABASE statement, also of captured databases without tables.
        tables: Captured table -> its SHOW CREATE TABLE statement, in the order of the snapshot.
        sql_mode: ``@@sql_mode`` as names, for the parser.
        lower_case_table_names: The server variable.
        uncaptured: The statements of tables that are not captured but are in the history.
        default_collation_for_utf8mb4: Id of the collation that SHOW CREATE TABLE leaves out (``utf8mb4_collation``).
    """

    server_charset: str
    server_collation: str
    databases: dict[str, str]
    tables: dict[TableId, str]
    sql_mode: str
    lower_case_table_names: int
    uncaptured: dict[TableId, str] = field(default_factory=dict)
    default_collation_for_utf8mb4: int | None = None


ACCESS_DENIED = (1044, 1142, 1143)
"""ER_DBACCESS_DENIED_ERROR, ER_TABLEACCESS_DENIED_ERROR, ER_COLUMNACCESS_DENIED_ERROR; a table need not exist."""
MAX_SHOWN_NAMES = 5
_LITERAL_NAME = re.compile(r"([\w$-]+)\\?\.([\w$-]+)")
"""An entry without any sign of a regular expression but the dot between database and table."""


UTF8MB4_COLLATION = (
    "SELECT id FROM information_schema.collations WHERE character_set_name = 'utf8mb4' AND is_default = 'Yes'"
)
"""Returns the id of utf8mb4's default collation."""


def utf8mb4_collation(conn: MySqlConnection) -> int:
    """Return the id of utf8mb4's default collation: utf8mb4_0900_ai_ci, in MySQL 5.7 utf8mb4_general_ci.

    Args:
        conn: An open connection to the source.
    """
    return int(fetch_all(conn, UTF8MB4_COLLATION)[0][0])


def table_exists(conn: MySqlConnection, table: TableId) -> bool:
    """Return whether a table exists that the account may see.

    Args:
        conn: An open connection to the source.
        table: Its name.
    """
    sql = "SELECT 1 FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"
    return bool(fetch_all(conn, sql, (table.db, table.table)))


def captured_tables(conn: MySqlConnection, cfg: ConnectorConfig) -> list[TableId]:
    """Return the captured base tables in the order of ``table.include.list``, then of their names (as Debezium).

    Args:
        conn: An open connection to the source.
        cfg: The connector's configuration with its include and exclude lists.
    """
    include_list = cfg[F.TABLE_INCLUDE_LIST]
    return sorted((t for t in base_tables(conn) if cfg.captures(t)), key=lambda t: include_list.first_index(str(t)))


def literal_table(entry: str) -> TableId | None:
    """Return the table that an entry of ``table.include.list`` names; None if it is a regular expression.

    Args:
        entry: The entry.
    """
    match = _LITERAL_NAME.fullmatch(entry.strip())
    return TableId(*match.groups()) if match else None


def require_readable_names(conn: MySqlConnection, cfg: ConnectorConfig, tables: Collection[TableId]) -> None:
    """Refuse names of ``table.include.list`` that the account may not read: the server does not list such tables.

    A name that no table has, and that the account may read, is a table that may be created later.

    Args:
        conn: An open connection to the source.
        cfg: The connector's configuration.
        tables: The captured tables that the account can see.

    Raises:
        SourcePrivilegeError: The account has no SELECT privilege on a table that is named.
    """
    visible = set(map(str, tables))
    texts = cfg.texts.get(F.TABLE_INCLUDE_LIST.name, "").split(",")
    denied: list[TableId] = []
    for table in filter(None, map(literal_table, texts)):
        if str(table) not in visible:
            try:
                with conn.cursor() as cursor:
                    cursor.execute(f"SELECT 1 FROM {table.quoted()} LIMIT 0")
            except pymysql.MySQLError as error:
                if error.args[0] in ACCESS_DENIED:
                    denied.append(table)
    if denied:
        raise SourcePrivilegeError(
            f"the account may not read {len(denied)} table(s) that table.include.list names",
            where=", ".join(map(str, denied[:MAX_SHOWN_NAMES])),
            why="the server lists only tables on which the account has a privilege, so they would be left out",
            remedy=f"{select_grants(conn, denied)} Or take them out of table.include.list",
        )


def select_grants(conn: MySqlConnection, tables: Sequence[TableId]) -> str:
    """Return the statements that let the account read tables; for many tables the first ones.

    Args:
        conn: An open connection to the source.
        tables: The tables.
    """
    account = read_account(conn)
    return " ".join(f"GRANT SELECT ON {table.quoted()} TO {account};" for table in tables[:MAX_SHOWN_NAMES])


def base_tables(conn: MySqlConnection) -> list[TableId]:
    """Return all base tables that the account can see, in the order in which Debezium sorts their names.

    Args:
        conn: An open connection to the source.
    """
    with conn.cursor() as cursor:
        cursor.execute("SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE'")
        return sorted((TableId(db, name) for db, name in cursor.fetchall()), key=lambda t: java_sort_key(str(t)))


def lock_metadata(conn: MySqlConnection, tables: list[TableId], timeout_s: int) -> TableId | None:
    """Block ALTER TABLE and similar statements on these tables until the connection's transaction ends.

    A transaction that has read a table holds a metadata lock on it (MySQL manual, "Metadata Locking"), and FLUSH TABLES
    WITH READ LOCK does not wait for such locks. So definitions can be read before the global lock is taken.

    Args:
        conn: An open connection to the source.
        tables: The tables.
        timeout_s: Seconds to wait for a table that another session has locked; MySQL's own default is a year.

    Returns:
        A table that no longer exists, or None when all are locked.
    """
    with conn.cursor() as cursor:
        cursor.execute("SET SESSION lock_wait_timeout = %s", (timeout_s,))
        cursor.execute("START TRANSACTION READ ONLY")
        for table in tables:
            try:
                cursor.execute(f"SELECT 1 FROM {table.quoted()} LIMIT 0")
            except pymysql.MySQLError as error:
                if error.args[0] not in NO_SUCH_TABLE:
                    raise
                return table
    return None


def read_definitions(
    conn: MySqlConnection, cfg: ConnectorConfig, tables: list[TableId], log: Log = lambda _: None
) -> TableDefinitions:
    """Read the CREATE statements of the tables and of the captured databases, whose character sets new tables inherit.

    Args:
        conn: The connection that holds the snapshot's locks.
        cfg: The connector's configuration.
        tables: The tables.
        log: Receives one line of text if there are so many other tables that reading them takes a while.
    """
    captured = set(tables)
    described = [t for t in base_tables(conn) if cfg.stores_ddl(t) and t not in captured]
    # The signal table may be in a database that has no other table in the history.
    described_databases = {t.db for t in described}
    with conn.cursor() as cursor:
        cursor.execute(
            "SELECT @@character_set_server, @@collation_server, @@session.sql_mode, @@lower_case_table_names"
        )
        charset, collation, sql_mode, lower_case_names = cursor.fetchone()
        databases, create_statements = {}, {}
        for db in dict.fromkeys(t.db for t in tables):
            cursor.execute(f"SHOW CREATE DATABASE {quote_name(db)}")
            databases[db] = str(cursor.fetchone()[1])
        for table in tables:
            create_statements[table] = create_statement(conn, table, log)
        cursor.execute(
            "SELECT schema_name, default_character_set_name, default_collation_name FROM information_schema.schemata "
            "ORDER BY schema_name"
        )
        for db, db_charset, db_collation in cursor.fetchall():
            if cfg.stores_database_ddl(db) or db in described_databases:
                statement = f"CREATE DATABASE {quote_name(db)} CHARSET {db_charset} COLLATE {db_collation}"
                databases.setdefault(db, statement)
    others = [t for t in described if t.db in databases]
    if len(others) >= MANY_TABLES:
        log(_many_tables_line(cfg, others))
    uncaptured = _uncaptured_statements(conn, others)
    return TableDefinitions(
        charset,
        collation,
        databases,
        create_statements,
        sql_mode,
        int(lower_case_names),
        uncaptured,
        utf8mb4_collation(conn),
    )


def read_create_statements(
    conn: MySqlConnection, tables: Collection[TableId], log: Log
) -> tuple[TableDefinitions, list[TableId]]:
    """Read the CREATE statements of some tables, which name their character sets.

    Args:
        conn: An open connection to the source.
        tables: The tables.
        log: Receives one line of text if the members of a column cannot be read.

    Returns:
        The statements, and the tables that the server does not have; a view is none.
    """
    statements: dict[TableId, str] = {}
    missing: list[TableId] = []
    with conn.cursor() as cursor:
        cursor.execute(
            "SELECT @@character_set_server, @@collation_server, @@session.sql_mode, @@lower_case_table_names"
        )
        charset, collation, sql_mode, lower_case_names = cursor.fetchone()
        cursor.execute(
            "SELECT table_schema, table_name FROM information_schema.tables "
            "WHERE table_type <> 'BASE TABLE' AND table_schema IN %s",
            (tuple({table.db for table in tables}),),
        )
        views = {TableId(db, name) for db, name in cursor.fetchall()}
    for table in tables:
        try:
            if table in views:
                missing.append(table)
            else:
                statements[table] = create_statement(conn, table, log)
        except pymysql.MySQLError as error:
            if error.args[0] not in NO_SUCH_TABLE:
                raise
            missing.append(table)
    default = utf8mb4_collation(conn)
    definitions = TableDefinitions(charset, collation, {}, statements, sql_mode, int(lower_case_names), {}, default)
    return definitions, missing


def _many_tables_line(cfg: ConnectorConfig, tables: Collection[TableId]) -> str:
    elsewhere = sum(not cfg.captures_database(table.db) for table in tables)
    return (
        f"the schema history gets the structures of {len(tables):,} tables that are not captured, so that each can "
        f"be captured, copied or renamed later; to leave them out, set {F.STORE_ONLY_CAPTURED_TABLES_DDL.name}=true; "
        f"for the {elsewhere:,} in databases that are not captured "
        f"{F.STORE_ONLY_CAPTURED_DATABASES_DDL.name}=true"
    )


def create_statement(conn: MySqlConnection, table: TableId, log: Log) -> str:
    """Return a table's CREATE TABLE statement, with what SHOW CREATE TABLE leaves out of it.

    Args:
        conn: An open connection to the source.
        table: The table.
        log: Receives one line of text if the members of a column cannot be read.

    Raises:
        pymysql.MySQLError: The table does not exist or may not be read, or the connection broke.
    """
    with conn.cursor() as cursor:
        cursor.execute(f"SHOW CREATE TABLE {table.quoted()}")
        statement = str(cursor.fetchone()[1])
    statement = with_stored_defaults(conn, table, with_null(statement))
    if (completed := with_members(conn, table, statement)) is not None:
        return completed
    log(
        f"{table} has members of ENUM or SET that the server shows as ?, or without some of their hexadecimal digits; "
        "this server cannot be asked for them, so events may have ? or other bytes as well"
    )
    return statement


def _uncaptured_statements(conn: MySqlConnection, tables: list[TableId]) -> dict[TableId, str]:
    """Return the statements of tables that are not locked; one that is dropped or cannot be shown is skipped."""
    statements = {}
    for table in tables:
        with contextlib.suppress(pymysql.MySQLError):
            statements[table] = create_statement(conn, table, lambda _: None)
    return statements
