"""The bound of time that the server puts to each SELECT of a verification (verify.max.execution.time.ms)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pymysql

from airflow_provider_mysql_cdc.cdc.binlog.connect import fetch_all
from airflow_provider_mysql_cdc.cdc.binlog.server_errors import QUERY_TIMEOUT
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import SourceError


@contextlib.contextmanager
def time_limit(cfg: ConnectorConfig, conn: Any) -> Iterator[None]:
    """Limit each SELECT of a connection, and name the error of one that the server has ended.

    Args:
        cfg: The connector's configuration.
        conn: The connection; no other SELECT runs on it meanwhile.

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
    """Return how many rows one query is to read: half as many as fit into its time where the rows are limited.

    Args:
        cfg: The connector's configuration.
        tasks: Number of tasks, which share the limit of rows.
    """
    rows, limit_ms = cfg[F.SNAPSHOT_CHUNK_ROWS], cfg[F.VERIFY_MAX_EXECUTION_TIME_MS]
    per_second = cfg[F.VERIFY_ROWS_PER_SECOND]
    if not limit_ms or not per_second:
        return rows
    return max(1, min(rows, per_second * limit_ms // (2000 * tasks)))


def _where_of(error: BaseException) -> str:
    where = error.where if isinstance(error, SourceError) else ""
    return f", {where}" if where else ""
