"""Name what the clients' libraries raise: nothing else than a CdcError leaves a job."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pymysql

from airflow_provider_mysql_cdc.cdc.binlog.server_errors import from_exception
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig


@contextmanager
def named_errors(cfg: ConnectorConfig) -> Iterator[None]:
    """Turn errors of the MySQL driver into named ones.

    Args:
        cfg: For the server's address.

    Raises:
        SourceError: The leaf that fits the server's message.
    """
    try:
        yield
    except pymysql.MySQLError as error:
        raise from_exception(error, cfg.connection_settings().address()) from error
