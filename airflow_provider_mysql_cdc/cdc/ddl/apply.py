"""Apply statements to table structures: pure, ``(SchemaState, SQL) -> (SchemaState, changes)``.

Source: SCH-01, SCH-23, SCH-37 to SCH-40.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from airflow_provider_mysql_cdc.cdc.ddl.alter_table import Structure, altered, copied, created
from airflow_provider_mysql_cdc.cdc.ddl.classify import Captures, classify, full_name
from airflow_provider_mysql_cdc.cdc.ddl.create_cache import Structures, behind_name, dropped
from airflow_provider_mysql_cdc.cdc.ddl.cursor import NameParts
from airflow_provider_mysql_cdc.cdc.ddl.parse import leads_to_ddl, parse, split
from airflow_provider_mysql_cdc.cdc.ddl.resolve import pick_charset
from airflow_provider_mysql_cdc.cdc.ddl.state import SERVER_DEFAULTS, DbDefaults, DdlContext, SchemaState, Unread
from airflow_provider_mysql_cdc.cdc.ddl.statements import (
    AddKey,
    AlterTable,
    CreateTable,
    DatabaseStatement,
    DropTables,
    KeyKind,
    RenameTables,
    RenameTo,
    SetServer,
    TruncateTable,
    UseDatabase,
)
from airflow_provider_mysql_cdc.cdc.ddl.temporary import is_temporary
from airflow_provider_mysql_cdc.cdc.errors import DdlParseError
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId

_MADE = Structures()
ChangeKind = Literal["CREATE", "ALTER", "DROP", "TRUNCATE", "RENAME", "INDEX", "DATABASE", "NONE"]
"""What happened; INDEX is CREATE or DROP INDEX, but ALTER when a unique one may give a table its key, and NONE a CREATE
TABLE IF NOT EXISTS of a table that exists."""


@dataclass(frozen=True, slots=True)
class TableChange:
    """Describe what a statement did to one table or database.

    Args:
        kind: What happened.
        id: The table, by its new name; None for a database.
        previous_id: Its name before a rename.
        table: Its structure after the statement; None when it is gone, when its structure is not known, or when a later
            part of the same statement moved it on.
        ddl: The statement's text, without comments around it; one table's share of DROP TABLE and RENAME TABLE.
        db: The database the change belongs to.
    """

    kind: ChangeKind
    id: TableId | None
    previous_id: TableId | None
    table: Table | None
    ddl: str
    db: str

    @property
    def listed(self) -> bool:
        """Whether ``tableChanges`` of a schema change record has an entry for it."""
        return self.kind == "DROP" or (self.kind in ("CREATE", "ALTER", "RENAME") and self.table is not None)


@dataclass(frozen=True, slots=True)
class Applied:
    """Hold the result of a statement.

    Args:
        state: Structures after it; the same object as before when nothing changed.
        changes: What it did, in order.
        kind: "ignored" when the statement is no matter of structures.
    """

    state: SchemaState
    changes: tuple[TableChange, ...]
    kind: Literal["ignored", "applied"]


def apply(state: SchemaState, sql: str, context: DdlContext, captures: Captures | None = None) -> Applied:
    """Apply one statement, or several separated by semicolons.

    A table whose structure is not known stays unknown under ALTER and RENAME: whoever meets its rows must stop.

    Args:
        state: Structures before.
        sql: Statement text.
        context: Session context of the statement.
        captures: Which tables matter; None means all. A statement that is not understood and touches none of them
            makes the tables it touches unknown instead of stopping.

    Raises:
        DdlParseError: A statement that can change a table's structure was not understood (FAULT-15).
    """
    again = _made_again(state, sql, context)
    if again is not None:
        return again
    if not leads_to_ddl(sql, context.sql_mode):
        return Applied(state, (), "ignored")
    try:
        return _apply_all(state, sql, context)
    except DdlParseError:
        if captures is None:
            raise
        relevance = classify(sql, context, captures)
        if relevance.relevant:
            raise
        return Applied(state.without_tables(*relevance.tables), (), "ignored")


def _made_again(state: SchemaState, sql: str, context: DdlContext) -> Applied | None:
    """Apply a CREATE TABLE statement that was read before, for a table of another name, or a DROP TABLE of one table.

    Returns:
        What it does; None when it is another statement.
    """
    if context.temporary:
        return None
    if (gone := dropped(sql)) is not None:
        step = _Step(state, sql, context)
        return Applied(_drop(step, DropTables((gone[0],), if_exists=gone[1])), tuple(step.changes), "applied")
    head = behind_name(sql)
    if head is None:
        return None
    step = _Step(state, sql, context)
    table_id = step.id(head[0])
    made = _MADE.find(head[1], context, state.defaults_of(table_id.db, context), table_id)
    if made is None:
        return None
    step.add("CREATE", table_id, made[0])
    return Applied(state.with_table(*made), tuple(step.changes), "applied")


def _apply_all(state: SchemaState, sql: str, context: DdlContext) -> Applied:
    changes: list[TableChange] = []
    relevant = False
    for text, tokens in split(sql, context.sql_mode):
        statement = parse(sql, tokens, context.sql_mode)
        if statement is None:
            continue
        if isinstance(statement, UseDatabase):
            context = replace(context, default_db=statement.name)
            continue
        if context.temporary and is_temporary(statement, tokens, context, _meant(state, statement, context)):
            continue
        step = _Step(state, text, context)
        state = _APPLIERS[type(statement)](step, statement)
        changes.extend(step.changes)
        relevant = True
    return Applied(state, tuple(changes), "applied" if relevant else "ignored")


def _meant(state: SchemaState, statement: Any, context: DdlContext) -> Table | None:
    """Return the table of the name in ALTER TABLE or TRUNCATE TABLE, when its structure is known."""
    if not isinstance(statement, AlterTable | TruncateTable):
        return None
    return state.tables.get(state.resolve(full_name(statement.name, context), context))


class _Step:
    """Hold one statement's surroundings and collect its changes."""

    def __init__(self, state: SchemaState, text: str, context: DdlContext) -> None:
        self.state, self.text, self.context = state, text, context
        self.changes: list[TableChange] = []

    def id(self, name: NameParts) -> TableId:
        """Return the full name of a table."""
        return self.state.resolve(full_name(name, self.context), self.context)

    def add(
        self,
        kind: ChangeKind,
        table_id: TableId,
        table: Table | None,
        previous: TableId | None = None,
        text: str | None = None,
    ) -> None:
        """Note a change of a table."""
        self.changes.append(TableChange(kind, table_id, previous, table, text or self.text, table_id.db))

    def structure(self, table_id: TableId) -> Structure | None:
        """Return a table's structure before the statement, or None when it is not known."""
        unread = self.state.unread.get(table_id)
        if unread is not None:
            return _read(self.state, table_id, unread)
        table = self.state.tables.get(table_id)
        return None if table is None else (table, self.state.plain_keys.get(table_id, ()))


