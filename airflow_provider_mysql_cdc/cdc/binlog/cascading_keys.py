"""Foreign keys whose cascades the server does not log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.connect import fetch_all
from airflow_provider_mysql_cdc.cdc.model.table import TableId

NATIVE_KEYS_VARIABLE = "innodb_native_foreign_keys"
_QUERY = (
    "SELECT CONSTRAINT_SCHEMA, TABLE_NAME, CONSTRAINT_NAME FROM information_schema.REFERENTIAL_CONSTRAINTS "
    "WHERE UPDATE_RULE IN ('CASCADE', 'SET NULL') OR DELETE_RULE IN ('CASCADE', 'SET NULL') ORDER BY 1, 2, 3"
)


@dataclass(frozen=True, slots=True)
class CascadingKey:
    """Name a foreign key with ON DELETE or ON UPDATE CASCADE or SET NULL.

    Args:
        table: The table whose rows it changes.
        name: The constraint's name.
    """

    table: TableId
    name: str

    def __str__(self) -> str:
        return f"{self.table} ({self.name})"


def logs_cascades(variables: Mapping[str, str]) -> bool:
    """Return whether the server writes row events for the rows that a foreign key changes.

    InnoDB carries cascades out below the binary log. MySQL 9.6 moved them to the SQL layer, which logs them, unless
    ``innodb_native_foreign_keys`` is ON. Older versions do not have this variable.

    Args:
        variables: Global variables by name.
    """
    return variables.get(NATIVE_KEYS_VARIABLE, "ON").upper() in ("OFF", "0")


def read_cascading_keys(conn: Any, captures: Callable[[TableId], bool]) -> tuple[CascadingKey, ...]:
    """Return the foreign keys with cascades of captured tables that the account can see.

    Args:
        conn: An open connection.
        captures: Whether a table is captured.

    Raises:
        SourceError: The server cannot be asked.
    """
    keys = (CascadingKey(TableId(str(db), str(table)), str(name)) for db, table, name in fetch_all(conn, _QUERY))
    return tuple(key for key in keys if captures(key.table))
