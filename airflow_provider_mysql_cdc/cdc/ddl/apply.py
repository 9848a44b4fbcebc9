"""Apply statements to table structures: pure, ``(SchemaState, SQL) -> (SchemaState, changes)``.

Source: SCH-01, SCH-23, SCH-37 to SCH-40.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from airflow_provider_mysql_cdc.cdc.ddl.alter_table import (
    TableStructure,
    alter_structure,
    copy_structure,
    create_structure,
)
from airflow_provider_mysql_cdc.cdc.ddl.classify import (
    CapturePredicate,
    classify_ddl,
    dropped_views,
    full_name,
    is_temporary,
)
from airflow_provider_mysql_cdc.cdc.ddl.create_cache import StructureCache, match_drop_table, split_create_table
from airflow_provider_mysql_cdc.cdc.ddl.lexer import NameParts
from airflow_provider_mysql_cdc.cdc.ddl.parse import is_ddl, parse_statement, rows_as_text, split_statements
from airflow_provider_mysql_cdc.cdc.ddl.resolve import resolve_charset, resolve_clauses
from airflow_provider_mysql_cdc.cdc.ddl.state import (
    SERVER_DEFAULTS,
    DdlContext,
    DefaultCharset,
    SchemaState,
    UnparsedTable,
)
from airflow_provider_mysql_cdc.cdc.ddl.statements import (
    AddKey,
    AlterTable,
    CreateTable,
    DatabaseStatement,
    DdlKeyKind,
    DropTables,
    RenameTables,
    RenameTo,
    SetServerCharset,
    TruncateTable,
    UseDatabase,
)
from airflow_provider_mysql_cdc.cdc.errors import DdlParseError
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId, folded_name

_STRUCTURE_CACHE = StructureCache()
ChangeKind = Literal["CREATE", "ALTER", "DROP", "TRUNCATE", "RENAME", "INDEX", "DATABASE", "VIEW", "NONE"]
"""What happened; INDEX is CREATE or DROP INDEX, but ALTER when a unique one may give a table its key, VIEW is CREATE or
ALTER VIEW, and NONE a CREATE TABLE IF NOT EXISTS of a table that exists."""


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
class DdlResult:
    """Hold the result of a statement.

    Args:
        state: Structures after it; the same object as before when nothing changed.
        changes: What it did, in order.
        kind: "ignored" when the statement is no matter of structures.
        skipped: Why the statement was not understood, if it was skipped as the configuration says; otherwise empty.
    """

    state: SchemaState
    changes: tuple[TableChange, ...]
    kind: Literal["ignored", "applied"]
    skipped: str = ""


def apply_ddl(state: SchemaState, sql: str, context: DdlContext, captures: CapturePredicate | None = None) -> DdlResult:
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
    cached = _apply_cached(state, sql, context)
    if cached is not None:
        return cached
    if not is_ddl(sql, context.sql_mode):
        return DdlResult(state.without_tables(*dropped_views(sql, context)), (), "ignored")
    try:
        return _apply_statements(state, sql, context)
    except DdlParseError:
        if captures is None:
            raise
        relevance = classify_ddl(sql, context, captures)
        if relevance.relevant:
            raise
        return DdlResult(state.without_tables(*relevance.tables), (), "ignored")


def _apply_cached(state: SchemaState, sql: str, context: DdlContext) -> DdlResult | None:
    """Apply a CREATE TABLE statement that was read before, for a table of another name, or a DROP TABLE of one table.

    Returns:
        What it does; None when it is another statement.
    """
    if context.temporary:
        return None
    if (drop := match_drop_table(sql)) is not None:
        step = _StatementStep(state, sql, context)
        return DdlResult(_apply_drop(step, DropTables((drop[0],), if_exists=drop[1])), tuple(step.changes), "applied")
    create = split_create_table(sql)
    if create is None:
        return None
    step = _StatementStep(state, sql, context)
    table_id = step.table_id(create[0])
    structure = _STRUCTURE_CACHE.find(create[1], context, state.defaults_of(table_id.db, context), table_id)
    if structure is None:
        return None
    step.add_change("CREATE", table_id, structure[0])
    return DdlResult(state.with_table(*structure), tuple(step.changes), "applied")


def _apply_statements(state: SchemaState, sql: str, context: DdlContext) -> DdlResult:
    changes: list[TableChange] = []
    relevant = False
    for text, tokens in split_statements(sql, context.sql_mode):
        statement = parse_statement(sql, tokens, context.sql_mode)
        if statement is None:
            continue
        if isinstance(statement, UseDatabase):
            context = replace(context, default_db=statement.name)
            continue
        if context.temporary and is_temporary(statement, tokens, context, _target_table(state, statement, context)):
            continue
        step = _StatementStep(state, text, context)
        state = _APPLIERS[type(statement)](step, statement)
        changes.extend(step.changes)
        relevant = True
    return DdlResult(state, tuple(changes), "applied" if relevant else "ignored")


def _target_table(state: SchemaState, statement: Any, context: DdlContext) -> Table | None:
    """Return the table of the name in ALTER TABLE or TRUNCATE TABLE, when its structure is known."""
    if not isinstance(statement, AlterTable | TruncateTable):
        return None
    return state.tables.get(state.stored_name(full_name(statement.name, context), context))


class _StatementStep:
    """Hold one statement's surroundings and collect its changes."""

    def __init__(self, state: SchemaState, text: str, context: DdlContext) -> None:
        self.state, self.text, self.context = state, text, context
        self.changes: list[TableChange] = []

    def table_id(self, name: NameParts) -> TableId:
        """Return the full name of a table."""
        return self.state.stored_name(full_name(name, self.context), self.context)

    def add_change(
        self,
        kind: ChangeKind,
        table_id: TableId,
        table: Table | None,
        previous: TableId | None = None,
        text: str | None = None,
    ) -> None:
        """Note a change of a table."""
        self.changes.append(TableChange(kind, table_id, previous, table, text or self.text, table_id.db))

    def structure(self, table_id: TableId) -> TableStructure | None:
        """Return a table's structure before the statement, or None when it is not known."""
        unread = self.state.unparsed.get(table_id)
        if unread is not None:
            return _parse_structure(self.state, table_id, unread)
        table = self.state.tables.get(table_id)
        return None if table is None else (table, self.state.non_unique_indexes.get(table_id, ()))


