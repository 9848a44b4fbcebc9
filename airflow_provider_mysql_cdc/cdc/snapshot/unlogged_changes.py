"""Statements that change the rows of captured tables without row events."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.snapshot.table_lineage import Effect, EffectKind, statement_effects

# Every statement with such an effect contains one of these words; others are not parsed a second time.
_KEYWORDS = re.compile("RENAME|PARTITION|TABLESPACE", re.IGNORECASE)
# A table without its tablespace cannot be read.
_DISCARD = re.compile(r"\bDISCARD\b[^;]*\bTABLESPACE\b", re.IGNORECASE)
_ROW_EFFECTS: dict[EffectKind, str] = {
    "rows": "EXCHANGE PARTITION, DISCARD TABLESPACE or IMPORT TABLESPACE removed or added rows",
    "partition rows": "the rows of partitions were removed",
}


class UnloggedChange(NamedTuple):
    """Say what happened to the rows of a table.

    Args:
        table: The table, by its name after the statement.
        what: What happened, as a clause.
        adds_rows: Whether the table may have rows that are in no event.
    """

    table: TableId
    what: str
    adds_rows: bool


def unlogged_changes(
    sql: str, context: DdlContext, captures: Callable[[TableId], bool], known: Callable[[TableId], bool]
) -> list[UnloggedChange]:
    """Return the changes of rows of captured tables that a statement made without row events.

    Args:
        sql: Statement text.
        context: Its session settings.
        captures: Whether a table is captured.
        known: Whether a name is, or may be, that of a table before the statement; RENAME TABLE renames views as well.

    Raises:
        DdlParseError: The statement is DDL and cannot be parsed.
    """
    if _KEYWORDS.search(sql) is None:
        return []
    effects = statement_effects(sql, context)
    discards = _DISCARD.search(sql) is not None
    changes = [
        UnloggedChange(e.table, _ROW_EFFECTS[e.kind], adds_rows=e.kind == "rows" and not discards)
        for e in effects
        if e.kind in _ROW_EFFECTS
    ]
    changes += (
        UnloggedChange(name, f"it was {former_name} before, and its rows are in no event under its new name", True)
        for name, former_name in _renamed_tables(effects)
        if known(former_name)
    )
    return [change for change in dict.fromkeys(changes) if captures(change.table)]


def _renamed_tables(effects: Sequence[Effect]) -> Iterator[tuple[TableId, TableId]]:
    """Yield each table with another name after a statement than before it: its new name, and its former one."""
    former_names: dict[TableId, TableId] = {}
    for effect in effects:
        if effect.new_name is not None:
            former_names[effect.new_name] = former_names.pop(effect.table, effect.table)
    return ((name, former_name) for name, former_name in former_names.items() if name != former_name)
