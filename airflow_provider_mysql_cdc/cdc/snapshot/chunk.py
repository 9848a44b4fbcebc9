"""Chunks of a table: ranges of its primary key as values and as SQL, how a table is split, and how one is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pymysql

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import column_expression, selected_columns
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, SchemaError, SourceConnectionError
from airflow_provider_mysql_cdc.cdc.formats import table_options
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.mysql_types import Family
from airflow_provider_mysql_cdc.cdc.model.stored_record import Count, Record
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, TableId, folded_name, quote_name
from airflow_provider_mysql_cdc.cdc.snapshot.key_kinds import (
    KeyColumnKind,
    KeyValue,
    check_bounds,
    key_kind_of,
    key_roundtrip_condition,
    kind_name,
    stored_dates_allowed,
)

Bound = tuple[KeyValue, ...]


@dataclass(frozen=True, slots=True)
class SnapshotChunk(Record):
    """Describe one part of a table: the rows with ``low < key <= high``.

    Args:
        table: The table.
        number: Index among the table's chunks, from 0.
        columns: The leading key columns that the bounds are made of; empty for a table that is one chunk.
        low: Exclusive lower bound, or None.
        high: Inclusive upper bound, or None.
        last: Whether this is the table's last chunk.
        rows: Estimated number of rows, for load balancing and progress.
        kinds: The kind of each column (``key_kinds``).
    """

    table: TableId
    number: Count
    columns: tuple[str, ...] = ()
    low: Bound | None = None
    high: Bound | None = None
    last: bool = True
    rows: Count = 0
    kinds: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """Return ``db.table/number``, the chunk's name in the ledger."""
        return f"{self.table}/{self.number}"

    def check(self) -> None:
        """Check everything that becomes part of SQL.

        Raises:
            ValueError: The text says what is wrong, and where.
        """
        check_bounds(self.columns, self.kinds, {"low": self.low, "high": self.high})


def chunk_columns(table: Table) -> tuple[str, ...]:
    """Return the leading key columns that can bound a chunk.

    A table without a primary key, or whose key begins with a column of another type (``key_kinds``), is one chunk.
    """
    bound_columns: list[str] = []
    for name in table.key_columns():
        column = table.column(name)
        if column is None or kind_name(column) is None:
            break
        bound_columns.append(column.name)
    return tuple(bound_columns)


def key_kind(table: Table, name: str) -> str:
    """Return the name of a column's kind; empty if it has none or the column does not exist."""
    column = table.column(name)
    return "" if column is None else kind_name(column) or ""


def _require_kind(name: str) -> KeyColumnKind:
    kind = key_kind_of(name)
    if kind is None:
        raise ValueError(f"{name!r} is neither a kind of key column nor a character set with its collation")
    return kind


def compare(left: Sequence[str], right: Sequence[str], *, greater: bool) -> str:
    """Return SQL for ``left > right`` or ``left <= right``, written so that MySQL can use an index range.

    MySQL does not use an index range for a row comparison ``(a, b) > (x, y)`` (manual, "Row Constructor Expression
    Optimization"), so the comparison is written out.

    Args:
        left: SQL of each value on the left, such as a column.
        right: SQL of each value on the right, such as a literal.
        greater: Whether to return ``left > right`` instead of ``left <= right``.
    """
    terms: list[str] = []
    for i, (left_value, right_value) in enumerate(zip(left, right, strict=True)):
        equal_terms = [f"{a} = {b}" for a, b in zip(left[:i], right[:i], strict=True)]
        is_last = i == len(left) - 1
        operator = ">" if greater else ("<=" if is_last else "<")
        terms.append("(" + " AND ".join([*equal_terms, f"{left_value} {operator} {right_value}"]) + ")")
    index_condition = f"{left[0]} {'>=' if greater else '<='} {right[0]}"
    return terms[0] if len(terms) == 1 else f"({index_condition} AND ({' OR '.join(terms)}))"


def bound_condition(columns: tuple[str, ...], bound: Bound, kinds: tuple[str, ...], *, greater: bool) -> str:
    """Return SQL for the keys greater than a bound, or for those less than or equal to it.

    Args:
        columns: The columns.
        bound: The bound.
        kinds: The kind of each column.
        greater: Whether to return the condition for greater keys.

    Raises:
        ValueError: A kind does not exist.
    """
    literals = [_require_kind(k).literal(v) for v, k in zip(bound, kinds, strict=True)]
    return compare([*map(quote_name, columns)], literals, greater=greater)


def chunk_condition(chunk: SnapshotChunk) -> str:
    """Return the WHERE condition of a chunk, ``TRUE`` for a whole table; run it within ``stored_dates_allowed``."""
    parts = []
    if chunk.low is not None:
        parts.append(bound_condition(chunk.columns, chunk.low, chunk.kinds, greater=True))
    if chunk.high is not None:
        parts.append(bound_condition(chunk.columns, chunk.high, chunk.kinds, greater=False))
    return " AND ".join(parts) or "TRUE"


