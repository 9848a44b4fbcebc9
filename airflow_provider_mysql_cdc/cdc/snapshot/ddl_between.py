"""Statements that concern tables between two positions of the binlog."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.event_parsers import parse_query
from airflow_provider_mysql_cdc.cdc.binlog.scan import BinlogScan
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.classify import classify_ddl
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext
from airflow_provider_mysql_cdc.cdc.errors import DdlParseError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, compare_offsets
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.snapshot.table_lineage import names_after, statement_effects


@dataclass(frozen=True, slots=True)
class LoggedStatement:
    """Hold one statement of the binlog.

    Args:
        sql: Its text.
        context: Its session settings.
        where: ``file:position`` of its start.
    """

    sql: str
    context: DdlContext
    where: str


def statements_between(
    cfg: ConnectorConfig, start: BinlogOffset, end: BinlogOffset, lower_case_table_names: int, server_id: int
) -> Iterator[LoggedStatement]:
    """Yield the statements between two transaction boundaries.

    Args:
        cfg: The connector's configuration.
        start: The first position.
        end: The last position.
        lower_case_table_names: The server's lower_case_table_names.
        server_id: Id to read with; one of the stream's ends the dump of a writer that lives.

    Raises:
        SourceError: The binlog cannot be read.
    """
    if compare_offsets(end, start) <= 0:
        return
    for event in BinlogScan(cfg.connection_settings(), start, end, server_id):
        if event.type == c.QUERY_EVENT:
            query = parse_query(event)
            context = DdlContext.from_query(query, lower_case_table_names=lower_case_table_names)
            yield LoggedStatement(query.sql, context, f"{event.file}:{event.start_pos}")


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
    names, unparsed = frozenset(listed), list[str]()
    for statement in statements_between(cfg, start, end, lower_case_table_names, cfg.server_id(0)):
        try:
            names = names_after(names, statement_effects(statement.sql, statement.context))
        except DdlParseError:
            if classify_ddl(statement.sql, statement.context, cfg.captures).relevant:
                unparsed.append(f"{statement.where}: {statement.sql[:200]}")
    return sorted(str(table) for table in names.difference(listed) if cfg.captures(table)) + unparsed
