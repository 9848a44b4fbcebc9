"""What statements do to the names of tables: pure, from a statement's text to the tables behind the names.

A name says little about a table: it is dropped and created again, renamed, swapped with another. Whoever has read a
part of a table before such a statement has to know which table stands behind the name afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from airflow_provider_mysql_cdc.cdc.ddl.classify import full_name
from airflow_provider_mysql_cdc.cdc.ddl.cursor import NameParts
from airflow_provider_mysql_cdc.cdc.ddl.parse import Part, leads_to_ddl, parse, split
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext
from airflow_provider_mysql_cdc.cdc.ddl.statements import (
    AlterTable,
    CreateTable,
    DatabaseStatement,
    DropTables,
    RenameTables,
    RenameTo,
    Statement,
    TruncateTable,
    UseDatabase,
)
from airflow_provider_mysql_cdc.cdc.ddl.temporary import is_temporary
from airflow_provider_mysql_cdc.cdc.model.table import TableId

EffectKind = Literal["create", "drop", "truncate", "rename", "rows", "drop database"]
Place = tuple[int, int]
START: Place = (-1, -1)


@dataclass(frozen=True, slots=True)
class Effect:
    """Describe what a statement does to one table as a whole.

    Args:
        kind: ``rows`` stands for EXCHANGE PARTITION and tablespaces: rows come and go without row events.
        table: The table; of a rename, its former name; without a table's name for ``drop database``.
        other: The new name of a rename.
        unless_exists: CREATE TABLE IF NOT EXISTS.
    """

    kind: EffectKind
    table: TableId
    other: TableId | None = None
    unless_exists: bool = False


def effects(sql: str, context: DdlContext) -> tuple[Effect, ...]:
    """Return what a statement does to tables as wholes; nothing for changes inside a table.

    Args:
        sql: Statement text.
        context: Its session.

    Raises:
        DdlParseError: It is about tables and not understood.
    """
    if not leads_to_ddl(sql, context.sql_mode):
        return ()
    found: list[Effect] = []
    for part in split(sql, context.sql_mode):
        statement = parse(sql, part[1], context.sql_mode)
        if isinstance(statement, UseDatabase):
            context = replace(context, default_db=statement.name)
        elif not is_temporary(statement, part[1], context):
            found.extend(_effects(statement, part, context))
    return tuple(found)


def _effects(statement: Statement | None, part: Part, context: DdlContext) -> list[Effect]:
    def name(parts: NameParts) -> TableId:
        return full_name(parts, context)

    if isinstance(statement, CreateTable):
        return [Effect("create", name(statement.name), unless_exists=statement.if_not_exists)]
    if isinstance(statement, DropTables):
        return [Effect("drop", name(n)) for n in statement.names]
    if isinstance(statement, TruncateTable):
        return [Effect("truncate", name(statement.name))]
    if isinstance(statement, RenameTables):
        return [Effect("rename", name(old), name(new)) for old, new in statement.pairs]
    if isinstance(statement, DatabaseStatement) and statement.verb == "DROP":
        db = statement.name or context.default_db
        return [Effect("drop database", TableId(db.lower() if context.lower_case_table_names == 1 else db, ""))]
    if not isinstance(statement, AlterTable):
        return []
    table = name(statement.name)
    words = {token.upper for token in part[1]}
    moved = [Effect("rows", name(n)) for n in statement.others]
    if moved or ("TABLESPACE" in words and words & {"DISCARD", "IMPORT"}):
        moved.append(Effect("rows", table))
    return [*moved, *(Effect("rename", table, name(a.name)) for a in statement.actions if isinstance(a, RenameTo))]


@dataclass(slots=True, eq=False)
class Life:
    """Follow one table, whatever it is called.

    Args:
        names: Its names, each with the place since which it holds; the last one is its name now, or at its end.
        known: Whether it stood at the beginning under a name that was given then.
        created: Whether a statement of the range created it.
        ended: Place of the statement that took it away, or None. TRUNCATE makes another table of the same name.
        rows_moved: The first statement by which rows came or went without row events, or None.
    """

    names: list[tuple[TableId, Place]]
    known: bool = False
    created: bool = False
    ended: Place | None = None
    rows_moved: str | None = None

    @property
    def name(self) -> TableId:
        """Return its name now, or at its end."""
        return self.names[-1][0]

    def spans(self, until: Place) -> list[tuple[TableId, Place, Place]]:
        """Return each of its names with the places after which and up to which it held.

        Args:
            until: The end of the range.
        """
        ends = [*(since for _, since in self.names[1:]), self.ended or until]
        return [(name, since, end) for (name, since), end in zip(self.names, ends, strict=True)]


@dataclass(slots=True)
class TableLives:
    """Follow tables through the statements of a range.

    Args:
        present: The tables that stand now, by name.
        lives: All tables that were seen.
    """

    present: dict[TableId, Life] = field(default_factory=dict)
    lives: list[Life] = field(default_factory=list)

    @classmethod
    def of(cls, names: Iterable[TableId]) -> TableLives:
        """Begin with the tables of these names."""
        lives = cls()
        for name in names:
            lives._enter(name, Life([(name, START)], known=True))
        return lives

    def _enter(self, name: TableId, life: Life) -> None:
        self.present[name] = life
        if life not in self.lives:
            self.lives.append(life)

    def _leave(self, name: TableId) -> Life:
        """Take the table behind a name away from it; one that was not known is called a stranger."""
        return self.present.pop(name, None) or Life([(name, START)])

    def apply(self, effect: Effect, place: Place, sql: str = "") -> None:
        """Go on by one statement's effect.

        Args:
            effect: The effect.
            place: Where the statement ends.
            sql: Its text, for the log.
        """
        table = effect.table
        if effect.kind == "create":
            if not (effect.unless_exists and table in self.present):
                self._end(table, place)
                self._enter(table, Life([(table, place)], created=True))
        elif effect.kind == "drop":
            self._end(table, place)
        elif effect.kind == "truncate":
            self._end(table, place)
            self._enter(table, Life([(table, place)], created=True))
        elif effect.kind == "drop database":
            for name in [n for n in self.present if n.db == table.db]:
                self._end(name, place)
        elif effect.kind == "rows":
            if (life := self.present.get(table)) is not None:
                life.rows_moved = life.rows_moved or sql
        elif effect.other is not None:
            life = self._leave(table)
            life.names.append((effect.other, place))
            self._enter(effect.other, life)

    def _end(self, name: TableId, place: Place) -> None:
        if (life := self.present.pop(name, None)) is not None:
            life.ended = place