def _parse_structure(state: SchemaState, table_id: TableId, unread: UnparsedTable) -> TableStructure | None:
    """Return the structure that a CREATE TABLE statement describes; None when it is not understood."""
    empty = SchemaState(database_defaults=state.database_defaults, server_defaults=state.server_defaults)
    try:
        parsed = _apply_statements(empty, unread.sql, unread.context).state
    except DdlParseError:
        return None
    table = next(iter(parsed.tables.values()), None)
    return None if table is None else (replace(table, id=table_id), parsed.non_unique_indexes.get(table.id, ()))


def _apply_create(step: _StatementStep, statement: CreateTable) -> SchemaState:
    state, context = step.state, step.context
    table_id = step.table_id(statement.name)
    # The server logs it as an atomic change only if it created the table: what was known of the name was no table.
    # It accepts one without columns only of a name that a table or view has (error 4028 otherwise, 9.7.4).
    is_bare = statement.like is None and not statement.columns and not statement.selects
    if is_bare or (statement.if_not_exists and not context.atomic and _exists(step, table_id, statement)):
        step.add_change("NONE", table_id, None)
        return state
    if statement.selects:
        raise rows_as_text()
    if statement.like is not None:
        # The structure of a temporary table is not known. With binlog_format=ROW the server writes it out.
        source = None if context.temporary else step.structure(step.table_id(statement.like))
        if source is None:
            step.add_change("CREATE", table_id, None)
            return state.without_tables(table_id)
        table, non_unique_indexes = copy_structure(source, table_id)
    else:
        defaults = state.defaults_of(table_id.db, context)
        table, non_unique_indexes = create_structure(statement, table_id, defaults, context)
        if not (statement.if_not_exists or context.temporary):
            _STRUCTURE_CACHE.store(step.text, context, defaults, (table, non_unique_indexes))
    step.add_change("CREATE", table_id, table)
    return state.with_table(table, non_unique_indexes)


def _exists(step: _StatementStep, table_id: TableId, statement: CreateTable) -> bool:
    """Return whether CREATE TABLE IF NOT EXISTS that is no atomic change met a table, which may not be known here."""
    template = None if statement.like is None else step.structure(step.table_id(statement.like))
    engine = statement.options.engine or (template[0].engine if template is not None else None) or "InnoDB"
    # CREATE TABLE ... SELECT, which the server writes out, has no mark (9.7.4).
    has_no_mark = step.context.temporary or step.context.server_layout or engine.upper() != "INNODB"
    return step.state.has_table(table_id) or (step.context.marks_atomic and not has_no_mark)


