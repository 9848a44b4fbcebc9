"""The replica from which a verification reads the rows of tables, if there is one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import SourceError
from airflow_provider_mysql_cdc.cdc.model.connection import ConnectionSettings


def replica_settings(cfg: ConnectorConfig) -> ConnectionSettings | None:
    """Return how to reach the replica; None where tables are read from the source.

    Args:
        cfg: The connector's configuration.
    """
    host = cfg[F.VERIFY_REPLICA_HOSTNAME]
    if not host:
        return None
    return ConnectionSettings(
        host=host,
        port=cfg[F.VERIFY_REPLICA_PORT],
        user=cfg[F.VERIFY_REPLICA_USER] or "",
        password=cfg[F.VERIFY_REPLICA_PASSWORD],
        ssl_mode=cfg[F.VERIFY_REPLICA_SSL_MODE].value,
        ssl_ca=cfg[F.VERIFY_REPLICA_SSL_CA],
        ssl_cert=cfg[F.VERIFY_REPLICA_SSL_CERT],
        ssl_key=cfg[F.VERIFY_REPLICA_SSL_KEY],
        ssl_key_password=cfg[F.VERIFY_REPLICA_SSL_KEY_PASSWORD],
        connect_timeout_s=cfg[F.CONNECT_TIMEOUT_MS] / 1000,
        query_timeout_s=cfg[F.DATABASE_QUERY_TIMEOUT_MS] / 1000,
        silence_timeout_s=cfg[F.SOURCE_SILENCE_TIMEOUT_MS] / 1000,
        client_name=cfg.topic_prefix,
    )


def connect_replica(settings: ConnectionSettings) -> Any:
    """Open a connection to the replica.

    Args:
        settings: How to reach it.

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
            remedy="check the connection of replica_conn_id (verify.replica.*), or leave it out to read the source",
            retriable=error.can_retry,
        ) from error


@contextlib.contextmanager
def connect_views(cfg: ConnectorConfig) -> Iterator[Any]:
    """Open a connection to the server that tables are read from: the replica, or the source.

    Args:
        cfg: The connector's configuration.

    Raises:
        SourceError: It cannot be reached, or refuses the account.
    """
    settings = replica_settings(cfg)
    with connect(cfg.connection_settings()) if settings is None else connect_replica(settings) as conn:
        yield conn
