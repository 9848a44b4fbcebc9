"""Decide, without knowing any structure, whether a statement can change a captured table, a temporary one or a view.

Decide, without knowing any structure, whether a statement can change a captured table.

Statements that cannot (GRANT, CREATE USER, views, stored programs, FLUSH, temporary tables ...) are told by their
leading words alone, so that new syntax in them never stops a run.

CREATE, ALTER and DROP VIEW: what they name is no table.

CREATE TABLE IF NOT EXISTS of a view's name does nothing, but is logged like one that creates the table (MySQL 8.0.15,
9.7.4). Nobody sees the difference while the view is there: rows of a view are logged as those of its tables.

Tell statements about temporary tables from those about the tables that they hide.

A session with binlog_format=STATEMENT (with MIXED before MySQL 8.0) logs what it does to its temporary tables, in the
words of any other statement: ``TRUNCATE TABLE t`` is about the session's temporary ``t``, if it has one. The event is
marked (LOG_EVENT_THREAD_SPECIFIC_F), but so is one with CONNECTION_ID(), and every later one about a table that has
this function in a default (MySQL 9.7.4).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from airflow_provider_mysql_cdc.cdc.ddl.lexer import Cursor, NameParts, Token, TokenKind, tokenize
from airflow_provider_mysql_cdc.cdc.ddl.parse import LEADING_WORD_COUNT, is_ddl, parse_statement, split_statements
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
)
from airflow_provider_mysql_cdc.cdc.errors import DdlParseError
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId

_CONNECTION_ID = "CONNECTION_ID"


def is_temporary(
    statement: ParsedStatement | None, tokens: Sequence[Token], context: DdlContext, table: Table | None = None
) -> bool:
    """Return whether a statement is about a temporary table of its session and not about the one that it hides.

    Args:
        statement: The statement; CREATE, DROP and RENAME name temporary tables as such, or not at all.
        tokens: Its words.
        context: Its session.
        table: The table of the name, when its structure is known.
    """
    if not context.temporary or not isinstance(statement, AlterTable | TruncateTable):
        return False
    # Atomic DDL has a number; of temporary tables only TRUNCATE gets one.
    if isinstance(statement, AlterTable) and (context.atomic or any(t.upper == _CONNECTION_ID for t in tokens)):
        return False
    columns = table.columns if table is not None else ()
    return not any(c.default_is_expression and _CONNECTION_ID in (c.default or "").upper() for c in columns)


CapturePredicate = Callable[[TableId], bool]
# A stored function that changes rows is logged as SELECT of it, whatever called it: SELECT, DO, SET, EXPLAIN ANALYZE.
_DML = frozenset({"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "CALL", "WITH", "SELECT", "DO"})


@dataclass(frozen=True, slots=True)
class DdlRelevance:
    """Say whether a statement matters.

    Args:
        relevant: Whether it can change the structure of a captured table, or the character set new ones get.
        tables: The tables it names and can change; empty when none, or when they cannot be told.
        leading_words: Its leading words in upper case, for counters.
    """

    relevant: bool
    tables: tuple[TableId, ...]
    leading_words: str


def full_name(name: NameParts, context: DdlContext) -> TableId:
    """Return a table's full name: the session's database stands in for a missing one."""
    db, table = name if len(name) == 2 else (context.default_db, name[0])
    table_id = TableId(db, table)
    return table_id.folded() if context.lower_case_table_names == 1 else table_id


def in_any_case(captures: CapturePredicate) -> CapturePredicate:
    """Return a predicate that also takes names that it takes in lower case, for any lower_case_table_names.

    Args:
        captures: The predicate.
    """
    return lambda table: captures(table) or captures(table.folded())


def classify_ddl(
    sql: str,
    context: DdlContext,
    captures: CapturePredicate,
    needs_database: Callable[[str], bool] = lambda database: True,
) -> DdlRelevance:
    """Return whether a statement can change a captured table.

    Never raises: a statement that leads like a relevant one but cannot be read further is relevant when a table it
    seems to name is captured, or when it seems to name none.

    Args:
        sql: Statement text.
        context: Session context.
        captures: Which tables matter.
        needs_database: Which databases matter: their character set is that of tables to come, and DROP DATABASE takes
            their tables.
    """
    words = leading_words(sql, context.sql_mode)
    try:
        if not is_ddl(sql, context.sql_mode):
            return DdlRelevance(False, (), words)
        tables: list[TableId] = []
        changes_defaults = False
        for _, tokens in split_statements(sql, context.sql_mode):
            statement = parse_statement(sql, tokens, context.sql_mode)
            if is_temporary(statement, tokens, context):
                continue
            if isinstance(statement, DatabaseStatement):
                name = context.default_db if statement.name is None else statement.name
                changes_defaults = changes_defaults or needs_database(name) or needs_database(name.lower())
            tables.extend(full_name(n, context) for n in affected_tables(statement))
    except DdlParseError:
        guessed = _guess_tables(sql, context)
        return DdlRelevance(not guessed or any(captures(t) for t in guessed), guessed, words)
    return DdlRelevance(changes_defaults or any(captures(t) for t in tables), tuple(dict.fromkeys(tables)), words)


def changes_rows(sql: str, sql_mode: int, updated_dbs: Sequence[str], captures_database: Callable[[str], bool]) -> bool:
    """Return whether a statement that was logged as text changes rows of a captured database, or may.

    Args:
        sql: Statement text.
        sql_mode: Bits of its session's sql_mode.
        updated_dbs: The databases that it changes, as the event says; the session's own one tells nothing.
        captures_database: Which databases matter.
    """
    if leading_words(sql, sql_mode).partition(" ")[0] not in _DML:
        return False
    # More than 16 databases are logged as none.
    return not updated_dbs or any(map(captures_database, updated_dbs))


def leading_words(sql: str, sql_mode: int = 0) -> str:
    """Return up to two leading words of a statement in upper case, for counters and messages."""
    try:
        tokens = tokenize(sql, sql_mode, limit=2)
    except DdlParseError:
        return ""
    return " ".join(t.upper for t in tokens if t.kind is TokenKind.WORD)


def affected_tables(statement: ParsedStatement | None) -> tuple[NameParts, ...]:
    """Return the names, as written, of the tables whose structure a statement can change."""
    if isinstance(statement, CreateTable | TruncateTable):
        return (statement.name,)
    if isinstance(statement, AlterTable):
        return statement.name, *(a.name for a in statement.actions if isinstance(a, RenameTo))
    if isinstance(statement, DropTables):
        return statement.names
    if isinstance(statement, RenameTables):
        return tuple(name for pair in statement.pairs for name in pair)
    return ()


def _guess_tables(sql: str, context: DdlContext) -> tuple[TableId, ...]:
    """Return the table named right after TABLE, or after ON of an index statement; nothing when it cannot be told."""
    try:
        tokens = tokenize(sql, context.sql_mode, limit=LEADING_WORD_COUNT)
    except DdlParseError:
        return ()
    cur = Cursor(sql, tokens, context.sql_mode)
    if cur.matches_one_of("RENAME", "DROP"):
        return ()
    while not cur.at_end() and not cur.matches_one_of("TABLE", "ON"):
        cur.next()
    cur.next()
    cur.accept("IF", "NOT", "EXISTS")
    try:
        return (full_name(cur.table_name(), context),)
    except DdlParseError:
        return ()


_MAX_TOKENS = 256


def dropped_views(sql: str, context: DdlContext) -> tuple[TableId, ...]:
    """Return the views that a statement drops; nothing for any other statement, or when it is not understood.

    With IF EXISTS the server steps over names of tables (MySQL 9.7.4); of one name it logs an atomic change only if
    it was a view.

    Args:
        sql: Statement text.
        context: Session context.
    """
    try:
        cur = Cursor(sql, tokenize(sql, context.sql_mode, limit=_MAX_TOKENS), context.sql_mode)
        if not cur.accept("DROP", "VIEW"):
            return ()
        if_exists = cur.accept("IF", "EXISTS")
        names = [cur.table_name()]
        while cur.accept(","):
            names.append(cur.table_name())
    except DdlParseError:
        return ()
    is_certain = not if_exists or (len(names) == 1 and context.atomic)
    return tuple(full_name(name, context) for name in names) if is_certain else ()


def defined_view(sql: str, context: DdlContext) -> TableId | None:
    """Return the view that a CREATE or ALTER VIEW defines; None for any other statement.

    Args:
        sql: Statement text.
        context: Session context.
    """
    try:
        cur = Cursor(sql, tokenize(sql, context.sql_mode, limit=_MAX_TOKENS), context.sql_mode)
        if not cur.accept_one_of("CREATE", "ALTER"):
            return None
        # ALGORITHM, DEFINER and SQL SECURITY come first; AS ends the head of a view, and of nothing that has no VIEW.
        while not cur.accept("VIEW"):
            if cur.at_end() or cur.matches_one_of("AS", "TABLE", "PROCEDURE", "FUNCTION", "TRIGGER", "EVENT"):
                return None
            cur.next()
        return full_name(cur.table_name(), context)
    except DdlParseError:
        return None
