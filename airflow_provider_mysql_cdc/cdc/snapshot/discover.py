"""Find the tables to snapshot and read their definitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.model.table import TableId, quote_name


@dataclass(frozen=True, slots=True)
class Definitions:
    """Hold the source's own statements.

    Args:
        server_charset: ``@@character_set_server``.
        server_collation: ``@@collation_server``.
        databases: Database -> its SHOW CREATE DATABASE statement.
        tables: Table -> its SHOW CREATE TABLE statement, in the order of the snapshot.
        sql_mode: ``@@sql_mode`` as names, for the parser.
        lower_case_table_names: The server variable.
    """

    server_charset: str
    server_collation: str
    databases: dict[str, str]
    tables: dict[TableId, str]
    sql_mode: str
    lower_case_table_names: int


def captured_tables(conn: Any, cfg: ConnectorConfig) -> list[TableId]:
    """Return the captured base tables, ordered by database and name.

    Args:
        conn: An open connection to the source.
        cfg: The connector's configuration with its include and exclude lists.
    """
    with conn.cursor() as cursor:
        cursor.execute(
            "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE' "
            "ORDER BY table_schema, table_name"
        )
        found = [TableId(db, name) for db, name in cursor.fetchall()]
    return [t for t in found if cfg.captures(t)]


def guard(conn: Any, tables: list[TableId]) -> None:
    """Hold off ALTER TABLE and its kin for these tables until the connection's transaction ends.

    A transaction that has read a table holds a metadata lock on it (MySQL manual, "Metadata Locking"), and FLUSH TABLES
    WITH READ LOCK does not wait for such locks. So definitions can be read before the global lock instead of under it.
    """
    with conn.cursor() as cursor:
        cursor.execute("START TRANSACTION READ ONLY")
        for table in tables:
            cursor.execute(f"SELECT 1 FROM {table.quoted()} LIMIT 0")


def read_definitions(conn: Any, cfg: ConnectorConfig, tables: list[TableId]) -> Definitions:
    """Read the CREATE statements of the tables and of their databases.

    Args:
        conn: The guard's connection.
        cfg: The connector's configuration.
        tables: The tables.
    """
    with conn.cursor() as cursor:
        cursor.execute(
            "SELECT @@character_set_server, @@collation_server, @@session.sql_mode, @@lower_case_table_names"
        )
        charset, collation, sql_mode, lower = cursor.fetchone()
        databases, creates = {}, {}
        for db in dict.fromkeys(t.db for t in tables):
            cursor.execute(f"SHOW CREATE DATABASE {quote_name(db)}")
            databases[db] = str(cursor.fetchone()[1])
        for table in tables:
            cursor.execute(f"SHOW CREATE TABLE {table.quoted()}")
            creates[table] = str(cursor.fetchone()[1])
    return Definitions(charset, collation, databases, creates, sql_mode, int(lower))
