"""Statements that tests send to MySQL."""

from __future__ import annotations

import time
from typing import Any


def rows(conn: Any, sql: str) -> list[tuple[Any, ...]]:
    """Return all rows of a query."""
    with conn.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


def execute(conn: Any, *statements: str) -> None:
    """Run statements."""
    with conn.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def purge(conn: Any) -> None:
    """Purge all binlog files but a new one.

    The server keeps a file that a dump reads, which ends some time after its client.
    """
    execute(conn, "FLUSH BINARY LOGS")
    last, deadline = rows(conn, "SHOW BINARY LOGS")[-1][0], time.monotonic() + 30
    while rows(conn, "SHOW BINARY LOGS")[0][0] != last:
        assert time.monotonic() < deadline, "a file is not purged"
        execute(conn, f"PURGE BINARY LOGS TO '{last}'")
