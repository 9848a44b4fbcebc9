"""Follow tables through statements that create, drop, truncate and rename them; pure functions of the statements' text.

A name does not identify a table: tables are dropped and created again, renamed, and swapped. A snapshot that has read
part of a table before such a statement has to know which table has the name afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from airflow_provider_mysql_cdc.cdc.ddl.classify import full_name
from airflow_provider_mysql_cdc.cdc.ddl.cursor import NameParts
from airflow_provider_mysql_cdc.cdc.ddl.parse import StatementText, is_ddl, parse_statement, split_statements
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext
from airflow_provider_mysql_cdc.cdc.ddl.statements import (
    AlterTable,
    CreateTable,
    DatabaseStatement,
    DropTables,
    ParsedStatement,
    RenameTables,
    RenameTo,
    TruncateTable,
    UseDatabase,
)
from airflow_provider_mysql_cdc.cdc.ddl.temporary import is_temporary
from airflow_provider_mysql_cdc.cdc.model.table import TableId

EffectKind = Literal["create", "drop", "truncate", "rename", "rows", "drop database"]
FilePosition = tuple[int, int]
START: FilePosition = (-1, -1)


@dataclass(frozen=True, slots=True)
class Effect:
    """Describe the effect of a statement on one table as a whole.

    Args:
        kind: ``rows`` stands for EXCHANGE PARTITION and tablespaces, which add and remove rows without row events.
        table: The table; for a rename its old name; for ``drop database`` the database with an empty table name.
        new_name: The new name of a rename.
        unless_exists: Whether it is CREATE TABLE IF NOT EXISTS.
    """

    kind: EffectKind
    table: TableId
    new_name: TableId | None = None
    unless_exists: bool = False


def statement_effects(sql: str, context: DdlContext) -> tuple[Effect, ...]:
    """Return the effects of a statement on tables as a whole; none for changes inside a table.

    Args:
        sql: Statement text.
        context: Its session settings.

    Raises:
        DdlParseError: The statement is DDL and cannot be parsed.
    """
    if not is_ddl(sql, context.sql_mode):
        return ()
    table_effects: list[Effect] = []
    for part in split_statements(sql, context.sql_mode):
        statement = parse_statement(sql, part[1], context.sql_mode)
        if isinstance(statement, UseDatabase):
            context = replace(context, default_db=statement.name)
        elif not is_temporary(statement, part[1], context):
            table_effects.extend(_table_effects(statement, part, context))
    return tuple(table_effects)


def _table_effects(statement: ParsedStatement | None, part: StatementText, context: DdlContext) -> list[Effect]:
    def qualified_name(parts: NameParts) -> TableId:
        return full_name(parts, context)

    if isinstance(statement, CreateTable):
        return [Effect("create", qualified_name(statement.name), unless_exists=statement.if_not_exists)]
    if isinstance(statement, DropTables):
        return [Effect("drop", qualified_name(n)) for n in statement.names]
    if isinstance(statement, TruncateTable):
        return [Effect("truncate", qualified_name(statement.name))]
    if isinstance(statement, RenameTables):
        return [Effect("rename", qualified_name(old), qualified_name(new)) for old, new in statement.pairs]
    if isinstance(statement, DatabaseStatement) and statement.verb == "DROP":
        db = statement.name or context.default_db
        return [Effect("drop database", TableId(db.lower() if context.lower_case_table_names == 1 else db, ""))]
    if not isinstance(statement, AlterTable):
        return []
    table = qualified_name(statement.name)
    keywords = {token.upper for token in part[1]}
    row_effects = [Effect("rows", qualified_name(n)) for n in statement.exchanged_tables]
    if row_effects or ("TABLESPACE" in keywords and keywords & {"DISCARD", "IMPORT"}):
        row_effects.append(Effect("rows", table))
    return [
        *row_effects,
        *(Effect("rename", table, qualified_name(a.name)) for a in statement.actions if isinstance(a, RenameTo)),
    ]


@dataclass(slots=True, eq=False)
class TableLineage:
    """Follow one table, whatever its name is.

    Args:
        names: Its names, each with the position since which it has it; the last one is its current or final name.
        is_initial: Whether it existed at the start, under one of the names given to ``TableLineages.of``.
        created: Whether a statement of the range created it.
        ended_at: Position of the statement that dropped it, or None. TRUNCATE counts as drop and create.
        rows_moved_by: The first statement that added or removed rows without row events, or None.
    """

    names: list[tuple[TableId, FilePosition]]
    is_initial: bool = False
    created: bool = False
    ended_at: FilePosition | None = None
    rows_moved_by: str | None = None

    @property
    def name(self) -> TableId:
        """Return its current or final name."""
        return self.names[-1][0]

    def spans(self, until: FilePosition) -> list[tuple[TableId, FilePosition, FilePosition]]:
        """Return each of its names with the positions after which and up to which the table had it.

        Args:
            until: The end of the range.
        """
        ends = [*(since for _, since in self.names[1:]), self.ended_at or until]
        return [(name, since, end) for (name, since), end in zip(self.names, ends, strict=True)]


@dataclass(slots=True)
class TableLineages:
    """Follow tables through the statements of a range.

    Args:
        by_name: The existing tables, by name.
        lineages: All tables that existed in the range.
    """

    by_name: dict[TableId, TableLineage] = field(default_factory=dict)
    lineages: list[TableLineage] = field(default_factory=list)

    @classmethod
    def of(cls, names: Iterable[TableId]) -> TableLineages:
        """Return lineages that begin with the tables of these names."""
        lineages = cls()
        for name in names:
            lineages._add_name(name, TableLineage([(name, START)], is_initial=True))
        return lineages

    def _add_name(self, name: TableId, lineage: TableLineage) -> None:
        self.by_name[name] = lineage
        if lineage not in self.lineages:
            self.lineages.append(lineage)

    def _remove_name(self, name: TableId) -> TableLineage:
        """Remove a name and return its table; a new lineage if the name was unknown."""
        return self.by_name.pop(name, None) or TableLineage([(name, START)])

    def apply(self, effect: Effect, position: FilePosition, sql: str = "") -> None:
        """Apply the effect of one statement.

        Args:
            effect: The effect.
            position: The position at which the statement ends.
            sql: Its text, for error messages.
        """
        table = effect.table
        if effect.kind == "create":
            if not (effect.unless_exists and table in self.by_name):
                self._end(table, position)
                self._add_name(table, TableLineage([(table, position)], created=True))
        elif effect.kind == "drop":
            self._end(table, position)
        elif effect.kind == "truncate":
            self._end(table, position)
            self._add_name(table, TableLineage([(table, position)], created=True))
        elif effect.kind == "drop database":
            for name in [n for n in self.by_name if n.db == table.db]:
                self._end(name, position)
        elif effect.kind == "rows":
            if (lineage := self.by_name.get(table)) is not None:
                lineage.rows_moved_by = lineage.rows_moved_by or sql
        elif effect.new_name is not None:
            lineage = self._remove_name(table)
            lineage.names.append((effect.new_name, position))
            self._add_name(effect.new_name, lineage)

    def _end(self, name: TableId, position: FilePosition) -> None:
        if (lineage := self.by_name.pop(name, None)) is not None:
            lineage.ended_at = position
