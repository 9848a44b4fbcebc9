"""Match the tables of a signal: names, or regular expressions for them (INC-06, INC-08).

Source: Debezium 3.6.1 (``AbstractIncrementalSnapshotChangeEventSource.expandAndDedupeDataCollectionIds``): an
expression must match the whole name ``database.table``, with regard to case. An entry with parts in double quotes is a
name, never an expression.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from airflow_provider_mysql_cdc.cdc.config.parse_value import pattern
from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.model.table import TableId

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_NAME_PART = r'(?:"((?:[^"]|"")+)"|([^".]+))'
_QUOTED_NAME = re.compile(rf"{_NAME_PART}\.{_NAME_PART}")
_MAX_SHOWN_CHARS = 100


class SignalRefused(Exception):
    """A signal cannot be carried out; the drain continues.

    Args:
        reason: What is wrong with it, as one sentence.
        unknown_tables: Its tables, if the only fault is that none of them is captured.
    """

    def __init__(self, reason: str, unknown_tables: Sequence[str] = ()) -> None:
        super().__init__(reason)
        self.reason = reason
        self.unknown_tables = unknown_tables


def quoted_name(entry: str) -> TableId | None:
    """Return the table of an entry with parts in double quotes; None when it has no such part (INC-08).

    Args:
        entry: The entry as written in the signal.

    Raises:
        SignalRefused: The entry has double quotes, but is not of the form ``"database"."table"``.
    """
    if '"' not in entry:
        return None
    match = _QUOTED_NAME.fullmatch(entry)
    if match is None:
        raise SignalRefused(f'{quote_text(entry)} is not of the form "database"."table"')
    db, table = (m[0].replace('""', '"') if m[0] else m[1] for m in (match.groups()[:2], match.groups()[2:]))
    return TableId(db, table)


def entry_name(entry: str) -> str:
    """Return what notifications call an entry that matches no table: its table, or the expression.

    Args:
        entry: The entry as written in the signal.
    """
    table = quoted_name(entry)
    return entry if table is None else str(table)


def entry_for(table: TableId) -> str:
    """Return the entry that matches this table and no other.

    Args:
        table: The table.
    """
    if _PLAIN_NAME.fullmatch(name := str(table)):
        return name
    return ".".join('"' + part.replace('"', '""') + '"' for part in (table.db, table.table))


def table_matcher(entry: str, *, ignore_case: bool = False) -> Callable[[TableId], bool]:
    """Return a function that decides whether an entry matches a table.

    Args:
        entry: A name with parts in double quotes, or a regular expression for ``database.table``.
        ignore_case: Whether ASCII letters of an expression match without case.

    Returns:
        A function of the table; it raises ``SignalRefused`` when the expression takes too long.

    Raises:
        SignalRefused: The entry is neither a quoted name nor a valid expression.
    """
    if (quoted_table := quoted_name(entry)) is not None:
        return lambda table: table == quoted_table
    try:
        expression = pattern(entry, ignore_case=ignore_case)
    except ValueError as error:
        raise SignalRefused(str(error)) from None

    def matches(table: TableId) -> bool:
        # A name can have another meaning as an expression (``shop.a$b``); it still names its table.
        try:
            return str(table) == entry or expression.fullmatch(str(table)) is not None
        except ConfigError as error:
            raise SignalRefused(
                f"a regular expression takes too long to match: {error.where}; {error.remedy}"
            ) from None

    return matches


def match_tables(
    collections: Iterable[str], captured: Iterable[TableId]
) -> tuple[tuple[TableId, ...], tuple[str, ...]]:
    """Return the captured tables that a signal matches, and its entries that match none.

    Args:
        collections: The signal's entries.
        captured: The captured tables.

    Returns:
        The tables in the order of the entries and, within one entry, of their names; and the entries without a table.

    Raises:
        SignalRefused: An entry is invalid, or takes too long to match.
    """
    tables = {str(table): table for table in sorted(captured)}
    matched: dict[TableId, None] = {}
    unmatched: list[str] = []
    for entry in dict.fromkeys(collections):
        # As an expression, a plain name could match another name only by its dot.
        if _PLAIN_NAME.fullmatch(entry):
            entry_tables = [tables[entry]] if entry in tables else []
        else:
            matches = table_matcher(entry)
            entry_tables = [table for table in tables.values() if matches(table)]
        matched |= dict.fromkeys(entry_tables)
        if not entry_tables:
            unmatched.append(entry)
    return tuple(matched), tuple(unmatched)


def quote_text(text: str) -> str:
    """Return a text in quotes for a message, cut when it is long."""
    return repr(text if len(text) <= _MAX_SHOWN_CHARS else text[:_MAX_SHOWN_CHARS] + "...")