MIN_EVEN_RATIO, MAX_EVEN_RATIO = 0.5, 2.0


def split_table(
    conn: MySqlConnection, table: Table, chunk_rows: int, *, single_chunk: bool = False
) -> list[SnapshotChunk]:
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


def estimated_rows(conn: MySqlConnection, table: TableId) -> int:
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


def _even_bounds(
    conn: MySqlConnection, table: Table, columns: tuple[str, ...], rows: int, chunk_rows: int
) -> list[Bound] | None:
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
    conn: MySqlConnection, table: Table, columns: tuple[str, ...], kinds: tuple[str, ...], chunk_rows: int
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


# Error numbers from here on are those of the client (MySQL error reference).
CLIENT_ERRORS = 2000


def chunk_sql(cfg: ConnectorConfig, conn: MySqlConnection, table: Table, chunk: SnapshotChunk) -> str:
    """Return the statement whose rows the table's text decoder reads.

    Args:
        cfg: The connector's configuration.
        conn: An open connection, to check a statement override.
        table: The table.
        chunk: The chunk.

    Raises:
        ConfigError: The statement override cannot be used.
    """
    columns = selected_columns(table, table_options.table_options(cfg, table))
    override = override_sql(cfg, conn, table, columns)
    order = table.primary_key if chunk.columns else ()
    return override or rows_sql(table.id, columns, chunk_condition(chunk), order)


def override_sql(cfg: ConnectorConfig, conn: MySqlConnection, table: Table, columns: tuple[Column, ...]) -> str | None:
    """Return the statement that reads a table by its ``snapshot.select.statement.overrides``; None without one.

    Args:
        cfg: The connector's configuration.
        conn: An open connection, to check the statement.
        table: The table.
        columns: The columns to read.

    Raises:
        ConfigError: The statement cannot be used.
    """
    statement = cfg.select_override(table.id)
    if statement is None:
        return None
    override_names = override_columns(conn, table, statement)
    return f"SELECT {_expressions(table, columns, override_names)} FROM ({statement}\n) AS snapshot_rows"


def rows_sql(table: TableId, columns: tuple[Column, ...], condition: str, order: tuple[str, ...]) -> str:
    """Return a SELECT whose rows a text decoder for these columns reads.

    Args:
        table: The table.
        columns: The columns.
        condition: The WHERE condition.
        order: Columns to sort by.
    """
    selected = ", ".join(map(column_expression, columns))
    sorting = ", ".join(map(quote_name, order))
    return f"SELECT {selected} FROM {table.quoted()} WHERE {condition}" + (f" ORDER BY {sorting}" if sorting else "")


def check_override(cfg: ConnectorConfig, conn: MySqlConnection, table: Table) -> None:
    """Refuse a statement override that cannot be used, before the snapshot begins.

    Raises:
        ConfigError: The server rejects the statement, or it does not select a NOT NULL column.
    """
    statement = cfg.select_override(table.id)
    if statement is not None:
        columns = selected_columns(table, table_options.table_options(cfg, table))
        _expressions(table, columns, override_columns(conn, table, statement))


def override_columns(conn: MySqlConnection, table: Table, statement: str) -> frozenset[str]:
    """Return the names of the columns that a statement selects, in lower case.

    Args:
        conn: An open connection.
        table: The table whose rows the statement selects.
        statement: The SELECT.

    Raises:
        ConfigError: The server rejects the statement.
        SourceConnectionError: The connection broke.
    """
    try:
        with conn.cursor() as cursor:
            cursor.execute(f"SELECT * FROM ({statement}\n) AS snapshot_rows LIMIT 0")
            return frozenset(folded_name(d[0]) for d in cursor.description)
    except pymysql.MySQLError as error:
        why = " ".join(map(str, error.args))
        if error.args and isinstance(error.args[0], int) and error.args[0] >= CLIENT_ERRORS:
            raise SourceConnectionError("a snapshot statement could not be checked", why=why) from error
        raise ConfigError(
            f"the snapshot statement for {table.id} cannot be used",
            where=f"{F.SNAPSHOT_SELECT_STATEMENT_OVERRIDES.name}.{table.id}",
            why=why,
            remedy="correct the SELECT: qualify tables with their database, and select each column once"
            + ("; MySQL quotes names as `name`, not as [name]" if "[" in statement else ""),
        ) from error


def _expressions(table: Table, columns: tuple[Column, ...], override_names: frozenset[str]) -> str:
    missing = [c for c in columns if folded_name(c.name) not in override_names]
    if names := [c.name for c in missing if not c.nullable]:
        raise ConfigError(
            f"the snapshot statement for {table.id} does not select NOT NULL columns: {', '.join(names)}",
            where=f"{F.SNAPSHOT_SELECT_STATEMENT_OVERRIDES.name}.{table.id}",
            remedy="add the columns to the SELECT, or exclude them from the events with column.exclude.list",
        )
    return ", ".join("NULL" if c in missing else column_expression(c) for c in columns)
