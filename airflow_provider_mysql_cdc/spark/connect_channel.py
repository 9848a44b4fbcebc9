"""The address of a Spark Connect server, and the gRPC channel to it."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from airflow_provider_mysql_cdc.cdc.errors import ConfigError

DEFAULT_PORT = 15002
_MAX_MESSAGE = 128 * 1024 * 1024
# As pyspark's client: a connection that has died in silence ends within 80 s.
_OPTIONS = (
    ("grpc.max_send_message_length", _MAX_MESSAGE),
    ("grpc.max_receive_message_length", _MAX_MESSAGE),
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
)
_OF_THE_CLIENT = re.compile(r"(token|use_ssl|user_id|user_agent|session_id)$|grpc_keepalive_")
"""Parameters that are no headers of the calls."""


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Hold an address ``sc://host:port/;name=value;...``, whose token is not in its text.

    Args:
        host: Name or address; an IPv6 address in brackets.
        port: Its port.
        parameters: The parameters by name.
    """

    host: str
    port: int
    parameters: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, url: str) -> ServerAddress:
        """Read an address, as pyspark's client does.

        Args:
            url: The address.

        Raises:
            ConfigError: It is none.
        """
        base, _, rest = url.partition(";")
        parts = urlsplit(base)
        pairs = [tuple(part.split("=")) for part in rest.split(";") if part]
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme != "sc" or not parts.hostname or parts.path.strip("/") or port == -1:
            raise _no_address("an address is sc://host:port")
        if any(len(pair) != 2 for pair in pairs):
            raise _no_address("a parameter is name=value, with other letters as %XX")
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        return cls(host, port or DEFAULT_PORT, {name: unquote(value) for name, value in pairs})

    @property
    def user(self) -> str:
        """Return the user whose session it is; Spark's own variable or the process's user without one."""
        return self.parameters.get("user_id") or os.environ.get("SPARK_USER") or os.environ.get("USER") or ""

    @property
    def session(self) -> str | None:
        """Return the id of the session that the address names; None without one.

        Raises:
            ConfigError: It is no UUID, which the server requires.
        """
        if (id_ := self.parameters.get("session_id")) is None:
            return None
        try:
            return str(uuid.UUID(id_))
        except ValueError:
            raise _no_address("session_id is not a UUID") from None

    def headers(self) -> tuple[tuple[str, str], ...]:
        """Return the headers of each call: all other parameters."""
        return tuple((name, value) for name, value in self.parameters.items() if not _OF_THE_CLIENT.match(name))

    def channel(self, grpc: Any) -> Any:
        """Return a channel; a token goes through TLS, or does not leave this host.

        Args:
            grpc: The module of gRPC.
        """
        target, token = str(self), self.parameters.get("token")
        use_ssl = self.parameters.get("use_ssl", "").lower() == "true"
        if not use_ssl and token is None:
            return grpc.insecure_channel(target, options=_OPTIONS)
        local = not use_ssl and self.host == "localhost"
        credentials = grpc.local_channel_credentials() if local else grpc.ssl_channel_credentials()
        if token is not None:
            credentials = grpc.composite_channel_credentials(credentials, grpc.access_token_call_credentials(token))
        return grpc.secure_channel(target, credentials, options=_OPTIONS)


def _no_address(why: str) -> ConfigError:
    return ConfigError(
        "the address of the Spark Connect server cannot be used",
        where="Spark connection",
        why=why,
        remedy="create a connection of type spark_connect with host and port, the token as its password",
    )
