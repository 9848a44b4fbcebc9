"""Look into the binlog for rows of databases: they show that the server logs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.connect import ConnectionSettings
from airflow_provider_mysql_cdc.cdc.binlog.dump import FILE_START, UNREGISTERED_SERVER_ID
from airflow_provider_mysql_cdc.cdc.binlog.position import binary_logs, current_offset
from airflow_provider_mysql_cdc.cdc.binlog.stream import open_stream
from airflow_provider_mysql_cdc.cdc.binlog.table_map import parse_table_map
from airflow_provider_mysql_cdc.cdc.binlog.unused_rows import no_rows

SEARCHED_MB = 256
"""Most of the binlog that is read, which takes some seconds."""


def logged_databases(conn: Any, settings: ConnectionSettings, is_enough: Callable[[set[str]], bool]) -> set[str]:
    """Return the databases of which rows were logged since the server was started, as far as its binlog is searched.

    The options that leave databases out do not change while a server runs. The newest file is read first.

    Args:
        conn: An open connection.
        settings: How to reach the same server.
        is_enough: Says of those that were found whether the search is over.

    Raises:
        SourceError: The binlog cannot be read.
    """
    until, found, remaining = current_offset(conn), set[str](), SEARCHED_MB << 20
    for name, size in reversed(binary_logs(conn)):
        start = until.with_position(name, FILE_START)
        with open_stream(settings, start, server_id=UNREGISTERED_SERVER_ID) as stream:
            for event in stream.events(until, unused=no_rows):
                if event.type == c.TABLE_MAP_EVENT and (database := parse_table_map(event).db) not in found:
                    found.add(database)
                    if is_enough(found):
                        return found
                if event.end_pos > remaining:
                    return found
            if stream.begun_by_start:
                break
        until, remaining = start, remaining - size
    return found
