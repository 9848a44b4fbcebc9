"""The table that one CREATE TABLE statement makes."""

from __future__ import annotations

from airflow_provider_mysql_cdc.cdc.ddl.alter_table import create_structure
from airflow_provider_mysql_cdc.cdc.ddl.classify import full_name
from airflow_provider_mysql_cdc.cdc.ddl.parse import parse_statement, split_statements
from airflow_provider_mysql_cdc.cdc.ddl.state import SERVER_DEFAULTS, DdlContext, DefaultCharset
from airflow_provider_mysql_cdc.cdc.ddl.statements import CreateTable
from airflow_provider_mysql_cdc.cdc.errors import DdlParseError
from airflow_provider_mysql_cdc.cdc.model.table import Table


def parse_create(sql: str, context: DdlContext, defaults: DefaultCharset | None = None) -> Table:
    """Return the table that one CREATE TABLE statement makes, for example the output of SHOW CREATE TABLE.

    That output is escaped with backslashes whatever the session's sql_mode is, and spells out what
    explicit_defaults_for_timestamp implies: leave NO_BACKSLASH_ESCAPES out and keep explicit defaults on for it.

    Args:
        sql: The statement.
        context: Session context; a name without database belongs to ``default_db``.
        defaults: Character set of the database; utf8mb4 when None.

    Raises:
        DdlParseError: It is no CREATE TABLE with a column list, or is not understood.
    """
    parts = split_statements(sql, context.sql_mode)
    statement = parse_statement(sql, parts[0][1], context.sql_mode) if len(parts) == 1 else None
    if not isinstance(statement, CreateTable) or statement.like is not None:
        raise DdlParseError("not a CREATE TABLE statement with a column list", where=sql[:80])
    return create_structure(statement, full_name(statement.name, context), defaults or SERVER_DEFAULTS, context)[0]
