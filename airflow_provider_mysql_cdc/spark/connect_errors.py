"""Named errors of a Spark Connect server; its client reports the server's errors and the connection's as text."""

from __future__ import annotations

import re

from airflow_provider_mysql_cdc.cdc.errors import CdcError, ConfigError, StateError

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
