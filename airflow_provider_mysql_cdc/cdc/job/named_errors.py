"""Convert errors of client libraries into named errors: a job raises nothing but a CdcError."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pymysql

from airflow_provider_mysql_cdc.cdc.binlog.server_errors import from_exception
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig


@contextmanager
def named_errors(cfg: ConnectorConfig) -> Iterator[None]:
    """Convert errors of the MySQL client library into named ones.

    Args:
        cfg: The connector's configuration, for the server's address.

    Raises:
        SourceError: The subclass that fits the server's error code.
    """
    try:
        yield
    except pymysql.MySQLError as error:
        raise from_exception(error, cfg.source_address()) from error
