"""Replication clients that the server lists in SHOW REPLICAS."""

from __future__ import annotations

from typing import Any, NamedTuple

from airflow_provider_mysql_cdc.cdc.binlog.connect import fetch_dicts
from airflow_provider_mysql_cdc.cdc.binlog.dump import client_uuid, report_host
from airflow_provider_mysql_cdc.cdc.errors import SourceError

# 8.0.22 brought the first form; 8.4 removed the second.
_REPLICA_STATEMENTS = (
    ("SHOW REPLICAS", "Server_Id", "Replica_UUID"),
    ("SHOW SLAVE HOSTS", "Server_id", "Slave_UUID"),
)


class RegisteredClient(NamedTuple):
    """A replication client that SHOW REPLICAS lists.

    Args:
        server_id: Its id.
        host: The host that it reports.
        uuid: Its UUID; empty for a client without one.
    """

    server_id: int
    host: str
    uuid: str = ""


def registered_clients(conn: Any) -> tuple[RegisteredClient, ...]:
    """Return the clients that the server lists; those that read without registering, as Debezium's does, are not.

    Args:
        conn: An open connection whose account has REPLICATION SLAVE.

    Raises:
        SourceError: The query fails.
    """
    for statement, id_column, uuid_column in _REPLICA_STATEMENTS:
        try:
            return tuple(
                RegisteredClient(int(row[id_column]), str(row["Host"]), str(row.get(uuid_column) or ""))
                for row in fetch_dicts(conn, statement)
            )
        except SourceError as error:
            if "error 1064" not in error.why:
                raise
    return ()


def is_own_client(client: RegisteredClient, client_name: str) -> bool:
    """Return whether a client is an earlier run of this stream.

    Args:
        client: The client.
        client_name: ``topic.prefix``.
    """
    return client.host == report_host(client_name) and client.uuid == client_uuid(client_name, client.server_id)