def _read(state: SchemaState, table_id: TableId, unread: Unread) -> Structure | None:
    """Return the structure that a CREATE TABLE statement describes; None when it is not understood."""
    empty = SchemaState(databases=state.databases, server=state.server)
    try:
        read = _apply_all(empty, unread.sql, unread.context).state
    except DdlParseError:
        return None
    table = next(iter(read.tables.values()), None)
    return None if table is None else (replace(table, id=table_id), read.plain_keys.get(table.id, ()))


def _create(step: _Step, statement: CreateTable) -> SchemaState:
    state, context = step.state, step.context
    table_id = step.id(statement.name)
    if statement.if_not_exists and state.knows(table_id):
        step.add("NONE", table_id, None)
        return state
    if statement.like is not None:
        # The structure of a temporary table is not known. With binlog_format=ROW the server writes it out.
        source = None if context.temporary else step.structure(step.id(statement.like))
        if source is None:
            step.add("CREATE", table_id, None)
            return state.without_tables(table_id)
        table, plain = copied(source, table_id)
    else:
        defaults = state.defaults_of(table_id.db, context)
        table, plain = created(statement, table_id, defaults, context)
        if not (statement.if_not_exists or context.temporary):
            _MADE.remember(step.text, context, defaults, (table, plain))
    step.add("CREATE", table_id, table)
    return state.with_table(table, plain)


