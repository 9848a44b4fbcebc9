"""Kafka Connect's REST interface, at the address of an Airflow connection of type ``http``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_mysql_cdc.connections import find_connection

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.debezium.stopped import ConnectRest


def connect_rest(conn_id: str) -> ConnectRest:
    """Return the interface of a connection: host, schema and port as for Airflow's HTTP hook, login and password.

    Args:
        conn_id: The connection.

    Raises:
        ConfigError: It does not exist, is of another type, or has no address.
    """
    from airflow_provider_mysql_cdc.cdc.debezium.stopped import ConnectRest

    conn = find_connection(conn_id, "Kafka Connect", ("http", "generic"))
    host = conn.host or ""
    address = host if "://" in host else f"{conn.schema or 'http'}://{host}"
    return ConnectRest.at(f"{address}:{conn.port}" if conn.port else address, conn.login or "", conn.password or "")
