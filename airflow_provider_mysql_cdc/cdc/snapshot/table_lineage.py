"""What statements do to tables as a whole, and which of them lie between two positions of the binlog.

What statements do to tables as a whole: create, drop, truncate, rename, or change rows without row events.

A name does not identify a table: tables are dropped and created again, renamed, and swapped. A snapshot that has read
part of a table before such a statement has to know which table has the name afterwards. All functions are pure
functions of the statements' text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.query import parse_query
from airflow_provider_mysql_cdc.cdc.binlog.scan import BinlogScan
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.classify import classify_ddl, full_name, is_temporary
from airflow_provider_mysql_cdc.cdc.ddl.lexer import NameParts, Token
from airflow_provider_mysql_cdc.cdc.ddl.parse import StatementText, is_ddl, parse_statement, split_statements
from airflow_provider_mysql_cdc.cdc.ddl.resolve import resolve_columns
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext, DefaultCharset
from airflow_provider_mysql_cdc.cdc.ddl.statements import (
    AddColumn,
    AddKey,
    AlterAction,
    AlterTable,
    ChangeColumn,
    ColumnSpec,
    CreateTable,
    DatabaseStatement,
    DdlKeyKind,
    DropKey,
    DropTables,
    ParsedStatement,
    RenameColumn,
    RenameKey,
    RenameTables,
    RenameTo,
    SetDefault,
    SetOptions,
    SetVisible,
    TruncateTable,
    UseDatabase,
)
from airflow_provider_mysql_cdc.cdc.errors import DdlParseError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, compare_offsets
from airflow_provider_mysql_cdc.cdc.model.table import TableId, folded_name

_ANY_CHARSET = DefaultCharset("utf8mb4", "utf8mb4_0900_ai_ci")
"""Stands for the table's own: only whether a column has a default is looked at."""
EffectKind = Literal[
    "create", "drop", "truncate", "rename", "rows", "partition rows", "filled", "structure", "drop database"
]


@dataclass(frozen=True, slots=True)
class Effect:
    """Describe the effect of a statement on one table as a whole.

    Args:
        kind: ``rows`` stands for EXCHANGE PARTITION and tablespaces, which add and remove rows without row events;
            ``partition rows`` for DROP and TRUNCATE PARTITION, which only remove them; ``filled`` for columns that are
            added with values which no event tells; ``structure`` for a change of columns or of the primary key, which
            may change values without row events.
        table: The table; for a rename its old name; for ``drop database`` the database with an empty table name.
        new_name: The new name of a rename.
        unless_exists: Whether it is CREATE TABLE IF NOT EXISTS.
        columns: The columns that are filled.
    """

    kind: EffectKind
    table: TableId
    new_name: TableId | None = None
    unless_exists: bool = False
    columns: tuple[str, ...] = ()


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
        return [Effect("drop database", TableId(folded_name(db) if context.lower_case_table_names == 1 else db, ""))]
    if not isinstance(statement, AlterTable):
        return []
    table = qualified_name(statement.name)
    keywords = {token.upper for token in part[1]}
    row_effects = [Effect("rows", qualified_name(n)) for n in statement.exchanged_tables]
    if row_effects or ("TABLESPACE" in keywords and keywords & {"DISCARD", "IMPORT"}):
        row_effects.append(Effect("rows", table))
    elif _removes_partitions(part[1]):
        row_effects.append(Effect("partition rows", table))
    added = [a.spec for a in statement.actions if isinstance(a, AddColumn)]
    if filled := tuple(spec.name for spec in added if not _has_known_default(spec, context)):
        row_effects.append(Effect("filled", table, columns=filled))
    if any(not _keeps_values(action, context) for action in statement.actions):
        row_effects.append(Effect("structure", table))
    return [
        *row_effects,
        *(Effect("rename", table, qualified_name(a.name)) for a in statement.actions if isinstance(a, RenameTo)),
    ]


def _removes_partitions(tokens: Sequence[Token]) -> bool:
    """Return whether ALTER TABLE has DROP PARTITION or TRUNCATE PARTITION; a column of this name is in backticks."""
    return any(verb.upper in ("DROP", "TRUNCATE") and noun.upper == "PARTITION" for verb, noun in pairwise(tokens))


# Actions that change no value and no key of the rows that a table has.
_NEUTRAL_ACTIONS = (SetDefault, SetVisible, RenameKey, RenameTo, SetOptions)


def _keeps_values(action: AlterAction, context: DdlContext) -> bool:
    """Return whether an action leaves the values and the primary key of a table's rows as they are.

    Source: MySQL manual, "ALTER TABLE Statement". A column that is added at the end is in no event and no row that was
    read before it. Where it has a literal or NULL as default, a consumer knows its value in these rows from the schema
    change. All others are computed for each row, and no event tells them: AUTO_INCREMENT, CURRENT_TIMESTAMP and other
    expressions, generated columns, and what NOT NULL without a default is filled with.
    """
    if isinstance(action, AddColumn):
        return action.position is None and _has_known_default(action.spec, context)
    if isinstance(action, AddKey):
        return action.key.kind is not DdlKeyKind.PRIMARY
    if isinstance(action, DropKey):
        return action.name.upper() != "PRIMARY"
    return isinstance(action, _NEUTRAL_ACTIONS)


def _has_known_default(spec: ColumnSpec, context: DdlContext) -> bool:
    try:
        (column,) = resolve_columns([spec], _ANY_CHARSET, context)
    except DdlParseError:  # its default may be no literal of this character set
        return False
    return column.has_known_default