def _alter(step: _Step, statement: AlterTable) -> SchemaState:
    state, context = step.state, step.context
    table_id = step.id(statement.name)
    target = next((step.id(a.name) for a in statement.actions if isinstance(a, RenameTo)), table_id)
    if len([a for a in statement.actions if isinstance(a, RenameTo)]) > 1:
        raise DdlParseError("a statement renames a table twice", where=str(table_id))
    source = step.structure(table_id)
    kind: ChangeKind = "INDEX" if statement.index_only else "ALTER" if target == table_id else "RENAME"
    previous = None if target == table_id else table_id
    if statement.index_only and source is not None and _may_be_key(source[0], statement):
        kind = "ALTER"
    if source is None:
        step.add(kind, target, None, previous)
        return state.without_tables(target)
    table, plain = altered(source, statement, state.defaults_of(table_id.db, context), context)
    table = replace(table, id=target)
    step.add(kind, target, table, previous)
    if previous is not None:
        state = state.without_tables(previous)
    return state.with_table(table, plain)


def _may_be_key(table: Table, statement: AlterTable) -> bool:
    """Return whether CREATE UNIQUE INDEX of columns is about a table whose events have no key so far."""
    keys = [a.key for a in statement.actions if isinstance(a, AddKey)]
    unique = any(k.kind is KeyKind.UNIQUE and all(p.column is not None for p in k.parts) for k in keys)
    return unique and not table.key_columns()


def _drop(step: _Step, statement: DropTables) -> SchemaState:
    head = "DROP TABLE IF EXISTS" if statement.if_exists else "DROP TABLE"
    ids = [step.id(name) for name in statement.names]
    for table_id in ids:
        step.add("DROP", table_id, None, text=f"{head} {table_id.quoted()}")
    return step.state.without_tables(*ids)


def _rename(step: _Step, statement: RenameTables) -> SchemaState:
    moves: list[tuple[TableId, TableId, str]] = []
    for (old, new), text in zip(statement.pairs, statement.texts, strict=True):
        before, after = step.id(old), step.id(new)
        source = step.structure(before)
        step.state = step.state.without_tables(before, after)
        if source is not None:
            step.state = step.state.with_table(replace(source[0], id=after), source[1])
        moves.append((before, after, text))
    for before, after, text in moves:
        step.add("RENAME", after, step.state.tables.get(after), before, text)
    return step.state


def _truncate(step: _Step, statement: TruncateTable) -> SchemaState:
    table_id = step.id(statement.name)
    source = step.structure(table_id)
    step.add("TRUNCATE", table_id, source[0] if source else None)
    return step.state


def _database(step: _Step, statement: DatabaseStatement) -> SchemaState:
    state, context = step.state, step.context
    name = statement.name or context.default_db
    name = name.lower() if context.lower_case_table_names == 1 else name
    step.changes.append(TableChange("DATABASE", None, None, None, step.text, name))
    if statement.verb == "DROP":
        return state.without_database(name)
    known = state.databases.get(name)
    if statement.verb == "CREATE" and known is not None and statement.if_not_exists:
        return state
    server = context.server_defaults(state.server)
    base = known if statement.verb == "ALTER" and known and statement.charset != "" else server
    return state.with_database(name, pick_charset(statement.charset, statement.collation, base, context))


def _server(step: _Step, statement: SetServer) -> SchemaState:
    defaults = pick_charset(statement.charset, statement.collation, SERVER_DEFAULTS, step.context)
    return step.state.with_server(DbDefaults(defaults.charset, defaults.collation))


_APPLIERS: dict[type[Any], Callable[[_Step, Any], SchemaState]] = {
    CreateTable: _create,
    AlterTable: _alter,
    DropTables: _drop,
    RenameTables: _rename,
    TruncateTable: _truncate,
    DatabaseStatement: _database,
    SetServer: _server,
}
