"""How to reach a MySQL server."""

from __future__ import annotations

from dataclasses import dataclass, field

from airflow_provider_mysql_cdc.cdc.model.secret import Secret


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Describe one MySQL connection.

    Args:
        host: Host name or address.
        port: TCP port.
        user: Account.
        password: Its password; empty for none.
        ssl_mode: ``disabled``, ``preferred``, ``required``, ``verify_ca`` or ``verify_identity``.
        ssl_ca: PEM file with the trusted authorities, or None for the system's.
        ssl_cert: PEM file with the client certificate, or None.
        ssl_key: PEM file with the client's key, or None when it stands in ``ssl_cert``.
        ssl_key_password: Password of the client's key, or None.
        connect_timeout_s: Longest wait for the connection, the login included, in seconds; ``silence_timeout_s`` limits
            it too.
        query_timeout_s: Longest wait for a statement's answer, in seconds; 0 for no limit.
        silence_timeout_s: Silence in seconds after which the server is asked, on another connection, whether it still
            works at the statement.
        client_name: ``topic.prefix``, by which replication clients of different streams are distinguished.
        driver_options: Further keyword arguments of ``pymysql.connect`` as (name, value) pairs.
        server_uuid: server_uuid of the one server that may answer; None for any.
    """

    host: str
    port: int = 3306
    user: str = ""
    password: Secret = field(default_factory=lambda: Secret(""))
    ssl_mode: str = "preferred"
    ssl_ca: str | None = None
    ssl_cert: str | None = None
    ssl_key: str | None = None
    ssl_key_password: Secret | None = None
    connect_timeout_s: float = 30.0
    query_timeout_s: float = 600.0
    silence_timeout_s: float = 60.0
    client_name: str = ""
    driver_options: tuple[tuple[str, str | int], ...] = ()
    server_uuid: str | None = None

    def address(self) -> str:
        """Return ``host:port`` for messages."""
        return f"{self.host}:{self.port}"