def column_renames(sql: str, context: DdlContext, table: TableId) -> tuple[tuple[str, str], ...]:
    """Return new and former names of the columns of one table that a statement renames.

    Args:
        sql: Statement text.
        context: Its session settings.
        table: The table, as it is called before or after the statement.

    Raises:
        DdlParseError: The statement is DDL and cannot be parsed.
    """
    return tuple(pair for a in _actions_on(sql, context, table) if (pair := _rename(a)) is not None)


def column_origins(sql: str, context: DdlContext, table: TableId) -> dict[str, str | None]:
    """Return the former names of the columns that a statement defines or renames, None for one that it adds.

    They are by their new names in lower case (``folded_name``). Arguments and errors as for ``column_renames``.
    """
    origins: dict[str, str | None] = {}
    for action in _actions_on(sql, context, table):
        if isinstance(action, AddColumn):
            origins[folded_name(action.spec.name)] = None
        elif (pair := _rename(action)) is not None:
            origins[folded_name(pair[0])] = pair[1]
    return origins


def _actions_on(sql: str, context: DdlContext, table: TableId) -> list[AlterAction]:
    actions: list[AlterAction] = []
    for part in split_statements(sql, context.sql_mode):
        statement = parse_statement(sql, part[1], context.sql_mode)
        if isinstance(statement, UseDatabase):
            context = replace(context, default_db=statement.name)
        elif isinstance(statement, AlterTable) and table in {full_name(n, context) for n in _names_of(statement)}:
            actions += statement.actions
    return actions


def _names_of(statement: AlterTable) -> list[NameParts]:
    return [statement.name, *(a.name for a in statement.actions if isinstance(a, RenameTo))]


def _rename(action: AlterAction) -> tuple[str, str] | None:
    if isinstance(action, RenameColumn):
        return action.new, action.old
    return (action.spec.name, action.old) if isinstance(action, ChangeColumn) else None


def names_after(names: frozenset[TableId], effects: Iterable[Effect]) -> frozenset[TableId]:
    """Return the names of the tables that exist after statements.

    Args:
        names: The names of tables that exist before them.
        effects: The effects of the statements, in order.
    """
    for effect in effects:
        names = _NAMES_AFTER.get(effect.kind, _same_names)(names, effect)
    return names


def _same_names(names: frozenset[TableId], effect: Effect) -> frozenset[TableId]:
    return names


def _with_table(names: frozenset[TableId], effect: Effect) -> frozenset[TableId]:
    return names | {effect.table}


def _without_table(names: frozenset[TableId], effect: Effect) -> frozenset[TableId]:
    return names - {effect.table}


def _without_database(names: frozenset[TableId], effect: Effect) -> frozenset[TableId]:
    return frozenset(name for name in names if name.db != effect.table.db)


def _with_new_name(names: frozenset[TableId], effect: Effect) -> frozenset[TableId]:
    return (names - {effect.table}) | ({effect.new_name} if effect.new_name is not None else set())


_NAMES_AFTER: dict[EffectKind, Callable[[frozenset[TableId], Effect], frozenset[TableId]]] = {
    "create": _with_table,
    "truncate": _with_table,
    "drop": _without_table,
    "drop database": _without_database,
    "rename": _with_new_name,
}


@dataclass(frozen=True, slots=True)
class LoggedStatement:
    """Hold one statement of the binlog.

    Args:
        sql: Its text.
        context: Its session settings.
        where: ``file:position`` of its start.
    """

    sql: str
    context: DdlContext
    where: str


def statements_between(
    cfg: ConnectorConfig, start: BinlogOffset, end: BinlogOffset, lower_case_table_names: int, server_id: int
) -> Iterator[LoggedStatement]:
    """Yield the statements between two transaction boundaries.

    Args:
        cfg: The connector's configuration.
        start: The first position.
        end: The last position.
        lower_case_table_names: The server's lower_case_table_names.
        server_id: Id to read with; one of the stream's ends the dump of a writer that lives.

    Raises:
        SourceError: The binlog cannot be read.
    """
    if compare_offsets(end, start) <= 0:
        return
    for event in BinlogScan(cfg.connection_settings(), start, end, server_id):
        if event.type == c.QUERY_EVENT:
            query = parse_query(event)
            context = DdlContext.from_query(query, lower_case_table_names=lower_case_table_names)
            yield LoggedStatement(query.sql, context, f"{event.file}:{event.start_pos}")


def tables_created_since(
    cfg: ConnectorConfig, listed: list[TableId], start: BinlogOffset, end: BinlogOffset, lower_case_table_names: int
) -> list[str]:
    """Return the captured tables that were created after the list of tables was read, and statements not parsed.

    Args:
        cfg: The connector's configuration.
        listed: The list; its tables are protected from DDL since their definitions were read.
        start: A position before the list was read.
        end: The position of the view.
        lower_case_table_names: The server's lower_case_table_names.
    """
    names, unparsed = frozenset(listed), list[str]()
    for statement in statements_between(cfg, start, end, lower_case_table_names, cfg.server_id(0)):
        try:
            names = names_after(names, statement_effects(statement.sql, statement.context))
        except DdlParseError:
            if classify_ddl(statement.sql, statement.context, cfg.captures).relevant:
                unparsed.append(f"{statement.where}: {statement.sql[:200]}")
    return sorted(str(table) for table in names.difference(listed) if cfg.captures(table)) + unparsed
