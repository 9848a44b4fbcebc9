"""How to reach a schema registry, what to ask of it, and what it calls a schema."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_mysql_cdc.cdc.model.secret import Secret
from airflow_provider_mysql_cdc.cdc.model.stored_record import Record


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
