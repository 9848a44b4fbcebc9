"""The default character set that MySQL leaves out of a CREATE TABLE statement that it writes itself.

It does so for ``LIKE`` of a temporary table, and with sql_mode ANSI. TABLE_MAP events of MySQL 5.7 do not tell the
character sets of columns, so the server is asked for the table's.
"""

from __future__ import annotations

from typing import Any

import pymysql

from airflow_provider_mysql_cdc.cdc.binlog.statement_text import with_null
from airflow_provider_mysql_cdc.cdc.ddl.collations import collation_by_name
from airflow_provider_mysql_cdc.cdc.errors import DdlParseError
from airflow_provider_mysql_cdc.cdc.model.table import TableId

_END_OF_COLUMNS = "\n)"
_NO_SUCH_TABLE = (1146, 1049)


def has_no_charset(statement: str) -> bool:
    """Return whether a CREATE TABLE in the server's layout names no default character set.

    Args:
        statement: The statement.
    """
    options = statement.rpartition(_END_OF_COLUMNS)[2]
    return "CHARSET=" not in options and "COLLATE=" not in options


def with_table_charset(
    conn: Any, table: TableId, statement: str, created: range, *, ansi_quotes: bool = False
) -> str | None:
    """Return a statement with the default character set that the table has; None when it may have had another one.

    The table is the one that the statement created if the server created it at that time and shows the same columns:
    each ALTER TABLE changes the time (MySQL 5.7.22).

    Args:
        conn: An open connection to the source.
        table: The table.
        statement: Its CREATE TABLE, as the server wrote it.
        created: The seconds since the epoch in which the statement ran.
        ansi_quotes: Whether it quotes names with ``"``.

    Raises:
        pymysql.MySQLError: The table may not be read, or the connection broke.
    """
    with conn.cursor() as cursor:
        cursor.execute(f"SET SESSION sql_mode = '{'ANSI_QUOTES' if ansi_quotes else ''}'")
        try:
            cursor.execute(f"SHOW CREATE TABLE {table.quoted()}")
        except pymysql.MySQLError as error:
            if error.args[0] not in _NO_SUCH_TABLE:
                raise
            return None
        shown = str(cursor.fetchone()[1])
        cursor.execute(
            "SELECT UNIX_TIMESTAMP(CREATE_TIME), TABLE_COLLATION FROM information_schema.TABLES "
            "WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s",
            (table.db, table.table),
        )
        row = cursor.fetchone()
    if row is None or row[0] not in created or _columns(shown) != _columns(statement):
        return None
    try:
        collation = collation_by_name(str(row[1]))
    except DdlParseError:
        return None
    columns, end, options = statement.rpartition(_END_OF_COLUMNS)
    return f"{columns}{end} DEFAULT CHARSET={collation.charset} COLLATE={collation.name}{options}"


def _columns(statement: str) -> str:
    return with_null(statement).partition("\n")[2].rpartition(_END_OF_COLUMNS)[0]
