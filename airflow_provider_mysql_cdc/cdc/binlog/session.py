"""The session variables of every connection that runs SQL: no query depends on the server's defaults.

A server's global values and its ``init_connect`` decide about each new session, so ``sql_select_limit=1000`` or another
time zone would cut tables or shift conditions. All sessions of a job, on the driver and in tasks, are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pymysql

from airflow_provider_mysql_cdc.cdc.binlog.server_errors import from_exception
from airflow_provider_mysql_cdc.cdc.errors import SourceConnectionError, SourceSettingError

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


def prepare_session(conn: Any, where: str) -> str:
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


def _set_variables(conn: Any, values: Sequence[tuple[str, str]], where: str) -> None:
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
