"""The connection to a replica that verifications read tables from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.connections import find_connection, read_extra

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.config.property_sources import PropertySource


def replica_source(conn_id: str) -> PropertySource:
    """Return the properties that lead to a replica.

    Args:
        conn_id: A connection of type ``mysql_cdc``; of its extra only ``database.ssl.*`` is read.

    Raises:
        ConfigError: It does not exist, is of another type, names no host, or its extra is not a JSON object.
    """
    from airflow_provider_mysql_cdc.cdc.config import fields as F
    from airflow_provider_mysql_cdc.cdc.config import property_sources as sources
    from airflow_provider_mysql_cdc.cdc.config.field import Group
    from airflow_provider_mysql_cdc.cdc.config.property_families import DRIVER_PREFIX, REPLICA_PREFIX

    conn = find_connection(conn_id, "replica", ("mysql_cdc",))
    if not conn.host:
        raise ConfigError(
            "the replica connection names no host",
            where=f"connection {conn_id}",
            remedy="set its host; without a replica, leave replica_conn_id out",
        )
    extra = read_extra(conn, '{"database.ssl.mode": "required"}')
    tls = {f.name: extra.get(f.name) for f in F.ALL if f.group is Group.TLS}
    values = tls | {name: getattr(conn, attribute) for attribute, name in sources.STANDARD_FIELDS.items()}
    named = {
        REPLICA_PREFIX + name.removeprefix(DRIVER_PREFIX): value
        for name, value in values.items()
        if value not in (None, "")
    }
    return sources.PropertySource(f"connection {conn_id}", named, is_private=True, is_replica=True)
