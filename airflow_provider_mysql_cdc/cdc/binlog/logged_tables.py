"""Look into the binlog for rows of tables: they show what a server does not leave out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.connect import ConnectionSettings
from airflow_provider_mysql_cdc.cdc.binlog.dump import FILE_START
from airflow_provider_mysql_cdc.cdc.binlog.event import Event
from airflow_provider_mysql_cdc.cdc.binlog.event_parsers import parse_gtid
from airflow_provider_mysql_cdc.cdc.binlog.position import binary_logs, current_offset
from airflow_provider_mysql_cdc.cdc.binlog.scan import BinlogScan
from airflow_provider_mysql_cdc.cdc.binlog.table_map import parse_table_map
from airflow_provider_mysql_cdc.cdc.model.gtid import gtid_source
from airflow_provider_mysql_cdc.cdc.model.table import TableId

SEARCHED_MB = 256
"""Most of the binlog that is read, which takes some seconds."""


def read_logged_tables(
    conn: Any, settings: ConnectionSettings, is_enough: Callable[[TableId], bool], source_uuid: str | None = None
) -> None:
    """Look for tables of which rows were logged since the server was started, as far as its binlog is searched.

    The options that leave tables out do not change while a server runs. The newest file is read first.

    Args:
        conn: An open connection.
        settings: How to reach the same server.
        is_enough: Takes each table once, and says whether the search is over.
        source_uuid: server_uuid of the server whose transactions count; None for all.

    Raises:
        SourceError: The binlog cannot be read.
    """
    until, found, remaining = current_offset(conn), set[TableId](), SEARCHED_MB << 20
    for name, size in reversed(binary_logs(conn)):
        start, counts = until.with_position(name, FILE_START), source_uuid is None
        scan = BinlogScan(settings, start, until)
        for event in scan:
            if source_uuid is not None and event.type in c.GTID_EVENTS:
                counts = gtid_source(parse_gtid(event).gtid or "").lower() == source_uuid.lower()
            elif counts and event.type == c.TABLE_MAP_EVENT and (table := _table_of(event)) not in found:
                found.add(table)
                if is_enough(table):
                    return
            if event.end_pos > remaining:
                return
        if scan.stream.begun_by_start:
            return
        until, remaining = start, remaining - size


def _table_of(event: Event) -> TableId:
    table_map = parse_table_map(event)
    return TableId(table_map.db, table_map.table)
