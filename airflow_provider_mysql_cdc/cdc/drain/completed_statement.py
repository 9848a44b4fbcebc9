"""Complete statements that the server wrote itself by what it left out of them."""

from __future__ import annotations

import pymysql

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.binlog.event_parsers import QueryEvent
from airflow_provider_mysql_cdc.cdc.binlog.server_errors import from_exception
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.classify import classify_ddl
from airflow_provider_mysql_cdc.cdc.ddl.lexer import ANSI_QUOTES
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext
from airflow_provider_mysql_cdc.cdc.errors import DdlParseError
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema.enum_members import has_hidden_members, with_members
from airflow_provider_mysql_cdc.cdc.schema.table_charset import has_no_charset, with_table_charset


def completed_statement(
    cfg: ConnectorConfig, context: DdlContext, query: QueryEvent, timestamp: int, where: str, *, before_8: bool
) -> QueryEvent:
    """Return a statement with the members and the character set that the server could not write or left out.

    Args:
        cfg: The connector's configuration.
        context: The statement's session.
        query: The QUERY event.
        timestamp: Its time in seconds since the epoch.
        where: ``file:position`` for the error.
        before_8: Whether TABLE_MAP events do not tell character sets.

    Raises:
        DdlParseError: The server does not have the members any more, and the table is captured.
    """
    lacks_members = query.written_by_server and has_hidden_members(query.sql)
    lacks_charset = before_8 and query.server_layout and has_no_charset(query.sql)
    if not (lacks_members or lacks_charset):
        return query
    tables = classify_ddl(query.sql, context, cfg.needs_schema)
    if not tables.relevant:
        return query
    table = tables.tables[0]
    if lacks_members:
        query = query._replace(sql=_with_members(cfg, table, query.sql, where))
    return _with_charset(cfg, table, query, timestamp) if lacks_charset else query


def _with_members(cfg: ConnectorConfig, table: TableId, sql: str, where: str) -> str:
    settings = cfg.connection_settings()
    with connect(settings) as conn:
        try:
            completed = with_members(conn, table, sql)
        except pymysql.MySQLError as error:
            raise from_exception(error, settings.address()) from error
    if completed is not None:
        return completed
    raise DdlParseError(
        "the members of a column are not known",
        where=f"{where}: {sql[:500]}",
        why="the server wrote the statement with ? for characters beyond U+FFFF, and cannot be asked for them: the "
        "table has changed since, or the server is MySQL 8.0",
        remedy="move the stream past the statement (mysql_cdc_reset_offset), then take a snapshot of the table",
    )


def _with_charset(cfg: ConnectorConfig, table: TableId, query: QueryEvent, timestamp: int) -> QueryEvent:
    """Return the statement with its table's default character set; as it is where the table has changed since."""
    created = range(timestamp, timestamp + query.exec_time + 2)
    ansi_quotes = bool((query.sql_mode or 0) & ANSI_QUOTES)
    settings = cfg.connection_settings()
    with connect(settings) as conn:
        try:
            sql = with_table_charset(conn, table, query.sql, created, ansi_quotes=ansi_quotes)
        except pymysql.MySQLError as error:
            raise from_exception(error, settings.address()) from error
    return query if sql is None else query._replace(sql=sql)
