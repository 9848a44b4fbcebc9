"""Chunks of a table: ranges of its key, as values and as SQL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc.ddl.collations import BY_NAME, Collation
from airflow_provider_mysql_cdc.cdc.model.stored import Members, is_text, is_whole, members
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
    def from_json(cls, data: Mapping[str, Any] | Members) -> SnapshotChunk:
        """Read what ``to_json`` wrote; what becomes a part of SQL is checked, whoever wrote it.

        Raises:
            DamagedRecordError: It is something else.
        """
        given = members(data)
        columns, kinds = given.texts("columns"), given.texts("kinds", ())
        if not all(columns):
            raise given.refuse("columns", "a list of column names")
        if kinds and (len(kinds) != len(columns) or not all(map(_is_kind, kinds))):
            raise given.refuse("kinds", "SIGNED, UNSIGNED, or a character set and its collation for each column")
        return cls(
            TableId(given.text("db"), given.text("table")),
            given.whole("number"),
            columns,
            _bound(given, "low", columns, kinds),
            _bound(given, "high", columns, kinds),
            given.flag("last"),
            given.whole("rows"),
            kinds,
        )


def text_kind(kind: str) -> Collation | None:
    """Return the collation of a character column's kind, when MySQL has it and it is of that character set.

    Args:
        kind: From ``key_kind``, perhaps by way of a stored record.
    """
    charset, _, name = kind.partition(" ")
    found = BY_NAME.get(name)
    return found if found is not None and found.charset == charset else None


def _is_kind(kind: str) -> bool:
    return kind in (SIGNED, UNSIGNED) or text_kind(kind) is not None


def _bound(given: Members, name: str, columns: tuple[str, ...], kinds: tuple[str, ...]) -> Bound | None:
    """Return a bound: one value for each column, of the column's kind where that is known."""
    if given.value(name) is None:
        return None
    values = given.values(name)
    if not columns or len(values) != len(columns) or not all(is_whole(v) or is_text(v) for v in values):
        raise given.refuse(name, "a whole number or a text for each column")
    if any(is_whole(v) != (k in (SIGNED, UNSIGNED)) for v, k in zip(values, kinds, strict=bool(kinds))):
        raise given.refuse(name, "a value of its column's kind")
    return values


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

    Raises:
        ValueError: There is no such kind.
    """
    if kind in (SIGNED, UNSIGNED):
        return literal(int(value))
    found = text_kind(kind)
    if found is None:
        raise ValueError(f"{kind!r} is no character set with its collation")
    return f"CONVERT({literal(value)} USING {quote_name(found.charset)}) COLLATE {quote_name(found.name)}"


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
