"""Chunks of a table: ranges of its key, as values and as SQL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId, quote_name

KeyValue = int | str
Bound = tuple[KeyValue, ...]

INTEGER_TYPES = frozenset({"TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT"})
TEXT_TYPES = frozenset({"CHAR", "VARCHAR"})
SIGNED, UNSIGNED = "SIGNED", "UNSIGNED"


@dataclass(frozen=True, slots=True)
class SnapshotChunk:
    """Describe one part of a table: the rows with ``low < key <= high``.

    Args:
        table: The table.
        number: Place among the table's chunks, from 0.
        columns: The leading key columns the bounds speak of; empty for a table that is one chunk.
        low: Exclusive lower bound, or None.
        high: Inclusive upper bound, or None.
        last: Whether this is the table's last chunk.
        rows: Estimated rows, for balance and progress.
        kinds: What each column is (``key_kind``), to compare keys of events as the column would.
    """

    table: TableId
    number: int
    columns: tuple[str, ...] = ()
    low: Bound | None = None
    high: Bound | None = None
    last: bool = True
    rows: int = 0
    kinds: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """Return ``db.table/number``, the chunk's name in the ledger."""
        return f"{self.table}/{self.number}"

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {
            "db": self.table.db,
            "table": self.table.table,
            "number": self.number,
            "columns": list(self.columns),
            "low": None if self.low is None else list(self.low),
            "high": None if self.high is None else list(self.high),
            "last": self.last,
            "rows": self.rows,
            "kinds": list(self.kinds),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> SnapshotChunk:
        """Read what ``to_json`` wrote."""
        return cls(
            TableId(data["db"], data["table"]),
            int(data["number"]),
            tuple(data["columns"]),
            None if data["low"] is None else tuple(data["low"]),
            None if data["high"] is None else tuple(data["high"]),
            bool(data["last"]),
            int(data["rows"]),
            tuple(data.get("kinds", ())),
        )


def chunk_columns(table: Table) -> tuple[str, ...]:
    """Return the leading key columns that can bound a chunk: integers and character columns.

    Only such values look the same in a query, in the ledger and in an event's key. A table whose key begins with
    another type, or that has no key, is one chunk.
    """
    out: list[str] = []
    for name in table.key_columns():
        column = table.column(name)
        if column is None or column.type_name not in INTEGER_TYPES | TEXT_TYPES:
            break
        out.append(column.name)
    return tuple(out)


def key_kind(table: Table, name: str) -> str:
    """Return ``SIGNED`` or ``UNSIGNED`` for an integer column, ``charset collation`` for a character column."""
    column = table.column(name)
    if column is None or column.type_name in INTEGER_TYPES:
        return UNSIGNED if column is not None and column.unsigned else SIGNED
    return f"{column.charset} {column.collation}"


def typed_literal(value: KeyValue, kind: str) -> str:
    """Return a key value as SQL that compares as the column would.

    Args:
        value: The value.
        kind: From ``key_kind``.
    """
    if kind in (SIGNED, UNSIGNED):
        return str(value)
    charset, collation = kind.split()
    return f"CONVERT({literal(value)} USING {charset}) COLLATE {collation}"


def literal(value: KeyValue) -> str:
    """Return a key value as an SQL literal.

    Character values are written as hexadecimal utf8mb4 text, so that no SQL mode changes their meaning; MySQL converts
    the literal to the column's character set and compares with the column's collation.
    """
    if isinstance(value, int):
        return str(value)
    return f"_utf8mb4 0x{value.encode().hex()}" if value else "_utf8mb4 ''"


def compare(columns: tuple[str, ...], bound: Bound, *, greater: bool) -> str:
    """Return SQL for ``columns > bound`` or ``columns <= bound``, in a form whose first term can use the index.

    MySQL does not use an index range for a row comparison ``(a, b) > (x, y)`` (manual, "Row Constructor Expression
    Optimization"), so it is written out.
    """
    terms: list[str] = []
    for i, (column, value) in enumerate(zip(columns, bound, strict=True)):
        same = [f"{quote_name(c)} = {literal(v)}" for c, v in zip(columns[:i], bound[:i], strict=True)]
        final = i == len(columns) - 1
        sign = ">" if greater else ("<=" if final else "<")
        terms.append("(" + " AND ".join([*same, f"{quote_name(column)} {sign} {literal(value)}"]) + ")")
    outer = f"{quote_name(columns[0])} {'>=' if greater else '<='} {literal(bound[0])}"
    return terms[0] if len(terms) == 1 else f"({outer} AND ({' OR '.join(terms)}))"


def predicate(chunk: SnapshotChunk) -> str:
    """Return the WHERE condition of a chunk, ``TRUE`` for a whole table."""
    parts = []
    if chunk.low is not None:
        parts.append(compare(chunk.columns, chunk.low, greater=True))
    if chunk.high is not None:
        parts.append(compare(chunk.columns, chunk.high, greater=False))
    return " AND ".join(parts) or "TRUE"
