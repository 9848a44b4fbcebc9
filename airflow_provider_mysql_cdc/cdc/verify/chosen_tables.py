"""The tables that a verification compares."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.signals.table_names import SignalRefused, match_tables, quote_text

_MAX_SHOWN_ENTRIES = 5


def choose_tables(entries: Sequence[str], captured: Iterable[TableId]) -> tuple[TableId, ...]:
    """Return the captured tables that are named, in the order of their names; all of them where none is named.

    Args:
        entries: Names ``database.table``, or regular expressions for them, as in a signal.
        captured: The captured tables.

    Raises:
        ConfigError: An entry is invalid or matches no captured table, or no table is captured.
    """
    tables = sorted(captured)
    if not tables:
        raise ConfigError(
            "no table is captured, so there is nothing to verify",
            where="table.include.list, database.include.list",
            why="the account sees no table that these lists and the lists of exclusions let through",
            remedy="correct the lists, or grant the account SELECT on the tables",
        )
    if not entries:
        return tuple(tables)
    chosen, unmatched = _match(entries, tables)
    if unmatched:
        raise ConfigError(
            "a table to verify is not captured",
            where="tables: " + ", ".join(map(quote_text, unmatched[:_MAX_SHOWN_ENTRIES])),
            why=f"it matches none of the {len(tables)} captured tables the account sees; names are case-sensitive",
            remedy="correct the name (database.table), or add the table to table.include.list of the connection",
        )
    return tuple(sorted(chosen))


def check_entries(entries: Sequence[str]) -> None:
    """Check names and regular expressions before a server is asked for its tables.

    Args:
        entries: Names ``database.table``, or regular expressions for them.

    Raises:
        ConfigError: An entry is invalid.
    """
    _match(entries, ())


def _match(entries: Sequence[str], tables: Iterable[TableId]) -> tuple[tuple[TableId, ...], tuple[str, ...]]:
    try:
        return match_tables(entries, tables)
    except SignalRefused as refused:
        raise ConfigError(
            "a table entry is invalid",
            where="tables",
            why=refused.reason,
            remedy="write database.table, or a regular expression for it",
        ) from refused
