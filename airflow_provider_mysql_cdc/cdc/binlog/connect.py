"""Connections to the source server, and the session variables of each that runs SQL.

The session variables of every connection that runs SQL: no query depends on the server's defaults.

A server's global values and its ``init_connect`` decide about each new session, so ``sql_select_limit=1000`` or another
time zone would cut tables or shift conditions. All sessions of a job, on the driver and in tasks, are the same.
"""

from __future__ import annotations

import io
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import pymysql

from airflow_provider_mysql_cdc.cdc.binlog.login import (
    ENCRYPTED_MODES,
    SecureConnection,
    clear_frame_locals,
    password_bytes,
)
from airflow_provider_mysql_cdc.cdc.binlog.query_deadline import (
    DeadlineReader,
    connection_lost_reason,
    enable_keepalive,
)
from airflow_provider_mysql_cdc.cdc.binlog.server_errors import TLS_ERROR, from_exception, is_broken_connection
from airflow_provider_mysql_cdc.cdc.errors import (
    CdcError,
    ConfigError,
    ServerChangedError,
    SourceConnectionError,
    SourceError,
    SourceSettingError,
)
from airflow_provider_mysql_cdc.cdc.model.connection import ConnectionSettings, MySqlConnection

_NO_LIMIT = "18446744073709551615"
FIRST_STATEMENT = f"SET NAMES utf8mb4, SESSION sql_select_limit = {_NO_LIMIT}"
"""Before anything is read: the limit holds for SHOW statements too. DEFAULT would take the server's global value."""

SESSION_VARIABLES: Mapping[str, str] = {
    # How many rows, and for how long.
    "sql_select_limit": _NO_LIMIT,
    "max_join_size": _NO_LIMIT,
    "sql_big_selects": "ON",  # after max_join_size, which resets it
    "max_execution_time": "0",
    # What a value looks like, and what a literal means.
    "time_zone": "+00:00",
    "sql_mode": "STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION",
    "character_set_client": "utf8mb4",
    "character_set_connection": "utf8mb4",
    "character_set_results": "utf8mb4",
    "collation_connection": "utf8mb4_general_ci",
    "lc_time_names": "en_US",
    "default_week_format": "0",
    "div_precision_increment": "4",
    "group_concat_max_len": "1048576",
    "max_sort_length": "4096",  # longer than the longest key, 3072 bytes
    # Which rows a transaction sees, and when it ends.
    "transaction_isolation": "REPEATABLE-READ",
    "transaction_read_only": "OFF",
    "autocommit": "ON",
    "completion_type": "NO_CHAIN",
    # Which statements are refused or mean something else.
    "sql_auto_is_null": "OFF",
    "sql_safe_updates": "OFF",
    "sql_log_bin": "ON",
    "resultset_metadata": "FULL",
    # What tables look like.
    "information_schema_stats_expiry": "0",
    "show_create_table_verbosity": "OFF",
    "show_gipk_in_create_table_and_information_schema": "ON",
    "sql_quote_show_create": "ON",
}
"""Each session variable that changes what a query returns, with its value. Source: MySQL 9.7 manual, "Server System
Variables"; a server that does not know one has not the feature."""


def prepare_session(conn: MySqlConnection, where: str) -> str:
    """Set the session variables of a new connection that have another value, in three round trips.

    Returns:
        server_uuid of the server that answers, which costs no round trip here; empty if it has none.

    Args:
        conn: The connection.
        where: The server, for errors.

    Raises:
        SourceSettingError: The account may not set one of them.
        SourceConnectionError: The connection broke.
    """
    try:
        with conn.cursor() as cursor:
            cursor.execute(FIRST_STATEMENT)
            names = ", ".join(f"'{name}'" for name in (*SESSION_VARIABLES, "server_uuid"))
            cursor.execute(f"SHOW SESSION VARIABLES WHERE Variable_name IN ({names})")
            current = {str(name): str(value) for name, value in cursor.fetchall()}
    except (pymysql.MySQLError, OSError) as error:
        raise from_exception(error, where) from error
    # sql_big_selects follows max_join_size.
    different = [
        (name, value)
        for name, value in SESSION_VARIABLES.items()
        if name in current and (current[name] != value or name == "sql_big_selects")
    ]
    try:
        if different:
            _set_variables(conn, different, where)
    except SourceSettingError:
        for pair in different:  # the server sets none of them, and does not always say which one it refuses
            _set_variables(conn, [pair], where)
    return current.get("server_uuid", "")


def _set_variables(conn: MySqlConnection, values: Sequence[tuple[str, str]], where: str) -> None:
    """Set session variables in one statement; the error is about the first of them."""
    texts = (f"{name} = {value if value.isdigit() else repr(value)}" for name, value in values)
    try:
        with conn.cursor() as cursor:
            cursor.execute("SET SESSION " + ", SESSION ".join(texts))
    except (pymysql.MySQLError, OSError) as error:
        name, value = values[0]
        cause = from_exception(error, where)
        if isinstance(cause, SourceConnectionError):
            raise cause from error
        raise SourceSettingError(
            f"the session variable {name} cannot be set to {value}",
            where=where,
            why=cause.why or str(error),
            remedy=f"set the server's global {name} to {value}, take it out of init_connect, or grant the account the "
            "privilege that the server names",
        ) from error


