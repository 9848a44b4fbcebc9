"""How to reach a MySQL server and a schema registry, with secrets that are not shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from airflow_provider_mysql_cdc.cdc.model.stored_record import Record


class Secret:
    """Hold a secret so that ``repr``, ``str`` and formatting show ``***``.

    Args:
        value: The secret text.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the secret text; call it only where it goes over the wire or into a 0600 file."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(***)"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(("Secret", self._value))

    def __bool__(self) -> bool:
        return bool(self._value)


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


@dataclass(frozen=True, slots=True)
class SchemaId(Record):
    """Identify a schema in its registry.

    Args:
        number: Its id.
        guid: Its GUID as text; None where none was asked for.
    """

    number: int
    guid: str | None = None


@dataclass(frozen=True, slots=True)
class OAuthClient:
    """Describe who asks a token server for tokens.

    Args:
        issuer: Address at which it gives tokens.
        id: The client's id.
        secret: The client's secret.
        scope: Scope of the tokens.
    """

    issuer: str
    id: str
    secret: Secret
    scope: str


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """Describe the registry of keys or of values.

    Args:
        url: Its addresses, comma-separated, without an account.
        user_info: ``user:password``, or None.
        token: A bearer token, or None.
        cluster: Logical cluster beside a token (Confluent Cloud).
        pool: Identity pool beside a token, or None.
        oauth: Who asks for tokens, or None.
        ssl_ca: PEM file with the trusted authorities, or None for those that certifi brings.
        ssl_cert: PEM file with the client certificate, or None.
        ssl_key: PEM file with the client's key, or None when it stands in ``ssl_cert``.
        ssl_key_password: Password of the client's key, or None.
        timeout_s: Longest wait for an answer, in seconds.
        retries: How often a request is sent again when the registry cannot be reached or fails.
        retry_wait_ms: Longest wait before the first of them; it doubles.
        retry_max_wait_ms: Longest wait before one of them.
        register: Whether schemas are registered; otherwise they have to be there.
        use_latest: Whether the subject's latest schema is taken instead, which must be the same to a reader.
        normalize: Whether the registry is to put schemas into its normal form.
        guids_for: Property that asks for GUIDs of schemas; empty where their ids are enough.
    """

    url: str
    user_info: Secret | None = None
    token: Secret | None = None
    cluster: str = ""
    pool: str | None = None
    oauth: OAuthClient | None = None
    ssl_ca: str | None = None
    ssl_cert: str | None = None
    ssl_key: str | None = None
    ssl_key_password: Secret | None = None
    timeout_s: float = 10.0
    retries: int = 3
    retry_wait_ms: int = 1000
    retry_max_wait_ms: int = 20_000
    register: bool = True
    use_latest: bool = False
    normalize: bool = False
    guids_for: str = ""

    def max_request_s(self) -> float:
        """Return the longest time in seconds that one request takes, with all that is tried again."""
        backoff_s = sum(min(self.retry_wait_ms << n, self.retry_max_wait_ms) for n in range(self.retries)) / 1000
        requests = len(self.url.split(",")) + (self.oauth is not None)
        return requests * (self.timeout_s * (self.retries + 1) + backoff_s)


class MySqlConnection(Protocol):
    """An open connection to a MySQL server, of which no more is used than this."""

    def cursor(self) -> Any:
        """Return a cursor, which is a context manager."""

    def thread_id(self) -> int:
        """Return the server's number of the connection."""

    def rollback(self) -> None:
        """End the transaction."""

    def close(self) -> None:
        """Close the connection."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc_info: object) -> None: ...
