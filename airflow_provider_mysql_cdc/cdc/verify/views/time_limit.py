"""Bounds for the statements of a comparison: the time of each SELECT (verify.max.execution.time.ms), and locks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import pymysql

from airflow_provider_mysql_cdc.cdc.binlog.connect import fetch_all
from airflow_provider_mysql_cdc.cdc.binlog.server_errors import QUERY_TIMEOUT
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import SourceError
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.table import Table
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk
from airflow_provider_mysql_cdc.cdc.snapshot.splitter import split_table


@contextlib.contextmanager
def time_limit(cfg: ConnectorConfig, conn: Any) -> Iterator[None]:
    """Limit each SELECT of a connection, and name the error of one that the server has ended.

    Raises:
        SourceError: The server has ended a SELECT.
    """
    limit_ms = cfg[F.VERIFY_MAX_EXECUTION_TIME_MS]
    if not limit_ms:
        yield
        return
    fetch_all(conn, "SET SESSION max_execution_time = %s", (limit_ms,))
    try:
        yield
    except (SourceError, pymysql.MySQLError) as error:
        if not is_time_limit(error):
            raise
        raise SourceError(
            "MySQL ended a query of the verification, because it took longer than it may",
            where=f"{F.VERIFY_MAX_EXECUTION_TIME_MS.name}={limit_ms}" + _where_of(error),
            why="the time counts until the last row is sent, so it includes the waits of "
            f"{F.VERIFY_ROWS_PER_SECOND.name} and those for the task that encodes the rows",
            remedy="run the task again when the server has less to do; or raise "
            f"{F.VERIFY_MAX_EXECUTION_TIME_MS.name}, or lower {F.SNAPSHOT_CHUNK_ROWS.name}, the rows of one query; a "
            "table without a key is read by one query",
            retriable=True,
        ) from error
    finally:
        # The connection may be gone, or its result may be unread after another error.
        with contextlib.suppress(SourceError, pymysql.MySQLError, OSError):
            fetch_all(conn, "SET SESSION max_execution_time = 0")


def is_time_limit(error: BaseException) -> bool:
    """Return whether the server has ended a query because of its time.

    Args:
        error: An error of the client library, or the named error that it caused.
    """
    cause = error if isinstance(error, pymysql.MySQLError) else error.__cause__
    return isinstance(cause, pymysql.MySQLError) and cause.args[:1] == (QUERY_TIMEOUT,)


def rows_per_query(cfg: ConnectorConfig, tasks: int) -> int:
    """Return how many rows one query is to read: half as many as fit into its time where the rows are limited."""
    rows, limit_ms = cfg[F.SNAPSHOT_CHUNK_ROWS], cfg[F.VERIFY_MAX_EXECUTION_TIME_MS]
    per_second = cfg[F.VERIFY_ROWS_PER_SECOND]
    if not limit_ms or not per_second:
        return rows
    return max(1, min(rows, per_second * limit_ms // (2000 * tasks)))


def _where_of(error: BaseException) -> str:
    where = error.where if isinstance(error, SourceError) else ""
    return f", {where}" if where else ""


LOCK_WAIT_S = 2
"""Seconds that a statement waits for a table."""
_LOCK_WAIT_TIMEOUT = 1205


def split_tables(conn: Any, tables: Iterable[Table], chunk_rows: int, log: Log) -> list[SnapshotChunk]:
    """Return the chunks of tables; a table for which DDL waits is one chunk.

    DDL waits for the views of the tasks, which wait for their chunks, and later statements wait behind the DDL: without
    a limit all would wait for each other, the writers of the table too. The views themselves can still read the table.
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
