"""The address of a Spark Connect server, the gRPC channel to it, the client's parts, and named errors.

The parts of pyspark's Spark Connect client that a driver needs, imported without the rest of it.

pyspark's messages, retries, reattaching and artifacts import neither pandas nor numpy, but the packages around them do
(``pyspark.sql.connect``), and with all that a ``DataFrame`` can be asked: 1.6 CPU seconds in place of 0.2 (Spark 4.3).
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
import types
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from airflow_provider_mysql_cdc.cdc.errors import CdcError, ConfigError, StateError

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


_PACKAGES = ("pyspark", "pyspark.sql", "pyspark.sql.connect", "pyspark.sql.connect.client")
"""Packages whose own code is left out."""


@dataclass(frozen=True, slots=True)
class ConnectParts:
    """Hold modules of pyspark and gRPC.

    Args:
        messages: ``pyspark.sql.connect.proto``.
        reattach: ``pyspark.sql.connect.client.reattach``.
        retries: ``pyspark.sql.connect.client.retries``.
        artifact: ``pyspark.sql.connect.client.artifact``.
        grpc: ``grpc``.
        rpc_status: ``grpc_status.rpc_status``.
        error_details: ``google.rpc.error_details_pb2``.
    """

    messages: Any
    reattach: Any
    retries: Any
    artifact: Any
    grpc: Any
    rpc_status: Any
    error_details: Any


def load_parts() -> ConnectParts:
    """Import the parts.

    Raises:
        ImportError: A package is missing.
    """
    with _bare_packages():
        names = ("proto", "client.reattach", "client.retries", "client.artifact")
        own = [importlib.import_module(f"pyspark.sql.connect.{name}") for name in names]
    others = ("grpc", "grpc_status.rpc_status", "google.rpc.error_details_pb2")
    return ConnectParts(*own, *(importlib.import_module(name) for name in others))


def import_arrow_alone() -> None:
    """Import pyarrow without numpy, which it uses if it is there; for a process that has no other use for it.

    Raises:
        ImportError: It is missing.
    """
    if "numpy" in sys.modules or "pyarrow" in sys.modules:
        return
    sys.modules["numpy"] = None  # type: ignore[assignment]
    try:
        importlib.import_module("pyarrow")
        return
    except ImportError:  # before 18 pyarrow needs numpy
        pass
    finally:
        del sys.modules["numpy"]
    importlib.import_module("pyarrow")


@contextmanager
def _bare_packages() -> Iterator[None]:
    """Let modules of packages be imported without the packages' own code; whoever imports these later runs it."""
    found = importlib.util.find_spec("pyspark")
    if found is None or not found.submodule_search_locations:
        raise ImportError("No module named 'pyspark'")
    root = Path(next(iter(found.submodule_search_locations)))
    bare = [name for name in _PACKAGES if name not in sys.modules]
    for name in bare:
        package = types.ModuleType(name)
        package.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = package
    try:
        yield
    finally:
        for name in bare:
            del sys.modules[name]


# Source: the error conditions of Spark 4.3 (INVALID_HANDLE, OPERATION_CANCELED, RETRIES_EXCEEDED ...) and the names of
# gRPC's status codes.
_REFUSED = re.compile(r"UNAUTHENTICATED|PERMISSION_DENIED|Invalid authentication token|SSL_ERROR\w*")
_SESSION_LOST = re.compile(r"INVALID_HANDLE\.\w+|RESPONSE_ALREADY_RECEIVED|SESSION_\w+")
_CLOSED, _UNKNOWN = "INVALID_HANDLE.SESSION_CLOSED", "INVALID_HANDLE.SESSION_NOT_FOUND"
_CANCELED = re.compile(r"OPERATION_CANCELED|OPERATION_ABANDONED|CANCELLED")
_SERVER_LOST = re.compile(
    r"RETRIES_EXCEEDED|UNAVAILABLE|DEADLINE_EXCEEDED|failed to connect to all addresses|Socket closed"
    r"|Cannot call methods on a stopped SparkContext|because SparkContext was shut down|DNS resolution failed"
)
_TOO_LARGE = re.compile(r"^RESOURCE_EXHAUSTED: ")
_ANOTHER_SERVER = re.compile(r"^UNIMPLEMENTED: ")
_CONTINUES = "a retry continues after the last commit, and tasks that still run are fenced"
_OWN_END = f"check that the server runs and that nobody has ended its session; {_CONTINUES}"
_ADDRESS = f"host, port and use_ssl of the Spark connection; {_CONTINUES}"
_LOST = (
    (_SESSION_LOST, "the session at the Spark Connect server has ended", _OWN_END),
    (_CANCELED, "the Spark Connect server has cancelled this job", _OWN_END),
    (_SERVER_LOST, "the Spark Connect server cannot be reached", f"check that the server runs, and {_ADDRESS}"),
    (
        _TOO_LARGE,
        "the Spark Connect server or a proxy in front of it does not take a message of this size, or so many",
        "start the server with a larger spark.connect.grpc.maxInboundMessageSize, or raise the limit of the proxy; "
        + _CONTINUES,
    ),
    (_ANOTHER_SERVER, "what answers at this address is not a Spark Connect server", f"check {_ADDRESS}"),
)
"""What the text of an error has, what it means, and the remedy; a retry can help each."""
_LINE_CHARS = 300


def connect_error(error: BaseException, server: str) -> CdcError | None:
    """Return the named error when a call failed because of the server, the session or the connection.

    Args:
        error: The exception of pyspark's client.
        server: Host and port, for the message.
    """
    text = _text(error)
    where = f"Spark Connect server {server}"
    why = " ".join(str(error).split("JVM stacktrace")[0].split())[:_LINE_CHARS]
    if _REFUSED.search(text):
        return ConfigError(
            "the Spark Connect server refuses the client",
            where=where,
            why=why,
            remedy="check token, user and use_ssl of the Spark connection",
        )
    for pattern, what, remedy in _LOST:
        if pattern.search(text):
            return StateError(what, where=where, why=why, remedy=remedy, retriable=True)
    return None


def is_session_lost(error: BaseException) -> bool:
    """Return whether a call failed because the server has ended the session.

    Args:
        error: The exception of pyspark's client.
    """
    return _SESSION_LOST.search(_text(error)) is not None


def is_closed(error: BaseException) -> bool:
    """Return whether a call failed because its session has ended for good: the server refuses to open it again.

    Args:
        error: The exception of pyspark's client.
    """
    return _CLOSED in _text(error)


def is_unknown_session(error: BaseException) -> bool:
    """Return whether a call that opens no session failed because there is none with this id.

    Args:
        error: The exception of pyspark's client.
    """
    return _UNKNOWN in _text(error)


def _text(error: BaseException) -> str:
    return f"{error} {getattr(error, 'grpc_status_code', '')} {_condition(error)}"


def missing_client(error: ImportError) -> ConfigError:
    """Return the error when a package of the client is missing.

    Args:
        error: The exception of the import.
    """
    return ConfigError(
        "a Python package of the Spark Connect client is missing",
        where="Airflow worker",
        why=" ".join(str(error).split())[:_LINE_CHARS],
        remedy="install pyspark-client (Airflow's Spark provider requires it), or pyspark[connect]",
    )


def _condition(error: BaseException) -> str:
    getter = getattr(error, "getCondition", None) or getattr(error, "getErrorClass", None)
    try:
        return str(getter()) if getter is not None else ""
    except Exception:  # an exception that pyspark has built without a condition
        return ""