def _apply_alter(step: _StatementStep, statement: AlterTable) -> SchemaState:
    state, context = step.state, step.context
    table_id = step.table_id(statement.name)
    # Of several new names the last one counts (MySQL 9.7.4).
    target = [table_id, *(step.table_id(a.name) for a in statement.actions if isinstance(a, RenameTo))][-1]
    source = step.structure(table_id)
    kind: ChangeKind = "INDEX" if statement.index_only else "ALTER" if target == table_id else "RENAME"
    previous = None if target == table_id else table_id
    if statement.index_only and source is not None and _may_become_key(source[0], statement):
        kind = "ALTER"
    if source is None:
        step.add_change(kind, target, None, previous)
        return state.without_tables(target)
    table, plain = alter_structure(source, statement, state.defaults_of(table_id.db, context), context)
    table = replace(table, id=target)
    step.add_change(kind, target, table, previous)
    if previous is not None:
        state = state.without_tables(previous)
    return state.with_table(table, plain)


def _may_become_key(table: Table, statement: AlterTable) -> bool:
    """Return whether CREATE UNIQUE INDEX of columns is about a table whose events have no key so far."""
    keys = [a.key for a in statement.actions if isinstance(a, AddKey)]
    unique = any(k.kind is DdlKeyKind.UNIQUE and all(p.column is not None for p in k.parts) for k in keys)
    return unique and not table.key_columns()


def _apply_drop(step: _StatementStep, statement: DropTables) -> SchemaState:
    prefix = "DROP TABLE IF EXISTS" if statement.if_exists else "DROP TABLE"
    ids = [step.table_id(name) for name in statement.names]
    for table_id in ids:
        step.add_change("DROP", table_id, None, text=f"{prefix} {table_id.quoted()}")
    return step.state.without_tables(*ids)


def _apply_rename(step: _StatementStep, statement: RenameTables) -> SchemaState:
    moves: list[tuple[TableId, TableId, str]] = []
    for (old, new), text in zip(statement.pairs, statement.texts, strict=True):
        before, after = step.table_id(old), step.table_id(new)
        source = step.structure(before)
        step.state = step.state.without_tables(before, after)
        if source is not None:
            step.state = step.state.with_table(replace(source[0], id=after), source[1])
        moves.append((before, after, text))
    for before, after, text in moves:
        step.add_change("RENAME", after, step.state.tables.get(after), before, text)
    return step.state


def _apply_truncate(step: _StatementStep, statement: TruncateTable) -> SchemaState:
    table_id = step.table_id(statement.name)
    source = step.structure(table_id)
    step.add_change("TRUNCATE", table_id, source[0] if source else None)
    return step.state


def _apply_database(step: _StatementStep, statement: DatabaseStatement) -> SchemaState:
    state, context = step.state, step.context
    name = statement.name or context.default_db
    name = folded_name(name) if context.lower_case_table_names == 1 else name
    step.changes.append(TableChange("DATABASE", None, None, None, step.text, name))
    if statement.verb == "DROP":
        return state.without_database(name)
    current = state.database_defaults.get(name)
    if statement.verb == "CREATE" and current is not None and statement.if_not_exists:
        return state
    server = context.server_defaults(state.server_defaults)
    base = current if statement.verb == "ALTER" and current and statement.charset != "" else server
    return state.with_database(name, resolve_clauses(statement, base, context))


def _apply_server(step: _StatementStep, statement: SetServerCharset) -> SchemaState:
    defaults = resolve_charset(statement.charset, statement.collation, SERVER_DEFAULTS, step.context)
    return step.state.with_server_defaults(DefaultCharset(defaults.charset, defaults.collation))


_APPLIERS: dict[type[Any], Callable[[_StatementStep, Any], SchemaState]] = {
    CreateTable: _apply_create,
    AlterTable: _apply_alter,
    DropTables: _apply_drop,
    RenameTables: _apply_rename,
    TruncateTable: _apply_truncate,
    DatabaseStatement: _apply_database,
    SetServerCharset: _apply_server,
}
