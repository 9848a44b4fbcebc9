"""Statements that concern tables between two positions of the binlog."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.event_parsers import parse_query
from airflow_provider_mysql_cdc.cdc.binlog.stream import open_stream
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.classify import classify_ddl
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext
from airflow_provider_mysql_cdc.cdc.errors import DdlParseError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, compare_offsets, file_number
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.snapshot.table_lineage import FilePosition, TableLineages, statement_effects


@dataclass(frozen=True, slots=True)
class LoggedStatement:
    """Hold one statement of the binlog.

    Args:
        sql: Its text.
        context: Its session settings.
        end_position: File number and position of its end.
        where: ``file:position`` of its start.
    """

    sql: str
    context: DdlContext
    end_position: FilePosition
    where: str


def statements_between(
    cfg: ConnectorConfig, start: BinlogOffset, end: BinlogOffset, lower_case_table_names: int = 0
) -> Iterator[LoggedStatement]:
    """Yield the statements between two transaction boundaries.

    Args:
        cfg: The connector's configuration.
        start: The first position.
        end: The last position.
        lower_case_table_names: The server's lower_case_table_names.

    Raises:
        SourceError: The binlog cannot be read.
    """
    if compare_offsets(end, start) <= 0:
        return
    stream = open_stream(cfg.connection_settings(), start, server_id=cfg.server_id(0))
    try:
        for event in stream.events(end):
            if event.type == c.QUERY_EVENT:
                query = parse_query(event)
                context = DdlContext.from_query(query, lower_case_table_names=lower_case_table_names)
                end_position = file_number(event.file), event.end_pos
                yield LoggedStatement(query.sql, context, end_position, f"{event.file}:{event.start_pos}")
    finally:
        stream.close()


def follow_tables(
    lineages: TableLineages,
    logged_statements: Iterator[LoggedStatement],
    captures: Callable[[TableId], bool],
    on_unparsed: Callable[[LoggedStatement], Any],
) -> TableLineages:
    """Follow tables through statements.

    Args:
        lineages: The tables at the start; updated in place.
        logged_statements: The statements.
        captures: Returns whether a table is captured.
        on_unparsed: Called with a statement that may concern a captured table and cannot be parsed.
    """
    for statement in logged_statements:
        try:
            for effect in statement_effects(statement.sql, statement.context):
                lineages.apply(effect, statement.end_position, f"{statement.where}: {statement.sql[:200]}")
        except DdlParseError:
            if classify_ddl(statement.sql, statement.context, captures).relevant:
                on_unparsed(statement)
    return lineages


def tables_created_since(
    cfg: ConnectorConfig, listed: list[TableId], start: BinlogOffset, end: BinlogOffset, lower_case_table_names: int
) -> list[str]:
    """Return the captured tables that were created after the list of tables was read, and statements not parsed.

    Args:
        cfg: The connector's configuration.
        listed: The list; its tables are protected from DDL since their definitions were read.
        start: A position before the list was read.
        end: The position of the view.
        lower_case_table_names: The server's lower_case_table_names.
    """
    unparsed: list[str] = []
    logged_statements = statements_between(cfg, start, end, lower_case_table_names)
    lineages = follow_tables(
        TableLineages.of(listed),
        logged_statements,
        cfg.captures,
        lambda s: unparsed.append(f"{s.where}: {s.sql[:200]}"),
    )
    listed_tables = set(listed)
    return [str(t) for t in lineages.by_name if cfg.captures(t) and t not in listed_tables] + unparsed
