"""Statements that tests send to MySQL."""

from __future__ import annotations

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
