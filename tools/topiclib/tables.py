"""The tables of a database: their structures from information_schema, their rows by SELECT."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pymysql.cursors import SSCursor

from topiclib.events import Layout, Row
from topiclib.values import converted, converter_of_column, select_expression


@dataclass(frozen=True, slots=True)
class StoredTable:
    """Describe a table in MySQL.

    Args:
        layout: Columns, key and defaults.
        types: ``COLUMN_TYPE`` of each column.
    """

    layout: Layout
    types: tuple[str, ...]


def stored_tables(conn: Any, database: str) -> list[StoredTable]:
    """Return the base tables of a database by name."""
    with conn.cursor() as cursor:
        cursor.execute(
            "SELECT c.TABLE_NAME, c.COLUMN_NAME, c.COLUMN_TYPE FROM information_schema.COLUMNS c "
            "JOIN information_schema.TABLES t USING (TABLE_SCHEMA, TABLE_NAME) "
            "WHERE c.TABLE_SCHEMA = %s AND t.TABLE_TYPE = 'BASE TABLE' ORDER BY c.TABLE_NAME, c.ORDINAL_POSITION",
            (database,),
        )
        columns: dict[str, list[tuple[str, str]]] = {}
        for table, column, kind in cursor.fetchall():
            columns.setdefault(table, []).append((column, kind.decode() if isinstance(kind, bytes) else kind))
        cursor.execute(
            "SELECT TABLE_NAME, COLUMN_NAME FROM information_schema.STATISTICS "
            "WHERE TABLE_SCHEMA = %s AND INDEX_NAME = 'PRIMARY' ORDER BY TABLE_NAME, SEQ_IN_INDEX",
            (database,),
        )
        keys: dict[str, list[str]] = {}
        for table, column in cursor.fetchall():
            keys.setdefault(table, []).append(column)
    return [_stored_table(conn, database, t, cs, tuple(keys.get(t, ()))) for t, cs in columns.items()]


def _stored_table(
    conn: Any, database: str, table: str, columns: list[tuple[str, str]], key: tuple[str, ...]
) -> StoredTable:
    names, types = zip(*columns, strict=True)
    defaults: list[Any] = []
    with conn.cursor() as cursor:
        for name, kind in columns:
            quoted = name.replace("`", "``")
            try:
                cursor.execute(f"SELECT DEFAULT(`{quoted}`) FROM `{database}`.`{table}` LIMIT 1")
                row = cursor.fetchone()
            except conn.Error:
                # The column has no default, so no row can be older than it.
                row = None
            defaults.append(converted(row[0], converter_of_column(kind)) if row else None)
    return StoredTable(Layout(table, names, key, tuple(defaults)), types)


def read_rows(conn: Any, database: str, table: StoredTable) -> Iterator[Row]:
    """Yield all rows of a table with the values that events have.

    Args:
        conn: Open connection whose time zone is UTC.
        database: Database name.
        table: The table.
    """
    layout = table.layout
    expressions = [select_expression(n, t) for n, t in zip(layout.columns, table.types, strict=True)]
    converts = [converter_of_column(t) for t in table.types]
    with conn.cursor(SSCursor) as cursor:
        cursor.execute(f"SELECT {', '.join(expressions)} FROM `{database}`.`{layout.name}`")
        for row in cursor:
            yield tuple(converted(v, c) for v, c in zip(row, converts, strict=True))
