"""Decide, without knowing any structure, whether a statement can change a captured table.

Statements that cannot (GRANT, CREATE USER, views, stored programs, FLUSH, temporary tables ...) are told by their
leading words alone, so that new syntax in them never stops a run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from airflow_provider_mysql_cdc.cdc.ddl.cursor import Cursor, NameParts
from airflow_provider_mysql_cdc.cdc.ddl.lexer import TokenKind, tokenize
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
from airflow_provider_mysql_cdc.cdc.ddl.temporary import is_temporary
from airflow_provider_mysql_cdc.cdc.errors import DdlParseError
from airflow_provider_mysql_cdc.cdc.model.table import TableId

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
