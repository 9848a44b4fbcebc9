"""Find Airflow connections and read their extra."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from airflow.providers.common.compat.sdk import AirflowException, BaseHook

from airflow_provider_mysql_cdc.cdc.errors import ConfigError


def find_connection(conn_id: str, role: str, conn_types: Sequence[str] = ()) -> Any:
    """Return an Airflow connection.

    Args:
        conn_id: Its id.
        role: What the connection is for, as an error names it.
        conn_types: Types of connections that fit, the usual one first; none for any.

    Raises:
        ConfigError: It does not exist, or is of another type.
    """
    try:
        conn = BaseHook.get_connection(conn_id)
    except AirflowException as error:
        raise ConfigError(
            f"the {role} connection does not exist",
            where=f"connection {conn_id}",
            why=str(error),
            remedy="create it under Admin > Connections, or use the id of an existing connection",
        ) from error
    require_type(conn, role, conn_types)
    return conn


def require_type(conn: Any, role: str, conn_types: Sequence[str]) -> None:
    """Refuse a connection of a type that does not fit: its settings belong to something else.

    Args:
        conn: Airflow's connection.
        role: What the connection is for, as an error names it.
        conn_types: Types that fit, the usual one first; none for any.

    Raises:
        ConfigError: It is of another type.
    """
    if conn_types and conn.conn_type not in conn_types:
        raise ConfigError(
            f"the {role} connection is of another type",
            where=f"connection {conn.conn_id}",
            why=f"its type is {conn.conn_type or 'not set'}",
            remedy=f"use a connection of type {conn_types[0]}{'' if conn.conn_type else _in_uri(conn_types[0])}",
        )


def _in_uri(conn_type: str) -> str:
    """Return how a type is written in a URI: Airflow reads none at all with an underscore in its scheme."""
    return f"; in a URI write {conn_type.replace('_', '-')}://" if "_" in conn_type else ""


def read_extra(conn: Any, example: str = '{"topic.prefix": "shop", ...}') -> dict[str, Any]:
    """Return the properties in a connection's extra; none when the extra is empty.

    Args:
        conn: Airflow's connection.
        example: An extra of its type, for the error.

    Raises:
        ConfigError: It is not a JSON object.
    """
    text = (conn.extra or "").strip()
    try:
        data = json.loads(text) if text else {}
    except (ValueError, RecursionError) as error:
        data = error
    if not isinstance(data, dict):
        raise ConfigError(
            "the connection's extra is not a JSON object",
            where=f"connection {conn.conn_id}",
            why=str(data) if isinstance(data, Exception) else f"it is a {type(data).__name__}",
            remedy=f"write it as {example}",
        )
    return data
