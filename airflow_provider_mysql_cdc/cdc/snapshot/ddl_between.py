"""Statements about tables between two places of the binlog."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.event_parsers import parse_query
from airflow_provider_mysql_cdc.cdc.binlog.stream import open_stream
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.classify import classify
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext
from airflow_provider_mysql_cdc.cdc.errors import DdlParseError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, file_number, order
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.snapshot.table_lineage import Place, TableLives, effects


@dataclass(frozen=True, slots=True)
class Between:
    """Hold one statement of the binlog.

    Args:
        sql: Its text.
        context: Its session.
        place: Where it ends: file number and position.
        where: ``file:position`` of its beginning.
    """

    sql: str
    context: DdlContext
    place: Place
    where: str


def statements(cfg: ConnectorConfig, start: BinlogOffset, end: BinlogOffset, names_in: int = 0) -> Iterator[Between]:
    """Yield the statements between two transaction boundaries.

    Args:
        cfg: The connector's configuration.
        start: Where to begin.
        end: Where to end.
        names_in: The server's lower_case_table_names.

    Raises:
        SourceError: The binlog cannot be read there.
    """
    if order(end, start) <= 0:
        return
    stream = open_stream(cfg.connection_settings(), start, server_id=cfg.server_id(0))
    try:
        for event in stream.events(end):
            if event.type == c.QUERY_EVENT:
                query = parse_query(event)
                context = DdlContext.from_query(query, lower_case_table_names=names_in)
                place = file_number(event.file), event.end_pos
                yield Between(query.sql, context, place, f"{event.file}:{event.start_pos}")
    finally:
        stream.close()


def follow(
    lives: TableLives, found: Iterator[Between], captures: Callable[[TableId], bool], unread: Callable[[Between], Any]
) -> TableLives:
    """Follow tables through statements.

    Args:
        lives: The tables at the beginning; they are changed.
        found: The statements.
        captures: Which tables matter.
        unread: Called with a statement that can change one of them and is not understood.
    """
    for statement in found:
        try:
            for effect in effects(statement.sql, statement.context):
                lives.apply(effect, statement.place, f"{statement.where}: {statement.sql[:200]}")
        except DdlParseError:
            if classify(statement.sql, statement.context, captures).relevant:
                unread(statement)
    return lives


def born_unseen(
    cfg: ConnectorConfig, listed: list[TableId], start: BinlogOffset, end: BinlogOffset, names_in: int
) -> list[str]:
    """Return the captured tables that came into being after the list of tables was read, and what was not understood.

    Args:
        cfg: The connector's configuration.
        listed: The list; its tables were held since their definitions were read.
        start: A position from before the list was read.
        end: The position of the view.
        names_in: The server's lower_case_table_names.
    """
    unread: list[str] = []
    found = statements(cfg, start, end, names_in)
    lives = follow(TableLives.of(listed), found, cfg.captures, lambda s: unread.append(f"{s.where}: {s.sql[:200]}"))
    known = set(listed)
    return [str(t) for t in lives.present if cfg.captures(t) and t not in known] + unread
