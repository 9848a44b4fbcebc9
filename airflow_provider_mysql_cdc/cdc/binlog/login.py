"""The login: what leaves for whom, and what of it may be seen when it fails.

pymysql before 1.2 goes on in clear, without a word, when a server (or a man in the middle, who rewrites the greeting)
does not offer TLS although a context was given; 1.1.1 to 1.1.3 do it too. And every pymysql sends the password itself
when a server asks for it (``mysql_clear_password``, ``dialog``), encrypted connection or not. So both are refused here,
whatever the driver's version.
"""

from __future__ import annotations

import ssl
import time
import traceback
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import pymysql
from pymysql.connections import Connection
from pymysql.constants import CLIENT, CR

from airflow_provider_mysql_cdc.cdc.binlog.server_errors import TLS_ERROR
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, SourceSettingError
from airflow_provider_mysql_cdc.cdc.model.connection import Secret

_LAST_READ_S = 0.01  # 0 would mean not to wait at all, also for what has arrived
_MARIADB = "MariaDB"
ENCRYPTED_MODES = frozenset({"required", "verify_ca", "verify_identity"})


def _refuse_cleartext_password(connection: Any) -> None:
    """Refuse to send the password itself unless the connection is encrypted or stays on this machine.

    pymysql takes an authentication plugin without a handler for one that it knows itself, so None lets it go on.
    """
    if not connection._secure:
        raise pymysql.OperationalError(
            CR.CR_AUTH_PLUGIN_ERR, "the server asks for the password in clear over a connection that is not encrypted"
        )


_CLEARTEXT_PLUGINS: Mapping[str, Callable[[Any], None]] = MappingProxyType(
    {"mysql_clear_password": _refuse_cleartext_password, "dialog": _refuse_cleartext_password}
)


_BaseConnection: Any = Connection  # its type stubs lack what is overridden here


class SecureConnection(_BaseConnection):  # type: ignore[misc]
    """Be a pymysql connection that keeps what its TLS mode promises, and whose login ends in time.

    Args:
        require_tls: Whether the connection must be encrypted.
        arguments: Those of ``pymysql.connect``. ``connect_timeout`` also limits the login: the driver's own limits hold
            for each read of it anew.
    """

    _login_deadline_s: float | None = None

    def __init__(self, *, require_tls: bool, **arguments: Any) -> None:
        self._require_tls = require_tls
        super().__init__(auth_plugin_map=dict(_CLEARTEXT_PLUGINS), **arguments)

    def connect(self, sock: Any = None) -> None:
        """Connect and log in within ``connect_timeout``, the host's other addresses not counted."""
        self._login_deadline_s = time.monotonic() + self.connect_timeout
        super().connect(sock)
        self._login_deadline_s = None

    def set_character_set(self, charset: str, collation: str | None = None) -> None:
        """Leave it to the first statement of ``prepare_session`` at the login, which has named the character set,
        too.
        """
        if self._login_deadline_s is None:
            super().set_character_set(charset, collation)

    def _read_bytes(self, num_bytes: int) -> bytes:
        if self._login_deadline_s is not None:
            # pymysql before 1.2 sets the limit at each read, later versions where it changes.
            self._read_timeout = max(self._login_deadline_s - time.monotonic(), _LAST_READ_S)
            self._sock.settimeout(self._read_timeout)
        data: bytes = super()._read_bytes(num_bytes)
        return data

    def _get_server_information(self) -> None:
        """Read the greeting; nothing has been sent when it does not offer TLS, or is that of another server."""
        super()._get_server_information()
        if is_mariadb(str(self.server_version)):
            raise mariadb_error(f"{self.host}:{self.port}", str(self.server_version))
        if self._require_tls and not self.server_capabilities & CLIENT.SSL:
            raise pymysql.OperationalError(TLS_ERROR, "the server, or a proxy in between, offers no TLS")

    def _request_authentication(self) -> None:
        """Log in; no statement has been sent when the connection turns out to be plain."""
        super()._request_authentication()
        if self._require_tls and not isinstance(self._sock, ssl.SSLSocket):
            raise pymysql.OperationalError(TLS_ERROR, "the driver left the connection without encryption")


def is_mariadb(version: str) -> bool:
    """Return whether a server's version is one of MariaDB.

    Args:
        version: As the server reports it: ``5.5.5-10.11.19-MariaDB-log`` in its greeting.
    """
    return _MARIADB in version


def mariadb_error(address: str, version: str) -> SourceSettingError:
    """Return the error for a server that is MariaDB (ADR 0022).

    Args:
        address: ``host:port``.
        version: Its version, as it reports it.
    """
    return SourceSettingError(
        "the server is MariaDB, which cannot be captured",
        where=address,
        why=f"it reports the version {version}; its GTIDs, event types and DDL are others than MySQL's",
        remedy="connect to a MySQL server (5.7 or later)",
    )


def password_bytes(password: Secret) -> bytes:
    """Return a password as it goes over the wire: UTF-8, as MySQL's own clients send it.

    pymysql itself would encode a str as ISO 8859-1. Bytes of the environment that are no UTF-8 come back as they were
    (PEP 383).

    Raises:
        ConfigError: It holds half a character.
    """
    try:
        return password.reveal().encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        pass  # this error holds the password, and must not hang on the other one as its context
    raise ConfigError(
        "the password is not text",
        where="database.password",
        why="it holds half of a character outside the basic plane (a lone surrogate)",
        remedy="write it again, in UTF-8",
    )


def clear_frame_locals(error: BaseException) -> None:
    """Clear the local variables of the frames behind an error, some of which hold the password.

    Tracebacks are shown with local variables by some log handlers and error trackers.
    """
    visited: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        exception = pending.pop()
        if exception is not None and id(exception) not in visited:
            visited.add(id(exception))
            traceback.clear_frames(exception.__traceback__)
            pending += [exception.__cause__, exception.__context__, getattr(exception, "original_exception", None)]
