"""CREATE, ALTER and DROP VIEW: what they name is no table.

CREATE TABLE IF NOT EXISTS of a view's name does nothing, but is logged like one that creates the table (MySQL 8.0.15,
9.7.4). Nobody sees the difference while the view is there: rows of a view are logged as those of its tables.
"""

from __future__ import annotations

from airflow_provider_mysql_cdc.cdc.ddl.classify import full_name
from airflow_provider_mysql_cdc.cdc.ddl.cursor import Cursor
from airflow_provider_mysql_cdc.cdc.ddl.lexer import tokenize
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext
from airflow_provider_mysql_cdc.cdc.errors import DdlParseError
from airflow_provider_mysql_cdc.cdc.model.table import TableId

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
