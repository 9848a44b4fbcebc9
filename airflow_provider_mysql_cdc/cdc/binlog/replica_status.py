"""SHOW REPLICA STATUS, under the names that it has now."""

from __future__ import annotations

from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.connect import fetch_dicts
from airflow_provider_mysql_cdc.cdc.errors import SourceError

_SYNTAX_ERROR = "error 1064"
_STATEMENTS = ("SHOW REPLICA STATUS", "SHOW SLAVE STATUS")  # the first came with 8.0.22


def replica_status(conn: Any) -> list[dict[str, Any]]:
    """Return what a server says of each channel through which it replicates, by the column names of MySQL 8.0.22.

    Args:
        conn: An open connection (REPLICATION CLIENT).

    Raises:
        SourceError: The server cannot be asked.
    """
    try:
        rows = fetch_dicts(conn, _STATEMENTS[0])
    except SourceError as error:
        if _SYNTAX_ERROR not in error.why:
            raise
        rows = fetch_dicts(conn, _STATEMENTS[1])
    return [{_current_name(name): value for name, value in row.items()} for row in rows]


def _current_name(name: str) -> str:
    return name.replace("Master_", "Source_").replace("Slave_", "Replica_")