__all__ = ["ConnectionSettings", "answering_server", "connect", "fetch_all", "fetch_dicts"]

T = TypeVar("T")

PROGRAM_NAME = "airflow-provider-mysql-cdc"
_BUFFER_BYTES = 1 << 16
LOGIN_DELAYS_S = (0.1, 0.2, 0.4, 0.8)
"""Seconds before each further try of a login that broke."""


def connect(settings: ConnectionSettings, *, replication: bool = False) -> Any:
    """Open a connection.

    Args:
        settings: How to reach the server; ``cfg.connection_settings()`` of a ``ConnectorConfig`` returns it.
        replication: For a binlog dump, which waits for events by itself once it has begun.

    A login that breaks is tried again, some times and within the time for one: a network that loses packets resets one
    connection and not the next.

    Returns:
        A pymysql connection whose session variables are those of ``prepare_session``, usable as a context manager that
        closes
        it.

    Raises:
        SourceAuthError: Account or password refused.
        SourceConnectionError: The server cannot be reached, is no MySQL server, or does not encrypt although that was
            asked for (FAULT-21); it has got neither account nor password then.
        ConfigError: A certificate file cannot be read, or the driver lacks an option or a package.
        ServerChangedError: Another server answers than the one that ``settings.server_uuid`` names.
    """
    deadline = time.monotonic() + login_seconds(settings)
    for delay_s in LOGIN_DELAYS_S:
        try:
            return _connect_once(settings, replication=replication)
        except SourceError as error:
            if not is_broken_connection(error) or time.monotonic() + delay_s >= deadline:
                raise
        time.sleep(delay_s)
    return _connect_once(settings, replication=replication)


def login_seconds(settings: ConnectionSettings) -> float:
    """Return how long a login may take, in seconds.

    Args:
        settings: How to reach the server.
    """
    return min(settings.connect_timeout_s or 30.0, settings.silence_timeout_s)


def _connect_once(settings: ConnectionSettings, *, replication: bool) -> Any:
    try:
        conn = _open(settings, _tls_context(settings), _driver_arguments(settings))
    except CdcError:
        raise
    except Exception as error:
        clear_frame_locals(error)
        raise _connect_error(error, settings.address()) from error
    _set_timeouts(conn, settings)
    try:
        if not replication:
            _require_server(prepare_session(conn, settings.address()), settings)
        elif settings.server_uuid is not None:
            _require_server(answering_server(conn), settings)
    except BaseException:
        conn.close()
        raise
    return conn


def _open_checked(settings: ConnectionSettings) -> Any:
    conn = _open(settings, _tls_context(settings), _driver_arguments(settings))
    try:
        if settings.server_uuid is not None:
            _require_server(answering_server(conn), settings)
    except BaseException:
        conn.close()
        raise
    return conn


def _require_server(answering: str, settings: ConnectionSettings) -> None:
    """Refuse the answer of another server: an address may lead to several, and move from one to the other."""
    if settings.server_uuid is not None and answering.lower() != settings.server_uuid.lower():
        raise ServerChangedError(
            "another server answers than the one that is read",
            where=settings.address(),
            why=f"server {settings.server_uuid} is read, and server {answering} answers on this connection; positions, "
            "tables and locks of the one mean nothing on the other",
            remedy="run the task again: after a failover it looks for the place of the stream on the server that "
            "answers then. If this comes again without a failover, the address leads to several servers (DNS, a "
            "proxy): let database.hostname lead to one",
            retriable=True,
        )


def _set_timeouts(conn: Any, settings: ConnectionSettings) -> None:
    """Set the deadlines for answers on a connection (``query_deadline``); until here, those of the login hold."""

    def open_another() -> Any:
        return _open_checked(settings)

    def lost_reason() -> str | None:
        return connection_lost_reason(open_another, conn.thread_id())

    reads = DeadlineReader(conn._sock, settings.silence_timeout_s, settings.query_timeout_s, lost_reason)
    # Nothing is lost with the driver's own buffer: the answer to the login has been read to its end.
    conn._rfile = io.BufferedReader(reads, _BUFFER_BYTES)
    conn._read_timeout = conn._write_timeout = settings.silence_timeout_s
    enable_keepalive(conn._sock, settings.silence_timeout_s)


