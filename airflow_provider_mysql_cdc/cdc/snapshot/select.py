"""The SELECT statements that a snapshot reads tables with."""

from __future__ import annotations

from typing import Any

import pymysql

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import (
    column_expression,
    selected_columns,
)
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, SourceConnectionError
from airflow_provider_mysql_cdc.cdc.formats import table_options
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, TableId, folded_name, quote_name
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk, chunk_condition

# Error numbers from here on are those of the client (MySQL error reference).
CLIENT_ERRORS = 2000


def chunk_sql(cfg: ConnectorConfig, conn: Any, table: Table, chunk: SnapshotChunk) -> str:
    """Return the statement whose rows the table's text decoder reads.

    Args:
        cfg: The connector's configuration.
        conn: An open connection, to check a statement override.
        table: The table.
        chunk: The chunk.

    Raises:
        ConfigError: The statement override cannot be used.
    """
    columns = selected_columns(table, table_options.table_options(cfg, table))
    override = override_sql(cfg, conn, table, columns)
    order = table.primary_key if chunk.columns else ()
    return override or rows_sql(table.id, columns, chunk_condition(chunk), order)


def override_sql(cfg: ConnectorConfig, conn: Any, table: Table, columns: tuple[Column, ...]) -> str | None:
    """Return the statement that reads a table by its ``snapshot.select.statement.overrides``; None without one.

    Args:
        cfg: The connector's configuration.
        conn: An open connection, to check the statement.
        table: The table.
        columns: The columns to read.

    Raises:
        ConfigError: The statement cannot be used.
    """
    statement = cfg.select_override(table.id)
    if statement is None:
        return None
    override_names = override_columns(conn, table, statement)
    return f"SELECT {_expressions(table, columns, override_names)} FROM ({statement}\n) AS snapshot_rows"


def rows_sql(table: TableId, columns: tuple[Column, ...], condition: str, order: tuple[str, ...]) -> str:
    """Return a SELECT whose rows a text decoder for these columns reads.

    Args:
        table: The table.
        columns: The columns.
        condition: The WHERE condition.
        order: Columns to sort by.
    """
    selected = ", ".join(map(column_expression, columns))
    sorting = ", ".join(map(quote_name, order))
    return f"SELECT {selected} FROM {table.quoted()} WHERE {condition}" + (f" ORDER BY {sorting}" if sorting else "")


def check_override(cfg: ConnectorConfig, conn: Any, table: Table) -> None:
    """Refuse a statement override that cannot be used, before the snapshot begins.

    Raises:
        ConfigError: The server rejects the statement, or it does not select a NOT NULL column.
    """
    statement = cfg.select_override(table.id)
    if statement is not None:
        columns = selected_columns(table, table_options.table_options(cfg, table))
        _expressions(table, columns, override_columns(conn, table, statement))


def override_columns(conn: Any, table: Table, statement: str) -> frozenset[str]:
    """Return the names of the columns that a statement selects, in lower case.

    Args:
        conn: An open connection.
        table: The table whose rows the statement selects.
        statement: The SELECT.

    Raises:
        ConfigError: The server rejects the statement.
        SourceConnectionError: The connection broke.
    """
    try:
        with conn.cursor() as cursor:
            cursor.execute(f"SELECT * FROM ({statement}\n) AS snapshot_rows LIMIT 0")
            return frozenset(folded_name(d[0]) for d in cursor.description)
    except pymysql.MySQLError as error:
        why = " ".join(map(str, error.args))
        if error.args and isinstance(error.args[0], int) and error.args[0] >= CLIENT_ERRORS:
            raise SourceConnectionError("a snapshot statement could not be checked", why=why) from error
        raise ConfigError(
            f"the snapshot statement for {table.id} cannot be used",
            where=f"{F.SNAPSHOT_SELECT_STATEMENT_OVERRIDES.name}.{table.id}",
            why=why,
            remedy="correct the SELECT: qualify tables with their database, and select each column once"
            + ("; MySQL quotes names as `name`, not as [name]" if "[" in statement else ""),
        ) from error


def _expressions(table: Table, columns: tuple[Column, ...], override_names: frozenset[str]) -> str:
    missing = [c for c in columns if folded_name(c.name) not in override_names]
    if names := [c.name for c in missing if not c.nullable]:
        raise ConfigError(
            f"the snapshot statement for {table.id} does not select NOT NULL columns: {', '.join(names)}",
            where=f"{F.SNAPSHOT_SELECT_STATEMENT_OVERRIDES.name}.{table.id}",
            remedy="add the columns to the SELECT, or exclude them from the events with column.exclude.list",
        )
    return ", ".join("NULL" if c in missing else column_expression(c) for c in columns)
