"""The connection to a replica that verifications read tables from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.connections import find_connection, read_extra

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.config.property_sources import PropertySource

_TLS_DEFAULTS = {"mode": "preferred", "ca": "", "cert": "", "key": "", "key.password": ""}
"""Parts of the names ``database.ssl.*`` that the extra may have, with what holds without them."""


def replica_source(conn_id: str) -> PropertySource:
    """Return the properties that lead to a replica; each has a value, so none of another place is mixed in.

    Args:
        conn_id: A connection of type ``mysql_cdc``; of its extra only ``database.ssl.*`` is read.

    Raises:
        ConfigError: It does not exist, is of another type, names no host, or its extra is not a JSON object.
    """
    from airflow_provider_mysql_cdc.cdc.config import fields as F
    from airflow_provider_mysql_cdc.cdc.config import property_sources as sources

    conn = find_connection(conn_id, "replica", ("mysql_cdc",))
    if not conn.host:
        raise ConfigError(
            "the replica connection names no host",
            where=f"connection {conn_id}",
            remedy="set its host; without a replica, leave replica_conn_id out",
        )
    extra = read_extra(conn, '{"database.ssl.mode": "required"}')
    values: dict[str, object] = {
        F.VERIFY_REPLICA_HOSTNAME.name: conn.host,
        F.VERIFY_REPLICA_PORT.name: conn.port or F.VERIFY_REPLICA_PORT.default,
        F.VERIFY_REPLICA_USER.name: conn.login or "",
        F.VERIFY_REPLICA_PASSWORD.name: conn.password or "",
    }
    for part, default in _TLS_DEFAULTS.items():
        values[f"verify.replica.ssl.{part}"] = extra.get(f"database.ssl.{part}") or default
    return sources.PropertySource(f"connection {conn_id}", values, is_private=True)
