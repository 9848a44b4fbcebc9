"""Split tables into chunks by the actual distribution of their keys."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from airflow_provider_mysql_cdc.cdc.errors import SchemaError
from airflow_provider_mysql_cdc.cdc.model.mysql_types import Family
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId, quote_name
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import Bound, SnapshotChunk, bound_condition, chunk_columns, key_kind
from airflow_provider_mysql_cdc.cdc.snapshot.key_kinds import (
    key_kind_of,
    key_roundtrip_condition,
    stored_dates_allowed,
)

MIN_EVEN_RATIO, MAX_EVEN_RATIO = 0.5, 2.0


def split_table(conn: Any, table: Table, chunk_rows: int, *, single_chunk: bool = False) -> list[SnapshotChunk]:
    """Return the chunks of a table; together they cover every possible key exactly once.

    The bounds need not be read in the snapshot's view, as the first chunk has no lower and the last no upper bound.

    Args:
        conn: An open connection to the source, character set utf8mb4.
        table: The table.
        chunk_rows: Wanted rows of a chunk.
        single_chunk: Whether the table must be one chunk.
    """
    rows = estimated_rows(conn, table.id)
    columns = chunk_columns(table)
    if single_chunk or not columns or rows <= chunk_rows // 2:
        return [SnapshotChunk(table.id, 0, rows=rows)]
    kinds = tuple(key_kind(table, c) for c in columns)
    bounds = _even_bounds(conn, table, columns, rows, chunk_rows)
    if bounds is None:
        with stored_dates_allowed(conn, kinds):
            bounds = list(_scanned_bounds(conn, table, columns, kinds, chunk_rows))
    edges: list[Bound | None] = [None, *bounds, None]
    count = len(edges) - 1
    return [
        SnapshotChunk(table.id, i, columns, low, high, i == count - 1, max(1, rows // count), kinds)
        for i, (low, high) in enumerate(pairwise(edges))
    ]


def estimated_rows(conn: Any, table: TableId) -> int:
    """Return how many rows a table has, as the server estimates it.

    Args:
        conn: An open connection.
        table: The table.
    """
    with conn.cursor() as cursor:
        cursor.execute(
            "SELECT table_rows FROM information_schema.tables WHERE table_schema = %s AND table_name = %s",
            (table.db, table.table),
        )
        row = cursor.fetchone()
    return int(row[0] or 0) if row else 0


def _even_bounds(conn: Any, table: Table, columns: tuple[str, ...], rows: int, chunk_rows: int) -> list[Bound] | None:
    """Return evenly spaced bounds of a single integer key without large gaps, or None."""
    column = table.column(columns[0])
    if len(table.key_columns()) != 1 or column is None or column.family is not Family.INTEGER:
        return None
    name = quote_name(columns[0])
    with conn.cursor() as cursor:
        cursor.execute(f"SELECT MIN({name}), MAX({name}) FROM {table.id.quoted()}")
        low, high = cursor.fetchone()
    if low is None or not MIN_EVEN_RATIO <= (high - low + 1) / max(1, rows) <= MAX_EVEN_RATIO:
        return None
    step = max(1, round((high - low + 1) * chunk_rows / max(rows, 1)))
    return [(value,) for value in range(low + step - 1, high, step)]


def _scanned_bounds(
    conn: Any, table: Table, columns: tuple[str, ...], kinds: tuple[str, ...], chunk_rows: int
) -> Iterator[Bound]:
    """Yield every ``chunk_rows``-th key in its written form, reading along the index; keys without one are skipped."""
    parsed_kinds = [kind for kind in map(key_kind_of, kinds) if kind is not None]
    expressions = ", ".join(kind.select_expression(column) for kind, column in zip(parsed_kinds, columns, strict=True))
    order, roundtrip = ", ".join(map(quote_name, columns)), key_roundtrip_condition(columns, kinds)
    bound: Bound | None = None
    while True:
        where = "TRUE" if bound is None else bound_condition(columns, bound, kinds, greater=True)
        with conn.cursor() as cursor:
            sql = f"SELECT {expressions} FROM {table.id.quoted()} WHERE {where} AND {roundtrip} ORDER BY {order}"
            cursor.execute(f"{sql} LIMIT 1 OFFSET {chunk_rows - 1}")
            key_row = cursor.fetchone()
        if key_row is None:
            return
        bound = tuple(key_row)
        if not all(kind.is_written_form(value) for kind, value in zip(parsed_kinds, bound, strict=True)):
            raise SchemaError(
                "the server returned a key that cannot bound a chunk",
                where=f"table {table.id}, key {', '.join(columns)}",
                why=f"the server returned the key {bound!r}, which is not a valid value of {', '.join(kinds)}",
                remedy="report the table definition as a bug; meanwhile a statement in "
                "snapshot.select.statement.overrides makes the table one chunk",
            )
        yield bound
