"""Chunks of a table: ranges of its primary key, as values and as SQL conditions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_provider_mysql_cdc.cdc.model.stored_record import Count, Record
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId, quote_name
from airflow_provider_mysql_cdc.cdc.snapshot.key_kinds import (
    KeyColumnKind,
    KeyValue,
    check_bounds,
    key_kind_of,
    kind_name,
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
