"""The offset database, opened as its Airflow connection specifies.

Airflow's own hooks apply the settings in a connection's extra (sslmode, certificates, cloud tokens), but their
SQLAlchemy URL lacks some: PostgresHook applies sslmode in ``get_conn`` only, MySqlHook all of TLS. So the hook opens
every connection of the pool, and SQLAlchemy only uses it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowOptionalProviderFeatureException

from airflow_provider_mysql_cdc.cdc.errors import CdcError, ConfigError, StateError
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.connections import find_connection

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.commit.sql_store import SqlOffsetStore

_DIALECTS = {
    "psycopg": "postgresql+psycopg",
    "psycopg2": "postgresql+psycopg2",
    "MySQLdb": "mysql+mysqldb",
    "mysql": "mysql+mysqlconnector",
    "pymysql": "mysql+pymysql",
    "sqlite3": "sqlite",
}
"""SQLAlchemy's dialects by the package of a driver's connection object."""
_EXTRAS = {"postgres": "postgres", "postgresql": "postgres", "mysql": "mysql", "mariadb": "mysql"}
"""Extras of this package that install a connection type's hook."""
_NOT_INSTALLED = (ImportError, AirflowOptionalProviderFeatureException)

Opener = Callable[[], Any]


def sql_store(conn_id: str, prefix: str) -> SqlOffsetStore:
    """Return the offset store in the database of a connection.

    Args:
        conn_id: The connection.
        prefix: topic.prefix.

    Raises:
        ConfigError: The connection does not exist, or cannot be used.
        StateError: The database cannot be reached, or refuses the login.
    """
    from airflow_provider_mysql_cdc.cdc.commit.sql_store import SqlOffsetStore

    return SqlOffsetStore(open_engine(find_connection(conn_id, "offset database")), prefix)


def open_engine(conn: Any) -> Any:
    """Return an SQLAlchemy engine for a connection, after opening the connection once.

    ``mysql_cdc`` opens like the source, with its ``database.ssl.*`` properties and without a compiled driver. The host
    of ``sqlite`` is a file. Other types are opened by their hook; ``mysql`` and ``mariadb`` do not need the MySQL
    provider when their extra does not configure TLS.

    Args:
        conn: Airflow's connection.

    Raises:
        ConfigError: The provider or driver for its type is not installed, or the type is not a database.
        StateError: The database cannot be reached, or refuses the login.
    """
    import sqlalchemy

    if conn.conn_type == "sqlite":
        return sqlalchemy.create_engine(f"sqlite:///{conn.host or ''}")
    opener = _connection_opener(conn)
    first_connection = _open_connection(conn, opener)
    packages = (base.__module__.split(".")[0] for base in type(first_connection).__mro__)
    dialect = next((_DIALECTS[package] for package in packages if package in _DIALECTS), None)
    if dialect is None:
        first_connection.close()
        return conn.get_hook().get_sqlalchemy_engine()
    if dialect.startswith("mysql"):
        _require_database(conn, first_connection)
    opened_connections = [first_connection]

    def next_connection() -> Any:
        return opened_connections.pop() if opened_connections else _with_utf8(opener())

    # Connections are idle for the whole job between plan and settlement; a server or a firewall may close them.
    return sqlalchemy.create_engine(f"{dialect}://", creator=next_connection, pool_pre_ping=True)


def _connection_opener(conn: Any) -> Opener:
    """Return a function that opens the connection."""
    if conn.conn_type == "mysql_cdc":
        return _source_opener(conn)
    try:
        hook = conn.get_hook()
    except Exception as error:  # an unknown type is an AirflowException, a broken provider any error of an import
        if conn.conn_type in ("mysql", "mariadb") and not _asks_for_tls(conn):
            return _plain_mysql_opener(conn)
        raise _not_installed_error(conn, error) from error
    if not hasattr(hook, "get_sqlalchemy_engine"):
        raise ConfigError(
            "this connection type is not a database",
            where=_where(conn),
            remedy="use type postgres, mysql, mysql_cdc or sqlite, or another one whose hook has an SQLAlchemy engine",
        )
    opener: Opener = hook.get_conn
    return opener


def _open_connection(conn: MySqlConnection, opener: Opener) -> Any:
    try:
        return _with_utf8(opener())
    except CdcError:
        raise
    except _NOT_INSTALLED as error:
        raise _not_installed_error(conn, error) from error
    except (RuntimeError, ValueError, TypeError) as error:
        # MySqlHook raises RuntimeError when mysqlclient is missing; drivers raise the others for unknown options.
        raise ConfigError(
            "the connection of the offset database cannot be used",
            where=_where(conn),
            why=str(error),
            remedy="install the driver that the message names, or correct the connection's extra",
        ) from error
    except Exception as error:
        raise StateError(
            "the offset database cannot be reached, or refuses the login",
            where=_where(conn),
            why=str(error).strip() or type(error).__name__,
            remedy="check host, account and TLS settings of the connection, and the network from the Airflow worker",
            retriable=True,
        ) from None


def _require_database(conn: MySqlConnection, opened: Any) -> None:
    """Refuse a MySQL connection without a database, for whose tables SQLAlchemy could not ask.

    Raises:
        ConfigError: None is selected.
    """
    with contextlib.closing(opened.cursor()) as cursor:
        cursor.execute("SELECT DATABASE()")
        (database,) = cursor.fetchone()
    if not database:
        opened.close()
        raise ConfigError(
            "the connection of the offset database names no database",
            where=_where(conn),
            remedy="enter the database's name in the connection's field schema; the account must be allowed to create "
            "tables there",
        )


def _with_utf8(connection: Any) -> Any:
    """Return the connection with UTF-8 as its character set; mysqlclient would use the library's default."""
    if hasattr(connection, "set_character_set"):
        connection.set_character_set("utf8mb4")
    return connection


def _source_opener(conn: Any) -> Opener:
    from airflow_provider_mysql_cdc.cdc.binlog.connect import connect

    # Only the settings of the MySQL server are used; other required properties of a stream may be missing here.
    unused = {"topic.prefix": "offsets", "kafka.bootstrap.servers": "unused:9092"}
    settings = conn.get_hook().get_config(unused).connection_settings()

    def opener() -> Any:
        opened = connect(settings)
        if conn.schema:
            opened.select_db(conn.schema)
        opened.autocommit(False)
        return opened

    return opener


def _plain_mysql_opener(conn: Any) -> Opener:
    import pymysql

    def opener() -> Any:
        return pymysql.connect(
            host=conn.host or "localhost",
            port=int(conn.port or 3306),
            user=conn.login,
            # pymysql sends text as latin1, MySQL's own clients send UTF-8.
            password=(conn.password or "").encode("utf-8"),
            database=conn.schema or None,
            charset="utf8mb4",
        )

    return opener


def _asks_for_tls(conn: Any) -> bool:
    return any(name.startswith("ssl") or name in ("iam", "tls") for name in conn.extra_dejson)


def _not_installed_error(conn: Any, error: BaseException) -> ConfigError:
    extra = _EXTRAS.get(conn.conn_type)
    return ConfigError(
        "the Airflow provider or driver for this connection type is not installed",
        where=_where(conn),
        why=str(error),
        remedy=f"pip install 'airflow-provider-mysql-cdc[{extra}]' on the Airflow workers"
        if extra
        else f"install the Airflow provider for connections of type {conn.conn_type}",
    )


def _where(conn: Any) -> str:
    return f"connection {conn.conn_id} (type {conn.conn_type})"
