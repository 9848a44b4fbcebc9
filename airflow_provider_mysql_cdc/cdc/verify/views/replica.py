"""The replica from which a verification reads the rows of tables, if there is one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import SourceError
from airflow_provider_mysql_cdc.cdc.model.connection import ConnectionSettings


def connect_replica(settings: ConnectionSettings) -> Any:
    """Open a connection to the replica.

    Raises:
        SourceError: It cannot be reached, or refuses the account.
    """
    try:
        return connect(settings)
    except SourceError as error:
        raise type(error)(
            f"the replica of the verification: {error.what}",
            where=error.where or settings.address(),
            why=error.why,
            remedy="check the connection that replica_conn_id names, or leave replica_conn_id out to read the source",
            retriable=error.can_retry,
        ) from error


@contextlib.contextmanager
def connect_views(cfg: ConnectorConfig) -> Iterator[Any]:
    """Open a connection to the server that tables are read from: the replica, or the source.

    Raises:
        SourceError: It cannot be reached, or refuses the account.
    """
    settings = cfg.replica_settings()
    with connect(cfg.connection_settings()) if settings is None else connect_replica(settings) as conn:
        yield conn
