"""Tell statements about temporary tables from those about the tables that they hide.

A session with binlog_format=STATEMENT (with MIXED before MySQL 8.0) logs what it does to its temporary tables, in the
words of any other statement: ``TRUNCATE TABLE t`` is about the session's temporary ``t``, if it has one. The event is
marked (LOG_EVENT_THREAD_SPECIFIC_F), but so is one with CONNECTION_ID(), and every later one about a table that has
this function in a default (MySQL 9.7.4).
"""

from __future__ import annotations

from collections.abc import Sequence

from airflow_provider_mysql_cdc.cdc.ddl.lexer import Token
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext
from airflow_provider_mysql_cdc.cdc.ddl.statements import AlterTable, ParsedStatement, TruncateTable
from airflow_provider_mysql_cdc.cdc.model.table import Table

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