def _connect_error(error: Exception, where: str) -> CdcError:
    """Return the named error of what the driver raises while it connects; it raises anything at a broken server."""
    if isinstance(error, pymysql.MySQLError | OSError):
        return from_exception(error, where)
    why = f"{type(error).__name__}: {error}"
    if isinstance(error, RuntimeError):
        # caching_sha2_password without TLS needs RSA, which pymysql leaves to the package cryptography.
        return ConfigError(
            "the MySQL driver cannot do this account's authentication",
            where=where,
            why=str(error),
            remedy="install the package it names, or set database.ssl.mode=required",
        )
    if isinstance(error, UnicodeError) and not isinstance(error, UnicodeDecodeError):
        return ConfigError(
            "the MySQL driver cannot send the account or find the host",
            where="database.hostname, database.user",
            why=why,
            remedy="correct the property",
        )
    if isinstance(error, TypeError) and "argument" in str(error):
        return ConfigError(
            "the MySQL driver does not know an option",
            where="database.*",
            why=str(error),
            remedy="remove the property; options of pymysql.connect are passed on",
        )
    return SourceConnectionError(
        "the answer is not that of a MySQL server",
        where=where,
        why=why,
        remedy="check that database.hostname and database.port are those of MySQL, and any proxy in between",
    )


def _open(settings: ConnectionSettings, context: ssl.SSLContext | None, arguments: dict[str, Any]) -> Any:
    if context is None:
        return SecureConnection(require_tls=False, ssl_disabled=True, **arguments)
    try:
        return SecureConnection(require_tls=settings.ssl_mode in ENCRYPTED_MODES, ssl=context, **arguments)
    except pymysql.MySQLError as error:
        if settings.ssl_mode != "preferred" or error.args[:1] != (TLS_ERROR,):
            raise
        clear_frame_locals(error)
    # STRM-36: preferred falls back to plain when the server offers no encryption.
    return SecureConnection(require_tls=False, ssl_disabled=True, **arguments)


def _driver_arguments(settings: ConnectionSettings) -> dict[str, Any]:
    timeout_s = login_seconds(settings)
    return {
        "host": settings.host,
        "port": settings.port,
        "user": settings.user,
        "password": password_bytes(settings.password),
        "charset": "utf8mb4",
        "autocommit": True,
        "connect_timeout": timeout_s,
        "read_timeout": timeout_s,
        "write_timeout": timeout_s,
        "program_name": PROGRAM_NAME,
        **dict(settings.driver_options),
    }


def _tls_context(settings: ConnectionSettings) -> ssl.SSLContext | None:
    """Return the TLS context of an ssl.mode (STRM-36), or None for no encryption."""
    mode = settings.ssl_mode
    if mode == "disabled":
        return None
    verify = mode in ("verify_ca", "verify_identity")
    try:
        # Loading the machine's own certificates costs 45 ms of CPU a connection (measured); only checking needs them.
        context = ssl.create_default_context(cafile=settings.ssl_ca) if verify else _unverified_context(settings.ssl_ca)
        # The certificates MySQL makes for itself lack extensions that strict checking (Python 3.13) asks for.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.check_hostname = mode == "verify_identity"
        context.verify_mode = ssl.CERT_REQUIRED if verify else ssl.CERT_NONE
        if settings.ssl_cert:
            key_password = settings.ssl_key_password
            # Without a password, OpenSSL would ask for that of an encrypted key on the terminal, and wait.
            context.load_cert_chain(settings.ssl_cert, settings.ssl_key, key_password.reveal() if key_password else "")
    except (OSError, ValueError) as error:
        raise ConfigError(
            "a certificate or key cannot be used",
            where="database.ssl.*",
            why=str(error),
            remedy="check that the PEM files exist on this machine and that key and certificate belong together",
        ) from error
    return context


def _unverified_context(ca: str | None) -> ssl.SSLContext:
    """Return a context that encrypts and does not check; a file that is named must be readable all the same."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    if ca:
        context.load_verify_locations(ca)
    return context


def fetch_all(conn: MySqlConnection, sql: str, args: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Run a statement and return all its rows.

    Raises:
        SourceError: The leaf that fits the server's message.
    """
    return _execute(conn, sql, args, lambda cursor: list(cursor.fetchall()))


def fetch_dicts(conn: MySqlConnection, sql: str, args: tuple[Any, ...] = ()) -> list[dict[str, Any]]:
    """Run a statement and return its rows by column name; SHOW statements gain columns from version to version.

    Raises:
        SourceError: The leaf that fits the server's message.
    """

    def rows(cursor: Any) -> list[dict[str, Any]]:
        names = [column[0] for column in cursor.description]
        # SHOW SLAVE HOSTS of 8.0.15 ends the row of a client without a UUID one column early.
        return [dict(zip(names, row, strict=False)) for row in cursor.fetchall()]

    return _execute(conn, sql, args, rows)


def answering_server(conn: MySqlConnection) -> str:
    """Return server_uuid of the server that a connection leads to.

    Args:
        conn: An open connection.

    Raises:
        SourceError: The query fails.
    """
    return str(fetch_all(conn, "SELECT @@server_uuid")[0][0])


def _execute(conn: MySqlConnection, sql: str, args: tuple[Any, ...], read: Callable[[Any], T]) -> T:
    try:
        with conn.cursor() as cursor:
            cursor.execute(sql, args or None)
            return read(cursor)
    except (pymysql.MySQLError, OSError) as error:
        raise from_exception(error, getattr(conn, "host_info", "") or "MySQL") from error
