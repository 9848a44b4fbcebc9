"""Connections to the source server."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any, TypeVar

import pymysql

from airflow_provider_mysql_cdc.cdc.binlog.server_errors import TLS_ERROR, from_exception
from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.model.connection import ConnectionSettings

__all__ = ["ConnectionSettings", "connect", "fetch_all", "fetch_named"]

T = TypeVar("T")

PROGRAM = "airflow-provider-mysql-cdc"


def connect(settings: ConnectionSettings, *, replication: bool = False) -> Any:
    """Open a connection.

    Args:
        settings: How to reach the server; ``cfg.connection_settings()`` of a ``ConnectorConfig`` returns it.
        replication: For a binlog dump: the answer may take any time, so there is no limit on reading.

    Returns:
        A pymysql connection: autocommit, utf8mb4, usable as a context manager that closes it.

    Raises:
        SourceAuthError: Account or password refused.
        SourceConnectionError: The server cannot be reached, or not encrypted although that was asked for (FAULT-21).
        ConfigError: A certificate file cannot be read, or the driver lacks an option or a package.
    """
    try:
        conn = _open(settings, _tls_context(settings), _arguments(settings))
    except (pymysql.MySQLError, OSError) as error:
        raise from_exception(error, settings.address()) from error
    except RuntimeError as error:
        # caching_sha2_password without TLS needs RSA, which pymysql leaves to the package cryptography.
        raise ConfigError(
            "the MySQL driver cannot do this account's authentication",
            where=settings.address(),
            why=str(error),
            remedy="install the package cryptography, or set database.ssl.mode=required",
        ) from error
    except TypeError as error:
        raise ConfigError(
            "the MySQL driver does not know an option",
            where="database.*",
            why=str(error),
            remedy="remove the property; options of pymysql.connect are passed on",
        ) from error
    # The driver's own connect_timeout ends with the TCP connection; a server that accepts and then says nothing is
    # met by its limit for reading, which is therefore set to the time for statements only now.
    limit = None if replication or settings.query_timeout_s <= 0 else settings.query_timeout_s
    conn._read_timeout = conn._write_timeout = limit
    return conn


def _open(settings: ConnectionSettings, context: ssl.SSLContext | None, arguments: dict[str, Any]) -> Any:
    if context is None:
        return pymysql.connect(ssl_disabled=True, **arguments)
    try:
        return pymysql.connect(ssl=context, **arguments)
    except pymysql.MySQLError as error:
        if settings.ssl_mode != "preferred" or error.args[0] != TLS_ERROR:
            raise
    # STRM-36: preferred falls back to plain when the server offers no encryption.
    return pymysql.connect(ssl_disabled=True, **arguments)


def _arguments(settings: ConnectionSettings) -> dict[str, Any]:
    limit = settings.connect_timeout_s or 30.0
    return {
        "host": settings.host,
        "port": settings.port,
        "user": settings.user,
        "password": settings.password.reveal(),
        "charset": "utf8mb4",
        "autocommit": True,
        "connect_timeout": limit,
        "read_timeout": limit,
        "write_timeout": limit,
        "program_name": PROGRAM,
        **dict(settings.driver_options),
    }


def _tls_context(settings: ConnectionSettings) -> ssl.SSLContext | None:
    """Return the TLS context of an ssl.mode (STRM-36), or None for no encryption."""
    mode = settings.ssl_mode
    if mode == "disabled":
        return None
    try:
        context = ssl.create_default_context(cafile=settings.ssl_ca)
        # The certificates MySQL makes for itself lack extensions that strict checking (Python 3.13) asks for.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.check_hostname = mode == "verify_identity"
        context.verify_mode = ssl.CERT_REQUIRED if mode in ("verify_ca", "verify_identity") else ssl.CERT_NONE
        if settings.ssl_cert:
            key_password = settings.ssl_key_password
            context.load_cert_chain(
                settings.ssl_cert, settings.ssl_key, key_password.reveal() if key_password else None
            )
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            "a certificate or key cannot be used",
            where="database.ssl.*",
            why=str(error),
            remedy="check that the PEM files exist on this machine and that key and certificate belong together",
        ) from error
    return context


def fetch_all(conn: Any, sql: str, args: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Run a statement and return all its rows.

    Raises:
        SourceError: The leaf that fits the server's message.
    """
    return _run(conn, sql, args, lambda cursor: list(cursor.fetchall()))


def fetch_named(conn: Any, sql: str, args: tuple[Any, ...] = ()) -> list[dict[str, Any]]:
    """Run a statement and return its rows by column name; SHOW statements gain columns from version to version.

    Raises:
        SourceError: The leaf that fits the server's message.
    """

    def rows(cursor: Any) -> list[dict[str, Any]]:
        names = [column[0] for column in cursor.description]
        # SHOW SLAVE HOSTS of 8.0.15 ends the row of a client without a UUID one column early.
        return [dict(zip(names, row, strict=False)) for row in cursor.fetchall()]

    return _run(conn, sql, args, rows)


def _run(conn: Any, sql: str, args: tuple[Any, ...], read: Callable[[Any], T]) -> T:
    try:
        with conn.cursor() as cursor:
            cursor.execute(sql, args or None)
            return read(cursor)
    except (pymysql.MySQLError, OSError) as error:
        raise from_exception(error, getattr(conn, "host_info", "") or "MySQL") from error
