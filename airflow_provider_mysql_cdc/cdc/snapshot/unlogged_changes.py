"""Statements that change the rows of captured tables without row events."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from airflow_provider_mysql_cdc.cdc.ddl.apply import DdlResult, TableChange
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext, SchemaState
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId
from airflow_provider_mysql_cdc.cdc.snapshot.table_lineage import EffectKind, statement_effects

# Every statement with such an effect contains one of these words; others are not parsed a second time.
_KEYWORDS = re.compile("RENAME|PARTITION|TABLESPACE|ADD", re.IGNORECASE)
# A table without its tablespace cannot be read.
_DISCARD = re.compile(r"\bDISCARD\b[^;]*\bTABLESPACE\b", re.IGNORECASE)
_ROW_EFFECTS: dict[EffectKind, str] = {
    "rows": "EXCHANGE PARTITION, DISCARD TABLESPACE or IMPORT TABLESPACE removed or added rows",
    "partition rows": "the rows of partitions were removed",
}
_NO_ROWS_ENGINES = ("BLACKHOLE", "MERGE", "MRG_MYISAM")
"""Engines that keep none of the rows that a table has when it gets them; MERGE has those of other tables."""


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
    sql: str,
    context: DdlContext,
    captures: Callable[[TableId], bool],
    known: Callable[[TableId], bool],
    includes_column: Callable[[TableId, str], bool],
) -> list[UnloggedChange]:
    """Return the changes of rows of captured tables that a statement made without row events.

    Args:
        sql: Statement text.
        context: Its session settings.
        captures: Whether a table is captured.
        known: Whether a name is, or may be, that of a table before the statement; RENAME TABLE renames views as well.
        includes_column: Whether events have a column of a table.

    Raises:
        DdlParseError: The statement is DDL and cannot be parsed.
    """
    if _KEYWORDS.search(sql) is None:
        return []
    effects = statement_effects(sql, context)
    former = former_names((e.table, e.new_name) for e in effects if e.new_name is not None)
    names = {old: new for new, old in former.items()}
    discards = _DISCARD.search(sql) is not None
    changes = [
        UnloggedChange(e.table, _ROW_EFFECTS[e.kind], adds_rows=e.kind == "rows" and not discards)
        for e in effects
        if e.kind in _ROW_EFFECTS
    ]
    changes += (
        UnloggedChange(
            table, f"{', '.join(columns)} was added, and its values in the rows that were there are in no event", True
        )
        for e in effects
        for table in (names.get(e.table, e.table),)
        if (columns := [column for column in e.columns if includes_column(table, column)])
    )
    changes += (
        UnloggedChange(name, f"it was {former_name} before, and its rows are in no event under its new name", True)
        for name, former_name in former.items()
        if known(former_name)
    )
    return [change for change in dict.fromkeys(changes) if captures(change.table)]


def former_names(renames: Iterable[tuple[TableId, TableId]]) -> dict[TableId, TableId]:
    """Return the former name of each table that has another one after renames.

    Args:
        renames: Old and new name of each, in their order.
    """
    former: dict[TableId, TableId] = {}
    for old, new in renames:
        former[new] = former.pop(old, old)
    return {name: before for name, before in former.items() if name != before}


def removed_tables(
    applied: DdlResult, before: SchemaState, captures: Callable[[TableId], bool], *, publishes_truncates: bool
) -> list[UnloggedChange]:
    """Return the captured tables all of whose rows a statement removed, or took to another name.

    The binlog does not say whether a table had rows.

    Args:
        applied: What the statement did.
        before: Structures before it.
        captures: Whether a table is captured.
        publishes_truncates: Whether TRUNCATE TABLE of a table with a known structure has an event of its own.
    """
    removed = [
        UnloggedChange(table, what, adds_rows=False)
        for change in applied.changes
        for table, what in _removed_rows(change, before, applied.state)
        if captures(table) and not (publishes_truncates and change.kind == "TRUNCATE" and change.table is not None)
    ]
    return list(dict.fromkeys(removed))


def _removed_rows(change: TableChange, before: SchemaState, after: SchemaState) -> Iterator[tuple[TableId, str]]:
    """Yield the tables whose rows are gone after a change, with what happened."""
    table, former = change.id, change.previous_id
    if table is None:
        gone = [each for each in before.tables_of(change.db) if not after.has_table(each)]
        yield from ((each, "its database was dropped, with all its rows") for each in gone)
    elif former is not None:
        if before.has_table(former) and not after.has_table(former):
            yield former, f"it was renamed to {table}, with all its rows"
    elif change.kind == "TRUNCATE":
        yield table, "TRUNCATE TABLE removed all its rows"
    elif change.kind == "DROP":
        if before.has_table(table) or not change.ddl.startswith("DROP TABLE IF EXISTS"):
            yield table, "it was dropped, with all its rows"
    elif change.kind == "CREATE":
        if before.has_table(table):
            yield table, "it was created, and the DROP TABLE of an earlier table of this name is not in the binlog"
    elif (engine := _engine(change.table)) in _NO_ROWS_ENGINES and _engine(before.tables.get(table)) != engine:
        yield table, f"ENGINE={engine} removed all its rows"


def _engine(table: Table | None) -> str:
    return "" if table is None else (table.engine or "").upper()
