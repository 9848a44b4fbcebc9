"""Split the tables of a comparison while its tasks hold their views."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pymysql

from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.table import Table
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk
from airflow_provider_mysql_cdc.cdc.snapshot.splitter import split_table

LOCK_WAIT_S = 2
"""Seconds that a statement waits for a table."""
_LOCK_WAIT_TIMEOUT = 1205


def split_tables(conn: Any, tables: Iterable[Table], chunk_rows: int, log: Log) -> list[SnapshotChunk]:
    """Return the chunks of tables; a table for which DDL waits is one chunk.

    DDL waits for the views of the tasks, which wait for their chunks, and later statements wait behind the DDL: without
    a limit all would wait for each other, the writers of the table too. The views themselves can still read the table.

    Args:
        conn: A connection for this alone.
        tables: The tables.
        chunk_rows: Wanted rows of a chunk.
        log: Takes one line of text.
    """
    with conn.cursor() as cursor:
        cursor.execute("SET SESSION lock_wait_timeout = %s", (LOCK_WAIT_S,))
    chunks: list[SnapshotChunk] = []
    for table in tables:
        try:
            chunks += split_table(conn, table, chunk_rows)
        except pymysql.err.OperationalError as error:
            if error.args[0] != _LOCK_WAIT_TIMEOUT:
                raise
            log(f"verification: a statement waits for {table.id}, which is therefore read in one piece")
            chunks.append(SnapshotChunk(table.id, 0))
    return chunks
